import numpy as np
import pytest

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.monitoring.monitor import MonitorSettings

GOOD = {"window": 1000, "forgetting": False, "false_alarm_rate": 0.01, "order": 5, "n_resamples": None}


def test_twenty_resampled_windows_are_expected_beyond_the_threshold():
    rates = {0.001: 20_000, 0.01: 2000, 0.1: 1000}
    assert {rate: MonitorSettings.read(**{**GOOD, "false_alarm_rate": rate}).n_resamples for rate in rates} == rates


def test_settings_are_plain_numbers_and_read_again():
    settings = MonitorSettings.read(np.int64(20), True, np.float32(0.5), np.int32(2), np.int64(40))
    assert {type(value) for value in settings.to_dict().values()} == {int, bool, float}
    assert MonitorSettings.read(**settings.to_dict()) == settings
    assert str(settings) == "window=20, forgetting=True, false_alarm_rate=0.5, order=2"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"window": 1005}, InvalidInputError, "window must be a multiple of 10, got 1005; try window=1010"),
        ({"window": 10}, InvalidInputError, "window must be at least 20, got 10; try window=1000"),
        ({"window": 1e3}, InvalidTypeError, r"window must be a whole number, got 1000\.0"),
        ({"window": True}, InvalidTypeError, "window must be a whole number, got True"),
        ({"forgetting": 0.9}, InvalidTypeError, r"forgetting must be True or False, got 0\.9"),
        (
            {"false_alarm_rate": 0.0},
            InvalidInputError,
            "false_alarm_rate must be a finite number of at least 0.0001 and at most 0.5, got 0.0",
        ),
        ({"false_alarm_rate": float("nan")}, InvalidInputError, "false_alarm_rate must be a finite number"),
        ({"false_alarm_rate": "low"}, InvalidTypeError, "false_alarm_rate must be a number, got 'low'"),
        ({"order": 6}, InvalidInputError, "order must be at least 1 and at most 5, got 6; try order=5"),
        ({"n_resamples": 99}, InvalidInputError, "n_resamples must be at least 100, got 99; try n_resamples=2000"),
    ],
)
def test_what_cannot_work_is_named(change, error, words):
    with pytest.raises(error, match=words):
        MonitorSettings.read(**{**GOOD, **change})

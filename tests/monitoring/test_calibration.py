import numpy as np
import pytest

from momentalign.monitoring import statistics as calibration
from momentalign.monitoring.statistics import Calibration, calibrate


def found(rows, counts, **settings):
    settings = {"order": 3, "rate": 0.05, "n_resamples": 499, "random": np.random.default_rng(1), **settings}
    return calibrate(rows, counts, rounding=np.zeros(rows.shape[1]), **settings)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_the_stated_part_of_resampled_windows_exceeds_the_threshold(rng, rate):
    calibrated = found(rng.random((200, 4)), (200, 100), rate=rate)
    exceeding = calibrated.by_chance[calibrated.by_chance > 1.0]
    assert len(exceeding) == round(500 * rate) - 1
    assert [calibrated.p_value(one) <= rate for one in exceeding] == [True] * len(exceeding)
    assert calibrated.p_value(1.0) > rate


def test_p_values_count_what_is_as_far_and_are_never_zero():
    calibrated = Calibration(np.ones(2), np.array([0.2, 0.4, 0.4, 2.0]))
    assert [calibrated.p_value(one) for one in (0.1, 0.4, 0.5, 3.0)] == [1.0, 0.8, 0.4, 0.2]


def test_every_figure_shares_in_the_false_alarms(rng):
    """Thresholds of one level: no order is left out because another has longer tails."""
    rows = np.hstack([rng.random((300, 5)), rng.random((300, 1)) < 0.02])
    thresholds = found(rows, (300, 150), n_resamples=1999).thresholds
    assert thresholds.shape == (6,)
    assert np.all((thresholds[:3] > 1.0) & (thresholds[:3] < 3.0))
    assert np.all((thresholds[3:] > 2.5) & (thresholds[3:] < 6.0))


def test_a_constant_is_taken_to_differ_in_one_row():
    calibrated = found(np.full((200, 1), 0.5), (200, 100))
    assert np.all(calibrated.thresholds > 1.0)
    assert calibrated.by_chance.max() > 0.0


def test_large_samples_are_drawn_small_and_scaled(rng, monkeypatch):
    """Their thresholds, in units of the spread by chance, are those of samples drawn in full."""
    rows = rng.random((400, 3))
    full = found(rows, (400, 300), n_resamples=1999).thresholds
    monkeypatch.setattr(calibration, "MOST_ROWS", 100)
    np.testing.assert_allclose(found(rows, (400, 300), n_resamples=1999).thresholds, full, rtol=0.12)


def test_features_beyond_one_portion_count(rng):
    rows = np.zeros((100, calibration._FEATURES_AT_ONCE + 1)) + 0.5
    rows[:, -1] = rng.random(100)
    assert found(rows, (100, 100), n_resamples=300).by_chance.min() > 0.0

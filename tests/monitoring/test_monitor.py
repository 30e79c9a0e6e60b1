"""DriftMonitor: its rate of false alarms, what it finds and names; batches, restarts and bad input.

Rates are checked with binomial bounds: a monitor of exactly the stated rate exceeds them in one of 1,000 runs, and the
seeds are fixed. ``python -m benchmarks.false_alarms`` checks more kinds of features with more windows.
"""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse, stats

from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError
from momentalign.monitoring.monitor import DriftMonitor, FeatureChange, Judgement, MonitorSettings
from momentalign.monitoring.statistics import Differences

PAIRS = 150
RATE = 0.1

KINDS = {
    "normal": lambda rng, rows, width: rng.normal(size=(rows, width)),
    "heavy-tailed": lambda rng, rows, width: rng.standard_t(5, size=(rows, width)),
    "sparse": lambda rng, rows, width: rng.poisson(0.05, size=(rows, width)).astype(float),
    "rare": lambda rng, rows, width: (rng.random((rows, width)) < 0.002).astype(float),
}


def alarms(draw, *, width, reference, window, **settings):
    """Alarms of pairs of a new reference and a new window."""
    rng = np.random.default_rng(5)
    settings = {"window": window, "false_alarm_rate": RATE, "n_resamples": 99, "random_state": rng, **settings}
    rows = window * (3 if settings.get("forgetting") else 1)
    found = 0
    for _ in range(PAIRS):
        monitor = DriftMonitor(draw(rng, reference, width), **settings)
        monitor.update(draw(rng, rows, width))
        found += monitor.last.alarm
    return found


@pytest.mark.parametrize(
    ("kind", "width", "settings"),
    [
        ("normal", 10, {}),
        ("normal", 1, {}),
        ("normal", 5, {"forgetting": True}),
        ("heavy-tailed", 10, {}),
        ("sparse", 10, {}),
    ],
)
def test_the_rate_of_false_alarms_is_the_stated_one(kind, width, settings):
    """The reference has fewer rows than a window: its own error decides."""
    low, high = stats.binom.ppf([0.0005, 0.9995], PAIRS, RATE)
    assert low <= alarms(KINDS[kind], width=width, reference=200, window=300, **settings) <= high


def test_values_that_the_reference_hardly_knows_raise_no_more_alarms():
    assert alarms(KINDS["rare"], width=3, reference=200, window=300) <= stats.binom.ppf(0.9995, PAIRS, RATE)


def shifted(rows, rng):
    return rows + 0.3 * (np.arange(10) == 4)


def stretched(rows, rng):
    return rows * np.where(np.arange(10) == 4, 1.5**0.5, 1.0)


def skewed(rows, rng):
    """The same mean and variance, a skewness of 1."""
    return np.where(np.arange(10) == 4, (rng.gamma(4.0, size=(len(rows), 1)) - 4.0) / 2.0, rows)


CHANGES = {shifted: (1, 0.3, 0.1), stretched: (2, 0.5, 0.2), skewed: (3, 1.0, 0.35)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_one_feature_is_found_within_a_window_and_named(change):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        monitor = DriftMonitor(rng.normal(size=(3000, 10)), n_resamples=1000, random_state=rng)
        monitor.update(rng.normal(size=(1000, 10)))
        found = monitor.update(change(rng.normal(size=(1000, 10)), rng))
        order, size, error = CHANGES[change]
        assert found.alarm
        assert found.p_value <= 0.01
        assert [(one.name, one.order) for one in monitor.last.features] == [("x4", order)]
        assert monitor.last.features[0].change == pytest.approx(size, abs=error)
        assert "'x4'" in found.words


def test_mean_and_variance_alone_do_not_see_a_change_of_skewness():
    rng = np.random.default_rng(0)
    monitor = DriftMonitor(rng.normal(size=(3000, 10)), order=2, n_resamples=1000, random_state=rng)
    assert not monitor.update(skewed(rng.normal(size=(1000, 10)), rng)).alarm


def test_the_lowest_order_beyond_its_threshold_is_named(monitor):
    """A changed variance moves the fourth moment too, sometimes further."""
    watch = monitor()
    ratios = np.zeros((5, 3))
    ratios[[1, 3], 2] = 1.5, 3.0
    ratios[4, 0] = 1.1
    values = ratios * np.array(watch.to_dict()["thresholds"][5:])[:, None]
    found = watch._changes(Differences(values, np.ones((5, 3))))
    assert [(one.name, one.order) for one in found] == [("x2", 2), ("x0", 5)]
    assert found[0].strength == pytest.approx(3.0)


def test_many_small_changes_are_found_together(rng):
    monitor = DriftMonitor(rng.normal(size=(3000, 60)), n_resamples=1000, random_state=0)
    found = monitor.update(rng.normal(0.1, 1.0, size=(1000, 60)))
    assert found.alarm
    assert found.order == 1
    assert len(found.features) < 30
    assert found.distance == pytest.approx(sum(found.terms))


def test_judgements_do_not_depend_on_how_the_stream_is_cut(rng, monitor):
    reference, stream = rng.normal(size=(500, 3)), rng.normal(size=(330, 3))
    stream[250:] += 1.0
    by_row, whole = monitor(reference), monitor(reference)
    found = [one for row in stream if (one := by_row.update(row[None])) is not None]
    assert [one.rows for one in found] == list(range(200, 321, 20))
    worst = whole.update(stream)
    assert worst.rows == max(found, key=lambda one: one.statistic).rows
    assert worst.statistic == pytest.approx(max(one.statistic for one in found), rel=1e-9)
    assert whole.last.statistic == pytest.approx(found[-1].statistic, rel=1e-9)
    assert whole.rows == by_row.rows == 330


def test_alarms_repeat_until_the_stream_is_itself_again(rng, monitor):
    watch = monitor(rng.normal(size=(2000, 3)))
    watch.update(rng.normal(size=(200, 3)))
    watch.update(rng.normal(1.0, 1.0, size=(100, 3)))
    assert all(watch.update(rng.normal(1.0, 1.0, size=(20, 3))).alarm for _ in range(15))
    watch.update(rng.normal(size=(220, 3)))
    assert not watch.last.alarm


def test_a_constant_that_changes_is_found_and_one_odd_row_is_not(rng):
    reference = np.hstack([rng.normal(size=(500, 2)), np.full((500, 1), 3.0)])
    watch = DriftMonitor(reference, window=200, random_state=0)
    rows = np.hstack([rng.normal(size=(200, 2)), np.full((200, 1), 3.0)]).astype(np.float32)
    rows[0, 2] = 9.0
    assert "x2" not in [one.name for one in watch.update(rows).features]
    rows[:, 2] = 3.25
    found = watch.update(rows)
    assert [(one.name, one.order) for one in found.features] == [("x2", 1)]
    assert watch.last.features[0].change == pytest.approx(0.25)


def far_rows(rng, kind, rows, shift=0.0):
    """Columns that lie millions of standard deviations from zero."""
    times = {
        "seconds": (1.7e9, 100.0),
        "nanoseconds": (1.7e18, 1e9),
        "a constant": (1e9, 0.0),
        "a huge constant": (1e17, 0.0),
    }
    mean, spread = times[kind]
    return mean + shift * (spread or mean) + spread * rng.normal(size=(rows, 1))


@pytest.mark.parametrize("beside", [0, 2])
@pytest.mark.parametrize("kind", ["seconds", "nanoseconds", "a constant", "a huge constant"])
def test_features_far_from_zero_are_watched(rng, kind, beside):
    """Such as timestamps; alone or beside others."""

    def rows(count, shift=0.0):
        return np.hstack([far_rows(rng, kind, count, shift), rng.normal(size=(count, beside))])

    watch = DriftMonitor(rows(1000), window=200, n_resamples=400, random_state=0)
    alike = watch.update(rows(200))
    assert not alike.alarm
    assert np.isfinite(alike.statistic)
    found = watch.update(rows(200, shift=1.0))
    assert found.alarm
    assert found.p_value <= 0.01
    assert [one.name for one in found.features] == ["x0"]
    restarted = DriftMonitor.from_dict(json.loads(json.dumps(watch.to_dict(), allow_nan=False)))
    assert restarted.update(rows(20)) is not None


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_noise_of_single_precision_is_no_drift(rng, form):
    """Of features that vary by less than their rounding: another machine rounds in another way."""
    reference = (1000 + 1e-4 * rng.normal(size=(1000, 1))).astype(np.float32)
    watch = DriftMonitor(form(reference), window=200, n_resamples=400, random_state=0)
    assert not watch.update(np.full((200, 1), 1000.0001, np.float32)).alarm
    assert watch.update(np.full((200, 1), 1001.0, np.float32)).alarm


def test_every_kind_of_rows_is_watched_alike(rng, monitor):
    reference, stream = rng.poisson(0.3, size=(400, 2)).astype(float), rng.poisson(0.3, size=(220, 2)).astype(float)
    expected = monitor(reference).update(stream)
    for form in (sparse.csr_matrix, torch.tensor, lambda rows: pd.DataFrame(rows, columns=["x0", "x1"])):
        assert monitor(form(reference)).update(form(stream)).statistic == pytest.approx(expected.statistic, rel=1e-9)


def test_a_large_reference_is_read_in_full(rng):
    watch = DriftMonitor(rng.normal(size=(12_000, 1)), window=100, n_resamples=200, random_state=0)
    assert watch.to_dict()["reference"]["count"] == 12_000
    assert watch.update(rng.normal(2.0, 1.0, size=(100, 1))).alarm


def test_names_are_those_of_the_data_frame(rng, monitor):
    watch = monitor(pd.DataFrame(rng.normal(size=(300, 2)), columns=["age", "size"]))
    assert watch.feature_names == ("age", "size")
    with pytest.raises(InvalidInputError, match="batch has the column 'size' where the reference has 'age'"):
        watch.update(pd.DataFrame(rng.normal(size=(5, 2)), columns=["size", "age"]))


def test_a_batch_that_is_refused_changes_nothing(rng, monitor):
    watch = monitor()
    watch.update(rng.normal(size=(190, 3)))
    before = watch.to_dict()
    spoiled = rng.normal(size=(30, 3))
    spoiled[25, 1] = np.nan
    with pytest.raises(InvalidInputError, match="batch holds NaN or infinite values in feature 'x1'"):
        watch.update(spoiled)
    with pytest.raises(InvalidInputError, match="batch has 2 columns and the reference has 3"):
        watch.update(spoiled[:, :2])
    assert watch.to_dict() == before
    assert watch.update(np.empty((0, 3))) is None


def test_a_reference_that_says_too_little_is_refused(rng):
    with pytest.raises(
        InvalidInputError, match="reference has 99 rows, too few to tell how much they vary; give at least 100"
    ):
        DriftMonitor(rng.normal(size=(99, 2)))
    spoiled = rng.normal(size=(200, 2))
    spoiled[0, 0] = np.inf
    with pytest.raises(InvalidInputError, match="reference holds NaN or infinite values in feature 'x0'"):
        DriftMonitor(spoiled)
    with pytest.raises(InvalidInputError, match="random_state must be a whole number of at least 0"):
        DriftMonitor(rng.normal(size=(200, 2)), random_state=-1)


def test_the_same_seed_gives_the_same_thresholds(rng, monitor):
    reference = rng.normal(size=(300, 2))
    one, other, third = (monitor(reference, random_state=seed).to_dict()["thresholds"] for seed in (1, 1, 2))
    assert one == other != third


@pytest.mark.parametrize("forgetting", [False, True])
def test_a_restarted_monitor_goes_on_to_the_last_bit(rng, monitor, forgetting):
    watch = monitor(forgetting=forgetting)
    watch.update(rng.normal(0.5, 1.0, size=(690, 3)))
    restarted = DriftMonitor.from_dict(json.loads(json.dumps(watch.to_dict(), allow_nan=False)))
    assert (restarted.last, restarted.rows, repr(restarted)) == (watch.last, 690, repr(watch))
    batch = rng.normal(size=(55, 3))
    assert restarted.update(batch) == watch.update(batch) is not None
    restarted.reset()
    assert (restarted.rows, restarted.last) == (0, None)
    assert restarted.update(batch) is None
    assert DriftMonitor.from_dict(restarted.to_dict()).last is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("version",), "1"),
        (("version",), 0),
        (("version",), -1),
        (("settings",), {"window": 200}),
        (("settings", "window"), -5),
        (("settings", "order"), 4),
        (("feature_names",), ["a", "b"]),
        (("feature_names",), [1, 2, 3]),
        (("interval", "low"), [9.0, 9.0, 9.0]),
        (("interval", "high"), [1.0, 1.0, float("inf")]),
        (("interval", "rounding"), [0.0, 0.0]),
        (("interval", "rounding"), [0.0, 0.0, -1.0]),
        (("reference",), {"order": 10, "cross": 1, "count": 0}),
        (("reference", "order"), 8),
        (("reference", "count"), 0.5),
        (("reference", "count"), 400.0),
        (("reference", "count"), 99),
        (("reference", "count"), 10**400),
        (("thresholds",), [1.0] * 9),
        (("thresholds",), [0.0] * 10),
        (("by_chance",), [0.5]),
        (("by_chance",), [2.0, 1.0] * 200),
        (("window", "steps"), 99),
        (("window", "blocks"), None),
        (("settings", "window"), 10**400),
        (("reference", "mean"), [0.5, 0.5, 1e308]),
        (("window", "blocks"), [[[1e308] * 3] * 10] * 10),
        (("last",), {"rows": 3}),
        (("last",), 3),
    ],
)
def test_a_damaged_description_is_refused(monitor, path, value):
    description = json.loads(json.dumps(monitor().to_dict()))
    part = description
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(DamagedFileError, match="make one from the reference"):
        DriftMonitor.from_dict(description)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", -1),
        ("rows", 2.5),
        ("statistic", float("nan")),
        ("statistic", -1.0),
        ("statistic", "2"),
        ("statistic", 10**400),
        ("p_value", -1),
        ("p_value", 1.5),
        ("terms", [-0.1] * 5),
        ("terms", [float("nan")] * 5),
        ("order", -1),
        ("order", 0),
        ("features", [{"name": "x0", "order": 0, "change": 0.1, "strength": 2.0}]),
        ("features", [{"name": "x0", "order": 1, "change": float("nan"), "strength": 2.0}]),
        ("features", [{"name": "x0", "order": 1, "change": 0.1, "strength": -2.0}]),
    ],
)
def test_a_damaged_judgement_is_refused(rng, monitor, name, value):
    watch = monitor()
    watch.update(rng.normal(size=(200, 3)))
    description = watch.to_dict()
    assert DriftMonitor.from_dict(description).last == watch.last is not None
    with pytest.raises(DamagedFileError, match="make one from the reference"):
        DriftMonitor.from_dict({**description, "last": {**description["last"], name: value}})


def test_a_version_to_come_names_the_remedy(monitor):
    with pytest.raises(DamagedFileError, match="version 2, this one reads 1: upgrade momentalign"):
        DriftMonitor.from_dict({**monitor().to_dict(), "version": 2})


def test_what_is_no_description_is_refused():
    for wrong in (None, {}, [], "monitor"):
        with pytest.raises(DamagedFileError, match="this does not describe a DriftMonitor"):
            DriftMonitor.from_dict(wrong)


def judgement(*features, statistic=2.0):
    return Judgement(1500, statistic, 0.001, (0.1, 0.02), tuple(features), 2)


MOVED = [
    FeatureChange("age", 1, -0.304, 3.0),
    FeatureChange("size", 2, 0.5, 2.0),
    FeatureChange("speed", 3, 0.9, 1.5),
    FeatureChange("last", 1, 0.1, 1.1),
]


def test_words_say_what_moved_and_how():
    assert judgement(*MOVED).words == (
        "drift after 1,500 rows (p = 0.001): 'age' by -0.30 standard deviations, 'size' to 1.50 times the variance, "
        "'speed' in order 3 by +0.90 and 1 more."
    )
    assert judgement(*MOVED[:1]).words.endswith("'age' by -0.30 standard deviations.")
    assert "many features moved a little, together 2.00 times the threshold in order 2." in judgement().words
    assert judgement(statistic=1.0).words == "no drift after 1,500 rows (p = 0.001)."


def test_the_alarm_is_what_exceeds_the_threshold():
    assert judgement().alarm
    assert not judgement(statistic=1.0).alarm
    assert judgement().distance == pytest.approx(0.12)


def test_all_of_it_is_plain_json_and_comes_back():
    found = judgement(*MOVED)
    described = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert described["alarm"] is True
    assert described["words"] == found.words
    assert Judgement.from_dict(described) == found


GOOD = {"window": 1000, "forgetting": False, "false_alarm_rate": 0.01, "order": 5, "n_resamples": None}


def test_twenty_resampled_windows_are_expected_beyond_the_threshold():
    rates = {0.001: 20_000, 0.01: 2000, 0.1: 1000}
    assert {rate: MonitorSettings.checked(**{**GOOD, "false_alarm_rate": rate}).n_resamples for rate in rates} == rates


def test_settings_are_plain_numbers_and_read_again():
    settings = MonitorSettings.checked(np.int64(20), True, np.float32(0.5), np.int32(2), np.int64(40))
    assert {type(value) for value in settings.to_dict().values()} == {int, bool, float}
    assert MonitorSettings.checked(**settings.to_dict()) == settings
    assert str(settings) == "window=20, forgetting=True, false_alarm_rate=0.5, order=2"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"window": 1005}, InvalidInputError, "window must be a multiple of 10, got 1005; try window=1010"),
        ({"window": 10}, InvalidInputError, "window must be at least 20, got 10; try window=1000"),
        ({"window": 1e3}, InvalidTypeError, r"window must be a whole number, got 1000\.0"),
        ({"window": 10**400}, InvalidInputError, "window has more rows than any stream"),
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
def test_settings_that_cannot_work_are_named(change, error, message):
    with pytest.raises(error, match=message):
        MonitorSettings.checked(**{**GOOD, **change})

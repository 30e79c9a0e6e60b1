"""Intervals, differences of moments with their variances by chance, and thresholds from resampling."""

from itertools import accumulate

import numpy as np
import pytest

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.monitoring import statistics
from momentalign.monitoring.statistics import Calibration, Differences, UnitInterval, calibrate, differences

ORDERS = 5


def test_normal_features_reach_three_and_a_half_standard_deviations(rng):
    interval = UnitInterval.of(rng.normal([5.0, 0.0], [1.0, 10.0], size=(20_000, 2)))
    np.testing.assert_allclose(interval.low, [5.0 - 3.49, -34.9], rtol=0.05)
    np.testing.assert_allclose(interval.high, [5.0 + 3.49, 34.9], rtol=0.05)


def test_no_outlier_stretches_the_interval_and_none_leaves_it(rng):
    rows = rng.normal(size=(1000, 1))
    rows[0] = 1e300
    interval = UnitInterval.of(rows)
    assert interval.high[0] < 5.0
    assert interval.apply(np.array([[1e300], [-1e300]])).ravel().tolist() == [1.0, 0.0]


def test_a_rare_value_has_the_range_and_a_constant_length_one():
    rows = np.zeros((1000, 2))
    rows[:3, 0] = 4.0
    interval = UnitInterval.of(rows)
    assert interval.low.tolist() == [-1.0, -0.5]
    assert interval.high.tolist() == [5.0, 0.5]


def test_rounding_is_that_of_the_rows_and_of_constants_always_single():
    rows = np.array([[999.0, 7.0], [1000.0, 7.0]])
    assert UnitInterval.of(rows).rounding == pytest.approx([1000.25e-14 / 1.5, 7.5e-6])
    assert UnitInterval.of(rows, single=True).rounding == pytest.approx([1000.25e-6 / 1.5, 7.5e-6])


@pytest.mark.parametrize("constant", [0.3, 1e9, 1e17])
def test_the_interval_of_a_constant_is_far_longer_than_its_rounding(constant):
    interval = UnitInterval.of(np.full((100, 1), constant))
    assert interval.rounding[0] < 0.0051
    assert interval.apply(np.array([[constant], [np.float32(constant)]])) == pytest.approx(
        0.5, abs=interval.rounding[0]
    )


def test_an_interval_of_an_earlier_version_is_taken_as_it_was():
    found = UnitInterval.from_dict({"low": [999.0], "high": [1000.0]}, 1)
    assert found.rounding == pytest.approx([1e-3])
    again = UnitInterval.from_dict(found.to_dict(), 1)
    assert [vars(again)[name].tolist() for name in vars(again)] == [[999.0], [1000.0], found.rounding.tolist()]


def raw(rows, centre=0.5):
    powers = accumulate([rows - centre] * (2 * ORDERS), np.multiply)
    return np.stack([power.mean(axis=-2) for power in powers], axis=-2)


def compare(reference, window, rounding=0.0):
    counts = (reference.shape[-2], window.shape[-2])
    return differences(raw(reference), raw(window), counts, np.full(reference.shape[-1], rounding))


def test_norms_of_the_differences_are_the_terms_of_the_distance(rng):
    reference, window = rng.random((40, 4)), rng.random((30, 4)) ** 2
    found = np.linalg.norm(compare(reference, window).values, axis=-1)
    np.testing.assert_allclose(found, cmd_terms(reference, window), rtol=1e-12)


@pytest.mark.parametrize("draw", ["random", "standard_normal", "exponential"])
def test_variances_are_those_of_repeated_samples(rng, draw):
    samples = [0.1 * getattr(rng, draw)(size=(1000, rows, 1)) for rows in (300, 150)]
    found = compare(*samples)
    np.testing.assert_allclose(found.variances.mean(axis=0)[:4], found.values.var(axis=0)[:4], rtol=0.25)
    low_orders = found.ratios[:, :3, 0]
    assert np.all(np.abs(low_orders.std(axis=0) - 1.0) < 0.1)


def test_figures_are_of_all_features_together_and_of_the_one_that_moved_most():
    found = Differences(np.array([[3.0, -4.0]]), np.array([[9.0, 1.0]]))
    np.testing.assert_allclose(found.figures, [5.0 / np.sqrt(10.0), 4.0])


def test_what_rounding_explains_is_no_difference_and_another_constant_is_one():
    constant = np.full((2000, 2), 0.5)
    assert not compare(constant, constant).figures.any()
    assert not compare(constant, constant + 1e-7, 1e-6).figures.any()
    assert compare(constant, constant[:20] + 0.1, 0.02).figures.min() > 0.0


def test_a_fair_coin_has_a_spread_in_every_order():
    coin = np.tile([0.0, 1.0], 50)[:, None]
    assert np.all(compare(coin, coin).variances > 0.0)


def calibrated(rows, counts, **settings):
    settings = {"order": 3, "rate": 0.05, "n_resamples": 499, "random": np.random.default_rng(1), **settings}
    return calibrate(rows, counts, rounding=np.zeros(rows.shape[1]), **settings)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_the_stated_part_of_resampled_windows_exceeds_the_threshold(rng, rate):
    found = calibrated(rng.random((200, 4)), (200, 100), rate=rate)
    exceeding = found.by_chance[found.by_chance > 1.0]
    assert len(exceeding) == round(500 * rate) - 1
    assert [found.p_value(one) <= rate for one in exceeding] == [True] * len(exceeding)
    assert found.p_value(1.0) > rate


def test_p_values_count_what_is_as_far_and_are_never_zero():
    found = Calibration(np.ones(2), np.array([0.2, 0.4, 0.4, 2.0]))
    assert [found.p_value(one) for one in (0.1, 0.4, 0.5, 3.0)] == [1.0, 0.8, 0.4, 0.2]


def test_every_figure_shares_in_the_false_alarms(rng):
    """Thresholds of one level: no order is left out because another has longer tails."""
    rows = np.hstack([rng.random((300, 5)), rng.random((300, 1)) < 0.02])
    thresholds = calibrated(rows, (300, 150), n_resamples=1999).thresholds
    assert thresholds.shape == (6,)
    assert np.all((thresholds[:3] > 1.0) & (thresholds[:3] < 3.0))
    assert np.all((thresholds[3:] > 2.5) & (thresholds[3:] < 6.0))


def test_a_constant_is_taken_to_differ_in_one_row():
    found = calibrated(np.full((200, 1), 0.5), (200, 100))
    assert np.all(found.thresholds > 1.0)
    assert found.by_chance.max() > 0.0


def test_large_samples_are_drawn_small_and_scaled(rng, monkeypatch):
    """Their thresholds, in units of the spread by chance, are those of samples drawn in full."""
    rows = rng.random((400, 3))
    full = calibrated(rows, (400, 300), n_resamples=1999).thresholds
    monkeypatch.setattr(statistics, "MOST_ROWS", 100)
    np.testing.assert_allclose(calibrated(rows, (400, 300), n_resamples=1999).thresholds, full, rtol=0.12)


def test_features_beyond_one_portion_count(rng):
    rows = np.zeros((100, statistics._FEATURES_AT_ONCE + 1)) + 0.5
    rows[:, -1] = rng.random(100)
    assert calibrated(rows, (100, 100), n_resamples=300).by_chance.min() > 0.0

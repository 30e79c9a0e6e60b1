import numpy as np
import pytest

from momentalign.monitoring.statistics import UnitInterval


def test_normal_features_reach_three_and_a_half_deviations(rng):
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


def test_rounding_is_that_of_single_precision():
    assert UnitInterval(np.array([999.0]), np.array([1000.0])).rounding == pytest.approx([1e-3])

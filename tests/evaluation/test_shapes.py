import numpy as np
import pytest

from momentalign.evaluation.features import BINS, Level, histogram, main_levels


def test_shares_are_those_of_numpy(rng):
    source, target = np.sort(rng.normal(size=300)), np.sort(rng.normal(1.0, 1.0, 200))
    shape = histogram(source, target)
    for sample, shares in ((source, shape.source), (target, shape.target)):
        counts, _ = np.histogram(sample, bins=BINS, range=(shape.low, shape.high))
        assert shares == pytest.approx((counts / len(sample)).tolist(), abs=1e-4)


def test_outermost_values_are_cut_off(rng):
    source = np.sort(np.append(rng.random(999), 1e9))
    shape = histogram(source, source)
    assert shape.high < 1.1
    assert 0.97 < sum(shape.source) < 1.0


def test_whole_numbers_get_bins_of_their_own():
    shape = histogram(np.array([1.0, 2.0, 2.0, 5.0]), np.array([5.0]))
    assert (shape.low, shape.high) == (0.5, 5.5)
    assert shape.source == [0.25, 0.5, 0.0, 0.0, 0.25]


def test_many_whole_numbers_share_bins():
    values = np.arange(100.0)
    shape = histogram(values, values)
    assert len(shape.source) <= BINS
    assert sum(shape.source) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("value", [0.5, -3.25])
def test_a_constant_has_a_bin(value):
    shape = histogram(np.full(9, value), np.full(9, value))
    assert shape.low < value < shape.high
    assert sum(shape.source) == 1.0


def test_rare_values_widen_the_range():
    source = np.zeros(1000)
    source[-1] = 0.5
    assert histogram(source, np.zeros(1000)).high == 0.5


def test_an_empty_side_has_no_shares():
    shape = histogram(np.array([]), np.array([0.5, 1.5]))
    assert sum(shape.source) == 0.0
    assert sum(shape.target) == 1.0
    assert histogram(np.array([]), np.array([])) is None


def test_huge_numbers_do_not_overflow():
    shape = histogram(np.array([-1.7e308, 0.0, 0.5]), np.array([1.7e308]))
    assert np.isfinite([shape.low, shape.high]).all()


def test_rare_categories_are_put_together():
    levels = [Level(str(place), 0.1, 0.1) for place in range(10)]
    shape = main_levels(levels)
    assert shape.names == ["0", "1", "2", "3", "4", "5 others"]
    assert shape.source[-1] == 0.5
    assert main_levels(levels[:6]).names == ["0", "1", "2", "3", "4", "5"]

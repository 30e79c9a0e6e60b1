import numpy as np
import pytest

from momentalign.moments.central_sums import dense_sums
from momentalign.moments.differences import _size, difference_terms


def sums(rows, orders=5):
    return dense_sums(np.asarray(rows, dtype=float), None, orders, crossed=False)


@pytest.mark.parametrize("orders", [2, 3, 4, 5, 9, 10])
def test_the_size_of_an_order_is_that_of_its_summands(rng, orders):
    sample = rng.normal(size=(10_000, 2))
    central = sums(sample, orders).sums / len(sample)
    for order in range(1, orders + 1):
        exact = np.mean(np.abs(sample - sample.mean(0)) ** order, axis=0)
        # Odd orders lie below the root of their neighbours' product; the highest one is known from below.
        assert np.all(_size(central, order) <= 1.5 * exact)
        assert np.all(_size(central, order) >= 0.6 * exact)


def test_one_outlier_sets_the_size_exactly():
    sample = np.zeros((10_000, 1))
    sample[0] = 7.0
    central = sums(sample).sums / len(sample)
    assert _size(central, 5) == pytest.approx(np.mean(np.abs(sample - sample.mean()) ** 5), rel=1e-3)


def test_constants_have_no_size():
    assert _size(np.zeros((4, 2)), 5).tolist() == [0.0, 0.0]
    assert difference_terms(sums([[1.0]]), sums([[1.0], [1.0]]), 5, scale=1.0).tolist() == [0.0] * 5


def test_noise_is_no_difference_and_a_difference_is_no_noise(rng):
    sample = rng.random((100, 3))
    assert difference_terms(sums(sample), sums(sample * (1 + 1e-15)), 5, scale=1.0).tolist() == [0.0] * 5
    assert np.all(difference_terms(sums(sample), sums(sample * (1 + 1e-11)), 5, scale=1.0) > 0)

"""Central sums, how they merge, and the terms between them."""

import math

import numpy as np
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.moments.sums import (
    CentralSums,
    _guarded,
    _size,
    dense_sums,
    difference_terms,
    merged,
    no_rows,
    scaled,
    sparse_sums,
)


def test_the_mean_is_kept_below_its_last_digit():
    one = dense_sums(np.array([[1e16], [1e16]]), None, 2, crossed=False)
    other = dense_sums(np.array([[1e16 + 2.0]]), None, 2, crossed=False)
    found = merged(one, other)
    assert found.mean + found.rest == pytest.approx([1e16], abs=2.0)
    assert found.rest[0] == pytest.approx(2 / 3, rel=1e-12)  # float64 knows no digits behind the point here
    assert found.sums[0, 0] == pytest.approx(8 / 3, rel=1e-12)


def test_rounding_makes_no_even_sum_negative():
    found = merged(*(CentralSums(1, np.array([x]), np.zeros(1), np.full((3, 1), -1e-30), None) for x in (0.0, 1e-20)))
    assert found.sums[0] >= 0.0
    assert found.sums[2] >= 0.0


@pytest.mark.parametrize("weights", [None, np.array([0.5, 2.0, 1.0])])
def test_sparse_and_dense_sums_agree(weights):
    rows = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, -3.0]])
    dense = dense_sums(rows, weights, 4, crossed=True)
    found = sparse_sums(sparse.csr_array(rows), weights, 4, crossed=True)
    assert found.count == dense.count
    for name in ("mean", "sums", "products"):
        np.testing.assert_allclose(getattr(found, name), getattr(dense, name), rtol=1e-14, atol=1e-15, err_msg=name)


def test_products_of_many_rows_are_added_in_steps(rng):
    rows = rng.random((3000, 100))
    found = dense_sums(rows, None, 2, crossed=True)
    np.testing.assert_allclose(found.products / 3000, np.cov(rows.T, bias=True), rtol=1e-12, atol=1e-15)


def test_products_know_the_mean_below_its_last_digit():
    rows = np.array([[1e16], [1e16], [1e16 + 2.0]])  # about the rounded mean they sum to 4
    assert dense_sums(rows, None, 2, crossed=True).products == pytest.approx(8 / 3, rel=1e-12)


def test_products_of_two_parts_are_those_of_all_rows(rng):
    rows, weights = rng.random((30, 3)), rng.random(30)
    parts = [dense_sums(rows[part], weights[part], 2, crossed=True) for part in (slice(0, 8), slice(8, 30))]
    expected = dense_sums(rows, weights, 2, crossed=True)
    np.testing.assert_allclose(merged(*parts).products, expected.products, rtol=1e-12)
    np.testing.assert_allclose(merged(*parts).products.diagonal(), expected.sums[0], rtol=1e-12)


def test_no_rows_and_all_weights_times_a_number():
    nothing = no_rows(2, 3, crossed=True)
    rows = dense_sums(np.array([[0.0, 1.0], [2.0, 1.0]]), None, 3, crossed=True)
    assert merged(nothing, rows) is merged(rows, nothing) is rows
    half = scaled(rows, 0.5)
    assert (half.count, half.sums.tolist(), half.products.tolist()) == (1.0, [[1, 0], [0, 0]], [[1, 0], [0, 0]])
    assert scaled(no_rows(2, 3, crossed=False), 0.5).products is None


@pytest.mark.parametrize("weighted", [False, True])
def test_products_of_sparse_columns_far_from_zero_keep_their_digits(rng, weighted):
    """Full columns at an offset, one that is filled by a third, and one about zero: covariances as of dense rows."""
    rows = 1e8 + rng.normal(size=(500, 4))
    rows[:, 2] *= rng.random(500) < 0.3
    rows[:, 3] = rng.normal(size=500) * (rng.random(500) < 0.5)
    weights = rng.random(500) * (rng.random(500) < 0.9) if weighted else None
    dense = dense_sums(rows, weights, 3, crossed=True)
    found = sparse_sums(sparse.csr_matrix(rows), weights, 3, crossed=True)
    sizes = np.sqrt(np.outer(dense.sums[0], dense.sums[0]))
    np.testing.assert_allclose(found.sums[0], dense.sums[0], rtol=1e-9)
    np.testing.assert_allclose(found.products / sizes, dense.products / sizes, rtol=0.0, atol=1e-9)


EPS = np.finfo(float).eps


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


def test_odd_orders_lie_between_their_neighbours():
    central = np.array([[2.0], [0.0], [32.0], [0.0], [1024.0]])
    assert [_size(central, order).item() for order in range(1, 7)] == pytest.approx(
        [math.sqrt(2.0), 2.0, 8.0, 32.0, math.sqrt(32.0 * 1024.0), 1024.0]
    )
    assert _size(central[:4], 5) == pytest.approx(32.0 * math.sqrt(32.0 / 2.0))


def test_an_overflow_is_no_noise():
    assert _guarded(np.array([1.0]), math.inf) == 1.0
    assert _guarded(np.array([math.inf, 1.0]), math.inf) == math.inf
    assert _guarded(np.array([3e200, 4e200]), 1.0) == pytest.approx(5e200)
    assert _guarded(np.array([3e-200, 4e-200]), 0.0) == pytest.approx(5e-200, abs=0.0)


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


@pytest.mark.parametrize(("count", "growth"), [(1, 1.0), (16, 1.0), (1600, 10.0), (10**7, 790.0), (10**12, 790.0)])
@pytest.mark.parametrize("order", [2, 4])
def test_the_level_of_noise_grows_with_the_order_and_the_merges(order, count, growth):
    """32 last digits of the sizes of both, times the root of 2^order and a quarter of that of the merges."""

    def term(digits):
        moments = np.ones((3, 1))
        moments[order - 2] += digits * EPS
        one, other = (
            CentralSums(count, np.zeros(1), np.zeros(1), count * rows, None) for rows in (moments, np.ones((3, 1)))
        )
        return difference_terms(one, other, 4, scale=1.0)[order - 1]

    level = 32 * 2 * 2 ** (order / 2) * growth
    assert term(0.9 * level) == 0.0
    assert term(1.1 * level) > 0.0


@pytest.mark.parametrize(("share", "is_noise"), [(0.85, True), (1.15, False)])
def test_the_level_of_cross_variances_is_that_of_the_second_order(share, is_noise):
    """All four covariances of two features differ by d, three of them count; the variances add up to four."""
    difference = share * 32 * 2 * 4 / np.sqrt(3) * EPS
    one, other = (
        CentralSums(1, np.zeros(2), np.zeros(2), np.ones((1, 2)), np.full((2, 2), 1.0 + d)) for d in (0.0, difference)
    )
    assert (difference_terms(one, other, 2, scale=1.0)[1] == 0.0) == is_noise


@pytest.mark.parametrize(("scale", "size"), [(1.0, 1.0), (4.0, 1.0), (1.0, 1e-6), (1.0, 1e6)])
def test_cross_variances_have_a_level_too(rng, scale, size):
    sample = size * rng.random((100, 3))
    one, same, other = (
        dense_sums(rows, None, 2, crossed=True) for rows in (sample, sample * (1 + 1e-15), sample * (1 + 1e-11))
    )
    assert difference_terms(one, same, 2, scale=scale)[1] == 0.0
    assert difference_terms(one, other, 2, scale=scale)[1] > 0.0


def test_the_mean_is_compared_below_its_last_digit():
    one, other = (CentralSums(2, np.ones(1), np.array([rest]), np.full((1, 1), 1e-9), None) for rest in (0.0, 1e-17))
    assert difference_terms(one, other, 2, scale=0.5)[0] == pytest.approx(2e-17, rel=1e-12, abs=0.0)
    above = CentralSums(2, np.full(1, 1.0 + EPS), np.array([-0.25 * EPS]), np.full((1, 1), 1e-9), None)
    assert difference_terms(above, one, 2, scale=0.5)[0] == pytest.approx(1.5 * EPS, rel=1e-12, abs=0.0)


def test_noise_of_tiny_values_counts_as_zero():
    """Products of their even moments are below float64, the moments are not."""
    rows = np.array([[0.0], [1e-38], [1e-38]])
    whole, merged = ma.Moments(order=6).update(rows), ma.Moments(order=6).update(rows[1:])
    assert whole.cmd(merged.merge(ma.Moments(order=6).update(rows[:1]))) == 0.0

import numpy as np
import pytest
from scipy import sparse

from momentalign.moments.sums import CentralSums, dense_sums, merged, no_rows, scaled, sparse_sums


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

"""Moments of streams and shards: values, settings, descriptions, Dask, and the Python the loops are written in."""

import json
import os
import pickle
import subprocess
import sys
from itertools import product

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse, stats

import momentalign as ma
from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError
from momentalign.moments import streaming as dask_tree
from momentalign.moments.readers import is_dask, is_lazy
from momentalign.moments.sums import _about_the_mean


@pytest.fixture
def sample(rng):
    return rng.exponential(size=(500, 4))


def check(moments, sample):
    """Against scipy, whose rows are centred one by one."""
    assert moments.count == len(sample)
    np.testing.assert_allclose(moments.mean, sample.mean(0), rtol=1e-12)
    for order in range(2, moments.order + 1):
        expected = stats.moment(sample, order, axis=0)
        size = stats.moment(np.abs(sample - sample.mean(0)), order, axis=0, center=0.0)
        assert np.all(np.abs(moments.central[order - 2] - expected) <= 1e-11 * size)


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        np.asfortranarray,
        np.ndarray.tolist,
        lambda values: values.astype(">f8"),
        lambda values: np.repeat(values, 2, axis=0)[::2],
        torch.tensor,
        lambda values: torch.tensor(values, requires_grad=True),
        lambda values: torch.tensor(values).T.contiguous().T,
        pd.DataFrame,
        np.ma.asarray,
        sparse.csr_array,
        sparse.csc_matrix,
        lambda values: [values[:7], values[7:]],
        lambda values: iter(torch.tensor(values).split(99)),
    ],
)
@pytest.mark.parametrize("cross", [1, 2])
def test_every_form_of_a_sample_has_its_moments(sample, form, cross):
    moments = ma.Moments.of(form(sample), cross=cross)
    check(moments, sample)
    if cross == 2:
        np.testing.assert_allclose(moments.covariance, np.cov(sample.T, bias=True), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint16", "bool", "longdouble"])
def test_other_numbers_are_widened(sample, dtype):
    values = np.round(4 * sample).clip(0, 100).astype(dtype)
    check(ma.Moments.of(values), values.astype(float))


def test_bfloat16_is_widened(sample):
    rows = torch.tensor(sample).bfloat16()
    check(ma.Moments.of(rows), rows.double().numpy())


@pytest.mark.parametrize("rows", [1, 3, 31, 33, 255, 257, 1030])
@pytest.mark.parametrize("order", [1, 2, 4, 5, 10])
def test_any_number_of_rows_and_orders(rng, rows, order):
    sample = rng.gamma(2.0, size=(rows, 3)).astype(np.float32)
    moments = ma.Moments(order).update(sample)
    assert moments.central.shape == (order - 1, 3)
    check(moments, sample.astype(float))


def test_more_features_than_are_worked_on_together(rng):
    for order in (3, 5):
        sample = rng.random((20, 1300))
        check(ma.Moments.of(sample, order=order), sample)


def test_far_from_zero_no_digit_is_lost(rng):
    near = rng.normal(size=(20_000, 3)).astype(np.float32).astype(float)
    near = np.round(near * 2**20) / 2**20  # so that the offset rounds nothing away
    far = ma.Moments()
    for start in range(0, len(near), 1111):
        far.update(near[start : start + 1111] + 1e6)
    expected = ma.Moments.of(near)
    np.testing.assert_allclose(far.central, expected.central, rtol=1e-11, atol=1e-11)
    assert far.cmd_terms(expected)[1:].max() <= 1e-11
    assert far.cmd_terms(ma.Moments.of(near + 1e6)).tolist() == [0.0] * 5


def test_a_constant_has_no_spread_however_it_is_cut():
    moments = ma.Moments()
    for rows in (1, 7, 41, 300):
        moments.update(np.full((rows, 2), 0.1))
    assert moments.mean.tolist() == [0.1, 0.1]
    assert not moments.central.any()
    assert not ma.Moments().update(np.full((50, 1), 0.1), weights=np.linspace(0, 1, 50)).central.any()


def test_a_light_row_far_away_does_not_cost_the_digits_of_the_others(rng):
    sample = np.vstack([[1e8], rng.random((40, 1))])
    weights = np.r_[1e-30, np.ones(40)]
    np.testing.assert_allclose(
        ma.Moments().update(sample, weights).variance, np.cov(sample.T, aweights=weights, bias=True), rtol=1e-10
    )


@pytest.mark.parametrize("cross", [1, 2])
def test_sparse_rows_may_be_weighted(rng, cross):
    rows = sparse.random_array((300, 5), density=0.2, rng=rng, format="csr")
    weights = rng.random(300) * (rng.random(300) < 0.8)
    found = ma.Moments(cross=cross).update(rows, weights)
    expected = ma.Moments(cross=cross).update(rows.toarray(), weights)
    assert found.cmd(expected) == 0.0
    np.testing.assert_allclose(found.central, expected.central, rtol=1e-11, atol=1e-14)


def test_a_sparse_place_given_twice_is_summed():
    rows = sparse.csr_array(([1.0, 2.0, 5.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    moments = ma.Moments.of(rows)
    assert (moments.mean.tolist(), moments.variance.tolist()) == ([1.5, 2.5], [2.25, 6.25])
    assert rows.nnz == 3  # The matrix of the caller is as it was.


def test_wide_sparse_rows_stay_sparse(rng):
    rows = sparse.random_array((2_000, 2_000_000), density=1e-6, rng=rng, format="csr")  # dense: 32 GB
    assert ma.Moments.of(rows, order=2).variance.sum() > 0


def test_the_count_is_whole_until_there_are_weights(sample):
    moments = ma.Moments().update(sample)
    assert (moments.count, type(moments.count)) == (500, int)
    moments.update(sample, weights=np.full(500, 0.5))
    assert (moments.count, type(moments.count)) == (750.0, float)


@pytest.mark.parametrize("cross", [1, 2])
@pytest.mark.parametrize("interval", [(0.0, 1.0), (-3.0, 5.0)])
@pytest.mark.parametrize("n_moments", [2, 3, 5, None])
def test_the_distance_is_that_of_the_samples(rng, sample, cross, interval, n_moments):
    other = rng.normal(size=(70, 4))
    source, target = ma.Moments(6, cross).update(sample), ma.Moments(6, cross).update(other)
    settings = {"n_moments": n_moments or 6, "interval": interval, "cross": cross}
    expected = ma.cmd_terms(sample, other, **settings)
    found = source.cmd_terms(target, interval=interval, n_moments=n_moments)
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert source.cmd(target, interval=interval, n_moments=n_moments) == pytest.approx(expected.sum(), rel=1e-12)


def test_properties_cannot_change_the_moments(sample):
    moments = ma.Moments(cross=2).update(sample)
    before = moments.to_dict()
    for values in (moments.mean, moments.central, moments.variance, moments.deviation, moments.covariance):
        values += 1.0
    assert moments.to_dict() == before
    assert (moments.order, moments.cross) == (5, 2)


def test_a_copy_and_a_sum_are_their_own(sample):
    moments = ma.Moments().update(sample)
    copied, total = moments.copy(), moments + moments
    moments.update(sample + 1.0)
    assert (copied.count, total.count, moments.count) == (500, 1000, 1000)
    check(copied, sample)


def test_moments_travel_between_processes(sample):
    moments = ma.Moments(cross=2).update(sample)
    assert pickle.loads(pickle.dumps(moments)).to_dict() == moments.to_dict()  # noqa: S301


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"order": 0}, "order must be at least 1 and at most 10, got 0"),
        ({"order": 11}, "order must be at least 1 and at most 10, got 11; try order=10"),
        ({"order": 5.0}, r"order must be a whole number, got 5\.0"),
        ({"order": True}, "order must be a whole number, got True"),
        ({"cross": 3}, "cross must be at least 1 and at most 2, got 3"),
        ({"order": 1, "cross": 2}, "cross=2 needs the second order, got order=1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(InvalidInputError, match=words):
        ma.Moments(**settings)


BAD = [
    ([[0.0, np.nan, 0.0, 0.0]], None, "batch holds NaN or infinite values"),
    ([[0.0, 1.0, -np.inf, 0.0]], None, "batch holds NaN or infinite values"),
    (sparse.csr_array([[0.0, np.inf, 0.0, 0.0]]), None, "batch holds NaN or infinite values"),
    (np.full((3, 4), 1e80), None, "powers up to order 5 of the values overflow float64"),
    (np.array([[1e308] * 4, [-1e308] * 4]), None, "overflow float64"),
    (np.ones((2, 3)), None, "batch has 3 columns and the moments have 4"),
    (np.ones((0, 3)), None, "batch has 3 columns and the moments have 4"),
    (np.ones(4), None, r"batch must be a matrix \(rows, features\), got shape \(4,\)"),
    ("rows", None, "batch must be a matrix"),
    ([[1.0, 2.0], [3.0]], None, "batch cannot be read as a matrix"),
    (np.ones((2, 0)), None, "batch has no columns"),
    ([["a", "b", "c", "d"]], None, "batch must hold real numbers, got dtype <U1"),
    (np.ones((2, 4), complex), None, "batch must hold real numbers, got dtype complex"),
    (sparse.csr_array(np.ones((2, 4), complex)), None, "batch must hold real numbers, got dtype complex"),
    (np.ma.masked_less(np.arange(8.0).reshape(2, 4), 3), None, "batch has masked values"),
    (torch.ones(2, 4).to_sparse(), None, "batch is a sparse tensor"),
    (pd.DataFrame({name: ["x"] for name in "abcd"}), None, "batch must hold real numbers"),
    (np.ones((2, 4)), [1.0], r"weights has shape \(1,\) for 2 rows"),
    (np.ones((2, 4)), [1.0, -1.0], "weights holds NaN, infinite or negative values"),
    (np.ones((2, 4)), [1.0, np.nan], "weights holds NaN, infinite or negative values"),
    (np.ones((2, 4)), [1e308, 1e308], "weights holds NaN, infinite or negative values"),
    (np.ones((2, 4)), ["a", "b"], "weights cannot be read as numbers"),
]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("cross", [1, 2])
@pytest.mark.parametrize(("batch", "weights", "words"), BAD)
def test_a_bad_batch_is_named_and_changes_nothing(sample, batch, weights, words, cross):
    moments = ma.Moments(cross=cross).update(sample)
    before = moments.to_dict()
    with pytest.raises(InvalidInputError, match=f"^{words}" if words[0] != "o" else words):
        moments.update(batch, weights)
    assert moments.to_dict() == before


def test_a_late_bad_row_changes_nothing(sample):
    rows = np.asfortranarray(np.tile(sample, (200, 1)))  # converted block by block
    rows[-1, 2] = np.nan
    moments = ma.Moments()
    with pytest.raises(InvalidInputError, match="batch holds NaN"):
        moments.update(rows)
    assert moments.to_dict() == ma.Moments().to_dict()


@pytest.mark.parametrize(("order", "cross", "far"), [(5, 1, 1e70), (5, 2, 1e70), (2, 2, 1e200), (2, 2, 1e308)])
def test_a_merge_that_overflows_changes_nothing(order, cross, far):
    low, high = (ma.Moments(order, cross).update([[value, 0.0]]) for value in (-far, far))
    words = f"^powers up to order {order} of the values overflow float64; scale them or lower the order"
    with pytest.raises(InvalidInputError, match=words):
        low.merge(high)
    assert low.mean.tolist() == [-far, 0.0]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (ma.Moments(4), "order=5, cross=1 do not go with those of order=4, cross=1"),
        (ma.Moments(5, 2), "order=5, cross=1 do not go with those of order=5, cross=2"),
        (ma.Moments().update([[1.0, 2.0]]), "other has 2 columns and the moments have 4"),
    ],
)
def test_moments_of_other_things_do_not_merge(sample, other, words):
    moments = ma.Moments().update(sample)
    with pytest.raises(InvalidInputError, match=words):
        moments.merge(other)
    with pytest.raises(InvalidInputError, match=f"{words}|no rows yet"):
        moments.cmd(other)
    with pytest.raises(InvalidInputError, match=words):
        _ = moments + other


def test_what_is_no_moments_is_refused(sample):
    moments = ma.Moments().update(sample)
    with pytest.raises(InvalidTypeError, match=r"other must be Moments, got ndarray; make them with Moments.of"):
        moments.merge(sample)
    with pytest.raises(InvalidTypeError, match="other must be Moments, got int"):
        moments.cmd(3)
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = moments + 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_moments": 6}, "n_moments must be at least 1 and at most 5, got 6; try n_moments=5"),
        ({"n_moments": 2.0}, "n_moments must be a whole number"),
        ({"interval": "data"}, "do not know the range of the values, got interval='data'"),
        ({"interval": (1.0, 1.0)}, "interval must be finite and not empty"),
        (
            {"interval": (0.0, 3e-62)},
            r"^powers of values divided by \|b - a\| = 3e-62 overflow float64; give the range",
        ),
        (
            {"interval": (0.0, 1e-100)},
            r"^powers of values divided by \|b - a\| = 1e-100 overflow float64; give the range of the values as "
            r"interval=\(a, b\), or lower n_moments\.$",
        ),
    ],
)
def test_settings_of_the_distance_are_checked(sample, settings, words):
    source, target = ma.Moments().update(sample), ma.Moments().update(sample + 1)
    with pytest.raises(InvalidInputError, match=words):
        source.cmd(target, **settings)


@pytest.mark.parametrize("name", ["mean", "central", "variance", "deviation", "covariance"])
@pytest.mark.parametrize("moments", [ma.Moments(cross=2), ma.Moments(cross=2).update(np.empty((0, 3)))])
def test_without_rows_there_is_nothing_to_tell(name, moments):
    assert moments.count == 0
    with pytest.raises(InvalidInputError, match=r"^these moments have no rows yet; update them with a batch first\.$"):
        getattr(moments, name)


def test_covariances_are_kept_where_they_are_asked_for(sample):
    with pytest.raises(
        InvalidInputError, match=r"^covariances are kept with cross=2 only, got cross=1; use Moments\(cross=2\)\.$"
    ):
        _ = ma.Moments().update(sample).covariance


@pytest.mark.parametrize("cross", [1, 2])
def test_to_forget_is_to_weigh_all_rows_less(sample, cross):
    forgotten = ma.Moments(cross=cross).update(sample).forget(0.25).update(sample + 1.0)
    weighted = ma.Moments(cross=cross).update(sample, weights=np.full(500, 0.25)).update(sample + 1.0)
    assert forgotten.count == weighted.count == 625.0
    assert forgotten.cmd(weighted) == 0.0
    np.testing.assert_allclose(forgotten.central, weighted.central, rtol=1e-12)
    assert forgotten.forget(1.0).count == forgotten.forget(1).count == 625.0


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.5, np.nan])
def test_a_factor_of_forgetting_lies_between_zero_and_one(factor):
    with pytest.raises(InvalidInputError, match="factor must be a finite number above 0 and at most 1"):
        ma.Moments().forget(factor)


def test_a_factor_of_forgetting_is_a_number():
    with pytest.raises(InvalidTypeError, match="factor must be a number, got 'half'"):
        ma.Moments().forget("half")
    assert ma.Moments().forget(np.float32(0.5)).count == 0


def test_what_is_printed_says_what_they_are_of(sample):
    assert repr(ma.Moments()) == "Moments(order=5, cross=1) of no rows"
    assert repr(ma.Moments(3, 2).update(sample)) == "Moments(order=3, cross=2) of 500 rows, 4 features"


# As version 0.1 wrote them into the folder of a model.
EARLIER = '{"count": 3, "mean": [2.0, 0.0], "central": [[4.5, 1.0], [6.0, 0.0], [24.0, 1.0], [60.0, 0.0]]}'


def good():
    return json.loads(json.dumps(ma.Moments(3, 2).update([[0.0, 1.0], [1.0, 3.0], [5.0, 2.0]]).to_dict()))


def test_earlier_files_are_read():
    moments = ma.Moments.from_dict(json.loads(EARLIER))
    assert (moments.order, moments.cross, moments.count) == (5, 1, 3)
    assert moments.mean.tolist() == [2.0, 0.0]
    assert moments.central.tolist() == [[4.5, 1.0], [6.0, 0.0], [24.0, 1.0], [60.0, 0.0]]
    assert moments.update([[0.0, 0.0]]).count == 4


def test_moments_without_rows_are_described_too():
    assert ma.Moments.from_dict(ma.Moments(4, 2).to_dict()).to_dict() == {"order": 4, "cross": 2, "count": 0}
    for cross, dtype in product((1, 2), (float, int)):
        empty = ma.Moments(cross=cross).update(np.empty((0, 3), dtype))
        assert ma.Moments.from_dict(empty.to_dict()).to_dict() == empty.to_dict()


@pytest.mark.parametrize(("order", "cross"), [(1, 1), (2, 2), (3, 1), (10, 2)])
def test_all_that_is_described_comes_back(order, cross):
    moments = ma.Moments(order, cross).update([[0.0, 1.0], [1.0, 3.0], [5.0, 2.0]])
    back = ma.Moments.from_dict(json.loads(json.dumps(moments.to_dict())))
    assert (back.order, back.cross, back.to_dict()) == (order, cross, moments.to_dict())
    assert back.update([[7.0, 1.0]]).to_dict() == moments.update([[7.0, 1.0]]).to_dict()


def test_whole_numbers_are_read_as_floats():
    whole = {"count": 2, "mean": [1], "rest": [0], "sums": [[2]], "products": [[2]]}
    moments = ma.Moments.from_dict({"order": 2, "cross": 2, **whole})
    assert [array.dtype for array in (moments.mean, moments.central, moments.covariance)] == [np.float64] * 3
    assert str([moments.to_dict()[name] for name in ("rest", "sums", "products")]) == "[[0.0], [[2.0]], [[2.0]]]"


NAN, INF = float("nan"), float("inf")
DAMAGED = {
    "order": [0, 11, 3.0, True, "3" * 99, 4, 1],
    "cross": [0, 3, "1"],
    "count": [-1, True, "3", NAN, INF, 10**400, 0],
    "mean": [[], 1.0, [1.0], [1.0, INF], "x", [[1.0, 2.0]], [10**400, 0.0]],
    "rest": [[0.0], [0.0, NAN]],
    "sums": [[[1.0, 1.0]], [[-1.0, 1.0], [0.0, 0.0]], None, [[1.0, 1.0], [1.0]]],
    "products": [[[1.0]], [[1.0, 2.0], [3.0, 1.0]], [[1.0, NAN], [3.0, 1.0]]],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in DAMAGED.items() for value in values])
def test_a_damaged_description_is_refused(name, value):
    ma.Moments.from_dict(good())
    with pytest.raises(DamagedFileError, match=r"^this does not describe moments \(.*\); compute them again\.$"):
        ma.Moments.from_dict(good() | {name: value})


@pytest.mark.parametrize("name", DAMAGED)
def test_a_missing_value_is_named(name):
    with pytest.raises(DamagedFileError, match=name):
        ma.Moments.from_dict({key: value for key, value in good().items() if key != name})


@pytest.mark.parametrize("change", [{"mean": [0.0, 0.0]}, {"sums": [[0.0, 0.0], [0.0, 0.0]]}])
def test_no_rows_have_no_moments(change):
    with pytest.raises(DamagedFileError, match="no rows"):
        ma.Moments.from_dict(good() | {"count": 0} | change)


@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
def test_no_even_sum_lies_below_zero(order):
    description = ma.Moments(6).update([[0.0], [1.0], [5.0]]).to_dict()
    description["sums"][order - 2] = [-1.0]
    if order % 2:
        assert ma.Moments.from_dict(description).central[order - 2] < 0.0
    else:
        with pytest.raises(DamagedFileError, match="even central sums below zero"):
            ma.Moments.from_dict(description)


def test_products_are_symmetric_to_nine_digits():
    """Of the largest square, which is 14, and of themselves."""
    ma.Moments.from_dict(good() | {"products": [[14.0, 1.2e-8], [0.0, 2.0]]})
    for products in ([[14.0, 2e-8], [0.0, 2.0]], [[14.0, 5.0 + 7e-8], [5.0, 2.0]]):
        with pytest.raises(DamagedFileError, match="products that are not symmetric"):
            ma.Moments.from_dict(good() | {"products": products})


@pytest.mark.parametrize(
    "change", [{"count": 0}, {"central": [[1.0, 1.0]]}, {"mean": [0.0]}, {"central": [[-1.0, 1.0]] * 4}]
)
def test_a_damaged_earlier_description_is_refused(change):
    with pytest.raises(DamagedFileError):
        ma.Moments.from_dict(json.loads(EARLIER) | change)


def test_what_is_no_dictionary_is_refused():
    words = r"^moments are described by a dictionary, got list; give what to_dict\(\) returned\.$"
    with pytest.raises(InvalidTypeError, match=words):
        ma.Moments.from_dict([1, 2])


@pytest.fixture(autouse=True)
def _in_this_process():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def squares(rng):
    return rng.random((1000, 6)) ** 2


@pytest.mark.parametrize("chunks", [(1000, 6), (1, 6), (37, 6), (100, 2), (1000, 1), ((0, 500, 0, 500), 6)])
@pytest.mark.parametrize("cross", [1, 2])
def test_an_array_has_the_moments_of_its_rows_however_it_is_cut(squares, chunks, cross):
    data = da.from_array(squares, chunks=chunks)
    assert is_dask(data)
    assert is_lazy(data)
    found = ma.Moments.of(data, cross=cross)
    assert found.count == 1000
    assert found.cmd(ma.Moments.of(squares, cross=cross)) == 0.0


def test_a_data_frame_and_its_values_of_unknown_sizes(squares):
    frame = dd.from_pandas(pd.DataFrame(squares), npartitions=7)
    frame = frame[frame[0] > 0.1]
    expected = ma.Moments.of(squares[squares[:, 0] > 0.1])
    assert np.isnan(frame.values.chunks[0]).all()
    for data in (frame, frame.values):
        assert ma.Moments.of(data).cmd(expected) == 0.0


def test_blocks_may_be_sparse(squares):
    rows = np.where(squares < 0.5, 0.0, squares)
    blocks = da.from_array(rows, chunks=(100, 6)).map_blocks(sparse.csr_matrix)
    assert ma.Moments.of(blocks).cmd(ma.Moments.of(rows)) == 0.0


def test_rows_are_cut_where_columns_are_joined(rng, monkeypatch):
    """An array cut along its columns alone would otherwise become one block of everything."""
    monkeypatch.setattr(dask_tree, "_BLOCK_BYTES", 2**14)
    data = da.from_array(rng.random((4000, 4)), chunks=(4000, 1))
    blocks = dask_tree._row_blocks(data, "data")
    assert len(blocks) >= 8
    assert all(block.compute().shape[1] == 4 for block in blocks)


def test_columns_in_blocks_of_unknown_sizes_name_the_remedy(squares):
    rows = da.from_array(squares, chunks=(100, 3))
    unknown = rows[da.from_array(squares[:, 0], chunks=100) > 0.1]
    with pytest.raises(InvalidInputError) as caught:
        ma.Moments.of(unknown)
    assert str(caught.value) == (
        "the columns of data lie in 2 blocks of unknown sizes; call compute_chunk_sizes() first, or make the array "
        "with all columns in one block."
    )
    known = unknown.compute_chunk_sizes()
    assert ma.Moments.of(known).cmd(ma.Moments.of(squares[squares[:, 0] > 0.1])) == 0.0


def test_moments_are_merged_as_a_tree(squares, monkeypatch):
    """No task takes more than SPLIT_EVERY moments, and there are no more levels than that needs."""
    merged, groups = dask_tree._merged, []
    monkeypatch.setattr(dask_tree, "_merged", lambda parts: groups.append(len(parts)) or merged(parts))
    ma.Moments.of(da.from_array(squares, chunks=(10, 6)))
    assert max(groups) == dask_tree.SPLIT_EVERY
    assert len(groups) == 13 + 2 + 1


@pytest.mark.parametrize(
    "data", [da.ones(5, chunks=2), dd.from_pandas(pd.Series([1.0, 2.0]), npartitions=1), dask.bag.from_sequence([1])]
)
def test_what_has_not_two_dimensions_is_refused(data):
    with pytest.raises(InvalidTypeError) as caught:
        ma.Moments.of(data)
    got = type(data).__name__
    assert str(caught.value) == f"data must be a Dask array or data frame of two dimensions, got {got}; make one of it."


def test_a_bad_block_is_named(squares):
    squares[777, 3] = np.nan
    with pytest.raises(InvalidInputError, match=r"^data holds NaN or infinite values"):
        ma.Moments.of(da.from_array(squares, chunks=(100, 6)))


SCRIPT = """
import json
import numpy as np
import momentalign as ma

random = np.random.default_rng(0)
found = []
for order in (1, 3, 5, 6):
    for rows, width in ((1, 2), (7, 2), (261, 1), (2, 515)):
        sample = random.gamma(2.0, size=(rows, width)).astype(np.float32)
        moments = ma.Moments(order, min(order, 2)).update(sample).update(sample + 1.0, weights=np.arange(rows) + 1.0)
        found.append([moments.mean.tolist(), moments.central.tolist()])
print(json.dumps(found))
"""


def run(**environment):
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_loops_are_the_python_they_are_written_in():
    plain = run(NUMBA_DISABLE_JIT="1")
    assert len(plain) == 16
    for one, other in zip(plain, run(), strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-13)


def test_nan_is_no_negative_sum():
    found = _about_the_mean(2, np.zeros(1), np.full((2, 1), np.nan))
    assert np.isnan(found.sums).all()
    assert np.isnan(found.mean).all()

"""The CMD by its definition, its intervals and sizes, and the CMD of data that are read in chunks."""

import math
from fractions import Fraction

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import momentalign as ma
from momentalign.discrepancies.central_moment import stacked_terms
from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignWarning

SETTINGS = [{}, {"n_moments": 1}, {"n_moments": 10}, {"cross": 2}, {"cross": 3, "n_moments": 4}, {"interval": (-1, 1)}]
SETTINGS += [{"n_moments": 2, "unbiased": True}, {"n_moments": 2, "cross": 2, "unbiased": True}]


@pytest.mark.parametrize("cross", [1, 2, 3, 4])
@pytest.mark.parametrize(("rows", "other_rows"), [(5, 5), (6, 3), (1, 4), (1, 1)])
def test_terms_match_exact_fractions(pair, oracle, cross, rows, other_rows):
    source, target = pair(rows, other_rows, 3)
    exact = [oracle.exact(sample.tolist()) for sample in (source, target)]
    expected = oracle.cmd_terms(*exact, 6, cross=cross, length=Fraction(2))
    terms = ma.cmd_terms(source.numpy(), target.numpy(), n_moments=6, cross=cross, interval=(-1, 1))
    np.testing.assert_allclose(terms, expected, rtol=1e-11, atol=1e-14)


def test_the_distance_by_hand():
    # Means 1/2 and 1/2, variances 1/4 and 0, no third moments, fourth moments 1/16 and 0.
    source, target = [[0.0], [1.0]], [[0.5]]
    assert ma.cmd_terms(source, target, n_moments=4).tolist() == [0.0, 0.25, 0.0, 0.0625]
    assert ma.cmd(source, target, n_moments=4) == 0.3125
    assert ma.cmd(source, target, n_moments=4, interval=(-1, 1)) == 0.25 / 4 + 0.0625 / 16


def test_moments_are_about_each_domains_own_mean():
    assert ma.cmd([[0.0], [0.2]], [[0.8], [1.0]], n_moments=5) == pytest.approx(0.8, abs=1e-15)


def test_cross_variances_count_once_and_are_divided_by_root_two():
    # Equal margins, correlation +1 against -1: covariances +1/4 and -1/4, a difference of 1/2 in one monomial.
    source, target = [[0.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    assert ma.cmd(source, target) == 0.0
    assert ma.cmd_terms(source, target, n_moments=2, cross=2).tolist() == pytest.approx([0.0, 0.5 / math.sqrt(2)])
    assert ma.cmd_terms(source, target, n_moments=3, cross=3).tolist() == pytest.approx([0.0, 0.5, 0.0])


@pytest.mark.parametrize("settings", SETTINGS)
def test_loss_distance_and_terms_agree(pair, settings):
    source, target = pair()
    value = ma.cmd(source, target, **settings)
    assert ma.CMDLoss(**settings)(source, target) == value
    assert ma.cmd_terms(source, target, **settings).sum() == value
    assert ma.cmd(source.numpy(), target.numpy(), **settings) == value.item()


@pytest.mark.parametrize("interval", [(0, 4), (4, 0), (-3.0, 1.0), [0, 4], (np.float32(0), np.int64(4))])
def test_only_the_length_of_the_interval_counts(pair, interval):
    source, target = pair()
    expected = ma.cmd_terms(source, target) / 4.0 ** torch.arange(1, 6)
    torch.testing.assert_close(ma.cmd_terms(source, target, interval=interval), expected, rtol=1e-13, atol=1e-16)


def test_the_interval_of_the_data_is_said_aloud(pair):
    source, target = pair()
    source[0, 0], target[1, 1] = -2.0, 3.0
    with pytest.warns(MomentAlignWarning, match=r"estimated from the data: \[-2, 3\]") as caught:
        value = ma.cmd(source, target, interval="data")
    assert value == ma.cmd(source, target, interval=(-2, 3))
    assert [str(warning.filename) for warning in caught] == [__file__]


def test_a_loss_keeps_the_interval_of_its_first_batches(pair):
    source, target = pair()
    loss = ma.CMDLoss(interval="data")
    with pytest.warns(MomentAlignWarning, match="estimated"):
        loss(source, target)
    a, b = loss.interval
    assert (a, b) == (min(source.min(), target.min()), max(source.max(), target.max()))
    assert loss(9 * source, target) == ma.cmd(
        9 * source, target, interval=(a, b)
    )  # A second warning would be an error.


def test_constant_data_have_an_interval_and_no_distance():
    with pytest.warns(MomentAlignWarning) as caught:
        assert ma.cmd(np.full((3, 2), 7.0), np.full((4, 2), 7.0), interval="data") == 0.0
    assert [str(warning.message) for warning in caught] == [
        "the interval of the activations is estimated from the data: [6.5, 7.5]; pass interval=(a, b) to fix it."
    ]


@pytest.mark.parametrize(
    ("source", "target", "interval", "peak"),
    [([[-1e308]], [[1.5e308]], "data", "1.5e+308"), ([[2e200], [0.0]], [[0.0]], (0.0, 1.0), "2e+200")],
)
def test_values_that_overflow_name_the_remedy(source, target, interval, peak):
    with pytest.raises(InvalidInputError) as caught:
        ma.cmd(source, target, interval=interval)
    assert str(caught.value) == (
        f"the powers of values as large as {peak} overflow torch.float64; give the range of the activations as "
        "interval=(a, b), scale them, or lower the order."
    )


@pytest.mark.parametrize("compute", [ma.cmd, ma.cmd_terms, lambda s, t, **settings: ma.CMDLoss(**settings)(s, t)])
def test_whatever_is_not_given_is_five_marginal_moments_on_the_unit_interval(pair, compute):
    source, target = pair(12, 11)
    given = compute(source, target, n_moments=5, interval=(0.0, 1.0), cross=1, unbiased=False)
    assert torch.equal(compute(source, target), given)


@pytest.mark.parametrize("cross", [1, 2, 3])
def test_a_stack_is_treated_pair_by_pair(rng, cross):
    sizes = torch.tensor([1.0, 1e-8, 100.0, 1.0]).double()[:, None, None]  # noise of one is none of another
    source, target = sizes * torch.tensor(rng.random((4, 6, 3))), sizes * torch.tensor(rng.random((4, 5, 3)))
    together = stacked_terms(source, target, 4, scale=2.0, cross=cross)
    one_by_one = [
        ma.cmd_terms(s, t, n_moments=4, interval=(-1, 1), cross=cross) for s, t in zip(source, target, strict=True)
    ]
    torch.testing.assert_close(together, torch.stack(one_by_one), rtol=1e-11, atol=0.0)
    assert together.min() > 0.0


@pytest.mark.parametrize("cross", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_activations_of_size_20_are_useful(rng, dtype, cross):
    source, target = (torch.tensor(20 * rng.random((50, 4)) ** p).to(dtype).requires_grad_() for p in (1, 3))
    value = ma.cmd(source, target, cross=cross)
    value.backward()
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), ma.cmd(source.double(), target.double(), cross=cross), rtol=1e-4, atol=0)
    assert source.grad.dtype == dtype
    assert source.grad.isfinite().all()
    assert (source.grad != 0).any(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_relu_activations_of_size_100_are_useful(rng, dtype):
    raw = [torch.tensor(rng.normal(size=(60, 4)) + shift, dtype=dtype) for shift in (0.0, 0.3)]
    source, target = (torch.relu(100 * x / x.max()) for x in raw)
    value = ma.cmd(source.requires_grad_(), target)
    value.backward()
    assert value.isfinite()
    assert source.grad.isfinite().all()
    assert (source.grad != 0).any()
    scaled = ma.cmd(source, target, interval=(0, 100))
    torch.testing.assert_close(scaled, ma.cmd(source / 100, target / 100), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("rows", "expected"), [(16, 1.07), (300, 0.24), (5000, 0.06)])
def test_the_plain_estimate_of_one_distribution_is_far_from_zero(rng, rows, expected):
    values = [ma.cmd(rng.random((rows, 50)), rng.random((rows, 50))) for _ in range(30)]
    assert np.mean(values) == pytest.approx(expected, rel=0.05)


@pytest.fixture
def domains(rng):
    return rng.random((500, 3)), rng.random((300, 3)) ** 2


@pytest.fixture
def stored(tmp_path):
    def store(rows, name="rows"):
        np.save(tmp_path / f"{name}.npy", rows)
        return np.load(tmp_path / f"{name}.npy", mmap_mode="r")

    return store


def lazily(rows, stored):
    frame = pd.DataFrame(rows, columns=list("abc"))
    yield da.from_array(rows, chunks=(70, 3))
    yield dd.from_pandas(frame, npartitions=4)
    yield pa.table(frame)
    yield stored(rows)
    yield iter(np.array_split(rows, 9))


@pytest.mark.parametrize("settings", [{}, {"cross": 2}, {"n_moments": 3, "interval": (-1.0, 1.0)}, {"n_moments": 1}])
def test_the_distance_is_that_of_the_rows_in_memory(domains, stored, settings):
    source, target = domains
    expected, terms = ma.cmd(source, target, **settings), ma.cmd_terms(source, target, **settings)
    for one, other in zip(lazily(source, stored), lazily(target, lambda rows: stored(rows, "other")), strict=True):
        value = ma.cmd(one, other, **settings)
        assert type(value) is float
        assert value == pytest.approx(expected, rel=1e-12)
    for one, other in zip(lazily(source, stored), lazily(target, lambda rows: stored(rows, "other")), strict=True):
        np.testing.assert_allclose(ma.cmd_terms(source, other, **settings), terms, rtol=1e-12)
        np.testing.assert_allclose(ma.cmd_terms(one, target.tolist(), **settings), terms, rtol=1e-12)


def test_equal_domains_are_at_distance_zero(domains, stored):
    for data in lazily(domains[0], stored):
        assert ma.cmd(data, domains[0], cross=2) == 0.0


BEYOND = [
    ({"unbiased": True}, "unbiased estimate, got unbiased=True; set unbiased=False"),
    ({"cross": 3}, "moments of more than two features, got cross=3; set cross=2"),
    ({"interval": "data"}, "known range, got interval='data'; give it as interval=(a, b)"),
    ({"n_moments": 11}, "moments above order 10, got n_moments=11; lower n_moments"),
]


@pytest.mark.parametrize(("settings", "words"), BEYOND)
def test_what_moments_do_not_tell_is_refused_with_the_remedy(domains, stored, settings, words):
    for source, target in ((da.from_array(domains[0]), domains[1]), (stored(domains[0]), iter([domains[1]]))):
        with pytest.raises(InvalidInputError) as caught:
            ma.cmd(source, target, **settings)
        expected = f"data that are read in chunks have no {words}, or read both domains into memory."
        assert str(caught.value) == expected


def test_ten_moments_of_chunks_are_known(domains):
    expected = ma.cmd(*domains, n_moments=10)
    assert ma.cmd(da.from_array(domains[0]), domains[1], n_moments=10) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("settings", "_"), BEYOND)
@pytest.mark.filterwarnings(f"ignore::{MomentAlignWarning.__module__}.{MomentAlignWarning.__name__}")
def test_a_memory_map_is_an_array_where_moments_do_not_suffice(domains, stored, settings, _):
    source, target = domains
    assert ma.cmd(stored(source), target, **settings) == pytest.approx(ma.cmd(source, target, **settings), rel=1e-12)


@pytest.mark.parametrize("name", ["source", "target"])
def test_a_tensor_beside_chunks_would_lose_its_gradient(domains, name):
    given = {"source": da.from_array(domains[0]), "target": da.from_array(domains[1])}
    with pytest.raises(InvalidTypeError) as caught:
        ma.cmd(**given | {name: torch.tensor(domains[0])})
    assert str(caught.value) == (
        f"{name} is a torch tensor and the other domain is read in chunks, which gives no gradient; give an array, for "
        f"instance {name}.detach().numpy()."
    )


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (da.ones((4, 2)), np.ones((4, 3)), r"^source has 2 columns and target has 3; give both the same features\.$"),
        (da.ones((4, 2)), np.ones((0, 2)), r"^target has no rows; give at least one\.$"),
        (iter([]), np.ones((4, 2)), r"^source has no rows; give at least one\.$"),
        (da.ones((4, 2)), [[1.0, np.nan]], "target holds NaN or infinite values"),
        (da.full((4, 2), np.inf), np.ones((4, 2)), "source holds NaN or infinite values"),
        (da.ones((4, 2)), np.ones(4), "target must be a matrix"),
        (pa.table({"a": ["x"]}), np.ones((4, 1)), "column 'a' of source must hold numbers"),
    ],
)
def test_bad_data_are_named(source, target, words):
    with pytest.raises(InvalidInputError, match=words):
        ma.cmd(source, target)

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.sample import (
    central_moments,
    exponents,
    full_precision,
    mean_difference,
    monomials,
    read_pair,
    read_sample,
    refuse_non_finite,
    sample_moments,
)
from momentalign.validation import positive_int

OFFSET = 1e4


@pytest.fixture
def far_sample(rng):
    """Skewed float32 values at offset 1e4, and the exact moments of these very float32 values."""
    sample = torch.tensor(OFFSET + 10 * rng.random((500, 4)) ** 3, dtype=torch.float32)
    centred = sample.double().numpy() - sample.double().numpy().mean(0)
    return sample, {order: (centred**order).mean(0) for order in (2, 3)}


def _naive_raw(sample, order):
    raw = [(sample**power).mean(0) for power in range(order + 1)]
    return sum(math.comb(order, i) * raw[i] * (-raw[1]) ** (order - i) for i in range(order + 1))


def _relative_error(value, expected):
    return np.abs(value.numpy() / expected - 1).max()


@pytest.mark.parametrize("order", [2, 3])
def test_float32_at_offset_1e4_keeps_four_digits(far_sample, order):
    sample, expected = far_sample
    assert _relative_error(sample_moments(sample, 3).central[order - 2].double(), expected[order]) < 1e-4


@pytest.mark.parametrize("order", [2, 3])
def test_the_naive_raw_formula_fails_that_test(far_sample, order):
    sample, expected = far_sample
    assert _relative_error(_naive_raw(sample, order).double(), expected[order]) > 1.0


def test_a_rounded_mean_alone_would_spoil_the_third_order():
    # 2^24 + {0, 2, 4, 4}: the mean 2^24 + 2.5 is not a float32, the residual has to carry the half.
    sample = torch.tensor([[0.0], [2.0], [4.0], [4.0]]) + 2.0**24
    moments = sample_moments(sample, 3)
    assert (moments.shift.double() + moments.residual.double()).item() == 2.0**24 + 2.5
    torch.testing.assert_close(moments.central.flatten(), torch.tensor([2.75, -2.25]))


def test_central_moments_match_numpy_with_the_mean_first(rng):
    sample = rng.normal(size=(30, 3))
    expected = [sample.mean(0), *(((sample - sample.mean(0)) ** j).mean(0) for j in range(2, 11))]
    np.testing.assert_allclose(central_moments(torch.tensor(sample), 10), expected, rtol=1e-12, atol=1e-13)


def test_magnitudes_are_the_size_of_absolute_central_moments(rng):
    sample = rng.normal(size=(30, 3))
    expected = np.array([(np.abs(sample - sample.mean(0)) ** j).mean(0) for j in range(1, 8)])
    magnitude = sample_moments(torch.tensor(sample), 7).magnitude.numpy()
    np.testing.assert_allclose(magnitude[1::2], expected[1::2], rtol=1e-12)
    assert np.all((magnitude > expected / 2) & (magnitude < expected * 2))


def test_order_one_has_no_central_moments():
    moments = sample_moments(torch.rand(2, 5, 3), 1)
    assert moments.central.shape == (2, 0, 3)
    assert central_moments(torch.ones(4, 3), 1).tolist() == [[1.0, 1.0, 1.0]]


def test_a_stack_is_treated_sample_by_sample(rng):
    stack = torch.tensor(rng.random((2, 4, 6, 3)))
    together = central_moments(stack, 5)
    assert together.shape == (2, 4, 5, 3)
    for i, j in product(range(2), range(4)):
        torch.testing.assert_close(together[i, j], central_moments(stack[i, j], 5), rtol=1e-14, atol=1e-15)


def test_moments_and_monomials_of_a_stack_are_those_of_its_samples(rng):
    stack = torch.tensor(rng.random((4, 6, 8)))
    moments, products = sample_moments(stack, 5, scale=2.0), monomials(stack, 3)
    for number, sample in enumerate(stack):
        torch.testing.assert_close(products[number], monomials(sample, 3), rtol=0.0, atol=0.0)
        for field in ("shift", "residual", "centred", "central", "magnitude"):
            one = getattr(sample_moments(sample, 5, scale=2.0), field)
            torch.testing.assert_close(getattr(moments, field)[number], one, rtol=1e-13, atol=1e-15, msg=field)


def test_scale_divides_the_sample(rng):
    sample = torch.tensor(rng.random((9, 2)))
    scaled, expected = sample_moments(sample, 4, scale=2.0), sample_moments(sample / 2.0, 4)
    for field in ("residual", "centred", "central", "magnitude"):
        torch.testing.assert_close(getattr(scaled, field), getattr(expected, field), rtol=1e-13, atol=1e-16, msg=field)
    torch.testing.assert_close(scaled.shift / scaled.scale, expected.shift)


def test_the_gradient_passes_through_the_mean(rng):
    sample = torch.tensor(rng.random((6, 2)), requires_grad=True)
    central_moments(sample, 1).sum().backward()
    torch.testing.assert_close(sample.grad, torch.full_like(sample, 1 / 6))


def test_mean_difference_keeps_what_the_means_would_round_away():
    low = torch.tensor([[0.0], [2.0]]) + 2.0**24
    high = torch.tensor([[2.0], [2.0], [2.0], [0.0]]) + 2.0**24  # mean 2^24 + 1.5, not a float32
    assert mean_difference(sample_moments(high, 1), sample_moments(low, 1)).tolist() == [0.5]
    halves = [sample_moments(sample, 1, scale=2.0) for sample in (high + 8.0, low)]
    assert mean_difference(*halves).tolist() == [4.25]


@pytest.mark.parametrize(("width", "order"), list(product((1, 2, 3, 5), (1, 2, 3, 4))))
def test_monomials_come_once_each_in_the_order_of_their_exponents(rng, width, order):
    powers = exponents(width, order)
    assert len(set(powers)) == len(powers) == math.comb(order + width - 1, order)
    assert all(sum(power) == order for power in powers)
    assert powers == sorted(powers, reverse=True)
    sample = rng.normal(size=(4, width))
    expected = np.stack([np.prod(sample ** np.array(power), axis=1) for power in powers], 1)
    np.testing.assert_allclose(monomials(torch.tensor(sample), order), expected, rtol=1e-13)


def test_read_order_takes_whole_numbers_of_every_make():
    assert [positive_int(value, "order") for value in (1, np.int32(3), np.uint8(7))] == [1, 3, 7]
    assert type(positive_int(np.int64(2), "order")) is int


@pytest.mark.parametrize("value", [0, -1])
def test_read_order_refuses_small_numbers(value):
    with pytest.raises(InvalidInputError, match=rf"^degree must be at least 1, got {value}; try degree=5\.$"):
        positive_int(value, "degree")
    with pytest.raises(InvalidInputError, match=rf"^width must be at least 1, got {value}; try width=50\.$"):
        positive_int(value, "width", example="50")


@pytest.mark.parametrize("value", [1.0, 1.5, True, np.True_, "3", None, [2], math.nan])
def test_read_order_refuses_other_types(value):
    with pytest.raises(InvalidTypeError) as caught:
        positive_int(value, "degree")
    assert str(caught.value) == f"degree must be a whole number, got {value!r}; try degree=5."


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (torch.float32, torch.float64, torch.float64),
        (torch.float16, torch.float16, torch.float32),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float16, torch.float64, torch.float64),
    ],
)
def test_a_pair_is_read_in_its_common_wide_dtype(left, right, common):
    source, target, differentiable = read_pair(torch.ones(2, 2, dtype=left), torch.ones(3, 2, dtype=right))
    assert source.dtype == target.dtype == common
    assert differentiable


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (np.ones((2, 3), np.float32), torch.float32),
        (np.ones((2, 3), np.float16), torch.float32),
        (np.ones((2, 3), np.longdouble), torch.float64),
        (np.ones((2, 3), np.uint8), torch.float64),
        (np.ones((2, 3), bool), torch.float64),
        (np.ones((2, 3), ">f8"), torch.float64),
        (np.frombuffer(np.ones(6).tobytes()).reshape(2, 3), torch.float64),
        (np.ones((2, 3))[::-1, ::-1], torch.float64),
        (np.ones((1, 3))[::-1], torch.float64),
        (np.broadcast_to(1.0, (2, 3)), torch.float64),
        (np.ma.ones((2, 3)), torch.float64),
        ([[1, 1.0, True]] * 2, torch.float64),
        (torch.ones(2, 3, dtype=torch.bfloat16), torch.bfloat16),
    ],
)
def test_a_sample_of_any_make_is_read(given, read):
    sample = read_sample(given, "rows")
    assert sample.dtype == read
    assert sample.tolist() == [[1.0] * 3] * len(given)


REFUSED = [
    (np.ones(3), InvalidInputError, "must be a matrix (rows, features), got shape (3,); reshape it to two dimensions."),
    (
        torch.ones(2, 2, 2),
        InvalidInputError,
        "must be a matrix (rows, features), got shape (2, 2, 2); reshape it to two dimensions.",
    ),
    (
        torch.ones(2, 2).to_sparse(),
        InvalidTypeError,
        "is a sparse tensor; give a dense one, for instance rows.to_dense().",
    ),
    (np.ones((0, 2)), InvalidInputError, "is empty, its shape is (0, 2); give at least one row and one column."),
    (np.ones((2, 0)), InvalidInputError, "is empty, its shape is (2, 0); give at least one row and one column."),
    (
        torch.ones(2, 2, dtype=torch.int8),
        InvalidTypeError,
        "must hold real floating-point numbers, got torch.int8; convert it with .float().",
    ),
    (
        sparse.csr_array((2, 2)),
        InvalidTypeError,
        "is a scipy sparse matrix; give a dense array, for instance rows.toarray().",
    ),
    (np.ma.masked_less(np.ones((2, 2)), 3), InvalidInputError, "has masked values; remove or impute them first."),
    (
        np.ones((2, 2), complex),
        InvalidTypeError,
        "must hold real numbers, got dtype complex128; convert it to float first.",
    ),
    ([["a"]], InvalidTypeError, "must hold real numbers, got dtype <U1; convert it to float first."),
]


@pytest.mark.parametrize(("given", "error", "words"), REFUSED)
def test_what_is_no_sample_is_refused(given, error, words):
    with pytest.raises(error) as caught:
        read_sample(given, "rows")
    assert str(caught.value) == f"rows {words}"


def test_a_pair_keeps_half_precision_where_it_is_asked_to():
    half, single = torch.ones(2, 2).half(), torch.ones(2, 2)
    assert [sample.dtype for sample in read_pair(half, half, widened=False)[:2]] == [torch.float16] * 2
    assert [sample.dtype for sample in read_pair(half, single, widened=False)[:2]] == [torch.float32] * 2
    assert read_pair([[1.0]], [[2.0]])[2] is False


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (
            np.ones((2, 2)),
            torch.ones(2, 2),
            "source and target must both be torch tensors or both be arrays, got ndarray and Tensor; "
            "convert one of them.",
        ),
        (np.ones((2, 2)), np.ones((2, 3)), "source has 2 columns and target has 3; give both the same features."),
        (
            torch.ones(2, 2),
            torch.ones(2, 2, device="meta"),
            "source is on cpu and target on meta; move one of them.",
        ),
    ],
)
def test_what_is_no_pair_is_refused(source, target, words):
    with pytest.raises(InvalidInputError) as caught:
        read_pair(source, target)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("value", "source", "target", "words"),
    [
        (math.nan, [1.0], [math.inf], "target holds NaN or infinite values; remove or impute them first."),
        ([0.0, math.inf], [math.nan], [math.inf], "source holds NaN or infinite values; remove or impute them first."),
        (math.inf, [-3e30], [1.0], "the powers of values as large as 3e+30 overflow torch.float32; scale them down."),
        (math.inf, [1.0], [-2e30], "the powers of values as large as 2e+30 overflow torch.float32; scale them down."),
    ],
)
def test_a_distance_that_is_not_finite_names_its_cause(value, source, target, words):
    with pytest.raises(InvalidInputError) as caught:
        refuse_non_finite(torch.tensor(value), torch.tensor([source]), torch.tensor([target]))
    assert str(caught.value) == words
    refuse_non_finite(torch.tensor([1.0, 2.0]), torch.tensor([source]), torch.tensor([target]))


def test_what_cannot_be_looked_at_is_not_refused():
    sample = torch.full((2, 2), math.nan)
    refuse_non_finite(torch.tensor(math.nan, device="meta"), sample, sample)
    torch.vmap(lambda row: refuse_non_finite(row.sum(), sample, sample) or row)(sample)


def test_full_precision_is_kept_under_autocast():
    one = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (one @ one).dtype == torch.bfloat16
        with full_precision(one.device):
            assert (one @ one).dtype == torch.float32
        assert (one @ one).dtype == torch.bfloat16

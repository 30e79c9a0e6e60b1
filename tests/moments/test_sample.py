import math
from itertools import product

import numpy as np
import pytest
import torch

from momentalign.moments.sample import (
    exponents,
    full_precision,
    mean_difference,
    monomials,
    read_pair,
    read_sample,
    refuse_non_finite,
    sample_moments,
)

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


def test_moments_match_numpy(rng):
    sample = rng.normal(size=(30, 3))
    expected = [sample.mean(0), *(((sample - sample.mean(0)) ** j).mean(0) for j in range(2, 11))]
    moments = sample_moments(torch.tensor(sample), 10)
    np.testing.assert_allclose(moments.shift + moments.residual, expected[:1], rtol=1e-12)
    np.testing.assert_allclose(moments.central, expected[1:], rtol=1e-12, atol=1e-13)


def test_magnitudes_are_the_size_of_absolute_central_moments(rng):
    sample = rng.normal(size=(30, 3))
    expected = np.array([(np.abs(sample - sample.mean(0)) ** j).mean(0) for j in range(1, 8)])
    magnitude = sample_moments(torch.tensor(sample), 7).magnitude.numpy()
    np.testing.assert_allclose(magnitude[1::2], expected[1::2], rtol=1e-12)
    assert np.all((magnitude > expected / 2) & (magnitude < expected * 2))


def test_order_one_has_no_central_moments():
    moments = sample_moments(torch.rand(2, 5, 3), 1)
    assert moments.central.shape == (2, 0, 3)


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
    sample_moments(sample, 1).residual.sum().backward()
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


def test_a_pair_keeps_half_precision_where_it_is_asked_to():
    half, single = torch.ones(2, 2).half(), torch.ones(2, 2)
    assert [sample.dtype for sample in read_pair(half, half, widened=False)[:2]] == [torch.float16] * 2
    assert [sample.dtype for sample in read_pair(half, single, widened=False)[:2]] == [torch.float32] * 2
    assert read_pair([[1.0]], [[2.0]])[2] is False


def test_what_cannot_be_looked_at_is_not_refused():
    sample = torch.full((2, 2), math.nan)
    refuse_non_finite(torch.tensor(math.nan, device="meta"), {"one": sample})
    torch.vmap(lambda row: refuse_non_finite(row.sum(), {"one": sample}) or row)(sample)


def test_full_precision_is_kept_under_autocast():
    one = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (one @ one).dtype == torch.bfloat16
        with full_precision(one.device):
            assert (one @ one).dtype == torch.float32
        assert (one @ one).dtype == torch.bfloat16

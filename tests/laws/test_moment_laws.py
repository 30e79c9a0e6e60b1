"""The laws of the Central Moment Discrepancy, orders 1 to 10, as properties of any samples in the unit interval.

Float64 holds to 1e-12, float32 to 1e-4. Where rows are only rearranged that is relative, order by order, to the
absolute central moments of the samples themselves. Where values are moved or scaled, which rounds the samples, it is
relative to the length of the interval (or to the shift, where that is longer): rounding an input of that size moves its
moments by as much.
"""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import momentalign as ma

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4}
TINY = {torch.float64: 1e-290, torch.float32: 1e-30}  # Below, powers leave the range of the dtype.
VALUES = st.one_of(st.sampled_from((0.0, 0.5, 1.0)), st.floats(0, 1, width=32, allow_subnormal=False))
ORDERS = st.integers(1, 10)
both = pytest.mark.parametrize("dtype", TOLERANCE, ids=("float64", "float32"))


class Case(NamedTuple):
    samples: list[np.ndarray]
    order: int
    cross: int

    def terms(self, source, target, dtype, *, interval=(0.0, 1.0), **weights):
        pair = (torch.tensor(np.array(sample), dtype=dtype) for sample in (source, target))
        terms = ma.cmd_terms(*pair, n_moments=self.order, cross=self.cross, interval=interval, **weights)
        assert terms.dtype == dtype
        return terms.double().numpy()

    def sizes(self, dtype):
        """For each order the norm of the absolute central moments, summed over samples, times the tolerance.

        A mean is corrected once, so it is known to the square of the precision: a constant may vary by that much.
        """
        sizes, orders = np.zeros(self.order), np.arange(1, self.order + 1)
        doubt = 8 * torch.finfo(dtype).eps ** 2 * max(np.abs(sample).max() for sample in self.samples)
        for sample in self.samples:
            distances = np.abs(sample - sample.mean(0))
            sizes += [_norm((distances**j).mean(0)) for j in range(1, self.order + 1)]
        means = [sample.mean(0) for sample in self.samples]
        sizes[0] += np.linalg.norm(np.ptp(means, axis=0))
        return TOLERANCE[dtype] * sizes + doubt**orders + TINY[dtype]


def _norm(vector):
    """Euclidean norm whose squares cannot leave the range of float64."""
    peak = np.abs(vector).max()
    return peak * np.linalg.norm(vector / peak) if peak else 0.0


@st.composite
def cases(draw, samples=2, max_rows=8):
    width, order = draw(st.integers(1, 3)), draw(ORDERS)
    shapes = [(draw(st.integers(1, max_rows)), width) for _ in range(samples)]
    drawn = [draw(arrays(np.float64, shape, elements=VALUES)) for shape in shapes]
    return Case(drawn, order, draw(st.integers(1, min(order, 4))))


def _bound(order, width):
    """Proposition 1, with the factor sqrt(m) of m marginal moments."""
    return 2 * math.sqrt(width) * ((order / (order + 1)) ** order / (order + 1) + 2.0 ** -(1 + order))


@both
@given(case=cases())
def test_every_term_is_finite_and_not_negative(dtype, case):
    terms = case.terms(*case.samples, dtype)
    assert terms.shape == (case.order,)
    assert np.all(np.isfinite(terms) & (terms >= 0))


@both
@given(case=cases())
def test_symmetric(dtype, case):
    source, target = case.samples
    difference = case.terms(source, target, dtype) - case.terms(target, source, dtype)
    assert np.all(np.abs(difference) <= case.sizes(dtype))


@both
@given(case=cases(samples=1))
def test_zero_on_itself_with_a_zero_gradient(dtype, case):
    source = torch.tensor(case.samples[0], dtype=dtype, requires_grad=True)
    value = ma.cmd(source, source.detach().clone(), n_moments=case.order, cross=case.cross)
    value.backward()
    assert value == 0.0
    assert not source.grad.any()


@both
@given(case=cases(), data=st.data())
def test_the_order_of_rows_does_not_matter(dtype, case, data):
    source, target = case.samples
    shuffled = source[data.draw(st.permutations(range(len(source))))]
    difference = case.terms(shuffled, target, dtype) - case.terms(source, target, dtype)
    assert np.all(np.abs(difference) <= case.sizes(dtype))
    assert np.all(case.terms(shuffled, source, dtype) <= case.sizes(dtype))


@both
@given(case=cases(), copies=st.integers(2, 4))
def test_a_sample_repeated_is_the_same_distribution(dtype, case, copies):
    source, target = case.samples
    difference = case.terms(np.tile(source, (copies, 1)), target, dtype) - case.terms(source, target, dtype)
    assert np.all(np.abs(difference) <= case.sizes(dtype))


@both
@given(case=cases(), data=st.data())
def test_a_row_of_weight_two_is_a_row_given_twice(dtype, case, data):
    counts = [data.draw(arrays(np.int64, len(sample), elements=st.integers(0, 3))) for sample in case.samples]
    for count in counts:
        count[0] += not count.any()
    repeated = [np.repeat(sample, count, axis=0) for sample, count in zip(case.samples, counts, strict=True)]
    weights = {"source_weight": counts[0], "target_weight": torch.tensor(counts[1])}
    difference = case.terms(*case.samples, dtype, **weights) - case.terms(*repeated, dtype)
    assert np.all(np.abs(difference) <= Case(repeated, case.order, case.cross).sizes(dtype))
    assert not case.terms(case.samples[0], repeated[0], dtype, source_weight=counts[0]).any()


@both
@given(case=cases(samples=3))
def test_triangle_inequality(dtype, case):
    first, middle, last = case.samples
    detour = case.terms(first, middle, dtype) + case.terms(middle, last, dtype)
    assert np.all(case.terms(first, last, dtype) <= detour + case.sizes(dtype))


@both
@given(case=cases(), shift=st.floats(-10, 10))
def test_central_terms_do_not_see_a_translation(dtype, case, shift):
    source, target = case.samples
    moved, terms = case.terms(source + shift, target, dtype), case.terms(source, target, dtype)
    assert np.all(np.abs(moved - terms)[1:] <= TOLERANCE[dtype] * max(1, abs(shift)))


@both
@given(case=cases(), data=st.data())
def test_the_mean_term_moves_with_the_shift(dtype, case, data):
    source, target = case.samples
    shift = data.draw(arrays(np.float64, source.shape[1], elements=st.floats(-10, 10)))
    expected = np.linalg.norm(source.mean(0) + shift - target.mean(0))
    moved = case.terms(source + shift, target, dtype)
    assert abs(moved[0] - expected) <= TOLERANCE[dtype] * max(1, np.abs(shift).max())
    itself = case.terms(source + shift, source, dtype)
    assert abs(itself[0] - np.linalg.norm(shift)) <= TOLERANCE[dtype] * max(1, np.abs(shift).max())


@both
@given(
    case=cases(),
    factor=st.floats(0.01, 100) | st.floats(-100, -0.01),
    start=st.floats(-3, 3),
    length=st.floats(0.5, 4),
)
def test_scaling_data_and_interval_together_changes_nothing(dtype, case, factor, start, length):
    source, target = case.samples
    plain = case.terms(source, target, dtype, interval=(start, start + length))
    ends = (factor * start, factor * (start + length))
    scaled = case.terms(factor * source, factor * target, dtype, interval=ends)
    assert np.all(np.abs(scaled - plain) <= TOLERANCE[dtype] * np.maximum(1, length ** -np.arange(1.0, case.order + 1)))


@both
@given(case=cases(), length=st.floats(0.5, 4))
def test_order_j_is_weighted_by_the_length_to_the_j(dtype, case, length):
    weights = length ** -np.arange(1.0, case.order + 1)
    difference = case.terms(*case.samples, dtype, interval=(0, length)) - weights * case.terms(*case.samples, dtype)
    assert np.all(np.abs(difference) <= weights * case.sizes(dtype) + TINY[dtype])


@both
@given(case=cases(), more=st.integers(1, 3))
def test_more_moments_are_never_less(dtype, case, more):
    terms = case.terms(*case.samples, dtype)
    longer = case._replace(order=case.order + more)
    extended = longer.terms(*case.samples, dtype)
    assert np.all(np.abs(extended[: case.order] - terms) <= case.sizes(dtype))
    source, target = (torch.tensor(sample, dtype=dtype) for sample in case.samples)
    values = [ma.cmd(source, target, n_moments=c.order, cross=c.cross).item() for c in (case, longer)]
    assert values[1] >= values[0] - case.sizes(dtype).sum()


@both
@given(case=cases())
def test_all_monomials_are_never_less_than_the_marginal_ones(dtype, case):
    marginal = case._replace(cross=1).terms(*case.samples, dtype)
    if case.cross == 2:
        marginal[1] /= math.sqrt(2)
    assert np.all(case.terms(*case.samples, dtype) >= marginal - case.sizes(dtype))


@both
@given(case=cases())
def test_features_may_come_in_any_order(dtype, case):
    source, target = case.samples
    difference = case.terms(source[:, ::-1], target[:, ::-1], dtype) - case.terms(source, target, dtype)
    assert np.all(np.abs(difference) <= case.sizes(dtype))


@both
@given(case=cases(), start=st.floats(-2, 2), length=st.floats(0.5, 4))
def test_proposition_1_bounds_every_term(dtype, case, start, length):
    case = case._replace(cross=1)
    samples = [start + length * sample for sample in case.samples]
    terms = case.terms(*samples, dtype, interval=(start, start + length))
    bounds = [_bound(j, samples[0].shape[1]) for j in range(1, case.order + 1)]
    assert np.all(terms <= np.array(bounds) * (1 + TOLERANCE[dtype]) + TOLERANCE[dtype])


@both
@pytest.mark.parametrize(("order", "share"), [(1, 1.0), (5, 0.80), (7, 0.92), (9, 0.975), (11, 0.99)])
@pytest.mark.parametrize("width", [1, 4])
def test_bernoulli_samples_come_near_the_bound(dtype, order, share, width):
    # One row in order + 1 is one: the mean of a mirrored pair is far, its odd central moment of the other sign.
    sample = np.zeros((order + 1, width))
    sample[0] = 1.0
    pair = (sample, 1 - sample) if order > 1 else (np.zeros((1, width)), np.ones((1, width)))
    term = Case(list(pair), order, 1).terms(*pair, dtype)[-1]
    assert share * _bound(order, width) <= term * (1 + TOLERANCE[dtype])
    assert term <= _bound(order, width) * (1 + TOLERANCE[dtype])


@both
@given(case=cases())
def test_two_moments_with_cross_variances_are_means_and_covariances(dtype, case):
    source, target = case.samples
    mean = np.linalg.norm(source.mean(0) - target.mean(0))
    covariances = [np.atleast_2d(np.cov(sample, rowvar=False, bias=True)) for sample in (source, target)]
    difference = covariances[0] - covariances[1]
    once = math.sqrt(((difference**2).sum() + (np.diag(difference) ** 2).sum()) / 2)
    two = case._replace(order=2, cross=2)
    terms = two.terms(source, target, dtype)
    assert np.all(np.abs(terms - [mean, once / math.sqrt(2)]) <= 10 * two.sizes(dtype))


@both
@given(case=cases(max_rows=5))
def test_terms_match_exact_fractions(oracle, dtype, case):
    case = case._replace(order=min(case.order, 5), cross=min(case.cross, 3, case.order))
    exact = [oracle.exact(sample.tolist()) for sample in case.samples]
    expected = oracle.cmd_terms(*exact, case.order, cross=case.cross)
    assert np.all(np.abs(case.terms(*case.samples, dtype) - expected) <= TOLERANCE[dtype])

"""The paper's theorems as laws: whatever the samples, equalities hold and bounds are kept."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.paper.overpenalization import affine_moments, central_moments, ipm
from momentalign.theory.bounds import characteristic_bound, characteristic_distance, moment_bound, tau
from momentalign.theory.definitions import cmd_by_definition, polynomial_ipm

INTERVALS = st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-0.5, 2.5), (3.0, 3.5)])
ORDERS = st.integers(1, 6)
SLACK = 1e-12  # Rounding of sums of numbers of size 1.


@st.composite
def matrices(draw, width, low, high):
    shape = (draw(st.integers(1, 6)), width)
    unit = draw(hnp.arrays(np.float64, shape, elements=st.integers(0, 1000).map(lambda whole: whole / 1000)))
    return low + (high - low) * unit


@st.composite
def pairs(draw, low=0.0, high=1.0):
    width = draw(st.integers(1, 4))
    return draw(matrices(width, low, high)), draw(matrices(width, low, high))


@st.composite
def zero_mean_pairs(draw):
    # Half the width of the box, so that the centred samples stay inside it.
    source, target = draw(pairs(low=-0.25, high=0.25))
    return source - source.mean(0), target - target.mean(0)


@given(data=st.data(), order=ORDERS, interval=INTERVALS)
@settings(deadline=None)
def test_theorem_2(data, order, interval):
    source, target = data.draw(pairs(*interval))
    length = interval[1] - interval[0]
    terms = cmd_terms(source, target, n_moments=order, cross=order, interval=interval)
    if order == 2:
        terms[1] *= np.sqrt(2.0)  # CV-CMD divides this term.
    if order >= 2:
        weights = [length**-j for j in range(1, order + 1)]
        assert cmd_by_definition(source, target, order, weights=weights) == pytest.approx(terms.sum(), abs=100 * SLACK)
    for j, term in enumerate(terms, start=1):
        expected = polynomial_ipm(source, target, j, centralised=j > 1) / length**j
        assert term == pytest.approx(expected, abs=100 * SLACK)


@given(pair=pairs(), order=st.integers(2, 6), shift=st.sampled_from([-3.0, 0.5, 10.0]))
@settings(deadline=None)
def test_only_the_centralised_metric_ignores_translation(pair, order, shift):
    source, target = pair
    moved = polynomial_ipm(source, target + shift, order, centralised=True)
    assert moved == pytest.approx(polynomial_ipm(source, target, order, centralised=True), abs=1e-10)
    assert polynomial_ipm(source, source + shift, 1) == pytest.approx(abs(shift) * np.sqrt(source.shape[1]))


@given(pair=pairs(), middle=st.data(), order=ORDERS)
@settings(deadline=None)
def test_the_definition_is_a_pseudo_metric(pair, middle, order):
    source, target = pair
    between = middle.draw(matrices(source.shape[1], 0.0, 1.0))
    direct = cmd_by_definition(source, target, order)
    assert direct == pytest.approx(cmd_by_definition(target, source, order), abs=SLACK)
    assert cmd_by_definition(source, source, order) == 0.0
    detour = cmd_by_definition(source, between, order) + cmd_by_definition(between, target, order)
    assert direct <= detour + SLACK


@given(data=st.data(), interval=INTERVALS)
@settings(deadline=None)
def test_proposition_1(data, interval):
    source, target = data.draw(pairs(*interval))
    terms = cmd_terms(source, target, n_moments=9, interval=interval)
    for order, term in enumerate(terms, start=1):
        assert term <= moment_bound(order, source.shape[1]) + 100 * SLACK


@given(pair=zero_mean_pairs(), order=st.sampled_from([1, 3, 5]), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_theorem_3(pair, order, seed):
    width = pair[0].shape[1]
    directions = np.random.default_rng(seed).normal(size=(20, width))
    points = np.vstack([np.eye(width), directions / np.abs(directions).sum(1, keepdims=True)])
    distance = characteristic_distance(*pair, points).max()
    bound = characteristic_bound(*pair, order)
    assert distance <= bound + SLACK
    # The proof gives more: without the factor sqrt(m) e the inequality still holds.
    assert distance <= cmd_by_definition(*pair, order) + tau(*pair, order) + SLACK


@given(pair=zero_mean_pairs(), order=st.sampled_from([1, 3, 5]))
@settings(deadline=None)
def test_tau_is_attained_at_a_pure_power(pair, order):
    powers = sum((sample ** (order + 1)).mean(0) for sample in pair)
    expected = powers.max() / np.prod(np.arange(1, order + 2))
    assert tau(*pair, order) == pytest.approx(expected, rel=1e-9, abs=1e-18)


rationals = st.fractions(-2, 2, max_denominator=10)


@given(values=st.lists(rationals, min_size=1, max_size=5), shift=rationals, order=ORDERS)
def test_equation_10(values, shift, order):
    raw = tuple(sum((value**j for value in values), Fraction(0)) / len(values) for j in range(order + 1))
    moved = affine_moments(raw, Fraction(1), shift)
    central = central_moments(raw)
    assert central_moments(moved) == central
    powers = (comb(order, j) * central[j] * (raw[1] ** (order - j) - moved[1] ** (order - j)) for j in range(order + 1))
    assert ipm(raw, moved, order) == abs(sum(powers))

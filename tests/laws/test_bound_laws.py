"""Bounds from moments as laws: no pair of finite distributions violates them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit
from scipy.stats import wasserstein_distance

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.evaluation.bounds import target_error_terms
from momentalign.evaluation.class_shares import Predictions
from momentalign.theory.bounds import GapBound, lipschitz_gap_bound, polynomial_gap_bound, smooth_gap_bound

UNIT = st.integers(0, 1000).map(lambda whole: whole / 1000)
DEGREES = st.integers(1, 7)
INTERVALS = st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-12.0, 5.0), (3.0, 3.5)])
MANY = 500  # So often each row counts, so that deviations are small.
SLACK = 1e-9  # Rounding of sums of numbers of size 1.


@st.composite
def samples(draw, interval=(0.0, 1.0)):
    """Two finite distributions on an interval: some points, each as often as it is listed."""
    low, high = interval
    pair = [draw(hnp.arrays(np.float64, draw(st.integers(1, 8)), elements=UNIT)) for _ in range(2)]
    return [low + (high - low) * part for part in pair]


@given(data=st.data(), degree=DEGREES, interval=INTERVALS, slope=st.sampled_from([0.0, 0.25, 3.0]))
@settings(deadline=None)
def test_the_bound_for_slopes_is_at_least_the_wasserstein_distance(data, degree, interval, slope):
    source, target = data.draw(samples(interval))
    bound = lipschitz_gap_bound(source, target, degree, lipschitz=slope, interval=interval)
    assert slope * wasserstein_distance(source, target) <= bound.total + SLACK


@given(data=st.data(), degree=DEGREES, interval=INTERVALS, scale=st.sampled_from([0.5, 1.0, 4.0]))
@settings(deadline=None)
def test_the_bound_for_a_known_function_is_kept(data, degree, interval, scale):
    source, target = data.draw(samples(interval))
    functions = {
        (lambda x: expit(scale * x)): scale / 4,
        (lambda x: np.sin(scale * x)): scale,
        (lambda x: np.abs(x - 0.25)): 1.0,
    }
    for function, slope in functions.items():
        bound = smooth_gap_bound(function, source, target, degree, lipschitz=slope, interval=interval)
        assert abs(function(source).mean() - function(target).mean()) <= bound.total + SLACK


@given(data=st.data(), degree=DEGREES, width=st.integers(1, 4), interval=INTERVALS, seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_no_polynomial_exceeds_the_bound_by_the_cmd(data, degree, width, interval, seed):
    low, high = interval
    shapes = [(data.draw(st.integers(1, 6)), width) for _ in range(2)]
    source, target = (low + (high - low) * data.draw(hnp.arrays(np.float64, shape, elements=UNIT)) for shape in shapes)
    norms = np.random.default_rng(seed).exponential(size=degree)
    bound = polynomial_gap_bound(cmd_terms(source, target, n_moments=degree, interval=interval), norms=norms)
    mean, length = source.mean(axis=0), high - low
    worst = sum(  # The supremum over the coefficients, by Cauchy and Schwarz.
        norm
        * np.linalg.norm(
            (((source - mean) / length) ** j).mean(axis=0) - (((target - mean) / length) ** j).mean(axis=0)
        )
        for j, norm in enumerate(norms, start=1)
    )
    assert worst <= bound + SLACK


@st.composite
def probabilities(draw, classes):
    """Probabilities of some rows, and labels for them."""
    weights = draw(hnp.arrays(np.float64, (draw(st.integers(1, 6)), classes), elements=st.integers(1, 50).map(float)))
    chances = weights / weights.sum(axis=1, keepdims=True)
    labels = draw(hnp.arrays(np.intp, len(chances), elements=st.integers(0, classes - 1)))
    return np.tile(chances, (MANY, 1)), np.tile(labels, MANY)


@given(data=st.data(), classes=st.integers(2, 4), degree=DEGREES)
@settings(deadline=None)
def test_no_labelling_of_the_target_leaves_the_bounds_on_the_soft_error(data, classes, degree):
    (left, codes), (right, truth) = (data.draw(probabilities(classes)) for _ in range(2))
    report = target_error_terms(
        Predictions(left, codes, right), cmd_terms=[0.0] * degree, output_bound=GapBound(0.0, 0.0), rows="fresh"
    )
    soft = 1.0 - right[np.arange(len(right)), truth].mean()
    error = (right.argmax(axis=1) != truth).mean()
    assert report["soft error at least"].value <= soft + SLACK
    assert soft <= report["soft error at most"].value + SLACK
    assert error <= 2 * soft + SLACK


@given(data=st.data(), classes=st.integers(2, 4), degree=DEGREES, slope=st.floats(-1.0, 1.0))
@settings(deadline=None)
def test_the_known_part_of_theorem_1_bounds_the_target_error_where_its_assumptions_hold(data, classes, degree, slope):
    """In both domains rows are wrong with a probability that is one function of the confidence, slopes up to 1."""
    (left, codes), (right, _) = (data.draw(probabilities(classes)) for _ in range(2))
    report = target_error_terms(
        Predictions(left, codes, right), cmd_terms=[0.0] * degree, output_bound=GapBound(0.0, 0.0)
    )
    rates = [0.5 + slope * (part.max(axis=1) - 0.5) for part in (left, right)]
    distance = report["distance by moments"].value + report["smoothness"].value
    assert rates[1].mean() <= rates[0].mean() + distance + SLACK
    assert report["known part of Theorem 1"].value >= report["source error"].value + distance

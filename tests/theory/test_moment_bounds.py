import math

import numpy as np
import pytest
from numpy.polynomial import chebyshev
from scipy.special import expit
from scipy.stats import wasserstein_distance

from momentalign.errors import InvalidInputError
from momentalign.theory.moment_bounds import (
    chebyshev_moments,
    lipschitz_factors,
    lipschitz_gap_bound,
    polynomial_gap_bound,
    smooth_gap_bound,
)


def terms(source, target, order):
    """The terms of the marginal CMD on [0, 1] by their definition."""
    means = source.mean(axis=0), target.mean(axis=0)
    central = [
        np.linalg.norm(((source - means[0]) ** j).mean(axis=0) - ((target - means[1]) ** j).mean(axis=0))
        for j in range(2, order + 1)
    ]
    return [float(np.linalg.norm(means[0] - means[1])), *central]


def supremum(source, target, order, norms):
    """What the polynomials of polynomial_gap_bound attain at most: Cauchy-Schwarz order by order."""
    mean = source.mean(axis=0)
    return sum(
        norm * np.linalg.norm(((source - mean) ** j).mean(axis=0) - ((target - mean) ** j).mean(axis=0))
        for j, norm in zip(range(1, order + 1), norms, strict=True)
    )


def test_with_equal_means_the_bound_by_the_cmd_is_attained():
    source, target = np.array([[0.0], [0.0], [0.0], [1.0]]), np.array([[0.25], [0.25]])
    bound = polynomial_gap_bound(terms(source, target, 4), norms=[2.0, 1.0, 0.5, 3.0])
    assert bound > 0.3
    assert bound == pytest.approx(supremum(source, target, 4, [2.0, 1.0, 0.5, 3.0]), rel=1e-12)


def test_of_linear_functions_the_bound_is_attained_too():
    source, target = np.array([[0.0, 0.5]]), np.array([[1.0, 0.25]])
    assert polynomial_gap_bound(terms(source, target, 1)) == supremum(source, target, 1, [1.0])


def test_different_means_cost_what_the_binomial_theorem_says():
    shift = 0.5
    drift = 1 + 3 / 4  # of order 3, once as t^3 and three times with a variance of at most 1/4
    assert polynomial_gap_bound([shift, 0.0, 0.0], norms=[0.0, 0.0, 1.0]) == shift**3 + 0.75 * shift
    assert polynomial_gap_bound([2.0, 0.0, 0.0], norms=[0.0, 0.0, 1.0]) == drift * 2.0


def test_different_means_can_cost_all_of_it():
    source, target = np.array([[0.375]]), np.array([[0.0], [1.0]])
    norms = [0.0, 0.0, 1.0]
    assert polynomial_gap_bound(terms(source, target, 3), norms=norms) == supremum(source, target, 3, norms)


def test_chebyshev_moments_are_means_of_cosines():
    angles = np.random.default_rng(0).uniform(0.0, np.pi, 20)
    found = chebyshev_moments(3.0 + 2.0 * np.cos(angles), 4, interval=(1.0, 5.0))
    assert np.allclose(found, [np.cos(j * angles).mean() for j in range(5)], rtol=0, atol=1e-12)


@pytest.mark.parametrize("degree", [1, 4, 9])
def test_favards_polynomial_is_as_near_as_he_says_and_sometimes_not_nearer(degree: int):
    grid = np.linspace(0.0, np.pi, 20_001)
    random = np.random.default_rng(degree)
    waves = [np.abs((grid * (degree + 1) / np.pi) % 2 - 1) * np.pi / (degree + 1)]  # a triangle wave: the worst
    steps = np.repeat(random.choice([-1.0, 1.0], (30, 100)), 200, axis=1) * (grid[1] - grid[0])
    waves += list(np.concatenate([np.zeros((30, 1)), np.cumsum(steps, axis=1)], axis=1))
    errors = [np.abs(wave - smoothed(wave, grid, degree)).max() for wave in waves]
    promised = np.pi / (2 * (degree + 1))
    assert max(errors) <= promised * (1 + 1e-3)
    assert errors[0] >= promised * (1 - 1e-3)


def smoothed(wave, grid, degree):
    factors = np.array([1.0, *(lipschitz_factors(degree) * np.arange(1, degree + 1))])
    cosines = np.cos(np.outer(np.arange(degree + 1), grid))
    coefficients = np.array([np.trapezoid(wave * cosine, grid) for cosine in cosines]) * 2 / np.pi
    coefficients[0] /= 2
    return (factors * coefficients) @ cosines


def test_with_many_moments_the_bound_for_slopes_comes_down_to_the_wasserstein_distance():
    source, target = [0.0, 0.1], [0.9, 1.0]
    totals = [lipschitz_gap_bound(source, target, degree).total for degree in (1, 5, 200)]
    assert totals == sorted(totals, reverse=True)
    assert wasserstein_distance(source, target) == pytest.approx(0.9)
    assert 0.9 <= totals[-1] <= 0.96


@pytest.mark.parametrize("degree", [2, 5, 12])
def test_two_laws_with_the_same_moments_come_within_a_factor_of_two_of_the_smoothness_term(degree: int):
    # Every second extremum of a Chebyshev polynomial: no polynomial of this degree can tell the two apart.
    nodes = np.cos(np.arange(degree + 2) * np.pi / (degree + 1))
    times = np.array([1, *[2] * degree, 1])
    source, target = (np.repeat(nodes[first::2], times[first::2]) for first in (0, 1))
    bound = lipschitz_gap_bound(source, target, degree, interval=(-1.0, 1.0))
    assert bound.polynomial == pytest.approx(0.0, abs=1e-12)
    distance = wasserstein_distance(source, target)
    assert distance == pytest.approx(2 / (degree + 1))
    assert bound.smoothness / 2 < distance <= bound.smoothness


def test_the_bound_for_slopes_scales_with_slope_and_interval():
    small = lipschitz_gap_bound([0.2, 0.4], [0.9], 3)
    large = lipschitz_gap_bound([3.0, 4.0], [6.5], 3, lipschitz=2.0, interval=(7.0, 2.0))
    assert large.polynomial == pytest.approx(10 * small.polynomial)
    assert large.smoothness == pytest.approx(10 * small.smoothness)
    assert lipschitz_gap_bound([0.5], [0.5], 3).polynomial == 0.0


def test_a_polynomial_has_no_smoothness_term_but_rounding():
    source, target = [-1.0, 0.0, 2.0], [1.0]
    bound = smooth_gap_bound(lambda x: x**3 - x, source, target, 3, lipschitz=11.0, interval=(-2.0, 2.0))
    assert bound.polynomial == pytest.approx(2.0)
    assert bound.smoothness < 0.04


@pytest.mark.parametrize("width", [1.0, 8.0])
def test_the_error_of_the_logistic_function_is_bounded_and_nearly_that_of_the_best_polynomial(width: int):
    interval = (-width, width + 1.0)
    bound = smooth_gap_bound(expit, [0.0], [0.0], 5, lipschitz=0.25, interval=interval)
    points = np.linspace(*interval, 50_001)
    centred = (2 * points - 1.0) / (2 * width + 1.0)
    polynomial = chebyshev.chebinterpolate(lambda s: expit(0.5 + (width + 0.5) * s), 5)
    error = np.abs(expit(points) - chebyshev.chebval(centred, polynomial)).max()
    assert 2 * error <= bound.smoothness <= 2 * error + 0.01


def test_two_points_where_the_polynomial_is_furthest_off_attain_half_the_smoothness_term():
    # The two expectations can be off to opposite sides: the factor 2 is needed.
    points = np.cos(np.linspace(0.0, np.pi, 2001)) * 6.0
    off = expit(points) - chebyshev.chebval(points / 6.0, chebyshev.chebinterpolate(lambda s: expit(6 * s), 5))
    source, target = points[off.argmax()], points[off.argmin()]
    bound = smooth_gap_bound(expit, [source], [target], 5, lipschitz=0.25, interval=(-6.0, 6.0))
    gap = abs(expit(source) - expit(target))
    assert bound.smoothness == pytest.approx(off.max() - off.min(), abs=0.01)
    assert gap <= bound.total


def test_the_order_of_the_ends_does_not_matter():
    ends = [
        smooth_gap_bound(expit, [1.0], [3.0], 3, lipschitz=0.25, interval=pair) for pair in ((0.0, 4.0), (4.0, 0.0))
    ]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("values", [[], [-0.1], [math.nan], [[0.1]]])
def test_terms_and_norms_are_lists_of_sizes(values: list[float]):
    with pytest.raises(InvalidInputError, match="terms must be a list of numbers of at least 0"):
        polynomial_gap_bound(values)
    with pytest.raises(InvalidInputError, match="norms must be a list of numbers of at least 0"):
        polynomial_gap_bound([0.1], norms=values)


def test_there_is_one_norm_per_term():
    with pytest.raises(InvalidInputError, match="norms has 1 numbers for 2 terms"):
        polynomial_gap_bound([0.1, 0.1], norms=[1.0])


@pytest.mark.parametrize("sample", [[1.1], [-0.1], [math.nan]])
def test_a_sample_lies_in_its_interval(sample: list[float]):
    with pytest.raises(InvalidInputError, match=r"the sample must lie in \[0, 1\], got .*; widen the interval"):
        chebyshev_moments(sample, 2)


@pytest.mark.parametrize("sample", [[], 0.5, [[0.5]]])
def test_a_sample_is_a_list_of_values(sample: object):
    with pytest.raises(InvalidInputError, match="the sample must be a list of values"):
        lipschitz_gap_bound(sample, [0.5], 2)


@pytest.mark.parametrize("slope", [-1.0, math.nan, math.inf])
def test_a_slope_is_a_number(slope: float):
    with pytest.raises(InvalidInputError, match="lipschitz must be a number of at least 0"):
        lipschitz_gap_bound([0.5], [0.5], 2, lipschitz=slope)


def test_a_function_is_finite_on_the_interval():
    def pole(x):
        return np.where(x < 0.0, np.inf, x)

    with pytest.raises(InvalidInputError, match="function is not finite on the whole interval"):
        smooth_gap_bound(pole, [0.5], [0.5], 3, lipschitz=1.0, interval=(-1.0, 1.0))

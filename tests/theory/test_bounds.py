"""Proposition 1, Theorem 3, Hoeffding, and the bounds on expectations, in numbers."""

import math

import numpy as np
import pytest
from numpy.polynomial import chebyshev
from scipy.special import expit
from scipy.stats import wasserstein_distance

from momentalign.discrepancies.central_moment import cmd, cmd_terms
from momentalign.errors import InvalidInputError
from momentalign.moments.sample import exponents
from momentalign.theory.bounds import (
    characteristic_bound,
    characteristic_distance,
    chebyshev_moments,
    lipschitz_factors,
    lipschitz_gap_bound,
    mean_deviation,
    moment_bound,
    polynomial_gap_bound,
    smooth_gap_bound,
    tau,
)


def bernoulli(ones, rows):
    return np.repeat([[1.0], [0.0]], [ones, rows - ones], axis=0)


def bernoulli_term(order, *, ones, rows, width=1):
    """The term of two mirrored Bernoulli samples: their odd central moments have opposite signs."""
    rare, common = bernoulli(ones, rows), bernoulli(rows - ones, rows)
    repeated = np.repeat(rare, width, axis=1), np.repeat(common, width, axis=1)
    return cmd_terms(*repeated, n_moments=order)[-1]


# p = 1/(j + 1) maximises p (1 - p)^j; for odd orders the bound then has only about 2^-j to spare.
@pytest.mark.parametrize(("order", "share"), [(5, 0.80), (7, 0.92), (9, 0.975), (11, 0.992), (13, 0.997)])
def test_bernoulli_pairs_come_close_to_proposition_1(order, share):
    term = bernoulli_term(order, ones=1, rows=order + 1)
    assert share * moment_bound(order) <= term <= moment_bound(order)


def test_opposite_points_attain_proposition_1_for_the_mean():
    assert bernoulli_term(1, ones=0, rows=1) == moment_bound(1) == 1.0


def test_proposition_1_grows_with_the_root_of_the_width_and_falls_with_the_order():
    term = bernoulli_term(11, ones=1, rows=12, width=9)
    assert 0.992 * moment_bound(11, width=9) <= term <= moment_bound(11, width=9)
    # j = 3: 2 (27/64 / 4 + 1/16).
    assert moment_bound(3) == pytest.approx(2 * (27 / 256 + 1 / 16), rel=1e-15)
    bounds = [moment_bound(order) for order in range(1, 30)]
    assert bounds == sorted(set(bounds), reverse=True)


def two_and_three_points(rows):
    """Two zero-mean samples with equal moments up to order 3: 0 and a few +-1/2 against +-s of the same variance."""
    rare = np.zeros((rows, 1))
    rare[0], rare[1] = 0.5, -0.5
    spread = math.sqrt(0.5 / rows)
    return rare, np.array([[spread], [-spread]])


def test_theorem_3_is_near_equality_where_only_tau_is_left():
    # k = 1: |1 - cos(1/2)| = 0.1224 under 1/8; k = 3: the fourth moments differ by almost as much as they sum to.
    first = characteristic_distance([[-0.5], [0.5]], [[0.0]], [[1.0]])[0]
    assert 0.97 * 0.125 < first < characteristic_bound([[-0.5], [0.5]], [[0.0]], 1) == pytest.approx(0.125)
    source, target = two_and_three_points(400)
    assert cmd(source, target, n_moments=3, cross=3) == pytest.approx(0.0, abs=1e-15)
    reached = characteristic_distance(source, target, [[1.0]])[0]
    assert 0.97 * tau(source, target, 3) < reached < characteristic_bound(source, target, 3)


def zero_mean_pair(width, seed=0):
    random = np.random.default_rng(seed)
    pair = random.uniform(-0.25, 0.25, size=(8, width)), random.choice([-0.25, 0.25], size=(5, width))
    return tuple(sample - sample.mean(0) for sample in pair)


@pytest.mark.parametrize(("width", "order"), [(1, 3), (2, 3), (4, 3), (3, 5)])
def test_theorem_3_in_its_parts(width, order):
    source, target = zero_mean_pair(width)
    largest = max(
        abs(np.prod(source**alpha, axis=1).mean()) + abs(np.prod(target**alpha, axis=1).mean())
        for alpha in exponents(width, order + 1)
    )
    rest = largest / math.factorial(order + 1)
    assert tau(source, target, order) == pytest.approx(rest, rel=1e-12)
    first = math.sqrt(width) * math.e * cmd(source, target, n_moments=order, cross=order)
    assert characteristic_bound(source, target, order) == pytest.approx(first + rest, rel=1e-12)


def test_characteristic_functions_of_known_laws():
    # A fair coin on +-a has cos(<t, a>), a point has modulus 1 and a phase.
    distance = characteristic_distance([[0.3, 0.1], [-0.3, -0.1]], [[0.2, 0.4]], [[0.5, -0.5], [0.0, 1.0]])
    expected = [abs(math.cos(0.1) - np.exp(-0.1j)), abs(math.cos(0.1) - np.exp(0.4j))]
    assert distance == pytest.approx(expected, rel=1e-12)


def test_float32_samples_may_have_a_rounded_mean():
    sample = np.random.default_rng(0).uniform(-0.2, 0.2, size=(999, 2)).astype(np.float32)
    assert characteristic_bound(sample - sample.mean(0), np.zeros((1, 2), dtype=np.float32), 3) > 0.0


def test_the_deviation_of_a_mean_is_hoeffdings_and_statements_share_the_failures():
    t = mean_deviation(50, confidence=0.9, interval=(-1.0, 1.0))
    assert math.exp(-2 * 50 * t**2 / 2.0**2) == pytest.approx(0.1)
    assert mean_deviation(50, confidence=0.9, statements=4) == pytest.approx(mean_deviation(50, confidence=0.975))


def test_a_fair_coin_fails_about_as_rarely_as_promised_and_no_more():
    random = np.random.default_rng(0)
    means = random.integers(0, 2, (20_000, 40)).mean(axis=1)
    failing = [(0.5 - means >= mean_deviation(40, confidence=confidence)).mean() for confidence in (0.6, 0.9, 0.99)]
    assert failing[0] > 0.05
    assert (np.array(failing) <= [0.4, 0.1, 0.01]).all()


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


@pytest.mark.parametrize(
    ("source", "target", "norms"),
    [
        ([[0.0], [0.0], [0.0], [1.0]], [[0.25], [0.25]], [2.0, 1.0, 0.5, 3.0]),
        ([[0.0, 0.5]], [[1.0, 0.25]], [1.0]),
        ([[0.375]], [[0.0], [1.0]], [0.0, 0.0, 1.0]),
    ],
    ids=["equal means", "linear functions", "different means"],
)
def test_the_bound_by_the_cmd_is_attained(source, target, norms):
    source, target, order = np.array(source), np.array(target), len(norms)
    bound = polynomial_gap_bound(terms(source, target, order), norms=norms)
    assert 0.0 < bound == pytest.approx(supremum(source, target, order, norms), rel=1e-12)


def test_different_means_cost_what_the_binomial_theorem_says():
    shift = 0.5
    drift = 1 + 3 / 4  # of order 3, once as t^3 and three times with a variance of at most 1/4
    assert polynomial_gap_bound([shift, 0.0, 0.0], norms=[0.0, 0.0, 1.0]) == shift**3 + 0.75 * shift
    assert polynomial_gap_bound([2.0, 0.0, 0.0], norms=[0.0, 0.0, 1.0]) == drift * 2.0


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


BAD = {
    "order": [
        lambda: moment_bound(0),
        lambda: moment_bound(2.0),
        *(lambda f=f: f([[-0.5], [0.5]], [[0.0]], 2) for f in (characteristic_bound, tau)),
    ],
    "width": [lambda: moment_bound(1, 0)],
    "source": [
        lambda f=f, source=source: f(source, [[0.0]], 3)
        for f in (characteristic_bound, tau)
        for source in ([[-0.6], [0.6]], [[0.0], [0.5]], [[math.nan], [0.5]])
    ],
    "frequencies": [
        lambda t=t: characteristic_distance([[0.0, 0.0]], [[0.1, 0.0]], t)
        for t in ([[0.6, 0.6]], [[math.nan, 0.0]], [[0.5]], [0.5, 0.5], np.empty((0, 2)))
    ],
    "confidence": [lambda c=c: mean_deviation(10, confidence=c) for c in (0.0, 1.0, math.nan, "high")],
    "rows": [lambda: mean_deviation(2.5)],
    "terms": [lambda v=v: polynomial_gap_bound(v) for v in ([], [-0.1], [math.nan], [[0.1]])],
    "norms": [lambda v=v: polynomial_gap_bound([0.1], norms=v) for v in ([], [-0.1], [0.1, 0.1])],
    "the sample": [
        *(lambda v=v: chebyshev_moments(v, 2) for v in ([1.1], [-0.1], [math.nan])),
        *(lambda v=v: lipschitz_gap_bound(v, [0.5], 2) for v in ([], 0.5, [[0.5]])),
    ],
    "lipschitz": [lambda s=s: lipschitz_gap_bound([0.5], [0.5], 2, lipschitz=s) for s in (-1.0, math.nan)],
    "function": [
        lambda: smooth_gap_bound(lambda x: 1 / np.maximum(x, 0), [0.5], [0.5], 3, lipschitz=1.0, interval=(-1, 1)),
    ],
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_what_the_statements_do_not_cover_is_refused_by_name(name):
    for call in BAD[name]:
        with pytest.raises(InvalidInputError, match=f"^{name} "):
            call()

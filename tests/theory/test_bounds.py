"""Proposition 1, Theorem 3 and Hoeffding in numbers."""

import math

import numpy as np
import pytest

from momentalign.discrepancies.central_moment import cmd, cmd_terms
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.sample import exponents
from momentalign.theory.bounds import characteristic_bound, characteristic_distance, mean_deviation, moment_bound, tau


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


def test_proposition_1_grows_with_the_root_of_the_width():
    term = bernoulli_term(11, ones=1, rows=12, width=9)
    assert 0.992 * moment_bound(11, width=9) <= term <= moment_bound(11, width=9)


def test_proposition_1_in_numbers():
    # j = 3: 2 (27/64 / 4 + 1/16).
    assert moment_bound(3) == pytest.approx(2 * (27 / 256 + 1 / 16), rel=1e-15)
    bounds = [moment_bound(order) for order in range(1, 30)]
    assert bounds == sorted(set(bounds), reverse=True)


@pytest.mark.parametrize("arguments", [(0,), (1, 0), (2.0,)])
def test_moment_bound_checks_its_arguments(arguments):
    with pytest.raises(InvalidInputError, match="must be"):
        moment_bound(*arguments)


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


@pytest.mark.parametrize("function", [characteristic_bound, tau])
@pytest.mark.parametrize(
    ("source", "order", "message"),
    [
        ([[-0.5], [0.5]], 2, "order must be odd.*order=3"),
        ([[-0.6], [0.6]], 3, r"source must lie in \[-1/2, 1/2\], got values as large as 0.6"),
        ([[0.0], [0.5]], 3, "source must have zero mean, got 0.25"),
        ([[math.nan], [0.5]], 3, "source must lie"),
    ],
)
def test_theorem_3_refuses_what_it_does_not_cover(function, source, order, message):
    with pytest.raises(InvalidInputError, match=message):
        function(source, [[0.0]], order)


@pytest.mark.parametrize("frequencies", [[[0.6, 0.6]], [[math.nan, 0.0]], [[0.5]], [0.5, 0.5], np.empty((0, 2))])
def test_frequencies_are_checked(frequencies):
    with pytest.raises(InvalidInputError, match="frequencies must"):
        characteristic_distance([[0.0, 0.0]], [[0.1, 0.0]], frequencies)


def test_float32_samples_may_have_a_rounded_mean():
    sample = np.random.default_rng(0).uniform(-0.2, 0.2, size=(999, 2)).astype(np.float32)
    assert characteristic_bound(sample - sample.mean(0), np.zeros((1, 2), dtype=np.float32), 3) > 0.0


def test_the_deviation_of_a_mean_is_hoeffdings():
    t = mean_deviation(50, confidence=0.9, interval=(-1.0, 1.0))
    assert math.exp(-2 * 50 * t**2 / 2.0**2) == pytest.approx(0.1)


def test_several_statements_share_the_probability_of_failing():
    assert mean_deviation(50, confidence=0.9, statements=4) == pytest.approx(mean_deviation(50, confidence=0.975))


def test_a_fair_coin_fails_about_as_rarely_as_promised_and_no_more():
    random = np.random.default_rng(0)
    means = random.integers(0, 2, (20_000, 40)).mean(axis=1)
    failing = [(0.5 - means >= mean_deviation(40, confidence=confidence)).mean() for confidence in (0.6, 0.9, 0.99)]
    assert failing[0] > 0.05
    assert (np.array(failing) <= [0.4, 0.1, 0.01]).all()


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1, math.nan, "high"])
def test_a_confidence_lies_between_0_and_1(confidence: float):
    with pytest.raises(InvalidInputError, match=r"confidence must be a .*, got .*; try confidence=0.95"):
        mean_deviation(10, confidence=confidence)


def test_rows_are_counted():
    with pytest.raises(InvalidTypeError, match=r"rows must be a whole number, got 2\.5"):
        mean_deviation(2.5)

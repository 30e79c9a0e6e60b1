import math

import pytest

from momentalign.errors import InvalidInputError
from momentalign.theory.target_error import expected_disagreement, finite_ipm, target_error_bound

HERE, THERE = [1.0, 0.0], [0.0, 1.0]


def bound_and_error(h, g_source, g_target, source, target):
    """Theorem 1 with the smallest class it allows, on two points."""
    losses = [[abs(x - y) for x, y in zip(h, g, strict=True)] for g in (g_source, g_target)]
    between = tuple(expected_disagreement(g_source, g_target, probabilities=law) for law in (source, target))
    bound = target_error_bound(
        expected_disagreement(h, g_source, probabilities=source), finite_ipm(losses, source, target), between
    )
    return bound, expected_disagreement(h, g_target, probabilities=target)


@pytest.mark.parametrize(
    ("h", "g_source", "g_target", "source", "target"),
    [
        pytest.param([0.25, 0.0], [1.0, 0.0], [1.0, 0.0], HERE, HERE, id="source error alone"),
        pytest.param([0.0, 0.0], [0.0, 1.0], [0.0, 1.0], HERE, THERE, id="distance alone"),
        pytest.param([0.0, 0.0], [0.0, 0.0], [0.5, 0.0], HERE, HERE, id="labelling alone"),
        pytest.param([0.0, 0.0], [0.0, 0.0], [0.0, 1.0], HERE, THERE, id="labellings agree on the source: |h - g_T|"),
        pytest.param([0.5, 0.0], [0.5, 1.0], [0.0, 1.0], HERE, THERE, id="labellings agree on the target: |h - g_S|"),
    ],
)
def test_theorem_1_is_attained(h, g_source, g_target, source, target):
    bound, error = bound_and_error(h, g_source, g_target, source, target)
    assert error > 0.0
    assert bound == error


def test_the_smaller_disagreement_counts():
    assert target_error_bound(0.25, 0.5, (1.0, 0.125)) == target_error_bound(0.25, 0.5, (0.125, 1.0)) == 0.875


def test_expected_disagreement_of_a_sample_is_its_mean():
    assert expected_disagreement([0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.5]) == pytest.approx(2.5 / 4)


def test_finite_ipm_takes_the_largest_difference_of_either_sign():
    assert finite_ipm([[1.0, 0.0], [0.0, 3.0]], HERE, [0.5, 0.5]) == 1.5


@pytest.mark.parametrize(
    ("h", "g", "probabilities", "message"),
    [
        ([0.5, 2.0], [0.0, 0.0], None, r"h must lie in \[0, 1\], got 0.5 to 2"),
        ([0.5], [math.nan], None, "g must lie in"),
        ([[0.5]], [0.5], None, "h must be a list of values"),
        ([0.5, 0.5], [0.5], None, "h has 2 values and g has 1"),
        ([0.5, 0.5], [0.5, 0.5], [1.0], "probabilities has 1 entries for 2 points"),
        ([0.5, 0.5], [0.5, 0.5], [0.5, 0.25], "probabilities must sum to 1, got 0.75"),
    ],
)
def test_expected_disagreement_checks_its_arguments(h, g, probabilities, message):
    with pytest.raises(InvalidInputError, match=message):
        expected_disagreement(h, g, probabilities=probabilities)


@pytest.mark.parametrize("functions", [[1.0, 0.0], [[math.inf, 0.0]], [[]]])
def test_finite_ipm_checks_its_functions(functions):
    with pytest.raises(InvalidInputError, match="functions must be a matrix"):
        finite_ipm(functions, HERE, THERE)


@pytest.mark.parametrize("arguments", [(-0.1, 0.0, (0.0, 0.0)), (0.0, math.nan, (0.0, 0.0)), (0.0, 0.0, (0.0, -1.0))])
def test_target_error_bound_checks_its_arguments(arguments):
    with pytest.raises(InvalidInputError, match="must be at least 0"):
        target_error_bound(*arguments)

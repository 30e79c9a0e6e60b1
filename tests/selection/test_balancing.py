import math

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import balancing_choice


def models(*shares):
    """One row and two classes: the difference of two models is that of their first probabilities."""
    return [[[share, 1.0 - share]] for share in shares]


@pytest.mark.parametrize(
    ("shares", "distances", "choice"),
    [
        # With D_0 = 1 and B = 1 a difference of 4 D_j is allowed.
        pytest.param([1.0, 1.0, 1.0], [1.0, 0.5, 0.0], 2, id="no disagreement"),
        pytest.param([0.0, 0.5, 1.0], [1.0, 0.125, 0.1], 2, id="exactly what is allowed"),
        pytest.param([0.0, 0.5, 1.0], [1.0, 0.12, 0.1], 1, id="just more"),
        pytest.param([0.0, 0.0, 0.5, 0.2], [1.0, 0.1, 0.1, 0.1], 3, id="the last that agrees, also after one that not"),
        pytest.param([0.0, 0.5, 1.0, 1.0], [1.0, 0.1, 0.1, 0.1], 1, id="one earlier model is enough to reject"),
        pytest.param([0.3], [1.0], 0, id="one model"),
    ],
)
def test_by_hand(shares, distances, choice):
    assert balancing_choice(predictions=models(*shares), distances=distances) == choice


def test_the_first_model_is_left_where_no_other_is_allowed():
    # B / D_0 small: allowed is 2 D_0 and a little.
    stack = models(0.0, 1.0, 1.0)
    assert balancing_choice(predictions=stack, distances=[0.4, 0.4, 0.4], error_bound=0.01) == 0
    assert balancing_choice(predictions=stack, distances=[0.4, 0.4, 0.4], error_bound=1.0) == 2


def test_the_bound_counts_in_units_of_the_first_distance():
    # (2 + 2 B / D_0) D_1 = 0.25 + 0.5 B, against a difference of 0.5.
    stack, distances = models(0.0, 0.0, 0.5), [0.5, 0.125, 0.0]
    assert balancing_choice(predictions=stack, distances=distances, error_bound=0.5) == 2
    assert balancing_choice(predictions=stack, distances=distances, error_bound=0.49) == 1


def test_differences_are_means_over_the_rows():
    # Rows differ by 1 and 0: a mean of 1/2, within 4 * 0.125 of the second model.
    first, second = np.eye(2)[[0, 0]], np.eye(2)[[0, 1]]
    assert balancing_choice(predictions=[first, first, second], distances=[1.0, 0.125, 0.0]) == 2
    assert balancing_choice(predictions=[first, first, second], distances=[1.0, 0.124, 0.0]) == 1


@pytest.mark.parametrize(
    ("distances", "error_bound", "message"),
    [
        ([1.0], 1.0, r"distances must have shape \(2,\)"),
        ([0.0, 0.0], 1.0, "distances must start above 0"),
        ([1.0, -1.0], 1.0, "distances must be finite and at least 0"),
        ([1.0, 0.5], 0.0, "error_bound must be positive and finite, got 0"),
        ([1.0, 0.5], math.nan, "error_bound must be positive"),
    ],
)
def test_arguments_are_checked(distances, error_bound, message):
    with pytest.raises(InvalidInputError, match=message):
        balancing_choice(predictions=models(0.0, 1.0), distances=distances, error_bound=error_bound)

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import mutual_information, negative_entropy


def test_entropy_by_hand():
    # Entropies log 4, 0 and 1.5 log 2 of four classes.
    matrix = [[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0], [0.5, 0.25, 0.25, 0.0]]
    assert negative_entropy(probabilities=matrix) == pytest.approx(-3.5 * np.log(2) / 3)


def test_mutual_information_by_hand():
    # Mean (3/4, 1/4); entropies 0 and log 2.
    expected = -0.75 * np.log(0.75) - 0.25 * np.log(0.25) - np.log(2) / 2
    assert mutual_information(probabilities=[[1.0, 0.0], [0.5, 0.5]]) == pytest.approx(expected)


def test_entropy_cannot_see_a_collapse_and_mutual_information_can():
    collapsed, balanced = np.eye(2)[[0] * 10], np.eye(2)[[0, 1] * 5]
    assert negative_entropy(probabilities=collapsed) == negative_entropy(probabilities=balanced) == 0.0
    assert not np.signbit(negative_entropy(probabilities=collapsed))
    assert mutual_information(probabilities=collapsed) == 0.0
    assert mutual_information(probabilities=balanced) == pytest.approx(np.log(2))


@pytest.mark.parametrize("score", [negative_entropy, mutual_information])
def test_arguments_are_checked(score):
    with pytest.raises(InvalidInputError, match="probabilities must lie in"):
        score(probabilities=[[2.0, -1.0]])

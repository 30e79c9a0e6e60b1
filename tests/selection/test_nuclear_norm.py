import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import nuclear_norm


def test_by_hand():
    # Gram matrix of the rows (1, 0), (1/2, 1/2): eigenvalues whose roots sum to sqrt(trace + 2 sqrt(det)).
    expected = np.sqrt(1.5 + 2 * np.sqrt(0.25)) / 2
    assert nuclear_norm(probabilities=[[1.0, 0.0], [0.5, 0.5]]) == pytest.approx(expected)


def test_two_numbers_of_classes_and_unequal_shares():
    assert nuclear_norm(probabilities=np.eye(4)) == pytest.approx(1.0)
    # Classes 3 and 1 times: (sqrt 3 + 1) / sqrt 8.
    assert nuclear_norm(probabilities=np.eye(2)[[0, 0, 0, 1]]) == pytest.approx((np.sqrt(3) + 1) / np.sqrt(8))


def test_fewer_rows_than_classes_can_reach_1():
    assert nuclear_norm(probabilities=np.eye(5)[:2]) == pytest.approx(1.0)


def test_confident_but_one_sided_is_worse_than_confident_and_balanced():
    one_sided, balanced = np.eye(2)[[0] * 10], np.eye(2)[[0, 1] * 5]
    assert nuclear_norm(probabilities=one_sided) == pytest.approx(1 / np.sqrt(2))
    assert nuclear_norm(probabilities=balanced) == pytest.approx(1.0)


def test_arguments_are_checked():
    with pytest.raises(InvalidInputError, match="probabilities must sum to 1"):
        nuclear_norm(probabilities=[[0.5, 0.25]])

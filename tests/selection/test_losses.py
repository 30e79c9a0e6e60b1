import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import classification_errors, cross_entropies

PREDICTIONS = [[0.5, 0.25, 0.25], [0.125, 0.25, 0.625], [0.0, 1.0, 0.0]]


def test_errors_count_wrong_classes():
    assert classification_errors(probabilities=PREDICTIONS, labels=[0, 1, 1]).tolist() == [0.0, 1.0, 0.0]
    assert classification_errors(probabilities=[[0.5, 0.5]], labels=[0]).tolist() == [0.0]


def test_cross_entropies_are_logarithms_of_the_label_s_probability():
    losses = cross_entropies(probabilities=PREDICTIONS, labels=[1, 2, 1])
    assert losses == pytest.approx([np.log(4), np.log(1.6), 0.0])
    assert not np.signbit(losses[2])


def test_an_impossible_label_costs_much_but_not_infinity():
    (loss,) = cross_entropies(probabilities=[[0.0, 1.0]], labels=[0])
    assert 80.0 < loss < 100.0


@pytest.mark.parametrize("function", [classification_errors, cross_entropies])
def test_labels_must_fit_the_probabilities(function):
    with pytest.raises(InvalidInputError, match="codes from 0 to 2, got 1 to 3"):
        function(probabilities=PREDICTIONS, labels=[1, 2, 3])
    with pytest.raises(InvalidInputError, match=r"labels must have shape \(3,\)"):
        function(probabilities=PREDICTIONS, labels=[1, 2])

from __future__ import annotations

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.tables.table import Table
from momentalign.workflow.summary import read_truth

ROWS = np.zeros((4, 1), np.float32)


def test_whole_numbers_are_the_same_class_as_floats():
    truth = read_truth(Table(ROWS, np.array([1.0, 2.0, np.nan, 2.0])), "y", np.array([1, 2]))
    assert truth.known.tolist() == [0, 1, 3]
    assert truth.accuracy(np.array([0, 1, 0, 0])) == pytest.approx(2 / 3)
    assert truth.evaluation(np.array([0, 1, 0, 0]))["confusion"] == [[1, 0], [1, 1]]


def test_classes_that_the_source_lacks_have_a_row_of_their_own():
    truth = read_truth(Table(ROWS, np.array(["a", "b", "z", "y"], dtype=object)), "y", np.array(["a", "b"]))
    found = truth.evaluation(np.array([0, 0, 1, 1]))
    assert found["confusion"] == [[1, 0], [1, 0], [0, 2]]
    assert found["unseen"] == ["y", "z"]
    assert found["accuracy"] == 0.25


@pytest.mark.parametrize(("labels", "words"), [(None, "no labels 'y'"), (np.full(4, None), "empty in every row")])
def test_labels_that_are_not_there_are_named(labels: np.ndarray | None, words: str):
    with pytest.raises(InvalidInputError, match=words):
        read_truth(Table(ROWS, labels), "y", np.array(["a", "b"]))

import math

import numpy as np
import pytest
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.validation import check_features, check_probabilities, check_row_values, check_stack, read_labels


def test_rounded_probabilities_lose_their_rounding():
    logits = np.random.default_rng(0).normal(size=(50, 31)).astype(np.float16)
    rounded = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    read = check_probabilities(rounded.astype(np.float16), "probabilities")
    assert read.dtype == np.float64
    assert read.sum(axis=1) == pytest.approx(1.0, abs=1e-15)
    assert check_probabilities([[-1e-4, 1.0]], "probabilities").tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, 0.5], r"p must have shape \(rows, classes\) with at least 2 classes, got \(2,\)"),
        ([[1.0]], r"at least 2 classes, got \(1, 1\)"),
        (np.empty((0, 2)), r"got \(0, 2\)"),
        ([[1.5, -0.5]], r"p must lie in \[0, 1\], got -0.5 to 1.5"),
        ([[math.nan, 1.0]], "p must lie in"),
        ([[0.5, 0.5], [0.5, 0.4]], "p must sum to 1 in each row, got 0.9"),
    ],
)
def test_probabilities_are_checked(values, message):
    with pytest.raises(InvalidInputError, match=message):
        check_probabilities(values, "p")


def test_values_that_are_no_numbers_are_of_a_wrong_type():
    with pytest.raises(InvalidTypeError, match="p must be an array of numbers, got list"):
        check_probabilities([["a", "b"]], "p")


@pytest.mark.parametrize("shape", [(3, 2), (0, 3, 2), (2, 0, 2), (2, 3, 1)])
def test_stacks_are_checked(shape):
    with pytest.raises(InvalidInputError, match=r"p must have shape \(models, rows, classes\)"):
        check_stack(np.ones(shape), "p")


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([0.0, 1.0], InvalidTypeError, "y must be whole numbers, got float64"),
        ([0], InvalidInputError, r"y must have shape \(2,\), got \(1,\)"),
        ([0, 3], InvalidInputError, "y must be codes from 0 to 2, got 0 to 3"),
        ([-1, 1], InvalidInputError, "got -1 to 1"),
    ],
)
def test_labels_are_checked(labels, error, message):
    with pytest.raises(error, match=message):
        read_labels(labels, "y", rows=2, classes=3)


@pytest.mark.parametrize(
    ("values", "rows", "message"),
    [
        ([1.0], 2, r"w must have shape \(2,\), got \(1,\)"),
        ([[1.0]], None, r"w must have shape \(rows,\), got \(1, 1\)"),
        ([], None, r"got \(0,\)"),
        ([1.0, -1.0], 2, "w must be finite and at least 0, got -1 to 1"),
        ([1.0, math.inf], 2, "w must be finite"),
    ],
)
def test_row_values_are_checked(values, rows, message):
    with pytest.raises(InvalidInputError, match=message):
        check_row_values(values, "w", rows=rows)


@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix, sparse.csc_array])
def test_features_stay_sparse_or_dense(kind):
    rows = [[0.0, 1.0], [2.0, 0.0]]
    read = check_features(kind(rows), "x")
    assert sparse.issparse(read) == (kind is not np.array)
    assert (read.toarray() if sparse.issparse(read) else read).tolist() == rows


@pytest.mark.parametrize("values", [[1.0, 2.0], np.empty((0, 2)), np.empty((2, 0))])
def test_features_need_rows_and_columns(values):
    with pytest.raises(InvalidInputError, match=r"x must have shape \(rows, width\)"):
        check_features(values, "x")


@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix])
def test_features_must_be_finite(kind):
    with pytest.raises(InvalidInputError, match="x holds NaN or infinity"):
        check_features(kind([[0.0, math.nan]]), "x")

"""Every check of an argument: what passes comes back in the type the code works with, the rest is named."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.validation import (
    check_bool,
    check_choice,
    check_codes,
    check_confidence,
    check_features,
    check_int,
    check_interval,
    check_number,
    check_probabilities,
    check_row_values,
    check_seed,
    check_stack,
    positive_int,
)


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (lambda value: positive_int(value, "n"), np.uint8(7), 7),
        (lambda value: check_int(value, "n", least=0, most=5), np.int64(0), 0),
        (lambda value: check_int(value, "n", least=0, most=5), 5, 5),
        (lambda value: check_number(value, "x", least=0.0), np.float32(0.0), 0.0),
        (lambda value: check_number(value, "x", above=0.0, most=1.0), 1, 1.0),
        (lambda value: check_number(value, "x"), Fraction(-1, 2), -0.5),
        (lambda value: check_bool(value, "b"), True, True),
        (lambda value: check_choice(value, "c", ("a", None)), None, None),
        (lambda value: check_choice(value, "c", ("a", None)), "a", "a"),
        (check_confidence, 0.95, 0.95),
        (check_seed, np.int32(3), 3),
    ],
)
def test_a_value_comes_back_in_a_plain_type(check, value, expected):
    found = check(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("check", "value", "error", "message"),
    [
        (lambda value: positive_int(value, "n"), 0, InvalidInputError, "n must be at least 1, got 0; try n=5."),
        (lambda value: positive_int(value, "n"), 2.0, InvalidTypeError, "n must be a whole number, got 2.0; try n=5."),
        (lambda value: positive_int(value, "n"), True, InvalidTypeError, "n must be a whole number, got True"),
        (
            lambda value: check_int(value, "n", least=2, most=5, example=3), 6, InvalidInputError,
            "n must be at least 2 and at most 5, got 6; try n=3.",
        ),
        (lambda value: check_number(value, "x"), "1", InvalidTypeError, "x must be a number, got '1'."),
        (lambda value: check_number(value, "x"), False, InvalidTypeError, "x must be a number, got False."),
        (lambda value: check_number(value, "x"), math.nan, InvalidInputError, "x must be a finite number, got nan."),
        (lambda value: check_number(value, "x"), 10**400, InvalidInputError, "x must be a finite number, got 1000"),
        (
            lambda value: check_number(value, "x", above=0.0, most=1.0, example=0.5), 0.0, InvalidInputError,
            "x must be a finite number above 0 and at most 1, got 0.0; try x=0.5.",
        ),
        (
            lambda value: check_number(value, "x", least=0.0, below=1.0), 1.0, InvalidInputError,
            "x must be a finite number of at least 0 and below 1, got 1.0.",
        ),
        (lambda value: check_bool(value, "b"), 1, InvalidTypeError, "b must be True or False, got 1."),
        (lambda value: check_choice(value, "c", ("a", None)), "b", InvalidInputError, "c must be one of 'a', None,"),
        (lambda value: check_choice(value, "c", ("a", "b")), np.array(["a"]), InvalidInputError, "c must be one of"),
        (check_confidence, 1.0, InvalidInputError, "confidence must be a finite number above 0 and below 1, got 1.0"),
        (check_seed, -1, InvalidInputError, "random_state must be a whole number of at least 0"),
        (check_seed, True, InvalidInputError, "random_state must be a whole number of at least 0"),
    ],
)  # fmt: skip
def test_a_bad_value_is_named_with_a_remedy(check, value, error, message):
    with pytest.raises(InvalidInputError) as caught:
        check(value)
    assert type(caught.value) is error
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("random_state", [None, np.random.default_rng(0), np.random.RandomState(0)])
def test_a_seed_is_drawn_without_touching_the_global_random_state(random_state):
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    assert check_seed(random_state) >= 0
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize(
    ("interval", "length"),
    [((0.0, 1.0), 1.0), ((-1, 1), 2.0), ((3.0, 1.0), 2.0), ([-5, -1.5], 3.5), ((1e-300, 0), 1e-300)],
)
def test_the_length_of_an_interval(interval, length):
    assert check_interval(interval) == length
    assert type(check_interval(interval)) is float


@pytest.mark.parametrize("interval", [(0.0, 1.0, 2.0), (1.0,), 1.0, None, "01", ("a", "b"), (0, 10**400)])
def test_what_is_no_pair_is_refused(interval):
    with pytest.raises(InvalidInputError) as caught:
        check_interval(interval)
    assert str(caught.value) == (
        f'interval must be a pair (a, b) or "data", got {interval!r}; try interval=(0.0, 1.0).'
    )


@pytest.mark.parametrize("interval", [(1.0, 1.0), (0.0, float("nan")), (float("-inf"), 0.0), (-1e308, 1e308)])
def test_what_has_no_length_is_refused(interval):
    with pytest.raises(InvalidInputError) as caught:
        check_interval(interval)
    assert str(caught.value) == f"interval must be finite and not empty, got {interval!r}; try interval=(0.0, 1.0)."


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
        check_codes(labels, "y", rows=2, classes=3)


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

"""Other class shares, moved copies and rows far away are told apart."""

import numpy as np
import pytest

from momentalign.evaluation.kind_of_shift import is_moved_copy, share_outside, unexplained_shift


@pytest.fixture
def classes():
    """Three classes in the source, and twice as many rows of the first in the target."""
    random = np.random.default_rng(0)
    codes = random.integers(3, size=900)
    target_codes = np.concatenate([np.zeros(600, int), random.integers(3, size=600)])
    rows, target = (3 * np.eye(3, 5)[one] + random.normal(size=(len(one), 5)) for one in (codes, target_codes))
    return rows, codes, target, np.bincount(target_codes) / len(target_codes)


def standardised(rows):
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def test_other_shares_explain_the_shift_they_make(classes):
    rows, codes, target, shares = classes
    assert unexplained_shift(rows, codes, np.ones(900), target, shares) < 0.2
    assert unexplained_shift(rows, codes, np.ones(900), target + 3.0, shares) > 0.9
    # A class without a row in the source, as in a sample of it, is no reason to fail.
    some = codes < 2
    assert np.isfinite(unexplained_shift(rows[some], codes[some], np.ones(some.sum()), target, shares))


@pytest.mark.parametrize(
    ("change", "copy"),
    [
        (lambda rows: 2.0 * rows + 3.0, True),
        (lambda rows: rows + 0.1, False),  # hardly moved
        (lambda rows: np.exp(rows), False),  # of another shape
        (lambda rows: 2.0 * rows[:60] + 3.0, False),  # too few rows to say so
    ],
)
def test_a_moved_copy_is_moved_and_has_the_same_shape(change, copy):
    random = np.random.default_rng(0)
    rows, others = random.normal(size=(2, 400, 4))
    target = change(others)
    assert is_moved_copy(rows, np.ones(400), target, standardised(target), 1.0) is copy


def test_values_of_categories_make_no_copy():
    random = np.random.default_rng(0)
    rows, others = np.round(random.normal(size=(2, 400, 4)))
    assert not is_moved_copy(rows, np.ones(400), others + 3.0, others, 1.0)


def test_shares_that_explain_the_shift_make_no_copy():
    random = np.random.default_rng(0)
    rows, others = random.normal(size=(2, 400, 4))
    assert not is_moved_copy(rows, np.ones(400), others + 3.0, others, 0.5)


def test_rows_far_from_the_range_of_the_source_are_outside():
    source = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert share_outside(source, np.array([[2.0, 3.0]])) == 1.0
    assert share_outside(source, np.array([[0.5, 1.5]])) == 0.0

"""Other class shares, moved copies and rows far away are told apart."""

import numpy as np
import pytest

from momentalign.evaluation.kind_of_shift import (
    is_moved_copy,
    share_outside,
    shift_across_directions,
    unexplained_shift,
)


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


@pytest.mark.parametrize("features", [8, 60])
def test_another_population_moves_along_the_directions_of_the_source_and_other_instruments_across(features):
    """Features are mixtures of three causes; another population has other causes, an instrument adds what it likes."""
    random = np.random.default_rng(0)
    mixing = random.normal(size=(3, features))

    def measured(rows, cause=0.0):
        return random.normal(cause, 1.0, (rows, 3)) @ mixing + 0.3 * random.normal(size=(rows, features))

    source, once = measured(400), np.ones(400)
    assert shift_across_directions(source, once, measured(500, cause=1.0)) < 0.5
    assert shift_across_directions(source, once, measured(500) + random.normal(size=features)) > 1.0
    # Each row given twice says the same as a weight of two.
    target = measured(500, cause=1.0)
    twice = shift_across_directions(np.repeat(source, 2, axis=0), np.ones(800), target)
    np.testing.assert_allclose(shift_across_directions(source, 2.0 * once, target), twice, rtol=1e-6)


def test_constant_features_and_equal_means_move_nowhere():
    random = np.random.default_rng(0)
    source = np.column_stack([random.normal(size=300), np.zeros(300)])
    assert shift_across_directions(source, np.ones(300), source + np.array([1.0, 0.0])) == 0.0
    assert shift_across_directions(np.zeros((5, 2)), np.ones(5), np.ones((5, 2))) == 0.0


def test_directions_are_not_known_from_few_rows():
    source, target = np.random.default_rng(0).normal(size=(2, 100, 30))
    assert shift_across_directions(source, np.ones(100), target) == np.inf
    assert shift_across_directions(source[:20], np.ones(20), target) == np.inf

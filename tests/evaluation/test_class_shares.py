import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignWarning
from momentalign.evaluation.class_shares import class_shares_interval, predictions_of

CENTRES = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]])


def drawn(shares, rows, seed, shift=0.0):
    random = np.random.default_rng(seed)
    y = random.choice(len(shares), rows, p=shares)
    return CENTRES[y] + shift + random.normal(size=(rows, 2)), np.array(["a", "b", "c"])[y]


@pytest.fixture(scope="module")
def source():
    X, y = drawn([0.4, 0.3, 0.3], 2000, 0)
    return LogisticRegression().fit(X[:1000], y[:1000]), X[1000:], y[1000:]


@pytest.mark.parametrize("shares", [[0.4, 0.3, 0.3], [0.7, 0.2, 0.1], [0.05, 0.15, 0.8]])
def test_shares_that_changed_alone_are_found_without_a_warning(source, shares):
    X_target, _ = drawn(shares, 3000, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ma.estimate_class_shares(*source, X_target)
    assert found.sum() == pytest.approx(1.0)
    assert abs(found - shares).max() < 0.05


def test_corrected_probabilities_are_more_often_right(source):
    model, X, y = source
    X_target, y_target = drawn([0.05, 0.15, 0.8], 3000, 1)
    shares = ma.estimate_class_shares(model, X, y, X_target)
    plain = model.predict_proba(X_target)
    corrected = ma.correct_class_shares(plain, [0.4, 0.3, 0.3], shares)
    accuracies = [np.mean(model.classes_[p.argmax(axis=1)] == y_target) for p in (plain, corrected)]
    assert accuracies[1] > accuracies[0] + 0.02


def test_where_more_than_shares_changed_it_says_so_and_stays_near_the_source(source):
    X_target, _ = drawn([0.4, 0.3, 0.3], 3000, 1, shift=1.0)
    with pytest.warns(MomentAlignWarning, match="uncertain"):
        found = ma.estimate_class_shares(*source, X_target)
    predicted = source[0].predict_proba(X_target).mean(axis=0)
    assert abs(found - [0.4, 0.3, 0.3]).sum() < abs(predicted - [0.4, 0.3, 0.3]).sum()


def test_a_poor_confusion_matrix_is_not_inverted():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(400, 2)), np.repeat([0, 1], 200)
    model = LogisticRegression().fit(X, y)
    with pytest.warns(MomentAlignWarning, match="uncertain"):
        found = ma.estimate_class_shares(model, random.normal(size=(400, 2)), y, X)
    assert abs(found - 0.5).max() < 0.1


def test_classes_of_any_order_and_few_rows(source):
    model, X, y = source
    few = np.r_[np.flatnonzero(y == "a")[:50], np.flatnonzero(y == "b")[:50], np.flatnonzero(y == "c")[:2]]
    with pytest.warns(MomentAlignWarning, match="2 labelled rows"):
        ma.estimate_class_shares(model, X[few], y[few], X)


def test_the_interval_holds_the_truth(source):
    X_target, _ = drawn([0.7, 0.2, 0.1], 2000, 3)
    low, high = class_shares_interval(predictions_of(*source, X_target), resamples=30)
    assert (low <= [0.7, 0.2, 0.1]).all()
    assert (high >= [0.7, 0.2, 0.1]).all()
    assert (high - low).max() < 0.15


def test_a_correction_by_equal_shares_changes_nothing():
    rows = np.random.default_rng(0).dirichlet(np.ones(3), 20)
    np.testing.assert_allclose(ma.correct_class_shares(rows, [1, 2, 3], [2, 4, 6]), rows, atol=1e-9)


def test_a_class_without_source_rows_stays():
    assert np.isfinite(ma.correct_class_shares([[0.5, 0.5]], [1.0, 0.0], [0.5, 0.5])).all()


@pytest.mark.parametrize(
    ("source_shares", "target_shares"),
    [([0.5], [0.5, 0.5]), ([0.5, -0.5], [0.5, 0.5]), ([0.5, 0.5], [0.0, 0.0]), ([0.5, 0.5], ["a", "b"])],
)
def test_invalid_shares_are_named(source_shares, target_shares):
    with pytest.raises(InvalidInputError, match="_shares"):
        ma.correct_class_shares([[0.5, 0.5]], source_shares, target_shares)


def test_a_label_the_model_does_not_know_is_named(source):
    model, X, y = source
    with pytest.raises(InvalidInputError, match="'d'"):
        ma.estimate_class_shares(model, X, np.where(y == "a", "d", y), X)
    with pytest.raises(InvalidInputError, match="one label per row"):
        ma.estimate_class_shares(model, X, y[:-1], X)
    with pytest.raises(InvalidTypeError, match="predict_proba"):
        ma.estimate_class_shares(object(), X, y, X)

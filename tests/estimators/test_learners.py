"""Plain learners as arrays predict what scikit-learn's do, and what is damaged is refused."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeCV

from momentalign.estimators.learners import (
    ROUNDS,
    SMALL_TREES,
    boosting,
    class_means,
    forest,
    learner_from,
    linear,
    means_found_in,
    to_arrays,
)


def _rows(classes):
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 5)).astype(np.float32)
    scores = 3 * X[:, 0] + random.normal(size=300)
    labels = np.digitize(scores, np.quantile(scores, np.arange(1, classes) / classes)) if classes else scores
    return X, labels, random.integers(1, 3, 300).astype(float)


@pytest.mark.parametrize("classes", [2, 3])
def test_they_predict_what_scikit_learn_does(classes):
    X, y, weights = _rows(classes)
    pairs = [
        (linear(X, y, weights, classes=classes), LogisticRegression(max_iter=300, tol=1e-3)),
        (forest(X, y, weights, classes=classes, seed=0), RandomForestClassifier(random_state=0)),
        (
            boosting(X, y, weights, classes=classes, seed=0),
            HistGradientBoostingClassifier(max_iter=ROUNDS, early_stopping=False, random_state=0, **SMALL_TREES),
        ),
    ]
    for learner, model in pairs:
        expected = model.fit(X, y, sample_weight=weights).predict_proba(X)
        np.testing.assert_allclose(learner.predict(X, classes=classes), expected, atol=1e-6)


def test_values_are_predicted_as_scikit_learn_does():
    X, y, weights = _rows(0)
    ridge = RidgeCV(np.logspace(-2, 4, 13)).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(
        linear(X, y, weights, classes=0).predict(X, classes=0)[:, 0], ridge.predict(X), rtol=1e-4
    )
    trees = HistGradientBoostingRegressor(max_iter=ROUNDS, early_stopping=False, random_state=0, **SMALL_TREES).fit(
        X, y, sample_weight=weights
    )
    found = boosting(X, y, weights, classes=0, seed=0).predict(X, classes=0)[:, 0]
    np.testing.assert_allclose(found, trees.predict(X), rtol=1e-6, atol=1e-6)


def test_arrays_make_the_same_learner_again():
    X, y, weights = _rows(3)
    learner = forest(X, y, weights, classes=3, seed=0)
    again = learner_from(to_arrays(learner), features=5, outputs=3)
    np.testing.assert_array_equal(again.predict(X, classes=3), learner.predict(X, classes=3))


@pytest.mark.parametrize("part", ["left", "right", "feature", "roots", "columns"])
def test_trees_that_point_anywhere_are_refused(part):
    X, y, weights = _rows(2)
    arrays = to_arrays(boosting(X, y, weights, classes=2, seed=0))
    broken = arrays[part].copy()
    broken[0] = 0 if part in ("left", "right") else 10**6
    with pytest.raises(ValueError, match="trees"):
        learner_from(arrays | {part: broken}, features=5, outputs=2)


@pytest.fixture(scope="module")
def boosted():
    X, y, weights = _rows(2)
    return boosting(X, y, weights, classes=2, seed=0)


FORGED = {
    "whole numbers": lambda part: part.astype(np.int64 if part.dtype.kind == "f" else np.float64),
    "one dimension more": lambda part: part[..., None],
    "a number": lambda part: part.ravel()[0],
    "one more": lambda part: np.concatenate([part, part[:1]]),
}


@pytest.mark.parametrize("how", FORGED)
@pytest.mark.parametrize("part", ["roots", "feature", "threshold", "left", "values", "columns", "baseline"])
def test_trees_of_other_types_and_shapes_are_refused(boosted, part, how):
    arrays = to_arrays(boosted)
    with pytest.raises((ValueError, TypeError)):
        learner_from(arrays | {part: np.asarray(FORGED[how](arrays[part]))}, features=5, outputs=2)


def test_weights_of_other_shapes_are_refused():
    X, y, weights = _rows(2)
    with pytest.raises(ValueError, match="linear"):
        learner_from(to_arrays(linear(X, y, weights, classes=2)), features=4, outputs=2)


def test_class_means_follow_the_clusters_of_unlabelled_rows():
    random = np.random.default_rng(0)
    codes = random.integers(3, size=600)
    centres = 4 * np.eye(3, 6)
    source = centres[codes] + random.normal(size=(600, 6))
    turned = (centres + np.roll(centres, 3, axis=1))[codes] + random.normal(size=(600, 6))
    of_source = class_means(source, codes, np.ones(600), classes=3)
    guesses = of_source.predict(turned, classes=3)
    found = means_found_in(turned, guesses)
    accuracies = [(one.argmax(axis=1) == codes).mean() for one in (guesses, found.predict(turned, classes=3))]
    assert accuracies[0] < accuracies[1]
    assert accuracies[1] > 0.98
    again = learner_from(to_arrays(found), features=6, outputs=3)
    np.testing.assert_array_equal(again.predict(turned, classes=3), found.predict(turned, classes=3))
    with pytest.raises(ValueError, match="class means"):
        learner_from(to_arrays(found), features=5, outputs=3)

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import metrics
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.evaluation.target_accuracy import TargetEstimate

METRICS = {
    "accuracy": lambda y, p: np.mean(p.argmax(axis=1) == y),
    "balanced_accuracy": lambda y, p: metrics.balanced_accuracy_score(y, p.argmax(axis=1)),
    "roc_auc": lambda y, p: metrics.roc_auc_score(y, p[:, 1]),
    "log_loss": metrics.log_loss,
    "brier": lambda y, p: metrics.brier_score_loss(y, p[:, 1]),
}


def blobs(rows, seed, shift=0.0, spread=1.0):
    random = np.random.default_rng(seed)
    y = random.integers(2, size=rows)
    X = random.normal(size=(rows, 4)) * spread
    X[:, 0] += 2.0 * y + shift
    X[:, 1] += y
    return X, y


@pytest.fixture(scope="module")
def model():
    return LogisticRegression().fit(*blobs(600, 0))


@pytest.mark.parametrize("metric", METRICS)
def test_without_a_shift_every_metric_is_tight_and_unbiased(model, metric):
    errors, right = [], 0
    for seed in range(6):
        X, y = blobs(500, 10 + seed)
        X_target, y_target = blobs(500, 30 + seed)
        estimate = ma.estimate_accuracy(model, X, y, X_target, metric)
        truth = METRICS[metric](y_target, model.predict_proba(X_target))
        errors.append(estimate.value - truth)
        right += estimate.low <= truth <= estimate.high
        assert estimate.low <= estimate.value <= estimate.high
        assert estimate.high - estimate.low < (0.35 if metric == "log_loss" else 0.16)
    assert abs(np.mean(errors)) < 0.025
    assert right >= 5


def test_where_the_model_gets_worse_the_estimate_falls_and_the_interval_widens(model):
    X, y = blobs(500, 1)
    near = ma.estimate_accuracy(model, X, y, blobs(500, 2)[0])
    X_target, y_target = blobs(500, 2, shift=-2.0, spread=2.0)
    far = ma.estimate_accuracy(model, X, y, X_target)
    assert far.value < near.value - 0.05
    assert far.high - far.low > 1.5 * (near.high - near.low)
    confidence = model.predict_proba(X_target).max(axis=1).mean()
    truth = model.score(X_target, y_target)
    assert abs(far.value - truth) < abs(confidence - truth)


def test_other_class_shares_alone_are_no_reason_to_expect_less(model):
    """Standardised by themselves, rows of nearly one class alone would be split between two."""
    X, y = blobs(600, 3)
    target, codes = blobs(3000, 4)
    mostly_one = np.flatnonzero((codes == 1) | (np.arange(3000) % 6 == 0))
    estimate = ma.estimate_accuracy(model, X, y, target[mostly_one])
    assert estimate.value == pytest.approx(model.score(target[mostly_one], codes[mostly_one]), abs=0.13)


def test_what_other_models_say_counts(model):
    X, y = blobs(500, 1)
    X_target, _ = blobs(500, 2)
    alone = ma.estimate_accuracy(model, X, y, X_target)
    opposite = (model.predict_proba(X), model.predict_proba(X_target)[:, ::-1])
    agreed = (model.predict_proba(X), model.predict_proba(X_target))
    assert ma.estimate_accuracy(model, X, y, X_target, predictions=[opposite]).value < alone.value - 0.1
    assert ma.estimate_accuracy(model, X, y, X_target, predictions=[agreed]).value == pytest.approx(
        alone.value, abs=0.03
    )


def test_sparse_rows_and_frames_are_taken(model):
    X, y = blobs(300, 1)
    X_target, _ = blobs(300, 2)
    dense = ma.estimate_accuracy(model, X, y, X_target)
    assert ma.estimate_accuracy(model, sparse.csr_array(X), y, sparse.csr_array(X_target)).value == pytest.approx(
        dense.value, abs=0.05
    )

    class OfFrames:
        classes_ = model.classes_

        def predict_proba(self, frame):
            return model.predict_proba(frame[["a", "b", "c", "d"]].to_numpy())

    frames = [pd.DataFrame(rows, columns=list("abcd")).assign(kind="x") for rows in (X, X_target)]
    frames[0].loc[3, "kind"] = "y"
    assert ma.estimate_accuracy(OfFrames(), frames[0], y, frames[1]).value == pytest.approx(dense.value, abs=0.05)


def test_many_classes_with_names_and_few_rows():
    random = np.random.default_rng(0)
    y = np.array(list("abcde"))[np.arange(100) % 5]
    X = np.eye(5)[np.arange(100) % 5] * 3.0 + random.normal(size=(100, 5))
    forest = RandomForestClassifier(20, random_state=0).fit(X[:50], y[:50])
    estimate = ma.estimate_accuracy(forest, X[50:65], y[50:65], X[65:])
    assert 0.0 <= estimate.low <= estimate.value <= estimate.high <= 1.0
    assert estimate.high - estimate.low > 0.15


def test_regression_is_unbiased_without_a_shift_and_falls_with_one():
    random = np.random.default_rng(0)
    X = random.normal(size=(4400, 3))
    y = X @ [1.0, 2.0, 0.0] + np.sin(3.0 * X[:, 0]) + random.normal(size=4400)
    regressor = Ridge().fit(X[:400], y[:400])
    same = ma.estimate_accuracy(regressor, X[400:2400], y[400:2400], X[2400:], "r2")
    truth = regressor.score(X[2400:], y[2400:])
    assert abs(same.value - truth) < 0.05
    assert same.low < truth < same.high
    other = ma.estimate_accuracy(regressor, X[400:2400], y[400:2400], 4.0 * X[2400:] + 3.0, "mae")
    near = ma.estimate_accuracy(regressor, X[400:2400], y[400:2400], X[2400:], "mae")
    assert other.value > 1.5 * near.value
    assert other.high - other.low > near.high - near.low


def test_the_same_question_has_the_same_answer(model):
    X, y = blobs(2000, 1)
    X_target, _ = blobs(2000, 2)
    assert ma.estimate_accuracy(model, X, y, X_target) == ma.estimate_accuracy(model, X, y, X_target)


@pytest.mark.parametrize(
    ("metric", "text"),
    [("accuracy", "84 % (80 to 88)"), ("r2", "0.84 (0.80 to 0.88)")],
)
def test_an_estimate_reads_well(metric, text):
    assert repr(TargetEstimate(0.84, 0.8, 0.88, metric)) == text


def test_invalid_input_is_named(model):
    X, y = blobs(100, 1)
    with pytest.raises(InvalidInputError, match="metric"):
        ma.estimate_accuracy(model, X, y, X, "f1")
    with pytest.raises(InvalidInputError, match="y"):
        ma.estimate_accuracy(model, X, y[:-1], X)
    with pytest.raises(InvalidInputError, match="predictions on X_target"):
        ma.estimate_accuracy(model, X, y, X, predictions=[(model.predict_proba(X), model.predict_proba(X[:3]))])
    with pytest.raises(InvalidTypeError, match="predict_proba"):
        ma.estimate_accuracy(Ridge().fit(X, y), X, y, X)

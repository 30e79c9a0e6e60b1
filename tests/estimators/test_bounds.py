from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import softmax
from sklearn.exceptions import NotFittedError

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.bounds import _margin, _margin_interval, error_bound
from momentalign.evaluation.bounds import KNOWN_PART


@pytest.fixture(scope="module")
def domains() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three clouds, and the same clouds moved."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 3, 3000)
    rows = random.normal(size=(3000, 2)) + np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])[codes]
    return rows, np.array(["a", "b", "c"])[codes], rows[::-1] + np.array([0.5, -0.25])


@pytest.fixture(scope="module")
def model(domains) -> ma.MANNClassifier:
    rows, labels, others = domains
    chosen = ma.MANNClassifier(hidden=(6,), n_moments=4, max_epochs=60, learning_rate=0.1, random_state=0, device="cpu")
    return chosen.fit(rows[:500], labels[:500], X_target=others[:500])


def test_values_are_those_of_the_model(model: ma.MANNClassifier, domains):
    rows, labels, others = (part[500:] for part in domains)
    report = error_bound(model, rows, labels, others)
    assert report["source error"].value == pytest.approx(1 - model.score(rows, labels))
    hidden = [model.transform(part) for part in (rows, others)]
    assert report["CMD"].value == pytest.approx(ma.cmd(*hidden, n_moments=4), rel=1e-5)
    shifts = np.abs(model.predict_proba(rows).mean(axis=0) - model.predict_proba(others).mean(axis=0))
    assert report["shift of an output"].value == pytest.approx(shifts.max(), abs=1e-6)
    assert report["shift of an output"].value <= report["shift of an output by moments"].value


def test_on_fresh_rows_the_bounds_hold_for_many_samples(model: ma.MANNClassifier, domains):
    """All the rows that were not trained on are the domain; samples of it are drawn with replacement."""
    rows, labels, _ = (part[500:] for part in domains)
    others, truth = domains[2][500:], domains[1][::-1][500:]
    error = 1 - model.score(rows, labels)
    chances = model.predict_proba(others)
    soft = 1 - chances[np.arange(len(truth)), np.searchsorted(model.classes_, truth)].mean()
    random, failures = np.random.default_rng(0), 0
    for _ in range(60):
        ours, theirs = random.integers(0, len(rows), (2, 300))
        report = error_bound(model, rows[ours], labels[ours], others[theirs], confidence=0.8, rows="fresh")
        held = report["source error at most"].value >= error
        held &= report["soft error at least"].value <= soft <= report["soft error at most"].value
        failures += not held
        assert report["soft error at least"].value > 0.0
        assert report[KNOWN_PART].value > error
    assert failures <= 12


def test_seen_rows_are_what_is_assumed(model: ma.MANNClassifier, domains):
    rows, labels, others = (part[:100] for part in domains)
    assert error_bound(model, rows, labels, others)["source error at most"].kind == "heuristic"
    less, more = (error_bound(model, rows, labels, others, rows="fresh", confidence=part) for part in (0.5, 0.99))
    assert less["source error at most"].kind == more["source error at most"].kind == "bound"
    assert less["source error at most"].value < more["source error at most"].value


def test_sparse_rows_and_combined_networks_are_welcome(domains):
    rows, labels, others = (part[:400] for part in domains)
    chosen = ma.MANNClassifier(hidden=(4,), weight="auto", max_epochs=5, random_state=0, device="cpu")
    chosen.fit(rows, labels, X_target=others)
    assert len(chosen.networks_) > 1
    dense = error_bound(chosen, rows, labels, others)
    other = error_bound(chosen, sparse.csr_matrix(rows), labels.tolist(), sparse.csr_matrix(others))
    assert [row.value for row in other] == pytest.approx([row.value for row in dense], nan_ok=True, abs=1e-6)
    assert dense["source error"].value == pytest.approx(1 - chosen.score(rows, labels))
    shifts = np.abs(chosen.predict_proba(rows).mean(axis=0) - chosen.predict_proba(others).mean(axis=0))
    assert dense["shift of an output"].value == pytest.approx(shifts.max(), abs=1e-6)
    assert dense["shift of an output by moments"].kind == "unknown"


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_what_enters_the_softmax_stays_in_its_interval_and_comes_to_its_ends(classes: int):
    random = np.random.default_rng(classes)
    weights, biases = random.normal(size=(3, classes)), random.normal(size=classes)
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * 3)).reshape(3, -1).T
    entering = corners @ weights + biases
    for place in range(classes):
        margins = _margin(entering, place)
        assert np.allclose(1 / (1 + np.exp(-margins)), softmax(entering, axis=1)[:, place])
        low, high = _margin_interval(weights, biases, place)
        assert low <= margins.min()
        assert margins.max() <= high
        if classes == 2:
            assert (low, high) == pytest.approx((margins.min(), margins.max()), abs=1e-5)


def test_a_network_without_weights_has_an_interval_too(model: ma.MANNClassifier, domains):
    flat = ma.MANNClassifier(hidden=(6,), max_epochs=1, random_state=0, device="cpu").fit(
        domains[0][:60], domains[1][:60]
    )
    flat.coefs_[1][:] = flat.intercepts_[1][:] = 0.0
    report = error_bound(flat, domains[0][:60], domains[1][:60], domains[2][:60])
    assert report["shift of an output"].value == 0.0


def test_wrong_arguments_are_named(model: ma.MANNClassifier, domains):
    rows, labels, others = (part[:30] for part in domains)
    with pytest.raises(InvalidTypeError, match="model must be a MANNClassifier, got MANNRegressor"):
        error_bound(ma.MANNRegressor(), rows, labels, others)
    with pytest.raises(NotFittedError):
        error_bound(ma.MANNClassifier(), rows, labels, others)
    with pytest.raises(InvalidInputError, match="y_source must have one label for each of 30 rows, got shape"):
        error_bound(model, rows, labels[:3], others)
    with pytest.raises(InvalidInputError, match=r"y_source holds .*'d'.* not among the classes of the model"):
        error_bound(model, rows, np.where(labels == "a", "d", labels), others)

"""What is known about the target error of a fitted model: the terms, the report, and the model's door to them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import softmax
from sklearn.exceptions import NotFittedError

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.evaluation.bounds import (
    KNOWN_PART,
    BoundReport,
    BoundRow,
    _margin,
    _margin_interval,
    error_bound,
    target_error_terms,
)
from momentalign.evaluation.class_shares import Predictions
from momentalign.theory.bounds import GapBound, lipschitz_gap_bound, mean_deviation

SURE, UNSURE = [0.9, 0.05, 0.05], [0.25, 0.35, 0.4]
SOURCE, CODES = [SURE, SURE, UNSURE, UNSURE] * 500, [0, 1, 2, 0] * 500
TARGET = [UNSURE, UNSURE, SURE, UNSURE] * 250


def terms(source=SOURCE, codes=CODES, target=TARGET, **changes: Any):
    given = {"cmd_terms": [0.2, 0.1, 0.05], "output_bound": GapBound(0.25, 0.125), "rows": "fresh"}
    return target_error_terms(Predictions(*map(np.asarray, (source, codes, target))), **{**given, **changes})


def test_the_source_error_is_the_part_predicted_wrong_and_at_most_hoeffdings():
    report = terms(confidence=0.9)
    assert report["source error"].value == 0.5
    deviation = mean_deviation(2000, confidence=0.9, statements=4 * 3 + 3)
    assert report["source error at most"].value == pytest.approx(0.5 + deviation)


def test_the_known_part_is_the_sum_of_its_parts():
    report = terms()
    parts = ("source error at most", "distance by moments", "deviation of moments", "smoothness")
    assert report[KNOWN_PART].value == pytest.approx(sum(report[name].value for name in parts))
    confidences = [np.max(part, axis=1) for part in (SOURCE, TARGET)]
    bound = lipschitz_gap_bound(*confidences, 3, interval=(1 / 3, 1.0))
    assert report["distance by moments"].value == bound.polynomial
    assert report["smoothness"].value == bound.smoothness


def test_deviations_of_moments_count_both_samples_and_every_statement():
    apart = sum(mean_deviation(rows, interval=(-1.0, 1.0), statements=4 + 3) for rows in (2000, 1000))
    factor = (1 - 1 / 3) / 2 * math.pi / 4 / math.tan(math.pi / 4)  # Of degree 1.
    assert terms(cmd_terms=[0.1])["deviation of moments"].value == pytest.approx(factor * apart)


def test_what_probabilities_say_about_the_target():
    report = terms()
    unsure, rest = (3 * 0.6 + 0.1) / 4, (3 * 0.75 + 0.95) / 4
    assert report["error if calibrated"].value == pytest.approx(unsure)
    assert report["soft error at least"].value == pytest.approx(
        unsure - mean_deviation(1000, interval=(0.0, 2 / 3), statements=15)
    )
    assert report["soft error at most"].value == pytest.approx(
        rest + mean_deviation(1000, interval=(0.0, 1 / 3), statements=15)
    )


def test_few_rows_leave_the_trivial_bounds():
    report = terms([SURE, UNSURE], [1, 0], [SURE])
    names = ("source error at most", "soft error at least", "soft error at most")
    assert [report[name].value for name in names] == [1.0, 0.0, 1.0]


def test_shares_are_compared_class_by_class():
    # Labels 1/2, 1/4, 1/4; predictions 1/4, 0, 3/4.
    assert terms()["shift of class shares"].value == pytest.approx((0.25 + 0.25 + 0.5) / 2)


def test_moments_of_the_activations_are_reported_with_their_bound():
    report = terms(cmd_terms=[0.0, 0.25, 0.125])
    assert report["CMD"].value == 0.375
    assert report["polynomials of the activations"].value == 0.375
    # Of the first class: (0.9 + 0.9 + 0.25 + 0.25) / 4 in the source, (3 * 0.25 + 0.9) / 4 in the target.
    assert report["shift of an output"].value == pytest.approx(0.575 - 0.4125)
    assert report["shift of an output by moments"].value == 0.375
    assert "0.250 by the moments and 0.125 for the smoothness" in report["shift of an output by moments"].words
    assert terms(output_bound=None)["shift of an output by moments"].value is None


def test_kinds_of_fresh_and_of_seen_rows():
    fresh, seen = ({row.name: row.kind for row in terms(rows=rows)} for rows in ("fresh", "seen"))
    assert [name for name, kind in fresh.items() if kind == "unknown"] == ["labelling disagreement"]
    assert terms()["labelling disagreement"].value is None
    assert fresh[KNOWN_PART] == seen[KNOWN_PART] == "heuristic"
    changed = {"source error at most", "deviation of moments", "soft error at least", "soft error at most"}
    assert {name for name in fresh if fresh[name] != seen[name]} == changed
    assert {fresh[name] for name in changed} == {"bound"}
    assert {seen[name] for name in changed} == {"heuristic"}
    assert "trained or chosen on" in terms(rows="seen")["source error at most"].words


def report(value: float = 0.5) -> BoundReport:
    rows = (
        BoundRow("source error", "ε_S", 0.25, "measured", "part of 4 rows"),
        BoundRow("labelling disagreement", "E|g - g'|", None, "unknown", "not to be known"),
        BoundRow(KNOWN_PART, "ε_T", value, "heuristic", "their sum"),
    )
    return BoundReport(rows, 0.95)


@pytest.mark.parametrize(("value", "vacuous"), [(0.99, False), (1.0, True), (2.5, True)])
def test_a_vacuous_bound_is_called_so(value: float, *, vacuous: bool):
    words = report(value).conclusion
    assert f"{value:.2f}" in words
    assert ("vacuous" in words) == vacuous


def test_a_report_is_text_a_frame_json_and_rows_by_name():
    whole = report()
    *lines, last = str(whole).splitlines()
    assert last == whole.conclusion
    assert lines[0].endswith("part of 4 rows")
    for line, row in zip(lines, whole, strict=True):
        assert line.startswith(row.name)
        assert ("?" if row.value is None else f"{row.value:.3f}") in line
    frame = whole.to_frame()
    assert list(frame.columns) == ["name", "symbol", "value", "kind", "words"]
    assert frame["value"].isna().tolist() == [False, True, False]
    found = whole.to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["rows"][1]["value"], found["confidence"]) == (None, 0.95)
    assert whole["source error"].value == 0.25
    with pytest.raises(InvalidInputError, match="there is no row 'risk'; the rows are source error, labelling"):
        whole["risk"]


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
    settings = {"hidden": (6,), "n_moments": 4, "max_epochs": 60, "optimizer": "adagrad", "learning_rate": 0.1}
    chosen = ma.MANNClassifier(random_state=0, device="cpu", **settings)
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
    """All the rows that were not trained on are the domain; samples of it are drawn with reindexment."""
    rows, labels, _ = (part[500:] for part in domains)
    others, truth = domains[2][500:], domains[1][::-1][500:]
    error = 1 - model.score(rows, labels)
    probabilities = model.predict_proba(others)
    soft = 1 - probabilities[np.arange(len(truth)), np.searchsorted(model.classes_, truth)].mean()
    random, failures = np.random.default_rng(0), 0
    for _ in range(60):
        drawn, drawn_target = random.integers(0, len(rows), (2, 300))
        report = error_bound(model, rows[drawn], labels[drawn], others[drawn_target], confidence=0.8, rows="fresh")
        held = report["source error at most"].value >= error
        held &= report["soft error at least"].value <= soft <= report["soft error at most"].value
        failures += not held
        assert report["soft error at least"].value > 0.0
        assert report[KNOWN_PART].value > error
    assert failures <= 12


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
    for index in range(classes):
        margins = _margin(entering, index)
        assert np.allclose(1 / (1 + np.exp(-margins)), softmax(entering, axis=1)[:, index])
        low, high = _margin_interval(weights, biases, index)
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


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": ma.MANNRegressor()}, InvalidTypeError, "model must be a MANNClassifier, got MANNRegressor"),
        ({"model": ma.MANNClassifier()}, NotFittedError, "not fitted"),
        ({"y_source": ["a", "b"]}, InvalidInputError, "y_source must have shape"),
        (
            {"y_source": ["d"] * 30},
            InvalidInputError,
            "y_source holds the label .*'d'.*, which the model",
        ),
        ({"rows": "held out"}, InvalidInputError, "rows must be"),
        ({"confidence": 1.0}, InvalidInputError, "confidence must be"),
    ],
)
def test_wrong_arguments_are_named(model: ma.MANNClassifier, domains, change, error, message):
    rows, labels, others = (part[:30] for part in domains)
    with pytest.raises(error, match=message):
        ma.error_bound(**{"model": model, "X_source": rows, "y_source": labels, "X_target": others, **change})

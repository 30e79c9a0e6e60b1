"""A monitor with a model: the expected accuracy beside the alarms, over time and on its page."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError

WINDOW = 500


def drawn(random, rows, drift=0.0):
    """Labels depend on the features in one way, however these drift; a line fits them less and less."""
    X = random.normal(size=(rows, 4))
    X[:, 1] += drift
    probability = 1 / (1 + np.exp(-4 * (X[:, 0] - 0.35 * X[:, 1] ** 2 + 0.3)))
    return X, (random.random(rows) < probability).astype(int)


@pytest.fixture
def watched():
    random = np.random.default_rng(0)
    X, y = drawn(random, 2000)
    model = LogisticRegression().fit(X[:1000], y[:1000])
    return {"reference": X[1000:], "model": model, "X": X[1000:], "y": y[1000:], "window": WINDOW, "random_state": 0}


@pytest.mark.parametrize("kind", ["logistic regression", "network"])
def test_under_gradual_covariate_drift_the_estimate_is_within_five_points(kind):
    random = np.random.default_rng(1)
    X, y = drawn(random, 4000)
    model = LogisticRegression()
    if kind == "network":
        model = ma.MANNClassifier(hidden=(10,), discrepancy=None, max_epochs=30, random_state=0, device="cpu")
    model.fit(X[:2000], y[:2000])
    monitor = ma.DriftMonitor(X[2000:], window=WINDOW, model=model, X=X[2000:], y=y[2000:], random_state=0)
    truth = []
    for drift in np.linspace(0.0, 1.6, 9):
        rows, labels = drawn(random, WINDOW, drift)
        monitor.update(rows)
        truth.append(np.mean(model.predict(rows) == labels))
    found = [judgement.accuracy for judgement in monitor.history if judgement.accuracy is not None]
    errors = np.array([estimate.value for estimate in found]) - truth
    assert np.abs(errors).mean() < 0.05
    assert np.mean([one.low <= value <= one.high for one, value in zip(found, truth, strict=True)]) >= 0.85
    assert monitor.last.alarm
    if kind == "logistic regression":
        assert truth[0] - truth[-1] > 0.05, "there was something to see"
        assert found[0].value - found[-1].value > 0.05


def test_an_estimate_is_of_the_last_window_however_the_stream_is_cut(watched):
    rows, _ = drawn(np.random.default_rng(2), 1120, 0.5)
    whole, parts = (ma.DriftMonitor(**watched) for _ in range(2))
    whole.update(rows)
    for part in np.array_split(rows, 7):
        parts.update(part)
    expected, again = (
        {judgement.rows: judgement.accuracy for judgement in monitor.history if judgement.accuracy is not None}
        for monitor in (whole, parts)
    )
    assert expected == again
    assert list(expected) == [500, 1000]
    alone = ma.DriftMonitor(**watched)
    assert alone.update(rows[500:1000]).accuracy == expected[1000] != expected[500]


def test_it_is_told_in_words_in_json_and_on_a_page(watched, tmp_path):
    monitor = ma.DriftMonitor(**watched)
    with pytest.raises(InvalidInputError, match="no judgement yet"):
        monitor.report(tmp_path / "page.html")
    monitor.update(drawn(np.random.default_rng(3), 1000, 2.0)[0])
    assert f"; expected accuracy {monitor.last.accuracy!r}." in monitor.last.words
    page = monitor.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="expected-accuracy"' in page
    assert f"Expected accuracy by rows: 500 {monitor.history[0].accuracy.value:.2f}, 1,000" in page
    kept = json.loads(json.dumps(monitor.to_dict(), allow_nan=False))
    assert kept["last"]["accuracy"]["value"] == monitor.last.accuracy.value
    assert "model" not in kept

    names = {name: watched[name] for name in ("model", "X", "y")}
    again, plain = ma.DriftMonitor.from_dict(kept, **names), ma.DriftMonitor.from_dict(kept)
    assert again.last == plain.last == monitor.last
    rows = drawn(np.random.default_rng(4), WINDOW, 2.0)[0]
    again.update(rows)
    alone = ma.DriftMonitor(**watched)
    assert again.last.accuracy == alone.update(rows).accuracy
    plain.update(rows)
    assert plain.last.accuracy is None
    assert 'id="expected-accuracy"' not in plain.report(tmp_path / "plain.html").read_text(encoding="utf-8")
    again.reset()
    assert again.history == ()


def test_frames_keep_their_names(watched):
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(watched["X"], columns=names)
    model = LogisticRegression().fit(frame, watched["y"])
    monitor = ma.DriftMonitor(**{**watched, "reference": frame, "X": frame, "model": model})
    assert monitor.update(frame[:WINDOW]).accuracy.value == pytest.approx(model.score(frame, watched["y"]), abs=0.05)


@pytest.mark.parametrize("labels", [[1] * 1000, [0] * 999 + [1], [0, 1] * 500])
def test_labels_of_few_or_rare_classes_give_an_estimate_too(watched, labels):
    monitor = ma.DriftMonitor(**{**watched, "y": labels})
    estimate = monitor.update(watched["X"][:WINDOW]).accuracy
    assert 0.0 <= estimate.low <= estimate.value <= estimate.high <= 1.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": None}, InvalidInputError, "needs X and y"),
        ({"y": None}, InvalidInputError, "needs X and y"),
        ({"X": np.zeros((5, 3))}, InvalidInputError, r"X must have shape \(rows, 4\)"),
        ({"y": [0, 1]}, InvalidInputError, "y must have shape"),
        ({"y": [7] * 1000}, InvalidInputError, "y holds the label .*7"),
        ({"model": object()}, InvalidTypeError, "model must be a fitted classifier"),
    ],
)
def test_what_gives_no_estimate_is_refused_at_once(watched, change, error, message):
    with pytest.raises(error, match=message):
        ma.DriftMonitor(**{**watched, **change})

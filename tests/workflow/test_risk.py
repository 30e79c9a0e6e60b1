"""Rows at risk, thresholds and weights of rows and classes: chosen without target labels, the same after saving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import f1_score

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.moments.streaming import Moments
from momentalign.workflow.model import TableModel
from momentalign.workflow.predict import predict_file
from momentalign.workflow.risk import distances
from momentalign.workflow.threshold import Threshold, choose_threshold, parse_threshold, rarer_class

Frames = tuple[pd.DataFrame, pd.DataFrame]


def payments(rows: int, *, shift: float, seed: int) -> pd.DataFrame:
    """A few of them are frauds; in the target one column is moved, which changes no label."""
    random = np.random.default_rng(seed)
    amount, hour, age = random.normal(size=(3, rows)) + np.array([[0.0], [shift], [0.0]])
    odds = 2.0 * amount + 0.5 * hour - 4.0
    return pd.DataFrame({"amount": amount, "hour": hour, "age": age}).assign(
        fraud=np.where(random.random(rows) < 1.0 / (1.0 + np.exp(-odds)), "yes", "no")
    )


@pytest.fixture(scope="module")
def tables() -> Frames:
    return payments(1500, shift=0.0, seed=0), payments(1200, shift=0.5, seed=1)


@pytest.fixture(scope="module")
def detector(tables: Frames) -> TableModel:
    return ma.fit(*tables, label="fraud", target_label="fraud", threshold="f1")


def test_the_threshold_is_that_of_the_best_f1_on_held_out_rows(detector: TableModel):
    held_out, threshold = detector.estimator.held_out_, detector.threshold

    def f1(value: float) -> float:
        named = held_out.answer[:, 1] >= value
        return float(f1_score(held_out.labels == 1, named, sample_weight=held_out.counts))

    assert (threshold.positive, threshold.rule) == (1, "f1")
    assert f1(threshold.value) == pytest.approx(max(f1(value) for value in np.unique(held_out.answer[:, 1])))
    assert f1(threshold.value) > f1(0.5)
    assert "A row is 'yes' from a probability of" in detector.summary["verdict"]


def test_costs_move_the_threshold_to_where_they_are_lowest(detector: TableModel):
    rules = [parse_threshold(f"cost:1,{cost}") for cost in (1, 30)]
    values = [choose_threshold(rule, 1, detector.estimator).value for rule in rules]
    assert values[1] < 0.2 < values[0]


def test_a_threshold_holds_wherever_the_model_predicts(detector: TableModel, tables: Frames, tmp_path: Path):
    target = tables[1].drop(columns="fraud")
    labels = detector.predict(target)
    above = detector.predict_proba(target)[:, 1] >= detector.threshold.value
    np.testing.assert_array_equal(labels == "yes", above)
    detector.save(tmp_path / "model")
    loaded = ma.load(tmp_path / "model")
    assert loaded.threshold == detector.threshold
    target.to_csv(tmp_path / "t.csv", index=False)
    predict_file(loaded, tmp_path / "t.csv", out=tmp_path / "p.csv", risk=True)
    found = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_array_equal(found["prediction"], labels)
    pd.testing.assert_frame_equal(found.drop(columns="prediction"), detector.risk(target), rtol=1e-5)


def test_a_graph_has_the_threshold_too(detector: TableModel, tables: Frames, tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from momentalign.workflow.export import onnx_inputs

    target = tables[1].drop(columns="fraud")
    ma.export_onnx(detector, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (labels,) = session.run(["prediction"], onnx_inputs(detector, target))
    assert (labels == detector.predict(target)).mean() > 0.999
    assert (labels == "yes").sum() > (detector.predict_proba(target)[:, 1] > 0.5).sum()


def test_what_becomes_of_the_rare_class_is_measured(detector: TableModel, tables: Frames):
    positive = detector.summary["evaluation"]["positive"]
    truth, named = tables[1]["fraud"] == "yes", detector.predict(tables[1]) == "yes"
    assert positive["class"] == "yes"
    assert positive["recall"] == pytest.approx((truth & named).sum() / truth.sum())
    assert positive["precision"] == pytest.approx((truth & named).sum() / named.sum())
    assert 0.5 < positive["average_precision"] < positive["roc_auc"] < 1.0


def test_the_rarer_class_is_the_positive_one():
    classes = np.array(["a", "b"])
    assert [rarer_class(np.array(list(labels)), classes) for labels in ("aab", "abb", "ab")] == [1, 0, 1]
    assert rarer_class(np.array(["a"]), np.array(["a", "b", "c"])) is None
    assert Threshold(0.3, 0).decide(np.array([[0.3, 0.7], [0.2, 0.8]])).tolist() == [0, 1]


def test_weights_change_the_fit(detector: TableModel, tables: Frames):
    source, target = (frame.assign(age_weight=np.exp(frame["age"])) for frame in tables)
    plain = detector.predict_proba(target)
    by_row = ma.fit(source, target, label="fraud", sample_weight="age_weight")
    assert by_row.feature_names == detector.feature_names
    assert np.abs(by_row.predict_proba(target) - plain).max() > 0.01
    by_class = ma.fit(*tables, label="fraud", class_weight="balanced").predict_proba(target)
    assert (by_class[:, 1] > 0.5).mean() > 1.5 * (plain[:, 1] > 0.5).mean()


def test_a_fifth_is_flagged_and_less_often_right(detector: TableModel, tables: Frames):
    risk = detector.risk(tables[1])
    assert list(risk) == ["confidence", "agreement", "distance", "risky"]
    assert 0.15 < risk["risky"].mean() <= 0.2
    right = (detector.predict(tables[1]) == tables[1]["fraud"]).to_numpy()
    flagged, others = (right[risk["risky"] == flag].mean() for flag in (True, False))
    assert flagged < others - 0.15
    groups = detector.summary["risk"]
    assert [group["known"] for group in groups] == pytest.approx([flagged, others])


@pytest.mark.usefixtures("quick")
def test_values_are_risky_where_candidates_differ(readings: Frames):
    model = ma.fit(*readings, label="price", id_column="id", regression=True)
    risk = model.risk(readings[1])
    assert list(risk) == ["spread", "distance", "risky"]
    assert risk["spread"][risk["risky"]].min() > risk["spread"][~risk["risky"]].max()


def test_distances_are_the_same_for_sparse_rows():
    random = np.random.default_rng(0)
    source = sparse.random(50, 6, 0.4, format="csr", random_state=0)
    rows = sparse.random(20, 6, 0.4, format="csr", random_state=1)
    moments = Moments.of(source), Moments.of(rows)
    dense = distances(rows.toarray(), *moments)
    np.testing.assert_allclose(distances(rows, *moments), dense, rtol=1e-6)
    far = random.normal(size=(500, 3))
    assert distances(far + 10.0, Moments.of(far), Moments.of(far + 10.0)).min() > 5.0


def test_a_model_of_an_earlier_version_knows_no_risk(detector: TableModel, tables: Frames):
    from dataclasses import replace

    with pytest.raises(InvalidInputError, match="did not know the risk of rows; fit it again"):
        replace(detector, risk_cut=None).risk(tables[1])

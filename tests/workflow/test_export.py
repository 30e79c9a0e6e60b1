"""ONNX files of fitted models: in onnxruntime every kind of model predicts what it predicts here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, make_classification, make_regression

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.workflow import export
from momentalign.workflow.export import onnx_inputs

pytestmark = pytest.mark.usefixtures("quick")
SMALL: dict[str, Any] = {"hidden": (5,), "max_epochs": 3, "random_state": 0}


def frames(rows: int = 150) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Numbers, categories, dates, days and truths, some of them missing, with labels in the source."""
    random = np.random.default_rng(0)

    def draw(shift: float) -> pd.DataFrame:
        frame = pd.DataFrame(
            {
                "spend": random.normal(1e3 + 10 * shift, 10, rows),
                "region": random.choice(["north", "south", None, "west" if shift else "east"], rows),
                "seen": pd.to_datetime("1999-12-25 06:00") + pd.to_timedelta(random.uniform(0, 1500, rows), unit="D"),
                "member": random.choice([True, False], rows),
            }
        )
        frame.loc[::7, "spend"] = np.nan
        frame.loc[::9, "seen"] = pd.NaT
        return frame

    source = draw(0.0)
    likes = (source["region"] == "north") | (source["spend"] > 1e3)
    return source.assign(churn=np.where(likes, "yes", "no"), bill=source["spend"].fillna(1e3) * 2), draw(1.0)


def run(model: Any, inputs: dict[str, Any], path: Path) -> dict[str, np.ndarray]:
    ma.export_onnx(model, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.parametrize("options", [{}, {"method": "cmd", "max_epochs": 20, "device": "cpu"}])
def test_a_model_of_tables_takes_its_columns(tmp_path: Path, options: dict[str, Any]):
    source, target = frames()
    model = ma.fit(source.drop(columns="bill"), target, label="churn", **options)
    target = pd.concat([target, target[:1].assign(region="never seen")])
    inputs = onnx_inputs(model, target)
    assert {name: values.shape for name, values in inputs.items()} == dict.fromkeys(target, (151, 1))
    found = run(model, inputs, tmp_path / "model.onnx")
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(target), atol=1e-6)
    assert found["prediction"].tolist() == model.predict(target).tolist()


@pytest.mark.parametrize("options", [{}, {"method": "cmd", "max_epochs": 20, "device": "cpu"}])
def test_values_are_predicted(tmp_path: Path, options: dict[str, Any]):
    source, target = frames()
    model = ma.fit(source.drop(columns="churn"), target, label="bill", regression=True, **options)
    found = run(model, onnx_inputs(model, target), tmp_path / "model.onnx")
    np.testing.assert_allclose(found["prediction"], model.predict(target), rtol=1e-6)


def test_dates_of_four_centuries(tmp_path: Path):
    days = np.arange("1890-01-01", "2110-01-01", dtype="datetime64[D]")
    source = pd.DataFrame({"day": days[::40], "y": np.arange(len(days[::40])) % 2})
    model = ma.fit(source, source, label="y", method="none", max_epochs=1, device="cpu")
    frame = pd.DataFrame({"day": days})
    expected = model.preprocessor.transform(model.read(frame))
    graph = export._Graph()
    rows = export._features(graph, model)
    graph.output("features", rows, np.dtype(np.float64), expected.shape[1])
    session = onnxruntime.InferenceSession(graph.content(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, onnx_inputs(model, frame))[0], expected, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("adapted", [True, False])
def test_the_portfolio_of_arrays(tmp_path: Path, classes: int, adapted: bool):
    X, y = make_classification(300, 8, n_informative=5, n_classes=classes, random_state=0)
    target = 3 * X[:150] + 5 if adapted else None
    model = ma.AutoClassifier(random_state=0).fit(np.column_stack([X, np.ones(300)])[150:], y[150:], _with_ones(target))
    rows = _with_ones(X[:150])
    found = run(model, {"rows": rows}, tmp_path / "model.onnx")
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows), atol=1e-6)
    np.testing.assert_array_equal(found["prediction"], model.predict(rows))
    assert found["prediction"].dtype == np.int64


def _with_ones(rows: Any) -> Any:
    return None if rows is None else np.column_stack([rows, np.ones(len(rows))])


def test_the_portfolio_of_values(tmp_path: Path):
    X, y = make_regression(200, 4, noise=1.0, random_state=0)
    model = ma.AutoRegressor(random_state=0).fit(X, y, X + 0.1)
    found = run(model, {"rows": X}, tmp_path / "model.onnx")
    np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-6, atol=1e-5)


def test_sparse_files_are_rows(tmp_path: Path):
    rows = sparse.random(80, 30, density=0.2, format="csr", random_state=0)
    dump_svmlight_file(rows, np.arange(80) % 2, str(tmp_path / "s.svm"), zero_based=True)
    model = ma.fit(tmp_path / "s.svm", tmp_path / "s.svm", label="label")
    found = run(model, onnx_inputs(model, tmp_path / "s.svm"), tmp_path / "model.onnx")
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(tmp_path / "s.svm"), atol=1e-6)


def test_networks_combined_and_of_several_outputs(tmp_path: Path):
    X, y = make_classification(200, 4, random_state=0)
    model = ma.MANNClassifier(weight="auto", **SMALL).fit(X, y.astype(bool), X + 0.5)
    model.networks_, model.coefficients_ = model.networks_[:1] * 2, np.array([1.5, -0.5])
    model.networks_[1] = ([weight[:, ::-1].copy() for weight in model.coefs_], model.intercepts_)
    model.networks_[1][0][0][:] = model.coefs_[0]
    found = run(model, {"rows": X}, tmp_path / "model.onnx")
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(found["prediction"], model.predict(X))
    values = ma.MANNRegressor(**SMALL).fit(X, X[:, :2], X + 0.5)
    found = run(values, {"rows": X}, tmp_path / "values.onnx")
    np.testing.assert_allclose(found["prediction"], values.predict(X), rtol=1e-6)


def test_what_cannot_be_exported_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    X, y = make_classification(60, 4, random_state=0)
    fitted = ma.MANNClassifier(**SMALL).fit(X, y)
    for model, path, message in (
        ("model", tmp_path / "m.onnx", "model must be a model of ma.fit"),
        (fitted, None, "path must be a path"),
    ):
        with pytest.raises(InvalidTypeError, match=message):
            ma.export_onnx(model, path)
    words = pd.DataFrame({"review": ["good and warm", "bad and cold"] * 20, "y": [0, 1] * 20})
    text = ma.fit(words, words, label="y", text="review", method="none", max_epochs=2, device="cpu")
    with pytest.raises(InvalidInputError, match="column 'review' of free text has no form in ONNX"):
        ma.export_onnx(text, tmp_path / "m.onnx")
    empty = pd.DataFrame({"a": ["", "b", None, "c"] * 10, "y": [0, 1] * 20})
    with pytest.raises(InvalidInputError, match="'a' has an empty text as a category"):
        ma.export_onnx(ma.fit(empty, empty, label="y", method="none", max_epochs=2, device="cpu"), tmp_path / "m.onnx")
    monkeypatch.setattr(export, "_network", lambda graph, layers, rows, softmax: graph("Softmax", rows, axis=1))
    with pytest.raises(InvalidInputError, match="MANNClassifier is not the same in ONNX: its outputs differ by 0"):
        ma.export_onnx(ma.MANNClassifier(**SMALL).fit(X[:, :2], y), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())

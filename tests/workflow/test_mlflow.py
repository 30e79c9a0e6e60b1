"""The flavour for MLflow: what is logged is read back whole, as it was and as MLflow's pyfunc."""

import warnings

import numpy as np
import pandas as pd
import pytest

import momentalign as ma
from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError

with warnings.catch_warnings():  # MLflow warns of itself while it is imported
    warnings.simplefilter("ignore")
    mlflow = pytest.importorskip("mlflow", reason='needs MLflow: pip install ".[mlflow]"')
    import momentalign.mlflow as flavour

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow warns of its own dependencies


@pytest.fixture(autouse=True)
def runs(tmp_path):
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("shift", f"file://{tmp_path}/artifacts"))


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    source = pd.DataFrame({"spend": rng.normal(50, 10, 80), "city": rng.choice(["Linz", "Wien"], 80)})
    source["churn"] = np.where(source["spend"] > 50, "no", "yes")
    target = pd.DataFrame({"spend": rng.normal(55, 12, 60), "city": rng.choice(["Linz", "Wien"], 60)})
    settings = {"method": "none", "max_epochs": 20, "device": "cpu"}
    return ma.fit(source, target, label="churn", **settings), target


def test_a_model_for_tables_goes_through_a_run(tables):
    model, target = tables
    with mlflow.start_run():
        logged = flavour.log_model(model, "churn", input_example=target[:3], metadata={"team": "retention"})
    back = flavour.load_model(logged.model_uri)
    np.testing.assert_array_equal(back.predict_proba(target), model.predict_proba(target))
    predictor = mlflow.pyfunc.load_model(logged.model_uri)
    assert predictor.predict(target).tolist() == model.predict(target).tolist()
    np.testing.assert_array_equal(predictor.predict(target, params={"proba": True}), model.predict_proba(target))
    assert [column.name for column in logged.signature.inputs] == ["spend", "city"]
    assert logged.metadata == {"team": "retention"}


def test_an_estimator_is_saved_without_a_pickle(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    model = ma.MANNClassifier(hidden=(3,), max_epochs=3, random_state=0).fit(X, y, X + 1.0)
    flavour.save_model(model, tmp_path / "saved")
    files = {path.name for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert {"MLmodel", "manifest.json", "requirements.txt"} <= files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".cloudpickle"))]
    assert "momentalign" in (tmp_path / "saved" / "requirements.txt").read_text().split()
    predictor = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    np.testing.assert_array_equal(predictor.predict(X), model.predict(X))
    np.testing.assert_array_equal(predictor.predict(X, params={"proba": True}), model.predict_proba(X))
    called = flavour._load_pyfunc(str(tmp_path / "saved" / "data" / "model"))
    np.testing.assert_array_equal(called.predict(X, {"proba": True}), model.predict_proba(X))
    with pytest.raises(InvalidInputError, match=r"params must be empty or \{'proba': True\}, got \{'probs': 1\}"):
        called.predict(X, {"probs": 1})


def test_a_regression_has_no_probabilities_to_ask_for(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = ma.MANNRegressor(hidden=(3,), max_epochs=3, random_state=0).fit(X, X[:, 0], X + 1.0)
    for name, example in (("plain", None), ("with example", X[:2])):
        flavour.save_model(model, tmp_path / name, input_example=example)
        predictor = mlflow.pyfunc.load_model(str(tmp_path / name))
        np.testing.assert_array_equal(predictor.predict(X), model.predict(X))
        signature = predictor.metadata.signature
        assert signature is None if example is None else signature.params is None


def test_what_is_no_model_of_ours_is_refused(tmp_path, tables):
    with pytest.raises(
        InvalidTypeError, match=r"model must be the result of ma\.fit or a fitted estimator .* got dict"
    ):
        flavour.save_model({}, tmp_path / "saved")
    flavour.save_model(tables[0], tmp_path / "saved")
    weights = next((tmp_path / "saved").rglob("weights-*"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedFileError):
        flavour.load_model(str(tmp_path / "saved"))

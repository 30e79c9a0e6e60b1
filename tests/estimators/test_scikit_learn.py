"""What scikit-learn promises for its estimators, and what it must not do to a target."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import momentalign as ma
from momentalign.errors import MomentAlignWarning

# In a process of its own: without the environment variable the checks of the array API are skipped.
CHECKS = """
import json, warnings
import momentalign as ma
from momentalign.estimators import portfolio
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator
warnings.simplefilter("ignore")
# As small as the checks of what was learned allow.
network = {"hidden": (10,), "optimizer": "adam", "learning_rate": 0.2, "batch_size": 50, "max_epochs": 10}
estimators = {
    "classifier": ma.MANNClassifier(**network), "regressor": ma.MANNRegressor(**network),
    "scales": ma.MomentMap(), "covariances": ma.MomentMap("covariance"),
    "linear components": ma.TransferComponentAnalysis(), "components": ma.TransferComponentAnalysis(kernel="rbf"),
}
results = {}
for name, estimator in estimators.items():
    found = check_estimator(estimator, on_skip=None, on_fail=None)
    results[name] = [(r["check_name"], r["status"], r["expected_to_fail"], repr(r["exception"])) for r in found]
# All others of a portfolio run in test_auto.py, those of the searches in tests/selection.
portfolio.UPDATES = 80
for kind in (ma.AutoClassifier, ma.AutoRegressor):
    for estimator, check in estimator_checks_generator(kind(random_state=0)):
        if check.func.__name__ == "check_array_api_input":
            check(estimator)
            results[kind.__name__] = [("check_array_api_input", "passed", False, "")]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def checked():
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", CHECKS], capture_output=True, text=True, env=environment, check=True)
    return json.loads(done.stdout)


def test_every_check_of_scikit_learn_passes_and_none_is_skipped(checked):
    fewest = {"classifier": 65, "regressor": 60, "AutoClassifier": 1, "AutoRegressor": 1}
    for name, results in checked.items():
        assert len(results) >= fewest.get(name, 45), name
        assert [result for result in results if result[1:3] != ["passed", False]] == [], name
    assert len(checked) == 8


def test_clone_takes_parameters_and_leaves_what_was_learned(quick, problem):
    distance = ma.CMDLoss(3)
    model = quick(discrepancy="mmd", weight=2.5).fit(*problem[:3])
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not [name for name in vars(copy) if name.endswith("_")]
    assert clone(quick(discrepancy=distance)).discrepancy.n_moments == 3


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_a_scaler_before_the_model_scales_the_target_too(quick, problem, routing, assert_same_weights):
    X, y, X_target, _ = problem
    steps = [("scale", StandardScaler()), ("model", quick().set_fit_request(X_target=True))]
    pipeline = Pipeline(steps, transform_input=["X_target"]).fit(X, y, X_target=X_target)
    scaler = StandardScaler().fit(X)
    by_hand = quick().fit(scaler.transform(X), y, scaler.transform(X_target))
    assert_same_weights(pipeline["model"], by_hand)
    unscaled = quick().fit(scaler.transform(X), y, X_target)
    assert (unscaled.coefs_[0] != by_hand.coefs_[0]).any()
    np.testing.assert_array_equal(pipeline.predict(X_target), by_hand.predict(scaler.transform(X_target)))


def test_sample_domain_is_routed_through_a_pipeline(quick, problem, routing, assert_same_weights):
    X, y, X_target, _ = problem
    both, labels = np.concatenate([X, X_target]), np.concatenate([y, np.full(90, -1)])
    domain = np.repeat([1, -1], [120, 90])
    pipeline = make_pipeline(StandardScaler(), quick().set_fit_request(sample_domain=True))
    pipeline.fit(both, labels, sample_domain=domain)
    scaled = StandardScaler().fit_transform(both)
    assert_same_weights(pipeline[-1], quick().fit(scaled, labels, sample_domain=domain))


def test_it_is_a_transformer_in_the_middle_of_a_pipeline(quick, problem):
    pipeline = make_pipeline(quick(), LogisticRegression()).fit(problem.X, problem.y)
    assert pipeline[-1].n_features_in_ == 5


def test_pandas_output_has_names_and_index(quick, problem):
    frame = pd.DataFrame(problem.X_target, columns=list("abcd"), index=np.arange(90) + 1000)
    model = quick().fit(pd.DataFrame(problem.X, columns=list("abcd")), problem.y, frame)
    plain = model.transform(frame)
    with sklearn.config_context(transform_output="pandas"):
        hidden = model.transform(frame)
    assert hidden.columns.tolist() == [f"mannclassifier{i}" for i in range(5)]
    assert hidden.index.tolist() == frame.index.tolist()
    np.testing.assert_array_equal(hidden.to_numpy(), plain)


GRID = {"weight": [0.1, 1.0]}
TOOLS = {
    "GridSearchCV": lambda model, X, y, params: GridSearchCV(model, GRID, cv=2, error_score="raise").fit(
        X, y, **params
    ),
    "RandomizedSearchCV": lambda model, X, y, params: RandomizedSearchCV(
        model, GRID, n_iter=1, cv=2, error_score="raise"
    ).fit(X, y, **params),
    "cross_val_score": lambda model, X, y, params: cross_val_score(
        model, X, y, cv=2, params=params, error_score="raise"
    ),
    "cross_val_predict": lambda model, X, y, params: cross_val_predict(model, X, y, cv=2, params=params),
    "cross_validate": lambda model, X, y, params: cross_validate(model, X, y, cv=2, params=params, error_score="raise"),
    "learning_curve": lambda model, X, y, params: learning_curve(
        model, X, y, cv=2, params=params, train_sizes=[1.0], error_score="raise"
    ),
    "GridSearchCV of a pipeline": lambda model, X, y, params: GridSearchCV(
        Pipeline([("model", model)]), {"model__weight": [1.0]}, cv=2, error_score="raise"
    ).fit(X, y, **{f"model__{name}": value for name, value in params.items()}),
}


class Recording(ma.MANNClassifier):
    """Notes the rows that reach ``fit``."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y, X_target=None, *, sample_domain=None, y_target=None):
        Recording.seen.append((X, X_target, sample_domain))
        return super().fit(X, y, X_target, sample_domain=sample_domain, y_target=y_target)


@pytest.fixture
def recording():
    Recording.seen = []
    return Recording(hidden=(3,), max_epochs=2, random_state=0)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_plain_model_works_in_every_tool(recording, problem, tool):
    TOOLS[tool](recording, problem.X, problem.y, {})
    assert len(Recording.seen) >= 2


@pytest.mark.parametrize("tool", TOOLS)
def test_both_domains_as_one_x_are_cut_together(recording, problem, tool):
    X = np.concatenate([problem.X, problem.X_target])
    y = np.concatenate([problem.y, problem.y_target])
    domain = np.repeat([1, -1], [120, 90])
    known = {row.tobytes(): sign for row, sign in zip(X, domain, strict=True)}
    TOOLS[tool](recording, X, y, {"sample_domain": domain})
    for rows, _, signs in Recording.seen:
        assert [known[row.tobytes()] for row in np.asarray(rows)] == signs.tolist()
    assert any(len(rows) == 105 for rows, _, _ in Recording.seen)


CUT = r"X_target has as many rows as X, and this Recording is a clone.*sample_domain"


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        *((tool, np.asarray) for tool in TOOLS),
        *(("cross_val_score", k) for k in (pd.DataFrame, sparse.csr_matrix, list)),
    ],
)
def test_a_target_as_long_as_x_would_be_cut_which_is_told(recording, problem, tool, kind):
    target = kind(np.repeat(problem.X_target, 2, axis=0)[:120])
    with pytest.warns(MomentAlignWarning, match=CUT):
        TOOLS[tool](recording, problem.X, problem.y, {"X_target": target})


@pytest.mark.parametrize("transformer", [ma.TransferComponentAnalysis(2), ma.MomentMap()])
def test_transformers_tell_as_well(problem, transformer):
    search = GridSearchCV(Pipeline([("map", transformer), ("model", LogisticRegression())]), {"model__C": [1.0]}, cv=2)
    with pytest.warns(
        MomentAlignWarning, match=f"X_target has as many rows as X, and this {type(transformer).__name__}"
    ):
        search.fit(problem.X, problem.y, map__X_target=np.repeat(problem.X_target, 2, axis=0)[:120])
    search.fit(problem.X, problem.y, map__X_target=problem.X_target)


class Wrapper(ClassifierMixin, BaseEstimator):
    """Fits a model to a target of its own, whatever rows it is given."""

    def __init__(self, target, clones=False):
        self.target, self.clones = target, clones

    def fit(self, X, y):
        model = Recording(hidden=(3,), max_epochs=2, random_state=0)
        self.model_ = (clone(model) if self.clones else model).fit(X, y, self.target)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        return self.model_.predict(X)


def test_a_wrapper_with_a_target_as_long_as_a_fold_is_honest(recording, problem):
    target = problem.X_target[:60]
    assert np.isfinite(cross_val_score(Wrapper(target), problem.X, problem.y, cv=2, error_score="raise")).all()
    with pytest.warns(MomentAlignWarning, match=CUT):
        cross_val_score(Wrapper(target, clones=True), problem.X, problem.y, cv=2, error_score="raise")
    assert len(Recording.seen) == 4
    for rows, seen, _ in Recording.seen:
        assert len(rows) == 60
        np.testing.assert_array_equal(seen, target)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_target_of_another_length_passes_whole(recording, problem, tool):
    TOOLS[tool](recording, problem.X, problem.y, {"X_target": problem.X_target})
    for _, target, _ in Recording.seen:
        np.testing.assert_array_equal(target, problem.X_target)


def test_meta_estimators_that_draw_rows_tell_as_well(recording, problem, routing):
    model = recording.set_fit_request(X_target=True)
    target = np.repeat(problem.X_target, 2, axis=0)[:120]
    for meta in (CalibratedClassifierCV(model, cv=2), BaggingClassifier(model, n_estimators=1, max_samples=0.5)):
        with pytest.warns(MomentAlignWarning, match=CUT):
            meta.fit(problem.X, problem.y, X_target=target)


def test_domains_of_equal_length_are_fine_outside(quick, make_problem):
    X, y, X_target, _ = make_problem(rows=80, target_rows=80)
    quick().fit(X, y, X_target)
    quick().fit(X, y, X_target.tolist())
    pipeline = Pipeline([("model", quick())])
    pipeline.fit(X, y, model__X_target=X_target)

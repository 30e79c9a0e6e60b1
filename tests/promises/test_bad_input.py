"""What cannot work is refused in one line that names the argument; the estimator and the data are left as they were."""

import copy
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import NotFittedError

from momentalign.errors import DivergedError, MomentAlignError
from momentalign.training import stack

NAN, INF = float("nan"), float("inf")

# (parameter, value, what the message says besides the name)
PARAMETERS = [
    ("hidden", (), "empty"),
    ("hidden", (0,), "at least 1"),
    ("hidden", (2.5,), "whole number"),
    ("hidden", (True,), "whole number"),
    ("hidden", 50, "sequence"),
    ("hidden", None, "sequence"),
    ("hidden", "50", "whole number"),
    ("discrepancy", "kl", '"cmd", "cv-cmd", "mmd", "coral", "dann", None or a callable'),
    ("discrepancy", 3, '"cmd", "cv-cmd", "mmd", "coral", "dann", None or a callable'),
    ("discrepancy", lambda source, target: source, "scalar"),
    ("discrepancy", lambda source, target: source.mean(0), "scalar"),
    ("discrepancy", lambda source, target: 1.5, "scalar"),
    ("discrepancy", lambda source, target: None, "scalar"),
    ("weight", -0.1, "at least 0"),
    ("weight", NAN, "finite"),
    ("weight", INF, "finite"),
    ("weight", "1", "number"),
    ("weight", None, "number"),
    ("weight", True, "number"),
    ("n_moments", 0, "at least 1"),
    ("n_moments", 1.5, "whole number"),
    ("n_moments", "5", "whole number"),
    ("n_moments", None, "whole number"),
    ("optimizer", "rmsprop", "adagrad, adadelta, sgd, adam"),
    ("optimizer", 3, "adagrad, adadelta, sgd, adam"),
    ("learning_rate", 0, "positive"),
    ("learning_rate", -1.0, "positive"),
    ("learning_rate", NAN, "positive"),
    ("learning_rate", INF, "positive"),
    ("learning_rate", "fast", "number"),
    ("learning_rate", 1e39, "positive"),
    ("batch_size", 0, "at least 1"),
    ("batch_size", 2.5, "whole number"),
    ("batch_size", "all", "whole number"),
    ("max_epochs", 0, "at least 1"),
    ("max_epochs", 1e3, "whole number"),
    ("max_epochs", None, "whole number"),
    ("patience", 0, "at least 1"),
    ("patience", 0.5, "whole number"),
    ("validation_fraction", 1.0, "below 1"),
    ("validation_fraction", -0.1, "at least 0"),
    ("validation_fraction", NAN, "finite"),
    ("validation_fraction", "a third", "number"),
    ("device", "typewriter", "cannot be used"),
    ("device", "cuda:99", "cannot be used"),
    ("device", None, "cannot be used"),
    ("random_state", -1, "at least 0"),
    ("random_state", 1.5, "whole number"),
    ("random_state", "lucky", "whole number"),
]


def _with(rows, value):
    changed = rows.astype(type(value) if isinstance(value, complex) else rows.dtype)
    changed[3, 1] = value
    return changed


def _frame(rows, names="abcd"):
    return pd.DataFrame(rows, columns=list(names))


STRINGS = np.array([["a", "b", "c", "d"]] * 45, dtype=object)
# (name, how (X, y, X_target) is spoiled, a word that names the argument, what the message says besides)
DATA = [
    ("NaN in X", lambda X, y, T: (_with(X, NAN), y, T), "X", "NaN"),
    ("infinity in X", lambda X, y, T: (_with(X, INF), y, T), "X", "infinity"),
    ("NaN in CSR", lambda X, y, T: (sparse.csr_matrix(_with(X, NAN)), y, T), "X", "NaN"),
    ("too large for float32", lambda X, y, T: (_with(X, 1e39), y, T), "X", "large"),
    ("empty X", lambda X, y, T: (X[:0], y[:0], T), "X", "0 sample"),
    ("no column", lambda X, y, T: (X[:, :0], y, T), "X", "0 feature"),
    ("one row", lambda X, y, T: (X[:1], y[:1], T), "source", "1 sample"),
    ("3-D X", lambda X, y, T: (X[None], y, T), "X", "dim"),
    ("1-D X", lambda X, y, T: (X[:, 0], y, T), "X", "2D"),
    ("strings in X", lambda X, y, T: (np.resize(STRINGS, (60, 4)), y, T), "X", "convert"),
    ("complex X", lambda X, y, T: (_with(X, 1j), y, T), "X", "Complex"),
    ("no y", lambda X, y, T: (X, None, T), "y", "labels"),
    ("labels of another length", lambda X, y, T: (X, y[:-1], T), "y", "59"),
    ("one class", lambda X, y, T: (X, y * 0, T), "y", "one class"),
    ("NaN in y", lambda X, y, T: (X, np.where(y == 0, NAN, 1.0), T), "y", "NaN"),
    ("None in y", lambda X, y, T: (X, np.where(y == 0, None, "a"), T), "y", "label"),
    ("None in y, later", lambda X, y, T: (X, np.where(y == 1, None, "a"), T), "y", "label"),
    ("mixed labels, text first", lambda X, y, T: (X, np.where(y == 1, 3, np.array("a", object)), T), "y", "label"),
    ("mixed labels", lambda X, y, T: (X, np.where(y == 0, 3, np.array("a", object)), T), "y", "label"),
    ("a matrix of labels", lambda X, y, T: (X, np.stack([y, y], 1), T), "y", "1d"),
    ("a regression", lambda X, y, T: (X, X[:, 0], T), "y", "continuous"),
    ("NaN in X_target", lambda X, y, T: (X, y, _with(T, NAN)), "X_target", "NaN"),
    ("infinity in X_target", lambda X, y, T: (X, y, _with(T, -INF)), "X_target", "infinity"),
    ("target too large for float32", lambda X, y, T: (X, y, _with(T, 1e39)), "X_target", "large"),
    ("empty X_target", lambda X, y, T: (X, y, T[:0]), "X_target", "0 sample"),
    ("one target row", lambda X, y, T: (X, y, T[:1]), "target", "1 sample"),
    ("3-D X_target", lambda X, y, T: (X, y, T[None]), "X_target", "dim"),
    ("1-D X_target", lambda X, y, T: (X, y, T[0]), "X_target", "2D"),
    ("a scalar X_target", lambda X, y, T: (X, y, 3.0), "X_target", "2D"),
    ("strings in X_target", lambda X, y, T: (X, y, STRINGS), "X_target", "convert"),
    ("complex X_target", lambda X, y, T: (X, y, _with(T, 1j)), "X_target", "Complex"),
    ("other features", lambda X, y, T: (X, y, T[:, :3]), "X_target", "3 features"),
    ("other names", lambda X, y, T: (_frame(X), y, _frame(T, "abce")), "X_target", "feature names"),
    ("other order of names", lambda X, y, T: (_frame(X), y, _frame(T, "abdc")), "X_target", "feature names"),
]


@pytest.fixture(params=[0.0, np.inf], ids=["compiled", "batched"])
def engine(request, monkeypatch):
    monkeypatch.setattr(stack, "WORTH_COMPILING", request.param)


def _state(estimator):
    return {name: copy.deepcopy(value) for name, value in vars(estimator).items()}


def _refusal(estimator, *data):
    """The message with which ``fit`` refuses; parameters, data and everything learned are as before."""
    before, copies = _state(estimator), copy.deepcopy(data)
    threads, generator = torch.get_num_threads(), torch.get_rng_state()
    with pytest.raises((ValueError, TypeError)) as caught:
        estimator.fit(*data)
    parameters = estimator.get_params()
    assert all(repr(parameters[name]) == repr(before[name]) for name in parameters)
    learned = set(vars(estimator)) - set(before)
    assert learned <= {"n_features_in_", "feature_names_in_", "classes_"}
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), generator)
    _assert_unchanged(data, copies)
    return str(caught.value)


def _assert_unchanged(data, copies):
    for value, original in zip(data, copies, strict=True):
        if sparse.issparse(value):
            value, original = value.toarray(), original.toarray()
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(value, original)
        elif value is not None:
            np.testing.assert_array_equal(value, original)


@pytest.mark.parametrize(("name", "value", "words"), PARAMETERS, ids=[f"{p[0]}-{p[1]!r:.12}" for p in PARAMETERS])
def test_parameters(quick, data, name, value, words):
    message = _refusal(quick(**{name: value}), *data)
    assert name in message
    assert words in message
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize(("spoil", "argument", "words"), [row[1:] for row in DATA], ids=[row[0] for row in DATA])
def test_data(quick, data, engine, spoil, argument, words):
    message = _refusal(quick(), *spoil(*data))
    assert re.search(rf"\b{argument}\b", message)
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(("name", "value"), [("hidden", (0,)), ("batch_size", 0), ("max_epochs", 0), ("patience", 0)])
def test_the_remedy_is_one(quick, data, name, value):
    """What the message says to try is not refused in its turn."""
    remedy = _refusal(quick(**{name: value}), *data).split("try ")[1].rstrip(".")
    tried, _, setting = remedy.partition("=")
    assert tried == name
    quick(**{name: eval(setting, {})}).fit(*data)  # noqa: S307


def test_an_error_of_ours_is_in_the_tree_of_errors(quick, data):
    with pytest.raises(MomentAlignError):
        quick(weight=-1.0).fit(*data)


REFUSED = {
    "a target with other columns": ({}, lambda X, y, T: (X, y, T[:, :2])),
    "a device that is not there": ({"device": "typewriter"}, lambda X, y, T: (X, np.arange(60) % 3, T)),
    "divergence": ({"optimizer": "sgd", "learning_rate": 9e37}, lambda X, y, T: (X, np.arange(60) % 3, T)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_fitted_model_survives_a_refused_fit(quick, data, name):
    parameters, spoil = REFUSED[name]
    model = quick().fit(*data)
    expected = model.predict_proba(data[0])
    with pytest.raises((ValueError, DivergedError)):
        model.set_params(max_epochs=50, **parameters).fit(*spoil(*data))
    np.testing.assert_array_equal(model.predict_proba(data[0]), expected)
    assert model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_was_refused_is_not_fitted(quick, data, name):
    parameters, spoil = REFUSED[name]
    model = quick(max_epochs=50, **parameters)
    with pytest.raises((ValueError, DivergedError)):
        model.fit(*spoil(*data))
    with pytest.raises(NotFittedError):
        model.predict(data[0])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda X: X[:, :3], "3 features"),
        (lambda X: _with(X, NAN), "NaN"),
        (lambda X: X[0], "2D"),
        (lambda X: X[None], "dim 3"),
        (lambda X: X[:0], "0 sample"),
    ],
)
@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform"])
def test_rows_that_do_not_fit_the_model(quick, data, method, spoil, words):
    X, y, X_target = data
    model = quick().fit(X, y, X_target)
    with pytest.raises(ValueError, match=words):
        getattr(model, method)(spoil(X))

"""What ``fit`` promises, of classifier and regressor alike."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import momentalign as ma
from momentalign.estimators import mann
from momentalign.training import stack
from momentalign.validation import check_device

ROWS = {
    "list": np.ndarray.tolist,
    "fortran": np.asfortranarray,
    "dataframe": lambda rows: pd.DataFrame(rows, columns=list("abcd")),
    "csr": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
    "coo": sparse.coo_matrix,
}


def figures(model, rows):
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_any_kind_give_the_same_predictions(either, problem, kind):
    X, y, X_target, _ = problem
    settings = {"optimizer": "adagrad"}  # Without one the layout would choose it.
    convert, expected = ROWS[kind], figures(either(**settings).fit(X, y, X_target), X_target)
    model = either(**settings).fit(convert(X), y, convert(X_target))
    np.testing.assert_allclose(figures(model, convert(X_target)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("engine_limit", [0.0, np.inf], ids=["compiled", "batched"])
@pytest.mark.parametrize("labelled", [False, True])
def test_either_domain_may_be_sparse(quick, problem, monkeypatch, engine_limit, labelled):
    monkeypatch.setattr(stack, "WORTH_COMPILING", engine_limit)
    X, y, X_target, y_target = problem
    labels = {"y_target": np.where(np.arange(90) < 9, y_target, -1)} if labelled else {}
    expected = quick(optimizer="adagrad").fit(X, y, X_target, **labels).predict_proba(X)
    csr = sparse.csr_matrix
    for source, target in [(csr(X), X_target), (X, csr(X_target)), (csr(X), csr(X_target))]:
        model = quick(optimizer="adagrad").fit(source, y, target, **labels)
        np.testing.assert_allclose(model.predict_proba(X), expected, rtol=0, atol=1e-5)


def test_transform_gives_the_hidden_activations(either, problem):
    model = either(hidden=(6, 3)).fit(problem.X, problem.y, problem.X_target)
    rows = problem.X_target
    for weight, bias in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True):
        rows = 1 / (1 + np.exp(-(rows @ weight + bias)))
    np.testing.assert_allclose(model.transform(problem.X_target), rows, rtol=1e-6)
    last = rows @ model.coefs_[-1] + model.intercepts_[-1]
    if isinstance(model, ma.MANNClassifier):
        assert (model.predict(problem.X_target) == last.argmax(axis=1)).all()
    else:
        linear = model.y_mean_ + model.y_deviation_ * last[:, 0]
        np.testing.assert_allclose(model.predict(problem.X_target), linear, rtol=1e-6)
    assert model.get_feature_names_out().tolist() == [f"{type(model).__name__.lower()}{i}" for i in range(3)]


def test_rows_are_neither_dropped_nor_reordered(either, problem, monkeypatch):
    monkeypatch.setattr(mann, "CHUNK", 7)
    model = either().fit(problem.X, problem.y, problem.X_target)
    rows, order = problem.X_target, np.random.default_rng(0).permutation(90)
    for apply in (model.predict, model.transform, lambda rows: figures(model, rows)):
        whole = apply(rows)
        assert len(whole) == 90
        for found in (apply(rows[order])[np.argsort(order)], apply(sparse.csr_matrix(rows))):
            np.testing.assert_allclose(found, whole, rtol=1e-12)
        np.testing.assert_allclose(np.concatenate([apply(rows[i : i + 1]) for i in range(20)]), whole[:20], rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activations_and_probabilities_have_the_dtype_of_the_rows(either, problem, dtype):
    model = either().fit(problem.X.astype(dtype), problem.y, problem.X_target.astype(dtype))
    assert model.coefs_[0].dtype == np.float32
    assert model.transform(problem.X.astype(dtype)).dtype == dtype
    values = isinstance(model, ma.MANNRegressor)
    assert figures(model, problem.X.astype(dtype)).dtype == (np.float64 if values else dtype)


def test_patience_stops_training_after_the_lowest_validation_loss(either, problem):
    model = either(max_epochs=300, patience=4, optimizer="adam", learning_rate=0.5).fit(problem.X, problem.y)
    losses = model.history_["validation_loss"]
    assert model.n_epochs_ == len(losses) == np.argmin(losses) + 1 + 4 < 300
    if isinstance(model, ma.MANNRegressor):
        assert model.best_epoch_ == np.argmin(losses) + 1
        assert set(model.history_) == {"source_loss", "distance", "validation_loss"}
    assert either(max_epochs=20, patience=None, learning_rate=0.5).fit(problem.X, problem.y).n_epochs_ == 20


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_a_handful_of_rows_is_trained_on_without_holding_out(either, rows):
    X = np.arange(rows * 2.0).reshape(rows, 2)
    model = either(batch_size=None).fit(X, np.arange(rows) % 2, X[:2] + 1)
    assert model.predict(X).shape == (rows,)


def test_fit_returns_itself_and_changes_neither_parameters_nor_data(either, problem):
    """Data that cannot be written to are welcome."""
    copies = [part.copy() for part in problem]
    for part in problem:
        part.setflags(write=False)
    model = either(hidden=[5])
    parameters = model.get_params()
    assert model.fit(*problem[:3], y_target=problem.y_target) is model
    assert model.get_params() == parameters
    assert model.hidden == [5]
    for part, copy in zip(problem, copies, strict=True):
        np.testing.assert_array_equal(part, copy)


def test_fitting_again_forgets_the_first_fit(either, problem, make_problem, assert_same_weights):
    other = make_problem(seed=9, features=7)
    model = either().fit(pd.DataFrame(problem.X, columns=list("abcd")), problem.y)
    model.fit(other.X, other.y, other.X_target)
    assert_same_weights(model, either().fit(other.X, other.y, other.X_target))
    assert model.n_features_in_ == 7
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("make_state", [np.random.RandomState, np.random.default_rng])
def test_random_states_are_drawn_from(either, problem, make_state):
    """A generator gives the same model from the same state, and another one when it has moved on."""
    state, again = make_state(3), make_state(3)
    first, second = (either(random_state=state).fit(problem.X, problem.y) for _ in range(2))
    same = either(random_state=again).fit(problem.X, problem.y)
    np.testing.assert_array_equal(first.coefs_[0], same.coefs_[0])
    assert (first.coefs_[0] != second.coefs_[0]).all()


@pytest.mark.parametrize("seeds", [(None, None), (5, 2**32 + 5)])
def test_every_fit_without_a_random_state_and_every_seed_is_another(either, problem, seeds):
    first, second = (either(random_state=seed).fit(*problem[:3]) for seed in seeds)
    assert (first.coefs_[0] != second.coefs_[0]).all()


@pytest.mark.parametrize("setting", [{"weight": 0.0}, {"discrepancy": None}])
def test_without_weight_or_discrepancy_the_target_changes_nothing(either, problem, assert_same_weights, setting):
    with_target = either(**setting).fit(problem.X, problem.y, problem.X_target[:40])
    assert_same_weights(with_target, either().fit(problem.X, problem.y))


def test_auto_takes_a_gpu_if_there_is_one(monkeypatch):
    for there, expected in [(True, "cuda"), (False, "cpu")]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert check_device("auto") == expected
    assert check_device("cuda:1") == "cuda:1"


def test_verbose_shows_a_bar(either, problem, capfd):
    model = either(verbose=1)
    for train in (lambda: model.fit(problem.X, problem.y), lambda: model.fit_chunks([(problem.X, problem.y)])):
        train()
        shown = capfd.readouterr().err
        assert type(model).__name__ in shown
        assert ("accuracy" in shown) == isinstance(model, ma.MANNClassifier)

"""The law of parameters: on every path each one changes the fit or is refused, unless it is said to have no effect."""

import numpy as np
import pytest
from sklearn.base import clone

import momentalign as ma
from momentalign.errors import InvalidInputError

BASE = {
    "hidden": (5,), "optimizer": "adam", "learning_rate": 0.2, "batch_size": 40, "max_epochs": 40, "patience": 20,
    "random_state": 0,
}  # fmt: skip
CHANGES = {
    "hidden": (6,),
    "discrepancy": "coral",
    "weight": 3.0,
    "n_moments": 2,
    "optimizer": "adagrad",
    "learning_rate": 0.05,
    "batch_size": 25,
    "max_epochs": 2,
    "patience": 1,
    "validation_fraction": 0.45,
    "random_state": 1,
    "between": "pairs",
    "domain_weights": [1.0, 9.0],
    "loss": "absolute",
    "sharpen": 0.5,
    "class_weight": {0: 1.0, 1: 3.0},
}
# What says where something is done and what is shown; tests of their own look at them.
ELSEWHERE = {"device", "verbose"}


class Several:
    """Two sources and two targets in one X, labels of both kinds."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.domain = rng.permutation(np.repeat([1, 2, -1, -2], [70, 50, 50, 40]))
        self.codes = rng.integers(2, size=len(self.domain))
        self.X = rng.normal(size=(len(self.domain), 3))
        self.X[:, 0] += 0.8 * self.codes
        for number, column in {2: 1, -1: 2, -2: 1}.items():
            self.X[self.domain == number, column] += 1.0

    def labels(self, model):
        return self.X.sum(axis=1) if isinstance(model, ma.MANNRegressor) else self.codes

    def classes(self, model):
        return {} if isinstance(model, ma.MANNRegressor) else {"classes": [0, 1]}


DATA = Several()


def fit(model):
    return model.fit(DATA.X, DATA.labels(model), sample_domain=DATA.domain)


def partial_fit(model):
    for _ in range(2):
        model.partial_fit(DATA.X, DATA.labels(model), sample_domain=DATA.domain, **DATA.classes(model))
    return model


def fit_chunks(model):
    source = DATA.domain > 0
    X, y = DATA.X[source], DATA.labels(model)[source]
    return model.fit_chunks([(X[:50], y[:50]), (X[50:], y[50:])], [DATA.X[~source]])


def automatic(model):
    if model.weight == 1.0:
        model.set_params(weight="auto")
    return fit(model)


def searched(kind):
    def search(model):
        found = kind(clone(model), {"weight": [model.weight]}, random_state=0)
        return found.fit(DATA.X, DATA.codes, sample_domain=DATA.domain).best_estimator_

    return search


PATHS = {
    "fit": (fit, ()),
    # One pass over the rows, in order: nothing is held out, nothing stops early.
    "partial_fit": (partial_fit, ("max_epochs", "patience", "validation_fraction")),
    # One source and one target: there is nothing between them to choose.
    "fit_chunks": (fit_chunks, ("between",)),
    "auto": (automatic, ()),
    "reverse": (searched(ma.ReverseValidationSearch), ()),
    "label-free": (searched(ma.LabelFreeSearch), ()),
}
CASES = [
    (kind, path, name)
    for kind in (ma.MANNClassifier, ma.MANNRegressor)
    for path in PATHS
    for name in kind().get_params()
    if name not in ELSEWHERE and (kind is ma.MANNClassifier or path in ("fit", "partial_fit", "fit_chunks"))
]


def weights(model):
    return np.concatenate([part.ravel() for part in (*model.coefs_, *model.intercepts_, *_of_all(model))])


def _of_all(model):
    return [part for coefs, biases in getattr(model, "networks_", []) for part in (*coefs, *biases)]


@pytest.fixture(scope="module")
def unchanged():
    found = {}

    def of(kind, path):
        if (kind, path) not in found:
            found[kind, path] = weights(PATHS[path][0](kind(**BASE)))
        return found[kind, path]

    return of


def test_every_parameter_is_looked_at():
    assert set(CHANGES) | ELSEWHERE == set(ma.MANNRegressor().get_params()) | set(ma.MANNClassifier().get_params())


@pytest.mark.parametrize(("kind", "path", "name"), CASES)
def test_a_parameter_changes_the_fit_or_is_refused(unchanged, kind, path, name):
    run, without_effect = PATHS[path]
    before = unchanged(kind, path)
    refusal = ""
    try:
        after = weights(run(kind(**{**BASE, name: CHANGES[name]})))
    except InvalidInputError as error:
        refusal = str(error)
    if refusal:
        assert name in refusal
        return
    same = before.shape == after.shape and bool((before == after).all())
    assert same == (name in without_effect)


@pytest.mark.parametrize("kind", [ma.MANNClassifier, ma.MANNRegressor])
def test_a_parameter_that_is_set_between_two_calls_of_partial_fit_counts_from_then_on(kind):
    for name in ("discrepancy", "weight", "n_moments", "optimizer", "learning_rate", "batch_size", "between"):
        first = partial_fit(kind(**BASE))
        other = partial_fit(kind(**BASE)).set_params(**{name: CHANGES[name]})
        assert (weights(partial_fit(first)) != weights(partial_fit(other))).any(), name


def test_the_searches_obey_their_own_parameters():
    model = ma.MANNClassifier(**BASE)
    grid = {"weight": [0.5, 2.0]}
    for kind, changes in {
        ma.ReverseValidationSearch: {"share": 0.6, "random_state": 1},
        ma.LabelFreeSearch: {"share": 0.6, "random_state": 1, "rule": "entropy"},
    }.items():
        settings = {"random_state": 0, "refit": False}
        scores = kind(model, grid, **settings).fit(DATA.X, DATA.codes, sample_domain=DATA.domain).cv_results_
        for name, value in changes.items():
            other = kind(model, grid, **{**settings, name: value})
            found = other.fit(DATA.X, DATA.codes, sample_domain=DATA.domain).cv_results_
            assert found["mean_test_score"].tolist() != scores["mean_test_score"].tolist(), name

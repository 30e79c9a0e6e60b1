"""The law of parameters: on every path each one changes the fit or is refused, unless it is said to have no effect."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

import momentalign as ma
from momentalign.cli.main import app
from momentalign.errors import InvalidInputError

BASE = {
    "hidden": (5,), "optimizer": "adam", "learning_rate": 0.2, "batch_size": 40, "max_epochs": 20, "patience": 10,
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
    "device": "nowhere",
    "random_state": 1,
    "between": "pairs",
    "domain_weights": [1.0, 9.0],
    "loss": "absolute",
    "sharpen": 0.5,
    "class_weight": {0: 1.0, 1: 3.0},
}
KINDS = [ma.MANNClassifier, ma.MANNRegressor]

# Two sources and two targets in one X.
RNG = np.random.default_rng(0)
DOMAIN = RNG.permutation(np.repeat([1, 2, -1, -2], [70, 50, 50, 40]))
CODES = RNG.integers(2, size=len(DOMAIN))
X = RNG.normal(size=(len(DOMAIN), 3))
X[:, 0] += 0.8 * CODES
for number, column in {2: 1, -1: 2, -2: 1}.items():
    X[number == DOMAIN, column] += 1.0


def labels_for(model):
    return X.sum(axis=1) if isinstance(model, ma.MANNRegressor) else CODES


def fit(model, _name):
    return model.fit(X, labels_for(model), sample_domain=DOMAIN)


def partial_fit(model, _name=None):
    classes = {} if isinstance(model, ma.MANNRegressor) else {"classes": [0, 1]}
    for _ in range(2):
        model.partial_fit(X, labels_for(model), sample_domain=DOMAIN, **classes)
    return model


def fit_chunks(model, _name):
    source, y = X[DOMAIN > 0], labels_for(model)[DOMAIN > 0]
    return model.fit_chunks([(source[:50], y[:50]), (source[50:], y[50:])], [X[DOMAIN < 0]])


def automatic(model, name):
    return fit(model if name == "weight" else model.set_params(weight="auto"), name)


def reverse(model, name):
    """The parameter is a point of the grid."""
    grid, others = {name: [getattr(model, name)]}, clone(model).set_params(**{name: getattr(ma.MANNClassifier(), name)})
    search = ma.ReverseValidationSearch(others, grid, random_state=0)
    return search.fit(X, CODES, sample_domain=DOMAIN).best_estimator_


def label_free(model, _name):
    """The parameter is one of the estimator."""
    search = ma.LabelFreeSearch(clone(model), {"weight": [model.weight]}, random_state=0)
    return search.fit(X, CODES, sample_domain=DOMAIN).best_estimator_


# How to fit, and which parameters have no effect there.
PATHS = {
    "fit": (fit, ()),
    # One pass over the rows, in order: nothing is held out, nothing stops early.
    "partial_fit": (partial_fit, ("max_epochs", "patience", "validation_fraction")),
    # One source and one target: there is nothing between them to choose.
    "fit_chunks": (fit_chunks, ("between",)),
    "auto": (automatic, ()),
    "reverse": (reverse, ()),
    "label-free": (label_free, ()),
}
OF_BOTH = ("fit", "partial_fit", "fit_chunks")
CASES = [
    (kind, path, name)
    for kind in KINDS
    for path in PATHS
    for name in kind().get_params()
    if name in CHANGES and (kind is ma.MANNClassifier or path in OF_BOTH)
]


def weights(model):
    networks = getattr(model, "networks_", [(model.coefs_, model.intercepts_)])
    return np.concatenate([part.ravel() for network in networks for layers in network for part in layers])


@pytest.fixture(scope="module")
def unchanged():
    """The weights without any change, on every path; which parameter stands in a grid does not matter."""
    found = {}

    def of(kind, path):
        if (kind, path) not in found:
            found[kind, path] = weights(PATHS[path][0](kind(**BASE), "n_moments"))
        return found[kind, path]

    return of


def test_every_parameter_is_looked_at():
    """All but the progress bar, which has tests of its own."""
    assert {*CHANGES, "verbose"} == {name for kind in KINDS for name in kind().get_params()}


@pytest.mark.parametrize(("kind", "path", "name"), CASES)
def test_a_parameter_changes_the_fit_or_is_refused(unchanged, kind, path, name):
    run, without_effect = PATHS[path]
    before = unchanged(kind, path)
    refusal = ""
    try:
        after = weights(run(kind(**{**BASE, name: CHANGES[name]}), name))
    except InvalidInputError as error:
        refusal = str(error)
    if refusal:
        assert name in refusal
        return
    same = before.shape == after.shape and bool((before == after).all())
    assert same == (name in without_effect)


@pytest.mark.parametrize("kind", KINDS)
def test_a_parameter_that_is_set_between_two_calls_of_partial_fit_counts_from_then_on(kind):
    unchanged = weights(partial_fit(partial_fit(kind(**BASE))))
    for name in ("discrepancy", "weight", "n_moments", "optimizer", "learning_rate", "batch_size", "between"):
        other = partial_fit(kind(**BASE)).set_params(**{name: CHANGES[name]})
        assert (weights(partial_fit(other)) != unchanged).any(), name


@pytest.mark.parametrize("regression", [[], ["--regression"]], ids=["classes", "values"])
def test_an_option_of_the_command_changes_the_network_or_is_refused(tmp_path, regression):
    """The options that are parameters of a network."""
    frame = pd.DataFrame(X, columns=list("abc"))
    source, target = frame[DOMAIN > 0], frame[DOMAIN < 0]
    y = frame.sum(axis=1) if regression else pd.Series(CODES)
    source.assign(y=y[DOMAIN > 0]).to_csv(tmp_path / "source.csv", index=False)
    target.to_csv(tmp_path / "target.csv", index=False)
    base = {"method": "cmd", "weight": "1", "max-epochs": "5", "seed": "0"}

    def done(**changes):
        options = [part for name, value in {**base, **changes}.items() for part in (f"--{name}", value)]
        files = [str(tmp_path / name) for name in ("source.csv", "target.csv")]
        return CliRunner().invoke(
            app, ["fit", *files, "--label", "y", "--out", str(tmp_path / "m"), *options, *regression]
        )

    def found(**changes):
        assert done(**changes).exit_code == 0
        return weights(ma.load(tmp_path / "m").estimator)

    before = found()
    for name, value in {"method": "coral", "weight": "3", "max-epochs": "2", "seed": "1"}.items():
        assert (found(**{name: value}) != before).any(), name
    for name, value in {"device": "nowhere", "class-weight": "balanced", "sample-weight": "a"}.items():
        error = done(**{name: value}).exception
        assert isinstance(error, InvalidInputError), name
        assert name.replace("-", "_") in str(error)


def test_the_searches_obey_their_own_parameters():
    model = ma.MANNClassifier(**{**BASE, "max_epochs": 40, "patience": 20})

    def scores(kind, **settings):
        search = kind(model, {"weight": [0.5, 2.0]}, **{"random_state": 0, "refit": False, **settings})
        return search.fit(X, CODES, sample_domain=DOMAIN).cv_results_["mean_test_score"].tolist()

    for kind, changes in {
        ma.ReverseValidationSearch: {"share": 0.6, "random_state": 1},
        ma.LabelFreeSearch: {"share": 0.6, "random_state": 1, "rule": "entropy"},
    }.items():
        before = scores(kind)
        for name, value in changes.items():
            assert scores(kind, **{name: value}) != before, name

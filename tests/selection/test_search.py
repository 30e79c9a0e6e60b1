"""ReverseValidationSearch: what is chosen, how it is written down, and that jobs and stacks change nothing."""

import inspect
import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.selection import grid as grids
from momentalign.selection.reverse import reverse_scores
from momentalign.selection.search import ReverseValidationSearch
from momentalign.training.config import NetworkSpec, TrainingConfig

WEIGHTS = [0.0, 0.5, 20.0]


@pytest.fixture
def fitted(quick, problem):
    def fit(model=None, grid=None, **options):
        grid = {"weight": WEIGHTS} if grid is None else grid
        search = ReverseValidationSearch(model or quick(), grid, **{"random_state": 3, **options})
        return search.fit(problem.X, problem.y, problem.X_target)

    return fit


def as_float32(problem):
    return problem.X.astype(np.float32), problem.y, problem.X_target.astype(np.float32), 2


def scores(search):
    return search.cv_results_["mean_test_score"].tolist()


def test_the_signature_is_the_promised_one():
    names = inspect.signature(ReverseValidationSearch).parameters
    assert [*names] == ["estimator", "param_grid", "share", "refit", "n_jobs", "random_state", "resume", "verbose"]
    assert [*inspect.signature(ReverseValidationSearch.fit).parameters] == [
        "self", "X", "y", "X_target", "sample_domain",
    ]  # fmt: skip
    model = ma.MANNClassifier()
    assert ReverseValidationSearch(model, {}).get_params(deep=False) == {
        "estimator": model, "param_grid": {}, "share": 0.8, "refit": True, "n_jobs": 1, "random_state": None,
        "resume": None, "verbose": 0,
    }  # fmt: skip


@pytest.mark.parametrize("share", [0.8, 0.6])
def test_it_finds_what_reverse_validation_by_hand_finds(fitted, quick, problem, share):
    search = fitted(share=share)
    specs = [NetworkSpec(3, weight, ma.CMDLoss(5)) for weight in WEIGHTS]
    expected = reverse_scores(*as_float32(problem), quick()._config(), specs, seed=3, share=share).scores
    assert scores(search) == expected.tolist()
    assert search.best_index_ == int(np.argmax(expected))
    assert search.best_params_ == {"weight": WEIGHTS[search.best_index_]}
    assert search.best_score_ == max(expected) > min(expected)


def test_the_table_is_that_of_scikit_learn(fitted):
    search = fitted(grid=[{"weight": [0.5, 20.0]}, {"discrepancy": [None], "hidden": [(3,)]}], refit=False)
    table = search.cv_results_
    assert table["params"] == [{"weight": 0.5}, {"weight": 20.0}, {"discrepancy": None, "hidden": (3,)}]
    assert table["param_weight"].tolist() == [0.5, 20.0, None]
    assert table["param_weight"].mask.tolist() == [False, False, True]
    assert table["param_discrepancy"].mask.tolist() == [True, True, False]
    assert table["param_hidden"].data.tolist() == [None, None, (3,)]
    assert table["rank_test_score"].tolist() == [
        1 + sum(other > score for other in scores(search)) for score in scores(search)
    ]
    assert (table["mean_test_score"].dtype, table["rank_test_score"].dtype) == (np.float64, np.int32)
    assert len(pd.DataFrame(table)) == 3


def test_points_of_one_score_share_the_better_rank():
    table = grids.results_table([{}] * 4, [0, 0, 1, 0])
    assert table["rank_test_score"].tolist() == [2, 2, 1, 2]
    assert table["mean_test_score"].dtype == np.float64


GRID = {
    "weight": [0.5],
    "hidden": [(5,), (3,)],
    "optimizer": ["adam", "adagrad"],
    "discrepancy": [
        "cmd",
        ma.MMDLoss(beta=0.5),
        lambda source, target: (source.mean(0) - target.mean(0)).square().sum(),
    ],
}


def test_a_grid_of_many_recipes_is_scored_as_point_by_point(fitted, monkeypatch):
    whole = fitted(grid=GRID, refit=False)
    assert len(scores(whole)) == 12
    assert len(set(scores(whole))) > 3
    alone = [
        fitted(grid={name: [value] for name, value in point.items()}, refit=False)
        for point in whole.cv_results_["params"][::5]
    ]
    assert [scores(search)[0] for search in alone] == scores(whole)[::5]
    monkeypatch.setattr(grids, "STACK", 2)
    assert scores(fitted(grid=GRID, refit=False, n_jobs=2)) == scores(whole)


def test_points_of_one_recipe_train_as_one_stack(quick, problem):
    points = grids.read_points(quick(), GRID, seed=0)
    X, y, X_target, classes = as_float32(problem)
    found = list(grids.stacks(points, grids.Task(X, y, X_target, classes)))
    # Two hidden layers, two optimizers; the function, which no compiled loop knows, apart from the two distances.
    assert sorted(len(stack) for stack in found) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert all(len({point.config for point in stack}) == 1 for stack in found)
    assert sorted(point.index for stack in found for point in stack) == list(range(12))


def test_stacks_are_not_too_large_and_none_is_left_out(quick, problem, monkeypatch):
    monkeypatch.setattr(grids, "STACK", 3)
    points = grids.read_points(quick(), {"weight": np.arange(7.0)}, seed=0)
    X, y, X_target, classes = as_float32(problem)
    found = grids.stacks(points, grids.Task(X, y, X_target, classes))
    assert [[point.index for point in stack] for stack in found] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_network_does_not_depend_on_its_neighbours_where_loops_are_compiled(fitted, quick, monkeypatch):
    monkeypatch.setattr("momentalign.training.compiled_engine.WORTH_COMPILING", 0.0)
    mixed = fitted(grid={"discrepancy": ["cmd", GRID["discrepancy"][2]], "weight": [0.5]}, refit=False)
    assert scores(mixed)[0] == scores(fitted(grid={"weight": [0.5]}, refit=False))[0]


def test_the_best_model_is_fitted_to_all_data(fitted, quick, problem):
    search = fitted()
    model = quick(**search.best_params_, random_state=3).fit(*problem[:3])
    np.testing.assert_array_equal(search.predict_proba(problem.X_target), model.predict_proba(problem.X_target))
    np.testing.assert_array_equal(search.predict(problem.X_target), model.predict(problem.X_target))
    np.testing.assert_array_equal(search.transform(problem.X), model.transform(problem.X))
    assert search.score(problem.X, problem.y) == model.score(problem.X, problem.y)
    assert search.classes_.tolist() == [0, 1]
    assert search.n_features_in_ == 3
    assert not [name for name in vars(search.estimator) if name.endswith("_")]


def test_a_seed_of_the_estimator_is_taken(fitted, quick):
    assert fitted(quick(random_state=8)).best_estimator_.random_state == 8
    assert scores(fitted(quick(random_state=8))) != scores(fitted(quick(random_state=9)))
    state = np.random.RandomState(0)
    assert scores(fitted(quick(random_state=state))) == scores(fitted(quick(random_state=state)))


def test_without_a_seed_every_search_draws_its_own(fitted):
    weights = [fitted(random_state=None, grid={"weight": [1.0]}).best_estimator_.coefs_[0] for _ in range(2)]
    assert (weights[0] != weights[1]).any()


def test_without_refit_there_is_a_choice_and_no_model(fitted, problem):
    search = fitted(refit=False)
    assert search.best_params_ in search.cv_results_["params"]
    assert not hasattr(search, "best_estimator_")
    for method in ("predict", "predict_proba", "transform"):
        assert not hasattr(search, method)
        with pytest.raises(AttributeError, match=method) as caught:
            getattr(search, method)
        assert "set refit=True" in str(caught.value.__cause__)
    with pytest.raises(AttributeError):
        search.score(problem.X, problem.y)


def test_before_fit_nothing_is_predicted(quick, problem):
    with pytest.raises(NotFittedError):
        ReverseValidationSearch(quick(), {"weight": WEIGHTS}).predict(problem.X)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, pd.DataFrame, np.ndarray.tolist])
def test_rows_of_any_kind_give_the_same_choice(quick, problem, fitted, kind):
    search = ReverseValidationSearch(quick(), {"weight": WEIGHTS}, random_state=3)
    search.fit(kind(problem.X), np.array(["no", "yes"])[problem.y], kind(problem.X_target))
    assert scores(search) == scores(fitted())
    assert set(search.predict(kind(problem.X))) <= {"no", "yes"}


def test_names_of_columns_are_kept(quick, problem):
    frame, target = (pd.DataFrame(rows, columns=list("abc")) for rows in (problem.X, problem.X_target))
    search = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=0).fit(frame, problem.y, target)
    assert search.feature_names_in_.tolist() == search.best_estimator_.feature_names_in_.tolist() == list("abc")


def test_a_target_as_long_as_the_source_is_whole(quick, problem):
    """Nothing is cut along with X: both domains are split here, each by itself."""
    target = np.concatenate([problem.X_target, problem.X_target[:30]])
    search = ReverseValidationSearch(quick(), {"weight": WEIGHTS}, random_state=3).fit(problem.X, problem.y, target)
    specs = [NetworkSpec(3, weight, ma.CMDLoss(5)) for weight in WEIGHTS]
    expected = reverse_scores(
        problem.X.astype(np.float32), problem.y, target.astype(np.float32), 2, quick()._config(), specs, seed=3
    )
    assert scores(search) == expected.scores.tolist()


def test_a_progress_bar_is_shown_when_asked_for(fitted, capfd):
    fitted(refit=False)
    assert capfd.readouterr() == ("", "")
    search = fitted(refit=False, verbose=1)
    output, shown = capfd.readouterr()
    assert output == ""
    assert "ReverseValidationSearch" in shown
    assert "3/3" in shown
    assert f"best score {search.best_score_:.4f}" in shown


BAD = [
    ({"grid": {"weight": []}}, InvalidInputError, r"param_grid: .*weight.*non-empty"),
    ({"grid": {"weight": 1.0}}, InvalidTypeError, "param_grid: .*weight.*needs to be a list"),
    ({"grid": 3}, InvalidTypeError, "param_grid: .*dict"),
    ({"grid": {"weight": [-1.0]}}, InvalidInputError, "weight must be a finite number of at least 0"),
    (
        {"grid": {"weight": [1e300]}, "refit": False},
        InvalidInputError,
        "weight must be .* and at most 1e.15, got 1e.300",
    ),
    ({"grid": {"weight": ["much"]}}, InvalidTypeError, "weight must be .* got 'much'"),
    ({"grid": {"hidden": [()]}}, InvalidInputError, "hidden is empty"),
    ({"grid": {"discrepancy": ["cdm"]}}, InvalidInputError, "discrepancy must be .* got 'cdm'"),
    ({"random_state": -1}, InvalidInputError, "random_state must be a whole number of at least 0"),
]


@pytest.mark.parametrize(("options", "kind", "message"), BAD)
def test_what_cannot_work_is_named(fitted, options, kind, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message):
        fitted(**options)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_call_leaves_an_earlier_fit_as_it_was(fitted, problem):
    search = fitted()
    before = search.predict_proba(problem.X)
    with pytest.raises(InvalidInputError, match="no target rows"):
        search.fit(problem.X[:, :2], problem.y)
    np.testing.assert_array_equal(search.predict_proba(problem.X), before)
    assert search.n_features_in_ == 3


def test_a_point_has_the_network_of_its_parameters(quick):
    model = quick(hidden=(7, 4), discrepancy="dann", between="pairs", domain_weights=[1, 2], device="cpu:0")
    (point,) = grids.read_points(model, {"weight": [3]}, seed=6)
    distance = point.spec.distance
    assert point.spec == NetworkSpec(6, 3.0, distance, between="pairs", domain_weights=(1.0, 2.0))
    assert repr(distance) == repr(ma.AdversarialLoss(4))
    assert (point.model.random_state, point.parameters, point.device) == (6, {"weight": 3}, "cpu:0")
    assert point.config == model._config()


def test_the_default_recipe_is_taken_as_it_is(quick):
    (point,) = grids.read_points(ma.MANNClassifier(), {"weight": [1.0]}, seed=0)
    assert point.config == TrainingConfig()
    assert json.loads(json.dumps(point.cell()))["hidden"] == [50]

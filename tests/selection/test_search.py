"""ReverseValidationSearch: what is chosen, how it is written down, and that jobs, stacks and devices change nothing."""

import inspect

import joblib
import numpy as np
import pandas as pd
import pytest
from joblib.parallel import LokyBackend, ThreadingBackend
from scipy import sparse
from sklearn.exceptions import NotFittedError

import momentalign as ma
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.errors import InvalidInputError
from momentalign.selection import grid as grids
from momentalign.selection import reverse
from momentalign.selection import search as label_free
from momentalign.selection.reverse import reverse_scores
from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch
from momentalign.training.config import NetworkSpec, TrainingConfig


def as_float32(problem):
    return problem.X.astype(np.float32), problem.y, problem.X_target.astype(np.float32), 2


WEIGHTS = [0.0, 0.5, 20.0]


@pytest.fixture
def fitted(quick, problem):
    def fit(model=None, grid=None, **options):
        grid = {"weight": WEIGHTS} if grid is None else grid
        search = ReverseValidationSearch(model or quick(), grid, **{"random_state": 3, **options})
        return search.fit(problem.X, problem.y, problem.X_target)

    return fit


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


def test_a_refused_call_leaves_an_earlier_fit_as_it_was(fitted, problem):
    search = fitted()
    before = search.predict_proba(problem.X)
    with pytest.raises(InvalidInputError, match="no target rows"):
        search.fit(problem.X[:, :2], problem.y)
    np.testing.assert_array_equal(search.predict_proba(problem.X), before)
    assert search.n_features_in_ == 3


KINDS = [ReverseValidationSearch, LabelFreeSearch]


@pytest.fixture
def asked():
    """How many jobs each parallel step asked for."""
    counts = []

    class Counting(ThreadingBackend):
        def configure(self, n_jobs=1, **options):
            counts.append(n_jobs)
            return super().configure(n_jobs=n_jobs, **options)

    joblib.register_parallel_backend("counting", Counting)
    with joblib.parallel_config(backend="counting"):
        yield counts
    del joblib.parallel.BACKENDS["counting"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_takes_as_many_as_were_asked_for(quick, problem, asked, monkeypatch, kind):
    monkeypatch.setattr("momentalign.training.compiled_engine.WORTH_COMPILING", 0.0)
    kind(quick(max_epochs=2), {"weight": [0.5, 1.0]}, random_state=0, refit=False, n_jobs=2).fit(*problem[:3])
    # Networks are trained, then judged; the networks on their way back train one by one within their jobs.
    assert [count for count in asked if count != 1] == [2, 2]


def test_one_is_taken_where_none_was_asked_for(problem, asked):
    rows = (problem.X.astype(np.float32), problem.y, problem.X_target.astype(np.float32))
    reverse.reverse_scores(
        *rows, 2, TrainingConfig(hidden=(3,), max_epochs=1), [NetworkSpec(0), NetworkSpec(1)], seed=0
    )
    assert set(asked) == {1}


@pytest.mark.parametrize(("kind", "module", "count"), [(KINDS[0], reverse, 3), (KINDS[1], label_free, 1)])
def test_networks_train_on_the_device_of_their_model(quick, problem, monkeypatch, kind, module, count):
    train, seen = module.train_stack, []

    def watched(task, *arguments, device, **options):
        seen.append((task.n_classes, device))
        return train(task, *arguments, device=device, **options)

    monkeypatch.setattr(module, "train_stack", watched)
    model = quick(max_epochs=2, device="cpu:0")
    kind(model, {"weight": [0.5, 1.0]}, random_state=0, refit=False).fit(*problem[:3])
    assert seen == [(2, "cpu:0")] * count


class NoProcesses(LokyBackend):
    """In the place of the processes that joblib starts where nothing is said of threads."""

    def configure(self, n_jobs=1, **options):
        assert n_jobs == 1, "processes were asked for"
        return super().configure(n_jobs=n_jobs, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_no_process_is_started(quick, problem, monkeypatch, kind):
    monkeypatch.setitem(joblib.parallel.BACKENDS, "loky", NoProcesses)
    with pytest.raises(AssertionError, match="processes were asked for"):
        joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(number) for number in range(2))
    kind(quick(max_epochs=2), {"weight": [0.5, 1.0]}, random_state=0, refit=False, n_jobs=2).fit(*problem[:3])


NUMBERS, OTHERS = np.arange(120) % 3, np.arange(90) // 30


@pytest.fixture
def mixed(problem):
    """All rows, their labels and the ids of their domains."""
    return (
        np.concatenate([problem.X, problem.X_target]),
        np.concatenate([problem.y, np.full(90, -1)]),
        np.concatenate([NUMBERS + 1, -1 - OTHERS]),
    )


@pytest.mark.parametrize(
    ("ids", "sizes"),
    [
        (np.sign, [2, 1, 1]),
        (np.copy, [1, 1, 1, 1]),
        (lambda domain: np.maximum(domain, -1), [1, 1, 1, 1]),  # several sources, one target
        (lambda domain: np.minimum(domain, 1), [1, 1, 1, 1]),
    ],
)
def test_a_distance_that_loops_know_for_two_domains_only_trains_apart(quick, mixed, monkeypatch, ids, sizes):
    """What a network becomes does not depend on which others train beside it."""
    train, found = reverse.train_stack, []

    def watched(task, config, specs, **options):
        found.append(len(specs))
        return train(task, config, specs, **options)

    monkeypatch.setattr(reverse, "train_stack", watched)
    X, y, domain = mixed
    grid = {"discrepancy": ["cmd", MMDLoss(beta=0.5)]}
    ReverseValidationSearch(quick(max_epochs=2), grid, random_state=3, refit=False).fit(X, y, sample_domain=ids(domain))
    assert found == sizes


def test_a_search_hands_them_on(quick, problem, mixed):
    rows = (problem.X.astype(np.float32), problem.y, problem.X_target.astype(np.float32))
    config, specs = (
        quick()._config(),
        [NetworkSpec(3, weight, ma.CMDLoss(5), between="pairs") for weight in (0.5, 20.0)],
    )
    expected = reverse_scores(*rows, 2, config, specs, seed=3, source_domains=NUMBERS, target_domains=OTHERS).scores
    search = ReverseValidationSearch(quick(between="pairs"), {"weight": [0.5, 20.0]}, random_state=3, refit=False)
    X, y, domain = mixed
    search.fit(X, y, sample_domain=domain)
    assert search.cv_results_["mean_test_score"].tolist() == expected.tolist()


@pytest.mark.parametrize("kind", [ReverseValidationSearch, LabelFreeSearch])
def test_the_best_model_is_fitted_to_all_domains(quick, mixed, kind):
    X, y, domain = mixed
    search = kind(quick(max_epochs=2), {"weight": [0.5]}, random_state=3).fit(X, y, sample_domain=domain)
    assert list(search.best_estimator_.moments_) == [1, 2, 3, -1, -2, -3]

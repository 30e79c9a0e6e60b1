"""Both searches: what is chosen and how it is written down, refusals, target labels that stay unread, and journals."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from joblib.parallel import LokyBackend, ThreadingBackend
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

import momentalign as ma
from momentalign import CMDLoss, MANNClassifier
from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.journal import Journal
from momentalign.selection import grid as grids
from momentalign.selection import reverse
from momentalign.selection import search as searches
from momentalign.selection.grid import read_points
from momentalign.selection.reverse import reverse_scores
from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch, _digest
from momentalign.training.config import NetworkSpec, Task

KINDS = [ReverseValidationSearch, LabelFreeSearch]
WEIGHTS = [0.0, 0.5, 20.0]


def as_task(problem, **domains):
    return Task(problem.X.astype(np.float32), problem.y, problem.X_target.astype(np.float32), 2, **domains)


def scores(found):
    return found.cv_results_["mean_test_score"].tolist()


@pytest.fixture
def fitted(quick, problem):
    def fit(model=None, grid=None, kind=ReverseValidationSearch, **options):
        grid = {"weight": WEIGHTS} if grid is None else grid
        search = kind(model or quick(), grid, **{"random_state": 3, **options})
        return search.fit(problem.X, problem.y, problem.X_target)

    return fit


# The checks know no target: the rows they give serve as one.
CHECKS = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
from momentalign import MANNClassifier
from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch

class Search({kind}):
    def fit(self, X, y):
        return super().fit(X, y, X_target=X)

    def fit_transform(self, X, y):
        return self.fit(X, y).transform(X)

warnings.simplefilter("ignore")
model = MANNClassifier(hidden=(4,), max_epochs=25, optimizer="adam", learning_rate=0.3, batch_size=None)
search = Search(model, {{"weight": [0.1]}}, random_state=0)
results = check_estimator(search, on_skip=None, on_fail=None)
print(json.dumps([(r["check_name"], r["status"], r["expected_to_fail"], repr(r["exception"])) for r in results]))
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_check_of_scikit_learn_passes_and_none_is_skipped(kind):
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}  # without it the checks of the array API are skipped
    program = CHECKS.format(kind=kind.__name__)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    results = json.loads(done.stdout)
    assert len(results) > 50
    assert [result for result in results if result[1:3] != ["passed", False]] == []


def test_both_searches_have_the_promised_interface():
    names = ["estimator", "param_grid", "share", "refit", "n_jobs", "random_state", "resume", "verbose"]
    model = MANNClassifier()
    defaults = {**dict.fromkeys(names), "estimator": model, "param_grid": {}, "share": 0.8, "refit": True, "n_jobs": 1}
    defaults["verbose"] = 0
    for kind, own in zip(KINDS, ({}, {"rule": "importance-weighted", "aggregate": False}), strict=True):
        parameters = inspect.signature(kind).parameters
        assert [name for name in parameters if name not in own] == names
        assert [name for name, value in parameters.items() if value.kind is not value.KEYWORD_ONLY] == names[:2]
        assert [*inspect.signature(kind.fit).parameters] == ["self", "X", "y", "X_target", "sample_domain"]
        assert kind(model, {}).get_params(deep=False) == {**defaults, **own}


@pytest.mark.parametrize("kind", KINDS)
def test_clone_and_nested_names(kind, quick, problem):
    search = kind(quick(), {"weight": [0.5]}, random_state=0).fit(*problem[:3])
    copy = clone(search)
    assert copy.estimator is not search.estimator
    assert not [name for name in vars(copy) if name.endswith("_")]
    assert copy.get_params()["estimator__max_epochs"] == 15
    copy.set_params(estimator__max_epochs=3, share=0.5)
    assert (copy.estimator.max_epochs, search.estimator.max_epochs, copy.share) == (3, 15, 0.5)
    assert copy.fit(*problem[:3]).best_estimator_.n_epochs_ == 3


@pytest.mark.parametrize("kind", KINDS)
def test_tags_say_what_a_search_takes_and_gives(kind, quick):
    tags = get_tags(kind(quick(), {"weight": [0.5]}))
    assert tags.input_tags.sparse
    assert tags.estimator_type == "classifier"
    assert tags.transformer_tags is not None
    assert get_tags(kind(quick(), {"weight": [0.5]}, refit=False)).transformer_tags is None


def test_a_target_that_scikit_learn_would_cut_is_told(quick, problem):
    search = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=0)
    with pytest.warns(MomentAlignWarning, match="X_target has as many rows as X, and this ReverseValidationSearch"):
        cross_val_score(search, problem.X, problem.y, cv=2, params={"X_target": problem.X + 1.0}, error_score="raise")
    search.fit(problem.X, problem.y, problem.X + 1.0)  # Nothing is cut here, and nothing told.


def test_the_target_is_routed(quick, problem):
    with sklearn.config_context(enable_metadata_routing=True):
        search = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=0).set_fit_request(X_target=True)
        scores = cross_val_score(
            search, problem.X, problem.y, cv=2, params={"X_target": problem.X_target}, error_score="raise"
        )
    assert len(scores) == 2


WEIGHT = {"weight": [1.0]}
EMPTY = r"param_grid is empty .*, there is nothing to choose from; try param_grid="
TOO_MANY = np.where(np.arange(120) == 7, 2, np.arange(120) % 2)


def nameless(source, target):
    return (source - target).sum()


REFUSALS = [
    # grid, options of the search, domains, error, message
    ({}, {}, {}, ValueError, EMPTY),
    ([], {}, {}, ValueError, EMPTY),
    ([WEIGHT, {}], {}, {}, ValueError, EMPTY),
    ({"weight": []}, {}, {}, ValueError, r"param_grid: .*weight.*non-empty"),
    ({"weight": 1.0}, {}, {}, TypeError, "param_grid: .*weight.*needs to be a list"),
    (3, {}, {}, TypeError, "param_grid: .*dict"),
    ({"weigth": [1.0], "hiden": [(3,)]}, {}, {}, ValueError, "param_grid names 'hiden', 'weigth', which MANN"),
    ({"weight": ["auto"]}, {}, {}, ValueError, 'weight="auto" combines networks of several weights'),
    ({"weight": [-1.0]}, {}, {}, ValueError, "weight must be a finite number of at least 0"),
    ({"weight": [1e300]}, {"refit": False}, {}, ValueError, "weight must be .* and at most 1e.15, got 1e.300"),
    ({"weight": ["much"]}, {}, {}, TypeError, "weight must be .* got 'much'"),
    ({"sharpen": [-1.0]}, {}, {}, ValueError, "sharpen must be a finite number of at least 0"),
    ({"hidden": [()]}, {}, {}, ValueError, "hidden is empty"),
    ({"discrepancy": ["cdm"]}, {}, {}, ValueError, "discrepancy must be .* got 'cdm'"),
    (WEIGHT, {"random_state": -1}, {}, ValueError, "random_state must be a whole number of at least 0"),
    (WEIGHT, {"share": 1.0}, {}, ValueError, "share must be a finite number above 0 and below 1, got 1.0"),
    (WEIGHT, {"share": "most"}, {}, TypeError, "share must be a number, got 'most'; try share=0.8"),
    (WEIGHT, {"estimator": MANNClassifier}, {}, TypeError, "estimator must be a MANNClassifier, .* got MANNClassifier"),
    (WEIGHT, {"estimator": None}, {}, TypeError, "estimator must be a MANNClassifier, .* got NoneType"),
    (WEIGHT, {"estimator": CMDLoss(3)}, {}, TypeError, "estimator must be a MANNClassifier, .* got CMDLoss"),
    (WEIGHT, {}, {"X_target": None}, ValueError, "has no target rows, there is no domain to choose for"),
    (WEIGHT, {}, {"X_target": None, "sample_domain": np.ones(120, int)}, ValueError, "has no target rows"),
    (WEIGHT, {}, {"X_target": np.full((9, 3), 1e300)}, ValueError, "X_target holds values too large for float32"),
    (WEIGHT, {}, {"y": np.full(120, "no")}, ValueError, r"y has one class only \('no'\)"),
    (WEIGHT, {}, {"y": TOO_MANY}, ValueError, "y has 120 labels of 3 classes, 1 of the rarest, too few to hold out"),
    (WEIGHT, {"resume": "journal", "random_state": None}, {}, ValueError, "resume needs the same splits in every run"),
    (WEIGHT, {"resume": "journal", "random_state": np.random.RandomState(0)}, {}, ValueError, "resume needs the same"),
    ({"discrepancy": [nameless]}, {"resume": "journal"}, {}, TypeError, "resume cannot tell discrepancy=<function"),
    (WEIGHT, {"rule": "entropie"}, {}, ValueError, "rule must be one of 'importance-weighted', .*, got 'entropie'"),
    (WEIGHT, {"rule": ["source"]}, {}, ValueError, "rule must be one of 'importance-weighted', .*'source', got"),
    (WEIGHT, {"rule": None}, {}, ValueError, "rule must be one of .*, got None"),
    (
        {**WEIGHT, "patience": [3], "hidden": [(3,)]}, {"rule": "balancing"}, {}, ValueError,
        "rule='balancing' compares networks by their weight alone, but param_grid has hidden, patience",
    ),
    (WEIGHT, {"rule": "balancing", "resume": "journal"}, {}, ValueError, "rule='balancing' needs all networks at once"),
    (WEIGHT, {"rule": "source", "aggregate": True, "resume": "journal"}, {}, ValueError, "aggregate=True needs all"),
]  # fmt: skip


@pytest.mark.parametrize(("grid", "options", "domains", "kind", "message"), REFUSALS)
def test_what_cannot_work_is_named_and_leaves_nothing(
    quick, problem, tmp_path, monkeypatch, grid, options, domains, kind, message
):
    monkeypatch.chdir(tmp_path)
    given = {**problem._asdict(), **domains}
    del given["y_target"]
    options = {"estimator": quick(), "random_state": 0, **options}
    for search in (LabelFreeSearch,) if "rule" in options else KINDS:
        with pytest.raises(kind, match=message):
            search(param_grid=grid, **options).fit(**given)
    assert list(tmp_path.iterdir()) == []


TOUCHES = [
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__bool__", "__float__", "__int__",
    "__index__", "__complex__", "__str__", "__repr__", "__bytes__", "__len__", "__iter__", "__getitem__",
    "__contains__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__neg__", "__abs__",
    "__copy__", "__deepcopy__", "__reduce_ex__",
]  # fmt: skip
SEARCHES = {
    "reverse": (ReverseValidationSearch, {}),
    **{rule: (LabelFreeSearch, {"rule": rule}) for rule in ("importance-weighted", "mutual-information", "balancing")},
    "aggregate": (LabelFreeSearch, {"aggregate": True}),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_labels_of_the_target_are_never_touched(fitted, quick, problem, name):
    """Objects in their place note whatever is done with them; numbers in their place change no bit."""
    touched = []
    label = type("Label", (), {touch: lambda *_, touch=touch: touched.append(touch) for touch in TOUCHES})()
    label == 0  # noqa: B015
    assert touched == ["__eq__"]
    kind, options = SEARCHES[name]
    domain = np.random.default_rng(5).permutation(np.repeat([1, -2], [120, 90]))
    X = np.empty((210, 3))
    X[domain > 0], X[domain < 0] = problem.X, problem.X_target
    expected = fitted(grid={"weight": [0.5, 20.0]}, kind=kind, **options)
    for place in (label, 7):
        y = np.empty(210, dtype=object if place is label else int)
        y[domain > 0] = np.array(["no", "yes"], dtype=object)[problem.y] if place is label else problem.y
        for index in np.flatnonzero(domain < 0):
            y[index] = place
        found = kind(quick(), {"weight": [0.5, 20.0]}, random_state=3, **options).fit(X, y, sample_domain=domain)
        assert scores(found) == scores(expected)
        np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    assert touched == ["__eq__"]
    with pytest.raises(TypeError, match="y_target"):
        kind(quick(), {"weight": [0.5]}).fit(problem.X, problem.y, problem.X_target, y_target=problem.y_target)


@pytest.mark.parametrize("share", [0.8, 0.6])
def test_it_finds_what_reverse_validation_by_hand_finds(fitted, quick, problem, share):
    search = fitted(share=share)
    specs = [NetworkSpec(3, weight, ma.CMDLoss(5)) for weight in WEIGHTS]
    expected = list(reverse_scores(as_task(problem), quick()._settings().config, specs, seed=3, share=share))
    assert scores(search) == expected
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
    "discrepancy": ["cmd", ma.MMDLoss(beta=0.5), lambda s, t: (s.mean(0) - t.mean(0)).square().sum()],
}


def test_a_grid_of_many_recipes_is_scored_as_point_by_point(fitted, monkeypatch):
    options = {"kind": LabelFreeSearch, "refit": False}
    whole = fitted(grid=GRID, **options)
    assert len({round(score, 6) for score in scores(whole)}) == 6
    alone = [
        fitted(grid={name: [value] for name, value in point.items()}, **options)
        for point in whole.cv_results_["params"][::5]
    ]
    assert [scores(search)[0] for search in alone] == pytest.approx(scores(whole)[::5], rel=1e-9)
    monkeypatch.setattr(grids, "STACK", 2)
    assert scores(fitted(grid=GRID, n_jobs=2, **options)) == pytest.approx(scores(whole), rel=1e-9)


def test_a_network_does_not_depend_on_its_neighbours_where_loops_are_compiled(fitted, quick, monkeypatch):
    monkeypatch.setattr("momentalign.training.stack.WORTH_COMPILING", 0.0)
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
    hidden = clone(search).fit_transform(problem.X, problem.y, problem.X_target)
    np.testing.assert_array_equal(hidden, search.transform(problem.X))


def test_a_seed_of_the_estimator_is_taken_or_every_search_draws_its_own(fitted, quick):
    first = fitted(quick(random_state=8))
    assert first.best_estimator_.random_state == 8
    assert scores(first) != scores(fitted(quick(random_state=9)))
    state = np.random.RandomState(0)
    assert scores(fitted(quick(random_state=state))) == scores(fitted(quick(random_state=state)))
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
    with pytest.raises(NotFittedError):
        clone(search).set_params(refit=True).predict(problem.X)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, pd.DataFrame, np.ndarray.tolist])
def test_rows_of_any_kind_give_the_same_choice(quick, problem, fitted, kind):
    search = ReverseValidationSearch(quick(), {"weight": WEIGHTS}, random_state=3)
    search.fit(kind(problem.X), np.array(["no", "yes"])[problem.y], kind(problem.X_target))
    assert scores(search) == scores(fitted())
    assert set(search.predict(kind(problem.X))) <= {"no", "yes"}


def test_names_of_columns_are_kept_and_the_grid_is_left_as_it_is(quick, problem):
    frame, target = (pd.DataFrame(rows, columns=list("abc")) for rows in (problem.X, problem.X_target))
    hidden = [4]
    search = ReverseValidationSearch(quick(), {"hidden": [hidden]}, random_state=0).fit(frame, problem.y, target)
    assert hidden == [4]
    assert search.feature_names_in_.tolist() == search.best_estimator_.feature_names_in_.tolist() == list("abc")


def test_a_refused_call_leaves_an_earlier_fit_as_it_was(fitted, problem):
    search = fitted()
    before = search.predict_proba(problem.X)
    with pytest.raises(InvalidInputError, match="no target rows"):
        search.fit(problem.X[:, :2], problem.y)
    np.testing.assert_array_equal(search.predict_proba(problem.X), before)
    assert search.n_features_in_ == 3


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
    monkeypatch.setattr("momentalign.training.stack.WORTH_COMPILING", 0.0)
    kind(quick(max_epochs=2), {"weight": [0.5, 1.0]}, random_state=0, refit=False, n_jobs=2).fit(*problem[:3])
    # Networks are trained, then judged; the networks on their way back train one by one within their jobs.
    assert [count for count in asked if count != 1] == [2, 2]


@pytest.mark.parametrize(("kind", "module", "count"), [(KINDS[0], reverse, 3), (KINDS[1], searches, 1)])
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
    grid = {"discrepancy": ["cmd", ma.MMDLoss(beta=0.5)]}
    ReverseValidationSearch(quick(max_epochs=2), grid, random_state=3, refit=False).fit(X, y, sample_domain=ids(domain))
    assert found == sizes


@pytest.mark.parametrize("kind", KINDS)
def test_all_domains_are_compared_and_the_best_model_is_fitted_to_them(quick, problem, mixed, kind):
    X, y, domain = mixed
    search = kind(quick(between="pairs"), {"weight": [0.5, 20.0]}, random_state=3).fit(X, y, sample_domain=domain)
    assert list(search.best_estimator_.moments_) == [1, 2, 3, -1, -2, -3]
    if kind is ReverseValidationSearch:
        task = as_task(problem, source_domains=NUMBERS, target_domains=OTHERS)
        specs = [NetworkSpec(3, weight, ma.CMDLoss(5), between="pairs") for weight in (0.5, 20.0)]
        assert scores(search) == list(reverse_scores(task, quick()._settings().config, specs, seed=3))


PROGRAM = """
import sys
import numpy as np
from momentalign import MANNClassifier
from momentalign.selection.search import ReverseValidationSearch

def search(resume):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), np.arange(120) % 2
    X[:, 0] += 2.0 * y
    model = MANNClassifier((5,), optimizer="adam", learning_rate=0.1, max_epochs=40, patience=None, batch_size=30)
    grid = {"weight": [0.0, 0.1, 1.0, 10.0, 100.0, 1000.0]}
    found = ReverseValidationSearch(model, grid, random_state=0, resume=resume, refit=False)
    return found.fit(X, y, X[:100] + [1.0, 0.0, 0.0])

if __name__ == "__main__":
    search(sys.argv[1])
"""


def lines(path):
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is of POSIX")
def test_a_killed_search_goes_on_and_gives_the_same(tmp_path):
    path = tmp_path / "search.jsonl"
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)])
    while len(lines(path)) < 3 and program.poll() is None:
        time.sleep(0.005)
    program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    kept = lines(path)
    assert 3 <= len(kept) < 7
    names = {"__name__": "program"}
    exec(PROGRAM, names)  # noqa: S102
    resumed, undisturbed = names["search"](path), names["search"](None)
    for name, column in undisturbed.cv_results_.items():
        assert np.asarray(resumed.cv_results_[name]).tolist() == np.asarray(column).tolist()
    assert len(set(undisturbed.cv_results_["mean_test_score"])) > 1
    whole = [line for line in kept if line.endswith(b"\n")]
    assert lines(path)[: len(whole)] == whole
    assert len(lines(path)) == 7  # the header and every point once


@pytest.fixture
def search(quick, problem, tmp_path):
    def fit(grid, *, model=None, shift=0.0, kind=ReverseValidationSearch, **options):
        options = {"random_state": 0, "resume": tmp_path / "deep" / "search.jsonl", "refit": False, **options}
        return kind(model or quick(), grid, **options).fit(problem.X + shift, problem.y, problem.X_target)

    return fit


@pytest.mark.parametrize("kind", KINDS)
def test_finished_points_are_not_computed_again(search, quick, tmp_path, kind):
    search({"weight": [0.5]}, kind=kind)
    header = json.loads(lines(tmp_path / "deep" / "search.jsonl")[0])
    point = read_points(quick(), {"weight": [7.0]}, seed=0)[0]
    Journal(tmp_path / "deep" / "search.jsonl", header["identity"]).append(point.cell(), {"score": 0.123})
    found = search({"weight": [0.5, 7.0]}, kind=kind)
    assert scores(found)[1] == 0.123
    assert scores(found)[0] == scores(search({"weight": [0.5]}, kind=kind, resume=None))[0]


@pytest.mark.parametrize(
    ("kind", "own"), [(ReverseValidationSearch, {}), (LabelFreeSearch, {"rule": "importance-weighted"})]
)
def test_a_journal_says_which_search_it_is_and_names_points_by_all_their_parameters(search, quick, tmp_path, kind, own):
    found = search({"weight": [0.5]}, model=quick(device="cpu"), kind=kind)
    header, line = (json.loads(line) for line in lines(tmp_path / "deep" / "search.jsonl"))
    data = header["identity"].pop("data")
    assert len(data) == 64
    assert header["identity"] == {"search": kind.__name__, "share": 0.8, "seed": 0, **own}
    assert line["result"] == {"score": found.best_score_}
    assert line["cell"] == {
        "batch_size": 60, "between": "pooled", "device": "cpu", "discrepancy": "cmd", "domain_weights": "equal",
        "hidden": [5], "learning_rate": 0.1, "max_epochs": 15, "n_moments": 5, "optimizer": "adam", "patience": 10,
        "random_state": 0, "weight": 0.5,
    }  # fmt: skip


TASK = Task(np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 1, 0]), np.ones((2, 2), np.float32), 2)


@pytest.mark.parametrize(
    ("changes", "beginning"),
    [
        ({}, "01f1241802607c96"),
        ({"source": sparse.csr_matrix(TASK.source), "target": sparse.csr_matrix(TASK.target)}, "26548cd37a11e872"),
        ({"source_domains": np.array([0, 1, 1])}, "8432b92d27d60252"),
    ],
)
def test_the_digest_of_data_is_the_same_in_every_version(changes, beginning):
    """A search that an earlier version began goes on."""
    assert _digest(replace(TASK, **changes)).startswith(beginning)


def test_the_bar_begins_with_what_is_finished_and_is_shown_when_asked_for(search, capfd):
    found = search({"weight": [0.5, 20.0]})
    assert capfd.readouterr() == ("", "")
    search({"weight": [0.5, 20.0]}, verbose=1)
    output, shown = capfd.readouterr()
    assert output == ""
    for part in ("ReverseValidationSearch", "2/2", f"best score {found.best_score_:.4f}"):
        assert part in shown


def test_a_grid_may_grow_and_what_changes_no_score_may_change(search, quick, tmp_path):
    small = search({"weight": [0.5, 20.0]})
    before = lines(tmp_path / "deep" / "search.jsonl")
    large = search({"weight": np.array([20.0, 3.0, 0.5])}, model=quick(verbose=0, validation_fraction=0.1), n_jobs=2)
    assert scores(large)[::2] == scores(small)[::-1]
    assert lines(tmp_path / "deep" / "search.jsonl")[:-1] == before


@pytest.mark.parametrize("kind", KINDS)
def test_sharpened_networks_of_a_grid_are_those_alone_and_go_on_where_they_stopped(search, quick, kind):
    grid = {"sharpen": [0.0, 1.0, 50.0], "weight": [0.5]}
    whole = scores(search(grid, kind=kind, resume=None))
    alone = [
        scores(search({"sharpen": [value], "weight": [0.5]}, kind=kind, resume=None))[0] for value in grid["sharpen"]
    ]
    assert whole == pytest.approx(alone, rel=1e-9)
    assert len(set(whole)) > 1
    search({"sharpen": [50.0], "weight": [0.5]}, kind=kind)
    resumed = scores(search(grid, kind=kind))
    assert resumed == pytest.approx(whole, rel=1e-9)
    assert scores(search({"weight": [0.5]}, model=quick(sharpen=50.0), kind=kind)) == resumed[2:]


def test_losses_of_ours_are_told_apart(search):
    grid = {"discrepancy": [ma.MMDLoss(beta=beta) for beta in (0.1, 10.0)], "weight": [20.0]}
    first = scores(search(grid))
    assert scores(search(grid)) == first == scores(search(grid, resume=None))
    assert len(read_points(ma.MANNClassifier(), grid, seed=0)) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shift": 0.1}, "belongs to another run: data is"),
        ({"random_state": 1}, "belongs to another run: .*seed is 0 there and 1 here"),
        ({"share": 0.7}, "belongs to another run: share is 0.8 there and 0.7 here"),
        ({"kind": LabelFreeSearch}, "belongs to another run: rule is missing there"),
    ],
)
def test_the_journal_of_another_search_is_refused(search, change, message):
    search({"weight": [0.5]})
    with pytest.raises(InvalidInputError, match=message):
        search({"weight": [0.5]}, **change)

"""What both searches promise: scikit-learn's checks, refusals, target labels that stay unread, and journals."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import sklearn
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

import momentalign as ma
from momentalign import CMDLoss, MANNClassifier
from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.journal import Journal
from momentalign.selection.base import Sample, _digest
from momentalign.selection.grid import read_points
from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch

KINDS = [ReverseValidationSearch, LabelFreeSearch]

# The checks know no target: the rows they give serve as one.
CHECKS = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
from momentalign import MANNClassifier
from momentalign.selection.search import LabelFreeSearch
from momentalign.selection.search import ReverseValidationSearch

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


def test_values_of_the_grid_are_not_changed(quick, problem):
    hidden = [4]
    ReverseValidationSearch(quick(), {"hidden": [hidden]}, random_state=0).fit(*problem[:3])
    assert hidden == [4]


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


def test_activations_of_the_best_model_follow_a_fit(quick, problem):
    search = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=0)
    hidden = search.fit_transform(problem.X, problem.y, problem.X_target)
    assert (hidden == search.best_estimator_.transform(problem.X)).all()


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


def labels_that(touched):
    """A class whose objects call `touched` whatever is done with them."""

    def method(name):
        def touch(self, *arguments):
            return touched(name)

        return touch

    return type("Label", (), {name: method(name) for name in TOUCHES})


def explode(name):
    raise AssertionError(f"{name} of a target label was called")


SEARCHES = {
    "reverse": lambda model: ReverseValidationSearch(model, {"weight": [0.5, 20.0]}, random_state=0),
    **{
        rule: lambda model, rule=rule: LabelFreeSearch(model, {"weight": [0.5, 20.0]}, rule=rule, random_state=0)
        for rule in ("importance-weighted", "mutual-information", "balancing", "source")
    },
    "aggregate": lambda model: LabelFreeSearch(model, {"weight": [0.5, 20.0]}, aggregate=True, random_state=0),
}


@pytest.fixture
def mixed(problem):
    """Both domains as one X, source labels as strings, and where the target is."""
    domain = np.random.default_rng(5).permutation(np.repeat([1, -2], [120, 90]))
    X, y = np.empty((210, 3)), np.empty(210, dtype=object)
    X[domain > 0], X[domain < 0] = problem.X, problem.X_target
    y[domain > 0] = np.array(["no", "yes"], dtype=object)[problem.y]
    return X, y, domain


def poisoned(mixed, label):
    _, y, domain = mixed
    y = y.copy()
    for index in np.flatnonzero(domain < 0):
        y[index] = label
    return y


@pytest.mark.parametrize("search", SEARCHES)
def test_labels_that_explode_when_touched_stay_whole(quick, problem, mixed, search):
    X, _, domain = mixed
    by_ids = SEARCHES[search](quick()).fit(X, poisoned(mixed, labels_that(explode)()), sample_domain=domain)
    names = np.array(["no", "yes"], dtype=object)[problem.y]
    apart = SEARCHES[search](quick()).fit(problem.X, names, problem.X_target)
    assert by_ids.cv_results_["mean_test_score"].tolist() == apart.cv_results_["mean_test_score"].tolist()
    np.testing.assert_array_equal(by_ids.predict_proba(X), apart.predict_proba(X))
    assert by_ids.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("search", SEARCHES)
def test_labels_that_count_are_touched_zero_times(quick, mixed, search):
    X, _, domain = mixed
    counted = []
    SEARCHES[search](quick()).fit(X, poisoned(mixed, labels_that(counted.append)()), sample_domain=domain)
    assert counted == []


@pytest.mark.parametrize("name", TOUCHES[:15])
def test_the_poison_works(name):
    with pytest.raises(AssertionError, match="of a target label was called"):
        getattr(labels_that(explode)(), name)(None)


@pytest.mark.parametrize("kind", [float, int])
def test_numbers_in_their_place_change_no_bit(quick, mixed, kind):
    X, y, domain = mixed
    found = []
    for seed in range(2):
        labels = np.where(domain > 0, (y == "yes").astype(kind), np.random.default_rng(seed).integers(0, 9, 210))
        search = SEARCHES["reverse"](quick()).fit(X, labels.astype(kind), sample_domain=domain)
        found.append((search.cv_results_["mean_test_score"].tolist(), search.predict_proba(X).tobytes()))
    assert found[0] == found[1]


def test_there_is_no_argument_for_them(quick, problem):
    for search in SEARCHES.values():
        with pytest.raises(TypeError, match="y_target"):
            search(quick()).fit(problem.X, problem.y, problem.X_target, y_target=problem.y_target)


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


def scores(found):
    return found.cv_results_["mean_test_score"].tolist()


@pytest.mark.parametrize("kind", [ReverseValidationSearch, LabelFreeSearch])
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


SAMPLE = Sample(np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 1, 0]), np.ones((2, 2), np.float32), 2, 0)


@pytest.mark.parametrize(
    ("changes", "beginning"),
    [
        ({}, "01f1241802607c96"),
        ({"source": csr_matrix(SAMPLE.source), "target": csr_matrix(SAMPLE.target)}, "26548cd37a11e872"),
        ({"source_domains": np.array([0, 1, 1])}, "8432b92d27d60252"),
    ],
)
def test_the_digest_of_data_is_the_same_in_every_version(changes, beginning):
    """A search that an earlier version began goes on."""
    assert _digest(SAMPLE._replace(**changes)).startswith(beginning)


def test_the_bar_begins_with_what_is_finished(search, capfd):
    found = search({"weight": [0.5, 20.0]})
    search({"weight": [0.5, 20.0]}, verbose=1)
    shown = capfd.readouterr().err
    assert "2/2" in shown
    assert f"best score {found.best_score_:.4f}" in shown


def test_a_grid_may_grow_and_what_changes_no_score_may_change(search, quick, tmp_path):
    small = search({"weight": [0.5, 20.0]})
    before = lines(tmp_path / "deep" / "search.jsonl")
    large = search({"weight": np.array([20.0, 3.0, 0.5])}, model=quick(verbose=0, validation_fraction=0.1), n_jobs=2)
    assert scores(large)[::2] == scores(small)[::-1]
    assert lines(tmp_path / "deep" / "search.jsonl")[:-1] == before


@pytest.mark.parametrize("kind", [ReverseValidationSearch, LabelFreeSearch])
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


def test_sparse_rows_have_a_digest_too(quick, problem, tmp_path):
    def fit(X):
        found = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=0, resume=tmp_path / "s", refit=False)
        return found.fit(csr_matrix(X), problem.y, csr_matrix(problem.X_target))

    assert scores(fit(problem.X)) == scores(fit(problem.X))
    with pytest.raises(InvalidInputError, match="data is"):
        fit(problem.X[::-1])

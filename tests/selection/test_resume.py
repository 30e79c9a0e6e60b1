"""A killed search goes on where it stopped and ends with the same numbers."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.journal import Journal
from momentalign.selection.base import Sample, _digest
from momentalign.selection.grid import read_points
from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch

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


def test_points_are_named_by_plain_values(quick):
    loss = ma.MMDLoss(beta=0.5)
    model = quick(weight=np.float32(0.5), domain_weights=np.array([1, 2]), discrepancy=loss)
    (point,) = read_points(model, {"n_moments": [np.int64(3)]}, seed=0)
    cell = json.loads(json.dumps(point.cell()))
    assert (cell["weight"], cell["n_moments"], cell["domain_weights"]) == (0.5, 3, [1.0, 2.0])
    assert cell["discrepancy"] == repr(loss)


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

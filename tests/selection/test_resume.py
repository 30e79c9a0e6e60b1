"""A killed search goes on where it stopped and ends with the same numbers."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.journal import Journal
from momentalign.selection.grid import read_points
from momentalign.selection.label_free import LabelFreeSearch
from momentalign.selection.search import ReverseValidationSearch

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


def test_a_grid_may_grow_and_what_changes_no_score_may_change(search, quick, tmp_path):
    small = search({"weight": [0.5, 20.0]})
    before = lines(tmp_path / "deep" / "search.jsonl")
    large = search({"weight": np.array([20.0, 3.0, 0.5])}, model=quick(verbose=0, validation_fraction=0.1), n_jobs=2)
    assert scores(large)[::2] == scores(small)[::-1]
    assert lines(tmp_path / "deep" / "search.jsonl")[:-1] == before


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


def test_a_distance_without_a_name_cannot_be_resumed(search):
    with pytest.raises(InvalidTypeError, match=r"resume cannot tell discrepancy=<function .* or resume=None"):
        search({"discrepancy": [lambda source, target: (source - target).sum()]})


@pytest.mark.parametrize(
    ("options", "word"), [({"aggregate": True}, "aggregate=True"), ({"rule": "balancing"}, "rule='balancing'")]
)
def test_what_needs_all_networks_cannot_be_resumed(search, options, word):
    with pytest.raises(InvalidInputError, match=f"{word} needs all networks at once, and resume keeps scores only"):
        search({"weight": [0.5]}, kind=LabelFreeSearch, **options)


def test_sparse_rows_have_a_digest_too(quick, problem, tmp_path):
    from scipy import sparse

    def fit(X):
        found = ReverseValidationSearch(quick(), {"weight": [1.0]}, random_state=0, resume=tmp_path / "s", refit=False)
        return found.fit(sparse.csr_matrix(X), problem.y, sparse.csr_matrix(problem.X_target))

    assert scores(fit(problem.X)) == scores(fit(problem.X))
    with pytest.raises(InvalidInputError, match="data is"):
        fit(problem.X[::-1])

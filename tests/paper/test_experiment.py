"""Every cell is computed once, over processes and machines, and the same whoever computes it."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from momentalign.errors import InvalidInputError
from momentalign.journal import Journal, cell_key
from momentalign.paper.experiment import cells_alike, check_names, run_cells

CELLS = [{"size": size, "seed": seed} for size in (3, 40) for seed in range(3)]

# A run as a program of its own: processes and machines find its functions by the name of its file.
PROGRAM = """
import json, os, sys, time
from contextlib import nullcontext
import joblib
import numpy as np
import torch
from threadpoolctl import threadpool_info
from momentalign.journal import Journal
from momentalign.paper.experiment import run_cells

def compute(cells):
    return [compute_one(cell) for cell in cells]

def compute_one(cell):
    rng = np.random.default_rng(cell["seed"])
    samples = rng.random((200, cell["size"])).astype(np.float32)
    time.sleep(cell.get("seconds", 0))
    inner = joblib.Parallel(n_jobs=2, prefer="threads")(joblib.delayed(os.getpid)() for _ in range(3))
    with open(cell["log"], "a") as log:
        log.write(f"{os.getpid()} {inner == [os.getpid()] * 3} {threads()}\\n")
    return {"trace": float(np.trace(np.linalg.inv(samples.T @ samples))), "mean": float(torch.tensor(samples).mean())}

def threads():
    return max([torch.get_num_threads(), *(library["num_threads"] for library in threadpool_info())])

def cluster():
    from distributed import Client, LocalCluster
    return Client(LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None))

if __name__ == "__main__":
    path, jobs, cells = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    show = lambda finished, total: print(finished, total, flush=True)
    with (cluster() if jobs == "dask" else nullcontext()):
        with (joblib.parallel_config(backend="dask") if jobs == "dask" else nullcontext()):
            journal = Journal(path, {"what": "test"})
            results = run_cells(cells, compute, journal, n_jobs=1 if jobs == "dask" else int(jobs), progress=show)
    print(json.dumps(results))
"""


def square(cells):
    if any(cell["x"] == 13 for cell in cells):
        raise ArithmeticError("an unlucky number")
    return [{"y": cell["x"] ** 2} for cell in cells]


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "cells.jsonl", {"what": "test"})


@pytest.fixture
def start(tmp_path):
    """Start the program in a session of its own, with four threads to lose."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")

    def begin(journal, jobs, cells):
        log = str(journal.with_suffix(".log"))
        words = [str(journal), str(jobs), json.dumps([{**cell, "log": log} for cell in cells])]
        return subprocess.Popen(
            [sys.executable, "program.py", *words],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return begin


def finish(program):
    """The results without the log's name in their keys, and what was said on the way."""
    output, errors = program.communicate(timeout=120)
    assert program.returncode == 0, errors
    *progress, results = output.splitlines()
    plain = {}
    for key, result in json.loads(results).items():
        cell = json.loads(key)
        del cell["log"]
        plain[cell_key(cell)] = result
    return plain, [tuple(map(int, line.split())) for line in progress]


def test_results_come_in_the_order_of_the_cells_and_are_kept(journal):
    cells = [{"x": x} for x in (3, 1, 2, 1)]
    results = run_cells(cells, square, journal)
    assert list(results.items()) == [('{"x":3}', {"y": 9}), ('{"x":1}', {"y": 1}), ('{"x":2}', {"y": 4})]
    assert journal.done() == results


def test_finished_cells_are_not_computed_again(journal):
    for x in (99, 13):
        journal.append({"x": x}, {"y": "from before"})
    seen = []
    results = run_cells([{"x": 2}, {"x": 13}], square, journal, progress=lambda *counts: seen.append(counts))
    assert list(results.items()) == [('{"x":2}', {"y": 4}), ('{"x":13}', {"y": "from before"})]
    assert seen == [(1, 2), (2, 2)]
    assert run_cells([{"x": 13}], square, journal) == {'{"x":13}': {"y": "from before"}}


def test_a_failure_names_its_cell_and_keeps_what_was_finished(journal):
    with pytest.raises(ArithmeticError, match="an unlucky number") as caught:
        run_cells([{"x": 1}, {"x": 13}, {"x": 2}], square, journal)
    assert caught.value.__notes__ == ['This happened in the cell {"x":13}.']
    assert journal.done() == {'{"x":1}': {"y": 1}}


def test_processes_and_machines_give_the_same_numbers_each_with_one_thread(start, tmp_path):
    results, workers = {}, {}
    for jobs in (1, 2, "dask"):
        program = start(tmp_path / f"{jobs}.jsonl", jobs, CELLS)
        results[jobs], progress = finish(program)
        assert progress == [(finished, len(CELLS)) for finished in range(len(CELLS) + 1)]
        lines = [line.split() for line in (tmp_path / f"{jobs}.log").read_text(encoding="utf-8").splitlines()]
        assert len(lines) == len(CELLS)
        assert {tuple(line[1:]) for line in lines} == {("True", "1")}
        workers[jobs] = {int(line[0]) for line in lines} - {program.pid}
    assert results[1] == results[2] == results["dask"]
    assert list(results[1]) == [cell_key(cell) for cell in CELLS]
    assert {jobs: len(pids) for jobs, pids in workers.items()} == {1: 0, 2: 2, "dask": 2}


def test_an_interrupted_run_keeps_what_was_finished_and_goes_on(start, tmp_path):
    path, cells = tmp_path / "cells.jsonl", [{"size": 3, "seed": seed, "seconds": 0.3} for seed in range(10)]
    program = start(path, 2, cells)
    for line in program.stdout:
        if line == "2 10\n":
            break
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does on ^C: to the run and to its processes
    started = time.perf_counter()
    _, errors = program.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert time.perf_counter() - started < 15
    kept = Journal(path, {"what": "test"}).done()
    assert 2 <= len(kept) < 10
    resumed, progress = finish(start(path, 1, cells))
    assert progress[0] == (len(kept), 10)
    compute = runpy.run_path(str(tmp_path / "program.py"))["compute"]
    logged = [{**cell, "seconds": 0, "log": str(tmp_path / "log")} for cell in cells]
    undisturbed = run_cells(logged, compute, Journal(tmp_path / "undisturbed.jsonl", {}))
    assert list(resumed.values()) == list(undisturbed.values())


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_groups_are_computed_as_one_and_kept_cell_by_cell(journal, n_jobs):
    cells, by_parity = [{"x": x} for x in (1, 2, 3, 4)], partial(cells_alike, key=lambda cell: cell["x"] % 2)
    journal.append(cells[1], {"y": -4})
    seen = []
    results = run_cells(
        cells, square, journal, group=by_parity, n_jobs=n_jobs, progress=lambda *counts: seen.append(counts)
    )
    assert results == {cell_key(cell): {"y": cell["x"] ** 2} for cell in cells} | {cell_key(cells[1]): {"y": -4}}
    assert list(results) == [cell_key(cell) for cell in cells]
    assert seen in ([(1, 4), (3, 4), (4, 4)], [(1, 4), (2, 4), (4, 4)])


def test_names_are_read_once_and_unknown_ones_and_none_at_all_are_refused():
    assert check_names(" cmd,nn,,cmd", ["nn", "cmd", "mmd"], "method") == ["cmd", "nn"]
    with pytest.raises(InvalidInputError, match="method 'magic' is not known; choose among nn, cmd"):
        check_names("nn,magic", ["nn", "cmd"], "method")
    with pytest.raises(InvalidInputError, match="no task is named; choose among nn, cmd"):
        check_names(" ,", ["nn", "cmd"], "task")

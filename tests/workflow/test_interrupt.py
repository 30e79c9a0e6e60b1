"""A promise of fit and predict: ^C leaves the best model so far, or nothing at all, never something half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from momentalign.errors import DivergedError
from momentalign.estimators import several
from momentalign.tables.table import Table
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig
from momentalign.workflow.fit import FitResult, fit_tables
from momentalign.workflow.grid import grid_points, train_again, train_points
from momentalign.workflow.model import load_model
from momentalign.workflow.predict import predict_file

FIT = """
import sys
from momentalign.workflow.fit import fit_files

def show(done, every):
    print(done, every, flush=True)

result = fit_files(*sys.argv[1:4:2], label="grape", id_column="bottle", out=sys.argv[2], max_epochs=int(sys.argv[4]),
                   device="cpu", progress=show)
print("interrupted" if result.interrupted else "finished", flush=True)
print(result.summary["verdict"], flush=True)
"""


@pytest.fixture
def process(files: tuple[Path, Path], cellars: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path):
    """Start a fit of many rows in a process of its own; ended with the test."""
    started: list[subprocess.Popen] = []
    pd.concat([cellars[0]] * 60).to_csv(files[0], index=False)

    def start(epochs: int, **variables: str) -> subprocess.Popen:
        command = [sys.executable, "-c", FIT, files[0], tmp_path / "model", files[1], str(epochs)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


def read_until(process: subprocess.Popen, wanted: Callable[[int, int], bool]) -> None:
    for line in process.stdout:
        done, _, every = line.partition(" ")
        if wanted(int(done), int(every)):
            return
    raise AssertionError(process.stderr.read())


def test_an_interrupt_keeps_the_networks_that_were_finished(process: Callable, tmp_path: Path):
    running = process(60)
    read_until(running, lambda done, _: done >= 130)
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert "interrupted" in out.splitlines()
    assert "Training was interrupted" in out.splitlines()[-1]
    model = load_model(tmp_path / "model")
    assert 1 <= len(model.estimator.networks_) <= 4


def test_an_interrupt_before_any_network_leaves_nothing(process: Callable, tmp_path: Path):
    running = process(100_000)
    read_until(running, lambda done, _: done >= 3)
    begun = time.perf_counter()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert time.perf_counter() - begun < 20
    assert running.returncode not in (0, None)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert not (tmp_path / "model").exists()


def test_an_interrupt_is_heard_while_loops_are_compiled(process: Callable, tmp_path: Path):
    """That takes most of a minute, once on a machine; the cache of a new one is empty."""
    running = process(100_000, NUMBA_CACHE_DIR=str(tmp_path / "loops"))
    assert "compiling the training loops" in running.stderr.readline()
    time.sleep(1.0)
    begun = time.perf_counter()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=120)
    assert time.perf_counter() - begun < 10
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "compiling" not in errors
    assert not (tmp_path / "model").exists()


def task() -> Task:
    random = np.random.default_rng(0)
    rows = random.normal(size=(400, 5)).astype(np.float32)
    codes = (rows[:, 0] > 0).astype(np.intp)
    return Task(rows[:300], codes[:300], rows + 1, 2, rows[300:], codes[300:])


RECIPE = TrainingConfig(hidden=(4,), max_epochs=30, patience=None, compiled=True)


def test_an_interrupt_while_training_again_keeps_the_first_networks():
    points = grid_points("cmd", seeds=1)[:2]
    networks, interrupted = train_points(points, task(), RECIPE, device="cpu")
    assert set(networks) == set(points)
    assert not interrupted

    pressed: list[int] = []

    def press(done: int, every: int) -> None:
        if not pressed:
            pressed.append(done)
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)

    again, interrupted = train_again(networks, task(), RECIPE, device="cpu", progress=press)
    assert interrupted
    assert all(again[point] is networks[point] for point in points)


def test_progress_ends_where_the_networks_stopped():
    seen: list[tuple[int, int]] = []
    impatient = replace(RECIPE, patience=2, max_epochs=5000, optimizer=Optimizer("adam", 0.1))
    train_points(
        grid_points("cmd", seeds=1), task(), impatient, device="cpu", progress=lambda *counts: seen.append(counts)
    )
    assert seen[0][1] == 25_000
    assert seen[-1][0] == seen[-1][1] < 25_000


def test_networks_trained_together_are_those_trained_alone(monkeypatch: pytest.MonkeyPatch):
    points, used = grid_points("cmd", seeds=1), []
    real = several.train_stack

    def on_cpu(task: Task, config: TrainingConfig, specs: list[NetworkSpec], *, device: str, progress: Callable):
        used.append((device, len(specs)))
        return real(task, config, specs, device="cpu", progress=progress)

    alone, _ = train_points(points, task(), RECIPE, device="cpu")
    monkeypatch.setattr(several, "train_stack", on_cpu)
    together, _ = train_points(points, task(), RECIPE, device="cuda")
    assert used == [("cuda", 5)]
    for point in points:
        for one, other in zip(alone[point].layers, together[point].layers, strict=True):
            np.testing.assert_array_equal(one.weight, other.weight)


def test_the_error_of_one_network_ends_all():
    wild = replace(RECIPE, optimizer=Optimizer("sgd", 1e30))
    with pytest.raises(DivergedError, match="training diverged"):
        train_points(grid_points("cmd", seeds=1), task(), wild, device="cpu")


def test_an_interrupt_of_the_last_kind_leaves_a_plain_model(
    tables: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
):
    import momentalign.workflow.fit as fitting

    real = fitting.train_points

    def cut(points, *rest, **options):
        return real([point for point in points if not point.weight], *rest, **options)[0], True

    monkeypatch.setattr(fitting, "train_points", cut)
    result = fit_tables(*tables, max_epochs=5, device="cpu")
    assert result.interrupted
    assert [row["name"] for row in result.summary["rows"]] == ["plain network", "the only network"]


def test_an_interrupt_without_the_plain_network(tables: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch):
    import momentalign.workflow.fit as fitting

    real = fitting.train_points

    def cut(points, *rest, **options):
        return real([point for point in points if point.weight == 1.0], *rest, **options)[0], True

    monkeypatch.setattr(fitting, "train_points", cut)
    summary = fit_tables(*tables, max_epochs=5, device="cpu").summary
    assert summary["distance"]["before"] is None
    assert summary["rows"][0]["distance_before"] is None


def test_an_interrupted_prediction_leaves_nothing(fitted: FitResult, files: tuple[Path, Path], tmp_path: Path):
    def press(rows: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "p.csv").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        predict_file(fitted.model, files[1], out=tmp_path / "p.csv", chunk_rows=10, progress=press)
    assert (tmp_path / "p.csv").read_text() == "old"
    assert not list(tmp_path.glob(".p*"))

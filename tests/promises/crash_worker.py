"""Kills real runs at random moments: ``python crash_worker.py FOLDER KILLS KIND...`` prints what it saw as JSON.

Everything is imported once. Each run is a process of its own, forked off in a folder, so that it can really be killed.
A killed run is started again in its folder, to be killed again or to end; what it leaves there then must be what a run
that nobody disturbed leaves. Of the page and the results of a fit the seconds it took are left out.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import torch

from momentalign import MANNClassifier, ReverseValidationSearch
from momentalign.cli import main
from momentalign.workflow.model import load_model

torch.set_num_threads(1)


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), np.arange(120) % 2
    X[:, 0] += 2.0 * y
    return X, y, X[:100] + np.array([1.0, 0.0, 0.0])


def search() -> None:
    X, y, target = problem()
    model = MANNClassifier((5,), optimizer="adam", learning_rate=0.1, max_epochs=30, patience=None, batch_size=30)
    grid = {"weight": [0.0, 0.1, 1.0, 10.0, 100.0, 1000.0]}
    found = ReverseValidationSearch(model, grid, random_state=0, resume="search.jsonl").fit(X, y, target)
    found.best_estimator_.save("model")


def reproduce() -> None:
    call("reproduce", "sentiment", "--methods", "nn", "--seeds", "1", "--jobs", "1", "--no-open")


def fit() -> None:
    X, y, target = problem()
    for name, rows in (("source", X), ("target", target)):
        lines = [",".join(f"{value:.4f}" for value in row) for row in rows]
        if name == "source":
            lines = [f"{line},{'yes' if label else 'no'}" for line, label in zip(lines, y, strict=True)]
        Path(f"{name}.csv").write_text("\n".join(["a,b,c,label" if name == "source" else "a,b,c", *lines]) + "\n")
    call("fit", "source.csv", "target.csv", "--label", "label", "--max-epochs", "60", "--out", "model", "--no-open")


def call(*arguments: str) -> None:
    sys.argv = ["momentalign", *arguments]
    main()


KINDS = {"search": search, "reproduce": reproduce, "fit": fit}


def start(kind: str, folder: Path) -> int:
    """Fork a run that works in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.chdir(folder)
        with (folder.parent / f"{folder.name}.log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        KINDS[kind]()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed(kind: str, folder: Path, delay: float) -> bool:
    """Start a run and kill it after some seconds; whether it was still running."""
    pid, deadline = start(kind, folder), time.monotonic() + delay
    while time.monotonic() < deadline and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    code = wait(pid)
    assert code in (0, -signal.SIGKILL), (folder.parent / f"{folder.name}.log").read_text()
    return code != 0


def finish(kind: str, folder: Path) -> None:
    code = wait(start(kind, folder))
    assert code == 0, (folder.parent / f"{folder.name}.log").read_text()


def content(folder: Path) -> dict[str, str]:
    """Digests of all files, hidden ones too."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(_timeless(file)).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def _timeless(file: Path) -> bytes:
    whole = file.read_bytes()
    return re.sub(rb"[0-9.]+ seconds", b"", whole) if file.name == "report.html" else whole


def look_at_what_a_kill_left(kind: str, folder: Path) -> None:
    """A model is there whole or not at all."""
    if kind == "fit" and (folder / "model" / "manifest.json").exists():
        load_model(folder / "model")


def disturb(kind: str, work: Path, kills: int) -> dict[str, object]:
    finish(kind, work / "again")
    began = time.monotonic()
    finish(kind, work / "undisturbed")
    seconds = time.monotonic() - began
    expected, count, number = content(work / "undisturbed"), 0, 0
    different = sorted({*content(work / "again").items()} ^ {*expected.items()})
    while count < kills:
        folder = work / f"disturbed{number}"
        if killed(kind, folder, random.uniform(0, seconds)):  # noqa: S311
            count += 1
            look_at_what_a_kill_left(kind, folder)
            if count < kills:
                continue
        finish(kind, folder)
        found = content(folder)
        different += sorted({*found.items()} ^ {*expected.items()})
        number += 1
    return {"kills": count, "files": sorted(expected), "different": different}


if __name__ == "__main__":
    folder, kill_count, *chosen = sys.argv[1:]
    random.seed(os.urandom(8))
    with tempfile.TemporaryDirectory() as first, contextlib.chdir(first):
        search()  # Every fork has the loops that are compiled here.
    results = {name: disturb(name, Path(folder) / name, int(kill_count)) for name in chosen}
    sys.stdout.write(json.dumps(results))

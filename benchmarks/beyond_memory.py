"""Training on more rows than memory is meant for: 5,000,000 x 100 from .npy files in less than 3 GB.

``python -m benchmarks.beyond_memory`` writes 2 GB of source and 0.4 GB of target to a temporary folder, trains two
epochs of 50 units on them in fresh processes, plain and with CMD, and prints the most memory each of them held
(``ru_maxrss``, with all libraries); ``--rows 200000`` is done in seconds, with the same bars.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from benchmarks.figure import Figure

ROWS, COLUMNS, EPOCHS = 5_000_000, 100, 2
# Rows that are made, and later predicted, at a time.
PART = 100_000
# Columns that carry the class, and how many of them are moved in the target.
TELLING, SHIFTED = 10, 3


def figures(rows: int = ROWS) -> Iterator[Figure]:
    """Yield memory and seconds of both trainings, and what alignment gains on the target."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder, "source", rows, shift=0.0, seed=0)
        write_rows(folder, "target", max(rows // 5, PART), shift=2.0, seed=1)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**30
        yield Figure("beyond_memory", f"{rows} x {COLUMNS}, GB of data", size)
        accuracy = {}
        for method in ("plain", "cmd"):
            memory, found = run_apart(folder, method)
            accuracy[method] = found["accuracy"]
            yield Figure("beyond_memory", f"{method}, GB at peak", memory, at_most=3.0)
            yield Figure("beyond_memory", f"{method}, seconds of {EPOCHS} epochs", found["seconds"])
        yield Figure("beyond_memory", "plain, accuracy on the target", accuracy["plain"])
        yield Figure("beyond_memory", "cmd, accuracy on the target", accuracy["cmd"])


def write_rows(folder: Path, name: str, rows: int, *, shift: float, seed: int) -> None:
    """Write rows and labels part by part."""
    random = np.random.default_rng(seed)
    with (folder / f"{name}_X.npy").open("wb") as X, (folder / f"{name}_y.npy").open("wb") as y:
        # No map: what this process holds when it starts another is counted as memory of that one.
        _write_header(X, np.float32, (rows, COLUMNS))
        _write_header(y, np.int8, (rows,))
        for start in range(0, rows, PART):
            values = random.standard_normal((min(PART, rows - start), COLUMNS), dtype=np.float32)
            labels = values[:, :TELLING].sum(axis=1) + random.normal(size=len(values)) > 0
            values[:, :SHIFTED] += shift
            values.tofile(X)
            labels.astype(np.int8).tofile(y)


def _write_header(file: IO[bytes], dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    head = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head)
    file.flush()


def run_apart(folder: Path, method: str) -> tuple[float, dict[str, float]]:
    """Train in a process of its own; return the most memory it held, in GB, and what it found."""
    command = [sys.executable, "-m", "benchmarks.beyond_memory", "--train", str(folder), method]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdout is not None  # noqa: S101
    answer = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"training {method} failed")
    return used.ru_maxrss / 2**20, json.loads(answer)


def train(folder: Path, method: str) -> dict[str, float]:
    """Train on the files and return seconds and accuracy on the target."""
    from momentalign.estimators.classifier import MANNClassifier
    from momentalign.tables.chunks import NpyChunks

    model = MANNClassifier(
        discrepancy=None if method == "plain" else method, max_epochs=EPOCHS, device="cpu", random_state=0
    )
    source = NpyChunks(folder / "source_X.npy", folder / "source_y.npy")
    target = None if method == "plain" else NpyChunks(folder / "target_X.npy")
    began = time.perf_counter()
    model.fit_chunks(source, target)
    seconds = time.perf_counter() - began
    X, y = next(iter(NpyChunks(folder / "target_X.npy", folder / "target_y.npy", rows=PART)))
    return {"seconds": seconds, "accuracy": float(model.score(X, y))}


def main() -> int:
    """Print the figures; exit 1 if one misses its bar."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--train", nargs=2, metavar=("FOLDER", "METHOD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        print(json.dumps(train(Path(options.train[0]), options.train[1])))
        return 0
    failed = 0
    for figure in figures(options.rows):
        print(figure.line(), flush=True)
        failed += not figure.passed
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

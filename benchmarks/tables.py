"""From files to predictions at size: ``fit``, ``diagnose`` and ``predict`` as commands on 50 columns of numbers.

Bars for two cores: fit on 100,000 + 100,000 rows in two minutes and 2 GB, diagnose on the same in 30 s, predict 200,000
rows a second from Parquet (1,000,000 rows; what the command needs for no row at all is taken off).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.figure import Figure

ROWS, COLUMNS, MANY = 100_000, 50, 1_000_000


def figures() -> Iterator[Figure]:
    """Yield seconds, memory and rows a second."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, shift, seed in (("source.csv", 0.0, 0), ("target.csv", 1.0, 1)):
            _rows(ROWS, shift, seed).to_csv(folder / file, index=False)
        _rows(MANY, 1.0, 2).to_parquet(folder / "many.parquet")
        _rows(10, 1.0, 2).to_parquet(folder / "few.parquet")
        seconds, memory = _run("fit", "source.csv", "target.csv", "--label", "y", "--out", "model", folder=folder)
        yield Figure("tables", "fit, seconds", seconds, at_most=120.0)
        yield Figure("tables", "fit, GB", memory, at_most=2.0)
        seconds, _ = _run("diagnose", "source.csv", "target.csv", "--label", "y", folder=folder)
        yield Figure("tables", "diagnose, seconds", seconds, at_most=30.0)
        few, many = (
            min(_run("predict", "model", f"{name}.parquet", "--out", "p.parquet", folder=folder)[0] for _ in range(3))
            for name in ("few", "many")
        )
        yield Figure("tables", "predict, rows a second", MANY / (many - few), at_least=200_000.0)


def _rows(count: int, shift: float, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    values = random.normal(size=(count, COLUMNS)).astype(np.float32)
    label = np.where(values[:, :10].sum(axis=1) + random.normal(size=count) > 0, "yes", "no")
    values[:, :10] += shift * np.linspace(0, 1, 10, dtype=np.float32)
    return pd.DataFrame(values, columns=[f"x{column}" for column in range(COLUMNS)]).assign(y=label)


def _run(*arguments: str, folder: Path) -> tuple[float, float]:
    """Run a command; return its seconds and the most memory it held, in GB."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "momentalign", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)  # noqa: S603
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"momentalign {' '.join(arguments)} failed")
    return time.perf_counter() - began, used.ru_maxrss / 2**20

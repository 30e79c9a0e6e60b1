"""``python -m benchmarks.peers``: every library in turns, a table of medians, and the figures with their bars.

Options are --repeats N, --only NAME (may be given several times) and --out FILE. Each run is a process of its own on
one thread. The first turn is not counted: it fills the disk cache of every library and ours with compiled code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.__main__ import BESIDE
from benchmarks.figure import Figure
from benchmarks.peers.environments import FOLDER, PACKAGES, make_ready, python_of
from benchmarks.peers.task import write_task

Row: TypeAlias = tuple[str, str]
Measured: TypeAlias = dict[Row, list[dict[str, Any]]]

OURS = "momentalign"
ROWS: tuple[Row, ...] = (
    (OURS, "csr"),
    (OURS, "dense"),
    ("torch", "csr"),
    ("torch", "dense"),
    ("skada", "dense"),
    ("adapt", "dense"),
    ("pytorch_adapt", "dense"),
)
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
    ),
    "1",
)  # fmt: skip
NOTE = """
Medians of {repeats} runs, each a process on one thread, in turns; a first turn, not counted, fills the caches of
compiled code. "First fit" is the first in its process, "step" the second fit over its steps, peak memory is read
before anything is predicted. pytorch_adapt imports a torchvision without compiled operators and uses nothing of it.
"""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep; 1 if a figure misses its bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="counted turns (default 5)")
    parser.add_argument("--only", action="append", choices=sorted({name for name, _ in ROWS}), metavar="NAME")
    parser.add_argument("--out", type=Path, help="keep every run as JSON")
    options = parser.parse_args(arguments)
    rows = [row for row in ROWS if not options.only or row[0] in options.only]
    measured = measure_in_turns(rows, repeats=options.repeats)
    print(table(measured), NOTE.format(repeats=options.repeats), sep="\n", flush=True)
    found = list(figures(measured))
    for figure in found:
        print(figure.line(), flush=True)
    if options.out:
        runs = [run for row in rows for run in measured[row]]
        kept = {**machine(), "figures": [json.loads(figure.line()) for figure in found], "runs": runs}
        options.out.write_text(json.dumps(kept, indent=1) + "\n")
    return int(not all(figure.passed for figure in found))


def measure_in_turns(rows: Sequence[Row], *, repeats: int) -> Measured:
    """Run every row once a turn, each turn with a seed of its own; the first turn is not counted."""
    for name in dict.fromkeys(name for name, _ in rows):
        make_ready(name)
    if BESIDE.is_dir():
        os.environ.setdefault("MOMENTALIGN_DATA", str(BESIDE))
    FOLDER.mkdir(exist_ok=True)
    task = FOLDER / "task.npz"
    write_task(task)
    measured: Measured = {row: [] for row in rows}
    for turn in range(repeats + 1):
        for row in rows:
            run = measure(row, task, seed=turn)
            print(json.dumps({"turn": turn, **run}), file=sys.stderr, flush=True)
            if turn:
                measured[row].append(run)
    return measured


def measure(row: Row, task: Path, *, seed: int) -> dict[str, Any]:
    """Run one library in a process of its own, on one thread."""
    name, form = row
    command = [str(python_of(name)), "-m", "benchmarks.peers.measure", name, form, str(task), str(seed)]
    environment = {**os.environ, **ONE_THREAD, **QUIET}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{name} on {form} rows failed:\n{done.stderr}")
    run: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return run


def table(measured: Measured) -> str:
    """Medians side by side, in Markdown; a step is taken from the second fit in a process."""
    lines = [
        "| library | input | step, ms | lowest to highest | first fit, s | import, s | peak, MB | steps | accuracy |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, form), runs in measured.items():
        steps = [run["step_ms"] for run in runs]
        lines.append(
            f"| {name} | {form} | {median(runs, 'step_ms'):.3g} | {min(steps):.3g} to {max(steps):.3g} "
            f"| {median(runs, 'fit_s'):.3g} | {median(runs, 'import_s'):.3g} | {median(runs, 'peak_mb'):.0f} "
            f"| {median(runs, 'steps'):.0f} | {100 * median(runs, 'accuracy'):.2f} % |"
        )
    return "\n".join(lines)


def figures(measured: Measured) -> Iterator[Figure]:
    """Yield how much faster we are than the fastest peer, and how our accuracy stands beside the best peer's."""
    peers = {row: runs for row, runs in measured.items() if row[0] != OURS}
    on_dense = {row: runs for row, runs in peers.items() if row[1] == "dense"}
    for form, words, bar in (("csr", "sparse rows in", 15.0), ("dense", "dense array in", 4.0)):
        if (OURS, form) not in measured or not peers:
            continue
        ours = measured[OURS, form]
        step = median(ours, "step_ms")
        yield Figure("peers", f"fastest peer's step over ours, {words}", fastest(peers) / step, at_least=bar)
        if on_dense:
            yield Figure(
                "peers", f"fastest step of a peer on dense arrays over ours, {words}", fastest(on_dense) / step
            )
        best = max(median(runs, "accuracy") for runs in peers.values())
        points = 100 * (median(ours, "accuracy") - best)
        yield Figure("peers", f"target accuracy less the best peer's, points, {words}", points, at_least=-1.0)


def fastest(measured: Measured) -> float:
    """The least median time of a step."""
    return min(median(runs, "step_ms") for runs in measured.values())


def median(runs: Sequence[dict[str, Any]], what: str) -> float:
    """The median of one measurement."""
    return float(statistics.median(run[what] for run in runs))


def machine() -> dict[str, Any]:
    """What was measured, and on what."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    ours = {package: version(package) for package in (OURS, "torch", "numba", "numpy", "scipy", "scikit-learn")}
    pins = {
        name: [package for call in calls for package in call if "==" in package] for name, calls in PACKAGES.items()
    }
    return {
        "cpu": models[0].partition(": ")[2] if models else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "command": " ".join(["python -m benchmarks.peers", *sys.argv[1:]]),
        "versions": {OURS: [f"{package}=={number}" for package, number in ours.items()], **pins},
    }


if __name__ == "__main__":
    sys.exit(main())

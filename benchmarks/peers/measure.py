"""``python -m benchmarks.peers.measure NAME FORM FILE SEED``: one library in this process; prints one JSON line.

Two fits: the first as a user of a fresh process feels it, with whatever is loaded or traced on first use; the time of
a step is taken from the second. Peak memory is read after the fits, before anything is predicted.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from pathlib import Path


def measure(name: str, form: str, path: Path, seed: int) -> dict[str, str | float]:
    """Import the library, train twice on dense arrays or CSR matrices, and test on the target."""
    began = time.perf_counter()
    train = importlib.import_module(f"benchmarks.peers.with_{name}").train
    import_seconds = time.perf_counter() - began

    from benchmarks.peers.task import read_task

    task = read_task(path)
    source, target = (rows.toarray() if form == "dense" else rows for rows in (task.source, task.target))
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        steps, predict = train(source, task.labels, target, seed)
        seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    test = task.test.toarray() if form == "dense" else task.test
    return {
        "name": name,
        "form": form,
        "seed": seed,
        "import_s": import_seconds,
        "fit_s": seconds[0],
        "steps": steps,
        "step_ms": 1e3 * seconds[1] / steps,
        "peak_mb": peak,
        "accuracy": float((predict(test) == task.test_labels).mean()),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))))

"""Methods of skada with their defaults on the 47 classification tasks of ``benchmarks.shifts``.

    python -m benchmarks.skada_shifts --data DIR [--families gas,heart] [--minutes 5] [--out FILE.json]

Run it in an environment of its own, in which ``skada`` is installed beside this package. CORAL, linear optimal
transport and subspace alignment stand before the logistic regression of ``benchmarks.shifts``, after all columns have
been standardised by the source. They take dense rows only, so the reviews are dense copies. Each fit has some minutes
of one core; where a method needs more on one task of a family, it is left out for the whole family. What stands in
FILE is not run again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from skada import CORAL, LinearOTMapping, SubspaceAlignment
from sklearn.linear_model import LogisticRegression

from benchmarks.shift_tasks import FAMILIES, ShiftTask, data_folder, tasks
from benchmarks.shifts import scaled

METHODS = {
    "CORAL": lambda classifier, components: CORAL(classifier),  # noqa: ARG005
    "linear optimal transport": lambda classifier, components: LinearOTMapping(classifier),  # noqa: ARG005
    # All components, as by default; where a domain has fewer rows than columns, skada's own number of them fails.
    "subspace alignment": lambda classifier, components: SubspaceAlignment(classifier, n_components=components),
}


def accuracy(task: ShiftTask, method: str) -> float:
    """Accuracy in percent on the target rows that measure."""
    source, unlabelled, measured = (_dense(rows) for rows in scaled(task, own=False))
    classes, codes = np.unique(task.y, return_inverse=True)
    X = np.concatenate([source, unlabelled])
    y = np.concatenate([codes, np.full(len(unlabelled), -1)])
    domain = np.repeat([1, -2], [len(source), len(unlabelled)])
    model = METHODS[method](LogisticRegression(max_iter=300), min(*source.shape, len(unlabelled)))
    model.fit(X, y, sample_domain=domain)
    found = model.predict(measured, sample_domain=np.full(len(measured), -2))
    return float(100.0 * (classes[found] == task.y_target[task.evaluation]).mean())


def _dense(rows: Any) -> NDArray[np.float64]:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, dtype=np.float64)


def within(minutes: float, task: ShiftTask, method: str) -> float | None:
    """The accuracy, or None where a process of its own has not found it in so many minutes of one core."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_send, args=(sender, minutes, task, method))
    process.start()
    sender.close()
    try:
        return float(receiver.recv())
    except EOFError:
        process.join()
        if process.exitcode != -24:  # SIGXCPU
            raise RuntimeError(f"{method} failed on {task.name}") from None
        return None


def _send(sender: Any, minutes: float, task: ShiftTask, method: str) -> None:
    warnings.simplefilter("ignore")
    spent = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent + 60 * minutes), resource.RLIM_INFINITY))
    sender.send(accuracy(task, method))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skada_shifts", description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--minutes", type=float, default=5.0, help="of one core, for one method on one task")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)  # noqa: S607
    result: dict[str, Any] = {
        "command": "python -m benchmarks.skada_shifts " + " ".join(arguments or sys.argv[1:]),
        "commit": commit.stdout.strip(),
        "machine": f"{platform.machine()}, {platform.python_version()}, one core",
        "versions": {name: version(name) for name in ("skada", "pot", "scikit-learn", "numpy")},
        "left_out": {method: [] for method in METHODS},
        "tasks": {},
    }
    if options.out and options.out.exists():
        earlier = json.loads(options.out.read_text())
        result |= {part: earlier[part] for part in ("left_out", "tasks")}
    for task in tasks(data_folder(options.data), families=tuple(options.families.split(","))):
        row = result["tasks"].setdefault(task.name, {})
        for method in METHODS:
            if method in row or task.family in result["left_out"][method]:
                continue
            found = within(options.minutes, task, method)
            if found is None:
                result["left_out"][method].append(task.family)
            else:
                row[method] = found
            if options.out:
                options.out.write_text(json.dumps(result, indent=1) + "\n")
        values = (f"{method} {row[method]:.1f}" if method in row else f"{method} left out" for method in METHODS)
        print(task.name.ljust(18), ", ".join(values), flush=True)
    for method in METHODS:
        found = [row[method] for row in result["tasks"].values() if method in row]
        print(f"{method}: {np.mean(found):.1f} on {len(found)} tasks, left out: {result['left_out'][method]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Other settings on the twelve review tasks, beside those of Table 2: ``python -m benchmarks.review_settings``.

Prints the figures docs/paper.md quotes for CORAL and MMD with single weights, and for DANN with a weight chosen by
reverse validation: mean target accuracy in percent, one seed. Nothing is kept.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.__main__ import BESIDE
from momentalign.journal import Journal, cell_key
from momentalign.paper.sentiment import TASKS, compute_all, identity

SETTINGS: dict[str, dict[str, Any]] = {
    **{f"CORAL, weight {weight:g}": {"method": "coral", "weight": weight} for weight in (1.0, 1e1, 1e2, 1e3, 1e4, 1e5)},
    "MMD, weight 9, beta 1.2": {"method": "mmd", "weight": 9.0, "beta": 1.2},
}
DANN_WEIGHTS = np.geomspace(0.01, 1.0, 9).tolist()


def main() -> None:
    """Print one line per setting."""
    if BESIDE.is_dir():
        os.environ.setdefault("MOMENTALIGN_DATA", str(BESIDE))
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "cells.jsonl", identity("settings"))
        for name, setting in SETTINGS.items():
            print(f"{name}: {_mean([{**setting, **_task(task)} for task in TASKS], journal):.1f}", flush=True)
        questions = [{"method": "dann", "weights": DANN_WEIGHTS, **_task(task)} for task in TASKS]
        scores = compute_all(questions, journal, folder=None, n_jobs=-1)
        best = [DANN_WEIGHTS[int(np.argmax(scores[cell_key(cell)]["scores"]))] for cell in questions]
        chosen = [{"method": "dann", "weight": w, **_task(task)} for w, task in zip(best, TASKS, strict=True)]
        print(f"DANN, weight by reverse validation: {_mean(chosen, journal):.1f}")


def _task(task: tuple[str, str]) -> dict[str, Any]:
    return {"source": task[0], "target": task[1], "seeds": [0]}


def _mean(cells: list[dict[str, Any]], journal: Journal) -> float:
    results = compute_all(cells, journal, folder=None, n_jobs=-1)
    return 100 * float(np.mean([result["accuracy"] for result in results.values()]))


if __name__ == "__main__":
    main()

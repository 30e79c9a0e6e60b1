"""How our setting of the artificial example is chosen: candidates, their label-free scores, then their accuracies.

Run ``python -m benchmarks.choose_artificial``; it prints the table of docs/paper.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from momentalign.paper.artificial import OURS, PAPER, run
from momentalign.paper.problems import load_artificial

CANDIDATES = (
    PAPER,
    replace(PAPER, name="Adadelta, 2,000 epochs", aligned_epochs=2000),
    replace(OURS, name="Adam 0.001, weight 1, 2,000 epochs", aligned_optimizer="adam", aligned_learning_rate=0.001,
            weight=1.0, aligned_epochs=2000),
    replace(OURS, name="SGD 0.01, weight 1, 2,000 epochs", aligned_learning_rate=0.01, weight=1.0, aligned_epochs=2000),
    replace(OURS, name="SGD 0.003, weight 3, 100 epochs", aligned_epochs=100),
    OURS,
    replace(OURS, name="SGD 0.003, weight 3, 1,000 epochs", aligned_epochs=1000),
    replace(OURS, name="SGD 0.003, weight 3, 2,000 epochs", aligned_epochs=2000),
)  # fmt: skip


def main() -> None:
    """Print the table, best label-free score first."""
    rows = []
    for setting in CANDIDATES:
        result = run(load_artificial(), setting, seeds=range(20), data="authors")
        score = 100 * np.mean([figures["mann_score"] for figures in result["runs"]])
        accuracies = [100 * figures["mann_accuracy"] for figures in result["runs"]]
        rows.append((score, setting.name, np.median(accuracies), min(accuracies), max(accuracies)))
    print("| setting | label-free score (%) | target accuracy: median | lowest | highest |")
    print("|---|---|---|---|---|")
    for score, name, median, low, high in sorted(rows):
        print(f"| {name} | {score:.2f} | {median:.1f} | {low:.1f} | {high:.1f} |")


if __name__ == "__main__":
    main()

"""What the kept runs on objects say: ``python -m benchmarks.kept_objects``.

Prints, from benchmarks/results/objects.json, what docs/paper.md quotes of Table 4: mean accuracies over 5 seeds, and
average ranks of the command's methods, of all and of some. Nothing is trained.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from momentalign.experiments.tables import average_ranks

KEPT = Path(__file__).parent / "results" / "objects.json"
BALANCED = "cv-cmd, classes balanced"  # what the command did before its CV-CMD followed the target's classes


def main() -> None:
    """Print a line for every method, then the ranks."""
    kept = json.loads(KEPT.read_text())
    runs = kept["five_seeds"]["accuracy"] | kept["five_seeds_following"]["accuracy"]
    means = {method: [float(np.mean(runs[method][task])) for task in runs["nn"]] for method in runs}
    for method, values in means.items():
        print(method, *(f"{100 * value:.1f}" for value in [*values, float(np.mean(values))]))
    for ranked in ([name for name in means if name != BALANCED], ["nn", "coral", "mmd", "cv-cmd"]):
        ranks = average_ranks({name: means[name] for name in ranked})
        print("ranks:", ", ".join(f"{name} {rank:.2f}" for name, rank in ranks.items()))


if __name__ == "__main__":
    main()

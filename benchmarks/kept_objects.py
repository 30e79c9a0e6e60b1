"""What the kept runs on objects say: ``python -m benchmarks.kept_objects``.

Prints, from benchmarks/results/objects.json, what docs/paper.md quotes of Table 4: mean accuracies over 5 seeds, and
average ranks with classes balanced, with classes as found in the target, as the command has it, and with each method
in the way that suits it better. Nothing is trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from momentalign.paper.tables import average_ranks

KEPT = Path(__file__).parent / "results" / "objects.json"
BALANCED = "cv-cmd, classes balanced"  # what the command did before its CV-CMD followed the target's classes
FOUR = ("nn", "coral", "mmd", "cv-cmd")
Means = dict[str, list[float]]


def main() -> None:
    """Print a line for every method, then the ranks."""
    kept = json.loads(KEPT.read_text())
    balanced, following = (_means(kept[name]["accuracy"]) for name in ("five_seeds", "five_seeds_all_following"))
    balanced["cv-cmd"] = balanced.pop(BALANCED)
    command = balanced | {"cv-cmd": _means(kept["five_seeds_following"]["accuracy"])["cv-cmd"]}
    readings = {
        "balanced": balanced,
        "following": {"nn": balanced["nn"]} | following,
        "as the command has it": command,
        "each as suits it better": balanced
        | {
            name: max(balanced[name], values, key=lambda means: float(np.mean(means)))
            for name, values in following.items()
        },
    }
    for method, tasks in kept["one_seed_crops"]["accuracy"].items():
        print(f"one seed, crops and mirrors: {method} {100 * float(np.mean(list(tasks.values()))):.1f}")
    for title, means in readings.items():
        for method, values in means.items():
            print(f"{title}: {method}", *(f"{100 * value:.1f}" for value in [*values, float(np.mean(values))]))
        for ranked in (list(means), list(FOUR)):
            ranks = average_ranks({name: means[name] for name in ranked})
            print(f"{title}: ranks:", ", ".join(f"{name} {rank:.2f}" for name, rank in ranks.items()))


def _means(accuracy: Mapping[str, Mapping[str, list[float]]]) -> Means:
    return {method: [float(np.mean(values)) for values in tasks.values()] for method, tasks in accuracy.items()}


if __name__ == "__main__":
    main()

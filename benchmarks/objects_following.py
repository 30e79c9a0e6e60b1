"""Objects when every method follows the target's classes: ``python -m benchmarks.objects_following --data DIR``.

The command's CV-CMD gives every class, from some update on, the share that the head finds in the target; the other
methods keep classes balanced. Here all that align follow, so that they are compared on equal terms. Prints one JSON
line per method: accuracies by task, every seed.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from joblib import Parallel, delayed

from momentalign.paper.object_heads import HeadTask, ObjectFeatures, open_features, train_heads
from momentalign.paper.objects import FOLLOWING, METHODS, N_CLASSES, TASKS, distance_of
from momentalign.training.config import NetworkSpec

ALIGNING = ("mmd", "coral", "dann", "fp-cmd", "cv-cmd")


def main() -> None:
    """Train the heads of every task as one stack, and print what each method reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", default=".cache")
    parser.add_argument("--methods", nargs="+", default=list(ALIGNING), choices=ALIGNING)
    given = parser.parse_args()
    features = open_features(given.data, cache=given.cache, device=given.device)
    cells = [(method, seed) for method in given.methods for seed in range(given.seeds)]
    work = (delayed(accuracies)(features, *task, cells, given.device) for task in TASKS)
    of_task: list[Any] = Parallel(n_jobs=given.jobs)(work)
    for method in given.methods:
        own = [index for index, cell in enumerate(cells) if cell[0] == method]
        figures = {"->".join(task): [found[index] for index in own] for task, found in zip(TASKS, of_task, strict=True)}
        print(json.dumps({"method": method, "follow_at": FOLLOWING.follow_at, "accuracy": figures}), flush=True)


def accuracies(
    features: ObjectFeatures, source: str, target: str, cells: list[tuple[str, int]], device: str
) -> list[float]:
    """Train one head for every method and seed, and return the part of the target each gets right."""
    rows, labels = features.office.domain(source)
    others, truth = features.office.domain(target)
    members = [NetworkSpec(seed, METHODS[method].weight, distance_of(method)) for method, seed in cells]
    heads = train_heads(HeadTask(rows, labels, others, N_CLASSES), members, FOLLOWING, device=device)
    return [round(float((head.predictions == truth).mean()), 4) for head in heads]


if __name__ == "__main__":
    main()

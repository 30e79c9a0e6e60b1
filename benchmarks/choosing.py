"""Which rule picks the weight best without target labels: the twelve review tasks, log(1 + count) features.

``python -m benchmarks.choosing [SEEDS]`` prints the table of docs/choosing.md: the target accuracy of the network each
rule picks, as trained with held-out rows and trained again on all rows, and how far it is from the oracle.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import torch
from joblib import Parallel, delayed

from benchmarks.__main__ import BESIDE
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.estimators.combination import aggregation_coefficients
from momentalign.estimators.domains import joined_task
from momentalign.evaluation.scores import importance_weights
from momentalign.networks.shallow import Layer, probabilities
from momentalign.paper.sentiment import TASKS, ReviewTask, config_of, load_task
from momentalign.selection.reverse import reverse_scores
from momentalign.selection.rules import Rule, balanced_weight, density_ratio, network_score
from momentalign.training.config import NetworkSpec, Task
from momentalign.training.stack import train_stack

WEIGHTS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
Accuracies = Mapping[str, tuple[float, float]]


def one_task(source: str, target: str, seed: int) -> tuple[list[float], list[float], Accuracies]:
    """Accuracies of all weights, first and refitted, and those of each rule's pick."""
    torch.set_num_threads(1)
    found = load_task(source, target, features="log")
    recipe = replace(config_of(50), snapshot_every=1)
    members = [NetworkSpec(seed, weight, CMDLoss()) for weight in WEIGHTS]
    networks = train_stack(found.task, recipe, members)
    best = [int(np.argmin(network.history.validation_loss)) + 1 for network in networks]
    first = [network.snapshots[epoch] for network, epoch in zip(networks, best, strict=True)]
    whole = joined_task(found.task)
    limits = [replace(recipe, max_epochs=epoch, patience=None, keep="last") for epoch in best]
    again = [train_stack(whole, limit, [member])[0].layers for limit, member in zip(limits, members, strict=True)]
    accuracies = [found.accuracy(layers) for layers in first], [found.accuracy(layers) for layers in again]
    picks = {rule: _pick(rule, first, found.task) for rule in get_args(Rule)}
    backwards = list(reverse_scores(whole, config_of(50), members, seed=seed))
    picks["reverse validation"] = int(np.argmax(backwards))
    rules = {rule: (accuracies[0][pick], accuracies[1][pick]) for rule, pick in picks.items()}
    for name, chosen in (("all weights", range(6)), ("weights from 0.3 on", range(2, 6))):
        rules |= _combined(name, [first[i] for i in chosen], [again[i] for i in chosen], found)
    return *accuracies, rules


def _pick(rule: Rule, networks: Sequence[Sequence[Layer]], task: Task) -> int:
    if rule == "balancing":
        return balanced_weight(networks, task)
    return int(np.argmax([network_score(rule, layers, task) for layers in networks]))


def _combined(name: str, first: list[list[Layer]], again: list[list[Layer]], found: ReviewTask) -> Accuracies:
    """Aggregation by importance-weighted least squares, and the plain average."""
    task = found.task
    coefficients = aggregation_coefficients(
        target=np.stack([probabilities(layers, task.target) for layers in first]).astype(float),
        source=np.stack([probabilities(layers, task.validation) for layers in first]).astype(float),
        labels=np.asarray(task.validation_labels),
        weights=importance_weights(ratio=density_ratio(first[-3], task)),
    )
    mean = np.full(len(first), 1.0 / len(first))
    return {
        f"{words}, {name}": (_accuracy(c, first, found), _accuracy(c, again, found))
        for words, c in (("aggregation", coefficients), ("average", mean))
    }


def _accuracy(coefficients: np.ndarray, networks: list[list[Layer]], found: ReviewTask) -> float:
    chances = sum(c * probabilities(layers, found.test) for c, layers in zip(coefficients, networks, strict=True))
    return float((np.asarray(chances).argmax(1) == found.test_labels).mean())


def main(seeds: int) -> None:
    """Print the table, best first."""
    if BESIDE.is_dir():
        os.environ.setdefault("MOMENTALIGN_DATA", str(BESIDE))
    every = Parallel(n_jobs=-1)(delayed(one_task)(*task.split("->"), seed) for task in TASKS for seed in range(seeds))
    rows = {name: np.mean([rules[name] for *_, rules in every], axis=0) for name in every[0][2]}
    rows |= {
        f"weight {weight:g} for all": np.mean([[first[i], again[i]] for first, again, _ in every], axis=0)
        for i, weight in enumerate(WEIGHTS)
    }
    oracle = np.mean([[max(first), max(again)] for first, again, _ in every], axis=0)
    rows["oracle (looks at target labels)"] = oracle
    print(f"Mean of {len(TASKS)} tasks and {seeds} seeds, in percent.\n")
    print("| rule | accuracy | from the oracle | trained again on all rows | from the oracle |")
    print("|---|---|---|---|---|")
    for name, (first, again) in sorted(rows.items(), key=lambda row: -row[1][1]):
        gaps = 100 * (first - oracle[0]), 100 * (again - oracle[1])
        print(f"| {name} | {100 * first:.1f} | {gaps[0]:+.1f} | {100 * again:.1f} | {gaps[1]:+.1f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)

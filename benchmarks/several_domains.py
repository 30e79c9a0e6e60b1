"""Three review categories to the fourth: several sources against one, and against all of them taken as one.

``python -m benchmarks.several_domains [SEEDS] [--out FILE]`` prints JSON lines and exits 1 if a bar is missed: how the
cost of the distance grows with the number of domains, and target accuracies under the protocol of the sentiment
experiment (counts of 5,000 words, 2,000 labelled reviews of each source, weight 1 everywhere). Target labels are for
testing; the single source that a figure is compared with is the best one by these labels, the strongest opponent.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from benchmarks.__main__ import BESIDE
from benchmarks.figure import Figure, interleaved
from benchmarks.growth import exponent
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.several_domains import MultiDomainCMDLoss
from momentalign.estimators.classifier import MANNClassifier
from momentalign.paper.problems import CATEGORIES
from momentalign.paper.sentiment import ReviewTask, config_of, load_task, starts
from momentalign.training.config import NetworkSpec, Task
from momentalign.training.stack import train_stack

DOMAINS = (2, 4, 8, 16)
ROWS, WIDTH = 1000, 50
WAYS = ("pooled", "pairs", "barycentre")
WEIGHTS = ("equal", "size", "similarity")
DEFAULT = "{between}, {domain_weights}".format(**MANNClassifier().get_params())
PLAIN, AS_ONE = "sources as one, plain network", "sources as one, CMD"

Accuracies = dict[str, dict[str, list[float]]]
"""Of each target and method, one for each seed."""


def figures(accuracies: Accuracies | None = None) -> Iterator[Figure]:
    """Yield the exponents, and what the default of the estimators reaches on the reviews."""
    for way in WAYS:
        title = f"{way}, exponent in domains, {DOMAINS[0]} to {DOMAINS[-1]} of {ROWS} x {WIDTH}"
        yield Figure("several_domains", title, growth(way), at_most=1.15)
    every = measure(range(5)) if accuracies is None else accuracies
    ours = {target: 100 * float(np.mean(own[DEFAULT])) for target, own in every.items()}
    single = {target: 100 * float(max(map(np.mean, _single(own).values()))) for target, own in every.items()}
    yield Figure(
        "several_domains",
        f"targets of 4 where three sources ({DEFAULT}) beat the best single source",
        sum(ours[target] > single[target] for target in every),
        at_least=3,
    )
    for opponent in (PLAIN, AS_ONE):
        gain = np.mean([ours[target] - 100 * np.mean(own[opponent]) for target, own in every.items()])
        bar = 1.0 if opponent == PLAIN else -0.5
        yield Figure("several_domains", f"points above: {opponent}", float(gain), at_least=bar)


def growth(between: str) -> float:
    """Exponent of the time of one forward and backward pass in the number of domains, half of them sources."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps = {str(count): _step(between, count) for count in DOMAINS}
        return exponent(DOMAINS, list(interleaved(steps, repeats=21).values()))
    finally:
        torch.set_num_threads(threads)


def _step(between: str, count: int) -> Any:
    random = torch.Generator().manual_seed(count)
    samples = [torch.rand(ROWS, WIDTH, generator=random).pow(1 + d / count).requires_grad_() for d in range(count)]
    loss = MultiDomainCMDLoss(between=between)  # type: ignore[arg-type]
    return lambda: torch.autograd.grad(loss(samples[: count // 2], samples[count // 2 :]), samples)


def measure(seeds: Sequence[int]) -> Accuracies:
    """Train everything and return target accuracies."""
    return {target: _one_target(target, seeds) for target in CATEGORIES}


def _one_target(target: str, seeds: Sequence[int]) -> dict[str, list[float]]:
    single = {source: load_task(source, target) for source in CATEGORIES if source != target}
    several = joined(list(single.values()))
    as_one = replace(several, task=replace(several.task, source_domains=None))
    found = {f"{source} alone, CMD": _accuracies(task, seeds, {"weight": 1.0}) for source, task in single.items()}
    found[PLAIN] = _accuracies(as_one, seeds, {"weight": 0.0})
    found[AS_ONE] = _accuracies(as_one, seeds, {"weight": 1.0})
    for between, weights in product(WAYS, WEIGHTS):
        settings = {"weight": 1.0, "between": between, "domain_weights": weights}
        found[f"{between}, {weights}"] = _accuracies(several, seeds, settings)
    return found


def joined(tasks: Sequence[ReviewTask]) -> ReviewTask:
    """Several tasks to one target as one task with several sources, their rows mixed."""
    parts = [task.task for task in tasks]
    order, held_out = (
        np.random.default_rng(seed).permutation(sum(counts))
        for seed, counts in enumerate(zip(*((len(t.labels), len(t.validation_labels)) for t in parts), strict=True))
    )
    numbers = np.repeat(np.arange(len(parts)), [len(part.labels) for part in parts])
    return replace(
        tasks[0],
        task=Task(
            sparse.vstack([part.source for part in parts], format="csr")[order],
            np.concatenate([part.labels for part in parts])[order],
            parts[0].target,
            2,
            sparse.vstack([part.validation for part in parts], format="csr")[held_out],
            np.concatenate([part.validation_labels for part in parts])[held_out],
            source_domains=numbers[order],
        ),
    )


def _accuracies(found: ReviewTask, seeds: Sequence[int], settings: Mapping[str, Any]) -> list[float]:
    recipe = config_of(50)
    (begun,) = starts([replace(found.task, source_domains=None)], recipe, seeds, device="cpu")
    members = [
        NetworkSpec(seed, distance=CMDLoss(), initial=start, **settings)
        for seed, start in zip(seeds, begun, strict=True)
    ]
    return [found.accuracy(network.layers) for network in train_stack(found.task, recipe, members)]


def _single(own: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {method: values for method, values in own.items() if method.endswith("alone, CMD")}


def _result(accuracies: Accuracies, lines: Sequence[Figure], seeds: int) -> dict[str, Any]:
    methods = [method for method in accuracies[CATEGORIES[0]] if not method.endswith("alone, CMD")]
    means = {
        method: {target: round(100 * float(np.mean(own[method])), 2) for target, own in accuracies.items()}
        for method in methods
    }
    means["best single source, by target labels"] = {
        target: round(100 * max(float(np.mean(values)) for values in _single(own).values()), 2)
        for target, own in accuracies.items()
    }
    return {
        "machine": f"{os.cpu_count()} cores",
        "python": platform.python_version(),
        "command": f"python -m benchmarks.several_domains {seeds} --out benchmarks/results/several_domains.json",
        "seeds": seeds,
        "percent": {
            method: {**own, "mean": round(float(np.mean(list(own.values()))), 2)} for method, own in means.items()
        },
        "figures": [json.loads(line.line()) for line in lines],
        "accuracy": accuracies,
    }


def main(arguments: Sequence[str]) -> int:
    """Print every figure as a JSON line; return 1 if one misses its bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.several_domains")
    parser.add_argument("seeds", type=int, nargs="?", default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    if BESIDE.is_dir():
        os.environ.setdefault("MOMENTALIGN_DATA", str(BESIDE))
    accuracies = measure(range(chosen.seeds))
    lines = []
    for line in figures(accuracies):
        print(line.line(), flush=True)
        lines.append(line)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(_result(accuracies, lines, chosen.seeds), indent=1) + "\n", encoding="utf-8")
    return int(not all(line.passed for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

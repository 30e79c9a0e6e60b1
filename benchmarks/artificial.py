"""The artificial example (Section 6.2): accuracies on the authors' data and on generated data, in percent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.figure import Figure
from momentalign.errors import DataNotFoundError
from momentalign.paper.artificial import OWN, PAPER, Setting, run
from momentalign.paper.problems import Problem, load_artificial, make_artificial

SEEDS = 20


def figures() -> Iterator[Figure]:
    """Yield the medians over 20 seeds, and the gap on the generated data over 10."""
    try:
        problem = load_artificial()
    except DataNotFoundError as error:
        raise SystemExit(f"benchmarks: {error}") from None
    nn, mann, score = medians(problem, PAPER, SEEDS)
    yield Figure("artificial", "NN, paper's protocol, median target accuracy", nn, at_least=86.0, at_most=90.0)
    yield Figure("artificial", "MANN, paper's protocol, median target accuracy", mann, at_least=94.0)
    _, own, own_score = medians(problem, OWN, SEEDS)
    yield Figure("artificial", "MANN, own setting, median target accuracy", own, at_least=98.0)
    yield Figure("artificial", "label-free score, own over the paper's", own_score / score, at_most=1.0)
    nn, mann, _ = medians(make_artificial(0), PAPER, 10)
    yield Figure("artificial", "generated data, NN, median target accuracy", nn, at_most=92.0)
    yield Figure("artificial", "generated data, MANN minus NN, points", mann - nn, at_least=6.0)


def medians(problem: Problem, setting: Setting, seeds: int) -> tuple[float, float, float]:
    """Return median NN and MANN target accuracy in percent, and the mean label-free score of the MANN."""
    result = run(problem, setting, seeds=range(seeds), data="benchmark")
    score = float(np.mean([figures["mann_score"] for figures in result["runs"]]))
    return 100 * result["median"]["nn_accuracy"], 100 * result["median"]["mann_accuracy"], score

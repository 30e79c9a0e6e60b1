"""Are flagged rows wrong more often? ``python -m benchmarks.risky_rows --data DIR [--families heart,gas]``.

The robust default on the development tasks: of each target the fifth that ``momentalign predict --risk`` flags, and the
others. Prints the accuracy of both, pooled over the rows of each family and of all; exit 1 where flagged rows of all
families are not at least 15 points less accurate. At most 3,000 rows of a target measure. Every score of a row that is
at hand is printed beside the one that flags: agreement of the members, and distance to the source.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import momentalign as ma
from benchmarks.figure import Figure
from benchmarks.shift_tasks import FAMILIES, ShiftTask, data_folder, tasks
from momentalign.moments.streaming import Moments
from momentalign.workflow.risk import ask, distances, risk_cut, risk_scores

MOST, FLAGGED = 3_000, 0.2


def flags(task: ShiftTask) -> tuple[Any, dict[str, Any]]:
    """Return which rows that measure are right, and which of them each score flags."""
    warnings.simplefilter("ignore")
    model = ma.AutoClassifier(random_state=0, n_jobs=-1).fit(task.source, task.y, task.unlabelled)
    rows, truth = task.target[task.evaluation][:MOST], task.y_target[task.evaluation][:MOST]
    answers = ask(model, rows)
    distance = distances(rows, Moments.of(task.source), Moments.of(task.unlabelled))
    risk = risk_scores(answers, distance)
    beside = {"agreement": 1.0 - answers.agreement, "distance": distance}
    found = {"risk": risk > risk_cut(risk)} | {name: _riskiest(scores) for name, scores in beside.items()}
    return answers.predicted == truth, found


def _riskiest(scores: Any) -> Any:
    """The fifth with the largest scores, ties in the order of the rows."""
    flagged = np.zeros(len(scores), bool)
    flagged[np.argsort(-scores, kind="stable")[: int(FLAGGED * len(scores))]] = True
    return flagged


def figures(data: Path | None = None, families: tuple[str, ...] = FAMILIES) -> Iterator[Figure]:
    """Yield how many points more accurate the other rows are, by family and over all."""
    everything = []
    for family in families:
        found = [flags(task) for task in tasks(data_folder(data), families=(family,))]
        yield from _pooled(family, found)
        everything += found
    yield from _pooled("all", everything, at_least=15.0)


def _pooled(name: str, found: list[tuple[Any, dict[str, Any]]], at_least: float | None = None) -> Iterator[Figure]:
    right = np.concatenate([part for part, _ in found])
    for score in found[0][1]:
        flagged = np.concatenate([part[score] for _, part in found])
        points = 100.0 * float(right[~flagged].mean() - right[flagged].mean())
        yield Figure("risky rows", f"{name}, {score}, points", points, at_least if score == "risk" else None)


def main(arguments: list[str] | None = None) -> int:
    """Print every figure as a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--families", default=",".join(FAMILIES))
    options = parser.parse_args(arguments)
    failed = False
    for figure in figures(options.data, tuple(options.families.split(","))):
        print(figure.line(), flush=True)
        failed |= not figure.passed
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

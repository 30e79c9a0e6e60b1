"""``ma.estimate_accuracy`` on the 47 development tasks: ``python -m benchmarks.target_accuracy --data DIR``.

Three models on source-scaled inputs, trained on 60 % of the source rows; the others are what the estimate is given.
Prints error, bias, coverage and width of the 90 % interval in percentage points, per family and over all, and those of
raw confidence beside them; exit 1 where a bar is missed. About 10 minutes on one core.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import momentalign as ma
from benchmarks.figure import Figure
from benchmarks.shift_tasks import FAMILIES, ShiftTask, data_folder, tasks

HELD_OUT = 0.4
WIDE = 500  # Columns from which on models are kept small.


class Estimated(NamedTuple):
    """The estimate of one model on one task, and the truth."""

    family: str
    value: float
    low: float
    high: float
    confidence: float
    accuracy: float


def models(width: int, classes: int) -> dict[str, Any]:
    """The three learners a user would pick."""
    wide = width > WIDE
    return {
        "logistic": LogisticRegression(C=0.1 if wide else 1.0, max_iter=200),
        "forest": RandomForestClassifier(100, random_state=0),
        "boosting": HistGradientBoostingClassifier(
            max_iter=20 if width * classes > 5000 else 100,
            max_features=0.1 if wide else 1.0,
            early_stopping=False,
            random_state=0,
        ),
    }


def estimates(task: ShiftTask) -> Iterator[Estimated]:
    """Yield one estimate per model; the accuracy is that on the rows that measure."""
    train, test = train_test_split(np.arange(len(task.y)), test_size=HELD_OUT, random_state=0, stratify=task.y)
    target = task.unlabelled
    for learner in models(task.source.shape[1], len(np.unique(task.y))).values():
        model = make_pipeline(StandardScaler(), learner).fit(task.source[train], task.y[train])
        found = ma.estimate_accuracy(model, task.source[test], task.y[test], target)
        confidence = model.predict_proba(target).max(axis=1).mean()
        accuracy = model.score(task.target[task.evaluation], task.y_target[task.evaluation])
        yield Estimated(task.family, found.value, found.low, found.high, float(confidence), float(accuracy))


def figures(data: Path | None = None, families: tuple[str, ...] = FAMILIES) -> Iterator[Figure]:
    """Yield the figures of every family, then those of all of them with their bars."""
    everything: list[Estimated] = []
    for family in families:
        found = [one for task in tasks(data_folder(data), families=(family,)) for one in estimates(task)]
        yield from _summary(family, found, bars=False)
        everything += found
    yield from _summary("all", everything, bars=families == FAMILIES)


def _summary(name: str, found: list[Estimated], *, bars: bool) -> Iterator[Figure]:
    value, low, high, confidence, accuracy = (
        100 * np.array([getattr(one, field) for one in found]) for field in Estimated._fields[1:]
    )

    def figure(text: str, number: Any, **limits: float) -> Figure:
        return Figure("target accuracy", f"{name}: {text}", float(number), **(limits if bars else {}))

    yield figure("mean absolute error", abs(value - accuracy).mean(), at_most=7.5)
    yield figure("bias", (value - accuracy).mean(), at_least=-2.0, at_most=2.0)
    yield figure("right intervals", 100 * ((low <= accuracy) & (accuracy <= high)).mean(), at_least=85.0)
    yield figure("width of the interval", (high - low).mean(), at_most=25.0)
    yield Figure(
        "target accuracy", f"{name}: mean absolute error of confidence", float(abs(confidence - accuracy).mean())
    )


def main() -> int:
    """Print every figure as a JSON line; 1 if one misses its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only this one, without the bars")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    failed = 0
    for figure in figures(given.data, tuple(given.family or FAMILIES)):
        print(figure.line(), flush=True)
        failed += not figure.passed
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

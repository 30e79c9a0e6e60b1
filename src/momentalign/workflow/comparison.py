"""Known labels of the target: set apart before anything is fitted, and compared with the finished model's predictions.

They are for evaluation only. Nothing that is trained or chosen sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    precision_score,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)

from momentalign.errors import InvalidInputError
from momentalign.tables.table import Table, shown
from momentalign.workflow.risk import Answers

__all__ = ["KnownLabels", "compare", "known_labels", "known_score"]


class KnownLabels(NamedTuple):
    """The target rows that have a label, and their labels."""

    column: str
    rows: NDArray[np.intp]
    values: NDArray[Any]


def known_labels(target: Table, column: str, *, regression: bool) -> KnownLabels:
    """Return the labels of the target that are there; for regression all of them must be numbers."""
    import pandas as pd

    labels = pd.Series(target.labels)
    rows = np.flatnonzero(labels.notna())
    if not len(rows):
        raise InvalidInputError(f"target_label={column!r} is empty in every row; leave it out.")
    if not regression:
        return KnownLabels(column, rows, labels.to_numpy()[rows])
    values = np.asarray(pd.to_numeric(labels, errors="coerce"), dtype=np.float64)[rows]
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(rows[wrong.argmax()])
        raise InvalidInputError(
            f"target_label={column!r}, row {row + 1} holds {shown(labels[row])}, which is not a number; correct it or "
            "leave target_label out."
        )
    return KnownLabels(column, rows, values)


def compare(
    truth: KnownLabels, answers: Answers, classes: NDArray[Any] | None, positive: int | None = None
) -> dict[str, Any]:
    """Return how predictions compare with the labels of the target, as plain JSON.

    `positive` is the code of the class that precision and recall are of, where there are two classes.
    """
    found: dict[str, Any] = {"label": truth.column, "rows": len(truth.rows)}
    predicted = answers.predicted[truth.rows]
    if classes is None:
        varies = len(truth.rows) > 1 and bool((truth.values != truth.values[0]).any())
        return found | {
            "r2": float(r2_score(truth.values, predicted)) if varies else None,
            "error": float(root_mean_squared_error(truth.values, predicted)),
        }
    codes = _codes(classes)
    true, given = (
        np.array([codes.get(value, len(codes)) for value in part.tolist()]) for part in (truth[2], predicted)
    )
    unseen = sorted({str(value) for value in truth.values.tolist() if value not in codes})
    matrix = confusion_matrix(true, given, labels=range(len(codes) + 1))[: len(codes) + bool(unseen), : len(codes)]
    found |= {"accuracy": float((true == given).mean()), "confusion": matrix.tolist(), "unseen": unseen}
    both = positive is not None and not unseen and len(np.unique(true)) == 2
    if not both:
        return found | {"positive": None}
    measured = _of_positive(answers.values[truth.rows], true, given, positive)
    return found | {"positive": {"class": str(classes[positive]), **measured}}


def _of_positive(
    probabilities: NDArray[Any], true: NDArray[Any], given: NDArray[Any], positive: int | None
) -> Mapping[str, float]:
    """What accuracy does not show where one of two classes is rare."""
    scores, truth, named = probabilities[:, positive], true == positive, given == positive
    return {
        "roc_auc": float(roc_auc_score(truth, scores)),
        "average_precision": float(average_precision_score(truth, scores)),
        "precision": float(precision_score(truth, named, zero_division=0.0)),
        "recall": float(recall_score(truth, named)),
    }


def known_score(truth: KnownLabels | None, predicted: NDArray[Any] | None) -> float | None:
    """Return the accuracy of labels predicted for all rows of the target; None where it is not known."""
    if truth is None or predicted is None:
        return None
    return float(np.mean([own == other for own, other in zip(truth.values, predicted[truth.rows], strict=True)]))


def _codes(classes: NDArray[Any]) -> dict[Any, int]:
    # A number is itself whether a file holds it as whole or not.
    return {name: code for code, name in enumerate(classes.tolist())}

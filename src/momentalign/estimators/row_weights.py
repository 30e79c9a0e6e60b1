"""Rows that count more: a row of weight two is the row given twice.

Rows are repeated rather than losses multiplied, so that everything a network learns from is weighted alike, whatever
the distance: the loss, the moments of the source, the batches, the held-out rows and the scale of continuous targets.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_sample_weight

from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import Matrix
from momentalign.validation import check_row_values, naming

__all__ = ["RowWeights", "WeightedRows", "draw_by_weight", "row_keys"]

Rows: TypeAlias = NDArray[np.intp]
Floats: TypeAlias = NDArray[np.float64]

# Up to so many rows equal ones are looked for where no weights are given, so that repeating rows is weighing them.
FEW_ROWS = 1000
# Whole weights are repetitions, unless these are so many times the rows; other weights are drawn as so many times.
MOST_REPETITIONS, DRAWN = 10, 4


class WeightedRows(NamedTuple):
    """Rows to learn from, by their numbers, some of them repeated."""

    rows: Rows
    groups: Rows
    """Numbers from 0 on, the same for equal rows: they are held out together."""


class RowWeights(NamedTuple):
    """What was given as `sample_weight` and `class_weight`."""

    sample_weight: Any = None
    class_weight: Any = None
    in_order: bool = False
    """Whether the rows are learned from in the order they are given."""

    def draw(self, X: Matrix, labels: NDArray[Any], ids: NDArray[Any]) -> WeightedRows | None:
        """Return which labelled rows to learn from; None: all of them, once, as they stand.

        `ids` are the domains of the rows of the caller, positive ones those of the first rows here. Behind them stand
        rows of the target whose labels are known.
        """
        is_given = self.sample_weight is not None or self.class_weight is not None
        weights = self._of_rows(labels, ids > 0) if is_given else None
        if not self.in_order:
            return _merged(X, labels, weights, ids[ids > 0])
        if weights is None:
            return None
        rows = np.flatnonzero(weights)
        positive = weights[rows]
        drawn = rows[draw_by_weight(positive, _count(positive))]
        return WeightedRows(drawn, drawn)

    def _of_rows(self, labels: NDArray[Any], chosen: NDArray[np.bool_]) -> Floats:
        """One weight per labelled row; those of the target weigh as much as the others on average."""
        own = np.ones(int(chosen.sum()))
        if self.sample_weight is not None:
            own = check_row_values(self.sample_weight, "sample_weight", rows=len(chosen))[chosen]
            if not own.any():
                raise InvalidInputError("sample_weight is zero for every source row: no row is left to learn from.")
        weights = np.concatenate([own, np.full(len(labels) - len(own), own.mean())])
        if self.class_weight is not None:
            counts = weights > 0.0
            with naming("class_weight"):
                weights[counts] *= compute_sample_weight(self.class_weight, labels[counts])
            if not (np.isfinite(weights).all() and weights.min() >= 0.0 and weights.any()):
                raise InvalidInputError(
                    f"class_weight must hold finite weights of at least 0, one positive, got {self.class_weight!r:.80}."
                )
        return weights


def _merged(X: Matrix, labels: NDArray[Any], weights: Floats | None, ids: NDArray[Any]) -> WeightedRows | None:
    """Rows in an order of their own, equal ones as one whose weights are added.

    So the order of the rows, and how a weight is split among equal ones, changes nothing.
    """
    if weights is None and len(labels) > FEW_ROWS:
        return None
    rows = np.arange(len(labels)) if weights is None else np.flatnonzero(weights)
    values = labels if labels.dtype.kind in "biuf" else np.unique(labels.astype(str), return_inverse=True)[1]
    domain = np.concatenate([ids, np.zeros(len(labels) - len(ids), ids.dtype)])
    keys = row_keys(X[rows], np.column_stack([domain[rows], values[rows]]).astype(np.float64))
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if weights is None and len(first) == len(rows):
        return None
    # Own rows stay first; among each kind the order is that of the keys.
    order = np.argsort(rows[first] >= len(ids), kind="stable")
    each = np.ones(len(rows)) if weights is None else weights[rows]
    totals: Floats = np.bincount(inverse.ravel(), each).astype(np.float64)[order]
    groups = draw_by_weight(totals, _count(totals))
    return WeightedRows(rows[first][order][groups], groups)


def _count(weights: Floats) -> int:
    """How many rows to draw, so that whole weights, or whole multiples of the smallest, are repetitions."""
    for scaled in (weights / weights.min(), weights):
        total = scaled.sum()
        if total <= MOST_REPETITIONS * len(weights) and np.allclose(scaled, np.round(scaled), rtol=0.0, atol=1e-9):
            return round(float(total))
    return DRAWN * len(weights)


def draw_by_weight(weights: Floats, count: int) -> Rows:
    """Return `count` numbers of rows in order, each as often as its weight says, to within one.

    Examples
    --------
    >>> draw_by_weight(np.array([1.0, 3.0, 0.5]), 9).tolist()
    [0, 0, 1, 1, 1, 1, 1, 1, 2]
    """
    ends = np.cumsum(weights) / weights.sum()
    return np.searchsorted(ends, (np.arange(count) + 0.5) / count).clip(max=len(weights) - 1)


def row_keys(rows: Any, labels: NDArray[Any]) -> NDArray[Any]:
    """Return one key per row, the same for rows with equal features and labels; sorted they have one order."""
    if not hasattr(rows, "indptr"):
        table = np.ascontiguousarray(np.column_stack([rows, labels.astype(np.float64)]))
        return table.view([("", table.dtype)] * table.shape[1]).ravel()
    rows.sort_indices()
    labels = np.ascontiguousarray(labels)
    keys = np.empty(rows.shape[0], "u8")
    for index, (start, end) in enumerate(pairwise(rows.indptr)):
        # Not hash(), which another process begins with another seed: the order of rows would not be the same.
        key = b"".join(part.tobytes() for part in (labels[index], rows.indices[start:end], rows.data[start:end]))
        keys[index] = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
    return keys

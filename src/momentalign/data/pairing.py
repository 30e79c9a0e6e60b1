"""Paired batches of two domains of unequal size, in order, as Section 6.3 trains with them.

The longer domain ends the epoch and the shorter one starts again from its first batch.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError

__all__ = ["Rows", "balanced_order", "batches", "paired_batches"]

Rows = NDArray[np.intp]


def batches(order: Rows, batch_size: int | None) -> list[Rows]:
    """Cut rows into batches in order; a rest of less than half a batch joins the one before it.

    Moments of a handful of rows say nothing, so no batch is that small unless the sample is.

    Examples
    --------
    >>> [len(batch) for batch in batches(np.arange(1400), 300)], [len(batch) for batch in batches(np.arange(1401), 700)]
    ([300, 300, 300, 300, 200], [700, 701])
    """
    if batch_size is not None and batch_size < 1:
        raise InvalidInputError(f"batch_size must be at least 1, got {batch_size}; try batch_size=300.")
    if batch_size is None or len(order) <= batch_size:
        return [order]
    starts = list(range(0, len(order), batch_size))
    if len(order) - starts[-1] < batch_size / 2:
        starts.pop()
    return np.split(order, starts[1:])


def paired_batches(source: list[Rows], target: list[Rows]) -> list[tuple[Rows, Rows]]:
    """Pair the batches of one epoch; the shorter list starts again until the longer one ends.

    Examples
    --------
    >>> pairs = paired_batches(batches(np.arange(4), 2), batches(np.arange(6), 2))
    >>> [(s.tolist(), t.tolist()) for s, t in pairs]
    [([0, 1], [0, 1]), ([2, 3], [2, 3]), ([0, 1], [4, 5])]
    """
    if len(source) >= len(target):
        return list(zip(source, cycle(target), strict=False))
    return list(zip(cycle(source), target, strict=False))


def balanced_order(labels: NDArray[np.integer]) -> Rows:
    """Order rows so that classes alternate, smaller classes starting again until the largest ends.

    Examples
    --------
    >>> balanced_order(np.array([0, 0, 0, 1])).tolist()
    [0, 3, 1, 3, 2, 3]
    """
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    longest = max(map(len, members))
    return np.stack([np.resize(rows, longest) for rows in members], axis=1).ravel()

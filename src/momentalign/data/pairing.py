"""Paired batches of two domains of unequal size, in order, as Section 6.3 trains with them.

The longer domain ends the epoch and the shorter one starts again from its first batch. Several sources, or several
targets, all have their rows in every batch.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError

__all__ = ["Rows", "balanced_order", "batches", "domain_batches", "domain_sizes", "order_by_shares", "paired_batches"]

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


def domain_batches(domains: Rows | None, order: Rows, batch_size: int | None) -> list[Rows]:
    """Cut rows into batches that hold up to `batch_size` rows of every domain, those of domain 0 first.

    `domains` are the numbers of the domains of all rows, None where there is one. Each domain is cut by itself, so that
    its moments in a batch rest on as many rows as if it were alone; the longest ends the epoch, the others start again.

    Examples
    --------
    >>> [rows.tolist() for rows in domain_batches(np.array([0, 1, 0, 1, 0, 0]), np.arange(6), 2)]
    [[0, 2, 1, 3], [4, 5, 1, 3]]
    """
    if domains is None:
        return batches(order, batch_size)
    own = [batches(order[domains[order] == domain], batch_size) for domain in range(domains.max() + 1)]
    longest = max(map(len, own))
    return [np.concatenate([part[number % len(part)] for part in own]) for number in range(longest)]


def domain_sizes(domains: Rows | None, rows: Rows) -> list[int]:
    """Return how many rows of each domain there are among some rows, as :func:`domain_batches` orders them.

    Examples
    --------
    >>> domain_sizes(np.array([0, 1, 0, 1, 0, 0]), np.array([0, 2, 4, 1]))
    [3, 1]
    """
    return [len(rows)] if domains is None else np.bincount(domains[rows], minlength=domains.max() + 1).tolist()


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


def order_by_shares(labels: NDArray[np.integer], shares: NDArray[np.floating], count: int) -> Rows:
    """Order `count` rows so that every class has its share of them, its rows in turn.

    Labels are codes from 0 on. The shares of classes that have rows are made to sum to 1, and met as nearly as whole
    rows can.

    Examples
    --------
    >>> order_by_shares(np.array([0, 0, 0, 1]), np.array([0.75, 0.25]), 8).tolist()
    [0, 1, 2, 0, 1, 2, 3, 3]
    """
    ends = np.cumsum(np.where(np.bincount(labels, minlength=len(shares)) > 0, shares, 0.0))
    drawn = np.searchsorted(ends / ends[-1], (np.arange(count) + 0.5) / count)
    return np.concatenate(
        [np.resize(np.flatnonzero(labels == label), np.sum(drawn == label)) for label in range(len(shares))]
    )

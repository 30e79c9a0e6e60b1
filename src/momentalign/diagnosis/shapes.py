"""What a feature looks like in both samples, in a few numbers: a histogram, or the shares of its main categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.diagnosis.shares import Level

__all__ = ["BINS", "Shape", "histogram", "main_levels"]

Floats = NDArray[np.float64]

BINS = 32
LEVELS = 6
_CUT = 0.005


class Shape(NamedTuple):
    """Shares of both samples in the same bins (between `low` and `high`) or categories (`names`)."""

    source: list[float]
    target: list[float]
    low: float | None = None
    high: float | None = None
    names: list[str] | None = None


def histogram(source: Floats, target: Floats, *, bins: int = BINS) -> Shape | None:
    """Return the shares of two samples, each in increasing order, in equal bins; None where both are empty.

    The outermost half percent on either side of both samples together is left out, so that one odd value does not
    squeeze all others into one bin. Whole numbers get bins around them.

    Examples
    --------
    >>> histogram(np.array([0.0, 0.0, 1.0, 2.0]), np.array([2.0, 2.0]))
    Shape(source=[0.5, 0.25, 0.25], target=[0.0, 0.0, 1.0], low=-0.5, high=2.5, names=None)
    """
    both = np.sort(np.concatenate([source, target]))
    if not len(both):
        return None
    low, high = (float(both[round(share * (len(both) - 1))]) for share in (_CUT, 1.0 - _CUT))
    if low == high:
        low, high = float(both[0]), float(both[-1])
    whole = high - low < 1e9 and bool((both == np.floor(both)).all())
    edges = _whole_edges(low, high, bins) if whole else _edges(low, high, bins)
    shares = [_shares(sample, edges) for sample in (source, target)]
    return Shape(shares[0], shares[1], float(edges[0]), float(edges[-1]))


def main_levels(levels: Sequence[Level], *, most: int = LEVELS) -> Shape:
    """Return the shares of the most frequent categories; the others are put together at the end.

    Examples
    --------
    >>> main_levels([Level("a", 0.5, 1.0), Level("b", 0.3, 0.0), Level("c", 0.2, 0.0)], most=2).names
    ['a', '2 others']
    """
    shown = list(levels) if len(levels) <= most else list(levels[: most - 1])
    rest = levels[len(shown) :]
    if rest:
        shown.append(Level(f"{len(rest)} others", sum(level.source for level in rest), sum(one.target for one in rest)))
    return Shape(
        [_rounded(level.source) for level in shown],
        [_rounded(level.target) for level in shown],
        names=[level.name for level in shown],
    )


def _edges(low: float, high: float, bins: int) -> Floats:
    if not high > low:
        margin = abs(low) / 2 or 0.5
        low, high = low - margin, high + margin
    part = np.arange(bins + 1) / bins
    return np.asarray(low * (1.0 - part) + high * part)  # The difference of two huge numbers would overflow.


def _whole_edges(low: float, high: float, bins: int) -> Floats:
    width = math.ceil((high - low + 1) / bins)
    return np.asarray(low - 0.5 + width * np.arange(math.ceil((high - low + 1) / width) + 1))


def _shares(sample: Floats, edges: Floats) -> list[float]:
    if not len(sample):
        return [0.0] * (len(edges) - 1)
    below = np.searchsorted(sample, edges)
    below[-1] = np.searchsorted(sample, edges[-1], side="right")
    return [_rounded(share) for share in (np.diff(below) / len(sample)).tolist()]


def _rounded(share: float) -> float:
    """Keep a share short: no drawing shows more."""
    return round(share, 4)

r"""What kind of shift it is, as far as means, shares and ranges tell: other class shares, a moved copy, or far away.

All figures were chosen on the development tasks of ``benchmarks/shift_tasks.py`` and on tasks made of scikit-learn's
data, with their accuracies in view.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.evaluation.features import ks_distance

__all__ = ["EXPLAINED", "UNEXPLAINED", "is_moved_copy", "ramp", "share_outside", "unexplained_shift"]

Floats: TypeAlias = NDArray[np.float64]

# Parts of the shift of means that class shares leave unexplained: drifting sensors 0.91 and above, tumours cut at one
# of their measures and samples of other shares 0.84 and below.
EXPLAINED, UNEXPLAINED = 0.82, 0.90
# Parts of the values outside of the source's range; on the development tasks there are at most 0.012.
A_FEW_OUTSIDE, MANY_OUTSIDE = 0.1, 0.3
# A moved copy: the features moved by so many standard deviations (root mean square), shares explain little of it, and
# what is left are distances of a size that samples of one distribution have by chance.
FAR, LITTLE_EXPLAINED, BY_CHANCE = 0.7, 0.7, 1.0
# Rows that are needed to say so, columns and rows that are looked at, and values of a column that is continuous.
ENOUGH_ROWS, MOST_COLUMNS, MOST_ROWS, CONTINUOUS = 80, 50, 2_000, 20
# Mean of the Kolmogorov-Smirnov statistic of two samples of one distribution, times the root of n m / (n + m).
KS_MEAN = 0.8687


def ramp(value: float, start: float, end: float) -> float:
    """Return 0 up to `start`, 1 from `end` on, and the straight line between them."""
    return float(np.clip((value - start) / (end - start), 0.0, 1.0))


def share_outside(source: NDArray[np.floating], target: NDArray[np.floating]) -> float:
    """Return how far the target is outside of what the source covers, from 0 (within) to 1 (outside).

    A value is outside where it is further from the source's range of its column than that range is wide.

    Examples
    --------
    >>> source = np.array([[0.0], [1.0]])
    >>> share_outside(source, np.array([[0.5], [1.5]])), share_outside(source, np.array([[90.0], [99.0]]))
    (0.0, 1.0)
    """
    low, high = source.min(axis=0), source.max(axis=0)
    width = np.where(high > low, high - low, np.inf)
    outside = float(((target < low - width) | (target > high + width)).mean())
    return float(np.clip((outside - A_FEW_OUTSIDE) / (MANY_OUTSIDE - A_FEW_OUTSIDE), 0.0, 1.0))


def unexplained_shift(
    source: NDArray[np.floating],
    codes: NDArray[np.intp],
    weights: Floats,
    target: NDArray[np.floating],
    shares: Floats,
) -> float:
    r"""Return which part of the shift of the means is left when the source has the class shares of the target.

    With the means :math:`\mu_c` of the source's classes, those of both domains and the shares :math:`\pi_c` predicted
    for the target it is :math:`\|\mu_T - \sum_c \pi_c \mu_c\| / \|\mu_T - \mu_S\|`, each feature in the standard
    deviation of both domains. 0 is a shift of shares alone; without any shift it is 1.

    Examples
    --------
    >>> source, codes = np.array([[0.0], [2.0], [2.0], [4.0]]), np.array([0, 0, 1, 1])
    >>> unexplained_shift(source, codes, np.ones(4), np.array([[2.0], [3.0]]), np.array([0.25, 0.75]))
    0.0
    """
    means, scale = _means_and_scale(source, weights, target)
    classes = np.stack(
        [
            _mean(source[codes == code], weights[codes == code]) if (codes == code).any() else means[0]
            for code in range(len(shares))
        ]
    )
    shift = float(np.linalg.norm((means[1] - means[0]) / scale))
    return float(np.linalg.norm((means[1] - shares @ classes) / scale)) / shift if shift > 0.0 else 1.0


def is_moved_copy(
    source: NDArray[np.floating],
    weights: Floats,
    target: NDArray[np.floating],
    standardised: NDArray[np.floating],
    unexplained: float,
) -> bool:
    """Whether the target is the source with every feature moved and stretched by itself.

    Parameters
    ----------
    source, weights
        Rows of the source, standardised, and how often each was given.
    target, standardised
        Rows of the target, standardised by the source's moments and by their own.
    unexplained
        The part of the shift of the means that class shares do not explain.
    """
    if min(len(source), len(target)) < ENOUGH_ROWS or unexplained < LITTLE_EXPLAINED:
        return False
    means, scale = _means_and_scale(source, weights, target)
    if np.sqrt(np.mean(((means[1] - means[0]) / scale) ** 2)) < FAR:
        return False
    samples = [part[:: -(-len(part) // MOST_ROWS)] for part in (source, standardised)]
    # Values that repeat, as codes of categories do, are told apart by any stretch.
    columns = [column for column in range(source.shape[1]) if len(np.unique(samples[0][:, column])) > CONTINUOUS]
    columns = columns[:: -(-len(columns) // MOST_COLUMNS)] if columns else []
    if 2 * len(columns) < min(source.shape[1], MOST_COLUMNS):
        return False
    sizes = [len(sample) for sample in samples]
    by_chance = KS_MEAN * np.sqrt(1.0 / sizes[0] + 1.0 / sizes[1])
    distances = [ks_distance(*(np.sort(sample[:, column]) for sample in samples)) for column in columns]
    return bool(np.mean(distances) <= BY_CHANCE * by_chance)


def _means_and_scale(
    source: NDArray[np.floating], weights: Floats, target: NDArray[np.floating]
) -> tuple[tuple[Floats, Floats], Floats]:
    """Means of both domains, and the standard deviation of each feature in both; infinite where it is constant."""
    means = _mean(source, weights), target.mean(axis=0, dtype=np.float64)
    variance = (_mean((source - means[0]) ** 2, weights) + target.var(axis=0, dtype=np.float64)) / 2.0
    return means, np.where(variance > 0.0, np.sqrt(variance), np.inf)


def _mean(rows: NDArray[np.floating], weights: Floats) -> Floats:
    return np.asarray(np.average(rows, axis=0, weights=weights), dtype=np.float64)

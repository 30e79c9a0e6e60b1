r"""What kind of shift it is, as far as means, shares and ranges tell.

Other class shares, another population, other instruments, a moved copy, or rows far away. All figures were chosen on
the development tasks of ``benchmarks/shift_tasks.py``, on tasks made of scikit-learn's data and on tables of other
packages, with their accuracies in view.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.evaluation.features import ks_distance

__all__ = [
    "EXPLAINED",
    "EXPLAINED_IN_TEXT",
    "UNEXPLAINED",
    "UNEXPLAINED_IN_TEXT",
    "is_moved_copy",
    "ramp",
    "share_outside",
    "shift_across_directions",
    "shift_in_text",
    "unexplained_shift",
]

Floats: TypeAlias = NDArray[np.float64]

# Parts of the shift of means that class shares leave unexplained: drifting sensors 0.91 and above, tumours cut at one
# of their measures and samples of other shares 0.84 and below.
EXPLAINED, UNEXPLAINED = 0.82, 0.90
# The same in text, where every other domain has other words: reviews of other goods 0.99, others of the same goods 0.93
# where 70 % are of one class instead of 50 %. Columns that are looked at: the most frequent words.
EXPLAINED_IN_TEXT, UNEXPLAINED_IN_TEXT, MOST_WORDS = 0.95, 0.985, 2_000
# The principal components of the source that hold so much of its variance count as the directions it varies in; the
# variances of all are raised by a part of their mean, so that those of rounding level do not count. Rows looked at,
# and how many of them a component needs to be known.
VARIANCE_HELD, RAISED, ROWS_LOOKED_AT, ROWS_A_COMPONENT = 0.9, 0.02, 1_000, 5
# Parts of the values outside of the source's range; on the development tasks there are at most 0.012.
A_FEW_OUTSIDE, MANY_OUTSIDE = 0.1, 0.3
# Features in other units: their standard deviation is so many times larger or smaller. Parts of them that count.
OTHER_UNITS, SOME_IN_OTHER_UNITS, MOST_IN_OTHER_UNITS = 4.0, 0.6, 0.8
# A moved copy: the features moved by so many standard deviations (root mean square), shares explain little of it, and
# what is left are distances of a size that samples of one distribution have by chance.
FAR, LITTLE_EXPLAINED, BY_CHANCE = 0.8, 0.7, 1.0
# Rows that are needed to say so, columns and rows that are looked at, and values of a column that is continuous.
ENOUGH_ROWS, MOST_COLUMNS, MOST_ROWS, CONTINUOUS = 80, 50, 2_000, 20
# Mean of the Kolmogorov-Smirnov statistic of two samples of one distribution, times the root of n m / (n + m).
KS_MEAN = 0.8687


def ramp(value: float, start: float, end: float) -> float:
    """Return 0 up to `start`, 1 from `end` on, and the straight line between them."""
    return float(np.clip((value - start) / (end - start), 0.0, 1.0))


def share_outside(source: NDArray[np.floating], target: NDArray[np.floating]) -> float:
    """Return how far the target is out of the source's reach, from 0 (within) to 1 (outside).

    A value is outside where it is further from the source's range of its column than that range is wide. Rows whose
    features spread four times as much or as little as in the source are measured in other units, and out of reach too.

    Examples
    --------
    >>> source = np.array([[0.0], [1.0]])
    >>> [share_outside(source, np.array(target)) for target in ([[0.5], [1.5]], [[90.0], [99.0]], [[0.0], [0.1]])]
    [0.0, 1.0, 1.0]
    """
    low, high = source.min(axis=0), source.max(axis=0)
    width = np.where(high > low, high - low, np.inf)
    outside = float(((target < low - width) | (target > high + width)).mean())
    stds = np.stack([part.std(axis=0, dtype=np.float64) for part in (source, target)])
    stds = stds[:, (stds > 1e-6).all(axis=0)]
    rescaled = float((abs(np.log(stds[1] / stds[0])) > np.log(OTHER_UNITS)).mean()) if stds.size else 0.0
    return max(ramp(outside, A_FEW_OUTSIDE, MANY_OUTSIDE), ramp(rescaled, SOME_IN_OTHER_UNITS, MOST_IN_OTHER_UNITS))


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


def shift_in_text(
    source: sparse.csr_matrix,
    codes: NDArray[np.intp],
    weights: Floats,
    target: sparse.csr_matrix,
    shares: Floats,
) -> float:
    """Return :func:`unexplained_shift` of sparse rows, from some of them and the columns that are seldom zero."""
    counts = sum(np.bincount(rows.indices, minlength=rows.shape[1]) for rows in (source, target))
    words = np.sort(np.argsort(-counts, kind="stable")[:MOST_WORDS])
    steps = [-(-rows.shape[0] // MOST_ROWS) for rows in (source, target)]
    some = [rows[::step][:, words].toarray() for rows, step in zip((source, target), steps, strict=True)]
    return unexplained_shift(some[0], codes[:: steps[0]], weights[:: steps[0]], some[1], shares)


def shift_across_directions(source: NDArray[np.floating], weights: Floats, target: NDArray[np.floating]) -> float:
    r"""Return how far the means move across the directions in which source rows vary, relative to along them.

    Another population differs mostly in the ways in which rows of the source differ from each other already: summer
    days are warm days. Other instruments move features without regard to each other, so the shift leaves those
    directions. With the shift of the means :math:`\delta_j` in the principal components of the source and their
    variances :math:`\lambda_j` it is the ratio of the root mean squares of :math:`\delta_j / \sqrt{\lambda_j}` over
    the last components, which hold a tenth of the variance, and over all components before them. It is 0 where there
    is no such component or nothing moved more than samples do by chance, and infinite where there are fewer than five
    rows for a component: then the directions are not known.

    Examples
    --------
    >>> along, once = np.linspace(-1.0, 1.0, 500), np.ones(500)
    >>> source = np.column_stack([along, along + 0.1 * np.cos(99 * along), along - 0.1 * np.sin(77 * along)])
    >>> warmer, recalibrated = source + 0.5, source + np.array([0.3, 0.0, -0.1])
    >>> [shift_across_directions(source, once, target) > 1.0 for target in (warmer, recalibrated)]
    [False, True]
    """
    shift = target.mean(axis=0, dtype=np.float64) - _mean(source, weights)
    step = -(-len(source) // ROWS_LOOKED_AT)
    rows, parts = np.asarray(source[::step], dtype=np.float64), weights[::step] / weights[::step].sum()
    rows = (rows - parts @ rows) * np.sqrt(parts)[:, None]
    if rows.shape[1] > len(rows):
        return np.inf
    variances, components = np.linalg.eigh(rows.T @ rows)
    known = variances > 1e-6 * variances[-1]
    if not known.any():
        return 0.0
    if ROWS_A_COMPONENT * known.sum() > len(rows):
        return np.inf
    variances, components = variances[known][::-1], components.T[known][::-1]
    squares = (components @ shift) ** 2 / (variances + RAISED * variances.mean())
    held = int(np.searchsorted(np.cumsum(variances) / variances.sum(), VARIANCE_HELD)) + 1
    if held >= len(variances):
        return 0.0
    by_chance = 1.0 / weights.sum() + 1.0 / len(target)
    along, across = (max(0.0, float(part.mean()) - by_chance) for part in (squares[:held], squares[held:]))
    return float(np.sqrt(across / max(along, 1e-18)))


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

r"""Thresholds that windows without drift exceed at a stated rate, found by resampling the reference.

The reference is a sample itself and its error counts: B times both a reference of n and a window of w rows are drawn
with replacement from the reference rows and compared as later the real ones (:mod:`momentalign.monitoring.comparison`;
a bootstrap of both sides, Efron and Tibshirani 1993, Section 16.2). Every figure is divided by its own upper quantile,
all at one level; the statistic T is the largest ratio. The quantiles come from B windows and their common factor, which
makes the rate, from B others, since windows that chose ten quantiles seldom exceed them. Of these others

.. math:: \#\{b : T_b > 1\} \le \alpha (B + 1) - 1, \qquad
          p = \frac{1 + \#\{b : T_b \ge T\}}{B + 1}, \qquad T > 1 \iff p \le \alpha .

A feature that is constant in the reference is taken to differ in one of its rows: never seen is not impossible.

    B. Efron, R. J. Tibshirani: An Introduction to the Bootstrap. Chapman and Hall, 1993.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from momentalign.monitoring.comparison import Differences, differences

__all__ = ["MOST_ROWS", "Calibration", "calibrate"]

Floats = NDArray[np.float64]

MOST_ROWS = 5000
"""Rows that are drawn from, and at most drawn: means of more are as good as normal, and only scaled."""
_RESAMPLES_AT_ONCE = 250
_FEATURES_AT_ONCE = 64
# Equal figures must count as equal whatever the order of their sums.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Calibration:
    """What windows without drift give.

    Attributes
    ----------
    thresholds
        Of each figure, (2 orders,): for all features together, then for the one that moved most.
    by_chance
        The statistic of the resampled windows in ascending order, in units of the threshold.
    """

    thresholds: Floats
    by_chance: Floats

    def statistic(self, figures: Floats) -> float:
        """Return the largest figure in units of its threshold."""
        return float((figures / self.thresholds).max())

    def p_value(self, statistic: float) -> float:
        """Return how seldom a window without drift is as far away."""
        reached = len(self.by_chance) - int(np.searchsorted(self.by_chance, statistic * (1.0 - 2 * _ROUNDING)))
        return (1 + reached) / (1 + len(self.by_chance))


def calibrate(
    rows: Floats,
    counts: tuple[int, int],
    *,
    order: int,
    rounding: Floats,
    rate: float,
    n_resamples: int,
    random: np.random.Generator,
) -> Calibration:
    """Find the thresholds that resampled windows exceed at a rate.

    Parameters
    ----------
    rows
        Rows of the reference in [0, 1], at most some thousands of them.
    counts
        Rows of the whole reference and of a window.
    order
        The highest order.
    rounding
        Deviations, (width,), that count as none.
    rate
        The rate of windows without drift that raise an alarm, at least 1 / (`n_resamples` + 1).
    n_resamples
        How many windows are resampled for the scale of the figures, and how many others for the rate.
    random
        What they are drawn with.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> settings = {"order": 2, "rounding": np.zeros(3), "rate": 0.05, "n_resamples": 199, "random": random}
    >>> found = calibrate(random.random((200, 3)), (200, 100), **settings)
    >>> found.thresholds.round(1).tolist(), int((found.by_chance > 1.0).sum())
    ([1.9, 1.9, 2.9, 2.9], 9)
    """
    population = _with_odd_rows(rows, rounding, random)
    scaling, figures = (_figures(population, counts, order, rounding, n_resamples, random) for _ in range(2))
    quantiles = _quantiles(scaling, rate)
    statistics = np.sort((figures / quantiles).max(axis=1))
    cut = statistics[-1 - _exceeding(rate, n_resamples)] * (1.0 + _ROUNDING)
    return Calibration(quantiles * cut, statistics / cut)


def _with_odd_rows(rows: Floats, rounding: Floats, random: np.random.Generator) -> Floats:
    """The rows, with one at the end of the interval in each feature that is constant."""
    constant = np.flatnonzero(np.ptp(rows, axis=0) <= rounding)
    rows = rows.copy()
    rows[random.integers(len(rows), size=len(constant)), constant] = 1.0
    return rows


def _portions(total: int, most: int) -> Iterator[int]:
    for start in range(0, total, most):
        yield min(most, total - start)


def _figures(
    rows: Floats, counts: tuple[int, int], order: int, rounding: Floats, number: int, random: np.random.Generator
) -> Floats:
    """The figures of so many resampled windows, (number, 2 orders)."""
    portions = _portions(number, _RESAMPLES_AT_ONCE)
    return np.vstack([_resampled(rows, counts, order, rounding, size, random).figures for size in portions])


def _resampled(
    rows: Floats, counts: tuple[int, int], order: int, rounding: Floats, size: int, random: np.random.Generator
) -> Differences:
    """Draw references and windows, `size` of each, and compare their moments."""
    shares = [_shares(len(rows), min(count, MOST_ROWS), size, random) for count in counts]
    parts = []
    for start in range(0, rows.shape[1], _FEATURES_AT_ONCE):
        some = slice(start, start + _FEATURES_AT_ONCE)
        centred = rows[:, some] - rows[:, some].mean(axis=0)
        powers = np.hstack(list(accumulate([centred] * (2 * order), np.multiply)))
        reference, window = (
            _means(powers, share, count).reshape(size, 2 * order, -1)
            for share, count in zip(shares, counts, strict=True)
        )
        parts.append(differences(reference, window, counts, rounding[some]))
    return Differences(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))


def _shares(rows: int, drawn: int, size: int, random: np.random.Generator) -> Floats:
    """How much of each sample every row is, (size, rows), when `drawn` of them are drawn with replacement."""
    places = random.integers(rows, size=(size, drawn)) + rows * np.arange(size)[:, None]
    return np.bincount(places.ravel(), minlength=size * rows).reshape(size, rows) / drawn


def _means(powers: Floats, shares: Floats, count: int) -> Floats:
    """Means of powers over samples of `count` rows; of larger samples than are drawn they lie closer together."""
    means = shares @ powers
    if count <= MOST_ROWS:
        return np.asarray(means)
    middle = powers.mean(axis=0)
    return np.asarray(middle + math.sqrt(MOST_ROWS / count) * (means - middle))


def _exceeding(rate: float, resamples: int) -> int:
    """How many resampled windows may exceed the threshold."""
    return math.floor(rate * (resamples + 1) * (1.0 + _ROUNDING)) - 1


def _quantiles(figures: Floats, rate: float) -> Floats:
    """Quantiles of all figures at one level, which about the stated part of the windows exceeds somewhere."""
    resamples = len(figures)
    ordered = np.sort(figures, axis=0)[::-1]
    # The rank of a window is that of its rarest figure; as many windows as may exceed have a rank up to this one.
    ranks = np.sort(resamples - np.argsort(np.argsort(figures, axis=0), axis=0).max(axis=1))
    rank = ranks[_exceeding(rate, resamples)]
    between = (ordered[rank - 1] + ordered[min(rank, resamples - 1)]) / 2
    return np.asarray(np.maximum(between, np.finfo(np.float64).tiny))

r"""How far the moments of a window are from those of a reference, in units of what chance alone would give.

*The interval.* Features of any range are brought to [0, 1], so that their powers stay bounded and no long tail rules
the high orders. With :math:`q_1` and :math:`q_{99}` the 1st and 99th percentile of a feature in the reference, the
interval reaches a quarter of their distance beyond both, about 3.5 standard deviations of a normal feature to either
side,

.. math:: x \mapsto \min\Bigl(1, \max\Bigl(0, \frac{x - a}{b - a}\Bigr)\Bigr), \qquad
          a = q_1 - \tfrac14 (q_{99} - q_1), \quad b = q_{99} + \tfrac14 (q_{99} - q_1).

Where the percentiles coincide the smallest and largest value stand for them.

*The differences.* With the central moments :math:`c_j` of a reference of n and a window of w rows, those of order j are
the summands of the Central Moment Discrepancy, Eq. (23) in Zellinger et al. (2019),

.. math:: d_j = c_j(W) - c_j(R), \qquad \mathrm{cmd} = \sum_j \lVert d_j \rVert_2 .

If both samples have one distribution, the variance of each entry is, to first order (Serfling 1980, Section 2.2),

.. math:: s_1^2 = \Bigl( \frac1n + \frac1w \Bigr) c_2, \qquad
          s_j^2 = \Bigl( \frac1n + \frac1w \Bigr)
                  \bigl( c_{2j} - c_j^2 - 2 j c_{j-1} c_{j+1} + j^2 c_{j-1}^2 c_2 \bigr),

with the moments of both samples together. Two figures of each order follow: many features that moved a little show in
the first, one feature that moved much in the second,

.. math:: \frac{\lVert d_j \rVert_2}{\lVert s_j \rVert_2}, \qquad \max_f \frac{|d_{jf}|}{s_{jf}} .

*The thresholds.* The reference is a sample itself and its error counts: B times both a reference of n and a window of w
rows are drawn with replacement from the reference rows and compared as later the real ones (a bootstrap of both sides,
Efron and Tibshirani 1993, Section 16.2). Every figure is divided by its own upper quantile, all at one level; the
statistic T is the largest ratio. The quantiles come from B windows and their common factor, which makes the rate, from
B others, since windows that chose ten quantiles seldom exceed them. Of these others

.. math:: \#\{b : T_b > 1\} \le \alpha (B + 1) - 1, \qquad
          p = \frac{1 + \#\{b : T_b \ge T\}}{B + 1}, \qquad T > 1 \iff p \le \alpha .

A feature that is constant in the reference is taken to differ in one of its rows: never seen is not impossible.

    R. J. Serfling: Approximation Theorems of Mathematical Statistics. Wiley, 1980.

    B. Efron, R. J. Tibshirani: An Introduction to the Bootstrap. Chapman and Hall, 1993.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from momentalign.moments.centre import central_moments
from momentalign.moments.streaming import described_array
from momentalign.validation import Floats

__all__ = ["MOST_ROWS", "Calibration", "Differences", "UnitInterval", "calibrate", "differences"]


_TAIL = 0.01
_MARGIN = 0.25
# Differences of this part of a value are none: in single precision, and in double.
_SINGLE, _DOUBLE = 1e-6, 1e-14
# A feature whose range is at most so many of these differences counts as constant.
_CONSTANT = 10
# So many of these differences an interval reaches to either side of a large constant.
_AROUND = 100
# Of two-valued features the variance of a moment can vanish while the moment still varies to second order.
_LEAST_SHARE = 0.01

MOST_ROWS = 5000
"""Rows that are drawn from, and at most drawn: means of more are as good as normal, and only scaled."""
_RESAMPLES_AT_ONCE = 250
_FEATURES_AT_ONCE = 64
# Equal figures must count as equal whatever the order of their sums.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class UnitInterval:
    """The ends, (width,) each, that become 0 and 1, and the differences that count as none.

    Attributes
    ----------
    low, high
        The ends.
    rounding
        Standard deviations that count as none, in units of the interval: less than rounding explains.

    Examples
    --------
    >>> interval = UnitInterval.of(np.array([[0.0, 7.0], [2.0, 7.0]]))
    >>> interval.low.tolist(), interval.high.tolist()
    ([-0.5, 6.5], [2.5, 7.5])
    >>> interval.apply(np.array([[1.0, 70.0]])).tolist()
    [[0.5, 1.0]]
    """

    low: Floats
    high: Floats
    rounding: Floats

    @classmethod
    def of(cls, rows: Floats, *, single: bool = False) -> Self:
        """Return the interval of reference rows, (rows, width) without missing values.

        A constant gets an interval of length 1 about it, or longer where it is large. Constants of the reference may
        come in single precision later; features that vary in double precision are watched as finely as they vary,
        however far from zero they are.

        Parameters
        ----------
        rows
            The rows, in double precision.
        single
            Whether they were in single precision before.
        """
        ordered = np.sort(rows, axis=0)
        last = len(rows) - 1
        low, high = ordered[int(np.floor(_TAIL * last))], ordered[int(np.ceil((1.0 - _TAIL) * last))]
        flat = low == high
        low, high = np.where(flat, ordered[0], low), np.where(flat, ordered[-1], high)
        size = np.maximum(np.abs(low), np.abs(high))
        share = _SINGLE if single else _DOUBLE
        constant = high - low <= _CONSTANT * share * size
        around = np.maximum(0.5, _AROUND * _SINGLE * size)
        margin = np.where(constant, around, _MARGIN * (high - low))
        low, high = low - margin, high + margin
        return cls(low, high, np.where(constant, _SINGLE, share) * np.maximum(np.abs(low), np.abs(high)) / (high - low))

    @classmethod
    def from_dict(cls, description: dict[str, Any], width: int) -> Self:
        """Return the interval that :meth:`to_dict` described; one that is invalid raises ValueError or the like."""
        low, high = (described_array(description, end, (width,)) for end in ("low", "high"))
        if (low >= high).any():
            raise ValueError("an interval without length")
        # Earlier versions took all features to be in single precision.
        earlier = _SINGLE * np.maximum(np.abs(low), np.abs(high)) / (high - low)
        rounding = described_array({"rounding": earlier, **description}, "rounding", (width,))
        if (rounding < 0.0).any():
            raise ValueError("rounding below zero")
        return cls(low, high, rounding)

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain JSON."""
        return {"low": self.low.tolist(), "high": self.high.tolist(), "rounding": self.rounding.tolist()}

    def apply(self, rows: NDArray[np.floating]) -> Floats:
        """Return rows in [0, 1]; what lies beyond the ends is set to them."""
        return np.clip((rows - self.low) / self.length, 0.0, 1.0)

    @property
    def length(self) -> Floats:
        """The length of each feature's interval."""
        return self.high - self.low


class Differences(NamedTuple):
    """Differences of moments and their variances by chance, (..., orders, width) each; zero where nothing varies."""

    values: Floats
    variances: Floats

    @property
    def ratios(self) -> Floats:
        """The differences in units of what chance gives, (..., orders, width)."""
        return _over(self.values, np.sqrt(self.variances))

    @property
    def figures(self) -> Floats:
        """Of all features together, then of the feature that moved most: (..., 2 orders)."""
        together = _over(np.sqrt((self.values**2).sum(axis=-1)), np.sqrt(self.variances.sum(axis=-1)))
        return np.concatenate([together, np.abs(self.ratios).max(axis=-1)], axis=-1)


def _over(part: Floats, scale: Floats) -> Floats:
    return np.asarray(np.divide(part, scale, out=np.zeros_like(part), where=scale > 0.0))


def differences(reference: Floats, window: Floats, counts: tuple[int, int], rounding: Floats) -> Differences:
    """Compare moments of two samples.

    Parameters
    ----------
    reference, window
        Means of the powers 1 to 2 k of both samples about one point, (..., 2 k, width).
    counts
        Rows of the reference and of the window.
    rounding
        Standard deviations, (width,), that count as none.

    Examples
    --------
    >>> from momentalign.monitoring.statistics import differences
    >>> sample = np.array([0.1, 0.4, 0.5, 0.9])
    >>> raw = [np.array([[(sample + shift) ** p] for p in (1, 2)]).mean(axis=-1) for shift in (0.0, 0.2)]
    >>> found = differences(*raw, counts=(4, 4), rounding=np.zeros(1))
    >>> found.values.round(3).tolist(), found.ratios.round(3).tolist()
    ([[0.2]], [[0.933]])
    """
    orders = reference.shape[-2] // 2
    share = counts[1] / sum(counts)
    pooled = central_moments((1.0 - share) * reference + share * window)
    values = central_moments(window[..., :orders, :]) - central_moments(reference[..., :orders, :])
    # A constant that is another constant in few rows hardly varies in both samples together, but its mean moved.
    varies = (pooled[..., 1:2, :] > rounding**2) | (np.abs(values[..., :1, :]) > rounding)
    variances = (1 / counts[0] + 1 / counts[1]) * _variances(pooled, orders)
    # Rounding can make the variance of next to nothing negative.
    return Differences(np.where(varies, values, 0.0), np.where(varies, np.maximum(variances, 0.0), 0.0))


def _variances(pooled: Floats, orders: int) -> Floats:
    """Variance of one row's part in each central moment, (..., orders, width)."""
    none = np.zeros_like(pooled[..., 0, :])
    c = [none + 1.0, none, *np.moveaxis(pooled, -2, 0)[1:]]
    return np.stack(
        [
            np.maximum(
                c[2 * j] - c[j] ** 2 - 2 * j * c[j - 1] * c[j + 1] * (j > 1) + (j * c[j - 1]) ** 2 * c[2] * (j > 1),
                _LEAST_SHARE * c[2 * j],
            )
            for j in range(1, orders + 1)
        ],
        axis=-2,
    )


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
        Standard deviations, (width,), that count as none.
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
    constant = np.flatnonzero(rows.var(axis=0) <= rounding**2)
    rows = rows.copy()
    rows[random.integers(len(rows), size=len(constant)), constant] = 1.0
    scaling, figures = (_resampled_figures(rows, counts, order, rounding, n_resamples, random) for _ in range(2))
    quantiles = _quantiles(scaling, rate)
    statistics = np.sort((figures / quantiles).max(axis=1))
    cut = statistics[-1 - _exceeding(rate, n_resamples)] * (1.0 + _ROUNDING)
    return Calibration(quantiles * cut, statistics / cut)


def _resampled_figures(
    rows: Floats, counts: tuple[int, int], order: int, rounding: Floats, n_resamples: int, random: np.random.Generator
) -> Floats:
    """The figures of so many resampled windows, (n_resamples, 2 orders)."""
    figures = []
    for size in _portions(n_resamples, _RESAMPLES_AT_ONCE):
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
        joined = Differences(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))
        figures.append(joined.figures)
    return np.vstack(figures)


def _portions(total: int, most: int) -> Iterator[int]:
    for start in range(0, total, most):
        yield min(most, total - start)


def _shares(rows: int, drawn: int, size: int, random: np.random.Generator) -> Floats:
    """How much of each sample every row is, (size, rows), when `drawn` of them are drawn with replacement."""
    indices = random.integers(rows, size=(size, drawn)) + rows * np.arange(size)[:, None]
    return np.bincount(indices.ravel(), minlength=size * rows).reshape(size, rows) / drawn


def _means(powers: Floats, shares: Floats, count: int) -> Floats:
    """Means of powers over samples of `count` rows; of larger samples than are drawn they lie closer together."""
    means = shares @ powers
    if count <= MOST_ROWS:
        return np.asarray(means)
    middle = powers.mean(axis=0)
    return np.asarray(middle + math.sqrt(MOST_ROWS / count) * (means - middle))


def _exceeding(rate: float, n_resamples: int) -> int:
    """How many resampled windows may exceed the threshold."""
    return math.floor(rate * (n_resamples + 1) * (1.0 + _ROUNDING)) - 1


def _quantiles(figures: Floats, rate: float) -> Floats:
    """Quantiles of all figures at one level, which about the stated part of the windows exceeds somewhere."""
    n_resamples = len(figures)
    ordered = np.sort(figures, axis=0)[::-1]
    # The rank of a window is that of its rarest figure; as many windows as may exceed have a rank up to this one.
    ranks = np.sort(n_resamples - np.argsort(np.argsort(figures, axis=0), axis=0).max(axis=1))
    rank = ranks[_exceeding(rate, n_resamples)]
    between = (ordered[rank - 1] + ordered[min(rank, n_resamples - 1)]) / 2
    return np.asarray(np.maximum(between, np.finfo(np.float64).tiny))

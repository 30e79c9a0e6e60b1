r"""Shares in two samples: how often a value is missing, and how often each category occurs.

.. math:: \mathrm{TV} = \frac12 \sum_c \lvert p_S(c) - p_T(c) \rvert

is the total variation distance of two distributions over categories: the largest difference of the probabilities of any
set of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["CategoryChange", "Level", "compare_categories", "proportions_p_value"]

_LEAST_EXPECTED = 5.0
"""Below this many expected rows the chi-square approximation is poor (Cochran, Biometrics 10, 1954)."""


class Level(NamedTuple):
    """One category and its share in both samples."""

    name: str
    source: float
    target: float


class CategoryChange(NamedTuple):
    """How one feature of categories differs; NaN where a sample has no value or there is nothing to test."""

    distance: float
    p_value: float
    levels: list[Level]
    """Every category, the most frequent first."""

    @property
    def new(self) -> float:
        """The share of the target in categories that the source does not have."""
        return sum(level.target for level in self.levels if not level.source)

    @property
    def gone(self) -> float:
        """The share of the source in categories that the target does not have."""
        return sum(level.source for level in self.levels if not level.target)


def compare_categories(source: NDArray[np.object_], target: NDArray[np.object_]) -> CategoryChange:
    """Compare two samples of categories without missing values.

    The p-value is that of Pearson's chi-square test; categories expected fewer than five times in a sample are put
    together.

    Examples
    --------
    >>> change = compare_categories(np.array(["a", "b"] * 20, dtype=object), np.array(["a"] * 40, dtype=object))
    >>> change.distance, change.p_value < 1e-6, change.levels
    (0.5, True, [Level(name='a', source=0.5, target=1.0), Level(name='b', source=0.5, target=0.0)])
    """
    counts = _counts(source, target)
    order = sorted(counts, key=lambda name: (-sum(counts[name]), name))
    table = np.array([counts[name] for name in order], dtype=float).reshape(-1, 2)
    if not len(source) or not len(target):
        return CategoryChange(math.nan, math.nan, [])
    shares = table / table.sum(axis=0)
    levels = [Level(name, float(one), float(other)) for name, (one, other) in zip(order, shares, strict=True)]
    distance = float(np.abs(shares[:, 0] - shares[:, 1]).sum() / 2)
    return CategoryChange(distance, _chi_square_p(table), levels)


def proportions_p_value(hits: int, rows: int, other_hits: int, other_rows: int) -> float:
    """Return the p-value of two proportions being one: chi-square, or Fisher's exact test where hits are few.

    Examples
    --------
    >>> proportions_p_value(0, 100, 30, 100) < 1e-6, proportions_p_value(1, 10, 1, 10)
    (True, 1.0)
    """
    table = np.array([[hits, other_hits], [rows - hits, other_rows - other_hits]])
    expected = stats.contingency.expected_freq(table)
    if expected.min() < _LEAST_EXPECTED:
        return float(stats.fisher_exact(table).pvalue)
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def _counts(source: NDArray[np.object_], target: NDArray[np.object_]) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = {}
    for side, values in enumerate((source, target)):
        for value in values.tolist():
            counts.setdefault(value, [0, 0])[side] += 1
    return counts


def _chi_square_p(table: NDArray[np.float64]) -> float:
    rare = stats.contingency.expected_freq(table).min(axis=1) < _LEAST_EXPECTED
    merged = np.vstack([table[~rare], table[rare].sum(axis=0)]) if rare.any() else table
    if len(merged) < 2:
        return math.nan
    if len(merged) == 2:
        (hits, other_hits), (rest, other_rest) = merged.astype(int).tolist()
        return proportions_p_value(hits, hits + rest, other_hits, other_hits + other_rest)
    return float(stats.chi2_contingency(merged, correction=False).pvalue)

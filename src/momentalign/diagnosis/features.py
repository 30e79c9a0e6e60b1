"""Every feature of two samples compared, with p-values corrected for their number.

The tests of all features, of their values and of how often these are missing, are one family; its p-values are
adjusted by

    Y. Benjamini, Y. Hochberg: Controlling the false discovery rate: a practical and powerful approach to multiple
    testing. Journal of the Royal Statistical Society B 57, 1995:

of the features with an adjusted p-value of at most alpha, at most that share is expected to be found by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from momentalign.diagnosis.numeric import NumberChange, compare_numbers
from momentalign.diagnosis.shapes import Shape, histogram, main_levels
from momentalign.diagnosis.shares import CategoryChange, compare_categories, proportions_p_value
from momentalign.diagnosis.tables import Kind, Samples, missing

__all__ = ["FeatureChange", "adjusted", "compare_features"]

_ASPECTS = ("location", "spread", "shape")
_OF_NUMBERS = ("mean_source", "mean_target", "mean_shift", "deviation_ratio")


@dataclass(frozen=True, kw_only=True)
class FeatureChange:
    """How one feature differs; NaN where there is nothing to compare."""

    name: str
    kind: Kind
    distance: float
    """Kolmogorov-Smirnov statistic of numbers and dates, total variation distance of categories."""
    p_value: float
    p_adjusted: float
    mean_source: float = math.nan
    mean_target: float = math.nan
    mean_shift: float = math.nan
    """Target mean minus source mean, in pooled deviations."""
    deviation_ratio: float = math.nan
    """Deviation in the target over that in the source."""
    missing_source: float
    missing_target: float
    missing_p_value: float
    missing_p_adjusted: float
    new: float = math.nan
    """The share of the target in categories that the source does not have."""
    gone: float = math.nan
    """The share of the source in categories that the target does not have."""
    changes: list[str]
    """What differs significantly: location, spread, shape, categories, missing values."""
    shape: Shape | None

    @property
    def apart(self) -> float:
        """How far apart: the distance of the values or, where those differ, of the shares that are missing."""
        untold = math.isnan(self.distance) or self.changes == ["missing values"]
        lost = abs(self.missing_target - self.missing_source) if "missing values" in self.changes else 0.0
        return max(0.0 if untold else self.distance, lost)


class _Compared(NamedTuple):
    """One feature before correction."""

    name: str
    absent: tuple[float, float]
    absent_p: float
    change: NumberChange | CategoryChange
    shape: Shape | None


def compare_features(samples: Samples, *, alpha: float = 0.05) -> list[FeatureChange]:
    """Compare every common feature; the ones that differ most come first.

    Examples
    --------
    >>> from momentalign.diagnosis.tables import read_samples
    >>> random = np.random.default_rng(0)
    >>> pair = read_samples(random.normal(0, 1, (200, 2)), random.normal([0, 1], 1, (200, 2)), ["same", "moved"])
    >>> [(feature.name, feature.changes) for feature in compare_features(pair)]
    [('moved', ['location']), ('same', [])]
    """
    compared = [_compare(samples, name) for name in samples.kinds]
    p_values = adjusted([entry.change.p_value for entry in compared] + [entry.absent_p for entry in compared])
    features = [
        _feature(entry, samples.kinds[entry.name], float(p), float(missing_p), alpha)
        for entry, p, missing_p in zip(compared, p_values[: len(compared)], p_values[len(compared) :], strict=True)
    ]
    return sorted(features, key=lambda feature: (not feature.changes, -feature.apart))


def adjusted(p_values: ArrayLike) -> NDArray[np.float64]:
    r"""Return p-values adjusted by Benjamini and Hochberg; NaN is no test and stays NaN.

    .. math:: \tilde p_{(i)} = \min_{l \ge i} \frac{n}{l}\, p_{(l)}

    Examples
    --------
    >>> adjusted([0.01, np.nan, 0.04, 0.03])
    array([0.03,  nan, 0.04, 0.04])
    """
    values = np.array(p_values, dtype=float)
    tested = ~np.isnan(values)
    if tested.any():
        values[tested] = stats.false_discovery_control(values[tested])
    return values


def _compare(samples: Samples, name: str) -> _Compared:
    """Compare one feature: its known values, and how many are missing."""
    sides = samples.pair(name)
    absent = [missing(side) for side in sides]
    known = [side[~gone] for side, gone in zip(sides, absent, strict=True)]
    counts = [int(gone.sum()) for gone in absent]
    absent_p = proportions_p_value(counts[0], len(sides[0]), counts[1], len(sides[1])) if any(counts) else math.nan
    change, shape = _categories(known) if samples.kinds[name] == "category" else _numbers(known)
    return _Compared(name, (counts[0] / len(sides[0]), counts[1] / len(sides[1])), absent_p, change, shape)


def _numbers(known: Sequence[NDArray[Any]]) -> tuple[NumberChange, Shape | None]:
    source, target = np.sort(known[0]), np.sort(known[1])
    return compare_numbers(source, target), histogram(source, target)


def _categories(known: Sequence[NDArray[Any]]) -> tuple[CategoryChange, Shape | None]:
    change = compare_categories(known[0], known[1])
    return change, main_levels(change.levels) if change.levels else None


def _feature(entry: _Compared, kind: Kind, p: float, absent_p: float, alpha: float) -> FeatureChange:
    change = entry.change
    if isinstance(change, NumberChange):
        own = {name: getattr(change, name) for name in _OF_NUMBERS}
        found = _aspects(change, alpha)
    else:
        own = {"new": change.new, "gone": change.gone}
        found = ["categories"]
    return FeatureChange(
        name=entry.name,
        kind=kind,
        distance=change.distance,
        p_value=change.p_value,
        p_adjusted=p,
        missing_source=entry.absent[0],
        missing_target=entry.absent[1],
        missing_p_value=entry.absent_p,
        missing_p_adjusted=absent_p,
        changes=(found if p <= alpha else []) + (["missing values"] if absent_p <= alpha else []),
        shape=entry.shape,
        **own,
    )


def _aspects(change: NumberChange, alpha: float) -> list[str]:
    """Say in what a feature differs: what its own test finds at a third of alpha, else the likeliest."""
    p_values = dict(zip(_ASPECTS, (change.location_p, change.spread_p, change.shape_p), strict=True))
    found = [name for name, p in p_values.items() if p <= alpha / len(_ASPECTS)]
    return found or [min(p_values, key=lambda name: p_values[name])]

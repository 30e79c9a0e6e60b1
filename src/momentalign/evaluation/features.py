r"""Every feature of two samples compared, with p-values corrected for their number.

Numbers and dates: how far their distributions are apart is the two-sample Kolmogorov-Smirnov statistic

.. math:: D = \sup_t \lvert F_S(t) - F_T(t) \rvert

with the p-value of its limit for large samples,

    N. Smirnov: Table for estimating the goodness of fit of empirical distributions. Annals of Mathematical Statistics
    19, 1948.

From eight rows on that p-value is close to the exact one or somewhat above it, so that it does not find too much; the
approximation of :func:`scipy.stats.ks_2samp` lies below the exact one where both samples have the same size. Ties make
it larger.

Categories: how far their shares are apart is the total variation distance, the largest difference of the probabilities
of any set of categories,

.. math:: \mathrm{TV} = \frac12 \sum_c \lvert p_S(c) - p_T(c) \rvert

with Pearson's chi-square test. How often a value is missing is compared as two proportions.

All these tests are one family. Its p-values are adjusted by

    Y. Benjamini, Y. Hochberg: Controlling the false discovery rate: a practical and powerful approach to multiple
    testing. Journal of the Royal Statistical Society B 57, 1995:

of the features with an adjusted p-value of at most alpha, at most that share is expected to be found by chance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from momentalign.evaluation.samples import Kind, Samples, missing
from momentalign.validation import Floats

__all__ = [
    "BINS",
    "CategoryChange",
    "FeatureChange",
    "Level",
    "NumberChange",
    "Shape",
    "compare_categories",
    "compare_features",
    "compare_numbers",
    "histogram",
    "ks_distance",
    "ks_p_value",
    "main_levels",
    "proportions_p_value",
]


@dataclass(frozen=True, kw_only=True)
class FeatureChange:
    """How one feature differs; NaN where there is nothing to compare."""

    name: str
    kind: Kind
    distance: float
    """Kolmogorov-Smirnov statistic of numbers and dates, total variation distance of categories."""
    p_value: float
    p_adjusted: float = math.nan
    mean_source: float = math.nan
    mean_target: float = math.nan
    mean_shift: float = math.nan
    """Target mean minus source mean, in pooled standard deviations."""
    deviation_ratio: float = math.nan
    """Standard deviation of the target over that of the source."""
    missing_source: float
    missing_target: float
    missing_p_value: float
    missing_p_adjusted: float = math.nan
    new: float = math.nan
    """The share of the target in categories that the source does not have."""
    gone: float = math.nan
    """The share of the source in categories that the target does not have."""
    changes: Sequence[str] = ()
    """What differs significantly: location, spread, shape, categories, missing values."""
    shape: Shape | None

    @property
    def apart(self) -> float:
        """How far apart: the distance of the values or, where those differ, of the shares that are missing."""
        unknown = math.isnan(self.distance) or self.changes == ["missing values"]
        missing_apart = abs(self.missing_target - self.missing_source) if "missing values" in self.changes else 0.0
        return max(0.0 if unknown else self.distance, missing_apart)


class Shape(NamedTuple):
    """Shares of both samples in the same bins (between `low` and `high`) or categories (`names`)."""

    source: list[float]
    target: list[float]
    low: float | None = None
    high: float | None = None
    names: list[str] | None = None


def compare_features(samples: Samples, *, alpha: float = 0.05) -> list[FeatureChange]:
    """Compare every common feature; the ones that differ most come first.

    Examples
    --------
    >>> from momentalign.evaluation.samples import read_samples
    >>> random = np.random.default_rng(0)
    >>> pair = read_samples(random.normal(0, 1, (200, 2)), random.normal([0, 1], 1, (200, 2)), ["same", "moved"])
    >>> [(feature.name, feature.changes) for feature in compare_features(pair)]
    [('moved', ['location']), ('same', [])]
    """
    compared = [_compare(samples, name) for name in samples.kinds]
    p_values = np.array([(feature.p_value, feature.missing_p_value) for feature, _ in compared])
    tested = ~np.isnan(p_values)
    if tested.any():
        p_values[tested] = stats.false_discovery_control(p_values[tested])
    features = []
    for (feature, aspects), (p, missing_p) in zip(compared, p_values.tolist(), strict=True):
        changes = _changed_aspects(aspects, alpha) if p <= alpha else []
        changes += ["missing values"] if missing_p <= alpha else []
        features.append(replace(feature, p_adjusted=p, missing_p_adjusted=missing_p, changes=changes))
    return sorted(features, key=lambda feature: (not feature.changes, -feature.apart))


def _compare(samples: Samples, name: str) -> tuple[FeatureChange, dict[str, float]]:
    """Compare one feature: its known values, how many are missing, and a p-value for each aspect that may differ."""
    kind, sides = samples.kinds[name], samples.pair(name)
    absent = [missing(side) for side in sides]
    counts = [int(gone.sum()) for gone in absent]
    source, target = (side[~gone] for side, gone in zip(sides, absent, strict=True))
    change: CategoryChange | NumberChange
    if kind == "category":
        change = compare_categories(source, target)
        shape = main_levels(change.levels) if change.levels else None
        found: dict[str, Any] = {"new": change.new, "gone": change.gone}
        aspects = {"categories": 0.0}
    else:
        source, target = np.sort(source), np.sort(target)
        change = compare_numbers(source, target)
        shape = histogram(source, target)
        found = change._asdict()
        aspects = found.pop("aspects")
    rows = len(sides[0]), len(sides[1])
    found |= {"name": name, "kind": kind, "shape": shape, "distance": change.distance, "p_value": change.p_value}
    feature = FeatureChange(
        **found,
        missing_source=counts[0] / rows[0],
        missing_target=counts[1] / rows[1],
        missing_p_value=proportions_p_value(counts[0], rows[0], counts[1], rows[1]) if any(counts) else math.nan,
    )
    return feature, aspects


def _changed_aspects(aspects: Mapping[str, float], alpha: float) -> list[str]:
    """Return in what a feature differs: what its own tests find together at alpha, else the likeliest."""
    found = [name for name, p in aspects.items() if p <= alpha / len(aspects)]
    return found or [min(aspects, key=lambda name: aspects[name])]


class NumberChange(NamedTuple):
    """How one feature of numbers differs, as in :class:`FeatureChange`; NaN where a sample has no value."""

    distance: float = math.nan
    p_value: float = math.nan
    mean_source: float = math.nan
    mean_target: float = math.nan
    mean_shift: float = math.nan
    deviation_ratio: float = math.nan
    aspects: Mapping[str, float] = MappingProxyType(dict.fromkeys(("location", "spread", "shape"), math.nan))
    """A p-value for each aspect in which the samples may differ."""


def compare_numbers(source: ArrayLike, target: ArrayLike) -> NumberChange:
    r"""Compare two samples of numbers without missing values, each in increasing order.

    With means :math:`m` and standard deviations :math:`s` of both samples, the standardised mean shift is

    .. math:: \frac{m_T - m_S}{\sqrt{(s_S^2 + s_T^2) / 2}}.

    Three further p-values say in what the samples differ: Welch's test of the means, a test of the logarithms of the
    variances with their standard error from the fourth moment, and, for the shape, the Kolmogorov-Smirnov test after
    each sample is brought to mean 0 and standard deviation 1, equal values spread halfway to their neighbours.

    Examples
    --------
    >>> change = compare_numbers([0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0])
    >>> change.distance, round(change.mean_shift, 2), change.deviation_ratio, round(change.aspects["shape"], 2)
    (0.5, 1.55, 1.0, 1.0)
    """
    a, b = np.asarray(source, dtype=float), np.asarray(target, dtype=float)
    if not len(a) or not len(b):
        return NumberChange()
    distance = ks_distance(a, b)
    # Powers of values as large as 1e200 would overflow.
    size = float(max(abs(a[0]), abs(a[-1]), abs(b[0]), abs(b[-1]))) or 1.0
    one, other = _summary(a / size), _summary(b / size)
    shift = other.mean - one.mean
    return NumberChange(
        distance,
        ks_p_value(distance, len(a), len(b)),
        one.mean * size,
        other.mean * size,
        _ratio(shift, math.sqrt((one.variance + other.variance) / 2)),
        _ratio(math.sqrt(other.variance), math.sqrt(one.variance), nothing=1.0),
        {
            "location": _two_sided_p(shift, math.sqrt(one.variance / one.rows + other.variance / other.rows)),
            "spread": _spread_p(one, other),
            "shape": _shape_p(a / size, b / size) if one.variance and other.variance else 1.0,
        },
    )


def ks_distance(source: Floats, target: Floats, weights: Floats | None = None) -> float:
    """Return the largest difference of two empirical distribution functions; both samples in increasing order.

    The values of the source may have `weights`.

    Examples
    --------
    >>> ks_distance(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    0.5
    >>> ks_distance(np.array([0.0, 1.0]), np.array([1.0, 2.0]), weights=np.array([3.0, 1.0]))
    0.75
    """
    values = np.concatenate([source, target])
    below = [np.searchsorted(sample, values, side="right") for sample in (source, target)]
    shares = below[0] / len(source)
    if weights is not None:
        shares = np.append(0.0, np.cumsum(weights))[below[0]] / weights.sum()
    return float(np.abs(shares - below[1] / len(target)).max())


def ks_p_value(distance: float, rows: int, other_rows: int) -> float:
    """Return the probability of a distance at least this large between two samples of one distribution."""
    root = math.sqrt(rows * other_rows / (rows + other_rows))
    return float(special.kolmogorov(root * distance))


class _Summary(NamedTuple):
    rows: int
    mean: float
    variance: float
    variance_error: float
    """Squared relative standard error of the variance, (kurtosis - 1) / rows."""


def _summary(sample: Floats) -> _Summary:
    if sample[0] == sample[-1]:  # Rounding would give a constant a small variance.
        return _Summary(len(sample), float(sample[0]), 0.0, 0.0)
    mean = float(sample.mean())
    squares = (sample - mean) ** 2
    variance = float(squares.mean())
    error = max(float((squares**2).mean()) / variance**2 - 1.0, 0.0) / len(sample) if variance else 0.0
    return _Summary(len(sample), mean, variance * len(sample) / (len(sample) - 1), error)


def _ratio(part: float, whole: float, *, nothing: float = 0.0) -> float:
    """Divide; a part of nothing is infinite, nothing of nothing is `nothing`."""
    if whole:
        return part / whole
    return math.copysign(math.inf, part) if part else nothing


def _two_sided_p(difference: float, standard_error: float) -> float:
    return float(2.0 * special.ndtr(-abs(_ratio(difference, standard_error))))


def _spread_p(source: _Summary, target: _Summary) -> float:
    if not source.variance or not target.variance:
        return 1.0 if source.variance == target.variance else 0.0
    error = math.sqrt(source.variance_error + target.variance_error)
    return _two_sided_p(math.log(target.variance / source.variance), error)


def _shape_p(source: Floats, target: Floats) -> float:
    """Compare the samples at mean 0 and standard deviation 1."""
    if any((sample[1:] == sample[:-1]).any() for sample in (source, target)):
        values = np.unique(np.concatenate([source, target]))
        source, target = _untied(source, values), _untied(target, values)
    alike = [(sample - sample.mean()) / sample.std() for sample in (source, target)]
    return ks_p_value(ks_distance(alike[0], alike[1]), len(source), len(target))


def _untied(sample: Floats, values: Floats) -> Floats:
    """Spread equal values evenly halfway to their neighbours: else steps of two grids would pass for another shape."""
    middles = (values[1:] + values[:-1]) / 2
    edges = np.concatenate([[2 * values[0] - middles[0]], middles, [2 * values[-1] - middles[-1]]])
    index = np.searchsorted(values, sample)
    first = np.searchsorted(sample, sample)
    ties = np.searchsorted(sample, sample, side="right") - first
    part = (np.arange(len(sample)) - first + 0.5) / ties
    return np.asarray(edges[index] + part * (edges[index + 1] - edges[index]))


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


_LEAST_EXPECTED = 5.0
"""Below this many expected rows the chi-square approximation is poor (Cochran, Biometrics 10, 1954)."""


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
    if not len(source) or not len(target):
        return CategoryChange(math.nan, math.nan, [])
    counts = Counter(source.tolist()), Counter(target.tolist())
    both = counts[0] + counts[1]
    names = sorted(both, key=lambda name: (-both[name], name))
    table = np.array([[side[name] for side in counts] for name in names], dtype=float)
    shares = table / table.sum(axis=0)
    distance = float(np.abs(shares[:, 0] - shares[:, 1]).sum() / 2)
    levels = [Level(name, *pair) for name, pair in zip(names, shares.tolist(), strict=True)]
    return CategoryChange(distance, _chi_square_p(table), levels)


def _chi_square_p(table: Floats) -> float:
    rare = stats.contingency.expected_freq(table).min(axis=1) < _LEAST_EXPECTED
    merged = np.vstack([table[~rare], table[rare].sum(axis=0)]) if rare.any() else table
    if len(merged) < 2:
        return math.nan
    if len(merged) == 2:
        (hits, other_hits), (rest, other_rest) = merged.astype(int).tolist()
        return proportions_p_value(hits, hits + rest, other_hits, other_hits + other_rest)
    return float(stats.chi2_contingency(merged, correction=False).pvalue)


def proportions_p_value(hits: int, rows: int, other_hits: int, other_rows: int) -> float:
    """Return the p-value of two proportions being one: chi-square, or Fisher's exact test where hits are few.

    Examples
    --------
    >>> proportions_p_value(0, 100, 30, 100) < 1e-6, proportions_p_value(1, 10, 1, 10)
    (True, 1.0)
    """
    table = np.array([[hits, other_hits], [rows - hits, other_rows - other_hits]])
    if stats.contingency.expected_freq(table).min() < _LEAST_EXPECTED:
        return float(stats.fisher_exact(table).pvalue)
    return float(stats.chi2_contingency(table, correction=False).pvalue)


BINS = 32
LEVELS = 6
# The share of both samples together that is left out at either end of a histogram.
_CUT = 0.005


def histogram(source: Floats, target: Floats) -> Shape | None:
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
    edges = _whole_edges(low, high) if whole else _edges(low, high)
    shares = [_rounded(np.histogram(sample, edges)[0] / max(len(sample), 1)) for sample in (source, target)]
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
        _rounded(np.array([level.source for level in shown])),
        _rounded(np.array([level.target for level in shown])),
        names=[level.name for level in shown],
    )


def _edges(low: float, high: float) -> Floats:
    if not high > low:
        margin = abs(low) / 2 or 0.5
        low, high = low - margin, high + margin
    part = np.arange(BINS + 1) / BINS
    return np.asarray(low * (1.0 - part) + high * part)  # The difference of two huge numbers would overflow.


def _whole_edges(low: float, high: float) -> Floats:
    width = math.ceil((high - low + 1) / BINS)
    return np.asarray(low - 0.5 + width * np.arange(math.ceil((high - low + 1) / width) + 1))


def _rounded(shares: NDArray[Any]) -> list[float]:
    """Keep shares short: no drawing shows more."""
    return [round(share, 4) for share in shares.tolist()]

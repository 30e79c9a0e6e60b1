r"""One feature of numbers in two samples: how far their distributions are apart, and in what.

.. math:: D = \sup_t \lvert F_S(t) - F_T(t) \rvert

is the two-sample Kolmogorov-Smirnov statistic. Its p-value is that of the limit for large samples,

    N. Smirnov: Table for estimating the goodness of fit of empirical distributions. Annals of Mathematical Statistics
    19, 1948,

from eight rows on close to the exact one or somewhat above it, so that it does not find too much; the corrections in
use for one sample put it below the exact one where both samples have the same size. Tied values make it larger.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["NumberChange", "compare_numbers", "ks_distance", "ks_p_value"]

Floats = NDArray[np.float64]


class NumberChange(NamedTuple):
    """How one feature of numbers differs; NaN where a sample has no value."""

    distance: float
    p_value: float
    mean_source: float
    mean_target: float
    mean_shift: float
    """Target mean minus source mean, in pooled deviations."""
    deviation_ratio: float
    """Deviation in the target over that in the source."""
    location_p: float
    spread_p: float
    shape_p: float


class _Summary(NamedTuple):
    rows: int
    mean: float
    variance: float
    variance_error: float
    """Squared relative standard error of the variance, (kurtosis - 1) / rows."""


def compare_numbers(source: ArrayLike, target: ArrayLike) -> NumberChange:
    r"""Compare two samples of numbers without missing values, each in increasing order.

    With means :math:`m` and deviations :math:`s` of both samples, the standardised mean shift is

    .. math:: \frac{m_T - m_S}{\sqrt{(s_S^2 + s_T^2) / 2}}.

    Three further p-values say in what the samples differ: Welch's test of the means, a test of the logarithms of the
    variances with their standard error from the fourth moment, and, for the shape, the Kolmogorov-Smirnov test after
    each sample is brought to mean 0 and deviation 1, equal values spread halfway to their neighbours.

    Examples
    --------
    >>> change = compare_numbers([0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0])
    >>> change.distance, round(change.mean_shift, 2), change.deviation_ratio, round(change.shape_p, 2)
    (0.5, 1.55, 1.0, 1.0)
    """
    a, b = np.asarray(source, dtype=float), np.asarray(target, dtype=float)
    if not len(a) or not len(b):
        return NumberChange(*[math.nan] * 9)
    distance = ks_distance(a, b)
    # Powers of values as large as 1e200 would overflow.
    size = float(max(abs(a[0]), abs(a[-1]), abs(b[0]), abs(b[-1]))) or 1.0
    one, other = _summary(a / size), _summary(b / size)
    return NumberChange(
        distance,
        ks_p_value(distance, len(a), len(b)),
        one.mean * size,
        other.mean * size,
        _ratio(other.mean - one.mean, math.sqrt((one.variance + other.variance) / 2)),
        _ratio(math.sqrt(other.variance), math.sqrt(one.variance), nothing=1.0),
        _location_p(one, other),
        _spread_p(one, other),
        _shape_p(a / size, b / size) if one.variance and other.variance else 1.0,
    )


def ks_distance(source: Floats, target: Floats) -> float:
    """Return the largest difference of two empirical distribution functions; both samples in increasing order.

    Examples
    --------
    >>> ks_distance(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    0.5
    """
    places = np.concatenate([source, target])
    below = [np.searchsorted(sample, places, side="right") / len(sample) for sample in (source, target)]
    return float(np.abs(below[0] - below[1]).max())


def ks_p_value(distance: float, rows: int, other_rows: int) -> float:
    """Return the chance of a distance at least this large between two samples of one distribution."""
    root = math.sqrt(rows * other_rows / (rows + other_rows))
    return float(special.kolmogorov(root * distance))


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


def _two_sided(difference: float, error: float) -> float:
    return float(2.0 * special.ndtr(-abs(_ratio(difference, error))))


def _location_p(source: _Summary, target: _Summary) -> float:
    error = math.sqrt(source.variance / source.rows + target.variance / target.rows)
    return _two_sided(target.mean - source.mean, error)


def _spread_p(source: _Summary, target: _Summary) -> float:
    if not source.variance or not target.variance:
        return 1.0 if source.variance == target.variance else 0.0
    error = math.sqrt(source.variance_error + target.variance_error)
    return _two_sided(math.log(target.variance / source.variance), error)


def _shape_p(source: Floats, target: Floats) -> float:
    """Compare the samples at mean 0 and deviation 1."""
    if any((sample[1:] == sample[:-1]).any() for sample in (source, target)):
        values = np.unique(np.concatenate([source, target]))
        source, target = _untied(source, values), _untied(target, values)
    alike = [(sample - sample.mean()) / sample.std() for sample in (source, target)]
    return ks_p_value(ks_distance(alike[0], alike[1]), len(source), len(target))


def _untied(sample: Floats, values: Floats) -> Floats:
    """Spread equal values evenly halfway to their neighbours: else steps of two grids would pass for another shape."""
    middles = (values[1:] + values[:-1]) / 2
    edges = np.concatenate([[2 * values[0] - middles[0]], middles, [2 * values[-1] - middles[-1]]])
    place = np.searchsorted(values, sample)
    first = np.searchsorted(sample, sample)
    ties = np.searchsorted(sample, sample, side="right") - first
    part = (np.arange(len(sample)) - first + 0.5) / ties
    return np.asarray(edges[place] + part * (edges[place + 1] - edges[place]))

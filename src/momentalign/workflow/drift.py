r"""Drift: how far new rows have moved away from the target that a model was adapted to, by their moments alone.

Of each feature the shift of the mean, in standard deviations, and the ratio of the standard deviations are compared,

.. math:: d = \frac{|m' - m|}{s}, \qquad
          e^2 = \frac{1}{s^2} \Bigl( \frac{v}{n} + \frac{\max(v, v')}{n'} \Bigr),
          \qquad r = \tfrac12 \Bigl| \log \frac{v'}{v} \Bigr|,

with :math:`s^2` the mean of both variances, and the standard error of r from the fourth moments. A feature has drifted
where d exceeds a tenth, or r the logarithm of 1.25, by more than :math:`z e`; z is the normal quantile of one false
alarm in a hundred data sets, divided by the number of comparisons (Bonferroni). Significance alone would find a
difference in any two large files; size alone would find one in any small one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from momentalign.moments.streaming import Moments

__all__ = ["Drift", "FeatureDrift", "find_drift", "standardised_shift"]

Floats = NDArray[np.float64]

# What the smallest drift is that matters: in standard deviations, and as a factor of the standard deviation.
SMALLEST_SHIFT = 0.1
SMALLEST_RATIO = 1.25
FALSE_ALARMS = 0.01
# Fewer rows say nothing: their means are far from normal.
FEWEST_ROWS = 30
LISTED = 10
# Two constants that differ are infinitely many standard deviations apart; files hold finite numbers.
_LARGEST = 1e3
# Differences of this part of a mean are none: features are float32.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class FeatureDrift:
    """One feature that drifted: mean shift in standard deviations, and the ratio of those, new rows over target."""

    name: str
    mean_shift: float
    deviation_ratio: float


@dataclass(frozen=True)
class Drift:
    """What was found: drifted features, the largest first, and the root mean square shift beside what chance gives."""

    features: list[FeatureDrift]
    distance: float
    by_chance: float
    rows: int

    @property
    def found(self) -> bool:
        """Whether any feature drifted."""
        return bool(self.features)

    @property
    def message(self) -> str:
        """The warning in one sentence."""
        listed = ", ".join(f"{one.name!r} {_described(one)}" for one in self.features[:3])
        more = f" and {len(self.features) - 3} more" if len(self.features) > 3 else ""
        return (
            f"the data have drifted away from the target the model was adapted to: {listed}{more}; fit a model with "
            "these data as target."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain JSON, at most ten features."""
        return {
            "found": self.found,
            "features": [asdict(one) for one in self.features[:LISTED]],
            "drifted": len(self.features),
            "distance": self.distance,
            "by_chance": self.by_chance,
            "rows": self.rows,
        }


def find_drift(new: Moments, kept: Moments, names: Sequence[str]) -> Drift:
    """Compare the moments of new rows with those of the target a model was adapted to.

    Parameters
    ----------
    new, kept
        Moments of the new rows and of the target.
    names
        Names of the features.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> target, new = random.normal(size=(500, 2)), random.normal(size=(500, 2))
    >>> find_drift(Moments.of(new), Moments.of(target), ["a", "b"]).found
    False
    >>> find_drift(Moments.of(new + [0, 1]), Moments.of(target), ["a", "b"]).features[0].name
    'b'
    """
    shift, error = standardised_shift(kept, new), _shift_error(new, kept)
    ratio, ratio_error = _ratio(new, kept)
    quantile = -float(special.ndtri(FALSE_ALARMS / (4 * max(len(names), 1))))
    by_mean = np.abs(shift) - quantile * error - SMALLEST_SHIFT
    by_spread = np.abs(ratio) - quantile * ratio_error - math.log(SMALLEST_RATIO)
    excess = np.maximum(by_mean, by_spread)
    drifted = np.flatnonzero((excess > 0) & (new.count >= FEWEST_ROWS))
    order = drifted[np.argsort(-excess[drifted], kind="stable")]
    return Drift(
        [FeatureDrift(str(names[i]), float(shift[i]), float(np.exp(ratio[i]))) for i in order],
        float(np.sqrt(np.mean(shift**2))),
        float(np.sqrt(np.mean(error**2))),
        int(new.count),
    )


def standardised_shift(source: Moments, target: Moments) -> Floats:
    """Return the difference of the means, target minus source, in standard deviations, at most 1,000 either way."""
    step = target.mean - source.mean
    step = np.where(np.abs(step) <= _ROUNDING * np.abs(target.mean), 0.0, step)
    return _over(step, _scale(source, target))


def _scale(one: Moments, other: Moments) -> Floats:
    return np.asarray(np.sqrt((_variance(one) + _variance(other)) / 2))


def _variance(moments: Moments) -> Floats:
    """The variance of each feature, 0 where it is the rounding of a constant's mean."""
    variance = moments.central[0]
    return np.where(variance <= (_ROUNDING * moments.mean) ** 2, 0.0, variance)


def _over(part: Floats, scale: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(np.where(part == 0.0, 0.0, part / scale), -_LARGEST, _LARGEST)


def _shift_error(new: Moments, kept: Moments) -> Floats:
    before, after = _variance(kept), _variance(new)
    return _over(np.sqrt(before / kept.count + np.maximum(before, after) / new.count), _scale(kept, new))


def _ratio(new: Moments, kept: Moments) -> tuple[Floats, Floats]:
    """Return the logarithm of the ratio of standard deviations and its error; 0 where one of them is constant."""
    varies = (_variance(kept) > 0.0) & (_variance(new) > 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 0.5 * (np.log(new.central[0]) - np.log(kept.central[0]))
        # Few rows rarely show the tails of a distribution; the longer ones of the two are taken for both.
        tails = np.maximum(*(part.central[2] / part.central[0] ** 2 - 1.0 for part in (new, kept)))
        error = 0.5 * np.sqrt(np.maximum(tails, 0.0) * (1 / new.count + 1 / kept.count))
    return np.where(varies, ratio, 0.0), np.where(varies, error, 0.0)


def _described(feature: FeatureDrift) -> str:
    if abs(feature.mean_shift) >= _LARGEST:
        return f"by {'' if feature.mean_shift > 0 else '-'}{_LARGEST:,.0f} standard deviations or more"
    if abs(feature.mean_shift) >= SMALLEST_SHIFT:
        return f"by {feature.mean_shift:+.2f} standard deviations"
    return f"to {feature.deviation_ratio:.2f} times the standard deviation"

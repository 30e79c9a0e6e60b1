"""What a monitor says of one window: alarm or not, how far, and which features moved in which moment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

__all__ = ["FeatureChange", "Judgement"]

_LISTED = 3


@dataclass(frozen=True)
class FeatureChange:
    """One feature whose moments moved further than chance explains.

    Attributes
    ----------
    name
        Of the feature.
    order
        The lowest order that moved: a changed variance moves the fourth moment too.
    change
        Moment of the window minus that of the reference, in deviations of the reference to the power of the order: the
        shift of the mean in deviations, the relative change of the variance, the change of the skewness, and so on.
    strength
        The largest difference of any order in units of its threshold, above 1.
    """

    name: str
    order: int
    change: float
    strength: float

    @property
    def words(self) -> str:
        """The change in a few words."""
        if self.order == 1:
            return f"{self.name!r} by {self.change:+.2f} deviations"
        if self.order == 2:
            return f"{self.name!r} to {1.0 + self.change:.2f} times the variance"
        return f"{self.name!r} in order {self.order} by {self.change:+.2f}"


@dataclass(frozen=True)
class Judgement:
    """What was found in a window.

    Attributes
    ----------
    rows
        Rows seen when the window ended.
    statistic
        The largest difference of moments in units of its threshold; see :mod:`momentalign.monitoring.comparison`.
    p_value
        How seldom a window without drift is as far from the reference.
    terms
        The terms of the Central Moment Discrepancy of reference and window, features in [0, 1], orders 1 and up.
    features
        The features that moved, the one that moved most first; none if many moved a little.
    order
        The order in which the statistic was reached.
    """

    rows: int
    statistic: float
    p_value: float
    terms: tuple[float, ...]
    features: tuple[FeatureChange, ...]
    order: int

    threshold: ClassVar[float] = 1.0

    @property
    def alarm(self) -> bool:
        """Whether the window is further away than chance explains at the stated rate."""
        return self.statistic > self.threshold

    @property
    def distance(self) -> float:
        """The Central Moment Discrepancy of reference and window, features in [0, 1]."""
        return sum(self.terms)

    @property
    def words(self) -> str:
        """All in one sentence."""
        if not self.alarm:
            return f"no drift after {self.rows:,} rows (p = {self.p_value:.2g})."
        if not self.features:
            return (
                f"drift after {self.rows:,} rows (p = {self.p_value:.2g}): many features moved a little, together "
                f"{self.statistic:.2f} times the threshold in order {self.order}."
            )
        listed = ", ".join(feature.words for feature in self.features[:_LISTED])
        more = f" and {len(self.features) - _LISTED} more" if len(self.features) > _LISTED else ""
        return f"drift after {self.rows:,} rows (p = {self.p_value:.2g}): {listed}{more}."

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain JSON."""
        return {**asdict(self), "alarm": self.alarm, "distance": self.distance, "words": self.words}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Return what :meth:`to_dict` described; anything else raises KeyError, ValueError or the like."""
        features = tuple(
            FeatureChange(
                str(one["name"]),
                _whole(one["order"], "order", least=1),
                _number(one["change"], "change", least=-math.inf),
                _number(one["strength"], "strength"),
            )
            for one in description["features"]
        )
        return cls(
            rows=_whole(description["rows"], "rows", least=0),
            statistic=_number(description["statistic"], "statistic"),
            p_value=_number(description["p_value"], "p_value", most=1.0),
            terms=tuple(_number(term, "a term") for term in description["terms"]),
            features=features,
            order=_whole(description["order"], "order", least=1),
        )


def _whole(value: object, name: str, *, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{name} {value!r:.40}")
    return value


def _number(value: Any, name: str, *, least: float = 0.0, most: float = math.inf) -> float:
    # NaN lies between no two numbers.
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"{name} {value!r:.40}")
    return float(value)

"""DriftMonitor: watches the rows of a deployed model and says when their moments have left those of a reference.

What it says of a window is a :class:`Judgement`: alarm or not, how far, and which features moved in which moment.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.evaluation.target_accuracy import TargetEstimate
from momentalign.moments.centre import raw_moments
from momentalign.moments.readers import HIGHEST_ORDER
from momentalign.moments.streaming import Moments, described_array
from momentalign.monitoring.accuracy import StreamAccuracy
from momentalign.monitoring.statistics import (
    MOST_ROWS,
    Calibration,
    Differences,
    UnitInterval,
    calibrate,
    differences,
)
from momentalign.monitoring.window import MOST_STEPS, STEPS, Rows, Window, check_names, check_unit
from momentalign.report.monitoring import monitoring_page
from momentalign.report.page import write_page
from momentalign.validation import Floats, check_bool, check_generator, check_int, check_number

__all__ = ["DriftMonitor", "FeatureChange", "Judgement", "MonitorSettings"]


_FEWEST_ROWS = 100
_FEWEST_RESAMPLES = 1000
# So many resampled windows are expected beyond the threshold: its level is then known to a fifth.
_BEYOND = 20
_RATES = 1e-4, 0.5
# Features that a judgement lists by name.
_LISTED = 3
# Judgements that the page shows.
_KEPT = 1000
# Grows when a description means something that an older version would misread.
_VERSION = 1


class DriftMonitor:
    r"""Watches a stream of rows and raises an alarm when its moments leave those of a reference.

    The central moments of orders 1 to `order` of each feature, brought to [0, 1], are compared with those of the
    reference: all features together (the terms of the Central Moment Discrepancy, Zellinger et al. 2019, Eq. (23)) and
    each by itself, every difference in units of its spread by chance. The thresholds come from resampling the
    reference, its own sampling error included. Only moments of the stream are kept.

    Parameters
    ----------
    reference
        Rows of the target when the model was trained, (rows, width), at least 100: an array, a tensor, a data frame or
        a CSR matrix.
    window
        Rows that are compared with the reference at a time, a multiple of 10; the window moves in steps of a tenth.
    forgetting
        False: the window holds the last `window` rows, each as much as any other. True: old rows fade so that in effect
        `window` rows are remembered, and the first judgement comes after three windows.
    false_alarm_rate
        The probability that a window of rows from the distribution of the reference raises an alarm, over references
        and windows. Windows that overlap, or share the reference, are not independent of each other.
    order
        The highest order, 1 to 5.
    feature_names
        Names of the features; by default the columns of a data frame, or x0, x1, ...
    n_resamples
        How many windows are resampled, twice, for the thresholds; by default 20 / `false_alarm_rate`, at least 1,000.
    random_state
        What they are drawn with.
    model
        A fitted classifier with ``predict_proba`` and ``classes_`` for the rows of the stream. Every `window` rows a
        judgement then has the accuracy that is expected of it (:func:`~momentalign.estimate_accuracy`); for that the
        last rows are kept in memory.
    X, y
        Labelled rows that the model was not trained on, for instance of the source.

    Examples
    --------
    >>> import momentalign as ma
    >>> random = np.random.default_rng(1)
    >>> monitor = ma.DriftMonitor(random.normal(size=(2000, 3)), window=500, random_state=0)
    >>> monitor.update(random.normal(size=(400, 3)))  # The window is not full yet.
    >>> monitor.update(random.normal(size=(600, 3))).alarm
    False
    >>> monitor.update(random.normal([0.0, 0.5, 0.0], 1.0, size=(500, 3))).features[0].name
    'x1'
    """

    def __init__(
        self,
        reference: Any,
        *,
        window: int = 1000,
        forgetting: bool = False,
        false_alarm_rate: float = 0.01,
        order: int = 5,
        feature_names: Sequence[str] | None = None,
        n_resamples: int | None = None,
        random_state: int | np.random.Generator | None = None,
        model: Any = None,
        X: Any = None,
        y: ArrayLike | None = None,
    ) -> None:
        settings = MonitorSettings.checked(window, forgetting, false_alarm_rate, order, n_resamples)
        random = check_generator(random_state)
        rows = Rows(reference, "reference")
        if rows.count < _FEWEST_ROWS:
            raise InvalidInputError(
                f"reference has {rows.count} rows, too few to tell how much they vary; give at least {_FEWEST_ROWS}."
            )
        self._names = check_names(feature_names, rows)
        sample = rows.sample(MOST_ROWS, random, self._names)
        self._interval = UnitInterval.of(sample.astype(np.float64), single=sample.dtype == np.float32)
        self._reference = Moments(2 * settings.order)
        for block in rows.blocks(self._names):
            self._reference.update(self._interval.apply(block))
        self._calibration = calibrate(
            self._interval.apply(sample),
            (rows.count, settings.window),
            order=settings.order,
            rounding=self._interval.rounding,
            rate=settings.false_alarm_rate,
            n_resamples=settings.n_resamples,
            random=random,
        )
        self._start(settings)
        self._watch(model, X, y)

    def _watch(self, model: Any, X: Any, y: ArrayLike | None) -> None:
        self._accuracy = None
        if model is not None:
            self._accuracy = StreamAccuracy(model, X, y, self._names, self._settings.window)

    def _start(self, settings: MonitorSettings) -> None:
        """Set what follows from the reference."""
        self._settings = settings
        self._raw = raw_moments(np.zeros(len(self._names)), self._reference.central)
        # A constant has no standard deviation: its changes are told in its own units.
        spread = self._reference.deviation
        self._unit = np.where(spread > self._interval.rounding, spread, 1.0 / self._interval.length)
        self._window = Window(
            settings.window, order=2 * settings.order, forgetting=settings.forgetting, centre=self._reference.mean
        )
        self._last: Judgement | None = None
        self._history: deque[Judgement] = deque(maxlen=_KEPT)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self._names

    @property
    def rows(self) -> int:
        """Rows seen since the start or the last :meth:`reset`."""
        return self._window.rows

    @property
    def last(self) -> Judgement | None:
        """The latest judgement, None before the first."""
        return self._last

    @property
    def history(self) -> tuple[Judgement, ...]:
        """The last thousand judgements since the start, a restart or a :meth:`reset`."""
        return tuple(self._history)

    def update(self, batch: Any) -> Judgement | None:
        """Add rows of the stream, any number, and judge every window that they complete.

        How the stream is cut into batches changes no judgement, only which are returned: of several completed windows
        the one with the largest statistic. A batch with missing values is refused and changes nothing. Alarms repeat
        as long as the window is off.

        Parameters
        ----------
        batch
            Shape (rows, width), of any kind that the reference may have; columns of a data frame must have the names of
            the features.

        Returns
        -------
        Judgement or None
            None where no window was completed: the first is full after `window` rows, the next a tenth later.
        """
        rows = Rows(batch, "batch")
        rows.check_features(self._names)
        worst: Judgement | None = None
        for block in list(rows.blocks(self._names)):
            start, seen = 0, self.rows
            for window in self._window.add(self._interval.apply(block)):
                self._last = self._judge(window)
                if self._accuracy is not None:
                    self._accuracy.add(block[start : self.rows - seen])
                    start = self.rows - seen
                    self._last = replace(self._last, accuracy=self._accuracy.estimate())
                self._history.append(self._last)
                if worst is None or self._last.statistic > worst.statistic:
                    worst = self._last
            if self._accuracy is not None:
                self._accuracy.add(block[start:])
        return worst

    def reset(self) -> None:
        """Forget the stream, not the reference."""
        self._window.clear()
        self._history.clear()
        self._last = None
        if self._accuracy is not None:
            self._accuracy.clear()

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a page with the alarms and the expected accuracy over time, and return its path."""
        if not self._history:
            raise InvalidInputError("there is no judgement yet, so there is nothing to show; update() with more rows.")
        described = [judgement.to_dict() for judgement in self._history]
        return write_page(monitoring_page(described, sum(judgement.alarm for judgement in self._history)), path)

    def _judge(self, window: Floats) -> Judgement:
        counts = (int(self._reference.count), self._settings.window)
        found = differences(self._raw, window, counts, self._interval.rounding)
        parts = found.figures / self._calibration.thresholds
        statistic = float(parts.max())
        return Judgement(
            rows=self.rows,
            statistic=statistic,
            p_value=self._calibration.p_value(statistic),
            terms=tuple(np.sqrt((found.values**2).sum(axis=-1)).tolist()),
            features=self._changes(found) if statistic > Judgement.threshold else (),
            order=int(parts.argmax()) % self._settings.order + 1,
        )

    def _changes(self, found: Differences) -> tuple[FeatureChange, ...]:
        """The features beyond the threshold of any order, the one furthest beyond first."""
        strengths = np.abs(found.ratios) / self._calibration.thresholds[self._settings.order :, None]
        strongest = strengths.max(axis=0)
        moved = np.flatnonzero(strongest > Judgement.threshold)
        changes = []
        for index in moved[np.argsort(-strongest[moved], kind="stable")]:
            order = int(np.argmax(strengths[:, index] > Judgement.threshold)) + 1
            change = float(found.values[order - 1, index]) / self._unit[index] ** order
            changes.append(FeatureChange(self._names[index], order, float(change), float(strongest[index])))
        return tuple(changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the monitor and where it stands as plain JSON, to the last bit; it holds no rows, only moments.

        Examples
        --------
        >>> monitor = DriftMonitor(np.random.default_rng(0).random((200, 1)), window=50, random_state=0)
        >>> DriftMonitor.from_dict(monitor.to_dict())
        DriftMonitor(window=50, false_alarm_rate=0.01, order=5) of 1 features, 0 rows seen
        """
        return {
            "version": _VERSION,
            "settings": self._settings.to_dict(),
            "feature_names": list(self._names),
            "interval": self._interval.to_dict(),
            "reference": self._reference.to_dict(),
            "thresholds": self._calibration.thresholds.tolist(),
            "by_chance": self._calibration.by_chance.tolist(),
            "window": self._window.to_dict(),
            "last": None if self._last is None else self._last.to_dict(),
        }

    @classmethod
    def from_dict(
        cls, description: Mapping[str, Any], *, model: Any = None, X: Any = None, y: ArrayLike | None = None
    ) -> Self:
        """Return the monitor that :meth:`to_dict` described; it goes on as if it had never stopped.

        A description holds no rows and no model: give `model`, `X` and `y` again, and the expected accuracy is that of
        rows after the restart.

        Raises
        ------
        DamagedFileError
            If a value is missing, of another shape, or impossible.
        """
        monitor = cls.__new__(cls)
        try:
            monitor._restore(description)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DamagedFileError(
                f"this does not describe a DriftMonitor ({error}); make one from the reference."
            ) from error
        monitor._watch(model, X, y)
        return monitor

    def _restore(self, description: Mapping[str, Any]) -> None:
        version = description["version"]
        if type(version) is not int or version < 1:
            raise ValueError(f"version {version!r:.40}")
        if version > _VERSION:
            raise ValueError(f"version {version!r:.40}, this one reads {_VERSION}: upgrade momentalign")
        settings = MonitorSettings.checked(**description["settings"])
        self._names = tuple(description["feature_names"])
        width = len(self._names)
        if not all(isinstance(name, str) for name in self._names):
            raise TypeError("feature_names that are no strings")
        self._interval = UnitInterval.from_dict(description["interval"], width)
        self._reference = check_unit(Moments.from_dict(description["reference"]))
        if self._reference.order != 2 * settings.order or len(self._reference.mean) != width:
            raise ValueError(f"a reference of other features than {width}, or another order than {settings.order}")
        if type(self._reference.count) is not int or self._reference.count < _FEWEST_ROWS:
            raise ValueError(f"a reference of {self._reference.count!r:.40} rows")
        thresholds = described_array(description, "thresholds", (2 * settings.order,))
        by_chance = described_array(description, "by_chance", (settings.n_resamples,))
        if (thresholds <= 0.0).any() or (np.diff(by_chance) < 0.0).any():
            raise ValueError("thresholds below zero, or resampled windows out of order")
        self._calibration = Calibration(thresholds, by_chance)
        self._start(settings)
        self._window.restore(description["window"])
        self._last = None if description["last"] is None else Judgement.from_dict(description["last"])

    def __repr__(self) -> str:
        return f"DriftMonitor({self._settings}) of {len(self._names)} features, {self.rows:,} rows seen"


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
        Moment of the window minus that of the reference, in standard deviations of the reference to the power of the
        order: the shift of the mean in standard deviations, the relative change of the variance, the change of the
        skewness, and so on.
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
            return f"{self.name!r} by {self.change:+.2f} standard deviations"
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
        The largest difference of moments in units of its threshold; see :mod:`momentalign.monitoring.statistics`.
    p_value
        How seldom a window without drift is as far from the reference.
    terms
        The terms of the Central Moment Discrepancy of reference and window, features in [0, 1], orders 1 and up.
    features
        The features that moved, the one that moved most first; none if many moved a little.
    order
        The order in which the statistic was reached.
    accuracy
        The expected accuracy of the model on the last rows, with an interval of 90 %; None between two windows and
        without a model.
    """

    rows: int
    statistic: float
    p_value: float
    terms: tuple[float, ...]
    features: tuple[FeatureChange, ...]
    order: int
    accuracy: TargetEstimate | None = None

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
        found = f"{'drift' if self.alarm else 'no drift'} after {self.rows:,} rows (p = {self.p_value:.2g})"
        if self.features:
            listed = ", ".join(feature.words for feature in self.features[:_LISTED])
            more = f" and {len(self.features) - _LISTED} more" if len(self.features) > _LISTED else ""
            found += f": {listed}{more}"
        elif self.alarm:
            times = f"{self.statistic:.2f} times the threshold in order {self.order}"
            found += f": many features moved a little, together {times}"
        return f"{found}." if self.accuracy is None else f"{found}; expected accuracy {self.accuracy!r}."

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain JSON."""
        return {**asdict(self), "alarm": self.alarm, "distance": self.distance, "words": self.words}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Return what :meth:`to_dict` described; anything else raises KeyError, ValueError or the like."""
        features = tuple(
            FeatureChange(
                str(one["name"]),
                check_int(one["order"], "order", least=1),
                check_number(one["change"], "change"),
                check_number(one["strength"], "strength", least=0.0),
            )
            for one in description["features"]
        )
        return cls(
            rows=check_int(description["rows"], "rows", least=0),
            statistic=check_number(description["statistic"], "statistic", least=0.0),
            p_value=check_number(description["p_value"], "p_value", least=0.0, most=1.0),
            terms=tuple(check_number(term, "a term", least=0.0) for term in description["terms"]),
            features=features,
            order=check_int(description["order"], "order", least=1),
            accuracy=_estimate(description.get("accuracy")),
        )


def _estimate(description: Any) -> TargetEstimate | None:
    if description is None:
        return None
    value, low, high = (check_number(description[name], name) for name in ("value", "low", "high"))
    return TargetEstimate(value, low, high)


@dataclass(frozen=True)
class MonitorSettings:
    """What :class:`momentalign.monitoring.monitor.DriftMonitor` was told."""

    window: int
    forgetting: bool
    false_alarm_rate: float
    order: int
    n_resamples: int

    @classmethod
    def checked(
        cls, window: object, forgetting: object, false_alarm_rate: object, order: object, n_resamples: object
    ) -> Self:
        """Return checked settings, or say what is wrong with one.

        Examples
        --------
        >>> MonitorSettings.checked(1000, False, 0.01, 5, None).n_resamples
        2000
        """
        rows = check_int(window, "window", least=2 * STEPS, example=1000)
        if rows > MOST_STEPS:
            raise InvalidInputError(f"window has more rows than any stream, got {rows!r:.40}; try window=1000.")
        if rows % STEPS:
            raise InvalidInputError(
                f"window must be a multiple of {STEPS}, got {rows}; try window={rows + STEPS - rows % STEPS}."
            )
        rate = check_number(false_alarm_rate, "false_alarm_rate", least=_RATES[0], most=_RATES[1], example=0.01)
        least = math.ceil(1.0 / rate)
        resamples = max(_FEWEST_RESAMPLES, math.ceil(_BEYOND / rate)) if n_resamples is None else n_resamples
        return cls(
            rows,
            check_bool(forgetting, "forgetting"),
            rate,
            check_int(order, "order", least=1, most=HIGHEST_ORDER // 2, example=HIGHEST_ORDER // 2),
            check_int(resamples, "n_resamples", least=least, example=_BEYOND * least),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain JSON, in the names of :meth:`checked`."""
        return asdict(self)

    def __str__(self) -> str:
        fading = ", forgetting=True" if self.forgetting else ""
        return f"window={self.window}{fading}, false_alarm_rate={self.false_alarm_rate:g}, order={self.order}"

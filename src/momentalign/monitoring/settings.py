"""The settings of a monitor, checked."""

from __future__ import annotations

import math
import numbers
from dataclasses import asdict, dataclass
from typing import Any, Self

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.chunks import HIGHEST_ORDER
from momentalign.monitoring.window import STEPS

__all__ = ["MonitorSettings"]

_FEWEST_RESAMPLES = 1000
# So many resampled windows are expected beyond the threshold: its level is then known to a fifth.
_BEYOND = 20
_RATES = 1e-4, 0.5


@dataclass(frozen=True)
class MonitorSettings:
    """What :class:`momentalign.monitoring.monitor.DriftMonitor` was told."""

    window: int
    forgetting: bool
    false_alarm_rate: float
    order: int
    n_resamples: int

    @classmethod
    def read(
        cls, window: object, forgetting: object, false_alarm_rate: object, order: object, n_resamples: object
    ) -> Self:
        """Return checked settings, or say what is wrong with one.

        Examples
        --------
        >>> MonitorSettings.read(1000, False, 0.01, 5, None).n_resamples
        2000
        """
        rows = _whole(window, "window", 2 * STEPS, example=1000)
        if rows % STEPS:
            raise InvalidInputError(
                f"window must be a multiple of {STEPS}, got {rows}; try window={rows + STEPS - rows % STEPS}."
            )
        if not isinstance(forgetting, bool):
            raise InvalidTypeError(f"forgetting must be True or False, got {forgetting!r}.")
        rate = _rate(false_alarm_rate)
        least = math.ceil(1.0 / rate)
        resamples = max(_FEWEST_RESAMPLES, math.ceil(_BEYOND / rate)) if n_resamples is None else n_resamples
        return cls(
            rows,
            forgetting,
            rate,
            _whole(order, "order", 1, HIGHEST_ORDER // 2, example=HIGHEST_ORDER // 2),
            _whole(resamples, "n_resamples", least, example=_BEYOND * least),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain JSON, in the names of :meth:`read`."""
        return asdict(self)

    def __str__(self) -> str:
        fading = ", forgetting=True" if self.forgetting else ""
        return f"window={self.window}{fading}, false_alarm_rate={self.false_alarm_rate:g}, order={self.order}"


def _rate(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidTypeError(f"false_alarm_rate must be a number, got {value!r}; try false_alarm_rate=0.01.")
    if not _RATES[0] <= float(value) <= _RATES[1]:
        raise InvalidInputError(
            f"false_alarm_rate must lie between {_RATES[0]:g} and {_RATES[1]:g}, got {value!r}; try "
            "false_alarm_rate=0.01."
        )
    return float(value)


def _whole(value: object, name: str, least: int, most: float = math.inf, *, example: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidTypeError(f"{name} must be a whole number, got {value!r}; try {name}={example}.")
    if not least <= int(value) <= most:
        limit = f" and at most {most:g}" if math.isfinite(most) else ""
        raise InvalidInputError(f"{name} must be at least {least}{limit}, got {value!r}; try {name}={example}.")
    return int(value)

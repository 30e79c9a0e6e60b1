"""A measured figure and its bar, and how it is printed."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One figure; it passes when it lies within its bars."""

    benchmark: str
    figure: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the figure keeps its bars; NaN never does."""
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most) and self.value == self.value

    def line(self) -> str:
        """Return the figure as one JSON line."""
        return json.dumps({**asdict(self), "value": float(f"{self.value:.4g}"), "passed": self.passed})


def interleaved(functions: Mapping[str, Callable[[], object]], *, repeats: int, calls: int = 1) -> dict[str, float]:
    """Time functions in turns of some calls and return the median seconds a call; the first turn is not counted."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(repeats + 1):
        for name, function in functions.items():
            began = time.perf_counter()
            for _ in range(calls):
                function()
            if turn:
                times[name].append((time.perf_counter() - began) / calls)
    return {name: statistics.median(values) for name, values in times.items()}

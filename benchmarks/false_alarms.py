"""Drift monitors on streams without drift and with it: ``python -m benchmarks.false_alarms [PAIRS]``, JSON lines.

A pair is a new reference and a new window of the same distribution, so that the windows are independent and the number
of alarms is binomial; its bars hold a monitor of exactly the stated rate in all but 2 of 1,000 runs. Streams share one
reference: their rates vary from reference to reference and are averaged.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import momentalign as ma
from benchmarks.figure import Figure

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Floats]

PAIRS = 2000
RATE = 0.01
WINDOW = 1000
# Both tails together: one run in 500 of a monitor that keeps its rate misses a bar.
OUTSIDE = 0.002


def normal(random: np.random.Generator, rows: int, width: int) -> Floats:
    """Normal features."""
    return random.normal(size=(rows, width))


def heavy_tailed(random: np.random.Generator, rows: int, width: int) -> Floats:
    """Student's t with 5 degrees of freedom: the fifth moment is infinite."""
    return random.standard_t(5, size=(rows, width))


def sparse(random: np.random.Generator, rows: int, width: int) -> Floats:
    """Counts of which 95 % are zero."""
    return random.poisson(0.05, size=(rows, width)).astype(float)


def dependent(random: np.random.Generator, rows: int, width: int) -> Floats:
    """Skewed features with a common factor."""
    return np.asarray(np.exp(0.5 * (random.normal(size=(rows, width)) + random.normal(size=(rows, 1)))))


# Kind of features, width, rows of the reference.
CASES: tuple[tuple[Draw, int, int], ...] = (
    (normal, 1, 500),
    (normal, 10, 500),
    (normal, 50, 500),
    (heavy_tailed, 1, 500),
    (heavy_tailed, 10, 500),
    (heavy_tailed, 50, 500),
    (sparse, 1, 500),
    (sparse, 10, 500),
    (sparse, 50, 500),
    (dependent, 10, 500),
    (normal, 10, 5000),
)


def figures(pairs: int = PAIRS) -> Iterator[Figure]:
    """Yield the rates of false alarms, the rows until a drift is seen, and the speed."""
    for draw, width, rows in CASES:
        yield per_window(draw, width, rows, pairs)
    yield per_window(normal, 10, 5000, pairs // 4, forgetting=True)
    yield from per_stream()
    yield from delays()
    yield speed()


def per_window(draw: Draw, width: int, rows: int, pairs: int, *, forgetting: bool = False) -> Figure:
    """The share of independent pairs of reference and window that raise an alarm."""
    random = np.random.default_rng(0)
    length = 3 * WINDOW if forgetting else WINDOW
    settings = {"window": WINDOW, "false_alarm_rate": RATE, "n_resamples": 1000, "forgetting": forgetting}
    alarms = 0
    for _ in range(pairs):
        monitor = ma.DriftMonitor(draw(random, rows, width), random_state=random, **settings)
        monitor.update(draw(random, length, width))
        alarms += monitor.last.alarm
    low, high = stats.binom.ppf([OUTSIDE / 2, 1.0 - OUTSIDE / 2], pairs, RATE) / pairs
    fading = ", forgetting" if forgetting else ""
    name = f"{draw.__name__}, {width} features, {rows} reference rows{fading}: alarms per window of {WINDOW}"
    return Figure("false_alarms", name, alarms / pairs, at_least=low, at_most=high)


def per_stream(references: int = 20, windows: int = 50) -> Iterator[Figure]:
    """Streams without drift: alarms per window, and streams of ten windows' length with any alarm."""
    random = np.random.default_rng(1)
    alarms = []
    for _ in range(references):
        monitor = ma.DriftMonitor(normal(random, 5000, 10), window=WINDOW, false_alarm_rate=RATE, random_state=random)
        monitor.update(normal(random, WINDOW - 100, 10))
        alarms.append([monitor.update(normal(random, 100, 10)).alarm for _ in range(10 * windows)])
    found = np.array(alarms)
    name = f"normal, 10 features, {references} streams of {windows} windows: "
    yield Figure("false_alarms", f"{name}alarms per window", float(found.mean()), at_most=2.5 * RATE)
    runs = found.reshape(-1, 100).any(axis=1)
    yield Figure("false_alarms", f"{name}ten windows' length with any alarm", float(runs.mean()), at_most=0.6)


def shifted(rows: Floats) -> Floats:
    """The mean of one feature up by 0.3 deviations."""
    return rows + 0.3 * (np.arange(rows.shape[1]) == 4)


def stretched(rows: Floats) -> Floats:
    """The variance of one feature times 1.5."""
    return rows * np.where(np.arange(rows.shape[1]) == 4, 1.5**0.5, 1.0)


def skewed(rows: Floats) -> Floats:
    """One feature with the same mean and variance and a skewness of 1."""
    drawn = np.random.default_rng(7).gamma(4.0, size=len(rows))
    return np.where(np.arange(rows.shape[1]) == 4, (drawn[:, None] - 4.0) / 2.0, rows)


def delays(streams: int = 20) -> Iterator[Figure]:
    """Rows of drift until nine of ten streams raise an alarm that names the feature and the order."""
    for order, change in enumerate((shifted, stretched, skewed), start=1):
        random = np.random.default_rng(2)
        rows = [_delay(random, change, order) for _ in range(streams)]
        name = f"one of 10 features {change.__name__}: rows until 90 % of streams name it and order {order}"
        yield Figure("false_alarms", name, float(np.quantile(rows, 0.9, method="higher")), at_most=WINDOW)


def _delay(random: np.random.Generator, change: Callable[[Floats], Floats], order: int) -> float:
    monitor = ma.DriftMonitor(normal(random, 5000, 10), window=WINDOW, n_resamples=1000, random_state=random)
    monitor.update(normal(random, WINDOW, 10))
    stream = change(normal(random, 2 * WINDOW, 10))
    for start in range(0, len(stream), 100):
        found = monitor.update(stream[start : start + 100])
        if found is not None and [(one.name, one.order) for one in found.features[:1]] == [("x4", order)]:
            return start + 100
    return np.inf


def speed() -> Figure:
    """Rows a second of one core, 50 features in batches of 1,000."""
    random = np.random.default_rng(3)
    monitor = ma.DriftMonitor(normal(random, 2000, 50), n_resamples=1000, random_state=0)
    stream = normal(random, 100_000, 50)
    monitor.update(stream[:2000])
    began = time.process_time()
    for start in range(0, len(stream), 1000):
        monitor.update(stream[start : start + 1000])
    rate = len(stream) / (time.process_time() - began)
    return Figure("false_alarms", "rows a second of one core, 50 features", rate, at_least=100_000)


if __name__ == "__main__":
    misses = 0
    for figure in figures(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS):
        print(figure.line(), flush=True)
        misses += not figure.passed
    sys.exit(int(misses > 0))

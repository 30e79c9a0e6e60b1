"""How the cost of a distance grows with rows and width: exponents over two decades, forward and backward.

``python -m benchmarks growth`` prints the exponents; ``python -m benchmarks.growth FILE`` draws the figure of the docs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from markupsafe import Markup
from torch import Tensor

import momentalign as ma
from benchmarks.distances import samples, step
from benchmarks.figure import Figure, interleaved
from momentalign.report.svg import Frame, Picture, axes, label, line, marks, mosaic, standalone

ROWS_WIDTH, WIDTHS_ROWS = 32, 500


class Series(NamedTuple):
    """One distance over growing sizes."""

    name: str
    distance: Callable[[Tensor, Tensor], Tensor]
    sizes: tuple[int, ...]
    css: str


# Each range begins where the work outweighs the fixed cost of a call, and spans two decades.
OVER_ROWS = (
    Series("CMD", ma.cmd, (10_000, 32_000, 100_000, 320_000, 1_000_000), "ma-mann"),
    Series("CORAL", ma.coral, (10_000, 32_000, 100_000, 320_000, 1_000_000), "ma-source"),
    Series("MMD", lambda s, t: ma.mmd(s, t, beta=1.0), (80, 250, 800, 2_500, 8_000), "ma-target"),
)
OVER_WIDTH = (
    Series("CMD", ma.cmd, (600, 2_000, 6_000, 20_000, 60_000), "ma-mann"),
    Series("CORAL", ma.coral, (80, 250, 800, 2_500, 8_000), "ma-source"),
    Series("MMD", lambda s, t: ma.mmd(s, t, beta=1.0), (600, 2_000, 6_000, 20_000, 60_000), "ma-target"),
)


def figures() -> Iterator[Figure]:
    """Yield the exponent of each distance, in rows and in width; CMD is to be linear in both."""
    for series, seconds in measure(OVER_ROWS, by_rows=True):
        yield _figure(series, seconds, f"in rows, {_range(series)} x {ROWS_WIDTH}")
    for series, seconds in measure(OVER_WIDTH, by_rows=False):
        yield _figure(series, seconds, f"in width, {WIDTHS_ROWS} x {_range(series)}")


def measure(every: tuple[Series, ...], *, by_rows: bool) -> Iterator[tuple[Series, list[float]]]:
    """Yield each series with its seconds, one thread, sizes in turns."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for series in every:
            pairs = {
                size: samples(size, ROWS_WIDTH) if by_rows else samples(WIDTHS_ROWS, size) for size in series.sizes
            }
            steps = {str(size): step(series.distance, *pair) for size, pair in pairs.items()}
            yield series, list(interleaved(steps, repeats=3).values())
    finally:
        torch.set_num_threads(threads)


def exponent(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Slope of the line through the points on logarithmic axes."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _figure(series: Series, seconds: list[float], words: str) -> Figure:
    bars = {"at_least": 0.9, "at_most": 1.1} if series.name == "CMD" else {}
    return Figure("growth", f"{series.name}, exponent {words}", exponent(series.sizes, seconds), **bars)


def _range(series: Series) -> str:
    return f"{series.sizes[0]} to {series.sizes[-1]}"


def draw() -> Picture:
    """Both panels, milliseconds over rows and over width on logarithmic axes."""
    rows = _panel(list(measure(OVER_ROWS, by_rows=True)), f"rows, width {ROWS_WIDTH}")
    widths = _panel(list(measure(OVER_WIDTH, by_rows=False)), f"width, {WIDTHS_ROWS} rows")
    title = "Time of CMD, CORAL and MMD over the number of rows (left) and over the width (right), logarithmic axes"
    return mosaic(title, [[rows, widths]])


def _panel(measured: list[tuple[Series, list[float]]], x_label: str) -> Picture:
    frame = Frame(x_range=(1.5, 6.3), y_range=(-1, 4), width=380, height=300, left=58, right=70, top=26, bottom=40)
    decades = [(at, f"10{digit}") for at, digit in zip(range(2, 7), "²³⁴⁵⁶", strict=True)]
    times = [(at, words) for at, words in zip(range(-1, 5), ("0.1", "1", "10", "100", "1,000", "10,000"), strict=True)]
    parts = [axes(frame, x_ticks=decades, y_ticks=times, x_label=x_label, y_label="ms, forward and backward")]
    for series, seconds in measured:
        x, y = frame.x(np.log10(series.sizes)), frame.y(np.log10(seconds) + 3.0)
        parts += [line(x, y, f"ma-line {series.css}"), marks(x, y, "h0", f"ma-run {series.css}")]
        words = f"{series.name} {exponent(series.sizes, seconds):.2f}"
        inside = series.sizes[-1] < max(other.sizes[-1] for other, _ in measured)
        shift, anchor = (-10, "end") if inside else (8, "start")
        parts.append(label(float(x[-1]) + shift, float(y[-1]) + 4, words, anchor=anchor))
    return Picture(frame.width, frame.height, x_label, Markup("").join(parts))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(standalone(draw()), encoding="utf-8")

"""The report's charts, pure functions from numbers to pictures: densities, bars, curves and a strip of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from momentalign.report.shallow import density
from momentalign.report.svg import Frame, Picture, area, axes, label, line, marks, number, path, rule, ticks

__all__ = ["Curve", "Strip", "bars", "curves", "density_panel", "strip"]

DIAMOND = "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z"


class Curve(NamedTuple):
    """One line of a chart; `css` names its colour and dash."""

    x: Sequence[float]
    y: Sequence[float]
    css: str


class Strip(NamedTuple):
    """One row of a strip chart: a value per run, their median, and the one value of the paper if it has one."""

    name: str
    values: Sequence[float]
    median: float
    paper: float | None
    css: str


def density_panel(
    source: ArrayLike,
    target: ArrayLike,
    *,
    heading: str,
    note: str,
    title: str,
    width: float = 200,
    height: float = 128,
) -> Picture:
    """Draw the densities of one unit's activations in both domains over [0, 1]."""
    at = _where(source, target)
    heights = [density(source, at), density(target, at)]
    top = 1.06 * max(float(values.max()) for values in heights)
    frame = Frame(x_range=(0, 1), y_range=(0, top), width=width, height=height, left=8, right=8, top=24, bottom=20)
    parts = [label(8, 14, heading, "ma-heading", anchor="start"), label(width - 8, 14, note, anchor="end")]
    for css, values in zip(("ma-source", "ma-target"), heights, strict=True):
        x, y = frame.x(at), frame.y(values)
        parts += [area(x, y, frame.floor, f"ma-area {css}"), line(x, y, f"ma-line {css}")]
    parts.append(axes(frame, x_ticks=[(0, "0"), (0.5, "0.5"), (1, "1")]))
    return Picture(width, height, title, Markup("").join(parts))


def bars(names: Sequence[str], before: Sequence[float], after: Sequence[float], *, title: str) -> Picture:
    """Draw two bars per name, before above after, with their values."""
    row, thick = 44, 14
    frame = Frame(
        x_range=(0, max(*before, *after, 1e-12)),
        y_range=(0, 1),
        left=86,
        right=62,
        top=4,
        bottom=4,
        height=row * len(names) + 8,
    )
    parts = []
    for index, (name, *pair) in enumerate(zip(names, before, after, strict=True)):
        middle = frame.top + row * (index + 0.5)
        parts.append(label(frame.left - 10, middle + 4, name, anchor="end"))
        for shift, value, css in zip((-thick - 1, 1), pair, ("ma-nn", "ma-mann"), strict=True):
            end = float(frame.x(value))
            parts.append(_bar(frame.left, middle + shift, end - frame.left, thick, f"ma-bar {css}"))
            parts.append(label(end + 6, middle + shift + 11, f"{value:.4f}", anchor="start"))
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def curves(
    series: Sequence[Curve], *, title: str, y_range: tuple[float, float], switch: float, percent: bool = False
) -> Picture:
    """Draw lines over epochs; a dashed rule stands where the alignment begins."""
    last = max(max(curve.x) for curve in series)
    frame = Frame(x_range=(0, last), y_range=y_range, width=360, height=244, left=52, right=26, top=12, bottom=40)
    x_ticks = [(at, f"{at:,.0f}") for at in ticks(0, last, count=3)]
    y_ticks = [(at, f"{100 * at:.0f} %" if percent else f"{at:g}") for at in ticks(*y_range)]
    parts = [axes(frame, x_ticks=x_ticks, y_ticks=y_ticks, x_label="epoch")]
    if 0 < switch < last:
        parts.append(rule(float(frame.x(switch)), frame.top, float(frame.x(switch)), frame.floor, "ma-switch"))
    parts += [line(frame.x(curve.x), frame.y(curve.y), f"ma-line {curve.css}") for curve in series]
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def strip(rows: Sequence[Strip], *, title: str) -> Picture:
    """Draw every run of every row as a dot, the median as a stroke and the paper's one run as a diamond."""
    every = [value for row in rows for value in (*row.values, row.paper) if value is not None]
    low = np.floor(20 * min(every) - 0.2) / 20
    frame = Frame(
        x_range=(low, 1), y_range=(0, len(rows)), height=54 * len(rows) + 44, left=58, right=22, top=4, bottom=40
    )
    x_ticks = [(at, f"{100 * at:.0f} %") for at in ticks(low, 1, count=4)]
    parts = [axes(frame, x_ticks=x_ticks, x_label="accuracy on the target")]
    for index, row in enumerate(rows):
        middle = float(frame.y(len(rows) - index - 0.5))
        across, median = frame.x(row.values), float(frame.x(row.median))
        parts.append(label(frame.left - 10, middle + 4, row.name, "ma-heading", anchor="end"))
        parts.append(rule(frame.left, middle, frame.right_edge, middle, "ma-rule"))
        parts.append(marks(across, np.full(len(across), middle), "h0", f"ma-run {row.css}"))
        parts.append(rule(median, middle - 14, median, middle + 14, f"ma-median {row.css}"))
        if row.paper is not None:
            parts.append(marks([float(frame.x(row.paper))], [middle], DIAMOND, "ma-paper"))
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def _where(source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
    """Return points of [0, 1] to evaluate densities at: evenly spread, and closer where activations are many."""
    even = np.linspace(0, 1, 61)
    dense = np.quantile([*np.asarray(source), *np.asarray(target)], even)
    return np.unique(np.concatenate([even, np.round(dense, 4)]))


def _bar(x: float, y: float, width: float, height: float, css: str) -> Markup:
    """Return one bar, a hair wide at least."""
    return path(f"M{number(x)} {number(y)}h{number(max(width, 1))}v{number(height)}H{number(x)}z", css)

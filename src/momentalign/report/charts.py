"""Charts that several pages draw, pure functions from numbers to pictures: bars and densities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from momentalign.report.svg import Frame, Picture, area, axes, label, line, number, path, rule
from momentalign.validation import Floats

__all__ = ["NARROWEST", "BarGroup", "bars", "density", "density_panel", "shortened"]


NARROWEST = 0.006
"""The smallest bandwidth: a saturated unit is drawn as a narrow peak, not as a needle without area."""
_THICK, _GAP, _LONGEST = 14, 1, 18


class BarGroup(NamedTuple):
    """A name with one bar for each value, one under the other, and perhaps a stroke at a limit."""

    name: str
    values: Sequence[float]
    limit: float | None = None


def bars(
    groups: Sequence[BarGroup],
    *,
    css: Sequence[str],
    title: str,
    write: Callable[[float], str] = "{:.4f}".format,
) -> Picture:
    """Draw horizontal bars with their values; those below zero go to the left of a common line.

    Parameters
    ----------
    groups
        The bars, from top to bottom.
    css
        The class that colours the first, second, ... bar of every group.
    title
        What a screen reader says.
    write
        How a value is written at the end of its bar.
    """
    names = [shortened(entry.name, _LONGEST) for entry in groups]
    every = [value for entry in groups for value in (*entry.values, *([] if entry.limit is None else [entry.limit]))]
    low, high = min(0.0, *every), max(0.0, *every)
    names_width = 20 + 7.2 * max(map(len, names))
    limits = any(entry.limit is not None for entry in groups)
    height = len(css) * (_THICK + _GAP) + (30 if limits else 12)
    frame = Frame(
        x_range=(low, high if high > low else 1.0),
        y_range=(0, 1),
        left=names_width + (48 if low < 0.0 else 0),
        right=62,
        top=4,
        bottom=4,
        height=height * len(groups) + 8,
    )
    zero = float(frame.x(0.0))
    parts = []
    for index, (name, entry) in enumerate(zip(names, groups, strict=True)):
        middle = frame.top + height * (index + 0.5)
        parts.append(label(names_width - 10, middle + 4, name, anchor="end"))
        limit = zero if entry.limit is None else float(frame.x(entry.limit))
        first = middle - (len(css) * (_THICK + _GAP) - _GAP) / 2
        for bar, (value, colour) in enumerate(zip(entry.values, css, strict=True)):
            top, end = first + bar * (_THICK + _GAP), float(frame.x(value))
            # A bar of no length is still a hair wide.
            corner = f"M{number(min(zero, end))} {number(top)}"
            parts.append(
                path(
                    f"{corner}h{number(max(abs(end - zero), 1))}v{_THICK}H{number(min(zero, end))}z", f"ma-bar {colour}"
                )
            )
            if value < 0.0:
                parts.append(label(end - 6, top + 11, write(value), anchor="end"))
            else:
                parts.append(label(max(end, limit) + 6, top + 11, write(value), anchor="start"))
        if entry.limit is not None:
            parts.append(rule(limit, middle - 9, limit, middle + 9, "ma-median ma-source"))
    if low < 0.0:
        parts.append(rule(zero, frame.top, zero, frame.floor, "ma-axis"))
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def shortened(text: str, most: int) -> str:
    """Cut a text to at most so many letters.

    Examples
    --------
    >>> shortened("temperature", 8)
    'tempera…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
    # Evenly spread points, and more of them where activations are many.
    even = np.linspace(0, 1, 61)
    dense = np.quantile([*np.asarray(source), *np.asarray(target)], even)
    at = np.unique(np.concatenate([even, np.round(dense, 4)]))
    heights = [density(source, at), density(target, at)]
    top = 1.06 * max(float(values.max()) for values in heights)
    frame = Frame(x_range=(0, 1), y_range=(0, top), width=width, height=height, left=8, right=8, top=24, bottom=20)
    parts = [label(8, 14, heading, "ma-heading", anchor="start"), label(width - 8, 14, note, anchor="end")]
    for css, values in zip(("ma-source", "ma-target"), heights, strict=True):
        x, y = frame.x(at), frame.y(values)
        parts += [area(x, y, frame.floor, f"ma-area {css}"), line(x, y, f"ma-line {css}")]
    parts.append(axes(frame, x_ticks=[(0, "0"), (0.5, "0.5"), (1, "1")]))
    return Picture(width, height, title, Markup("").join(parts))


def density(sample: ArrayLike, at: ArrayLike) -> Floats:
    r"""Return the Gaussian kernel density estimate of a sample with Scott's bandwidth.

    .. math:: \hat f(t) = \frac{1}{n h} \sum_{i=1}^n \varphi\Big(\frac{t - x_i}{h}\Big), \qquad h = s\, n^{-1/5}

    Examples
    --------
    >>> at = np.linspace(-1, 2, 301)
    >>> round(float(density([0.2, 0.4, 0.9], at).sum() * 0.01), 2)
    1.0
    """
    values = np.asarray(sample, dtype=float)
    width = max(float(values.std(ddof=1)) * len(values) ** -0.2, NARROWEST)
    distances = (np.asarray(at, dtype=float)[:, None] - values) / width
    return np.asarray(np.exp(-0.5 * distances**2).mean(axis=1) / (width * np.sqrt(2 * np.pi)))

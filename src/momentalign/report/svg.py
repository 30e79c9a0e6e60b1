"""A few strokes of SVG: a frame that maps data to the picture, axes, lines, areas, marks and densities.

Every figure of the report is drawn with these. Colours and fonts come from classes in ``templates/figure.css``, so that
one drawing serves light, dark and print.
"""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike

from momentalign.files import replace_file
from momentalign.validation import Floats

__all__ = [
    "DIAMOND",
    "NARROWEST",
    "Frame",
    "Picture",
    "area",
    "axes",
    "clipped",
    "density",
    "density_panel",
    "group",
    "label",
    "line",
    "marks",
    "mosaic",
    "number",
    "path",
    "rule",
    "shortened",
    "standalone",
    "ticks",
]

DIAMOND = "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z"
"""A stroke for :func:`marks`."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The plotting area of a picture: data ranges, size and margins in picture units.

    Examples
    --------
    >>> frame = Frame(x_range=(0, 10), y_range=(0, 1), width=120, height=80, left=10, right=10, top=10, bottom=10)
    >>> frame.x([0, 5]).tolist(), frame.y([0, 1]).tolist()
    ([10.0, 60.0], [70.0, 10.0])
    """

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: float = 440
    height: float = 300
    left: float = 40
    right: float = 10
    top: float = 10
    bottom: float = 36

    @property
    def right_edge(self) -> float:
        """Where the plotting area ends on the right."""
        return self.width - self.right

    @property
    def floor(self) -> float:
        """Where the plotting area ends below."""
        return self.height - self.bottom

    def x(self, values: ArrayLike) -> Floats:
        """Map data to horizontal positions."""
        low, high = self.x_range
        return self.left + (np.asarray(values, dtype=float) - low) / (high - low) * (self.right_edge - self.left)

    def y(self, values: ArrayLike) -> Floats:
        """Map data to vertical positions, upwards."""
        low, high = self.y_range
        return self.floor - (np.asarray(values, dtype=float) - low) / (high - low) * (self.floor - self.top)


def number(value: float) -> str:
    """Write a coordinate with one decimal, as short as it gets.

    Examples
    --------
    >>> number(3.04), number(-0.01), number(12.26)
    ('3', '0', '12.3')
    """
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def ticks(low: float, high: float, *, count: int = 5) -> list[float]:
    """Return about `count` round numbers from `low` to `high`.

    Examples
    --------
    >>> ticks(0, 0.83)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


class Picture(NamedTuple):
    """A whole picture; `title` is what a screen reader says in its place."""

    width: float
    height: float
    title: str
    content: Markup

    def __repr__(self) -> str:
        return f"<Picture: {self.title}>"

    def __html__(self) -> Markup:
        """Return the picture as an element of a page."""
        return Markup('<svg class="ma-figure" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            number(self.width), number(self.height), self.title, self.content
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        # An image keeps the style of the picture to itself.
        encoded = base64.b64encode(standalone(self).encode()).decode()
        image = '<img style="max-width: 100%; height: auto" width="{}" alt="{}" src="data:image/svg+xml;base64,{}">'
        return str(Markup(image).format(number(self.width), self.title, encoded))  # noqa: S704  # nosec B704 (the arguments are escaped)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to an SVG file, whole or not at all, and return its path."""
        goal = Path(path)
        replace_file(goal, standalone(self).encode())
        return goal


def mosaic(title: str, rows: Sequence[Sequence[Picture]], *, gap: float = 16) -> Picture:
    """Set pictures of one size in rows and columns of one picture."""
    first = rows[0][0]
    across, down = first.width + gap, first.height + gap
    placed = [
        Markup('<g transform="translate({} {})">{}</g>').format(number(i * across), number(j * down), picture.content)
        for j, row in enumerate(rows)
        for i, picture in enumerate(row)
    ]
    return Picture(max(map(len, rows)) * across - gap, len(rows) * down - gap, title, Markup("").join(placed))


def standalone(picture: Picture) -> str:
    """Return a picture as the text of an SVG file: with the namespace, a size and the figure style inside."""
    style = files("momentalign.report").joinpath("templates", "figure.css").read_text(encoding="utf-8")
    size = f'width="{number(picture.width)}" height="{number(picture.height)}"'
    head, _, rest = str(picture.__html__()).partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg" {size}><style>\n{style}</style>{rest}\n'


def group(css: str, children: Iterable[Markup], *, layer: str = "") -> Markup:
    """Return a group of shapes; a named `layer` can be shown and hidden on the page."""
    attribute = Markup(' data-layer="{}"').format(layer) if layer else ""
    return Markup('<g class="{}"{}>{}</g>').format(css, attribute, Markup("").join(children))


def line(x: ArrayLike, y: ArrayLike, css: str) -> Markup:
    """Return an open line through picture points; points that are not finite are left out."""
    return path(_run(*_finite(x, y)), css)


def area(x: ArrayLike, y: ArrayLike, floor: float, css: str) -> Markup:
    """Return the area between a line through picture points and `floor`."""
    left, right = np.asarray(x, dtype=float)[[0, -1]]
    return path(f"{_run(*_finite(x, y))}L{number(right)} {number(floor)}L{number(left)} {number(floor)}Z", css)


def marks(x: ArrayLike, y: ArrayLike, stroke: str, css: str) -> Markup:
    """Return one path that repeats a relative `stroke` at every picture point: far shorter than one element each."""
    return path("".join(f"M{number(a)} {number(b)}{stroke}" for a, b in zip(*_finite(x, y), strict=True)), css)


def path(commands: str, css: str) -> Markup:
    """Return one path element."""
    return Markup('<path class="{}" d="{}"/>').format(css, commands)


def rule(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    """Return one straight line."""
    return path(f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", css)


def label(x: float, y: float, text: str, css: str = "ma-label", *, anchor: str = "middle") -> Markup:
    """Return a text at a picture point; `anchor` is start, middle or end."""
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        css, number(x), number(y), anchor, escape(text)
    )


def clipped(frame: Frame, children: Iterable[Markup]) -> Markup:
    """Cut shapes off at the edges of the plotting area (a nested picture does so without an id that could clash)."""
    box = [frame.left, frame.top, frame.right_edge - frame.left, frame.floor - frame.top]
    x, y, width, height = (number(value) for value in box)
    return Markup('<svg x="{0}" y="{1}" width="{2}" height="{3}" viewBox="{0} {1} {2} {3}">{4}</svg>').format(
        x, y, width, height, Markup("").join(children)
    )


def axes(
    frame: Frame,
    *,
    x_ticks: Sequence[tuple[float, str]] = (),
    y_ticks: Sequence[tuple[float, str]] = (),
    x_label: str = "",
    y_label: str = "",
) -> Markup:
    """Return a floor line, light rules at the vertical ticks, tick labels, and the names of both axes."""
    parts = [rule(frame.left, float(frame.y(at)), frame.right_edge, float(frame.y(at)), "ma-rule") for at, _ in y_ticks]
    parts.append(rule(frame.left, frame.floor, frame.right_edge, frame.floor, "ma-axis"))
    parts += [label(frame.left - 6, float(frame.y(at)) + 4, text, anchor="end") for at, text in y_ticks]
    parts += [label(float(frame.x(at)), frame.floor + 16, text) for at, text in x_ticks]
    if x_label:
        parts.append(label((frame.left + frame.right_edge) / 2, frame.floor + 32, x_label))
    if y_label:
        parts.append(label(frame.left, frame.top - 8, y_label, anchor="start"))
    return Markup("").join(parts)


def _finite(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Return the points whose two coordinates are finite."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    keep = np.isfinite(x) & np.isfinite(y)
    return x[keep], y[keep]


def _run(x: Floats, y: Floats) -> str:
    """Return the path commands of a line through all points."""
    return "M" + "L".join(f"{number(a)} {number(b)}" for a, b in zip(x, y, strict=True))


NARROWEST = 0.006
"""The smallest bandwidth: a saturated unit is drawn as a narrow peak, not as a needle without area."""


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

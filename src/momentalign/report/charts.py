"""The report's charts, pure functions from numbers to pictures: densities, bars, curves and a strip of runs.

The hidden units of the shown run: how their activations differ between source and target, before and after.

Stands for Fig. 4 of Zellinger et al. (2019).

Decision boundaries over both domains, as the two panels of Fig. 3 in Zellinger et al. (2019) show them.

Small images as one picture inside the page: a row of them as a PNG, written with the standard library.

PNG (Portable Network Graphics), W3C Recommendation, 2003: chunks with a length, a name and a checksum around rows of
pixels, each of which may be written as differences to its neighbours.

The shallow network of Algorithm 1, evaluated from its weights alone, and the densities of its hidden units.

Stands for the hidden activations of Section 5 and their kernel density estimates in Fig. 4 of Zellinger et al. (2019).
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from contourpy import FillType, contour_generator
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from momentalign.errors import InvalidInputError
from momentalign.report.page import Bar, Choice, Sign, figure, heading, key, picker, row, text
from momentalign.report.svg import Frame, Picture, area, axes, group, label, line, marks, number, path, rule, ticks

__all__ = [
    "DOT",
    "MARKS",
    "NAMES",
    "RING",
    "Curve",
    "Strip",
    "activations",
    "bars",
    "boundary_panel",
    "curves",
    "density",
    "density_panel",
    "most_different",
    "p_words",
    "png",
    "predictions",
    "scores",
    "sprite",
    "strip",
    "unit_panel",
    "units_parts",
]

Pixels = NDArray[np.uint8]

SIDE = 32


def sprite(images: Sequence[str]) -> str:
    """Return images of 32 x 32 pixels side by side as the address of one picture.

    Parameters
    ----------
    images
        Bytes (3, 32, 32), red, green and blue, in hexadecimal.

    Examples
    --------
    >>> sprite(["ff" * 3072])[:40]
    'data:image/png;base64,iVBORw0KGgoAAAANSU'
    """
    row = np.concatenate([_pixels(image, place) for place, image in enumerate(images)], axis=1)
    return f"data:image/png;base64,{base64.b64encode(png(row)).decode('ascii')}"


def png(pixels: Pixels) -> bytes:
    """Return pixels (height, width, 3) as a PNG file.

    Examples
    --------
    >>> png(np.zeros((2, 2, 3), np.uint8))[1:4]
    b'PNG'
    """
    height, width, _ = pixels.shape
    rows = pixels.reshape(height, -1)
    left = rows - np.pad(rows, ((0, 0), (3, 0)))[:, :-3]
    above = rows - np.pad(rows, ((1, 0), (0, 0)))[:-1]
    # The number before each row says what it is a difference to: nothing, the pixel at its left, the one above.
    forms = [np.insert(values, 0, kind, axis=1) for kind, values in enumerate((rows, left, above))]
    smallest = min((zlib.compress(form.tobytes(), 9) for form in forms), key=len)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", smallest), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _pixels(image: str, place: int) -> Pixels:
    """Return one image as (32, 32, 3)."""
    try:
        return np.frombuffer(bytes.fromhex(image), np.uint8).reshape(3, SIDE, SIDE).transpose(1, 2, 0)
    except ValueError:
        raise InvalidInputError(
            f"image {place} is not 3 x {SIDE} x {SIDE} bytes in hexadecimal: {image!r:.20}; write the result again."
        ) from None


Floats = NDArray[np.float64]

NARROWEST = 0.006
"""The smallest bandwidth: a saturated unit is drawn as a narrow peak, not as a needle without area."""


def activations(weights: Mapping[str, Any], x: ArrayLike) -> Floats:
    r"""Return the hidden activations :math:`\sigma(x W + b)`, shape (rows, hidden)."""
    inputs = np.asarray(x, dtype=float) @ np.asarray(weights["W"], dtype=float) + np.asarray(weights["b"], dtype=float)
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * inputs))


def scores(weights: Mapping[str, Any], x: ArrayLike) -> Floats:
    r"""Return :math:`\sigma(x W + b) V + c`, shape (rows, classes): what the softmax sees."""
    outputs = activations(weights, x) @ np.asarray(weights["V"], dtype=float) + np.asarray(weights["c"], dtype=float)
    return np.asarray(outputs)


def predictions(weights: Mapping[str, Any], x: ArrayLike) -> NDArray[np.intp]:
    """Return the class of highest probability for every row."""
    return np.asarray(scores(weights, x).argmax(axis=1))


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
    every = [value for one in rows for value in (*one.values, one.paper) if value is not None]
    low = np.floor(20 * min(every) - 0.2) / 20
    frame = Frame(
        x_range=(low, 1), y_range=(0, len(rows)), height=54 * len(rows) + 44, left=58, right=22, top=4, bottom=40
    )
    x_ticks = [(at, f"{100 * at:.0f} %") for at in ticks(low, 1, count=4)]
    parts = [axes(frame, x_ticks=x_ticks, x_label="accuracy on the target")]
    for index, one in enumerate(rows):
        middle = float(frame.y(len(rows) - index - 0.5))
        across, median = frame.x(one.values), float(frame.x(one.median))
        parts.append(label(frame.left - 10, middle + 4, one.name, "ma-heading", anchor="end"))
        parts.append(rule(frame.left, middle, frame.right_edge, middle, "ma-rule"))
        parts.append(marks(across, np.full(len(across), middle), "h0", f"ma-run {one.css}"))
        parts.append(rule(median, middle - 14, median, middle + 14, f"ma-median {one.css}"))
        if one.paper is not None:
            parts.append(marks([float(frame.x(one.paper))], [middle], DIAMOND, "ma-paper"))
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def _where(source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
    """Return points of [0, 1] to evaluate densities at: evenly spread, and closer where activations are many."""
    even = np.linspace(0, 1, 61)
    dense = np.quantile([*np.asarray(source), *np.asarray(target)], even)
    return np.unique(np.concatenate([even, np.round(dense, 4)]))


def _bar(x: float, y: float, width: float, height: float, css: str) -> Markup:
    """Return one bar, a hair wide at least."""
    return path(f"M{number(x)} {number(y)}h{number(max(width, 1))}v{number(height)}H{number(x)}z", css)


Result = Mapping[str, Any]

NAMES = {"nn": "NN, without alignment", "mann": "MANN, with alignment"}
SHOWN = 5
SIGNIFICANT = 0.01


def units_parts(result: Result) -> list[Markup]:
    """Return the densities of Fig. 4 and a picker for every hidden unit."""
    signs = [Sign(line([2, 22], [7, 7], f"ma-line ma-{domain}"), domain) for domain in ("source", "target")]
    parts = [text(_finding(result)), key(signs)]
    for name, title in NAMES.items():
        parts.append(heading(f"Most different units: {title}"))
        parts.append(row([figure(panel) for panel in most_different(result, name)], least="9.5rem", css="plain"))
    parts.append(heading("Any unit"))
    parts.append(text("The bars on each button are the test statistic without (upper) and with alignment (lower)."))
    parts.append(picker([_choice(result, unit) for unit in range(len(result["shown"]["nn"]["ks_pvalue"]))]))
    return parts


def most_different(result: Result, name: str) -> list[Picture]:
    """Return the densities of the units with the smallest p-values of one network."""
    shown = result["shown"][name]
    order = sorted(
        range(len(shown["ks_pvalue"])), key=lambda unit: (shown["ks_pvalue"][unit], -shown["ks_statistic"][unit])
    )
    return [unit_panel(result, name, unit) for unit in order[:SHOWN]]


def unit_panel(result: Result, name: str, unit: int, *, width: float = 200, height: float = 128) -> Picture:
    """Return the densities of one unit of one network."""
    shown = result["shown"][name]
    source, target = _samples(result, name, unit)
    note = p_words(shown["ks_pvalue"][unit])
    title = f"Activation densities of hidden unit {unit + 1} on source and target, {NAMES[name]}: {note}"
    return density_panel(source, target, heading=f"Unit {unit + 1}", note=note, title=title, width=width, height=height)


def _samples(result: Result, name: str, unit: int) -> list[NDArray[np.float64]]:
    """Return one unit's activations on source and target."""
    weights = result["shown"][name]["weights"]
    return [activations(weights, result[domain]["x"])[:, unit] for domain in ("source", "target")]


def _choice(result: Result, unit: int) -> Choice:
    """Return the picker's entry of one unit."""
    shown = result["shown"]
    thin = [Bar(f"ma-{name}", round(100 * shown[name]["ks_statistic"][unit])) for name in NAMES]
    panels = [figure(unit_panel(result, name, unit, width=440, height=210), words) for name, words in NAMES.items()]
    return Choice(f"unit-{unit + 1}", f"Unit {unit + 1}", thin, row(panels, least="18rem"))


def p_words(p: float) -> str:
    """Write a p-value: plain when large, as a power of ten when small.

    Examples
    --------
    >>> p_words(0.25), p_words(3.2e-7), p_words(0.0)
    ('p = 0.25', 'p = 3·10⁻⁷', 'p < 10⁻⁹⁹')
    """
    if p >= SIGNIFICANT:
        return f"p = {p:.2f}"
    if p < 1e-99:
        return "p < 10⁻⁹⁹"
    digits, power = f"{p:.0e}".split("e")
    return f"p = {digits}·10" + str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _finding(result: Result) -> str:
    """Say how many units the test finds different."""
    values = [result["shown"][name]["ks_pvalue"] for name in NAMES]
    before, after = (sum(p < SIGNIFICANT for p in column) for column in values)
    return (
        "How strongly each unit answers to source and to target points; each picture has its own height. "
        f"A Kolmogorov-Smirnov test finds {before} of {len(values[0])} units different without alignment "
        f"and {after} with it (p < {SIGNIFICANT})."
    )


MARKS = (
    "m-4 0h8m-4-4v8",
    "m-4 0h8",
    "m0-4.4v8.8m-3.8-6.6l7.6 4.4m0-4.4l-7.6 4.4",
)
"""The paper's marks of the three source classes: plus, minus, star."""
DOT = "h0"
RING = "m-4.4 0a4.4 4.4 0 1 0 8.8 0a4.4 4.4 0 1 0-8.8 0"
GRID = 150


def boundary_panel(
    weights: Mapping[str, Any], source: Mapping[str, Any], target: Mapping[str, Any], title: str
) -> Picture:
    """Draw class regions, labelled source points, target points, and a ring round every misclassified target point."""
    frame = _frame(np.asarray([*source["x"], *target["x"]], dtype=float))
    return Picture(frame.width, frame.height, title, Markup("").join(_layers(frame, weights, source, target)))


def _layers(
    frame: Frame, weights: Mapping[str, Any], source: Mapping[str, Any], target: Mapping[str, Any]
) -> list[Markup]:
    """Return the layers of one panel from bottom to top; each can be shown and hidden on the page."""
    source_x, source_y = np.asarray(source["x"], dtype=float), np.asarray(source["y"])
    target_x = np.asarray(target["x"], dtype=float)
    wrong = target_x[predictions(weights, target_x) != np.asarray(target["y"])]
    of_class = [
        marks(*_place(frame, source_x[source_y == index]), MARKS[index % len(MARKS)], f"ma-stroke ma-class-{index % 3}")
        for index in np.unique(source_y)
    ]
    return [
        group("ma-regions", _regions(frame, weights), layer="regions"),
        group("ma-source", of_class, layer="source"),
        group("ma-target", [marks(*_place(frame, target_x), DOT, "ma-dot")], layer="target"),
        group("ma-mistakes", [marks(*_place(frame, wrong), RING, "ma-ring")], layer="mistakes"),
    ]


def _frame(points: Floats) -> Frame:
    """Return a frame without margins and with equal scales on both axes that holds all points."""
    low, high = points.min(axis=0), points.max(axis=0)
    edge = 0.05 * float((high - low).max())
    (left, bottom), (right, top) = low - edge, high + edge
    height = 440 * (top - bottom) / (right - left)
    return Frame(x_range=(left, right), y_range=(bottom, top), height=height, left=0, right=0, top=0, bottom=0)


def _place(frame: Frame, points: Floats) -> tuple[Floats, Floats]:
    """Map points to the picture."""
    return frame.x(points[:, 0]), frame.y(points[:, 1])


def _regions(frame: Frame, weights: Mapping[str, Any]) -> list[Markup]:
    """Return one filled path per class: where its score is the highest."""
    x, y = np.linspace(*frame.x_range, GRID), np.linspace(*frame.y_range, GRID)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = scores(weights, grid).reshape(GRID, GRID, -1)
    shapes = []
    for index in range(values.shape[-1]):
        lead = values[..., index] - np.delete(values, index, axis=-1).max(axis=-1)
        shapes.append(path(_outline(frame, x, y, lead), f"ma-region ma-class-{index % 3}"))
    return shapes


def _outline(frame: Frame, x: Floats, y: Floats, lead: Floats) -> str:
    """Return path commands round the region where `lead` is positive; holes turn the other way."""
    generator = contour_generator(x, y, lead, fill_type=FillType.OuterOffset)
    commands = []
    for points, offsets in zip(*generator.filled(0, np.inf), strict=True):
        for start, end in pairwise(offsets):
            commands.append(_polygon(*_place(frame, points[start:end])))
    return "".join(commands)


def _polygon(x: Floats, y: Floats) -> str:
    """Return a closed path; neighbours that round to the same point are written once."""
    points = (f"{number(a)} {number(b)}" for a, b in zip(x, y, strict=True))
    return "M" + "L".join(point for point, _ in groupby(points)) + "Z"

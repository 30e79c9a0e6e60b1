"""The figures of the artificial example: decision boundaries, hidden units, training curves and all runs.

They stand for Figs. 3 and 4 of Zellinger et al. (2019). A network is given by its weights as the result holds them:
``W`` and ``b`` of the hidden layer, ``V`` and ``c`` of the output layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from contourpy import FillType, contour_generator
from markupsafe import Markup
from numpy.typing import NDArray

from momentalign.networks.shallow import Layer, activations, outputs
from momentalign.report.charts import density_panel
from momentalign.report.page import Bar, Choice, domains_key, figure, heading, p_value_text, picker, row, text
from momentalign.report.svg import DIAMOND, Frame, Picture, axes, group, label, line, marks, number, path, rule, ticks

__all__ = [
    "DOT",
    "MARKS",
    "NAMES",
    "RING",
    "Curve",
    "Strip",
    "boundary_panel",
    "curves",
    "most_different",
    "strip",
    "unit_panel",
    "units_parts",
]

Floats = NDArray[np.float64]
Result = Mapping[str, Any]

NAMES = {"nn": "NN, without alignment", "mann": "MANN, with alignment"}
MARKS = (
    "m-4 0h8m-4-4v8",
    "m-4 0h8",
    "m0-4.4v8.8m-3.8-6.6l7.6 4.4m0-4.4l-7.6 4.4",
)
"""The paper's marks of the three source classes: plus, minus, star."""
DOT = "h0"
RING = "m-4.4 0a4.4 4.4 0 1 0 8.8 0a4.4 4.4 0 1 0-8.8 0"

# Points along each axis at which the network is evaluated to find the class regions.
_GRID = 150
_SHOWN_UNITS = 5
_SIGNIFICANT = 0.01


def boundary_panel(
    weights: Mapping[str, Any], source: Mapping[str, Any], target: Mapping[str, Any], title: str
) -> Picture:
    """Draw class regions, labelled source points, target points, and a ring round every misclassified target point."""
    source_x, source_y = np.asarray(source["x"], dtype=float), np.asarray(source["y"])
    target_x = np.asarray(target["x"], dtype=float)
    layers = _network(weights)
    wrong = target_x[outputs(layers, target_x).argmax(axis=1) != np.asarray(target["y"])]
    frame = _frame(np.concatenate([source_x, target_x]))
    of_class = [
        marks(*_to_picture(frame, source_x[source_y == index]), MARKS[index % 3], f"ma-stroke ma-class-{index % 3}")
        for index in np.unique(source_y)
    ]
    drawn = [
        group("ma-regions", _regions(frame, layers), layer="regions"),
        group("ma-source", of_class, layer="source"),
        group("ma-target", [marks(*_to_picture(frame, target_x), DOT, "ma-dot")], layer="target"),
        group("ma-mistakes", [marks(*_to_picture(frame, wrong), RING, "ma-ring")], layer="mistakes"),
    ]
    return Picture(frame.width, frame.height, title, Markup("").join(drawn))


def _network(weights: Mapping[str, Any]) -> list[Layer]:
    return [Layer(np.asarray(weights[V], dtype=float), np.asarray(weights[c], dtype=float)) for V, c in ("Wb", "Vc")]


def _frame(points: Floats) -> Frame:
    """Return a frame without margins and with equal scales on both axes that holds all points."""
    low, high = points.min(axis=0), points.max(axis=0)
    edge = 0.05 * float((high - low).max())
    (left, bottom), (right, top) = low - edge, high + edge
    height = 440 * (top - bottom) / (right - left)
    return Frame(x_range=(left, right), y_range=(bottom, top), height=height, left=0, right=0, top=0, bottom=0)


def _to_picture(frame: Frame, points: Floats) -> tuple[Floats, Floats]:
    return frame.x(points[:, 0]), frame.y(points[:, 1])


def _regions(frame: Frame, layers: Sequence[Layer]) -> list[Markup]:
    """Return one filled path per class: where its output is the largest."""
    x, y = np.linspace(*frame.x_range, _GRID), np.linspace(*frame.y_range, _GRID)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = outputs(layers, points).reshape(_GRID, _GRID, -1)
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
            across, up = _to_picture(frame, points[start:end])
            corners = (f"{number(a)} {number(b)}" for a, b in zip(across, up, strict=True))
            # Neighbours that round to the same point are written once.
            commands.append("M" + "L".join(corner for corner, _ in groupby(corners)) + "Z")
    return "".join(commands)


def units_parts(result: Result) -> list[Markup]:
    """Return the densities of Fig. 4 and a picker for every hidden unit."""
    p_values = [result["shown"][name]["ks_pvalue"] for name in NAMES]
    before, after = (sum(p < _SIGNIFICANT for p in column) for column in p_values)
    finding = (
        "How strongly each unit answers to source and to target points; each picture has its own height. "
        f"A Kolmogorov-Smirnov test finds {before} of {len(p_values[0])} units different without alignment "
        f"and {after} with it (p < {_SIGNIFICANT})."
    )
    parts = [text(finding), domains_key()]
    for name, title in NAMES.items():
        parts.append(heading(f"Most different units: {title}"))
        parts.append(row([figure(panel) for panel in most_different(result, name)], least="9.5rem", css="plain"))
    parts.append(heading("Any unit"))
    parts.append(text("The bars on each button are the test statistic without (upper) and with alignment (lower)."))
    parts.append(picker([_choice(result, unit) for unit in range(len(p_values[0]))]))
    return parts


def most_different(result: Result, name: str) -> list[Picture]:
    """Return the densities of the units with the smallest p-values of one network."""
    shown = result["shown"][name]
    order = sorted(
        range(len(shown["ks_pvalue"])), key=lambda unit: (shown["ks_pvalue"][unit], -shown["ks_statistic"][unit])
    )
    return [unit_panel(result, name, unit) for unit in order[:_SHOWN_UNITS]]


def unit_panel(result: Result, name: str, unit: int, *, width: float = 200, height: float = 128) -> Picture:
    """Return the densities of one unit of one network."""
    shown = result["shown"][name]
    layers = _network(shown["weights"])
    source, target = (activations(layers, np.asarray(result[side]["x"]))[:, unit] for side in ("source", "target"))
    note = p_value_text(shown["ks_pvalue"][unit])
    title = f"Activation densities of hidden unit {unit + 1} on source and target, {NAMES[name]}: {note}"
    return density_panel(source, target, heading=f"Unit {unit + 1}", note=note, title=title, width=width, height=height)


def _choice(result: Result, unit: int) -> Choice:
    """Return the picker's entry of one unit."""
    thin = [Bar(f"ma-{name}", round(100 * result["shown"][name]["ks_statistic"][unit])) for name in NAMES]
    panels = [figure(unit_panel(result, name, unit, width=440, height=210), long) for name, long in NAMES.items()]
    return Choice(f"unit-{unit + 1}", f"Unit {unit + 1}", thin, row(panels, least="18rem"))


class Curve(NamedTuple):
    """One line of a chart; `css` names its colour and dash."""

    x: Sequence[float]
    y: Sequence[float]
    css: str


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


class Strip(NamedTuple):
    """One row of a strip chart: a value per run, their median, and the one value of the paper if it has one."""

    name: str
    values: Sequence[float]
    median: float
    paper: float | None
    css: str


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

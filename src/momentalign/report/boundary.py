"""Decision boundaries over both domains, as the two panels of Fig. 3 in Zellinger et al. (2019) show them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from contourpy import FillType, contour_generator
from markupsafe import Markup
from numpy.typing import NDArray

from momentalign.report.shallow import predictions, scores
from momentalign.report.svg import Frame, Picture, group, marks, number, path

__all__ = ["DOT", "MARKS", "RING", "boundary_panel"]

Floats = NDArray[np.float64]

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

"""The page of the mean over-penalisation example: which of two targets each metric takes for the closer one.

Stands for Fig. 2 and Section 7.1 of Zellinger et al. (2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from momentalign.report.page import PAPER, Section, read_result, render_page, version_words
from momentalign.report.parts import Cell, Sign, definitions, figure, key, row, table, text
from momentalign.report.svg import Frame, Picture, area, axes, clipped, line, mosaic, standalone, ticks

__all__ = ["figure_2", "overpenalization_page"]

Result = Mapping[str, Any]

TARGETS = {"left": "Normal", "right": "shifted Beta"}


def overpenalization_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce overpenalization``."""
    read_result(result, "overpenalization", ("rows", "densities", "versions"))
    sections = [
        Section("Source and two targets", _targets(result)),
        Section("Every metric", _metrics(result)),
        Section("How this was made", _making(result)),
    ]
    return render_page("Mean over-penalisation", _headline(result), sections)


def figure_2(result: Result) -> str:
    """Return Fig. 2 as the text of an SVG file: source dashed, the Normal target left, the shifted Beta right."""
    title = "Source density dashed; on the left a Normal target, on the right a slightly shifted Beta target"
    return standalone(mosaic(title, [[_panel(result, side) for side in TARGETS]]))


def _headline(result: Result) -> str:
    """Return the one sentence that says what was found."""
    misled = [entry for entry in result["rows"] if entry["prefers"] == "left"]
    right = [entry["metric"] for entry in result["rows"] if entry["prefers"] == "right"]
    verb = "finds" if len(misled) == 1 else "find"
    rest = f"; {' and '.join(right)} {'does' if len(right) == 1 else 'do'} not" if right else ""
    return (
        f"{len(misled)} of {len(result['rows'])} metrics {verb} a Normal closer to the source "
        f"than the source itself after a small step to the right{rest}."
    )


def _targets(result: Result) -> list[Markup]:
    """Return both panels of Fig. 2."""
    words = (
        "The left target shares the source's mean but not its shape, the right one its shape but not quite its mean. "
        "The Beta densities grow without bound at their ends, so the axis is cut."
    )
    signs = [
        Sign(line([2, 22], [7, 7], "ma-line ma-dashed ma-source"), "source"),
        Sign(line([2, 22], [7, 7], "ma-line ma-target"), "target"),
    ]
    panels = [figure(_panel(result, side), f"{side.capitalize()}: {name}") for side, name in TARGETS.items()]
    return [text(words), key(signs), row(panels)]


def _panel(result: Result, side: str) -> Picture:
    """Return one panel of Fig. 2: the source dashed, one target solid."""
    densities = result["densities"]
    x = np.asarray(densities["x"], dtype=float)
    top = 2 * float(np.nanmax(np.asarray(densities["left"], dtype=float)))
    frame = Frame(x_range=(float(x.min()), float(x.max())), y_range=(0, top), height=280, top=12, bottom=28)
    source, target = (_bounded(densities[name], top) for name in ("source", side))
    shapes = [
        area(frame.x(x), frame.y(target), frame.floor, "ma-area ma-target"),
        line(frame.x(x), frame.y(target), "ma-line ma-target"),
        line(frame.x(x), frame.y(source), "ma-line ma-dashed ma-source"),
    ]
    marked = [[(at, f"{at:g}") for at in ticks(*limits, count=4)] for limits in (frame.x_range, frame.y_range)]
    title = f"Density of the source (dashed) and of the {side} target, a {TARGETS[side]} (solid)"
    drawn = [axes(frame, x_ticks=marked[0], y_ticks=marked[1]), clipped(frame, shapes)]
    return Picture(frame.width, frame.height, title, Markup("").join(drawn))


def _bounded(values: Sequence[float | None], top: float) -> NDArray[np.float64]:
    """Return a density with its poles (JSON's null, or infinite) brought to a height beyond the axis."""
    heights = np.asarray(values, dtype=float)
    return np.minimum(np.where(np.isnan(heights), np.inf, heights), 4 * top)


def _metrics(result: Result) -> list[Markup]:
    """Return the table of all metrics."""
    columns = ["Metric", "To the Normal (left)", "To the shifted Beta (right)", "Finds closer", "In the paper"]
    rows = [
        [
            Cell(entry["metric"]),
            *(Cell(f"{entry[side]:.5f}", entry[side]) for side in TARGETS),
            Cell(f"{entry['prefers']}, {TARGETS[entry['prefers']]}"),
            Cell(entry["paper"]),
        ]
        for entry in result["rows"]
    ]
    return [table("Distance from the source to each target", columns, rows)]


def _making(result: Result) -> list[Markup]:
    """Return the three distributions and the versions."""
    return [
        definitions(
            [
                ("Source", "0.8 Y + 0.1, where Y follows Beta(0.4, 0.4)"),
                ("Left target", "Normal with mean 0.5 and standard deviation 0.27"),
                ("Right target", "0.8 Y + 0.12: the source, moved by 0.02"),
                ("Versions", version_words(result["versions"])),
                ("Paper", PAPER),
            ]
        )
    ]

"""The page of the sensitivity experiment: how the accuracy follows the parameters and the size of the hidden layer.

Stands for Section 6.6 and Fig. 5 of Zellinger et al. (2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from markupsafe import Markup

from momentalign.errors import InvalidInputError
from momentalign.experiments.sensitivity_figures import Panel, claims, make_panels
from momentalign.experiments.tables import short_task
from momentalign.report.page import PAPER, Section, read_result, render_page, version_words
from momentalign.report.parts import Cell, Fact, Sign, definitions, figure, row, table, text, toggles
from momentalign.report.sentiment import settings_words
from momentalign.report.svg import Frame, Picture, axes, group, label, line, marks, mosaic, rule, standalone, ticks

__all__ = ["KEYS", "figure_5", "sensitivity_page"]

Result = Mapping[str, Any]

KEYS = ("protocol", "versions", "data", "seeds", "tasks", "panels")
WRAPPED = Markup('<span style="display: block; min-width: 11rem; white-space: normal">{}</span>')
COLOURS = ("ma-class-0", "ma-class-1", "ma-class-2", "ma-target")


def sensitivity_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce sensitivity``."""
    panels = _panels(result)
    sections = [
        Section("Figure 5", _figure_parts(result, panels)),
        Section("What the paper reads from it", _readings(result)),
        Section("Every ratio", [_ratios(result, panel) for panel in panels.values()]),
        Section("How this was made", _making(result)),
    ]
    return render_page("Sensitivity to parameters", _headline(result), sections, numbers=_numbers(panels))


def figure_5(result: Result) -> str:
    """Return Fig. 5 as the text of an SVG file: CMD on the left, MMD on the right, parameters above hidden nodes."""
    panels = _panels(result)
    drawn = [_picture(result, panels, name, heading=panel.title) for name, panel in panels.items()]
    title = "Accuracy ratios of every task: " + "; ".join(panel.title for panel in panels.values())
    return standalone(mosaic(title, [drawn[start : start + 2] for start in range(0, len(drawn), 2)]))


def _panels(result: Result) -> dict[str, Panel]:
    """Return the panels there are data for, at least one."""
    read_result(result, "sensitivity", KEYS)
    panels = make_panels(result)
    if not panels:
        raise InvalidInputError(
            f"result['panels'] holds {', '.join(result['panels']) or 'nothing'}, which makes no panel; finish the run."
        )
    return panels


def _headline(result: Result) -> str:
    """Return the one sentence that says what was found."""
    found = claims(result)
    held = sum(claim.holds for claim in found)
    return f"The paper's statements about its Figure 5 hold here in {held} of {len(found)} cases."


def _numbers(panels: Mapping[str, Panel]) -> list[Fact]:
    """Return the range of the mean ratio of every panel."""
    return [
        Fact(
            f"{panel.mean.min():.3f}\N{EN DASH}{panel.mean.max():.3f}", panel.title, f"mean ratio to {panel.reference}"
        )
        for panel in panels.values()
    ]


def _figure_parts(result: Result, panels: Mapping[str, Panel]) -> list[Markup]:
    """Return the panels and the key that shows and hides the tasks of a source."""
    inks = _inks(result)
    signs = [Sign(line([2, 22], [7, 7], f"ma-line {css}"), f"from {name}", name) for name, css in inks.items()]
    signs.append(Sign(line([2, 22], [7, 7], "ma-median ma-mann"), "mean of all tasks", "mean"))
    figures = [
        figure(_picture(result, panels, name), panel.title, note=_note(result, name, panel))
        for name, panel in panels.items()
    ]
    words = "Each thin line is one task. At the dotted rule the accuracy is that of the reference."
    return [text(words), toggles(signs), row(figures, least="24rem")]


def _note(result: Result, name: str, panel: Panel) -> str:
    """Say what was divided by what."""
    if name not in result["panels"]:
        return f"Accuracy divided by that of {panel.reference} with as many hidden nodes."
    weights = result["panels"][name]["weights"]
    many = f"{len(weights)} weights λ from {min(weights):g} to {max(weights):g}"
    return f"Accuracy averaged over {many}, divided by that with {panel.reference}."


def _picture(result: Result, panels: Mapping[str, Panel], name: str, *, heading: str = "") -> Picture:
    """Draw one panel: a line per task, coloured by its source, and their mean."""
    panel = panels[name]
    x, inks = np.asarray(panel.values, dtype=float), _inks(result)
    air = 0.03 * (x.max() - x.min() or 1.0)
    frame = Frame(
        x_range=(float(x.min()) - air, float(x.max()) + air),
        y_range=_shared_range(panels, name),
        left=46,
        right=12,
        top=26 if heading else 12,
        bottom=40,
    )
    y_ticks = [(at, f"{at:.2f}") for at in ticks(*frame.y_range, count=6)]
    parts = [axes(frame, x_ticks=_x_ticks(panel), y_ticks=y_ticks, x_label=panel.axis)]
    parts.append(rule(frame.left, float(frame.y(1)), frame.right_edge, float(frame.y(1)), "ma-switch"))
    for source, css in inks.items():
        own = [ratios for task, ratios in zip(result["tasks"], panel.ratios, strict=True) if _source(task) == source]
        lines = [line(frame.x(x), frame.y(ratios), f"ma-line {css}") for ratios in own]
        parts.append(group("ma-tasks", lines, layer=source))
    across, mean = frame.x(x), frame.y(panel.mean)
    middle = [line(across, mean, "ma-median ma-mann"), marks(across, mean, "h0", "ma-run ma-mann")]
    parts.append(group("ma-mean", middle, layer="mean"))
    if heading:
        parts.append(label(frame.left, 16, heading, "ma-heading", anchor="start"))
    return Picture(frame.width, frame.height, _spoken(panel), Markup("").join(parts))


def _spoken(panel: Panel) -> str:
    """Say what a panel shows."""
    pairs = zip(panel.values, panel.mean, strict=True)
    means = ", ".join(f"{ratio:.3f} at {value:.3g}" for value, ratio in pairs)
    return f"{panel.title}, accuracy ratio to {panel.reference} by {panel.axis}; mean of all tasks {means}"


def _x_ticks(panel: Panel) -> list[tuple[float, str]]:
    """Return the values to write: all of a few, every third of many."""
    step = 1 if len(panel.values) <= 8 else 3
    return list(zip(panel.values, _value_words(panel), strict=True))[::step]


def _value_words(panel: Panel) -> list[str]:
    whole = all(float(value).is_integer() for value in panel.values)
    return [f"{value:.0f}" if whole else f"{value:.2f}" for value in panel.values]


def _shared_range(panels: Mapping[str, Panel], name: str) -> tuple[float, float]:
    """Return the vertical limits of a panel and its neighbour, so that CMD and MMD compare at a glance."""
    lower = name.endswith("_hidden")
    ratios = np.concatenate([p.ratios.ravel() for n, p in panels.items() if n.endswith("_hidden") == lower] + [[1.0]])
    air = max(0.05 * float(np.ptp(ratios)), 0.002)
    return float(ratios.min()) - air, float(ratios.max()) + air


def _readings(result: Result) -> list[Markup]:
    """Return the paper's statements beside what is seen here."""
    rows = [
        [Cell(WRAPPED.format(claim.paper)), Cell(WRAPPED.format(claim.here)), Cell("yes" if claim.holds else "no")]
        for claim in claims(result)
    ]
    return [table("Statements of Section 6.6", ["In the paper", "Here", "Holds"], rows, sortable=False)]


def _ratios(result: Result, panel: Panel) -> Markup:
    """Return the ratios of one panel with their mean below."""
    columns = ["Task", *_value_words(panel)]
    rows = [
        [Cell(short_task(task)), *(Cell(f"{ratio:.3f}", float(ratio)) for ratio in ratios)]
        for task, ratios in zip(result["tasks"], panel.ratios, strict=True)
    ]
    footer = [Cell("Mean"), *(Cell(f"{ratio:.3f}", float(ratio)) for ratio in panel.mean)]
    return table(f"{panel.title}: ratio to {panel.reference}", columns, rows, footer=footer)


def _making(result: Result) -> list[Markup]:
    """Return protocol, data and versions."""
    return [
        definitions(
            [
                ("Protocol", settings_words(result["protocol"])),
                ("Seeds", ", ".join(map(str, result["seeds"]))),
                *((name, f"SHA-256 {digest}") for name, digest in result["data"].items()),
                ("Versions", version_words(result["versions"])),
                ("Paper", PAPER),
            ]
        )
    ]


def _inks(result: Result) -> dict[str, str]:
    """Return a colour for every source domain."""
    return dict(zip(dict.fromkeys(_source(task) for task in result["tasks"]), cycle(COLOURS), strict=False))


def _source(task: str) -> str:
    return task.split("->")[0]

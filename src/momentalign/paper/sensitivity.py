r"""How accuracy depends on parameters (Section 6.6, Figure 5): orders of the CMD, width of the MMD, hidden nodes.

On the twelve tasks of the sentiment experiment and with its protocol. The upper panels of Figure 5 show, for each task
:math:`t` and value :math:`v` of a parameter,

.. math:: \frac{\bar a_{t,v}}{\bar a_{t,v_0}}, \qquad \bar a_{t,v} = \frac{1}{|\Lambda|} \sum_{\lambda \in \Lambda}
   a_{t,\lambda,v},

with :math:`v_0 = 5` moments for the CMD and :math:`\beta_0 = 1.2` for the MMD; the lower panels the accuracy with each
distance over that of the plain network with as many hidden nodes. The paper prints no values beyond those in its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from momentalign.journal import Journal, cell_key
from momentalign.paper.experiment import Cell, Progress, split_task, table_result
from momentalign.paper.pages import draw, line_sign, made_with, origin
from momentalign.paper.sentiment import TASKS, compute_all, review_identity
from momentalign.paper.tables import short_task
from momentalign.report.page import Cell as TableCell
from momentalign.report.page import Fact, Section, figure, number_cell, render_page, row, table, text, toggles
from momentalign.report.svg import Frame, Picture, axes, group, label, line, marks, mosaic, rule, standalone, ticks

__all__ = ["PANELS", "Claim", "Panel", "claims", "figure_5", "make_panels", "run", "sensitivity_page"]

SEED = 0
CMD_WEIGHTS = tuple(np.round(np.linspace(0.3, 3.0, 10), 6).tolist())
ORDERS = tuple(range(1, 8))
MMD_WEIGHTS = tuple(float(weight) for weight in range(5, 50, 5))
BETAS = (0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 1.7)
SIZES = tuple(range(128, 1665, 128))
HIDDEN: dict[str, dict[str, Any]] = {"nn": {"grid": [0.0]}, "cmd": {"grid": [1.0]}, "mmd": {"grid": [9.0], "beta": 1.2}}
PANELS = ("cmd_orders", "mmd_betas", "hidden")

# What the paper says of Figure 5. Upper left: with these k the accuracy differs from that with k = 5 by less than this
# share, and it is lower with k = 1 and 2. Upper right: the kernel parameter with the highest mean accuracy. Lower left:
# the range of the improvement by the CMD in percent.
DEFAULT_ORDER, ORDERS_LIKE_FIVE, ORDERS_TOLERANCE, LOW_ORDERS = 5, (3, 4, 6, 7), 0.005, (1, 2)
MOST_ACCURATE_BETA = 1.2
IMPROVEMENT = (4, 6)

WRAPPED = Markup('<span style="display: block; min-width: 11rem; white-space: normal">{}</span>')
COLOURS = ("ma-class-0", "ma-class-1", "ma-class-2", "ma-target")

Floats = NDArray[np.float64]
Result = Mapping[str, Any]


def run(
    panels: Sequence[str],
    journal: Journal,
    *,
    tasks: Sequence[str] = TASKS,
    n_jobs: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return the accuracies behind Figure 5, ready for JSON; what the journal holds is not computed again."""
    wanted = {panel: [_cells(panel, task) for task in tasks] for panel in panels}
    cells = [cell for rows in wanted.values() for row in rows for cell in row]
    done = compute_all(cells, journal, folder=folder, device=device, n_jobs=n_jobs, progress=progress)
    found = {
        panel: _arrange(panel, np.array([[done[cell_key(cell)]["accuracy"] for cell in row] for row in rows]))
        for panel, rows in wanted.items()
    }
    return table_result("sensitivity", review_identity("sensitivity"), [SEED], tasks, panels=found)


def _cells(panel: str, task: str) -> list[Cell]:
    """The cells of one panel and task: one per number of moments, beta, or method and size."""
    shared = {**split_task(task), "seeds": [SEED]}
    if panel == "cmd_orders":
        return [{**shared, "method": "cmd", "n_moments": order, "grid": list(CMD_WEIGHTS)} for order in ORDERS]
    if panel == "mmd_betas":
        return [{**shared, "method": "mmd", "beta": beta, "grid": list(MMD_WEIGHTS)} for beta in BETAS]
    return [
        {**shared, "method": method, "hidden": size, **settings}
        for method, settings in HIDDEN.items()
        for size in SIZES
    ]


def _arrange(panel: str, accuracy: Floats) -> dict[str, Any]:
    """Arrange accuracies [task][cell][weight] as the figure needs them."""
    if panel == "hidden":
        parts = np.split(accuracy[..., 0], len(HIDDEN), axis=1)
        return {"sizes": list(SIZES)} | {name: part.tolist() for name, part in zip(HIDDEN, parts, strict=True)}
    by_weight = accuracy.swapaxes(1, 2).tolist()
    if panel == "cmd_orders":
        return {"weights": list(CMD_WEIGHTS), "orders": list(ORDERS), "accuracy": by_weight}
    return {"weights": list(MMD_WEIGHTS), "betas": list(BETAS), "accuracy": by_weight}


class Panel(NamedTuple):
    """One panel of Figure 5; `ratios` has a row per task and a column per value, `note` says what was divided."""

    title: str
    axis: str
    reference: str
    note: str
    values: tuple[float, ...]
    ratios: Floats

    @property
    def mean(self) -> Floats:
        """The ratios averaged over tasks."""
        return np.asarray(self.ratios.mean(axis=0))

    @property
    def value_texts(self) -> list[str]:
        """The values as they are written."""
        whole = all(float(value).is_integer() for value in self.values)
        return [f"{value:.0f}" if whole else f"{value:.2f}" for value in self.values]


class Claim(NamedTuple):
    """What the paper reads from Figure 5, what is found here, and whether that agrees."""

    paper: str
    here: str
    holds: bool


def make_panels(result: Result) -> dict[str, Panel]:
    """Return the panels of Figure 5 that a sensitivity result has data for, by name and in the paper's order."""
    panels = {}
    for name, values, reference, title, symbol in (
        ("cmd_orders", "orders", DEFAULT_ORDER, "CMD, by the number of moments", "k"),
        ("mmd_betas", "betas", MOST_ACCURATE_BETA, "MMD, by the kernel parameter", "β"),
    ):
        if name not in result["panels"]:
            continue
        data = result["panels"][name]
        means, weights = np.array(data["accuracy"]).mean(axis=1), data["weights"]
        divisor = f"{symbol} = {reference:g}"
        note = (
            f"Accuracy averaged over {len(weights)} weights λ from {min(weights):g} to {max(weights):g}, divided by "
            f"that with {divisor}."
        )
        ratios = means / means[:, [data[values].index(reference)]]
        panels[name] = Panel(title, symbol, divisor, note, tuple(data[values]), ratios)
    if "hidden" in result["panels"]:
        data, divisor = result["panels"]["hidden"], "the plain network"
        note = f"Accuracy divided by that of {divisor} with as many hidden nodes."
        for name in ("cmd", "mmd"):
            title, ratios = (
                f"{name.upper()}, by the number of hidden nodes",
                np.array(data[name]) / np.array(data["nn"]),
            )
            panels[f"{name}_hidden"] = Panel(title, "hidden nodes", divisor, note, tuple(data["sizes"]), ratios)
    return panels


def claims(result: Result) -> list[Claim]:
    """Return what the paper says of Figure 5 beside what this result shows, as far as it has the panels."""
    panels, found = make_panels(result), []
    if "cmd_orders" in panels:
        found += _claims_of_orders(panels["cmd_orders"])
    if {"cmd_orders", "mmd_betas"} <= set(panels):
        cmd, mmd = (100 * float(np.abs(panels[name].ratios - 1).mean()) for name in ("cmd_orders", "mmd_betas"))
        found.append(
            Claim(
                "The MMD is more sensitive to its kernel parameter than the CMD to the number of moments.",
                f"On average the accuracy is {mmd:.2f} % off the reference with the MMD and {cmd:.2f} % with the CMD.",
                mmd > cmd,
            )
        )
    if "mmd_betas" in panels:
        data = result["panels"]["mmd_betas"]
        best = data["betas"][int(np.array(data["accuracy"]).mean(axis=(0, 1)).argmax())]
        paper = f"The MMD is most accurate with β = {MOST_ACCURATE_BETA:g}."
        found.append(Claim(paper, f"It is with β = {best:g}.", best == MOST_ACCURATE_BETA))
    if "cmd_hidden" in panels:
        gains = 100 * (panels["cmd_hidden"].mean - 1)
        least, most = IMPROVEMENT
        found.append(
            Claim(
                f"The CMD improves the accuracy by {least} to {most} %, whatever the number of hidden nodes.",
                f"Averaged over tasks by {gains.min():.1f} to {gains.max():.1f} %.",
                round(gains.min()) >= least and round(gains.max()) <= most,
            )
        )
        panel = panels["mmd_hidden"]
        first, last = 100 * (panel.mean[[0, -1]] - 1)
        few, many = panel.values[0], panel.values[-1]
        found.append(
            Claim(
                "The improvement by the MMD shrinks as hidden nodes are added.",
                f"Averaged over tasks from {first:.1f} % at {few:g} to {last:.1f} % at {many:g} nodes.",
                bool(last < first),
            )
        )
    return found


def _claims_of_orders(panel: Panel) -> list[Claim]:
    changes = np.abs(panel.ratios[:, [panel.values.index(order) for order in ORDERS_LIKE_FIVE]] - 1)
    inside = int((changes < ORDERS_TOLERANCE).sum())
    worse = [int((panel.ratios[:, panel.values.index(order)] < 1).sum()) for order in LOW_ORDERS]
    counts = " and ".join(f"{count} with k = {order}" for count, order in zip(worse, LOW_ORDERS, strict=True))
    return [
        Claim(
            f"With k = {', '.join(map(str, ORDERS_LIKE_FIVE))} instead of 5 the accuracy of a task changes by less "
            f"than {100 * ORDERS_TOLERANCE:g} %.",
            f"It does in {inside} of {changes.size} cases; at most {100 * changes.max():.2f} %, on average "
            f"{100 * changes.mean():.2f} %.",
            inside == changes.size,
        ),
        Claim(
            "With k = 1 and k = 2 many tasks are less accurate.",
            f"Of {len(panel.ratios)} tasks: {counts}.",
            all(2 * count > len(panel.ratios) for count in worse),
        ),
    ]


def sensitivity_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce sensitivity``."""
    panels, found = make_panels(result), claims(result)
    headline = (
        f"The paper's statements about its Figure 5 hold here in {sum(claim.holds for claim in found)} of {len(found)} "
        "cases."
    )
    facts = [
        Fact(f"{p.mean.min():.3f}\N{EN DASH}{p.mean.max():.3f}", p.title, f"mean ratio to {p.reference}")
        for p in panels.values()
    ]
    statements = [
        [*(TableCell(WRAPPED.format(words)) for words in claim[:2]), TableCell("yes" if claim.holds else "no")]
        for claim in found
    ]
    columns = ["In the paper", "Here", "Holds"]
    readings = table("Statements of Section 6.6", columns, statements, sortable=False)
    sections = [
        Section("Figure 5", _figure_parts(result, panels)),
        Section("What the paper reads from it", [readings]),
        Section("Every ratio", [_ratio_table(result, panel) for panel in panels.values()]),
        Section("How this was made", [made_with(result, origin(result))]),
    ]
    return render_page("Sensitivity to parameters", headline, sections, numbers=facts)


def figure_5(result: Result) -> str:
    """Return Fig. 5 as the text of an SVG file: CMD on the left, MMD on the right, parameters above hidden nodes."""
    panels = make_panels(result)
    drawn = [_picture(result, panels, name, heading=panel.title) for name, panel in panels.items()]
    title = "Accuracy ratios of every task: " + "; ".join(panel.title for panel in panels.values())
    return standalone(mosaic(title, [drawn[start : start + 2] for start in range(0, len(drawn), 2)]))


def _figure_parts(result: Result, panels: Mapping[str, Panel]) -> list[Markup]:
    """The panels and the key that shows and hides the tasks of a source."""
    signs = [line_sign(f"ma-line {css}", f"from {name}", name) for name, css in _colours(result).items()]
    signs.append(line_sign("ma-median ma-mann", "mean of all tasks", "mean"))
    figures = [figure(_picture(result, panels, name), panel.title, note=panel.note) for name, panel in panels.items()]
    lead = "Each thin line is one task. At the dotted rule the accuracy is that of the reference."
    return [text(lead), toggles(signs), row(figures, least="24rem")]


def _picture(result: Result, panels: Mapping[str, Panel], name: str, *, heading: str = "") -> Picture:
    """Draw one panel: a line per task, coloured by its source, and their mean."""
    panel = panels[name]
    x = np.asarray(panel.values, dtype=float)
    margin = 0.03 * (x.max() - x.min() or 1.0)
    # A panel and its neighbour have the same limits, so that CMD and MMD compare at a glance.
    beside = [p.ratios.ravel() for n, p in panels.items() if n.endswith("_hidden") == name.endswith("_hidden")]
    ratios = np.concatenate([*beside, [1.0]])
    above = max(0.05 * float(np.ptp(ratios)), 0.002)
    frame = Frame(
        x_range=(float(x.min()) - margin, float(x.max()) + margin),
        y_range=(float(ratios.min()) - above, float(ratios.max()) + above),
        left=46, right=12, top=26 if heading else 12, bottom=40,
    )  # fmt: skip
    y_ticks = [(at, f"{at:.2f}") for at in ticks(*frame.y_range, count=6)]
    # All values are written where they are few, every third where they are many.
    x_ticks = list(zip(panel.values, panel.value_texts, strict=True))[:: 1 if len(panel.values) <= 8 else 3]
    parts = [axes(frame, x_ticks=x_ticks, y_ticks=y_ticks, x_label=panel.axis)]
    parts.append(rule(frame.left, float(frame.y(1)), frame.right_edge, float(frame.y(1)), "ma-switch"))
    for source, css in _colours(result).items():
        own = [ratios for task, ratios in zip(result["tasks"], panel.ratios, strict=True) if _source(task) == source]
        lines = [line(frame.x(x), frame.y(ratios), f"ma-line {css}") for ratios in own]
        parts.append(group("ma-tasks", lines, layer=source))
    across, mean = frame.x(x), frame.y(panel.mean)
    middle = [line(across, mean, "ma-median ma-mann"), marks(across, mean, "h0", "ma-run ma-mann")]
    parts.append(group("ma-mean", middle, layer="mean"))
    if heading:
        parts.append(label(frame.left, 16, heading, "ma-heading", anchor="start"))
    means = ", ".join(f"{ratio:.3f} at {value:.3g}" for value, ratio in zip(panel.values, panel.mean, strict=True))
    title = f"{panel.title}, accuracy ratio to {panel.reference} by {panel.axis}; mean of all tasks {means}"
    return draw(frame, title, *parts)


def _ratio_table(result: Result, panel: Panel) -> Markup:
    """The ratios of one panel with their mean below."""
    named = [*((short_task(task), own) for task, own in zip(result["tasks"], panel.ratios, strict=True))]
    *rows, footer = [
        [TableCell(name), *(number_cell(float(ratio), "{:.3f}".format) for ratio in ratios)]
        for name, ratios in [*named, ("Mean", panel.mean)]
    ]
    columns = ["Task", *panel.value_texts]
    return table(f"{panel.title}: ratio to {panel.reference}", columns, rows, footer=footer)


def _colours(result: Result) -> dict[str, str]:
    """A colour for every source domain."""
    return dict(zip(dict.fromkeys(_source(task) for task in result["tasks"]), cycle(COLOURS), strict=False))


def _source(task: str) -> str:
    return task.split("->")[0]

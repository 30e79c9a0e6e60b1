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
from numpy.typing import ArrayLike, NDArray

from momentalign.errors import InvalidInputError
from momentalign.journal import Journal, cell_key
from momentalign.paper.comparison_page import origin
from momentalign.paper.experiment import Cell, Progress, check_names, table_result
from momentalign.paper.sentiment import TASKS, compute_all, review_identity, task_name
from momentalign.paper.tables import short_task
from momentalign.report.page import Cell as TableCell
from momentalign.report.page import (
    Fact,
    Section,
    Sign,
    check_result,
    definitions,
    figure,
    render_page,
    row,
    table,
    text,
    toggles,
)
from momentalign.report.svg import Frame, Picture, axes, group, label, line, marks, mosaic, rule, standalone, ticks

__all__ = ["KEYS", "PANELS", "Claim", "Panel", "claims", "figure_5", "make_panels", "run", "sensitivity_page"]

SEED = 0
CMD_WEIGHTS = tuple(np.round(np.linspace(0.3, 3.0, 10), 6).tolist())
ORDERS = tuple(range(1, 8))
MMD_WEIGHTS = tuple(float(weight) for weight in range(5, 50, 5))
BETAS = (0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 1.7)
SIZES = tuple(range(128, 1665, 128))
HIDDEN = {"nn": {}, "cmd": {"weight": 1.0}, "mmd": {"weight": 9.0, "beta": 1.2}}
PANELS = ("cmd_orders", "mmd_betas", "hidden")

# What the paper says of Figure 5. Upper left: with these k the accuracy differs from that with k = 5 by less than this
# share, and it is lower with k = 1 and 2. Upper right: the kernel parameter with the highest mean accuracy. Lower left:
# the range of the improvement by the CMD.
DEFAULT_ORDER, ORDERS_LIKE_FIVE, ORDERS_TOLERANCE, LOW_ORDERS = 5, (3, 4, 6, 7), 0.005, (1, 2)
MOST_ACCURATE_BETA = 1.2
IMPROVEMENT = (0.04, 0.06)

KEYS = ("protocol", "versions", "data", "seeds", "tasks", "panels")
WRAPPED = Markup('<span style="display: block; min-width: 11rem; white-space: normal">{}</span>')
COLOURS = ("ma-class-0", "ma-class-1", "ma-class-2", "ma-target")

Floats = NDArray[np.float64]
Result = Mapping[str, Any]


def run(
    panels: Sequence[str],
    journal: Journal,
    *,
    tasks: Sequence[tuple[str, str]] = TASKS,
    n_jobs: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return the accuracies behind Figure 5, ready for JSON; what the journal holds is not computed again."""
    check_names(panels, PANELS, "panel")
    wanted = {panel: [_cells(panel, *task) for task in tasks] for panel in panels}
    cells = [cell for rows in wanted.values() for row in rows for cell in row]
    done = compute_all(cells, journal, folder=folder, device=device, n_jobs=n_jobs, progress=progress)
    found = {
        panel: _arrange(panel, [[done[cell_key(cell)]["accuracy"] for cell in row] for row in rows])
        for panel, rows in wanted.items()
    }
    described = review_identity("sensitivity")
    return table_result("sensitivity", described, [SEED], [task_name(*task) for task in tasks], panels=found)


def _cells(panel: str, source: str, target: str) -> list[Cell]:
    """The cells of one panel and task: one per number of moments, beta, or method and size."""
    task = {"source": source, "target": target, "seeds": [SEED]}
    if panel == "cmd_orders":
        return [{**task, "method": "cmd", "n_moments": order, "grid": list(CMD_WEIGHTS)} for order in ORDERS]
    if panel == "mmd_betas":
        return [{**task, "method": "mmd", "beta": beta, "grid": list(MMD_WEIGHTS)} for beta in BETAS]
    return [
        {**task, "method": method, "hidden": size, "grid": [settings.get("weight", 0.0)]}
        | ({"beta": settings["beta"]} if "beta" in settings else {})
        for method, settings in HIDDEN.items()
        for size in SIZES
    ]


def _arrange(panel: str, accuracy: list[list[list[float]]]) -> dict[str, Any]:
    """Arrange accuracies [task][cell][weight] as the figure needs them."""
    if panel == "hidden":
        parts = {
            method: [[values[0] for values in row[start : start + len(SIZES)]] for row in accuracy]
            for method, start in zip(HIDDEN, range(0, len(HIDDEN) * len(SIZES), len(SIZES)), strict=True)
        }
        return {"sizes": list(SIZES), **parts}
    by_weight = np.swapaxes(np.array(accuracy), 1, 2).tolist()
    if panel == "cmd_orders":
        return {"weights": list(CMD_WEIGHTS), "orders": list(ORDERS), "accuracy": by_weight}
    return {"weights": list(MMD_WEIGHTS), "betas": list(BETAS), "accuracy": by_weight}


class Panel(NamedTuple):
    """One panel of Figure 5; `ratios` has a row per task and a column per value."""

    title: str
    axis: str
    reference: str
    values: tuple[float, ...]
    ratios: Floats

    @property
    def mean(self) -> Floats:
        """The ratios averaged over tasks."""
        return np.asarray(self.ratios.mean(axis=0))


class Claim(NamedTuple):
    """What the paper reads from Figure 5, what is found here, and whether that agrees."""

    paper: str
    here: str
    holds: bool


def make_panels(result: Result) -> dict[str, Panel]:
    """Return the panels of Figure 5 that a sensitivity result has data for, by name and in the paper's order."""
    found = result["panels"]
    panels = {}
    if "cmd_orders" in found:
        title = "CMD, by the number of moments"
        panels["cmd_orders"] = _upper_panel(result, "cmd_orders", "orders", DEFAULT_ORDER, title, "k")
    if "mmd_betas" in found:
        title = "MMD, by the kernel parameter"
        panels["mmd_betas"] = _upper_panel(result, "mmd_betas", "betas", MOST_ACCURATE_BETA, title, "β")
    for name, title in (("cmd", "CMD"), ("mmd", "MMD")):
        if {name, "nn"} <= set(found.get("hidden", ())):
            panels[f"{name}_hidden"] = _lower_panel(result, name, f"{title}, by the number of hidden nodes")
    return panels


def _upper_panel(result: Result, name: str, parameter: str, reference: float, title: str, symbol: str) -> Panel:
    """Accuracies averaged over the weights, each task's divided by that of the reference value."""
    data = result["panels"][name]
    values = tuple(data[parameter])
    accuracy = _accuracy(result, data["accuracy"], f"{name}.accuracy", (len(data["weights"]), len(values)))
    means, column = accuracy.mean(axis=1), _nearest(values, reference)
    return Panel(title, symbol, f"{symbol} = {values[column]:.3g}", values, means / means[:, [column]])


def _lower_panel(result: Result, name: str, title: str) -> Panel:
    data = result["panels"]["hidden"]
    sizes = tuple(data["sizes"])
    aligned, plain = (_accuracy(result, data[n], f"hidden.{n}", (len(sizes),)) for n in (name, "nn"))
    return Panel(title, "hidden nodes", "the plain network", sizes, aligned / plain)


def _accuracy(result: Result, values: ArrayLike, name: str, rest: tuple[int, ...]) -> Floats:
    accuracy = np.asarray(values, dtype=float)
    shape = (len(result["tasks"]), *rest)
    if accuracy.shape != shape:
        raise InvalidInputError(
            f"result['panels'] has {name} of shape {accuracy.shape}, its tasks and values ask for {shape}; "
            "finish the run to get all."
        )
    if not (accuracy > 0).all():
        raise InvalidInputError(
            f"result['panels'] has {name} with {accuracy.min():g} in it; accuracies to divide by must be positive."
        )
    return accuracy


def _nearest(values: Sequence[float], wanted: float) -> int:
    return int(np.argmin(np.abs(np.asarray(values) - wanted)))


def claims(result: Result) -> list[Claim]:
    """Return what the paper says of Figure 5 beside what this result shows, as far as it has the panels."""
    panels = make_panels(result)
    found = []
    if "cmd_orders" in panels:
        found += _claims_of_orders(panels["cmd_orders"])
    if {"cmd_orders", "mmd_betas"} <= set(panels):
        found.append(_more_sensitive(panels["cmd_orders"], panels["mmd_betas"]))
    if "mmd_betas" in panels:
        found.append(_best_beta(result["panels"]["mmd_betas"]))
    if "cmd_hidden" in panels:
        found.append(_steady_improvement(panels["cmd_hidden"]))
    if "mmd_hidden" in panels:
        found.append(_falling_improvement(panels["mmd_hidden"]))
    return found


def _claims_of_orders(panel: Panel) -> list[Claim]:
    found = []
    if set(panel.values) >= {*ORDERS_LIKE_FIVE}:
        chosen = [panel.values.index(order) for order in ORDERS_LIKE_FIVE]
        changes = np.abs(panel.ratios[:, chosen] - 1)
        inside = int((changes < ORDERS_TOLERANCE).sum())
        found.append(
            Claim(
                f"With k = {', '.join(map(str, ORDERS_LIKE_FIVE))} instead of 5 the accuracy of a task changes by less "
                f"than {100 * ORDERS_TOLERANCE:g} %.",
                f"It does in {inside} of {changes.size} cases; at most {100 * changes.max():.2f} %, on average "
                f"{100 * changes.mean():.2f} %.",
                inside == changes.size,
            )
        )
    if set(panel.values) >= {*LOW_ORDERS}:
        worse = [int((panel.ratios[:, panel.values.index(order)] < 1).sum()) for order in LOW_ORDERS]
        counts = " and ".join(f"{count} with k = {order}" for count, order in zip(worse, LOW_ORDERS, strict=True))
        found.append(
            Claim(
                "With k = 1 and k = 2 many tasks are less accurate.",
                f"Of {len(panel.ratios)} tasks: {counts}.",
                all(2 * count > len(panel.ratios) for count in worse),
            )
        )
    return found


def _more_sensitive(cmd: Panel, mmd: Panel) -> Claim:
    one, other = (100 * float(np.abs(panel.ratios - 1).mean()) for panel in (cmd, mmd))
    return Claim(
        "The MMD is more sensitive to its kernel parameter than the CMD to the number of moments.",
        f"On average the accuracy is {other:.2f} % off the reference with the MMD and {one:.2f} % with the CMD.",
        other > one,
    )


def _best_beta(data: Mapping[str, Any]) -> Claim:
    betas = data["betas"]
    best = int(np.asarray(data["accuracy"], dtype=float).mean(axis=(0, 1)).argmax())
    return Claim(
        f"The MMD is most accurate with β = {MOST_ACCURATE_BETA:g}.",
        f"It is with β = {betas[best]:.3g}.",
        best == _nearest(betas, MOST_ACCURATE_BETA),
    )


def _steady_improvement(panel: Panel) -> Claim:
    low, high = 100 * float(panel.mean.min() - 1), 100 * float(panel.mean.max() - 1)
    least, most = (100 * share for share in IMPROVEMENT)
    return Claim(
        f"The CMD improves the accuracy by {least:g} to {most:g} %, whatever the number of hidden nodes.",
        f"Averaged over tasks by {low:.1f} to {high:.1f} %.",
        round(low) >= least and round(high) <= most,
    )


def _falling_improvement(panel: Panel) -> Claim:
    first, last = (100 * float(panel.mean[index] - 1) for index in (0, -1))
    return Claim(
        "The improvement by the MMD shrinks as hidden nodes are added.",
        f"Averaged over tasks from {first:.1f} % at {panel.values[0]:g} to {last:.1f} % at {panel.values[-1]:g} nodes.",
        last < first,
    )


def sensitivity_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce sensitivity``."""
    panels, found = _load_panels(result), claims(result)
    held = sum(claim.holds for claim in found)
    headline = f"The paper's statements about its Figure 5 hold here in {held} of {len(found)} cases."
    facts = [
        Fact(f"{p.mean.min():.3f}\N{EN DASH}{p.mean.max():.3f}", p.title, f"mean ratio to {p.reference}")
        for p in panels.values()
    ]
    readings = [
        [*(TableCell(WRAPPED.format(words)) for words in claim[:2]), TableCell("yes" if claim.holds else "no")]
        for claim in found
    ]
    columns = ["In the paper", "Here", "Holds"]
    sections = [
        Section("Figure 5", _figure_parts(result, panels)),
        Section(
            "What the paper reads from it", [table("Statements of Section 6.6", columns, readings, sortable=False)]
        ),
        Section("Every ratio", [_ratio_table(result, panel) for panel in panels.values()]),
        Section("How this was made", [definitions(origin(result))]),
    ]
    return render_page("Sensitivity to parameters", headline, sections, numbers=facts)


def figure_5(result: Result) -> str:
    """Return Fig. 5 as the text of an SVG file: CMD on the left, MMD on the right, parameters above hidden nodes."""
    panels = _load_panels(result)
    drawn = [_picture(result, panels, name, heading=panel.title) for name, panel in panels.items()]
    title = "Accuracy ratios of every task: " + "; ".join(panel.title for panel in panels.values())
    return standalone(mosaic(title, [drawn[start : start + 2] for start in range(0, len(drawn), 2)]))


def _load_panels(result: Result) -> dict[str, Panel]:
    """The panels there are data for, at least one."""
    check_result(result, "sensitivity", KEYS)
    panels = make_panels(result)
    if not panels:
        raise InvalidInputError(
            f"result['panels'] holds {', '.join(result['panels']) or 'nothing'}, which makes no panel; finish the run."
        )
    return panels


def _figure_parts(result: Result, panels: Mapping[str, Panel]) -> list[Markup]:
    """The panels and the key that shows and hides the tasks of a source."""
    signs = [
        Sign(line([2, 22], [7, 7], f"ma-line {css}"), f"from {name}", name) for name, css in _colours(result).items()
    ]
    signs.append(Sign(line([2, 22], [7, 7], "ma-median ma-mann"), "mean of all tasks", "mean"))
    figures = [
        figure(_picture(result, panels, name), panel.title, note=_note(result, name, panel))
        for name, panel in panels.items()
    ]
    lead = "Each thin line is one task. At the dotted rule the accuracy is that of the reference."
    return [text(lead), toggles(signs), row(figures, least="24rem")]


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
    x = np.asarray(panel.values, dtype=float)
    margin = 0.03 * (x.max() - x.min() or 1.0)
    frame = Frame(
        x_range=(float(x.min()) - margin, float(x.max()) + margin), y_range=_shared_range(panels, name),
        left=46, right=12, top=26 if heading else 12, bottom=40,
    )  # fmt: skip
    y_ticks = [(at, f"{at:.2f}") for at in ticks(*frame.y_range, count=6)]
    # All values are written where they are few, every third where they are many.
    x_ticks = list(zip(panel.values, _value_texts(panel), strict=True))[:: 1 if len(panel.values) <= 8 else 3]
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
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def _shared_range(panels: Mapping[str, Panel], name: str) -> tuple[float, float]:
    """The vertical limits of a panel and its neighbour, so that CMD and MMD compare at a glance."""
    lower = name.endswith("_hidden")
    ratios = np.concatenate([p.ratios.ravel() for n, p in panels.items() if n.endswith("_hidden") == lower] + [[1.0]])
    margin = max(0.05 * float(np.ptp(ratios)), 0.002)
    return float(ratios.min()) - margin, float(ratios.max()) + margin


def _value_texts(panel: Panel) -> list[str]:
    whole = all(float(value).is_integer() for value in panel.values)
    return [f"{value:.0f}" if whole else f"{value:.2f}" for value in panel.values]


def _ratio_table(result: Result, panel: Panel) -> Markup:
    """The ratios of one panel with their mean below."""
    named = [*((short_task(task), own) for task, own in zip(result["tasks"], panel.ratios, strict=True))]
    *rows, footer = [
        [TableCell(name), *(TableCell(f"{ratio:.3f}", float(ratio)) for ratio in ratios)]
        for name, ratios in [*named, ("Mean", panel.mean)]
    ]
    columns = ["Task", *_value_texts(panel)]
    return table(f"{panel.title}: ratio to {panel.reference}", columns, rows, footer=footer)


def _colours(result: Result) -> dict[str, str]:
    """A colour for every source domain."""
    return dict(zip(dict.fromkeys(_source(task) for task in result["tasks"]), cycle(COLOURS), strict=False))


def _source(task: str) -> str:
    return task.split("->")[0]

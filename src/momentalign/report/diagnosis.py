"""The page of a diagnosis, and the same as one figure of matplotlib: what shifted between two samples, and how much.

The text of the page stands in ``templates/diagnosis.html``, one macro for each section.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from momentalign.errors import MissingExtraError
from momentalign.report.notebook import card
from momentalign.report.page import (
    PAPER,
    Axis,
    Cell,
    Columns,
    Drawing,
    Fact,
    Section,
    Track,
    check_result,
    domains_key,
    explorer,
    figure,
    macro,
    number_cell,
    number_of,
    p_value_text,
    percent,
    records_table,
    render_page,
    row,
    table,
    versions_text,
)
from momentalign.report.svg import Frame, Picture, axes, label, number, path, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["diagnosis_card", "diagnosis_figure", "diagnosis_page"]

Result = Mapping[str, Any]

_KEYS = ["rows", "alpha", "verdict", "features", "cmd", "classifier"]
_KEYS += ["only_source", "only_target", "empty", "retyped", "versions"]
_KINDS = {"number": "numbers", "date": "dates", "category": "categories"}
_PANELS, _BARS, _LISTED, _LEVELS = 6, 10, 1000, 40
_DASH = "\N{EN DASH}"
# A frame of 32 bins, each 13 units wide, for the row that is pointed at; and one for the features that differ most.
_LARGE = Frame(x_range=(0, 1), y_range=(0, 1), width=440, height=190, left=12, right=12, top=8, bottom=26)
_SMALL = Frame(x_range=(0, 1), y_range=(0, 1), width=240, height=140, left=8, right=8, top=26, bottom=22)


def diagnosis_page(result: Result) -> str:
    """Return the page of one result of :func:`momentalign.diagnose`."""
    check_result(result, "diagnosis", _KEYS)
    changed = [feature for feature in result["features"] if feature["changes"]]
    sections = [
        Section("Most different features", _most_different(changed)),
        Section("Every feature", _every_feature(result["features"])),
        Section("Moments, order by order", _orders(result["cmd"])),
        Section("Telling the samples apart", _classifier(result)),
        Section("Categories", _categories(changed)),
        Section("How this was made", _making(result)),
    ]
    shown = [section for section in sections if section.parts]
    return render_page("What shifted", result["verdict"]["words"], shown, numbers=_facts(result, len(changed)))


def diagnosis_card(result: Result) -> str:
    """Return what a notebook shows of one result: the verdict, its numbers, and the features that differ most."""
    changed = [feature for feature in result["features"] if feature["changes"]]
    panels = [_panel(feature) for feature in changed if feature["shape"] is not None][:_PANELS]
    parts = [domains_key(), row([figure(panel) for panel in panels], least="12rem")] if panels else []
    return card("What shifted", result["verdict"]["words"], facts=_facts(result, len(changed)), parts=parts)


def _facts(result: Result, changed: int) -> list[Fact]:
    verdict, classifier, cmd = result["verdict"], result["classifier"], result["cmd"]
    level = "No" if verdict["level"] == "none" else verdict["level"].capitalize()
    area = f"0 alike, 2 apart; AUC {classifier['auc']:.2f}"
    facts = [
        Fact(level, "shift", f"all tests together, {p_value_text(verdict['p_value'])}"),
        Fact(str(changed), f"of {len(result['features'])} features differ", f"adjusted p at most {result['alpha']:g}"),
        Fact(f"{classifier['proxy_a_distance']:.2f}", "proxy-A-distance", area),
    ]
    if cmd is not None:
        total = cmd["total"]
        facts.append(Fact(f"{total['value']:.3f}", "central moment discrepancy", p_value_text(total["p_value"])))
    return facts


def _most_different(changed: Sequence[Result]) -> list[Markup]:
    panels = [figure(_panel(feature)) for feature in changed if feature["shape"] is not None][:_PANELS]
    return [_part("most_different", panels=panels)] if panels else []


def _panel(feature: Result) -> Picture:
    """Draw one feature in both samples."""
    name, shape, distance = feature["name"], feature["shape"], feature["distance"]
    measure = "TV" if feature["kind"] == "category" else "KS"
    note = "" if distance is None else f"{measure} {distance:.2f}"
    parts = [label(8, 14, shortened(name, 20), "ma-heading", anchor="start")]
    parts.append(label(_SMALL.width - 8, 14, note, anchor="end"))
    parts += [path(_outline(_SMALL, shape, side), f"ma-area ma-line ma-{side}") for side in ("source", "target")]
    parts.append(axes(_SMALL))
    parts += [label(x, _SMALL.floor + 16, text, anchor=anchor) for x, text, anchor in _axis_labels(_SMALL, feature)]
    return Picture(_SMALL.width, _SMALL.height, f"{name} in source and target: {note}", Markup("").join(parts))


def _every_feature(features: Sequence[Result]) -> list[Markup]:
    """Return the table of all features, over which the one pointed at is drawn."""
    listed = features[:_LISTED]
    columns = ["Feature", "Kind", "Differs in", "Distance", "Adjusted p", "Mean shift", "Spread ratio", "Missing"]
    rows = [
        [
            Cell(one["name"]),
            Cell(_KINDS[one["kind"]]),
            Cell(", ".join(one["changes"]) or _DASH),
            number_cell(one["distance"], "{:.3f}".format),
            number_cell(one["p_adjusted"], _p),
            number_cell(one["mean_shift"], "{:+.2f}".format),
            number_cell(one["deviation_ratio"], "{:.2f}".format),
            _missing(one["missing_source"], one["missing_target"]),
        ]
        for one in listed
    ]
    caption = f"{len(listed):,} features, the most different first"
    explored = explorer(_LARGE, caption, columns, rows, [_drawing(one) for one in listed])
    return [_part("every_feature", explorer=explored, left_out=len(features) - len(listed))]


def _missing(source: float, target: float) -> Cell:
    text = f"{percent(source)} → {percent(target)}" if source or target else _DASH
    return number_cell(target - source, lambda _: text)


def _p(p: float) -> str:
    return p_value_text(p).removeprefix("p ").removeprefix("= ")


def _drawing(feature: Result) -> Drawing | None:
    """Return what is drawn while one feature is pointed at."""
    if feature["shape"] is None:
        return None
    notes = [*feature["changes"]] or ["no significant difference"]
    if feature["mean_source"] is not None and feature["kind"] == "number":
        notes.append(f"mean {feature['mean_source']:.4g} in the source, {feature['mean_target']:.4g} in the target")
    source, target = (_outline(_LARGE, feature["shape"], side) for side in ("source", "target"))
    return Drawing(source, target, _axis_labels(_LARGE, feature), ", ".join(notes))


def _outline(frame: Frame, shape: Result, side: str) -> str:
    """Return one sample's steps over the floor as path commands, in whole units: a page may hold a thousand."""
    top = 1.05 * max(*shape["source"], *shape["target"], 1e-12)
    heights = np.round(np.asarray(shape[side]) / top * (frame.floor - frame.top)).astype(int)
    width = number((frame.right_edge - frame.left) / len(heights))
    steps = "".join(f"v{-step}h{width}" for step in np.diff(heights, prepend=0).tolist())
    return f"M{number(frame.left)} {number(frame.floor)}{steps}V{number(frame.floor)}z"


def _axis_labels(frame: Frame, feature: Result) -> list[tuple[float, str, str]]:
    """Return the labels below a feature: its categories, or where its axis begins and ends."""
    shape, names = feature["shape"], feature["shape"]["names"]
    if names is not None:
        width = (frame.right_edge - frame.left) / len(names)
        room = min(max(int(width / 8), 2), 14)
        return [
            (round(frame.left + width * (index + 0.5), 1), shortened(name, room), "middle")
            for index, name in enumerate(names)
        ]
    write = _date if feature["kind"] == "date" else "{:.4g}".format
    return [(frame.left, write(shape["low"]), "start"), (frame.right_edge, write(shape["high"]), "end")]


def _date(days: float) -> str:
    """Write days since 1970 as a date, or as they are where there is no calendar any more."""
    try:
        return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=days))
    except OverflowError:
        return f"{days:.4g} days"


def _orders(cmd: Result | None) -> list[Markup]:
    """Return the terms of the CMD with their p-values."""
    if cmd is None:
        return []
    names = ["1, mean", "2, variance", "3, skewness", "4, kurtosis"]
    names += [str(order) for order in range(5, len(cmd["orders"]) + 1)]
    most = max(value for one in cmd["orders"] for value in (one["value"], one["by_chance"]))
    rows = [
        [
            Cell(name),
            Cell("", track=Track([(one["value"], "ma-target")], marks=[(one["by_chance"], "limit")])),
            *_order_cells(one),
        ]
        for name, one in zip(names, cmd["orders"], strict=False)
    ]
    columns = ["Order", Axis("Value", 0.0, most or 1.0, "{:g}".format), "Value", "By chance", "p"]
    footer = [Cell("Sum"), Cell(""), *_order_cells(cmd["total"])]
    listed = table("Every order", columns, rows, footer=footer)
    return [_part("orders", features=cmd["seen"]["features"], relabellings=cmd["n_permutations"], table=listed)]


def _order_cells(one: Result) -> list[Cell]:
    write = "{:.4f}".format
    return [number_cell(one["value"], write), number_cell(one["by_chance"], write), number_cell(one["p_value"], _p)]


def _classifier(result: Result) -> list[Markup]:
    """Return how well a classifier tells the samples apart, and by which features."""
    found = result["classifier"]
    most = [entry for entry in found["features"] if entry["drop"] > 0][:_BARS]
    if found["p_value"] > result["alpha"] or not most:
        return [_part("classifier", found=found, table="")]
    columns: Columns = {
        "Feature": itemgetter("name"),
        Axis("Area lost", 0.0, most[0]["drop"], "{:g}".format): lambda one: Cell(
            "", track=Track([(one["drop"], "ma-target")])
        ),
        "Area lost": number_of("drop", "{:.4f}".format),
    }
    return [_part("classifier", found=found, table=records_table("What it goes by", most, columns))]


def _categories(changed: Sequence[Result]) -> list[Markup]:
    """Return the shares of categories that changed most."""
    changed = [feature for feature in changed if "categories" in feature["changes"]]
    levels = [
        (feature["name"], name, source, target, target - source)
        for feature in changed
        for name, source, target in zip(
            *(feature["shape"][part] for part in ("names", "source", "target")), strict=True
        )
    ]
    if not levels:
        return []
    rows = [
        [Cell(feature), Cell(name), *(number_cell(share, percent) for share in shares)]
        for feature, name, *shares in sorted(levels, key=lambda level: -abs(level[-1]))[:_LEVELS]
    ]
    columns = ["Feature", "Category", "Share in source", "in target", "Change"]
    listed = table("Categories of the features that differ", columns, rows)
    return [_part("categories", table=listed, new=[feature for feature in changed if feature["new"]])]


def _making(result: Result) -> list[Markup]:
    """Return what was compared, and how."""
    lists = {
        "In the source only": result["only_source"],
        "In the target only": result["only_target"],
        "Without any value": result["empty"],
        "With a different value in every row": result.get("ids", []),
        "Of another kind in the target": result["retyped"],
    }
    return [_part("making", result=result, lists=lists, versions=versions_text(result["versions"]), paper=PAPER)]


def _part(name: str, **values: Any) -> Markup:
    return macro(name, "diagnosis.html")(**values)


_DRAWN, _DRAWN_PANELS = 12, 3
_SOURCE, _TARGET = "#59616b", "#c02a73"


def diagnosis_figure(result: Result) -> Figure:
    """Draw the distances of the features, the CMD order by order, and the features that differ most."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("plot() needs matplotlib", "deep") from error

    whole = Figure(figsize=(11, 6.5), layout="constrained")
    grid = whole.add_gridspec(2, 2 * _DRAWN_PANELS)
    _draw_distances(whole.add_subplot(grid[0, :_DRAWN_PANELS]), result["features"][:_DRAWN], result["alpha"])
    _draw_orders(whole.add_subplot(grid[0, _DRAWN_PANELS:]), result["cmd"])
    shown = [feature for feature in result["features"] if feature["shape"] is not None][:_DRAWN_PANELS]
    for index, feature in enumerate(shown):
        _draw_feature(whole.add_subplot(grid[1, 2 * index : 2 * index + 2]), feature)
    whole.suptitle(result["verdict"]["words"], wrap=True, fontsize=10)
    return whole


def _draw_distances(ax: Axes, features: Sequence[Result], alpha: float) -> None:
    """Draw how far apart features are; pale ones do not differ significantly."""
    names = [feature["name"] for feature in features]
    values = [feature["distance"] or 0.0 for feature in features]
    colours = [_TARGET if feature["changes"] else "#c9cdd2" for feature in features]
    ax.barh(range(len(names)), values, color=colours)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_title(f"Distance of features (coloured: adjusted p at most {alpha:g})", fontsize=9)


def _draw_orders(ax: Axes, cmd: Result | None) -> None:
    """Draw the terms of the CMD as bars and what chance seldom exceeds as strokes."""
    if cmd is None:
        ax.set_axis_off()
        return
    orders = np.arange(1, len(cmd["orders"]) + 1)
    ax.bar(orders, [entry["value"] for entry in cmd["orders"]], color=_TARGET, label="measured")
    limits = [entry["by_chance"] for entry in cmd["orders"]]
    ax.hlines(limits, orders - 0.4, orders + 0.4, color=_SOURCE, label="95 % of relabellings stay below")
    ax.set_title(f"Central moment discrepancy per order (p = {cmd['total']['p_value']:.3g})", fontsize=9)
    ax.legend(frameon=False, fontsize=8)


def _draw_feature(ax: Axes, feature: Result) -> None:
    """Draw the shares of both samples over one feature."""
    shape = feature["shape"]
    for side, colour in (("source", _SOURCE), ("target", _TARGET)):
        if shape["names"] is None:
            edges = np.linspace(shape["low"], shape["high"], len(shape[side]) + 1)
            ax.stairs(shape[side], edges, fill=True, alpha=0.3, color=colour, label=side)
        else:
            shift = -0.2 if side == "source" else 0.2
            ax.bar(np.arange(len(shape[side])) + shift, shape[side], width=0.4, color=colour, label=side)
    if shape["names"] is not None:
        ax.set_xticks(range(len(shape["names"])), shape["names"], rotation=30, fontsize=8)
    ax.set_yticks([])
    ax.set_title(f"{feature['name']}: {', '.join(feature['changes']) or 'no significant difference'}", fontsize=9)
    ax.legend(frameon=False, fontsize=8)

"""The page of a diagnosis: what shifted between two samples, how much, and whether it is significant.

The pictures of a diagnosis: a feature in both samples, moments order by order, and what a classifier goes by.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from momentalign.report.charts import p_words
from momentalign.report.page import (
    PAPER,
    Cell,
    Drawing,
    Fact,
    Section,
    Sign,
    definitions,
    explorer,
    figure,
    key,
    percent,
    read_result,
    render_page,
    row,
    table,
    text,
    version_words,
)
from momentalign.report.svg import Frame, Picture, axes, label, line, number, path, rule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["diagnosis_figure", "diagnosis_page"]

Shape = Mapping[str, Any]

EXPLORED = Frame(x_range=(0, 1), y_range=(0, 1), width=440, height=190, left=12, right=12, top=8, bottom=26)
"""The frame of a drawing that is shown when its row is pointed at; 32 bins of it are 13 units wide each."""
_SMALL = Frame(x_range=(0, 1), y_range=(0, 1), width=240, height=140, left=8, right=8, top=26, bottom=22)
_LONGEST = 14
_ORDERS = ("mean", "variance", "skewness", "kurtosis")


def feature_panel(name: str, shape: Shape, *, dates: bool, note: str) -> Picture:
    """Draw one feature in both samples."""
    parts = [label(8, 14, _short(name, 20), "ma-heading", anchor="start")]
    parts.append(label(_SMALL.width - 8, 14, note, anchor="end"))
    parts += [path(_outline(_SMALL, shape, side), f"ma-area ma-line ma-{side}") for side in ("source", "target")]
    parts.append(axes(_SMALL))
    parts += [label(x, _SMALL.floor + 16, words, anchor=anchor) for x, words, anchor in _words(_SMALL, shape, dates)]
    return Picture(_SMALL.width, _SMALL.height, f"{name} in source and target: {note}", Markup("").join(parts))


def feature_drawing(shape: Shape | None, *, dates: bool, note: str) -> Drawing | None:
    """Return what an explorer draws for one feature."""
    if shape is None:
        return None
    outlines = [_outline(EXPLORED, shape, side) for side in ("source", "target")]
    return Drawing(outlines[0], outlines[1], _words(EXPLORED, shape, dates), note)


def order_bars(orders: Sequence[Mapping[str, float]], *, title: str) -> Picture:
    """Draw each term of the CMD as a bar and what chance seldom exceeds as a stroke."""
    names = [_order_name(order) for order in range(1, len(orders) + 1)]
    limits = [entry["by_chance"] for entry in orders]
    return _bars(names, [entry["value"] for entry in orders], limits, title=title, left=96, row=46)


def loss_bars(features: Sequence[Mapping[str, Any]], *, title: str) -> Picture:
    """Draw how much of the area under the curve is lost when a feature is shuffled."""
    names = [_short(entry["name"], 18) for entry in features]
    return _bars(names, [max(entry["drop"], 0.0) for entry in features], [], title=title, left=140, row=26)


def _bars(
    names: Sequence[str], values: Sequence[float], limits: Sequence[float], *, title: str, left: float, row: int
) -> Picture:
    """Draw one bar per name with its value, and a stroke at each limit."""
    thick = 14
    frame = Frame(
        x_range=(0, max(*values, *limits, 1e-12)),
        y_range=(0, 1),
        left=left,
        right=58,
        top=4,
        bottom=4,
        height=row * len(names) + 8,
    )
    parts = []
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        middle = frame.top + row * (place + 0.5)
        end = float(frame.x(value))
        parts.append(label(frame.left - 10, middle + 4, name, anchor="end"))
        corner = f"M{number(frame.left)} {number(middle - thick / 2)}"
        parts.append(
            path(f"{corner}h{number(max(end - frame.left, 1))}v{thick}H{number(frame.left)}z", "ma-bar ma-target")
        )
        reach = end
        if limits:
            at = float(frame.x(limits[place]))
            parts.append(rule(at, middle - 9, at, middle + 9, "ma-median ma-source"))
            reach = max(end, at)
        parts.append(label(reach + 6, middle + 4, f"{value:.4f}", anchor="start"))
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def _order_name(order: int) -> str:
    """Name an order; the third and fourth stand for what they are the raw form of."""
    return f"{order}, {_ORDERS[order - 1]}" if order <= len(_ORDERS) else str(order)


def _outline(frame: Frame, shape: Shape, side: str) -> str:
    """Return one sample's steps over the floor as path commands, in whole units: a page may hold a thousand."""
    top = 1.05 * max(*shape["source"], *shape["target"], 1e-12)
    heights = np.round(np.asarray(shape[side]) / top * (frame.floor - frame.top)).astype(int)
    width = number((frame.right_edge - frame.left) / len(heights))
    steps = np.diff(heights, prepend=0)
    body = "".join(f"v{-step}h{width}" for step in steps.tolist())
    return f"M{number(frame.left)} {number(frame.floor)}{body}V{number(frame.floor)}z"


def _words(frame: Frame, shape: Shape, dates: bool) -> list[tuple[float, str, str]]:
    """Return the labels below a feature: its categories, or where its axis begins and ends."""
    names = shape["names"]
    if names is not None:
        length = frame.right_edge - frame.left
        room = max(int(length / len(names) / 8), 2)
        places = [frame.left + length * (place + 0.5) / len(names) for place in range(len(names))]
        return [
            (round(x, 1), _short(name, min(room, _LONGEST)), "middle") for x, name in zip(places, names, strict=True)
        ]
    ends = [(frame.left, shape["low"], "start"), (frame.right_edge, shape["high"], "end")]
    return [(x, _date(value) if dates else f"{value:.4g}", anchor) for x, value, anchor in ends]


def _date(days: float) -> str:
    """Write days since 1970 as a date, or as they are where there is no calendar any more."""
    try:
        return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=days))
    except OverflowError:
        return f"{days:.4g} days"


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


Result = Mapping[str, Any]

KEYS = (
    "rows",
    "alpha",
    "verdict",
    "features",
    "cmd",
    "classifier",
    "only_source",
    "only_target",
    "empty",
    "retyped",
    "versions",
)
KINDS = {"number": "numbers", "date": "dates", "category": "categories"}
PANELS, BARS, LISTED, LEVELS = 6, 10, 1000, 40
DASH = "\N{EN DASH}"
NOTHING = Cell(DASH, math.nan)


def diagnosis_page(result: Result) -> str:
    """Return the page of one result of :func:`momentalign.diagnose`."""
    read_result(result, "diagnosis", KEYS)
    sections = [
        Section("Most different features", _most_different(result)),
        Section("Every feature", _every_feature(result)),
        Section("Moments, order by order", _orders(result)),
        Section("Telling the samples apart", _telling(result)),
        Section("Categories", _categories(result)),
        Section("How this was made", _making(result)),
    ]
    shown = [section for section in sections if section.parts]
    return render_page("What shifted", result["verdict"]["words"], shown, numbers=_numbers(result))


def _numbers(result: Result) -> list[Fact]:
    """Return the numbers to remember."""
    verdict, classifier, cmd = result["verdict"], result["classifier"], result["cmd"]
    of_all = f"{len(result['features'])} features"
    facts = [
        Fact(
            "No" if verdict["level"] == "none" else verdict["level"].capitalize(),
            "shift",
            f"all tests together, {p_words(verdict['p_value'])}",
        ),
        Fact(str(len(_changed(result))), f"of {of_all} differ", f"adjusted p at most {result['alpha']:g}"),
        Fact(
            f"{classifier['proxy_a_distance']:.2f}",
            "proxy-A-distance",
            f"0 alike, 2 apart; AUC {classifier['auc']:.2f}",
        ),
    ]
    if cmd is not None:
        total = cmd["total"]
        facts.append(Fact(f"{total['value']:.3f}", "central moment discrepancy", p_words(total["p_value"])))
    return facts


def _most_different(result: Result) -> list[Markup]:
    """Return the features that differ most, side by side."""
    shown = [feature for feature in _changed(result) if feature["shape"] is not None][:PANELS]
    if not shown:
        return []
    panels = [
        feature_panel(feature["name"], feature["shape"], dates=feature["kind"] == "date", note=_note(feature))
        for feature in shown
    ]
    return [
        text("Share of each sample over the values; every picture has its own height, the outermost 1 % is cut off."),
        key(_domains()),
        row([figure(panel) for panel in panels], least="15rem", css="plain"),
    ]


def _every_feature(result: Result) -> list[Markup]:
    """Return the table of all features, over which the one pointed at is drawn."""
    listed = result["features"][:LISTED]
    left = len(result["features"]) - len(listed)
    columns = [
        "Feature",
        "Kind",
        "Differs in",
        "Distance",
        "Adjusted p",
        "Mean shift",
        "Deviation ratio",
        "Missing",
    ]
    drawings = [
        feature_drawing(feature["shape"], dates=feature["kind"] == "date", note=_explored(feature))
        for feature in listed
    ]
    words = (
        "Point at a row to see the feature in both samples, press a heading to sort. The distance is the "
        "Kolmogorov-Smirnov statistic of numbers and dates and the total variation distance of categories: 0 alike, 1 "
        "apart. The mean shift is in deviations; of missing values there are the shares in source and target, sorted "
        "by their difference."
    )
    rest = [text(f"{left:,} features that differ less are left out here.")] if left else []
    caption = f"{len(listed):,} features, the most different first"
    return [
        text(words),
        key(_domains()),
        explorer(EXPLORED, caption, columns, [_cells(feature) for feature in listed], drawings),
        *rest,
    ]


def _cells(feature: Mapping[str, Any]) -> list[Cell]:
    """Return one feature's row."""
    return [
        Cell(feature["name"]),
        Cell(KINDS[feature["kind"]]),
        Cell(", ".join(feature["changes"]) or DASH),
        _cell(feature["distance"], "{:.3f}"),
        _p_cell(feature["p_adjusted"]),
        _cell(feature["mean_shift"], "{:+.2f}"),
        _cell(feature["deviation_ratio"], "{:.2f}"),
        _missing_cell(feature["missing_source"], feature["missing_target"]),
    ]


def _orders(result: Result) -> list[Markup]:
    """Return the terms of the CMD with their p-values."""
    cmd = result["cmd"]
    if cmd is None:
        return []
    seen = cmd["seen"]
    words = (
        f"The norm of the difference of each central moment over {seen['features']:,} features of numbers and dates, "
        "each brought to [0, 1] by its 1st and 99th percentile. The strokes are what "
        f"95 % of {cmd['n_permutations']:,} random relabellings of the rows stay below."
    )
    signs = [
        Sign(path("M2 2h20v10h-20z", "ma-bar ma-target"), "measured"),
        Sign(line([12, 12], [1, 13], "ma-median ma-source"), "seldom exceeded by chance"),
    ]
    entries = [*((str(place + 1), entry) for place, entry in enumerate(cmd["orders"])), ("Sum", cmd["total"])]
    rows = [
        [
            Cell(name),
            Cell(f"{entry['value']:.4f}", entry["value"]),
            Cell(f"{entry['by_chance']:.4f}", entry["by_chance"]),
            _p_cell(entry["p_value"]),
        ]
        for name, entry in entries
    ]
    title = "Central moment discrepancy per order: " + ", ".join(f"{entry['value']:.4f}" for entry in cmd["orders"])
    return [
        text(words),
        key(signs),
        row(
            [
                figure(order_bars(cmd["orders"], title=title)),
                table("Every order", ["Order", "Value", "By chance", "p"], rows[:-1], footer=rows[-1]),
            ],
            least="20rem",
        ),
    ]


def _telling(result: Result) -> list[Markup]:
    """Return how well a classifier tells the samples apart, and what it goes by."""
    found = result["classifier"]
    words = (
        f"A classifier ({found['name']}) of {found['rows']:,} rows of each sample gets {percent(1 - found['error'])} "
        "of rows that it has not seen right, where guessing gets half: proxy-A-distance "
        f"{found['proxy_a_distance']:.2f}, area under the curve {found['auc']:.3f} "
        f"(95 % interval {found['auc_low']:.3f} to {found['auc_high']:.3f}, "
        f"{p_words(found['p_value'])})."
    )
    most = [entry for entry in found["features"] if entry["drop"] > 0][:BARS]
    if found["p_value"] > result["alpha"] or not most:
        return [text(words)]
    title = "Area lost when a feature is shuffled: " + ", ".join(f"{one['name']} {one['drop']:.3f}" for one in most)
    caption = "What it goes by"
    note = "Area under the curve that is lost when the values of a feature are shuffled."
    return [text(words), figure(loss_bars(most, title=title), caption, note=note, narrow=True)]


def _categories(result: Result) -> list[Markup]:
    """Return the shares of categories that changed most."""
    changed = [feature for feature in _changed(result) if "categories" in feature["changes"]]
    rows = [
        (
            abs(target - source),
            [Cell(feature["name"]), Cell(name), *(_share(value) for value in (source, target, target - source))],
        )
        for feature in changed
        for name, source, target in zip(
            *(feature["shape"][part] for part in ("names", "source", "target")), strict=True
        )
    ]
    if not rows:
        return []
    ordered = [cells for _, cells in sorted(rows, key=lambda entry: -entry[0])[:LEVELS]]
    unseen = [f"{feature['name']} {percent(feature['new'])}" for feature in changed if feature["new"]]
    words = (
        [text(f"Share of the target in categories that the source does not have: {', '.join(unseen)}.")]
        if unseen
        else []
    )
    columns = ["Feature", "Category", "Share in source", "in target", "Change"]
    return [*words, table("Categories of the features that differ", columns, ordered)]


def _making(result: Result) -> list[Markup]:
    """Return what was compared, and how."""
    rows = result["rows"]
    lists = [
        ("In the source only", result["only_source"]),
        ("In the target only", result["only_target"]),
        ("Without any value", result["empty"]),
        ("Of another kind in the target", result["retyped"]),
    ]
    return [
        definitions(
            [
                ("Rows", f"{rows['source']:,} in the source, {rows['target']:,} in the target"),
                *((name, ", ".join(names)) for name, names in lists if names),
                *_rows_of_moments(result),
                (
                    "Tests",
                    "Kolmogorov-Smirnov (numbers, dates), chi-square (categories, missing values), Fisher's exact test "
                    "where rows are few; p-values adjusted together by Benjamini and Hochberg",
                ),
                (
                    "Strength",
                    f"{result['verdict']['strength']:.2f}: the largest of 2 AUC - 1 and the distances of features that "
                    "differ; mild below 0.2, moderate below 0.4, strong above",
                ),
                ("Versions", version_words(result["versions"])),
                ("Paper", PAPER),
            ]
        )
    ]


def _rows_of_moments(result: Result) -> list[tuple[str, str]]:
    if result["cmd"] is None:
        return []
    seen = result["cmd"]["seen"]
    return [("Rows in the permutation test", f"{seen['source']:,} of the source, {seen['target']:,} of the target")]


def _domains() -> list[Sign]:
    return [Sign(line([2, 22], [7, 7], f"ma-line ma-{domain}"), domain) for domain in ("source", "target")]


def _changed(result: Result) -> list[Mapping[str, Any]]:
    return [feature for feature in result["features"] if feature["changes"]]


def _note(feature: Mapping[str, Any]) -> str:
    """Say in few letters how far apart a feature is."""
    return (
        ""
        if feature["distance"] is None
        else f"{'TV' if feature['kind'] == 'category' else 'KS'} {feature['distance']:.2f}"
    )


def _explored(feature: Mapping[str, Any]) -> str:
    """Say what differs about a feature."""
    parts = [*feature["changes"]] or ["no significant difference"]
    if feature["mean_source"] is not None and feature["kind"] == "number":
        parts.append(f"mean {feature['mean_source']:.4g} in the source, {feature['mean_target']:.4g} in the target")
    return ", ".join(parts)


def _cell(value: float | None, form: str) -> Cell:
    return NOTHING if value is None else Cell(form.format(value), _short_of_diagnosis_page(value))


def _missing_cell(source: float, target: float) -> Cell:
    words = f"{percent(source)} → {percent(target)}" if source or target else DASH
    return Cell(words, _short_of_diagnosis_page(target - source))


def _p_cell(p: float | None) -> Cell:
    return NOTHING if p is None else Cell(p_words(p).removeprefix("p ").removeprefix("= "), _short_of_diagnosis_page(p))


def _share(value: float) -> Cell:
    return Cell(percent(value), _short_of_diagnosis_page(value))


def _short_of_diagnosis_page(value: float) -> float:
    """Keep what a table sorts by short: a page may hold a thousand rows."""
    return float(f"{value:.5g}")


_FEATURES, _PANELS = 12, 3
_SOURCE, _TARGET = "#59616b", "#c02a73"


def diagnosis_figure(result: Mapping[str, Any]) -> Figure:
    """Draw the distances of the features, the CMD order by order, and the features that differ most."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("plot() needs matplotlib: pip install momentalign[deep]") from error

    figure = Figure(figsize=(11, 6.5), layout="constrained")
    grid = figure.add_gridspec(2, 2 * _PANELS)
    _draw_distances(figure.add_subplot(grid[0, :_PANELS]), result["features"][:_FEATURES], result["alpha"])
    _draw_orders(figure.add_subplot(grid[0, _PANELS:]), result["cmd"])
    shown = [feature for feature in result["features"] if feature["shape"] is not None][:_PANELS]
    for place, feature in enumerate(shown):
        _draw_feature(figure.add_subplot(grid[1, 2 * place : 2 * place + 2]), feature)
    figure.suptitle(result["verdict"]["words"], wrap=True, fontsize=10)
    return figure


def _draw_distances(place: Axes, features: Sequence[Mapping[str, Any]], alpha: float) -> None:
    """Draw how far apart features are; pale ones do not differ significantly."""
    names = [feature["name"] for feature in features]
    values = [feature["distance"] or 0.0 for feature in features]
    colours = [_TARGET if feature["changes"] else "#c9cdd2" for feature in features]
    place.barh(range(len(names)), values, color=colours)
    place.set_yticks(range(len(names)), names)
    place.invert_yaxis()
    place.set_xlim(0, 1)
    place.set_title(f"Distance of features (coloured: adjusted p at most {alpha:g})", fontsize=9)


def _draw_orders(place: Axes, cmd: Mapping[str, Any] | None) -> None:
    """Draw the terms of the CMD as bars and what chance seldom exceeds as strokes."""
    if cmd is None:
        place.set_axis_off()
        return
    orders = np.arange(1, len(cmd["orders"]) + 1)
    place.bar(orders, [entry["value"] for entry in cmd["orders"]], color=_TARGET, label="measured")
    limits = [entry["by_chance"] for entry in cmd["orders"]]
    place.hlines(limits, orders - 0.4, orders + 0.4, color=_SOURCE, label="95 % of relabellings stay below")
    place.set_title(f"Central moment discrepancy per order (p = {cmd['total']['p_value']:.3g})", fontsize=9)
    place.legend(frameon=False, fontsize=8)


def _draw_feature(place: Axes, feature: Mapping[str, Any]) -> None:
    """Draw the shares of both samples over one feature."""
    shape = feature["shape"]
    for side, colour in (("source", _SOURCE), ("target", _TARGET)):
        if shape["names"] is None:
            edges = np.linspace(shape["low"], shape["high"], len(shape[side]) + 1)
            place.stairs(shape[side], edges, fill=True, alpha=0.3, color=colour, label=side)
        else:
            shift = -0.2 if side == "source" else 0.2
            place.bar(np.arange(len(shape[side])) + shift, shape[side], width=0.4, color=colour, label=side)
    if shape["names"] is not None:
        place.set_xticks(range(len(shape["names"])), shape["names"], rotation=30, fontsize=8)
    place.set_yticks([])
    place.set_title(f"{feature['name']}: {', '.join(feature['changes']) or 'no significant difference'}", fontsize=9)
    place.legend(frameon=False, fontsize=8)

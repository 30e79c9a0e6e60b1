"""The pictures of a diagnosis: a feature in both samples, moments order by order, and what a classifier goes by."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from momentalign.report.parts import Drawing
from momentalign.report.svg import Frame, Picture, axes, label, number, path, rule

__all__ = ["EXPLORED", "feature_drawing", "feature_panel", "loss_bars", "order_bars"]

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

"""A diagnosis as one figure of matplotlib; imported only where it is drawn, as matplotlib is an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["diagnosis_figure"]

_FEATURES, _PANELS = 12, 3
_SOURCE, _TARGET = "#59616b", "#c02a73"


def diagnosis_figure(result: Mapping[str, Any]) -> Figure:
    """Draw the distances of the features, the CMD order by order, and the features that differ most."""
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

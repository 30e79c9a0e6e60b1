"""What a notebook shows of an object in place of its ``repr``: a small card, in the style of the pages.

A card carries its style with it and has no script, so that it looks the same in every notebook and in saved ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from momentalign.report.page import Cell, Fact, figure, macro, percent
from momentalign.report.svg import Frame, Picture, axes, marks, rule, ticks

__all__ = ["card", "estimate_card", "plain_table", "portfolio_card"]

_DOT = "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0"
_DASH = Cell("\N{EN DASH}")
# Candidates with less weight than half a percent are counted, not listed.
_LISTED = 0.005


def card(title: str, lead: str = "", *, facts: Iterable[Fact] = (), parts: Iterable[Markup] = ()) -> str:
    """Return a card as HTML: a title, a sentence, a few numbers, and parts of :mod:`momentalign.report.page`.

    Examples
    --------
    >>> found = card("A < B", "One sentence.")
    >>> "<b>A &lt; B</b>" in found, "<script" in found
    (True, False)
    """
    style = files("momentalign.report").joinpath("templates", "figure.css").read_text(encoding="utf-8")
    # A notebook has a root of its own, whose colours are not ours to set.
    style = style.replace("svg:root", ".ma-card svg").replace(":root", ".ma-card")
    return str(macro("card", "notebook.html")(Markup(style), title, lead, list(facts), list(parts)))  # noqa: S704  # nosec B704 (our own style sheet)


def plain_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Markup:
    """Return a table without buttons to sort it by."""
    return macro("plain_table", "notebook.html")(caption, columns, rows)


def estimate_card(value: float, low: float, high: float, metric: str) -> str:
    """Return the card of an expected figure on the target with its interval."""
    return card(
        "Expected on the target",
        "With an interval of 90 %; no target label was used.",
        facts=[Fact(_figure(value, metric), metric.replace("_", " "))],
        parts=[figure(_interval(value, low, high, metric), narrow=True)],
    )


def portfolio_card(
    name: str, decision: str, estimate: tuple[float, float, float, str], candidates: Sequence[Mapping[str, Any]]
) -> str:
    """Return the card of a fitted portfolio: what was decided, what to expect, and which models answer."""
    value, low, high, metric = estimate
    expected = Fact(_figure(value, metric), f"expected {metric}", f"{_figure(low, metric)} to {_figure(high, metric)}")
    shown = sorted((one for one in candidates if one["weight"] >= _LISTED), key=lambda one: -float(one["weight"]))
    rows = [
        [
            Cell(str(one["name"])),
            Cell(percent(float(one["weight"])), float(one["weight"])),
            *(_cell(one[part], metric) for part in ("source_score", "estimated_target_score")),
        ]
        for one in shown
    ]
    left_out = len(candidates) - len(shown)
    caption = "Models that answer" + (f"; {left_out} of {len(candidates)} have no weight" if left_out else "")
    columns = ["Model", "Weight", "Held-out source", "Expected on the target"]
    return card(name, decision, facts=[expected], parts=[plain_table(caption, columns, rows)])


def _cell(value: Any, metric: str) -> Cell:
    number = float(value)
    return _DASH if number != number else Cell(_figure(number, metric), number)


def _figure(value: float, metric: str) -> str:
    return percent(value) if metric in ("accuracy", "balanced_accuracy") else f"{value:.2f}"


def _interval(value: float, low: float, high: float, metric: str) -> Picture:
    least, most = (0.0, 1.0) if metric in ("accuracy", "balanced_accuracy") else (min(0.0, low), max(1.0, high))
    frame = Frame(x_range=(least, most), y_range=(0, 1), width=360, height=64, left=14, right=14, top=6, bottom=28)
    x = [float(frame.x(at)) for at in (low, value, high)]
    middle = float(frame.y(0.5))
    parts = [
        axes(frame, x_ticks=[(at, f"{at:g}") for at in ticks(least, most)]),
        rule(x[0], middle, x[2], middle, "ma-median ma-mann"),
        marks([x[1]], [middle], _DOT, "ma-bar ma-mann"),
    ]
    words = f"{metric} {_figure(value, metric)}, from {_figure(low, metric)} to {_figure(high, metric)}"
    return Picture(frame.width, frame.height, words, Markup("").join(parts))

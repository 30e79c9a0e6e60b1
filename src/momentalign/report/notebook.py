"""What a notebook shows of an object in place of its ``repr``: a small card, in the style of the pages.

A card carries its style with it and has no script, so that it looks the same in every notebook and in saved ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from operator import itemgetter
from typing import Any

from markupsafe import Markup

from momentalign.report.page import (
    Axis,
    Cell,
    Columns,
    Fact,
    Track,
    macro,
    number_cell,
    number_of,
    percent,
    records_table,
)

__all__ = ["card", "estimate_card", "portfolio_card"]

_SHARES = ("accuracy", "balanced_accuracy")
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


def estimate_card(value: float, low: float, high: float, metric: str) -> str:
    """Return the card of an expected figure on the target with its interval."""
    least, most = (0.0, 1.0) if metric in _SHARES else (max(min(0.0, low), -1.0), max(1.0, high))
    columns: Columns = {
        "Metric": lambda name: name.replace("_", " "),
        Axis(metric, least, most, partial(_figure, metric=metric)): lambda _: Cell(
            "", track=Track([(value, "ma-mann")], (low, high))
        ),
        "Expected": lambda _: number_cell(value, partial(_figure, metric=metric)),
        "90 % interval": lambda _: Cell(f"{_figure(low, metric)} to {_figure(high, metric)}"),
    }
    listed = records_table("Estimated without a label of the target", [metric], columns, sortable=False)
    return card("Expected on the target", parts=[listed])


def portfolio_card(
    name: str, decision: str, estimate: tuple[float, float, float, str], candidates: Sequence[Mapping[str, Any]]
) -> str:
    """Return the card of a fitted portfolio: what was decided, what to expect, and which models answer."""
    value, low, high, metric = estimate
    expected = Fact(_figure(value, metric), f"expected {metric}", f"{_figure(low, metric)} to {_figure(high, metric)}")
    shown = sorted((one for one in candidates if one["weight"] >= _LISTED), key=lambda one: -float(one["weight"]))
    left_out = len(candidates) - len(shown)
    columns: Columns = {
        "Model": itemgetter("name"),
        "Weight": number_of("weight", percent),
        "Held-out source": number_of("source_score", partial(_figure, metric=metric)),
        "Expected on the target": number_of("estimated_target_score", partial(_figure, metric=metric)),
    }
    caption = "Models that answer" + (f"; {left_out} of {len(candidates)} have no weight" if left_out else "")
    return card(name, decision, facts=[expected], parts=[records_table(caption, shown, columns, sortable=False)])


def _figure(value: float, metric: str) -> str:
    return percent(value) if metric in _SHARES else f"{value:.2f}"

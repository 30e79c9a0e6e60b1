"""The page of a monitor: how far each window was from the reference, and the accuracy that was to be expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from momentalign.report.page import Fact, Section, figure, percent, render_page, text
from momentalign.report.svg import Frame, Picture, area, axes, line, marks, rule, ticks

__all__ = ["monitoring_page"]

Judgements = Sequence[Mapping[str, Any]]
_DOT = "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0"


def monitoring_page(judgements: Judgements, alarms: int) -> str:
    """Return the page of the judgements of a monitor as plain dictionaries, at least one, the oldest first."""
    last = judgements[-1]
    expected = [judgement for judgement in judgements if judgement["accuracy"] is not None]
    facts = [Fact(f"{last['rows']:,}", "rows seen"), Fact(str(alarms), "alarms", f"in {len(judgements)} judgements")]
    sections = [
        Section(
            "Distance from the reference",
            [figure(_distances(judgements), note="In units of the threshold; filled: alarms.")],
        )
    ]
    if expected:
        value, low, high = (expected[-1]["accuracy"][name] for name in ("value", "low", "high"))
        facts.append(Fact(percent(value), "expected accuracy", f"{percent(low)} to {percent(high)}, last window"))
        note = "Estimated without labels, window by window, with intervals of 90 %."
        sections.insert(0, Section("Expected accuracy", [figure(_accuracies(expected), note=note)]))
    sections.append(Section("Alarms", [text(one["words"]) for one in judgements if one["alarm"]][-20:]))
    return render_page("Watching a model", last["words"], [part for part in sections if part.parts], numbers=facts)


def _frame(rows: Sequence[float], y_range: tuple[float, float]) -> Frame:
    low, high = min(rows), max(rows)
    return Frame(x_range=(low, high if high > low else low + 1), y_range=y_range, width=720, height=240, left=52)


def _distances(judgements: Judgements) -> Picture:
    rows, statistics = ([judgement[name] for judgement in judgements] for name in ("rows", "statistic"))
    frame = _frame(rows, (0.0, 1.1 * max(1.0, *statistics)))
    alarms = [(judgement["rows"], judgement["statistic"]) for judgement in judgements if judgement["alarm"]]
    threshold = float(frame.y(1.0))
    parts = [
        _axes(frame, [(at, f"{at:g}") for at in ticks(*frame.y_range)]),
        rule(frame.left, threshold, frame.right_edge, threshold, "ma-median ma-source"),
        line(frame.x(rows), frame.y(statistics), "ma-line ma-target"),
    ]
    if alarms:
        at, values = zip(*alarms, strict=True)
        parts.append(marks(frame.x(at), frame.y(values), _DOT, "ma-bar ma-target"))
    title = f"Statistic over {rows[-1]:,} rows, {len(alarms)} alarms; the threshold is 1"
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def _accuracies(judgements: Judgements) -> Picture:
    rows = [judgement["rows"] for judgement in judgements]
    value, low, high = ([judgement["accuracy"][name] for judgement in judgements] for name in ("value", "low", "high"))
    frame = _frame(rows, (min(0.5, *low), 1.0))
    x = frame.x([*rows, *rows[::-1]])
    parts = [
        area(x, frame.y([*high, *low[::-1]]), float(frame.y(low[0])), "ma-area ma-mann"),
        _axes(frame, [(at, percent(at)) for at in ticks(*frame.y_range)]),
        line(frame.x(rows), frame.y(value), "ma-line ma-mann"),
        marks(frame.x(rows), frame.y(value), _DOT, "ma-bar ma-mann"),
    ]
    title = "Expected accuracy by rows: " + ", ".join(
        f"{at:,} {share:.2f}" for at, share in zip(rows, value, strict=True)
    )
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def _axes(frame: Frame, y_ticks: list[tuple[float, str]]) -> Markup:
    x_ticks = [(at, f"{at:,.0f}") for at in ticks(*frame.x_range)]
    return axes(frame, x_ticks=x_ticks, y_ticks=y_ticks, x_label="rows seen")

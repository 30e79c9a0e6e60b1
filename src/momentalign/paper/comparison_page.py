"""The page of an experiment with a table (Sections 6.3 to 6.5): every method on every task, beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape

from momentalign.paper.tables import (
    Comparison,
    Entry,
    PaperTable,
    compare,
    describe_ranks,
    latex,
    long_task,
    markdown,
    signed,
)
from momentalign.report.page import (
    PAPER,
    Cell,
    Fact,
    Section,
    Sign,
    definitions,
    figure,
    key,
    percent,
    render_page,
    row,
    table,
    text,
    versions_text,
)
from momentalign.report.svg import DIAMOND, Frame, Picture, axes, label, marks, path, rule, ticks

__all__ = ["KEYS", "PageText", "comparison_page", "describe_settings", "origin"]

Result = Mapping[str, Any]

KEYS = ("protocol", "versions", "data", "seeds", "tasks", "methods")
COLOURS = {"nn": "ma-nn", "cnn": "ma-nn", "cmd": "ma-mann", "cv-cmd": "ma-mann", "fp-cmd": "ma-mann"}
MUTED = Markup('<small style="color: var(--muted); font-weight: 400">{}</small>')
ROW_HEIGHT = 21


class PageText(NamedTuple):
    """The texts of one page: title, the plain and the aligned method of the headline, and what is tested."""

    title: str
    before: str
    after: str
    tested: str


def comparison_page(result: Result, paper: PaperTable, texts: PageText, *, more: Sequence[Section] = ()) -> str:
    """Return the page of a result beside a table of the paper, with the sections in `more` before the last one."""
    comparison = compare(result, paper)
    sections = [
        Section("Beside the paper", _summary(result, comparison)),
        Section("Every task", _tasks(result, comparison, texts)),
        *more,
        Section("How this was made", _making(result)),
    ]
    return render_page(texts.title, _headline(comparison, texts), sections, numbers=_facts(comparison, texts))


def _headline(comparison: Comparison, texts: PageText) -> str:
    """The one sentence that says what was found."""
    over = f"averaged over {_count(len(comparison.tasks), 'task')} and {_count(comparison.n_seeds, 'seed')}"
    averages, pair = comparison.averages, (texts.before, texts.after)
    if not set(pair) <= set(averages):
        best = max(averages, key=lambda method: averages[method].mean)
        return f"{comparison.titles[best]} gets {_percent(averages[best].mean)} of the target right, {over}."
    before, after = (_percent(averages[method].mean) for method in pair)
    if before == after:
        change = f"leaves the accuracy on the unlabelled target at {after}"
    else:
        verb = "raises" if averages[texts.after].mean > averages[texts.before].mean else "lowers"
        change = f"{verb} the accuracy on the unlabelled target from {before} to {after}"
    papers = [_percent(paper) for paper in (averages[method].paper for method in pair) if paper is not None]
    beside = f"; the {comparison.paper_name} has {' and '.join(papers)}" if papers else ""
    return f"Aligning moments {change}, {over}{beside}."


def _facts(comparison: Comparison, texts: PageText) -> list[Fact]:
    """The values to remember."""
    found = []
    for method in (texts.before, texts.after):
        if method in comparison.averages:
            entry = comparison.averages[method]
            note = "" if entry.paper is None else f"{comparison.paper_name} {_percent(entry.paper)}"
            found.append(Fact(_percent(entry.mean), f"{comparison.titles[method]}, average", note))
    if texts.after not in comparison.averages:
        return found
    best = sum(comparison.best(task) == texts.after for task in comparison.tasks)
    rank, title = comparison.paper_ranks.get(texts.after), comparison.titles[texts.after]
    return [
        *found,
        Fact(
            f"{comparison.ranks[texts.after]:.1f}",
            f"average rank of {title}, of {len(comparison.titles)}",
            "" if rank is None else f"{comparison.paper_name} {rank:.1f}, of {len(comparison.paper_ranks)}",
        ),
        Fact(f"{best} of {len(comparison.tasks)}", f"tasks on which {title} is the most accurate"),
    ]


def _summary(result: Result, comparison: Comparison) -> list[Markup]:
    """Averages and ranks of all methods."""
    columns = ["Method", "Average", "Paper", "Difference", "Average rank", "Paper's rank", "Best on"]
    rows = []
    for method, title in comparison.titles.items():
        entry = comparison.averages[method]
        best = sum(comparison.best(task) == method for task in comparison.tasks)
        std = "" if entry.std is None else f" ± {entry.std:.1f}"
        rows.append(
            [
                Cell(title),
                Cell(f"{entry.mean:.1f}{std}", entry.mean),
                _number(entry.paper),
                Cell("") if entry.difference is None else Cell(_with_minus(entry.difference), entry.difference),
                _number(comparison.ranks[method]),
                _number(comparison.paper_ranks.get(method)),
                Cell(_count(best, "task"), best),
            ]
        )
    note = [text(result["note"])] if result.get("note") else []
    caption = f"Accuracy in percent, mean ± standard deviation over {_count(comparison.n_seeds, 'seed')}"
    return [*note, text(describe_ranks(comparison)), table(caption, columns, rows)]


def _tasks(result: Result, comparison: Comparison, texts: PageText) -> list[Markup]:
    """A panel per task, the table, and its sources."""
    signs = [
        Sign(marks([12], [7], "h0", "ma-run ma-mann"), "one seed"),
        Sign(path("M12 1v12", "ma-median ma-mann"), "mean"),
        Sign(marks([12], [7], DIAMOND, "ma-paper"), comparison.paper_name),
    ]
    x_range = _shared_range(result, comparison)
    panels = [figure(_panel(result, comparison, task, x_range), long_task(task)) for task in comparison.tasks]
    return [
        text(f"{texts.tested} All panels have the same scale."),
        key(signs),
        row(panels, least="17rem"),
        _table(comparison),
        _sources(comparison),
    ]


def _shared_range(result: Result, comparison: Comparison) -> tuple[float, float]:
    """The limits of all panels: everything shown, and a little margin."""
    shown = [
        100 * value
        for method in comparison.titles
        for task in comparison.tasks
        for value in result["methods"][method]["accuracy"][task]
    ]
    papers = [entry.paper for entries in comparison.entries.values() for entry in entries.values()]
    shown += [value for value in papers if value is not None]
    return float(np.floor(min(shown) - 0.5)), float(np.ceil(max(shown) + 0.5))


def _panel(result: Result, comparison: Comparison, task: str, x_range: tuple[float, float]) -> Picture:
    """Every run of every method on one task, the mean, and the paper's value."""
    methods = list(comparison.titles)
    frame = Frame(
        x_range=x_range, y_range=(0, len(methods)), width=320, height=ROW_HEIGHT * len(methods) + 26,
        left=76, right=14, top=2, bottom=24,
    )  # fmt: skip
    parts = [axes(frame, x_ticks=[(at, f"{at:g} %") for at in ticks(*x_range)])]
    for index, method in enumerate(methods):
        entry, middle = comparison.entries[method][task], frame.top + ROW_HEIGHT * (index + 0.5)
        across = frame.x([100 * value for value in result["methods"][method]["accuracy"][task]])
        css = COLOURS.get(method, "ma-class-0")
        mean = float(frame.x(entry.mean))
        parts += [
            label(frame.left - 10, middle + 4, comparison.titles[method], anchor="end"),
            rule(frame.left, middle, frame.right_edge, middle, "ma-rule"),
            marks(across, np.full(len(across), middle), "h0", f"ma-run {css}"),
            rule(mean, middle - 7, mean, middle + 7, f"ma-median {css}"),
        ]
        if entry.paper is not None:
            parts.append(marks([float(frame.x(entry.paper))], [middle], DIAMOND, "ma-paper"))
    means = "; ".join(f"{title} {comparison.entries[m][task].mean:.1f}" for m, title in comparison.titles.items())
    title = f"Accuracy in percent on {long_task(task)}: {means}"
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def _table(comparison: Comparison) -> Markup:
    """The table, the paper's values below those found here."""
    *rows, average = [
        [Cell(name), *(_cell(entry, method == best) for method, entry in entries.items())]
        for name, entries, best in comparison.rows()
    ]
    caption = f"Accuracy in percent, mean ± standard deviation; below it the {comparison.paper_name} and the difference"
    return table(caption, ["Task", *comparison.titles.values()], rows, footer=average)


def _cell(entry: Entry, best: bool) -> Cell:
    mean = f"{entry.mean:.1f}"
    content = Markup("<b>{}</b>").format(mean) if best else escape(mean)
    if entry.std is not None:
        content += " " + MUTED.format(f"± {entry.std:.1f}")
    if entry.difference is not None:
        content += Markup("<br>") + MUTED.format(f"{entry.paper:.1f}, {_with_minus(entry.difference)}")
    return Cell(content, entry.mean)


def _sources(comparison: Comparison) -> Markup:
    """The table as text to copy."""
    block = Markup(
        '<details style="margin-top: 1rem"><summary>{}</summary>'
        '<div class="scroll" role="region" aria-label="{}" tabindex="0">'
        '<pre style="margin: 0; padding: 1rem; font-size: .85rem">{}</pre></div></details>'
    )
    forms = (("Markdown", markdown(comparison)), ("LaTeX", latex(comparison)))
    return Markup("").join(block.format(f"The table in {name}", f"Table in {name}", source) for name, source in forms)


def _making(result: Result) -> list[Markup]:
    """Settings, protocol, data and versions."""
    settings = [
        (str(method["title"]), describe_settings(method["settings"]) or "nothing to set")
        for method in result["methods"].values()
    ]
    return [definitions([*settings, *origin(result)])]


def origin(result: Result) -> list[tuple[str, str | Markup]]:
    """Return what a result was made with and from: protocol, seeds, data and versions."""
    return [
        ("Protocol", describe_settings(result["protocol"])),
        ("Seeds", ", ".join(map(str, result["seeds"]))),
        *((name, f"SHA-256 {digest}") for name, digest in result["data"].items()),
        ("Versions", versions_text(result["versions"])),
        ("Paper", PAPER),
    ]


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Write settings in one line.

    Examples
    --------
    >>> describe_settings({"weight": 1.0, "n_moments": 5, "sizes": [1, 2]})
    'weight 1, n moments 5, sizes 1 2'
    """
    return ", ".join(f"{name.replace('_', ' ')} {_describe_value(value)}" for name, value in settings.items())


def _describe_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(_describe_value, value))
    return str(value)


def _number(value: float | None) -> Cell:
    return Cell("") if value is None else Cell(f"{value:.1f}", value)


def _with_minus(difference: float) -> str:
    return signed(difference).replace("-", "\N{MINUS SIGN}")


def _percent(value: float) -> str:
    return percent(value / 100)


def _count(number: int, thing: str) -> str:
    return f"one {thing}" if number == 1 else f"{number} {thing}s"

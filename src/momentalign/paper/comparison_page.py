"""Pages of experiments with a table: every method on every task, ours beside the paper's.

Sections 6.3 to 6.5 with Tables 2, 4 and 5 of Zellinger et al. (2019) are shown so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape

from momentalign.paper.tables import Comparison, Entry, latex, long_task, markdown, rank_words, short_task, signed
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
    version_words,
)
from momentalign.report.svg import DIAMOND, Frame, Picture, axes, label, marks, path, rule, ticks

__all__ = ["KEYS", "Words", "comparison_page", "settings_words"]

Result = Mapping[str, Any]

KEYS = ("protocol", "versions", "data", "seeds", "tasks", "methods")
COLOURS = {"nn": "ma-nn", "cmd": "ma-mann", "cv-cmd": "ma-mann", "fp-cmd": "ma-mann", "cnn": "ma-nn"}
MUTED = Markup('<small style="color: var(--muted); font-weight: 400">{}</small>')


class Words(NamedTuple):
    """What a page says of its own: title, the plain method and the aligned one of the headline, and what is tested."""

    title: str
    before: str
    after: str
    tested: str


def comparison_page(result: Result, comparison: Comparison, words: Words, *, more: Sequence[Section] = ()) -> str:
    """Return the page of one result: methods on tasks beside a table of the paper, and what there is `more` to show."""
    sections = [
        Section("Beside the paper", _summary(result, comparison)),
        Section("Every task", _tasks(result, comparison, words)),
        *more,
        Section("How this was made", _making(result)),
    ]
    return render_page(words.title, _headline(comparison, words), sections, numbers=_numbers(comparison, words))


def _headline(comparison: Comparison, words: Words) -> str:
    """Return the one sentence that says what was found."""
    over = f"averaged over {_count(len(comparison.tasks), 'task')} and {_count(comparison.n_seeds, 'seed')}"
    averages = comparison.averages
    pair = (words.before, words.after)
    if not set(pair) <= set(averages):
        best = max(averages, key=lambda method: averages[method].mean)
        return f"{comparison.titles[best]} gets {_percent(averages[best].mean)} of the target right, {over}."
    before, after = (_percent(averages[method].mean) for method in pair)
    if before == after:
        change = f"leaves the accuracy on the unlabelled target at {after}"
    else:
        verb = "raises" if averages[words.after].mean > averages[words.before].mean else "lowers"
        change = f"{verb} the accuracy on the unlabelled target from {before} to {after}"
    papers = [_percent(entry.paper) for entry in map(averages.__getitem__, pair) if entry.paper is not None]
    beside = f"; the {comparison.paper_words} has {' and '.join(papers)}" if papers else ""
    return f"Aligning moments {change}, {over}{beside}."


def _numbers(comparison: Comparison, words: Words) -> list[Fact]:
    """Return the numbers to remember."""
    shown = [method for method in (words.before, words.after) if method in comparison.averages]
    entries = [(comparison.titles[method], comparison.averages[method]) for method in shown]
    averages = [
        Fact(_percent(entry.mean), f"{title}, average", _paper_note(comparison, entry.paper))
        for title, entry in entries
    ]
    if words.after not in shown:
        return averages
    best = sum(comparison.best(task) == words.after for task in comparison.tasks)
    rank = comparison.paper_ranks.get(words.after)
    title = comparison.titles[words.after]
    return [
        *averages,
        Fact(
            f"{comparison.ranks[words.after]:.1f}",
            f"average rank of {title}, of {len(comparison.titles)}",
            "" if rank is None else f"{comparison.paper_words} {rank:.1f}, of {len(comparison.paper_ranks)}",
        ),
        Fact(f"{best} of {len(comparison.tasks)}", f"tasks on which {title} is the most accurate"),
    ]


def _summary(result: Result, comparison: Comparison) -> list[Markup]:
    """Return averages and ranks of all methods."""
    columns = ["Method", "Average", "Paper", "Difference", "Average rank", "Paper's rank", "Best on"]
    rows = []
    for method, title in comparison.titles.items():
        entry, rank = comparison.averages[method], comparison.paper_ranks.get(method)
        best = sum(comparison.best(task) == method for task in comparison.tasks)
        rows.append(
            [
                Cell(title),
                Cell(_mean_words(entry), entry.mean),
                _number(entry.paper),
                Cell("") if entry.difference is None else Cell(_signed(entry.difference), entry.difference),
                Cell(f"{comparison.ranks[method]:.1f}", comparison.ranks[method]),
                _number(rank),
                Cell(_count(best, "task"), best),
            ]
        )
    note = [text(result["note"])] if result.get("note") else []
    caption = f"Accuracy in percent, mean ± deviation over {_count(comparison.n_seeds, 'seed')}"
    return [*note, text(rank_words(comparison)), table(caption, columns, rows)]


def _tasks(result: Result, comparison: Comparison, words: Words) -> list[Markup]:
    """Return a panel per task, the table, and its sources."""
    signs = [
        Sign(marks([12], [7], "h0", "ma-run ma-mann"), "one seed"),
        Sign(path("M12 1v12", "ma-median ma-mann"), "mean"),
        Sign(marks([12], [7], DIAMOND, "ma-paper"), comparison.paper_words),
    ]
    x_range = _range(result, comparison)
    panels = [figure(_panel(result, comparison, task, x_range), long_task(task)) for task in comparison.tasks]
    return [
        text(f"{words.tested} All panels have the same scale."),
        key(signs),
        row(panels, least="17rem"),
        _table(comparison),
        _sources(comparison),
    ]


def _panel(result: Result, comparison: Comparison, task: str, x_range: tuple[float, float]) -> Picture:
    """Draw every run of every method on one task, the mean, and the paper's value."""
    high = 21
    methods = list(comparison.titles)
    frame = Frame(
        x_range=x_range,
        y_range=(0, len(methods)),
        width=320,
        height=high * len(methods) + 26,
        left=76,
        right=14,
        top=2,
        bottom=24,
    )
    parts = [axes(frame, x_ticks=[(at, f"{at:g} %") for at in ticks(*x_range)])]
    for index, method in enumerate(methods):
        entry, middle = comparison.entries[method][task], frame.top + high * (index + 0.5)
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
    words = "; ".join(
        f"{title} {comparison.entries[method][task].mean:.1f}" for method, title in comparison.titles.items()
    )
    return Picture(
        frame.width, frame.height, f"Accuracy in percent on {long_task(task)}: {words}", Markup("").join(parts)
    )


def _range(result: Result, comparison: Comparison) -> tuple[float, float]:
    """Return the limits of all panels: everything shown, and a little air."""
    ours = [
        100 * value
        for method in comparison.titles
        for task in comparison.tasks
        for value in result["methods"][method]["accuracy"][task]
    ]
    papers = [entry.paper for entries in comparison.entries.values() for entry in entries.values()]
    every = [*ours, *(value for value in papers if value is not None)]
    return float(np.floor(min(every) - 0.5)), float(np.ceil(max(every) + 0.5))


def _table(comparison: Comparison) -> Markup:
    """Return the table, ours above the paper's in every cell."""
    rows = []
    for task in comparison.tasks:
        best = comparison.best(task)
        cells = [_cell(entries[task], method == best) for method, entries in comparison.entries.items()]
        rows.append([Cell(short_task(task)), *cells])
    top = max(comparison.averages, key=lambda method: comparison.averages[method].mean)
    footer = [Cell("Average"), *(_cell(entry, name == top) for name, entry in comparison.averages.items())]
    caption = f"Accuracy in percent, mean ± deviation; below it the {comparison.paper_words} and the difference"
    return table(caption, ["Task", *comparison.titles.values()], rows, footer=footer)


def _cell(entry: Entry, best: bool) -> Cell:
    mean = f"{entry.mean:.1f}"
    words = Markup("<b>{}</b>").format(mean) if best else escape(mean)
    if entry.deviation is not None:
        words += " " + MUTED.format(f"± {entry.deviation:.1f}")
    if entry.difference is not None:
        words += Markup("<br>") + MUTED.format(f"{entry.paper:.1f}, {_signed(entry.difference)}")
    return Cell(words, entry.mean)


def _sources(comparison: Comparison) -> Markup:
    """Return the table as text to copy."""
    block = Markup(
        '<details style="margin-top: 1rem"><summary>{}</summary>'
        '<div class="scroll" role="region" aria-label="{}" tabindex="0">'
        '<pre style="margin: 0; padding: 1rem; font-size: .85rem">{}</pre></div></details>'
    )
    forms = (("Markdown", markdown(comparison)), ("LaTeX", latex(comparison)))
    return Markup("").join(block.format(f"The table in {name}", f"Table in {name}", words) for name, words in forms)


def _making(result: Result) -> list[Markup]:
    """Return settings, protocol, data and versions."""
    settings = [
        (str(method["title"]), settings_words(method["settings"]) or "nothing to set")
        for method in result["methods"].values()
    ]
    return [
        definitions(
            [
                *settings,
                ("Protocol", settings_words(result["protocol"])),
                ("Seeds", ", ".join(map(str, result["seeds"]))),
                *((name, f"SHA-256 {digest}") for name, digest in result["data"].items()),
                ("Versions", version_words(result["versions"])),
                ("Paper", PAPER),
            ]
        )
    ]


def settings_words(settings: Mapping[str, Any]) -> str:
    """Write settings in one line.

    Examples
    --------
    >>> settings_words({"weight": 1.0, "n_moments": 5, "sizes": [1, 2]})
    'weight 1, n moments 5, sizes 1 2'
    """
    return ", ".join(f"{name.replace('_', ' ')} {_value_words(value)}" for name, value in settings.items())


def _value_words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(_value_words, value))
    return str(value)


def _mean_words(entry: Entry) -> str:
    return f"{entry.mean:.1f}" if entry.deviation is None else f"{entry.mean:.1f} ± {entry.deviation:.1f}"


def _number(value: float | None) -> Cell:
    return Cell("") if value is None else Cell(f"{value:.1f}", value)


def _signed(difference: float) -> str:
    return signed(difference).replace("-", "\N{MINUS SIGN}")


def _percent(value: float) -> str:
    return percent(value / 100)


def _paper_note(comparison: Comparison, value: float | None) -> str:
    return "" if value is None else f"{comparison.paper_words} {_percent(value)}"


def _count(number: int, thing: str) -> str:
    return f"one {thing}" if number == 1 else f"{number} {thing}s"

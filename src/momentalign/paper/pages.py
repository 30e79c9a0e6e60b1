"""What the pages of the experiments share, and the page of a table: methods beside those of the paper, task by task.

A page is put together from the parts of :mod:`momentalign.report.page`; here are those that more than one experiment
shows: strips of the accuracies of all seeds, keys of lines, cells of numbers, and what a result was made with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape

from momentalign.paper.tables import (
    AVERAGE,
    Comparison,
    Entry,
    PaperTable,
    compare,
    count_text,
    latex,
    long_task,
    markdown,
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
    number_cell,
    percent,
    render_page,
    row,
    table,
    text,
    versions_text,
)
from momentalign.report.svg import DIAMOND, Frame, Picture, axes, label, line, marks, path, rule, ticks

__all__ = [
    "Strip",
    "change_text",
    "comparison_page",
    "draw",
    "line_sign",
    "made_with",
    "origin",
    "settings_text",
    "strip_chart",
    "strip_signs",
]

Result = Mapping[str, Any]

COLOURS = {"nn": "ma-nn", "cnn": "ma-nn", "cmd": "ma-mann", "cv-cmd": "ma-mann", "fp-cmd": "ma-mann"}
MUTED = Markup('<small style="color: var(--muted); font-weight: 400">{}</small>')


def draw(frame: Frame, title: str, *shapes: Markup) -> Picture:
    """Return a picture of a frame's size; `title` is what a screen reader says."""
    return Picture(frame.width, frame.height, title, Markup("").join(shapes))


def line_sign(css: str, name: str, layer: str = "") -> Sign:
    """Return the entry of a key for a line."""
    return Sign(line([2, 22], [7, 7], css), name, layer)


class Strip(NamedTuple):
    """One row of a strip chart: a value for each seed, their middle, and the value of the paper if it has one."""

    name: str
    values: Sequence[float]
    middle: float
    paper: float | None
    css: str

    @property
    def shown(self) -> list[float]:
        """Everything that is drawn."""
        return [*self.values, *([] if self.paper is None else [self.paper])]


def strip_signs(middle: str, paper: str | None) -> list[Sign]:
    """Return what the ink of a strip chart stands for, and what the paper's values are called if there are any."""
    signs = [
        Sign(marks([12], [7], "h0", "ma-run ma-mann"), "one seed"),
        Sign(path("M12 1v12", "ma-median ma-mann"), middle),
    ]
    return [*signs, Sign(marks([12], [7], DIAMOND, "ma-paper"), paper)] if paper else signs


def strip_chart(
    frame: Frame, rows: Sequence[Strip], x_ticks: Sequence[tuple[float, str]], *, title: str, x_label: str = ""
) -> Picture:
    """Draw every value of every row as a dot, the middle as a stroke and the paper's value as a diamond."""
    shapes = [axes(frame, x_ticks=x_ticks, x_label=x_label)]
    height = (frame.floor - frame.top) / len(rows)
    for index, strip in enumerate(rows):
        y = frame.top + height * (index + 0.5)
        across, middle = frame.x(strip.values), float(frame.x(strip.middle))
        shapes += [
            label(frame.left - 10, y + 4, strip.name, anchor="end"),
            rule(frame.left, y, frame.right_edge, y, "ma-rule"),
            marks(across, np.full(len(across), y), "h0", f"ma-run {strip.css}"),
            rule(middle, y - height / 3, middle, y + height / 3, f"ma-median {strip.css}"),
        ]
        if strip.paper is not None:
            shapes.append(marks([float(frame.x(strip.paper))], [y], DIAMOND, "ma-paper"))
    return draw(frame, title, *shapes)


def made_with(result: Result, settings: Iterable[tuple[str, str]]) -> Markup:
    """Return settings with the versions behind a result and the paper: the last section of every page."""
    return definitions([*settings, ("Versions", versions_text(result["versions"])), ("Paper", PAPER)])


def origin(result: Result) -> list[tuple[str, str]]:
    """Return the protocol, the seeds and the data of a result."""
    return [
        ("Protocol", settings_text(result["protocol"])),
        ("Seeds", ", ".join(map(str, result["seeds"]))),
        *((name, f"SHA-256 {digest}") for name, digest in result["data"].items()),
    ]


def settings_text(settings: Mapping[str, Any]) -> str:
    """Write settings in one line.

    Examples
    --------
    >>> settings_text({"weight": 1.0, "n_moments": 5, "sizes": [1, 2]})
    'weight 1, n moments 5, sizes 1 2'
    """

    def written(value: Any) -> str:
        if isinstance(value, list | tuple):
            return " ".join(map(written, value))
        return f"{value:g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{name.replace('_', ' ')} {written(value)}" for name, value in settings.items())


def change_text(what: str, before: float, after: float) -> str:
    """Say how a share changes.

    Examples
    --------
    >>> change_text("the accuracy", 0.7, 0.8).replace(chr(160), " ")
    'raises the accuracy from 70.0 % to 80.0 %'
    """
    if percent(before) == percent(after):
        return f"leaves {what} at {percent(after)}"
    return f"{'raises' if after > before else 'lowers'} {what} from {percent(before)} to {percent(after)}"


def comparison_page(
    result: Result, paper: PaperTable, *, title: str, pair: tuple[str, str], tested: str, more: Sequence[Section] = ()
) -> str:
    """Return the page of a result beside a table of the paper.

    `pair` are the plain and the aligned method of the headline, `tested` says on what, and the sections in `more` stand
    before the last one.
    """
    comparison = compare(result, paper)
    settings = [
        (str(method["title"]), settings_text(method["settings"]) or "nothing to set")
        for method in result["methods"].values()
    ]
    sections = [
        Section("Beside the paper", _summary(result, comparison)),
        Section("Every task", _tasks(result, comparison, tested)),
        *more,
        Section("How this was made", [made_with(result, [*settings, *origin(result)])]),
    ]
    return render_page(title, _headline(comparison, pair), sections, numbers=_facts(comparison, pair))


def _headline(comparison: Comparison, pair: tuple[str, str]) -> str:
    """The one sentence that says what was found."""
    over = f"averaged over {count_text(len(comparison.tasks), 'task')} and {comparison.seeds_text}"
    averages = {method: entries[AVERAGE] for method, entries in comparison.entries.items()}
    if not set(pair) <= set(averages):
        best = comparison.best(AVERAGE)
        return f"{comparison.titles[best]} gets {percent(averages[best].mean / 100)} of the target right, {over}."
    entries = [averages[method] for method in pair]
    changes = change_text("the accuracy on the unlabelled target", *(entry.mean / 100 for entry in entries))
    papers = [percent(entry.paper / 100) for entry in entries if entry.paper is not None]
    beside = f"; the {comparison.paper_name} has {' and '.join(papers)}" if papers else ""
    return f"Aligning moments {changes}, {over}{beside}."


def _facts(comparison: Comparison, pair: tuple[str, str]) -> list[Fact]:
    """The values to remember."""
    found = []
    for method in pair:
        if method in comparison.titles:
            entry = comparison.entries[method][AVERAGE]
            note = "" if entry.paper is None else f"{comparison.paper_name} {percent(entry.paper / 100)}"
            found.append(Fact(percent(entry.mean / 100), f"{comparison.titles[method]}, average", note))
    _, aligned = pair
    if aligned not in comparison.titles:
        return found
    rank, title = comparison.paper_ranks.get(aligned), comparison.titles[aligned]
    in_paper = "" if rank is None else f"{comparison.paper_name} {rank:.1f}, of {len(comparison.paper_ranks)}"
    best = f"{comparison.best_on(aligned)} of {len(comparison.tasks)}"
    return [
        *found,
        Fact(f"{comparison.ranks[aligned]:.1f}", f"average rank of {title}, of {len(comparison.titles)}", in_paper),
        Fact(best, f"tasks on which {title} is the most accurate"),
    ]


def _summary(result: Result, comparison: Comparison) -> list[Markup]:
    """Averages and ranks of all methods."""
    columns = ["Method", "Average", "Paper", "Difference", "Average rank", "Paper's rank", "Best on"]
    rows = []
    for method, title in comparison.titles.items():
        entry, best = comparison.entries[method][AVERAGE], comparison.best_on(method)
        rows.append(
            [
                Cell(title),
                Cell(f"{entry.mean:.1f}{entry.spread}", entry.mean),
                number_cell(entry.paper, "{:.1f}".format),
                Cell("") if entry.paper is None else Cell(_with_minus(entry.difference), entry.mean - entry.paper),
                number_cell(comparison.ranks[method], "{:.1f}".format),
                number_cell(comparison.paper_ranks.get(method), "{:.1f}".format),
                Cell(count_text(best, "task"), best),
            ]
        )
    note = [text(result["note"])] if result.get("note") else []
    caption = f"Accuracy in percent, mean ± standard deviation over {comparison.seeds_text}"
    return [*note, text(comparison.describe_ranks()), table(caption, columns, rows)]


def _tasks(result: Result, comparison: Comparison, tested: str) -> list[Markup]:
    """A panel per task, the table, and its sources."""
    strips = {
        task: [
            Strip(
                title, [100 * value for value in result["methods"][method]["accuracy"][task]],
                comparison.entries[method][task].mean, comparison.entries[method][task].paper,
                COLOURS.get(method, "ma-class-0"),
            )
            for method, title in comparison.titles.items()
        ]
        for task in comparison.tasks
    }  # fmt: skip
    shown = [value for rows in strips.values() for strip in rows for value in strip.shown]
    x_range = float(np.floor(min(shown) - 0.5)), float(np.ceil(max(shown) + 0.5))
    panels = []
    for task, rows in strips.items():
        frame = Frame(
            x_range=x_range, y_range=(0, len(rows)), width=320, height=21 * len(rows) + 26, left=76, right=14, top=2,
            bottom=24,
        )  # fmt: skip
        means = "; ".join(f"{strip.name} {strip.middle:.1f}" for strip in rows)
        title = f"Accuracy in percent on {long_task(task)}: {means}"
        x_ticks = [(at, f"{at:g} %") for at in ticks(*x_range)]
        panels.append(figure(strip_chart(frame, rows, x_ticks, title=title), long_task(task)))
    lead = text(f"{tested} All panels have the same scale.")
    signs = key(strip_signs("mean", comparison.paper_name))
    return [lead, signs, row(panels, least="17rem"), _table(comparison), _sources(comparison)]


def _table(comparison: Comparison) -> Markup:
    """The table, the paper's values below those found here."""

    def cell(entry: Entry, best: bool) -> Cell:
        mean = f"{entry.mean:.1f}"
        content = Markup("<b>{}</b>").format(mean) if best else escape(mean)
        if entry.spread:
            content += " " + MUTED.format(entry.spread.strip())
        if entry.paper is not None:
            content += Markup("<br>") + MUTED.format(f"{entry.paper:.1f}, {_with_minus(entry.difference)}")
        return Cell(content, entry.mean)

    *rows, average = [
        [Cell(name), *(cell(entry, method == best) for method, entry in entries.items())]
        for name, entries, best in comparison.rows()
    ]
    caption = f"Accuracy in percent, mean ± standard deviation; below it the {comparison.paper_name} and the difference"
    return table(caption, ["Task", *comparison.titles.values()], rows, footer=average)


def _sources(comparison: Comparison) -> Markup:
    """The table as text to copy."""
    block = Markup(
        '<details style="margin-top: 1rem"><summary>{}</summary>'
        '<div class="scroll" role="region" aria-label="{}" tabindex="0">'
        '<pre style="margin: 0; padding: 1rem; font-size: .85rem">{}</pre></div></details>'
    )
    forms = (("Markdown", markdown(comparison)), ("LaTeX", latex(comparison)))
    return Markup("").join(block.format(f"The table in {name}", f"Table in {name}", source) for name, source in forms)


def _with_minus(difference: str) -> str:
    return difference.replace("-", "\N{MINUS SIGN}")

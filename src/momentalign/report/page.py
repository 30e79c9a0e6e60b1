"""One self-contained HTML page, and the parts it is put together from: text, facts, figures, keys, tables, pickers.

Style, script and figures stand inside the page. The HTML comes from ``templates/page.html`` and
``templates/parts.html``; every value is escaped there, so any string may be shown.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from momentalign.errors import InvalidInputError
from momentalign.files import check_path, replace_file
from momentalign.report.svg import ticks

__all__ = [
    "PAPER",
    "Answer",
    "Axis",
    "Bar",
    "Cell",
    "Choice",
    "Columns",
    "Drawing",
    "Fact",
    "Section",
    "Sign",
    "Tile",
    "Track",
    "check_result",
    "definitions",
    "domains_key",
    "explorer",
    "figure",
    "heading",
    "key",
    "macro",
    "number_cell",
    "number_of",
    "p_value_text",
    "percent",
    "picker",
    "records_table",
    "render_page",
    "row",
    "sheet",
    "table",
    "text",
    "tiles",
    "toggles",
    "versions_text",
    "write_page",
]

PAPER = Markup(
    '<a href="https://doi.org/10.1016/j.ins.2019.01.025">Zellinger et al., Information Sciences 483 (2019), 174-191</a>'
)
"""The paper whose figures the pages redraw; the only address a page points to."""


class Section(NamedTuple):
    """A headed part of a page."""

    title: str
    parts: Sequence[Markup]
    folded: bool = False
    """Whether only the title is shown until it is asked for."""

    @property
    def anchor(self) -> str:
        """The title as an address within the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


class Fact(NamedTuple):
    """One number to remember: large value, its name, a note below."""

    value: str
    name: str
    note: str = ""


def render_page(
    title: str,
    lead: str,
    sections: Sequence[Section],
    *,
    reason: str = "",
    numbers: Iterable[Fact] = (),
    warnings: Iterable[str] = (),
) -> str:
    """Return the page as text; the same arguments give the same bytes.

    Parameters
    ----------
    title, lead
        The heading and the one sentence that says what was found; both are escaped.
    sections
        What the page shows, in order; the parts come from :mod:`momentalign.report.page`.
    reason
        Why, in a few sentences under the lead.
    numbers
        The few numbers to remember, shown under the lead.
    warnings
        Sentences to beware of, set apart under the lead.

    Examples
    --------
    >>> page = render_page("A < B", "One sentence.", [Section("First part", [Markup("<p>Text.</p>")])])
    >>> "<h1>A &lt; B</h1>" in page, 'id="first-part"' in page
    (True, True)
    """
    page = _TEMPLATES.get_template("page.html")
    anchored = [(section.anchor, section) for section in sections]
    style, script = _text("figure.css") + _text("page.css"), _text("page.js")
    return page.render(
        style=style,
        script=script,
        title=title,
        lead=lead,
        reason=reason,
        facts=list(numbers),
        warnings=list(warnings),
        sections=anchored,
    )


@cache
def _text(name: str) -> str:
    """Return a style or script as it is written: nothing of it depends on the page."""
    return files("momentalign.report").joinpath("templates", name).read_text(encoding="utf-8")


def write_page(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a page whole or not at all and return its path."""
    goal = check_path(path)
    try:
        replace_file(goal, page.encode())
    except OSError as error:
        raise InvalidInputError(
            f"{goal} cannot be written ({error.strerror}); give a path in a folder that can be written to."
        ) from error
    return goal


def check_result(result: Mapping[str, Any], kind: str, keys: Iterable[str]) -> None:
    """Refuse a result of another kind or one that lacks something the page shows."""
    if result.get("kind") != kind:
        raise InvalidInputError(
            f"result['kind'] is {result.get('kind')!r}, but this page shows {kind!r}; pass that result."
        )
    missing = [key for key in keys if key not in result]
    if missing:
        raise InvalidInputError(f"result lacks {', '.join(missing)}, as those of earlier versions do; make it again.")


def percent(share: float, digits: int = 1) -> str:
    """Write a share in percent, with one decimal or `digits` of them and a space that does not break.

    Examples
    --------
    >>> percent(0.8814).replace(chr(160), " ")
    '88.1 %'
    """
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def p_value_text(p: float) -> str:
    """Write a p-value: plain when large, as a power of ten when small.

    Examples
    --------
    >>> p_value_text(0.25), p_value_text(3.2e-7), p_value_text(0.0)
    ('p = 0.25', 'p = 3·10⁻⁷', 'p < 10⁻⁹⁹')
    """
    if p >= 0.01:
        return f"p = {p:.2f}"
    if p < 1e-99:
        return "p < 10⁻⁹⁹"
    digits, power = f"{p:.0e}".split("e")
    return f"p = {digits}·10" + str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def versions_text(versions: Mapping[str, str]) -> str:
    """Write names and versions in one line.

    Examples
    --------
    >>> versions_text({"momentalign": "0.1.0", "numpy": "2.4.6"})
    'momentalign 0.1.0, numpy 2.4.6'
    """
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def macro(name: str, template: str = "parts.html") -> Callable[..., Markup]:
    """Return a macro of a template of pages."""
    return cast(Callable[..., Markup], getattr(_TEMPLATES.get_template(template).module, name))


_TEMPLATES = Environment(
    loader=PackageLoader("momentalign.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"percent": percent, "p_value_text": p_value_text, "quoted": repr}


class Sign(NamedTuple):
    """One entry of a key: a sample of the ink, what it stands for, and the layer it shows and hides."""

    content: Markup
    text: str
    layer: str = ""
    wide: bool = False


class Track(NamedTuple):
    """What is drawn in a cell, on the axis of its column: bars from 0, the ends of an interval, and marks."""

    bars: Sequence[tuple[float, str]] = ()
    """Where each bar ends and the class of its ink, one under the other."""
    ends: tuple[float, float] | None = None
    marks: Sequence[tuple[float | None, str]] = ()
    """The value of each mark, None for one that is left out, and its kind: source, target or limit."""


class Axis(NamedTuple):
    """The heading of a column of tracks."""

    name: str
    low: float
    high: float
    write: Callable[[float], str]
    """How a label is written."""

    def at(self, value: float) -> float:
        """Return the position of a value in percent; what lies beyond an end is drawn there.

        Examples
        --------
        >>> axis = Axis("accuracy", 0.5, 1.0, percent)
        >>> axis.at(0.6), axis.at(0.2)
        (20.0, 0.0)
        """
        return round(100.0 * min(max((value - self.low) / (self.high - self.low), 0.0), 1.0), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round values and their labels."""
        return [(at, self.write(at)) for at in ticks(self.low, self.high, count=3)]


class Cell(NamedTuple):
    """One cell of a table; a `value` sets it to the right and sorts it as a number, one that is NaN always last."""

    text: str
    value: float | None = None
    track: Track | None = None


def number_cell(value: float | None, write: Callable[[float], str] = "{:.4g}".format) -> Cell:
    """Return the cell of a number; a dash stands for one that is not known.

    Examples
    --------
    >>> number_cell(0.123456, percent).value, number_cell(None).text == chr(0x2013)
    (0.12346, True)
    """
    if value is None or math.isnan(value):
        return Cell("\N{EN DASH}", math.nan)
    return Cell(write(value), float(f"{value:.5g}"))  # Kept short: a page may hold a thousand rows.


def number_of(part: str, write: Callable[[float], str] = "{:.4g}".format) -> Callable[[Mapping[str, Any]], Cell]:
    """Return what makes a cell of one number of a record."""
    return lambda record: number_cell(record[part], write)


Columns: TypeAlias = dict[str | Axis, Callable[[Any], Cell | str]]
"""The headings of a table, and how each makes its cell of a record."""


def records_table(
    caption: str,
    records: Iterable[Any],
    columns: Columns,
    *,
    sortable: bool = True,
    tall: bool = False,
) -> Markup:
    """Return a table with one row for each record."""
    made = ([make(record) for make in columns.values()] for record in records)
    rows = [[one if isinstance(one, Cell) else Cell(one) for one in row] for row in made]
    return table(caption, list(columns), rows, sortable=sortable, tall=tall)


class Drawing(NamedTuple):
    """What an explorer draws for one row of its table: an outline of each domain, labels below, a note above."""

    source: str
    target: str
    labels: Sequence[tuple[float, str, str]]
    """Position, text and anchor (start, middle or end) of each label below the axis."""
    note: str = ""


class Bar(NamedTuple):
    """A thin bar in a picker's button; `share` is its length in percent."""

    css: str
    share: int


class Choice(NamedTuple):
    """One entry of a picker: a button with thin bars, and the panel it shows."""

    anchor: str
    name: str
    bars: Sequence[Bar]
    panel: Markup


class Answer(NamedTuple):
    """A text below an image; one that is right or wrong gets a sign that says so, and `note` tells more."""

    text: str
    right: bool | None = None
    note: str = ""


class Tile(NamedTuple):
    """One image of a sheet: what a screen reader says in its place, its caption, and the answers below it."""

    text: str
    caption: str
    answers: Sequence[Answer] = ()


# The parts that a page is put together from are macros of ``templates/parts.html``, where they are described.
text, heading, definitions = macro("text"), macro("heading"), macro("definitions")
figure, row, picker = macro("figure"), macro("row"), macro("picker")
key, domains_key, toggles = macro("key"), macro("domains_key"), macro("toggles")
table, explorer = macro("table"), macro("explorer")
sheet, tiles = macro("sheet"), macro("tiles")

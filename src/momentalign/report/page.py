"""One self-contained HTML page: a title, a lead sentence, facts and sections; style, script and figures inside."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from momentalign.errors import InvalidInputError
from momentalign.files import replace_file
from momentalign.report.parts import ENVIRONMENT, Fact, facts

__all__ = ["PAPER", "Section", "read_result", "render_page", "version_words", "write_page"]

PAPER = Markup(
    '<a href="https://doi.org/10.1016/j.ins.2019.01.025">Zellinger et al., Information Sciences 483 (2019), 174-191</a>'
)
"""The paper whose figures the pages redraw; the only address a page points to."""


class Section(NamedTuple):
    """A headed part of a page."""

    title: str
    parts: Sequence[Markup]

    @property
    def anchor(self) -> str:
        """The title as an address within the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def render_page(
    title: str,
    lead: str,
    sections: Sequence[Section],
    *,
    numbers: Iterable[Fact] = (),
) -> str:
    """Return the page as text; the same arguments give the same bytes.

    Parameters
    ----------
    title, lead
        The heading and the one sentence that says what was found; both are escaped.
    sections
        What the page shows, in order; the parts come from :mod:`momentalign.report.parts`.
    numbers
        The few numbers to remember, shown under the lead.

    Examples
    --------
    >>> page = render_page("A < B", "One sentence.", [Section("First part", [Markup("<p>Text.</p>")])])
    >>> "<h1>A &lt; B</h1>" in page, 'id="first-part"' in page
    (True, True)
    """
    entries = list(numbers)
    return ENVIRONMENT.get_template("page.html").render(
        title=title,
        lead=lead,
        facts=facts(entries) if entries else "",
        sections=sections,
    )


def write_page(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a page whole or not at all and return its path."""
    goal = Path(path)
    try:
        replace_file(goal, page.encode())
    except OSError as error:
        raise InvalidInputError(
            f"{goal} cannot be written ({error.strerror}); give a place in a folder that can be."
        ) from error
    return goal


def read_result(result: Mapping[str, Any], kind: str, keys: Iterable[str]) -> None:
    """Refuse a result of another kind or one that lacks something the page shows."""
    if result.get("kind") != kind:
        raise InvalidInputError(
            f"result['kind'] is {result.get('kind')!r}, but this page shows {kind!r}; pass that result."
        )
    missing = [key for key in keys if key not in result]
    if missing:
        raise InvalidInputError(
            f"result lacks {', '.join(missing)}; run `momentalign reproduce {kind}` again to get all."
        )


def version_words(versions: Mapping[str, str]) -> str:
    """Write names and versions in one line.

    Examples
    --------
    >>> version_words({"momentalign": "0.1.0", "numpy": "2.4.6"})
    'momentalign 0.1.0, numpy 2.4.6'
    """
    return ", ".join(f"{name} {version}" for name, version in versions.items())

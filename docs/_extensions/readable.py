"""What the theme leaves out for a phone, a keyboard and a screen reader: tables, code and headings of the sidebar."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LONG = 20  # letters of a word of code that may be broken behind its signs inside a table
SHORT = 14  # letters of a cell that stay on one line
_NUMBER = re.compile(r"[-+]?[\d,]+(\.\d+)?(e-?\d+)?( %| ± [\d.]+)?")
# What a keyboard could not reach, a heading without its level, and a heading of a column without a word.
_MENDED = {
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
}
_LONG_CODE = re.compile(r'<code class="[^"]*\blong\b[^"]*">.*?</code>', re.DOTALL)
_WITHIN = re.compile(r"(?<=[./_:=(])(?=\w)(?=[^<>]*<)")
_EMPTY_HEADING = re.compile(r'<th class="head([^"]*)">(<p></p>)?</th>')


def mark_cells(_app: Sphinx, doctree: nodes.document, _docname: str) -> None:
    """Say of every cell and piece of code in a table how it may be broken, and which columns hold numbers."""
    for table in doctree.findall(nodes.table):
        for code in table.findall(nodes.literal):
            code["classes"] += ["long"] * (max(map(len, code.astext().split())) > LONG)
        for cell in table.findall(nodes.entry):
            cell["classes"] += ["short"] * (len(cell.astext()) <= SHORT)
        for head, *cells in zip(*(row.children for row in table.findall(nodes.row)), strict=False):
            words = [cell.astext() for cell in cells if cell.astext()]
            for cell in [head, *cells] * (words != [] and all(map(_NUMBER.fullmatch, words))):
                cell["classes"].append("number")


def mend(page: str) -> str:
    """Return a page, or a part of one, that a keyboard and a screen reader can follow."""
    for found, better in _MENDED.items():
        page = page.replace(found, better)
    page = _LONG_CODE.sub(lambda code: _WITHIN.sub("<wbr>", code[0]), page)
    return _EMPTY_HEADING.sub(r'<td class="head\1"></td>', page)


def mend_page(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Mend what goes into the template."""
    for part in ("body", "furo_navigation_tree"):
        if part in context:
            context[part] = mend(context[part])


def plain_signature(*arguments: Any) -> tuple[str, str | None] | None:
    """Leave out the arguments of a class that has none of its own: torch's modules pass on whatever comes."""
    *_, signature, returns = arguments
    return ("()", returns) if signature == "(*args, **kwargs)" else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Take part in every page; the theme fills its part of the context first."""
    app.connect("doctree-resolved", mark_cells)
    app.connect("html-page-context", mend_page, priority=900)
    app.connect("autodoc-process-signature", plain_signature)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

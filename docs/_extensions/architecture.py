"""The layers of the package as a table, read from import-linter's contract in pyproject.toml: ``{layers}``."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
PREFIX = "momentalign."


def layers(root: Path = ROOT) -> list[list[str]]:
    """Return the parts of each layer, from the top down."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    return [[part.strip().removeprefix(PREFIX) for part in line.split("|")] for line in contract["layers"]]


def first_line(part: str, root: Path = ROOT) -> str:
    """Return the first line of a part's docstring, read and not imported."""
    folder = root / "src" / "momentalign" / part
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0].replace("``", "")


class Layers(SphinxDirective):
    """One row per layer, one box per part, with what it is for."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        rows = "".join(f"<tr>{_cells(parts)}</tr>" for parts in layers())
        self.env.note_dependency(str(ROOT / "pyproject.toml"))
        return [nodes.raw("", f'<div class="table-wrapper">{rows and _table(rows)}</div>', format="html")]


def _table(rows: str) -> str:
    return f'<table class="layers"><caption>A file imports only what stands below it</caption>{rows}</table>'


def _cells(parts: list[str]) -> str:
    boxes = "".join(f'<div class="part"><code>{part}</code><span>{first_line(part)}</span></div>' for part in parts)
    return f'<td><div class="parts">{boxes}</div></td>'


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("layers", Layers)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

"""Formulas as MathML, which browsers draw themselves: no script, no font and no address of others.

docutils turns LaTeX into MathML; this extension hands every formula of a page to it.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator

# Sizes of brackets: MathML stretches them by itself.
_SIZES = re.compile(r"\\(?:[bB]igg?)[lrm]?(?![a-zA-Z])")


def to_mathml(formula: str, *, block: bool) -> str:
    """Return one formula as MathML, or say which one cannot be read."""
    try:
        return str(tex2mathml(_SIZES.sub("", formula), as_block=block))
    except MathError as error:
        raise ExtensionError(f"formula {formula!r}: {error}") from error


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(to_mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    formula = to_mathml(node.astext(), block=True)
    translator.body.append(f'<div class="math-block" tabindex="0">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Take over from the renderers that Sphinx comes with."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

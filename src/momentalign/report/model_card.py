"""The model card: what a reader has to know of a model for tables, as Markdown beside it.

It is made of the summary of the fit, which holds totals and no rows. Names of columns and classes come from tables that
others wrote, so every value is escaped.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError
from markupsafe import Markup

from momentalign.errors import InvalidInputError, printable
from momentalign.files import check_path
from momentalign.report.page import versions_text, write_page
from momentalign.report.sentences import (
    beware_sentences,
    column_sentences,
    estimate_text,
    gain_text,
    score_text,
    verdict,
)

__all__ = ["CARD", "model_card", "refuse_foreign_card", "write_model_card"]

CARD = "model_card.md"
_MARKER = "<!-- Model card, written by momentalign -->"
_SHIFTED, _CLASSES = 10, 20
_DASH = "\N{EN DASH}"


def write_model_card(folder: str | Path, label: str, summary: Mapping[str, Any] | None) -> Path:
    """Write the card of a model to its folder; one whose summary is missing or damaged gets a card that says so."""
    refuse_foreign_card(folder)
    path = check_path(folder) / CARD
    path.unlink(missing_ok=True)  # rather no card than that of another model
    try:
        card = model_card(summary or {})
    except (LookupError, TypeError, ValueError, AttributeError, TemplateError):
        card = (
            f"# A model for {_escape(repr(label))}\n{_MARKER}\n\nThe model has no summary of its fit, as those that "
            "earlier versions saved; fit it again for a full card.\n"
        )
    return write_page(card, path)


def refuse_foreign_card(folder: str | Path) -> None:
    """Refuse to replace a file that has the name of the card and was not written here; an empty one may be."""
    path = check_path(folder) / CARD
    if not os.path.lexists(path):
        return
    content = path.read_bytes() if path.is_file() else None
    if content is None or (content and _MARKER.encode() not in content):
        raise InvalidInputError(
            f"{path} would be replaced and is not a model card of momentalign; move it away or give another folder."
        )


def model_card(summary: Mapping[str, Any]) -> str:
    """Return the card of the summary of a fit, as Markdown; the same summary gives the same card.

    Examples
    --------
    >>> model_card({})
    Traceback (most recent call last):
    ...
    KeyError: 'task'
    """
    regression = summary["task"] == "regression"
    found = {name: value for name, value in summary["columns"].items() if name != "unseen"}
    unseen = [
        f"{one['rows']:,} rows of the target have categories of {one['name']!r} that the source lacks."
        for one in summary["columns"]["unseen"]
    ]
    page = _TEMPLATES.get_template("model_card.md").render(
        marker=_MARKER,
        label=repr(summary["label"]),
        verdict=verdict(summary),
        source_rows=summary["source_rows"],
        target_rows=summary["target_rows"],
        source=_named(summary.get("source")),
        target=_named(summary.get("target")),
        evaluated=summary["evaluation"] is not None,
        regression=regression,
        classes=summary["classes"],
        features=summary["features"],
        shifted=summary["shifted"][:_SHIFTED],
        columns=[*column_sentences({**found, "unseen": []}), *unseen],
        method=summary["method"],
        settings=summary["settings"],
        score="R²" if regression else "accuracy",
        candidates=[
            {**one, "score": _score(one["source_score"], regression)} for one in summary["portfolio"] if one["weight"]
        ],
        expectation=_expectation(summary, regression),
        models=[
            {
                "name": one["name"],
                "source": _score(one["source"], regression),
                "expected": _DASH if one["target"] is None else estimate_text(one, "target", regression),
                "known": _score(one["known"], regression),
            }
            for one in summary["baselines"]
        ],
        shares=[
            {
                "name": one["class"],
                "source": _score(one["source"], False),
                "predicted": _score(one["target"], False),
                "estimated": _DASH if one["estimated"] is None else estimate_text(one, "estimated", False),
            }
            for one in summary["shares"][:_CLASSES]
        ],
        unshown=max(0, len(summary["shares"]) - _CLASSES),
        beware=_limits(summary),
        versions=versions_text(summary["versions"]),
    )
    return re.sub(r"\n{3,}", "\n\n", page)


def _named(origin: str | None) -> str | None:
    """The name of a file without its folder; queries of a database may hold values and are left out."""
    if origin is None:
        return None
    return "a database" if "://" in origin else PurePath(origin).name


def _score(value: float | None, regression: bool) -> str:
    return _DASH if value is None else score_text(value, regression)


def _expectation(summary: Mapping[str, Any], regression: bool) -> str:
    """What to expect on the target, with its interval."""
    name, estimate, gain = "R²" if regression else "accuracy", summary["estimate"], summary["gain"]
    if estimate is None:
        return f"Networks of a chosen method come without an estimate of their {name} on the target."
    expected = f"The {name} to expect on the target, with its 90 % interval, is "
    expected += f"{estimate_text(estimate, 'value', regression)}."
    return expected if gain is None else f"{expected} The difference to not adapting: {gain_text(gain, regression)}."


def _limits(summary: Mapping[str, Any]) -> list[str]:
    doubt = summary["shares_doubt"]
    limits = beware_sentences(summary)
    return limits if doubt is None else [*limits, f"The estimated shares of the classes are in doubt: {doubt}."]


def _escape(value: Any) -> Any:
    """Return a value as text that no renderer of Markdown takes for markup, a link or the end of a cell."""
    if isinstance(value, Markup | int | float):
        return value
    shown = re.sub(r"([\\`*_\[\]#|~$])", r"\\\1", html.escape(printable(str(value)), quote=False))
    return shown.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


_TEMPLATES = Environment(  # noqa: S701  # nosec B701 (Markdown has an escape of its own)
    loader=PackageLoader("momentalign.report"),
    finalize=_escape,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)

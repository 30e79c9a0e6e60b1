"""A fitted preprocessor as plain JSON, and back; what we did not write is refused before anything is built of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from momentalign.data.tables.encoders import CategoryColumn, DateColumn, Encoder, NumberColumn
from momentalign.data.text import DomainVectorizer
from momentalign.errors import DamagedFileError

if TYPE_CHECKING:
    from momentalign.data.tables.preprocessing import Preprocessor

__all__ = ["describe", "rebuild"]

_VERSION = 1
_ENCODERS: dict[str, type[NumberColumn | DateColumn | CategoryColumn]] = {
    "number": NumberColumn,
    "date": DateColumn,
    "category": CategoryColumn,
}
_KEYS = {"version", "form", "width", "columns", "text", "terms", "notes", "parameters"}
_PARAMETERS = {"scale": bool, "max_categories": int, "max_terms": int, "strict": bool}


def describe(fitted: Preprocessor) -> dict[str, Any]:
    """Return what a preprocessor learned as plain JSON."""
    return {
        "version": _VERSION,
        "form": fitted.form_,
        "width": fitted.width_,
        "columns": [_describe_column(encoder) for encoder in fitted.encoders_],
        "text": fitted.text,
        "terms": None if fitted.vectorizer_ is None else list(fitted.vectorizer_.vocabulary_),
        "notes": list(fitted.notes_),
        "parameters": {name: kind(getattr(fitted, name)) for name, kind in _PARAMETERS.items()},
    }


def _describe_column(encoder: Encoder) -> dict[str, Any]:
    parts = asdict(encoder)
    if isinstance(encoder, CategoryColumn):
        return {"encoder": "category", **parts, "categories": list(encoder.categories)}
    return {"encoder": encoder.kind, **parts}


def rebuild(fitted: Preprocessor, description: Mapping[str, Any]) -> None:
    """Give a preprocessor what a description says, or raise DamagedFileError and leave it as it is."""
    try:
        _check(description)
        encoders = [_encoder(column) for column in description["columns"]]
        names = [encoder.name for encoder in encoders] + [description["text"]]
        _demand(len(set(names)) == len(names), "a column stands twice")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(
            f"the description of the preprocessing is not one of ours ({error}); train again."
        ) from error
    fitted.set_params(text=description["text"], **description["parameters"])
    fitted.encoders_ = encoders
    fitted.notes_ = list(description["notes"])
    fitted.vectorizer_ = None
    if description["terms"] is not None:
        fitted.vectorizer_ = DomainVectorizer(fitted.max_terms)
        fitted.vectorizer_.vocabulary_ = list(description["terms"])
    fitted.form_, fitted.width_ = description["form"], description["width"]


def _demand(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)


def _check(description: Mapping[str, Any]) -> None:
    _demand(isinstance(description, Mapping) and set(description) == _KEYS, "its keys are others")
    _demand(description["version"] == _VERSION, f"version {description['version']!r}")
    form, width, terms = description["form"], description["width"], description["terms"]
    _demand(form in ("columns", "sparse", "dense"), f"form {form!r:.40}")
    if form == "columns":
        _demand(width is None, "a width beside columns")
        _demand(bool(description["columns"]) or terms is not None, "no columns")
    else:
        _demand(type(width) is int and width >= 0, f"width {width!r:.40}")
        _demand(description["columns"] == [] and terms is None, "columns beside a matrix")
    _demand((terms is None) == (description["text"] is None), "a text without terms or terms without a text")
    _demand(isinstance(description["text"], str | None), "the name of the text column")
    _demand(terms is None or (_are_names(terms) and bool(terms)), "terms")
    _demand(isinstance(description["notes"], list) and all(isinstance(n, str) for n in description["notes"]), "notes")
    parameters = description["parameters"]
    _demand(set(parameters) == set(_PARAMETERS), "parameters")
    for name, kind in _PARAMETERS.items():
        _demand(type(parameters[name]) is kind, f"{name} {parameters[name]!r:.40}")


def _are_names(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(v, str) for v in values) and len(set(values)) == len(values)


def _encoder(column: Mapping[str, Any]) -> Encoder:
    """Build the encoder of one column, every field of its type and within its range."""
    parts = dict(column)
    home = _ENCODERS[parts.pop("encoder")]
    _demand(set(parts) == {field.name for field in fields(home)}, "fields of a column")
    _demand(isinstance(parts["name"], str), "name of a column")
    for name, value in parts.items():
        if name in ("fill", "centre", "scale"):
            _demand(type(value) is float and math.isfinite(value), f"{name} {value!r:.40}")
        elif name in ("indicator", "hours"):
            _demand(type(value) is bool, f"{name} {value!r:.40}")
    if home is CategoryColumn:
        _demand(_are_names(parts["categories"]), "categories")
        return CategoryColumn(parts["name"], tuple(parts["categories"]), parts["indicator"])
    _demand(parts["scale"] > 0, "scale")
    return home(**parts)

r"""Tables of two domains as rows of numbers: fitted on both, described by plain JSON, the same in predict.

What is fitted on what: everything on both domains, each with the same weight however many rows it has. The categories
and the words are those of the union, so a shift in them is seen; the value put in for a missing one is the mean of the
domains' medians; numbers are centred and scaled by

.. math:: \mu = \tfrac{1}{2} (\mu_S + \mu_T), \qquad
          \sigma^2 = \tfrac{1}{2} \bigl( E_S[(x - \mu)^2] + E_T[(x - \mu)^2] \bigr),

mean and variance of the even mixture. One invertible affine map of both domains keeps the shift between them, which
the network is to align, and keeps both within a few units of 0, where units are not saturated. Scaling each domain by
its own statistics would align two moments of the input without regard to the labels and hide the shift from
``diagnose``; statistics of the source alone would let a target in other units saturate every unit.

A fitted preprocessor becomes plain JSON and back; an invalid description is refused before anything is built of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError
from momentalign.tables.encoders import (
    CategoryColumn,
    Choices,
    DateColumn,
    Encoder,
    NumberColumn,
    choose_encoder,
    count_unseen,
    encode,
)
from momentalign.tables.table import Kind, Rows, Table, quoted, refuse_duplicates
from momentalign.tables.text import DomainVectorizer
from momentalign.validation import check_bool, positive_int

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Preprocessor"]


class Preprocessor(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[misc,call-arg]
    """Rows of numbers from tables of numbers, categories, dates and text.

    Numbers are centred and scaled; text of few kinds becomes one indicator per category; dates become days and points
    on the circles of the year, the week and the day; missing values are filled in and marked. Sparse rows and images
    pass as they are. The module's docstring says what is fitted on which domain and why.

    Parameters
    ----------
    scale
        Whether numbers are centred and scaled, and rows float32; if not, they are float64: far from 0, float32 would
        lose what differs between them.
    max_categories
        The most categories of a column; the most frequent are kept, any other text is 0 in all of them.
    text
        A column of free text, counted by :class:`~momentalign.tables.text.DomainVectorizer`; the result is CSR then.
    max_terms
        The number of terms to keep of it.
    strict
        Whether a column that only one domain has is an error; if not, it is left out with a warning.

    Attributes
    ----------
    columns_ : list of str
        The columns that are used.
    kinds_ : dict
        What each holds; pass both to ``read_chunks`` to read what the model needs, as it needs it.
    notes_ : list of str
        Sentences about what was left out or cut.
    unseen_ : dict of Counter
        Of each column the categories of the target that the source lacks, and in how many rows each stands.

    Examples
    --------
    >>> import pandas as pd
    >>> source = pd.DataFrame({"age": [20.0, 40.0], "city": ["Linz", "Wien"]})
    >>> target = pd.DataFrame({"age": [60.0, None], "city": ["Graz", "Linz"]})
    >>> preprocessor = Preprocessor(scale=False).fit(source, X_target=target)
    >>> preprocessor.get_feature_names_out().tolist()
    ['age', 'age=missing', 'city=Graz', 'city=Linz', 'city=Wien']
    >>> preprocessor.transform(target).tolist()
    [[60.0, 0.0, 1.0, 0.0, 0.0], [45.0, 1.0, 0.0, 1.0, 0.0]]
    """

    def __init__(
        self,
        *,
        scale: bool = True,
        max_categories: int = 100,
        text: str | None = None,
        max_terms: int = 5000,
        strict: bool = False,
    ) -> None:
        self.scale = scale
        self.max_categories = max_categories
        self.text = text
        self.max_terms = max_terms
        self.strict = strict

    def fit(self, X: Table | Rows, y: Any = None, X_target: Table | Rows | None = None) -> Self:  # noqa: ARG002
        """Choose the features.

        Parameters
        ----------
        X
            The source: a :class:`~momentalign.tables.table.Table`, a DataFrame, CSR or an array.
        y
            Not looked at.
        X_target
            The target, of the same form.
        """
        for name in ("scale", "strict"):
            check_bool(getattr(self, name), name)
        positive_int(self.max_categories, "max_categories", example="100")
        positive_int(self.max_terms, "max_terms", example="5000")
        domains = [_rows(part, name)[0] for part, name in ((X, "X"), (X_target, "X_target")) if part is not None]
        form = _form(domains[0])
        if any(_form(rows) != form for rows in domains):
            raise InvalidInputError(
                f"X is {form} and X_target is {_form(domains[1])}; give both domains in files of the same format."
            )
        # Everything is chosen before anything is kept: a refused fit leaves an earlier one as it was.
        choices = Choices(self.scale, self.max_categories)
        width = None if form == "columns" else self._choose_width(form, domains)
        encoders, vectorizer = self._choose_columns(domains, choices) if width is None else ([], None)
        self.form_, self.width_, self.notes_, self.unseen_ = form, width, choices.notes, choices.unseen
        self.encoders_, self.vectorizer_ = encoders, vectorizer
        return self

    def transform(self, X: Table | Rows) -> Any:
        """Return the rows of a table, (rows, features); CSR of float32 where it is sparse or has a text column."""
        check_is_fitted(self, "form_")
        rows, start = _rows(X, "X")
        if _form(rows) != self.form_:
            raise InvalidInputError(
                f"X is {_form(rows)}, the model was trained with {self.form_}; give a file like it."
            )
        if self.form_ == "columns":
            return self._transform_columns(rows, start)
        return _of_width(rows, self.width_)

    def count_unseen(self, X: Table | Rows) -> dict[str, Counter[str]]:
        """Return, of each column of categories, the texts that are no feature, and in how many rows each stands."""
        rows, _ = _rows(X, "X")
        return count_unseen(self.encoders_, rows) if self.form_ == "columns" else {}

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the names of the features; `input_features` is not looked at."""
        check_is_fitted(self, "form_")
        if self.form_ != "columns":
            return np.array([str(column) for column in range(self.width_ or 0)], dtype=object)
        names = [feature for encoder in self.encoders_ for feature in encoder.features]
        if self.vectorizer_ is not None:
            names += [f"{self.text}:{term}" for term in self.vectorizer_.vocabulary_]
        return np.array(_unique(names), dtype=object)

    @property
    def columns_(self) -> list[str]:
        """Names of the columns that are used."""
        check_is_fitted(self, "form_")
        return [encoder.name for encoder in self.encoders_] + ([str(self.text)] if self.vectorizer_ else [])

    @property
    def kinds_(self) -> dict[str, Kind]:
        """What each used column holds."""
        kinds: dict[str, Kind] = dict.fromkeys(self.columns_, "text")
        return kinds | {encoder.name: encoder.kind for encoder in self.encoders_}

    def to_description(self) -> dict[str, Any]:
        """Return all that was fitted as plain JSON."""
        check_is_fitted(self, "form_")
        return {
            "version": _VERSION,
            "form": self.form_,
            "width": self.width_,
            "columns": [_describe_column(encoder) for encoder in self.encoders_],
            "text": self.text,
            "terms": None if self.vectorizer_ is None else list(self.vectorizer_.vocabulary_),
            "notes": list(self.notes_),
            "parameters": {name: kind(getattr(self, name)) for name, kind in _PARAMETERS.items()},
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """Return the preprocessor that :meth:`to_description` described; anything else raises DamagedFileError.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [20.0, 40.0]})
        >>> description = Preprocessor().fit(frame).to_description()
        >>> Preprocessor.from_description(description).transform(frame).tolist()
        [[-1.0], [1.0]]
        """
        try:
            _check(description)
            encoders = [_encoder(column) for column in description["columns"]]
            names = [encoder.name for encoder in encoders] + [description["text"]]
            _demand(len(set(names)) == len(names), "a column is there twice")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFileError(
                f"the description of the preprocessing is invalid ({error}); train again."
            ) from error
        fitted = cls(text=description["text"], **description["parameters"])
        fitted.encoders_ = encoders
        fitted.notes_ = list(description["notes"])
        fitted.vectorizer_ = None
        if description["terms"] is not None:
            fitted.vectorizer_ = DomainVectorizer(fitted.max_terms)
            fitted.vectorizer_.vocabulary_ = list(description["terms"])
        fitted.form_, fitted.width_ = description["form"], description["width"]
        return fitted

    def _choose_columns(self, domains: list[Any], choices: Choices) -> tuple[list[Encoder], DomainVectorizer | None]:
        names = list(domains[0].columns)
        if len(domains) > 1:
            names = _shared_columns(domains[0], domains[1], choices, strict=self.strict)
        vectorizer = None
        if self.text is not None:
            if self.text not in names:
                raise InvalidInputError(f"text={self.text!r} is no column of both domains; they share {quoted(names)}.")
            names.remove(self.text)
            texts = [text for frame in domains for text in _texts(frame[self.text])]
            vectorizer = DomainVectorizer(self.max_terms).fit(texts)
        chosen = [choose_encoder(name, [frame[name] for frame in domains], choices) for name in names]
        encoders = [encoder for encoder in chosen if encoder is not None]
        if not encoders and vectorizer is None:
            raise InvalidInputError(
                f"no column is left to learn from ({' '.join(choices.notes)}); give at least one that varies."
            )
        used = [encoder.name for encoder in encoders] + ([str(self.text)] if vectorizer else [])
        _note_duplicates(domains[0][used], choices)
        return encoders, vectorizer

    def _choose_width(self, form: str, domains: list[Any]) -> int:
        if self.text is not None:
            raise InvalidInputError(f"text={self.text!r} needs a table with named columns, got {form}; leave it out.")
        widths = [int(rows.shape[1]) for rows in domains]
        if form == "dense" and len(set(widths)) > 1:
            raise InvalidInputError(f"X has {widths[0]} columns and X_target {widths[1]}; give both the same.")
        # An index that a sparse file does not use is a column of zeros.
        return max(widths)

    def _transform_columns(self, frame: pd.DataFrame, start: int) -> Any:
        absent = [name for name in self.columns_ if name not in frame.columns]
        if absent:
            raise InvalidInputError(f"X lacks columns the model was trained with: {quoted(absent)}; add them.")
        dense = encode(self.encoders_, frame, start, np.dtype(np.float32 if self.scale else np.float64))
        if self.vectorizer_ is None:
            return dense
        terms = self.vectorizer_.transform(_texts(frame[self.text]))
        return sparse.hstack([sparse.csr_matrix(dense), terms], format="csr", dtype=np.float32)


def _shared_columns(source: pd.DataFrame, target: pd.DataFrame, choices: Choices, *, strict: bool) -> list[str]:
    """Return the columns that both domains have, in the order of the source."""
    shared = source.columns.intersection(target.columns, sort=False).tolist()
    missing = {"source": list(target.columns.difference(shared)), "target": list(source.columns.difference(shared))}
    alone = [f"the {domain} lacks {quoted(names)}" for domain, names in missing.items() if names]
    if not shared:
        raise InvalidInputError(
            f"source and target have no column in common: {quoted(list(source.columns))} against "
            f"{quoted(list(target.columns))}; name them alike."
        )
    if alone and strict:
        raise InvalidInputError(f"the domains have different columns: {' and '.join(alone)}; give both the same.")
    if alone:
        choices.warn(f"columns that one domain lacks are left out: {' and '.join(alone)}.")
    return shared


def _note_duplicates(source: pd.DataFrame, choices: Choices) -> None:
    """Count the rows that repeat another one: where one is held out, the other tells its label."""
    import pandas as pd

    repeated = int(pd.util.hash_pandas_object(source, index=False).duplicated().sum())
    if repeated:
        choices.notes.append(
            f"{repeated:,} of {len(source):,} rows of the source repeat an earlier row; if that is a mistake, remove "
            "them: accuracies on held-out rows are too high with them."
        )


def _rows(X: Any, name: str) -> tuple[Any, int]:
    """Return the rows of an argument, and how many stand before them in the file."""
    rows: Any = X.rows if isinstance(X, Table) else X
    start = X.start if isinstance(X, Table) else 0
    if _form(rows) == "columns":
        names = [str(column) for column in rows.columns]
        refuse_duplicates(names, name)
        rows = rows.set_axis(names, axis=1)
    if not rows.shape[0]:
        raise InvalidInputError(f"{name} has 0 rows; give at least one.")
    return rows, start


def _form(rows: Any) -> str:
    """What rows are: columns with names, a sparse matrix, or a dense one."""
    if sparse.issparse(rows):
        return "sparse"
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return "dense"
    if hasattr(rows, "columns"):
        return "columns"
    raise InvalidTypeError(f"X must be a Table, a DataFrame, CSR or an array of rows, got {type(rows).__name__}.")


def _of_width(rows: Any, width: int | None) -> Any:
    """Return rows of a matrix with as many columns as the model has."""
    if isinstance(rows, np.ndarray):
        if rows.shape[1] != width:
            raise InvalidInputError(f"X has {rows.shape[1]} columns, the model was trained with {width}; give as many.")
        return rows.astype(np.float32, copy=False)
    fitting = rows.astype(np.float32, copy=True).tocsr()
    # Columns the model never saw are left out, like terms it does not know.
    fitting.resize(rows.shape[0], width)
    return fitting


def _unique(names: list[str]) -> list[str]:
    """Return names of which none is there twice: a second one gets a number.

    A category may be called "missing", and a column like a feature of another one.
    """
    result: dict[str, None] = {}
    for name in names:
        unique, number = name, 1
        while unique in result:
            number += 1
            unique = f"{name} ({number})"
        result[unique] = None
    return list(result)


def _texts(column: pd.Series[Any]) -> list[str]:
    return [str(text) for text in column.astype(object).where(column.notna(), "")]


_VERSION = 1
_ENCODERS: dict[str, type[Encoder]] = {
    "number": NumberColumn,
    "date": DateColumn,
    "category": CategoryColumn,
}
_KEYS = {"version", "form", "width", "columns", "text", "terms", "notes", "parameters"}
_PARAMETERS = {"scale": bool, "max_categories": int, "max_terms": int, "strict": bool}


def _describe_column(encoder: Encoder) -> dict[str, Any]:
    name = next(name for name, kind in _ENCODERS.items() if kind is type(encoder))
    parts = asdict(encoder)
    return {"encoder": name, **{part: list(value) if part == "categories" else value for part, value in parts.items()}}


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


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


_VALID: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str),
    "fill": _is_finite,
    "centre": _is_finite,
    "scale": lambda value: _is_finite(value) and value > 0,
    "indicator": lambda value: type(value) is bool,
    "hours": lambda value: type(value) is bool,
    "categories": _are_names,
}


def _encoder(column: Mapping[str, Any]) -> Encoder:
    """Build the encoder of one column, every field of its type and within its range."""
    parts = dict(column)
    home: Any = _ENCODERS[parts.pop("encoder")]
    _demand(set(parts) == {field.name for field in fields(home)}, "fields of a column")
    for name, value in parts.items():
        _demand(_VALID[name](value), f"{name} {value!r:.40}")
    encoder: Encoder = home(**{part: tuple(value) if part == "categories" else value for part, value in parts.items()})
    return encoder

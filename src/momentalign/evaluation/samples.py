"""Two samples with their columns matched by name: numbers, dates or categories, missing values kept.

Numbers and dates are float64 with NaN where missing (dates as days since 1970), categories are strings with None. What
a column holds is decided as `fit` decides it, by :func:`momentalign.tables.encoders.kind_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.tables.encoders import column_numbers, elapsed_days, kind_of, looks_like_id
from momentalign.tables.table import quoted, refuse_duplicates

__all__ = ["FEWEST_ROWS", "Kind", "Sample", "Samples", "SparseColumns", "missing", "read_samples"]

Kind: TypeAlias = Literal["number", "date", "category"]
Values: TypeAlias = NDArray[Any]

FEWEST_ROWS = 8
"""With fewer rows no test can find anything."""


class Sample(NamedTuple):
    """One sample: how many rows, and its columns by name."""

    rows: int
    kinds: dict[str, Kind]
    columns: Mapping[str, Values]


class SparseColumns(Mapping[str, Values]):
    """The columns of a sparse matrix, each made dense only when asked for."""

    def __init__(self, matrix: Any, names: Sequence[str]) -> None:
        self.matrix = sparse.csc_array(matrix, dtype=np.float64, copy=True)
        self.matrix.sum_duplicates()
        self._indices = {name: index for index, name in enumerate(names)}

    def __getitem__(self, name: str) -> Values:
        index = self._indices[name]
        start, end = self.matrix.indptr[index : index + 2]
        column = np.zeros(self.matrix.shape[0])
        column[self.matrix.indices[start:end]] = self.matrix.data[start:end]
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def rows(self, chosen: NDArray[np.intp], names: Sequence[str]) -> Any:
        """Return some rows and columns as a CSR matrix."""
        return self.matrix[:, [self._indices[name] for name in names]].tocsr()[chosen]


class Samples(NamedTuple):
    """Two samples with the same columns, and the columns that only one of them has."""

    source: Sample
    target: Sample
    kinds: dict[str, Kind]
    only_source: list[str]
    only_target: list[str]
    empty: list[str]
    ids: list[str]
    """Columns of text that differs in every row."""
    retyped: list[str]

    def pair(self, name: str) -> tuple[Values, Values]:
        """Return one column of both samples."""
        return self.source.columns[name], self.target.columns[name]

    def names(self, *kinds: Kind) -> list[str]:
        """Return the columns of these kinds, in the source's order."""
        return [name for name, kind in self.kinds.items() if kind in kinds]


def read_samples(X_source: Any, X_target: Any, feature_names: Sequence[str] | None = None) -> Samples:
    """Return both samples with their columns matched by name, or say what is wrong with them.

    Parameters
    ----------
    X_source, X_target
        Arrays (rows, features), data frames, or scipy sparse matrices. Tables are matched by the names of their
        columns, arrays by position.
    feature_names
        Names for the columns of arrays; tables have their own.

    Examples
    --------
    >>> samples = read_samples(np.zeros((8, 2)), np.ones((9, 2)), ["age", "income"])
    >>> samples.kinds, samples.target.rows
    ({'age': 'number', 'income': 'number'}, 9)
    """
    given = {"X_source": X_source, "X_target": X_target}
    tables, own = zip(*(_as_table(X, argument) for argument, X in given.items()), strict=True)
    names = _column_names(tables, own, feature_names)
    source, target = map(_read_sample, tables, names, given)
    common = [name for name in source.kinds if name in target.kinds]
    if not common:
        first, second = (quoted(list(sample.kinds), 5) for sample in (source, target))
        raise InvalidInputError(
            f"X_source has the columns {first} and X_target {second}: no name is in both; give both the same names."
        )
    filled = {
        name: [sample.kinds[name] for sample in (source, target) if not missing(sample.columns[name]).all()]
        for name in common
    }
    # Where one sample has numbers and the other text, both are compared as text; an empty column has no say.
    kinds: dict[str, Kind] = {
        name: found[0] if len(set(found)) == 1 else "category" for name, found in filled.items() if found
    }
    empty = [name for name in common if not filled[name]]
    if not kinds:
        raise InvalidInputError(f"every common column is empty ({quoted(empty, 5)}); give columns that hold values.")
    texts = [name for name, kind in kinds.items() if kind == "category"]
    ids = [name for name in texts if looks_like_id([sample.columns[name].tolist() for sample in (source, target)])]
    kinds = {name: kind for name, kind in kinds.items() if name not in ids}
    if not kinds:
        raise InvalidInputError(
            f"every common column has a different value in every row ({quoted(ids, 5)}); give columns that can be "
            "compared."
        )
    return Samples(
        _converted(source, kinds),
        _converted(target, kinds),
        kinds,
        only_source=[name for name in source.kinds if name not in target.kinds],
        only_target=[name for name in target.kinds if name not in source.kinds],
        empty=empty,
        ids=ids,
        retyped=[name for name in kinds if len(set(filled[name])) == 2],
    )


def missing(values: Values) -> NDArray[np.bool_]:
    """Return where a column has no value."""
    if values.dtype != object:
        return np.isnan(values)
    return np.array([value is None for value in values.tolist()], dtype=bool)


def _as_table(X: Any, argument: str) -> tuple[Any, list[str] | None]:
    """Return a frame or a sparse matrix with enough rows, and the names of its columns if it has some."""
    import pandas as pd

    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    named = hasattr(X, "iloc") and hasattr(X, "columns")
    if not (named or sparse.issparse(X)):
        try:
            X = np.ma.filled(X, np.nan) if np.ma.isMaskedArray(X) else np.asarray(X)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidTypeError(
                f"{argument} cannot be read as a table ({error}); give an array or a frame."
            ) from None
        if X.dtype.kind not in "biufMmOUST":
            raise InvalidTypeError(f"{argument} holds {X.dtype}; give numbers, dates or text.")
    if X.ndim != 2 or X.shape[1] < 1:
        raise InvalidInputError(
            f"{argument} must be a table (rows, features), got shape {X.shape}; give one column per feature."
        )
    if X.shape[0] < FEWEST_ROWS:
        raise InvalidInputError(
            f"{argument} has {X.shape[0]} rows, but a comparison needs at least {FEWEST_ROWS}; give more rows."
        )
    if named:
        names = [str(name) for name in X.columns]
        refuse_duplicates(names, argument)
        return X, names
    return (X if sparse.issparse(X) else pd.DataFrame(X)), None


def _column_names(
    tables: Sequence[Any], own: Sequence[list[str] | None], feature_names: Sequence[str] | None
) -> list[list[str]]:
    """Return the names of each table's columns; arrays take those of the other table, or x0, x1, ..."""
    known = [names for names in own if names is not None]
    if len(known) == 2:
        if feature_names is not None:
            raise InvalidInputError("feature_names names the columns of arrays, but both tables have names; omit it.")
        return known
    width, other_width = (X.shape[1] for X in tables)
    if width != other_width:
        raise InvalidInputError(
            f"X_source has {width} columns and X_target has {other_width}; give both the same features, or tables "
            "with names to match them by."
        )
    default = known[0] if known else [f"x{index}" for index in range(width)]
    chosen = default if feature_names is None else [str(name) for name in feature_names]
    if len(set(chosen)) != width or len(chosen) != width:
        raise InvalidInputError(
            f"feature_names must be {width} different names, one per column, got {len(chosen)}: {quoted(chosen, 5)}."
        )
    return [names or chosen for names in own]


def _read_sample(X: Any, names: Sequence[str], argument: str) -> Sample:
    if sparse.issparse(X):
        matrix = SparseColumns(X, names)
        _refuse_infinite(matrix.matrix.data, "a column", argument)
        return Sample(matrix.matrix.shape[0], dict.fromkeys(names, "number"), matrix)
    kinds: dict[str, Kind] = {}
    columns = {}
    for index, name in enumerate(names):
        kinds[name], columns[name] = _read_column(X.iloc[:, index])
        if kinds[name] != "category":
            _refuse_infinite(columns[name], f"column {name!r}", argument)
    return Sample(X.shape[0], kinds, columns)


def _refuse_infinite(values: Values, column: str, argument: str) -> None:
    if np.isinf(values).any():
        raise InvalidInputError(f"{column} of {argument} holds infinite values; make them NaN or finite.")


def _read_column(column: Any) -> tuple[Kind, Values]:
    kind = kind_of(column)
    if kind == "number":
        return "number", column_numbers(column)
    if kind == "date":
        return "date", elapsed_days(column)
    cells = zip(column.astype(object), column.isna(), strict=True)
    return "category", np.array([None if absent else str(cell) for cell, absent in cells], dtype=object)


def _converted(sample: Sample, kinds: Mapping[str, Kind]) -> Sample:
    """Return a sample with columns of other kinds converted to these."""
    changed = {name: _as_kind(sample.columns[name], kind) for name, kind in kinds.items() if sample.kinds[name] != kind}
    return sample._replace(columns={**sample.columns, **changed}) if changed else sample


def _as_kind(values: Values, kind: Kind) -> Values:
    """Return numbers as text, and an empty column of text as numbers."""
    if kind != "category":
        return np.full(len(values), np.nan)
    return np.array([None if value != value else f"{value:g}" for value in values.tolist()], dtype=object)

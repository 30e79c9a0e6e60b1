"""Two samples as they are compared: columns by name, each of numbers, of dates or of categories, missing values kept.

Numbers and dates are float64 with NaN where missing (dates as days since 1970), categories are strings with None.
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError

__all__ = ["FEWEST_ROWS", "Kind", "Samples", "SparseColumns", "Table", "missing", "read_samples"]

Kind: TypeAlias = Literal["number", "date", "category"]
Values: TypeAlias = NDArray[Any]

FEWEST_ROWS = 8
"""Below this no test has a say."""

_DAY = np.timedelta64(1, "D")


class Table(NamedTuple):
    """One sample: how many rows, and its columns by name."""

    rows: int
    kinds: dict[str, Kind]
    columns: Mapping[str, Values]


class SparseColumns(Mapping[str, Values]):
    """The columns of a sparse matrix, each made dense only when asked for."""

    def __init__(self, matrix: Any, names: Sequence[str]) -> None:
        self.matrix = sparse.csc_array(matrix, dtype=np.float64, copy=True)
        self.matrix.sum_duplicates()
        self._places = {name: place for place, name in enumerate(names)}

    def __getitem__(self, name: str) -> Values:
        place = self._places[name]
        start, end = self.matrix.indptr[place : place + 2]
        column = np.zeros(self.matrix.shape[0])
        column[self.matrix.indices[start:end]] = self.matrix.data[start:end]
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, chosen: NDArray[np.intp], names: Sequence[str]) -> Any:
        """Return some rows and columns as a CSR matrix."""
        return self.matrix[:, [self._places[name] for name in names]].tocsr()[chosen]


class Samples(NamedTuple):
    """Two samples with the same columns, and the columns that only one of them has."""

    source: Table
    target: Table
    kinds: dict[str, Kind]
    only_source: list[str]
    only_target: list[str]
    empty: list[str]
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
    sides = [_plain(X, name) for X, name in ((X_source, "X_source"), (X_target, "X_target"))]
    own = [_own_names(side, name) for side, name in zip(sides, ("X_source", "X_target"), strict=True)]
    given = _given_names(sides, own, feature_names)
    source, target = (
        _read_table(side, names or given, name)
        for side, names, name in zip(sides, own, ("X_source", "X_target"), strict=True)
    )
    common = [name for name in source.kinds if name in target.kinds]
    if not common:
        raise InvalidInputError(
            f"X_source has the columns {_few(source.kinds)} and X_target {_few(target.kinds)}: no name is in both; "
            "give both the same names."
        )
    held = {name: [not missing(table.columns[name]).all() for table in (source, target)] for name in common}
    empty = [name for name in common if not any(held[name])]
    kinds = {name: _common_kind(name, source, target, held[name]) for name in common if any(held[name])}
    if not kinds:
        raise InvalidInputError(f"every common column is empty ({_few(empty)}); give columns that hold values.")
    return Samples(
        _of_kinds(source, kinds),
        _of_kinds(target, kinds),
        kinds,
        only_source=[name for name in source.kinds if name not in target.kinds],
        only_target=[name for name in target.kinds if name not in source.kinds],
        empty=empty,
        retyped=[name for name in kinds if source.kinds[name] != target.kinds[name] and all(held[name])],
    )


def _plain(X: Any, argument: str) -> Any:
    """Return a frame, a sparse matrix or an array of two dimensions with enough rows."""
    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if not (sparse.issparse(X) or _is_frame(X)):
        X = _as_array(X, argument)
    if X.ndim != 2 or X.shape[1] < 1:
        raise InvalidInputError(
            f"{argument} must be a table (rows, features), got shape {X.shape}; give one column per feature."
        )
    if X.shape[0] < FEWEST_ROWS:
        raise InvalidInputError(
            f"{argument} has {X.shape[0]} rows, but a comparison needs at least {FEWEST_ROWS}; give more rows."
        )
    return X


def _as_array(X: Any, argument: str) -> Values:
    try:
        array = np.ma.filled(X, np.nan) if np.ma.isMaskedArray(X) else np.asarray(X)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidTypeError(f"{argument} cannot be read as a table ({error}); give an array or a frame.") from None
    if array.dtype.kind not in "biufMmOUST":
        raise InvalidTypeError(f"{argument} holds {array.dtype}; give numbers, dates or words.")
    return array


def _is_frame(X: Any) -> bool:
    return hasattr(X, "iloc") and hasattr(X, "columns")


def _own_names(X: Any, argument: str) -> list[str] | None:
    """Return the names of a frame's columns, each once."""
    if not _is_frame(X):
        return None
    names = [str(name) for name in X.columns]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1] if len(set(names)) < len(names) else []
    if twice:
        raise InvalidInputError(f"{argument} has the column {twice[0]!r} more than once; rename or drop one of them.")
    return names


def _given_names(
    sides: Sequence[Any], own: Sequence[list[str] | None], feature_names: Sequence[str] | None
) -> list[str]:
    """Return the names of columns that came without: those given, those of the other table, or x0, x1, ..."""
    if None not in own:
        if feature_names is not None:
            raise InvalidInputError("feature_names names the columns of arrays, but both tables have names; omit it.")
        return []
    widths = [side.shape[1] for side in sides]
    if widths[0] != widths[1]:
        raise InvalidInputError(
            f"X_source has {widths[0]} columns and X_target has {widths[1]}; give both the same features, or tables "
            "with names to match them by."
        )
    names = feature_names if feature_names is not None else own[0] or own[1]
    words = [f"x{place}" for place in range(widths[0])] if names is None else [str(name) for name in names]
    if len(set(words)) != widths[0] or len(words) != widths[0]:
        raise InvalidInputError(
            f"feature_names must be {widths[0]} different names, one per column, got {len(words)}: {_few(words)}."
        )
    return words


def _read_table(X: Any, names: Sequence[str], argument: str) -> Table:
    if sparse.issparse(X):
        columns = SparseColumns(X, names)
        _refuse_infinite(columns.matrix.data, "a column", argument)
        return Table(columns.matrix.shape[0], dict.fromkeys(names, "number"), columns)
    read = {
        name: _frame_column(X.iloc[:, place]) if _is_frame(X) else _array_column(X[:, place])
        for place, name in enumerate(names)
    }
    for name, (kind, values) in read.items():
        if kind != "category":
            _refuse_infinite(values, f"column {name!r}", argument)
    kinds = {name: kind for name, (kind, _) in read.items()}
    return Table(X.shape[0], kinds, {name: values for name, (_, values) in read.items()})


def _refuse_infinite(values: Values, place: str, argument: str) -> None:
    if np.isinf(values).any():
        raise InvalidInputError(f"{place} of {argument} holds infinite values; make them NaN or finite.")


def _frame_column(column: Any) -> tuple[Kind, Values]:
    """Return one column of a frame; what is neither a number nor a date is a category."""
    from pandas import CategoricalDtype
    from pandas.api import types

    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iufmM":
        return _array_column(column.to_numpy())
    if types.is_datetime64_any_dtype(dtype):
        plain = column if column.dt.tz is None else column.dt.tz_convert(None)
        return _array_column(plain.to_numpy(dtype="datetime64[us]"))
    if types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype) and not types.is_complex_dtype(dtype):
        return "number", column.to_numpy(dtype=np.float64, na_value=np.nan)
    values = column.astype(object).to_numpy(dtype=object, copy=True)
    values[column.isna().to_numpy()] = None
    return ("category", _words(values)) if isinstance(dtype, CategoricalDtype) else _array_column(values)


def _array_column(values: Values) -> tuple[Kind, Values]:
    """Return one column of an array as numbers, dates or words."""
    if values.dtype.kind in "biuf":
        return "number", np.ascontiguousarray(values, dtype=np.float64)
    if values.dtype.kind in "Mm":
        kind: Kind = "date" if values.dtype.kind == "M" else "number"
        return kind, (values - np.zeros((), dtype=values.dtype)) / _DAY
    if values.dtype.kind in "UST":
        values = values.astype(object)
    known = [value for value in values if not _is_missing(value)]
    if known and all(isinstance(value, numbers.Real | Decimal) and not _is_bool(value) for value in known):
        return "number", np.array([np.nan if _is_missing(value) else float(value) for value in values])
    if known and all(isinstance(value, datetime.date) for value in known):
        return _array_column(np.array([_as_date(value) for value in values], dtype="datetime64[us]"))
    return "category", _words(values)


def _words(values: Values) -> Values:
    return np.array([None if _is_missing(value) else str(value) for value in values], dtype=object)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


def _as_date(value: Any) -> Any:
    """Return a date as numpy reads it: times of day with a zone in UTC."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return None if _is_missing(value) else value


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def missing(values: Values) -> NDArray[np.bool_]:
    """Return where a column has no value."""
    if values.dtype != object:
        return np.isnan(values)
    return np.array([value is None for value in values.tolist()], dtype=bool)


def _common_kind(name: str, source: Table, target: Table, held: Sequence[bool]) -> Kind:
    """Return what a column holds in both samples: where one of them has words, these; an empty side has no say."""
    kinds: list[Kind] = [table.kinds[name] for table, holds in zip((source, target), held, strict=True) if holds]
    return kinds[0] if len(set(kinds)) == 1 else "category"


def _of_kinds(table: Table, kinds: Mapping[str, Kind]) -> Table:
    """Return a table with columns of other kinds read as these."""
    changed = {name: _read_as(table.columns[name], kind) for name, kind in kinds.items() if table.kinds[name] != kind}
    return table._replace(columns={**table.columns, **changed}) if changed else table


def _read_as(values: Values, kind: Kind) -> Values:
    """Return numbers as words, and an empty column of words as numbers."""
    if kind != "category":
        return np.full(len(values), np.nan)
    return np.array([None if value != value else f"{value:g}" for value in values.tolist()], dtype=object)


def _few(names: Any) -> str:
    """Quote the first few names."""
    words = [str(name) for name in names]
    return ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")

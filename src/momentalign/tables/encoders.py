r"""How one column becomes numbers: fixed maps, the same for both domains.

A common invertible map of both domains moves their moments together and hides no shift; a map fitted to each domain
apart would itself align its first moments, whatever the network does later. An encoder first reads a whole column to
an array, then writes the features of a few rows at a time.

What a column holds: numbers, dates or text, decided by all its cells.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.tables.opening import need

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "KINDS",
    "MISSING",
    "CategoryColumn",
    "DateColumn",
    "Encoder",
    "Kind",
    "NumberColumn",
    "column_numbers",
    "convert_cells",
    "elapsed_days",
    "finite_or_missing",
    "kind_of",
]

Kind: TypeAlias = Literal["number", "date", "text"]
KINDS: tuple[Kind, ...] = ("number", "date", "text")

# Cells that say that there is no value.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "?", "-", "#N/A", "<NA>", "NaT")
# A column with more numbers than this share is one of numbers, and its other cells are mistakes.
_MOSTLY = 0.95


def kind_of(column: pd.Series[Any]) -> Kind:
    """Return what a column of a DataFrame holds; booleans and durations are numbers.

    A column of Python objects holds numbers or dates if all its cells are that, missing ones aside.

    Examples
    --------
    >>> import pandas as pd
    >>> [kind_of(pd.Series(cells)) for cells in ([1.5, None], [True, False], ["a", None])]
    ['number', 'number', 'text']
    """
    from pandas.api import types

    dtype = column.dtype
    if dtype.name == "object":
        return _KINDS_OF_OBJECTS.get(types.infer_dtype(column, skipna=True), "text")
    if dtype.kind in "bm" or (types.is_numeric_dtype(dtype) and dtype.kind != "c"):
        return "number"
    return "date" if types.is_datetime64_any_dtype(dtype) else "text"


_KINDS_OF_OBJECTS: dict[str, Kind] = {
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "decimal", "boolean", "timedelta"), "number"),
    **dict.fromkeys(("date", "datetime", "datetime64"), "date"),
}


def column_numbers(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return a column of numbers as float64, durations in days, NaN where one is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> column_numbers(pd.Series([1, None], dtype="Int64")).tolist()
    [1.0, nan]
    """
    if column.dtype == object:
        column = column.infer_objects()
    if column.dtype.kind == "m":
        return np.asarray(column.to_numpy() / np.timedelta64(1, "D"))
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def convert_cells(cells: Any, where: str, *, kind: Kind | None = None, start: int = 0, comma: bool = False) -> Any:
    """Return a column of cells of text as numbers, dates or text.

    Parameters
    ----------
    cells
        Strings and nulls, a pyarrow array.
    where
        Name of the file and the column, for errors.
    kind
        What they are; None decides: numbers if all are (or true and false), dates if all are in the form of ISO 8601,
        else text. A column of which more than 95 % are numbers, but not all, is refused.
    start
        Number of rows before the first cell, for errors.
    comma
        Whether a decimal comma is possible.
    """
    numbers = None if kind == "text" else _cast(cells, need("pyarrow").float64())
    if numbers is not None and (kind != "date" or np.isnan(numbers).all()):
        return numbers
    clean = _clean(cells)
    if kind == "text":
        return clean.to_pandas()
    if kind == "date":
        return _dates(clean, where, start)
    return _numbers(clean, where, start=start, comma=comma, sure=kind == "number")


def _cast(cells: Any, kind: Any) -> NDArray[Any] | None:
    """Return cells as an array if every one of them can be read so."""
    pyarrow, compute = need("pyarrow"), need("pyarrow.compute")
    try:
        # A column of words shows at once, and a cast that fails in every cell is slow.
        compute.cast(cells.slice(0, 100), kind)
        values: NDArray[Any] = compute.cast(cells, kind).to_numpy(zero_copy_only=False)
    except pyarrow.ArrowInvalid:
        return None
    return values


def _clean(cells: Any) -> Any:
    """Return cells without the spaces around them, words for a missing value as missing."""
    pyarrow, compute = need("pyarrow"), need("pyarrow.compute")
    cells = pyarrow.chunked_array(cells)
    trimmed = compute.utf8_trim_whitespace(cells)
    missing = compute.is_in(trimmed, value_set=pyarrow.array(MISSING, cells.type))
    return compute.if_else(missing, pyarrow.scalar(None, cells.type), trimmed)


def _numbers(clean: Any, where: str, *, start: int, comma: bool, sure: bool) -> Any:
    import pandas as pd

    text = clean.to_pandas()
    present = text.notna().to_numpy()
    numbers = _parsed(text)
    if comma and np.isnan(numbers[present]).any():
        numbers = _with_comma(text, numbers, where)
    wrong = np.isnan(numbers) & present
    if not wrong.any():
        return numbers
    if sure or wrong.sum() < (1 - _MOSTLY) * present.sum():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"{where}, row {start + row + 1} holds {text.iloc[row]!r:.40} in a column of numbers; write a number there "
            "or leave the cell empty."
        )
    dates = _read_dates(clean)
    return text if dates is None else pd.Series(dates)


def _parsed(text: pd.Series[Any]) -> NDArray[np.float64]:
    """Return cells as numbers, true and false as 1 and 0 where there is nothing else; NaN for what is neither."""
    import pandas as pd

    codes, seen = pd.factorize(text)
    words = pd.Series(seen, dtype=object)
    truths = words.str.lower().map({"true": 1.0, "false": 0.0})
    values = pd.to_numeric(words, errors="coerce") if truths.isna().any() else truths
    # A missing cell has the code -1, which is the last entry.
    return np.append(values.to_numpy(dtype=np.float64), np.nan)[codes]


def _with_comma(text: pd.Series[Any], numbers: NDArray[np.float64], where: str) -> NDArray[np.float64]:
    """Return cells like ``3,14`` as numbers if all cells are numbers then."""
    read = _parsed(text.str.replace(",", ".", n=1))
    if np.isnan(read).sum() > text.isna().sum():
        return numbers
    warnings.warn(
        f"{where} has numbers with a decimal comma, read as such; write a point if the comma separates thousands.",
        MomentAlignWarning,
        stacklevel=2,
    )
    return read


def _dates(clean: Any, where: str, start: int) -> Any:
    import pandas as pd

    dates = _read_dates(clean)
    if dates is None:
        cells = clean.combine_chunks()
        bad = next(row for row in range(len(cells)) if _read_dates(cells.slice(row, 1)) is None)
        raise InvalidInputError(
            f"{where}, row {start + bad + 1} holds {cells[bad].as_py()!r:.40} in a column of dates; write it as "
            "2019-12-31 or 2019-12-31T23:59:00."
        )
    return pd.Series(dates)


def _read_dates(clean: Any) -> NDArray[Any] | None:
    timestamp = need("pyarrow").timestamp
    plain = _cast(clean, timestamp("us"))
    return plain if plain is not None else _cast(clean, timestamp("us", "UTC"))


_MICROSECONDS_OF_A_DAY = 86_400e6


@dataclass(frozen=True)
class NumberColumn:
    r"""A number x as :math:`(x - \text{centre}) / \text{scale}`; a missing one is `fill`, with an indicator if asked.

    Examples
    --------
    >>> import pandas as pd
    >>> out = np.empty((2, 3), np.float32)
    >>> age = NumberColumn("age", fill=40.0, centre=30.0, scale=10.0, indicator=True)
    >>> age.write(age.read(pd.Series([20, None, 30])), out)
    >>> out.tolist()
    [[-1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """

    name: str
    fill: float
    centre: float
    scale: float
    indicator: bool

    @property
    def kind(self) -> Kind:
        """Numbers."""
        return "number"

    @property
    def features(self) -> list[str]:
        """The column, and its indicator."""
        return [self.name, f"{self.name}=missing"] if self.indicator else [self.name]

    def read(self, column: pd.Series[Any], start: int = 0) -> NDArray[np.float64]:
        """Return the numbers, NaN where one is missing."""
        return finite_or_missing(self.name, column_numbers(column), start)

    def write(self, values: NDArray[Any], out: NDArray[np.float32]) -> None:
        """Write the standardised numbers."""
        _write_numbers(self, values, out)


@dataclass(frozen=True)
class DateColumn:
    r"""A date as days since 1970, standardised, and as points on the circles of the year, the week and the day.

    With :math:`u \in [0, 1)` the part of the year (week, day) that has passed, the point is
    :math:`(\sin 2 \pi u, \cos 2 \pi u)`: December is next to January. The circle of the day is left out for dates
    without a time (`hours` is False). A missing date is `fill` and the centre of every circle.
    """

    name: str
    fill: float
    centre: float
    scale: float
    indicator: bool
    hours: bool

    @property
    def kind(self) -> Kind:
        """Dates."""
        return "date"

    @property
    def features(self) -> list[str]:
        """Days, the indicator, and the circles."""
        circles = ["year", "week", "day"] if self.hours else ["year", "week"]
        days = [f"{self.name}:days", f"{self.name}=missing"] if self.indicator else [f"{self.name}:days"]
        return [*days, *(f"{self.name}:{circle}_{axis}" for circle in circles for axis in ("sin", "cos"))]

    def read(self, column: pd.Series[Any], start: int = 0) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the days since 1970, NaN where a date is missing."""
        return elapsed_days(column)

    def write(self, values: NDArray[Any], out: NDArray[np.float32]) -> None:
        """Write the days and the points."""
        days = values
        _write_numbers(self, days, out)
        whole = np.floor(days)
        turns = [_part_of_year(whole), (whole + 3) % 7 / 7, days - whole]
        points = out[2 if self.indicator else 1 :]
        for place, turn in enumerate(turns[: len(points) // 2]):
            points[2 * place] = np.nan_to_num(np.sin(2 * np.pi * turn))
            points[2 * place + 1] = np.nan_to_num(np.cos(2 * np.pi * turn))


@dataclass(frozen=True)
class CategoryColumn:
    """Text as one indicator per category; any other text is 0 in all of them, and so is a missing one.

    Examples
    --------
    >>> import pandas as pd
    >>> out = np.empty((2, 3), np.float32)
    >>> colour = CategoryColumn("colour", categories=("blue", "red"), indicator=False)
    >>> colour.write(colour.read(pd.Series(["red", "green", "blue"])), out)
    >>> out.tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """

    name: str
    categories: tuple[str, ...]
    indicator: bool

    @property
    def kind(self) -> Kind:
        """Text."""
        return "text"

    @property
    def features(self) -> list[str]:
        """The categories, and the indicator."""
        return [f"{self.name}={category}" for category in (*self.categories, *(["missing"] if self.indicator else []))]

    def read(self, column: pd.Series[Any], start: int = 0) -> NDArray[np.intp]:  # noqa: ARG002
        """Return the place of each category, -1 for another text and -2 for none."""
        import pandas as pd

        codes, seen = pd.factorize(column)
        places = {category: place for place, category in enumerate(self.categories)}
        # A missing text has the code -1, which is the last entry.
        return np.array([*(places.get(str(text), -1) for text in seen), -2])[codes]

    def write(self, values: NDArray[Any], out: NDArray[np.float32]) -> None:
        """Write the indicators."""
        out[:] = 0.0
        rows = np.flatnonzero(values >= 0)
        out[values[rows], rows] = 1.0
        if self.indicator:
            out[-1] = values == -2


Encoder: TypeAlias = NumberColumn | DateColumn | CategoryColumn


def elapsed_days(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return dates as days since the beginning of 1970, NaN where there is none.

    Examples
    --------
    >>> import pandas as pd
    >>> elapsed_days(pd.Series(pd.to_datetime(["1970-01-02 12:00", None]))).tolist()
    [1.5, nan]
    """
    import pandas as pd

    values = pd.to_datetime(column, utc=True).dt.tz_convert(None).to_numpy().astype("datetime64[us]")
    days = values.astype(np.int64) / _MICROSECONDS_OF_A_DAY
    days[np.isnat(values)] = np.nan
    return days


def _part_of_year(days: NDArray[np.float64]) -> NDArray[np.float64]:
    dates = np.nan_to_num(days).astype("datetime64[D]")
    passed = (dates - dates.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.float64)
    return np.where(np.isnan(days), np.nan, passed / 366)


def _write_numbers(encoder: NumberColumn | DateColumn, values: NDArray[np.float64], out: NDArray[np.float32]) -> None:
    """Write standardised numbers, computed in float64: far from 0, float32 would lose them before they are centred."""
    moved = values - encoder.centre
    missing = np.isnan(moved)
    if missing.any():
        moved[missing] = encoder.fill - encoder.centre
    moved /= encoder.scale
    out[0] = moved
    if encoder.indicator:
        out[1] = missing


def finite_or_missing(name: str, values: NDArray[np.float64], start: int = 0) -> NDArray[np.float64]:
    """Return numbers none of which is infinite, or say in which row one is; `start` counts the rows before."""
    infinite = np.isinf(values)
    if infinite.any():
        row = start + int(infinite.argmax()) + 1
        raise InvalidInputError(f"column {name!r}, row {row} is infinite; correct the cell or leave it empty.")
    return values

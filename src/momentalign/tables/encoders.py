r"""What a column of a table holds, and how it becomes numbers: fixed maps, the same for both domains.

A common invertible map of both domains moves their moments together and hides no shift; a map fitted to each domain
apart would itself align its first moments, whatever the network does later. An encoder first reads a whole column to
an array, then writes the features of a few rows at a time.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "KINDS",
    "CategoryColumn",
    "DateColumn",
    "Encoder",
    "Kind",
    "NumberColumn",
    "column_numbers",
    "elapsed_days",
    "finite_or_missing",
    "kind_of",
]

Kind: TypeAlias = Literal["number", "date", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# What pandas calls columns of objects that are numbers or dates.
_NUMBERS = {"boolean", "integer", "floating", "mixed-integer-float", "decimal", "timedelta", "timedelta64"}
_DATES = {"date", "datetime", "datetime64"}
_MICROSECONDS_OF_A_DAY = 86_400e6

Floats: TypeAlias = NDArray[np.floating[Any]]


def kind_of(column: pd.Series[Any]) -> Kind:
    """Return what a column of a DataFrame holds; true and false are the numbers 1 and 0, durations are numbers of days.

    Examples
    --------
    >>> import pandas as pd
    >>> [kind_of(pd.Series(cells)) for cells in ([1.5, None], [True, None], ["a", None])]
    ['number', 'number', 'text']
    """
    from pandas.api import types

    dtype = column.dtype
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_timedelta64_dtype(dtype) or types.is_bool_dtype(dtype):
        return "number"
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return "number"
    found = types.infer_dtype(column, skipna=True) if dtype.kind == "O" else ""
    return "number" if found in _NUMBERS else "date" if found in _DATES else "text"


def column_numbers(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return a column of numbers as float64, NaN where one is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> column_numbers(pd.Series([True, None])).tolist()
    [1.0, nan]
    """
    if column.dtype.kind == "O":
        column = column.infer_objects()
    if column.dtype.kind == "m":
        return np.asarray(column.to_numpy() / np.timedelta64(1, "D"))
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def elapsed_days(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return a column of dates as days since the beginning of 1970 in UTC, NaN where one is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> elapsed_days(pd.Series(pd.to_datetime(["1970-01-02 12:00", None]))).tolist()
    [1.5, nan]
    """
    if column.dtype == object:
        values = np.array(
            [_without_zone(value) for value in column.where(column.notna(), None)], dtype="datetime64[us]"
        )
    else:
        plain = column if getattr(column.dt, "tz", None) is None else column.dt.tz_convert(None)
        values = plain.to_numpy(dtype="datetime64[us]")
    days = values.astype(np.int64) / _MICROSECONDS_OF_A_DAY
    days[np.isnat(values)] = np.nan
    return days


def _without_zone(date: Any) -> Any:
    if isinstance(date, datetime.datetime) and date.tzinfo is not None:
        return date.astimezone(datetime.UTC).replace(tzinfo=None)
    return date


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

    def write(self, values: NDArray[Any], out: Floats) -> None:
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

    def write(self, values: NDArray[Any], out: Floats) -> None:
        """Write the days and the points."""
        _write_numbers(self, values, out)
        whole = np.floor(values)
        turns = [_part_of_year(whole), (whole + 3) % 7 / 7, values - whole]
        points = out[2 if self.indicator else 1 :]
        for circle, turn in enumerate(turns[: len(points) // 2]):
            points[2 * circle] = np.nan_to_num(np.sin(2 * np.pi * turn))
            points[2 * circle + 1] = np.nan_to_num(np.cos(2 * np.pi * turn))


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
        """Return the index of each category, -1 for another text and -2 for none."""
        import pandas as pd

        codes, seen = pd.factorize(column)
        index = {category: number for number, category in enumerate(self.categories)}
        # A missing text has the code -1, which is the last entry.
        return np.array([*(index.get(str(text), -1) for text in seen), -2])[codes]

    def write(self, values: NDArray[Any], out: Floats) -> None:
        """Write the indicators."""
        out[:] = 0.0
        rows = np.flatnonzero(values >= 0)
        out[values[rows], rows] = 1.0
        if self.indicator:
            out[-1] = values == -2


Encoder: TypeAlias = NumberColumn | DateColumn | CategoryColumn


def _part_of_year(days: NDArray[np.float64]) -> NDArray[np.float64]:
    dates = np.nan_to_num(days).astype("datetime64[D]")
    passed = (dates - dates.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.float64)
    return np.where(np.isnan(days), np.nan, passed / 366)


def _write_numbers(encoder: NumberColumn | DateColumn, values: NDArray[np.float64], out: Floats) -> None:
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

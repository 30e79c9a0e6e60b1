r"""What a column of a table holds, and how it becomes numbers: chosen by both domains, the same fixed map for both.

A common invertible map of both domains moves their moments together and hides no shift; a map fitted to each domain
apart would itself align its first moments, whatever the network does later. An encoder first reads a whole column to
an array, then writes the features of a few rows at a time.
"""

from __future__ import annotations

import datetime
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.tables.table import Kind, quoted, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CategoryColumn",
    "Choices",
    "DateColumn",
    "Encoder",
    "NumberColumn",
    "choose_encoder",
    "column_numbers",
    "count_unseen",
    "elapsed_days",
    "encode",
    "kind_of",
    "looks_like_id",
    "unseen_note",
]

Floats: TypeAlias = NDArray[np.floating[Any]]

# What pandas calls columns of objects that are numbers or dates.
_NUMBERS = {"boolean", "integer", "floating", "mixed-integer-float", "decimal", "timedelta", "timedelta64"}
_DATES = {"date", "datetime", "datetime64"}
_MICROSECONDS_OF_A_DAY = 86_400e6
# In a table of fewer rows, texts that all differ may still be categories.
_FEWEST_IDS = 20
# Values of so many words on average are sentences.
_WORDS = 5
# Rows encoded at a time: the columns of that many stay in the cache until they are laid out as rows.
_STEP = 8192


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


def looks_like_id(columns: Sequence[Sequence[Any]]) -> bool:
    """Whether texts, given for each domain, differ in every row, none being None: nothing can be learned from them.

    Examples
    --------
    >>> looks_like_id([[f"C{row}" for row in range(30)], ["C1", "C2"]]), looks_like_id([["a", "b"] * 15])
    (True, False)
    """
    distinct = [set(cells) for cells in columns]
    alone = all(len(texts) == len(cells) and None not in texts for texts, cells in zip(distinct, columns, strict=True))
    return alone and sum(map(len, columns)) >= _FEWEST_IDS


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
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except OverflowError:
        raise InvalidInputError(
            f"column {column.name!r:.80} holds whole numbers of more than 308 digits; correct them or leave them empty."
        ) from None


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

    kind: ClassVar[Kind] = "number"

    @property
    def features(self) -> list[str]:
        """The column, and its indicator."""
        return [self.name, f"{self.name}=missing"] if self.indicator else [self.name]

    def read(self, column: pd.Series[Any], start: int = 0) -> NDArray[np.float64]:
        """Return the numbers, NaN where one is missing; `start` counts the rows before."""
        values = column_numbers(column)
        infinite = np.isinf(values)
        if infinite.any():
            row = start + int(infinite.argmax()) + 1
            raise InvalidInputError(f"column {self.name!r}, row {row} is infinite; correct the cell or leave it empty.")
        return values

    def write(self, values: NDArray[Any], out: Floats) -> None:
        """Write the standardised numbers, computed in float64: float32 would lose what differs far from 0."""
        moved = values - self.centre
        missing = np.isnan(moved)
        if missing.any():
            moved[missing] = self.fill - self.centre
        moved /= self.scale
        out[0] = moved
        if self.indicator:
            out[1] = missing


@dataclass(frozen=True)
class DateColumn(NumberColumn):
    r"""A date as days since 1970, standardised, and as points on the circles of the year, the week and the day.

    With :math:`u \in [0, 1)` the part of the year (week, day) that has passed, the point is
    :math:`(\sin 2 \pi u, \cos 2 \pi u)`: December is next to January. The circle of the day is left out for dates
    without a time (`hours` is False). A missing date is `fill` and the centre of every circle.
    """

    hours: bool

    kind: ClassVar[Kind] = "date"

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
        super().write(values, out)
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

    kind: ClassVar[Kind] = "text"

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


Encoder: TypeAlias = NumberColumn | CategoryColumn


def _part_of_year(days: NDArray[np.float64]) -> NDArray[np.float64]:
    dates = np.nan_to_num(days).astype("datetime64[D]")
    passed = (dates - dates.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.float64)
    return np.where(np.isnan(days), np.nan, passed / 366)


@dataclass
class Choices:
    """How columns are chosen and encoded, notes about what was decided, and categories that the source lacks."""

    scale: bool
    max_categories: int
    notes: list[str] = field(default_factory=list)
    unseen: dict[str, Counter[str]] = field(default_factory=dict)

    def warn(self, note: str) -> None:
        """Note a decision that loses something, and warn of it."""
        self.notes.append(note)
        warnings.warn(note, MomentAlignWarning, stacklevel=6)


def choose_encoder(name: str, columns: list[pd.Series[Any]], choices: Choices) -> Encoder | None:
    """Return the encoder of one column, given for each domain; None for a column that does not vary."""
    if _is_constant(columns):
        choices.notes.append(f"column {name!r} is the same in every row of both domains and is left out.")
        return None
    filled = [column for column in columns if column.notna().any()]
    kinds = {kind_of(column) for column in filled}
    if len(kinds) > 1:
        described = [f"{kind_of(column)}s ({shown(column[column.notna()].iloc[0])})" for column in columns]
        raise InvalidInputError(
            f"column {name!r} holds {described[0]} in the source and {described[1]} in the target; make its cells "
            "alike in both, or read it as text in both."
        )
    indicator = any(bool(column.isna().any()) for column in columns)
    match kinds.pop():
        case "number":
            values = [NumberColumn(name, 0.0, 0.0, 1.0, indicator).read(column) for column in filled]
            return NumberColumn(name, *_statistics(values, choices), indicator=indicator)
        case "date":
            days = [elapsed_days(column) for column in filled]
            hours = any(bool((part % 1 > 0).any()) for part in days)
            return DateColumn(name, *_statistics(days, choices), indicator=indicator, hours=hours)
    return _choose_categories(name, columns, choices, indicator=indicator)


def _is_constant(columns: list[pd.Series[Any]]) -> bool:
    """Whether all cells of all domains are the same, or all are missing."""
    missing = np.concatenate([column.isna().to_numpy() for column in columns])
    if missing.any():
        return bool(missing.all())
    return all(bool((column == columns[0].iloc[0]).all()) for column in columns)


def _statistics(domains: list[NDArray[np.float64]], choices: Choices) -> tuple[float, float, float]:
    """Return fill, centre and scale, each domain with the same weight however many rows it has."""
    present = [values[~np.isnan(values)] for values in domains]
    fill = float(np.mean([np.median(part) for part in present]))
    if not choices.scale:
        return fill, 0.0, 1.0
    centre = float(np.mean([part.mean() for part in present]))
    with np.errstate(over="ignore"):
        spread = float(np.sqrt(np.mean([np.square(part - centre).mean() for part in present])))
    # Squares that overflow leave the column as it is; it is refused where it does not fit into float32.
    return fill, centre, spread if spread > 0 and np.isfinite(spread) else 1.0


def _choose_categories(
    name: str, columns: list[pd.Series[Any]], choices: Choices, *, indicator: bool
) -> CategoryColumn | None:
    counts = [{str(text): int(count) for text, count in column.value_counts().items()} for column in columns]
    shares: defaultdict[str, float] = defaultdict(float)
    for column, counted in zip(columns, counts, strict=True):
        for text, count in counted.items():
            shares[text] += count / len(column)
    if not indicator and looks_like_id([column.tolist() for column in columns]):
        what = f"column {name!r} has a different value in every row"
        if _is_free_text(shares):
            choices.warn(f"{what} and is left out; if it is free text, give text={name!r} (--text).")
        else:
            choices.warn(f"{what} (looks like an id) and is left out.")
        return None
    kept = sorted(shares, key=lambda text: (-shares[text], text))[: choices.max_categories]
    if len(kept) < len(shares):
        choices.warn(
            f"column {name!r} has {len(shares)} categories; the {len(kept)} most frequent are kept, the others count "
            f"as unknown{f'; if it is free text, give text={name!r} (--text)' if _is_free_text(shares) else ''}."
        )
    # A column of pandas' categories counts also those that no row has.
    unseen = {text: n for text, n in counts[-1].items() if n and not counts[0].get(text)}
    if unseen:
        choices.unseen[name] = Counter(unseen)
    return CategoryColumn(name, tuple(sorted(kept)), indicator=indicator)


def unseen_note(name: str, unseen: Counter[str], where: str) -> str:
    """Count the rows with categories that a model has not learned from.

    Examples
    --------
    >>> unseen_note("city", Counter({"Graz": 2, "Wels": 9}), "new.csv")
    "column 'city' holds 2 values that the model does not know in 11 rows of new.csv: 'Wels', 'Graz'."
    """
    values = "1 value" if len(unseen) == 1 else f"{len(unseen):,} values"
    rows = "1 row" if unseen.total() == 1 else f"{unseen.total():,} rows"
    names = quoted([text for text, _ in unseen.most_common()], 3)
    return f"column {name!r} holds {values} that the model does not know in {rows} of {where}: {names}."


def _is_free_text(values: Iterable[str]) -> bool:
    """Whether values are sentences rather than names: five words and more on average."""
    words = [len(value.split()) for value in values]
    return sum(words) >= _WORDS * len(words)


def encode(encoders: Sequence[Encoder], frame: pd.DataFrame, start: int, dtype: np.dtype[Any]) -> Floats:
    """Return the features of a table: written column by column, where memory is contiguous, then turned to rows."""
    columns = [encoder.read(_of_kind(frame[encoder.name], encoder), start) for encoder in encoders]
    ends = np.cumsum([0, *(len(encoder.features) for encoder in encoders)])
    rows = np.empty((len(frame), ends[-1]), dtype)
    with np.errstate(over="ignore"):
        for first in range(0, len(frame), _STEP):
            part = slice(first, min(first + _STEP, len(frame)))
            block = np.empty((rows.shape[1], part.stop - first), dtype)
            for encoder, column, (low, high) in zip(encoders, columns, pairwise(ends), strict=True):
                encoder.write(column[part], block[low:high])
            _refuse_overflow(encoders, block, start + first)
            rows[part] = block.T
    return rows


def count_unseen(encoders: Sequence[Encoder], frame: pd.DataFrame) -> dict[str, Counter[str]]:
    """Return, of each column of categories, the texts that are none of them, and in how many rows each stands."""
    found: dict[str, Counter[str]] = {}
    for encoder in encoders:
        if isinstance(encoder, CategoryColumn):
            counts = frame[encoder.name].value_counts()
            known = set(encoder.categories)
            unseen = {str(text): int(count) for text, count in counts.items() if count and str(text) not in known}
            if unseen:
                found[encoder.name] = Counter(unseen)
    return found


def _refuse_overflow(encoders: Sequence[Encoder], block: Floats, start: int) -> None:
    fits = np.abs(block) <= np.finfo(np.float32).max
    if fits.all():
        return
    names = [encoder.name for encoder in encoders for _ in encoder.features]
    feature, row = np.argwhere(~fits)[0]
    raise InvalidInputError(
        f"column {names[feature]!r}, row {start + row + 1} is too large for float32; correct the cell or give the "
        "column in a larger unit."
    )


def _of_kind(column: pd.Series[Any], encoder: Encoder) -> pd.Series[Any]:
    """Return a column if it holds what the encoder was fitted to, or say what it holds."""
    kind = kind_of(column)
    # Of objects of several types, categories by their text, some rows may have only numbers.
    if kind == encoder.kind or (encoder.kind == "text" and column.dtype == object):
        return column
    import pandas as pd

    if bool(column.isna().all()):
        dtype = {"number": "float64", "date": "datetime64[us]", "text": "object"}[encoder.kind]
        return pd.Series(np.full(len(column), None), dtype=dtype)
    example = column[column.notna()].iloc[0]
    raise InvalidInputError(
        f"column {encoder.name!r} holds {kind}s ({shown(example)}) where the model was trained with {encoder.kind}s; "
        "make its cells alike."
    )

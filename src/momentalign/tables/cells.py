"""Cells of text as numbers, dates or text; what a column holds is decided by all of its cells.

A file may be read part by part. Then :class:`CellCounts` first counts what the cells can be read as and decides when it
has seen all of them, so that the size of the parts changes nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.tables.encoders import Kind

__all__ = ["MISSING", "CellCounts", "convert_cells"]

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "?", "-", "#N/A", "<NA>", "NaT")
"""Cells that say that there is no value."""
# A column with more numbers than this share is one of numbers, and its other cells are mistakes.
_MOSTLY = 0.95


@dataclass
class CellCounts:
    """How many cells of a column can be read as numbers, dates, true and false; `where` names the column in errors."""

    where: str
    comma: bool = False
    rows: int = 0
    present: int = 0
    numbers: int = 0
    numbers_with_comma: int = 0
    truths: int = 0
    plain_dates: bool = True
    zoned_dates: bool = True
    first_other: tuple[int, str] | None = None

    def add(self, cells: Any) -> None:
        """Count some cells, a pyarrow array of strings and nulls."""
        start, self.rows = self.rows, self.rows + len(cells)
        if _cast(cells, pa.float64()) is not None:
            count = len(cells) - cells.null_count
            self.present, self.numbers = self.present + count, self.numbers + count
            self.numbers_with_comma += count
            if count:
                self.plain_dates = self.zoned_dates = False
            return
        clean = _without_missing(cells)
        codes, seen = pd.factorize(clean.to_pandas())
        counts = np.bincount(codes[codes >= 0], minlength=len(seen))
        texts = pd.Series(seen, dtype=object)
        is_number = _are_numbers(texts)
        self.present += int(counts.sum())
        self.numbers += int(counts[is_number].sum())
        self.truths += int(counts[texts.str.lower().isin(["true", "false"])].sum())
        if self.comma:
            self.numbers_with_comma += int(counts[_are_numbers(texts.str.replace(",", ".", n=1))].sum())
        if self.first_other is None and not is_number.all():
            row = int(np.append(~is_number, False)[codes].argmax())
            self.first_other = start + row, str(seen[codes[row]])
        self.plain_dates = self.plain_dates and _cast(clean, pa.timestamp("us")) is not None
        self.zoned_dates = self.zoned_dates and _cast(clean, pa.timestamp("us", "UTC")) is not None

    def kind(self) -> Kind:
        """Return what the column holds.

        Numbers if all cells are (or all are true and false), dates if all have the form of ISO 8601, else text. A
        column of which more than 95 % are numbers, but not all, is refused.
        """
        if self.present in (self.numbers, self.truths) or (self.comma and self.present == self.numbers_with_comma):
            return "number"
        if self.first_other is not None and self.present - self.numbers < (1 - _MOSTLY) * self.present:
            _refuse_cell(self.where, *self.first_other)
        return "date" if self.plain_dates or self.zoned_dates else "text"


def convert_cells(cells: Any, where: str, *, kind: Kind | None = None, start: int = 0, comma: bool = False) -> Any:
    """Return a column of cells of text as numbers, dates or text.

    Parameters
    ----------
    cells
        Strings and nulls, a pyarrow array.
    where
        Name of the file and the column, for errors.
    kind
        What they are; None decides by these cells, which must be the whole column then.
    start
        Number of rows before the first cell, for errors.
    comma
        Whether a decimal comma is possible.
    """
    if kind in (None, "number"):
        numbers = _cast(cells, pa.float64())
        if numbers is not None:
            return numbers
    if kind is None:
        counts = CellCounts(where, comma)
        counts.add(cells)
        kind = counts.kind()
    clean = _without_missing(cells)
    if kind == "text":
        return clean.to_pandas()
    return _dates(clean, where, start) if kind == "date" else _numbers(clean.to_pandas(), where, start, comma=comma)


def _cast(cells: Any, kind: Any) -> NDArray[Any] | None:
    """Return cells as an array if every one of them can be read so."""
    try:
        # A column of words shows at once, and a cast that fails in every cell is slow.
        pc.cast(cells.slice(0, 100), kind)
        values: NDArray[Any] = pc.cast(cells, kind).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return values


def _without_missing(cells: Any) -> Any:
    """Return cells without the spaces around them, and null where they say that there is no value."""
    cells = pa.chunked_array(cells)
    trimmed = pc.utf8_trim_whitespace(cells)
    missing = pc.is_in(trimmed, value_set=pa.array(MISSING, cells.type))
    return pc.if_else(missing, pa.scalar(None, cells.type), trimmed)


def _are_numbers(texts: pd.Series[Any]) -> NDArray[np.bool_]:
    return pd.to_numeric(texts, errors="coerce").notna().to_numpy()


def _numbers(text: pd.Series[Any], where: str, start: int, *, comma: bool) -> NDArray[np.float64]:
    present = text.notna().to_numpy()
    values = _parsed(text)
    if comma and np.isnan(values[present]).any():
        with_point = _parsed(text.str.replace(",", ".", n=1))
        if not np.isnan(with_point[present]).any():
            warnings.warn(
                f"{where} has numbers with a decimal comma, read as such; write a point if the comma separates "
                "thousands.",
                MomentAlignWarning,
                stacklevel=2,
            )
            return with_point
    wrong = np.isnan(values) & present
    if wrong.any():
        row = int(wrong.argmax())
        _refuse_cell(where, start + row, str(text.iloc[row]))
    return values


def _parsed(text: pd.Series[Any]) -> NDArray[np.float64]:
    """Return cells as numbers, true and false as 1 and 0 where there is nothing else; NaN for what is neither."""
    codes, seen = pd.factorize(text)
    texts = pd.Series(seen, dtype=object)
    truths = texts.str.lower().map({"true": 1.0, "false": 0.0})
    values = pd.to_numeric(texts, errors="coerce") if truths.isna().any() else truths
    # A missing cell has the code -1, which is the last entry.
    return np.append(values.to_numpy(dtype=np.float64), np.nan)[codes]


def _refuse_cell(where: str, row: int, cell: str) -> None:
    raise InvalidInputError(
        f"{where}, row {row + 1} holds {cell!r:.40} in a column of numbers; write a number there or leave the cell "
        "empty."
    )


def _dates(clean: Any, where: str, start: int) -> pd.Series[Any]:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        dates = _cast(clean, kind)
        if dates is not None:
            return pd.Series(dates)
    cells = clean.combine_chunks()
    bad = next(row for row in range(len(cells)) if not _is_date(cells.slice(row, 1)))
    raise InvalidInputError(
        f"{where}, row {start + bad + 1} holds {cells[bad].as_py()!r:.40} in a column of dates; write it as 2019-12-31 "
        "or 2019-12-31T23:59:00."
    )


def _is_date(cell: Any) -> bool:
    return any(_cast(cell, kind) is not None for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")))

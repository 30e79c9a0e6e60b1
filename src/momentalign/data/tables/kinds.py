"""What a column holds: numbers, dates or text, decided by all its cells."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.data.tables.libraries import need
from momentalign.errors import InvalidInputError, MomentAlignWarning

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KINDS", "MISSING", "Kind", "convert_cells", "kind_of"]

Kind: TypeAlias = Literal["number", "date", "text"]
KINDS: tuple[Kind, ...] = ("number", "date", "text")

# Cells that say that there is no value.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "?", "-", "#N/A", "<NA>", "NaT")
# A column with more numbers than this share is one of numbers, and its other cells are mistakes.
_MOSTLY = 0.95


def kind_of(column: pd.Series[Any]) -> Kind:
    """Return what a column of a DataFrame holds.

    Examples
    --------
    >>> import pandas as pd
    >>> [kind_of(pd.Series(cells)) for cells in ([1.5, None], [True, False], ["a", None])]
    ['number', 'number', 'text']
    """
    from pandas.api import types

    if types.is_bool_dtype(column.dtype) or types.is_numeric_dtype(column.dtype):
        return "number"
    return "date" if types.is_datetime64_any_dtype(column.dtype) else "text"


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

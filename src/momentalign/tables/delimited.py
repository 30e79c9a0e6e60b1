"""CSV and TSV: encoding and delimiter are found out, cells are read as text and converted column by column.

What a column holds is decided by all of its cells. A file may be read part by part; then :class:`CellCounts` first
counts what the cells can be read as and decides when it has seen all of them: the size of the parts changes nothing.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.tables.opening import one_line, open_bytes
from momentalign.tables.table import Kind, Request, Table, quoted, split_frame

__all__ = ["BLOCK", "MISSING", "CellCounts", "convert_cells", "read_delimited", "regroup"]

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "?", "-", "#N/A", "<NA>", "NaT")
"""Cells that say that there is no value."""
# A column with more numbers than this share is one of numbers, and its other cells are mistakes.
_MOSTLY = 0.95

_DELIMITERS = ",;\t|"
_SCANNED = 2**20
BLOCK = 8 * 2**20
"""Bytes that are parsed at a time; a row must fit into them, and no honest row is longer."""
# Rows that are counted at a time where the kinds of columns are to be found.
_COUNTED = 2**16
# Dates without and with a time zone.
_PLAIN, _ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
_PATIENCE = 10.0  # seconds
# UTF-32 before UTF-16: its mark begins with the other's.
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Latin-1 has control characters here, Windows-1252 the euro sign and typographic quotes.
_WINDOWS = re.compile(rb"[\x80-\x9f]")


@dataclass(frozen=True)
class _Format:
    """How a file of delimited text is written, and the names of its columns as its first row has them."""

    path: Path
    encoding: str
    delimiter: str
    header: list[str]

    @property
    def comma(self) -> bool:
        """Whether numbers may have a decimal comma."""
        return self.delimiter != ","

    def where(self, name: str) -> str:
        """What messages call a column."""
        return f"{self.path}: column {name!r}"


def read_delimited(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of a file of delimited text in order; the first row names the columns."""
    form = _find_format(path)
    in_header = {_clean(name): name for name in reversed(form.header)}
    request = request.resolve([_clean(name) for name in form.header if _clean(name)], path)
    columns = {name: in_header[name] for name in request.wanted}
    kinds = {name: request.kind(name) for name in columns}
    if request.rows is not None:
        kinds |= _find_kinds(form, {name: columns[name] for name, kind in kinds.items() if kind is None})
    start, warned = 0, False
    for cells in regroup(_batches(form, list(columns.values())), request.rows):
        commas: list[str] | None = [] if form.comma else None
        converted = {
            name: convert_cells(column, form.where(name), kind=kinds[name], start=start, commas=commas)
            for name, column in zip(columns, cells.columns, strict=True)
        }
        if commas and not warned:
            warned, found = True, set(commas)
            _warn_of_commas(path, [name for name in columns if form.where(name) in found])
        yield split_frame(pd.DataFrame(converted, index=pd.RangeIndex(cells.num_rows), copy=False), request, start)
        start += cells.num_rows


def _warn_of_commas(path: Path, columns: list[str]) -> None:
    which = f"column {columns[0]!r} has" if len(columns) == 1 else f"columns {quoted(columns, 3)} have"
    warnings.warn(
        f"{path}: {which} numbers with a decimal comma, read as such; write a point if the comma separates thousands.",
        MomentAlignWarning,
        stacklevel=5,
    )


def _clean(name: str) -> str:
    """A name without spaces and marks of byte order around it."""
    return name.strip().lstrip("\ufeff").strip()


def _find_kinds(form: _Format, columns: Mapping[str, str]) -> dict[str, Kind]:
    """Return what some columns hold, by one reading of the whole file."""
    counts = {name: CellCounts(form.where(name), form.comma) for name in columns}
    for cells in regroup(_batches(form, list(columns.values())), _COUNTED) if columns else ():
        for count, column in zip(counts.values(), cells.columns, strict=True):
            count.add(column)
    return {name: count.kind() for name, count in counts.items()}


def _find_format(path: Path) -> _Format:
    """Return encoding, delimiter and names of a file, or say what is wrong with its text.

    A file without a mark at its start is UTF-8 if all its bytes are, else Windows-1252 or Latin-1. Every encoding
    other than UTF-8 is named in a warning.
    """
    head, encoding, quotes = _read_through(path)
    if not encoding.startswith("utf-8"):
        warnings.warn(
            f"{path} is not in UTF-8 and is read as {encoding}; save it as UTF-8 if letters come out wrong.",
            MomentAlignWarning,
            stacklevel=5,
        )
    delimiter = _find_delimiter(codecs.getincrementaldecoder(encoding)().decode(head[: 2**18])[: 2**16])
    form = _Format(path, encoding, delimiter, [])
    if quotes % 2 == 1:
        _refuse_open_quotes(form)
    return replace(form, header=_find_header(form))


def _blocks(path: Path) -> Iterator[bytes]:
    with open_bytes(path) as file:
        while block := file.read(_SCANNED):
            yield block


def _marked(head: bytes) -> str | None:
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    # Latin letters in UTF-16 have 0 in every second byte.
    even, odd = head[0:1000:2], head[1:1000:2]
    if odd.count(0) > 0.6 * len(odd) and 0 not in even:
        return "utf-16-le"
    if even.count(0) > 0.6 * len(even) and 0 not in odd:
        return "utf-16-be"
    return None


def _read_through(path: Path, encoding: str | None = None) -> tuple[bytes, str, int]:
    """Return the first block of a file, the encoding that all of it is in, and how many quotes it has."""
    blocks = _blocks(path)
    head = next(blocks, b"")
    encoding = encoding or _marked(head) or "utf-8"
    decoder, wide = codecs.getincrementaldecoder(encoding)(), encoding.startswith(("utf-16", "utf-32"))
    position = quotes = 0
    try:
        for block in chain([head], blocks):
            if not wide and (offset := block.find(0)) >= 0:
                raise InvalidInputError(
                    f"{path} holds a NUL byte at byte {position + offset}, which no table in text has; export it again."
                )
            decoder.decode(block)
            position += len(block)
            quotes += block.count(b'"')
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise InvalidInputError(
                f"{path} looks like a text in {encoding} but is not all of it; save it as UTF-8."
            ) from error
        return _read_through(path, "cp1252" if any(map(_WINDOWS.search, _blocks(path))) else "latin-1")
    return head, encoding, quotes


def _find_delimiter(sample: str) -> str:
    """Return the delimiter that splits most rows of a sample like its first one."""

    def agreement(delimiter: str) -> tuple[bool, float, int]:
        rows = [len(row) for row in csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter) if row]
        # The last row of the sample may be cut.
        rows = rows[:-1] if len(rows) > 2 else rows
        fields = rows[0] if rows else 0
        return fields > 1, rows.count(fields) / max(len(rows), 1), fields

    return max(_DELIMITERS, key=agreement)


@contextmanager
def _rows_of(form: _Format, *, strict: bool = False) -> Iterator[Any]:
    """Open a file as a reader of the csv module, for its first row and for what Arrow does not tell of others."""
    with open_bytes(form.path) as file:
        yield csv.reader(io.TextIOWrapper(file, form.encoding, newline=""), delimiter=form.delimiter, strict=strict)


def _find_header(form: _Format) -> list[str]:
    path = form.path
    try:
        with _rows_of(form) as rows:
            header: list[str] = next((row for row in rows if row), [])
    except csv.Error as error:  # A field of more letters than the csv module reads.
        raise InvalidInputError(
            f"{path} has a name of a column that is too long ({one_line(error)}); give a first row of names."
        ) from error
    header[:1] = [name.removeprefix("\ufeff") for name in header[:1]]  # as Arrow does
    if sum(map(len, header)) > BLOCK // 2:
        raise InvalidInputError(
            f"{path} has {len(header):,} columns, whose names are more than {BLOCK // 2**21} MB; give a table of fewer."
        )
    if not any(map(_clean, header)):
        raise InvalidInputError(f"{path} has no row of names; give a file whose first row names the columns.")
    if all(_is_number(name) for name in header):
        raise InvalidInputError(
            f"{path} has numbers ({quoted(header, 3)}) where the names of the columns should stand; add a first row "
            "of names."
        )
    nameless = [str(index + 1) for index, name in enumerate(header) if not _clean(name)]
    if nameless:
        warnings.warn(
            f"{path}: column {', '.join(nameless)} has no name and is left out; name it to keep it.",
            MomentAlignWarning,
            stacklevel=4,
        )
    return header


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _batches(form: _Format, columns: list[str]) -> Iterator[Any]:
    """Yield batches of cells as text, or say which row cannot be split."""
    ragged: list[Any] = []

    # Arrow calls this in a thread of its own, where coverage does not look.
    def remember(row: Any) -> str:  # pragma: no cover
        ragged.append(row)
        return "error"

    with open_bytes(form.path) as file:
        content, handler, reader = _Content(file), remember, None
        lent = weakref.ref(content), weakref.ref(handler)
        del remember
        try:
            reader = arrow_csv.open_csv(
                content,
                read_options=arrow_csv.ReadOptions(block_size=BLOCK, encoding=form.encoding),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=form.delimiter, newlines_in_values=True, invalid_row_handler=handler
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()),
                    include_columns=columns,
                    null_values=MISSING,
                    strings_can_be_null=True,
                ),
            )
            yield from reader
        except pa.ArrowInvalid as error:
            if "Empty CSV" not in str(error):
                _refuse_row(form, ragged, error)
        finally:
            del content, handler, reader
            _wait_until_gone(lent)


class _Content(io.RawIOBase):
    """The bytes of a file, for Arrow alone."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        """Say so; Arrow asks."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        return self._file.read(size)


def _wait_until_gone(lent: Iterable[weakref.ref[Any]]) -> None:
    """Wait until Arrow's threads hold none of these, as they may for a moment after an error or a reader that is left.

    A thread that asks for the interpreter while it shuts down would end the process with an abort.
    """
    deadline = time.monotonic() + _PATIENCE
    while any(reference() is not None for reference in lent) and time.monotonic() < deadline:
        time.sleep(0.001)


def _refuse_row(form: _Format, ragged: list[Any], error: Exception) -> None:
    """Say which row Arrow could not split; it does not always know the number of the row itself."""
    if not ragged:
        raise InvalidInputError(
            f"{form.path} has a row that cannot be split ({one_line(error)}); look for a quote that is never closed."
        ) from error
    row = ragged[0]
    number = 0
    with suppress(csv.Error), _rows_of(form) as rows:
        lengths = (len(fields) for fields in rows if fields)
        number = next((number for number, length in enumerate(lengths) if length == row.actual_columns), 0)
    raise InvalidInputError(
        f"{form.path}: row {number} has {row.actual_columns} fields where the first row names "
        f"{row.expected_columns} ({row.text!r:.60}); correct the row."
    ) from None


def _refuse_open_quotes(form: _Format) -> None:
    """Say on which line a quoted field is never closed; a quote inside a field without quotes does no harm."""
    line = 1
    with _rows_of(form, strict=True) as rows:
        try:
            for _ in rows:
                line = rows.line_num + 1
        except csv.Error:
            raise InvalidInputError(
                f"{form.path}: line {line} begins a row with a quote too few or too many; close the quoted field, and "
                "write a quote inside of it twice."
            ) from None


def regroup(batches: Iterable[Any], rows: int | None) -> Iterator[Any]:
    """Yield batches of Arrow as tables of `rows` rows, the last one of what is left; None yields one table of all.

    Examples
    --------
    >>> batches = [pa.record_batch({"x": [0, 1, 2]}), pa.record_batch({"x": [3, 4, 5, 6]})]
    >>> [table["x"].to_pylist() for table in regroup(batches, 3)]
    [[0, 1, 2], [3, 4, 5], [6]]
    """
    held: list[Any] = []
    count = 0
    for batch in batches:
        rest = batch
        while rows is not None and count + rest.num_rows >= rows:
            yield pa.Table.from_batches([*held, rest.slice(0, rows - count)])
            rest = rest.slice(rows - count)
            held, count = [], 0
        if rest.num_rows:
            held.append(rest)
            count += rest.num_rows
    if held:
        yield pa.Table.from_batches(held)


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
        self.plain_dates = self.plain_dates and _cast(clean, _PLAIN) is not None
        self.zoned_dates = self.zoned_dates and _cast(clean, _ZONED) is not None

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


def convert_cells(
    cells: Any, where: str, *, kind: Kind | None = None, start: int = 0, commas: list[str] | None = None
) -> Any:
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
    commas
        Where a decimal comma is possible, a list; `where` is appended if there is one.
    """
    if kind in (None, "number"):
        numbers = _cast(cells, pa.float64())
        if numbers is not None:
            return numbers
    if kind is None:
        counts = CellCounts(where, commas is not None)
        counts.add(cells)
        kind = counts.kind()
    clean = _without_missing(cells)
    if kind == "text":
        return clean.to_pandas()
    return _dates(clean, where, start) if kind == "date" else _numbers(clean.to_pandas(), where, start, commas)


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


def _numbers(text: pd.Series[Any], where: str, start: int, commas: list[str] | None) -> NDArray[np.float64]:
    present = text.notna().to_numpy()
    values = _parsed(text)
    if commas is not None and np.isnan(values[present]).any():
        with_point = _parsed(text.str.replace(",", ".", n=1))
        if not np.isnan(with_point[present]).any():
            commas.append(where)
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
    for kind in (_PLAIN, _ZONED):
        dates = _cast(clean, kind)
        if dates is not None:
            return pd.Series(dates)
    cells = clean.combine_chunks()
    single = (cells.slice(row, 1) for row in range(len(cells)))
    bad = next(row for row, cell in enumerate(single) if _cast(cell, _PLAIN) is None and _cast(cell, _ZONED) is None)
    raise InvalidInputError(
        f"{where}, row {start + bad + 1} holds {cells[bad].as_py()!r:.40} in a column of dates; write it as 2019-12-31 "
        "or 2019-12-31T23:59:00."
    )

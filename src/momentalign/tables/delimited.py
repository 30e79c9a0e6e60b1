"""CSV and TSV: encoding and delimiter are found out, cells are read as text and converted column by column."""

from __future__ import annotations

import codecs
import csv
import io
import re
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv

from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.tables.cells import MISSING, CellCounts, convert_cells
from momentalign.tables.encoders import Kind
from momentalign.tables.opening import one_line, open_bytes, reading
from momentalign.tables.parquet import regroup
from momentalign.tables.table import Request, Table, quoted, split_frame

__all__ = ["read_delimited"]

_DELIMITERS = ",;\t|"
_SCANNED = 2**20
# A row must fit into a block; no honest row is longer.
_BLOCK = 8 * 2**20
# Rows that are counted at a time where the kinds of columns are to be found.
_COUNTED = 2**16
_PATIENCE = 10.0  # seconds
# UTF-32 before UTF-16: its mark begins with the other's.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
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


def read_delimited(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of a file of delimited text in order; the first row names the columns."""
    form = _find_format(path)
    in_header = {name.strip(): name for name in reversed(form.header)}
    request = request.resolve([name.strip() for name in form.header if name.strip()], path)
    wanted = list(request.columns or ())
    columns = [in_header[name] for name in wanted]
    kinds = {name: request.kind(name) for name in wanted}
    unknown = [name for name, kind in kinds.items() if kind is None]
    if request.rows is not None and unknown:
        kinds |= _find_kinds(form, {name: in_header[name] for name in unknown})
    start = 0
    for cells in regroup(_batches(form, columns), request.rows):
        frame = pd.DataFrame(
            {
                name: convert_cells(
                    cells.column(index), _where(path, name), kind=kinds[name], start=start, comma=form.comma
                )
                for index, name in enumerate(wanted)
            },
            index=pd.RangeIndex(cells.num_rows),
            copy=False,
        )
        yield split_frame(frame, request, start)
        start += len(frame)


def _where(path: Path, name: str) -> str:
    return f"{path}: column {name!r}"


def _find_kinds(form: _Format, columns: Mapping[str, str]) -> dict[str, Kind]:
    """Return what some columns hold, by one reading of the whole file."""
    counts = [CellCounts(_where(form.path, name), form.comma) for name in columns]
    for cells in regroup(_batches(form, list(columns.values())), _COUNTED):
        for index, count in enumerate(counts):
            count.add(cells.column(index))
    return {name: count.kind() for name, count in zip(columns, counts, strict=True)}


def _find_format(path: Path) -> _Format:
    """Return encoding, delimiter and names of a file, or say what is wrong with its text.

    A file without a mark at its start is UTF-8 if all its bytes are, else Windows-1252 or Latin-1. Every encoding
    other than UTF-8 is named in a warning.
    """
    with reading(path):
        head = next(_blocks(path), b"")
        encoding = _marked(head) or "utf-8"
        valid, quotes = _read_through(path, encoding)
        if not valid and encoding == "utf-8":
            encoding = "cp1252" if any(map(_WINDOWS.search, _blocks(path))) else "latin-1"
            valid, _ = _read_through(path, encoding)
    if not valid:
        raise InvalidInputError(f"{path} looks like a text in {encoding} but is not all of it; save it as UTF-8.")
    if not encoding.startswith("utf-8"):
        warnings.warn(
            f"{path} is not in UTF-8 and is read as {encoding}; save it as UTF-8 if letters come out wrong.",
            MomentAlignWarning,
            stacklevel=3,
        )
    sample = codecs.getincrementaldecoder(encoding)().decode(head).removeprefix("\ufeff")
    delimiter = _find_delimiter(sample)
    if quotes % 2 == 1:
        _refuse_open_quotes(_Format(path, encoding, delimiter, []))
    return _Format(path, encoding, delimiter, _find_header(path, sample, delimiter))


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


def _read_through(path: Path, encoding: str) -> tuple[bool, int]:
    """Return whether all of a file is in an encoding, and how many quotes it has."""
    decoder = codecs.getincrementaldecoder(encoding)()
    position = quotes = 0
    try:
        for block in _blocks(path):
            if not encoding.startswith(("utf-16", "utf-32")) and (offset := block.find(0)) >= 0:
                raise InvalidInputError(
                    f"{path} holds a NUL byte at byte {position + offset}, which no table in text has; export it again."
                )
            decoder.decode(block)
            position += len(block)
            quotes += block.count(b'"')
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False, 0
    return True, quotes


def _find_delimiter(sample: str) -> str:
    """Return the delimiter that splits most rows of a sample like its first one."""
    lines = sample[: 2**16]

    def agreement(delimiter: str) -> tuple[bool, float, int]:
        rows = [len(row) for row in csv.reader(io.StringIO(lines, newline=""), delimiter=delimiter) if row]
        # The last row of the sample may be cut.
        rows = rows[:-1] if len(rows) > 2 else rows
        fields = rows[0] if rows else 0
        return fields > 1, rows.count(fields) / max(len(rows), 1), fields

    return max(_DELIMITERS, key=agreement)


def _find_header(path: Path, sample: str, delimiter: str) -> list[str]:
    rows = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    header = next((row for row in rows if row), [])
    if not any(name.strip() for name in header):
        raise InvalidInputError(f"{path} has no row of names; give a file whose first row names the columns.")
    if all(_is_number(name) for name in header):
        raise InvalidInputError(
            f"{path} has numbers ({quoted(header, 3)}) where the names of the columns should stand; add a first row "
            "of names."
        )
    nameless = [str(index + 1) for index, name in enumerate(header) if not name.strip()]
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

    encoding = "utf-8" if form.encoding == "utf-8-sig" else form.encoding
    with reading(form.path), open_bytes(form.path) as file:
        content, handler, reader = _Content(file), remember, None
        lent = weakref.ref(content), weakref.ref(handler)
        del remember
        try:
            reader = arrow_csv.open_csv(
                content,
                read_options=arrow_csv.ReadOptions(block_size=_BLOCK, encoding=encoding),
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
    with open_bytes(form.path) as file:
        rows = csv.reader(io.TextIOWrapper(file, form.encoding, newline=""), delimiter=form.delimiter)
        lengths = (len(fields) for fields in rows if fields)
        number = next((number for number, length in enumerate(lengths) if length == row.actual_columns), 0)
    raise InvalidInputError(
        f"{form.path}: row {number} has {row.actual_columns} fields where the first row names "
        f"{row.expected_columns} ({row.text!r:.60}); correct the row."
    ) from None


def _refuse_open_quotes(form: _Format) -> None:
    """Say on which line a quoted field is never closed; a quote inside a field without quotes does no harm."""
    with open_bytes(form.path) as file:
        rows = csv.reader(io.TextIOWrapper(file, form.encoding, newline=""), delimiter=form.delimiter, strict=True)
        line = 1
        try:
            for _ in rows:
                line = rows.line_num + 1
        except csv.Error:
            raise InvalidInputError(
                f"{form.path}: line {line} begins a row with a quote too few or too many; close the quoted field, and "
                "write a quote inside of it twice."
            ) from None

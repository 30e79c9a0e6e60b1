"""CSV and TSV: delimiter, encoding and compression found out, cells read as text and converted column by column.

Cells are converted by all of their column, or by the kind the caller names, so a chunk is read as the whole would be.

The encoding of a text file, found by one reading of its bytes; nothing is guessed from a part of it.

Parquet, read by row groups so that a file larger than memory can be streamed.

Batches of Arrow as a file yields them, regrouped to the number of rows that was asked for.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from momentalign.errors import DamagedFileError, InvalidInputError, MomentAlignWarning
from momentalign.tables.encoders import MISSING, Kind, convert_cells, kind_of
from momentalign.tables.opening import need, open_bytes, reading, said
from momentalign.tables.table import Request, Table, quoted, split_frame

__all__ = ["Scan", "read_delimited", "read_parquet", "regroup", "scan_text"]

_BLOCK = 2**20
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


class Scan(NamedTuple):
    """What one reading of a text file found."""

    encoding: str
    sample: str
    odd_quotes: bool


def scan_text(path: Path) -> Scan:
    """Return the encoding of a file, its first megabyte as text, and whether its quotes fail to pair up.

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
            stacklevel=2,
        )
    return Scan(encoding, codecs.getincrementaldecoder(encoding)().decode(head), odd_quotes=quotes % 2 == 1)


def _blocks(path: Path) -> Iterator[bytes]:
    with open_bytes(path) as file:
        while block := file.read(_BLOCK):
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
    place = quotes = 0
    try:
        for block in _blocks(path):
            if not encoding.startswith(("utf-16", "utf-32")) and (offset := block.find(0)) >= 0:
                raise InvalidInputError(
                    f"{path} holds a NUL byte at byte {place + offset}, which no table in text has; export it again."
                )
            decoder.decode(block)
            place += len(block)
            quotes += block.count(b'"')
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False, 0
    return True, quotes


def regroup(batches: Iterable[Any], rows: int | None) -> Iterator[Any]:
    """Yield tables of `rows` rows, the last one of what is left; None yields a single table of all.

    Examples
    --------
    >>> import pyarrow as pa
    >>> batches = [pa.record_batch({"x": [0, 1, 2]}), pa.record_batch({"x": [3, 4, 5, 6]})]
    >>> [table["x"].to_pylist() for table in regroup(batches, 3)]
    [[0, 1, 2], [3, 4, 5], [6]]
    """
    pyarrow = need("pyarrow")
    held: list[Any] = []
    count = 0
    for batch in batches:
        rest = batch
        while rows is not None and count + rest.num_rows >= rows:
            yield pyarrow.Table.from_batches([*held, rest.slice(0, rows - count)])
            rest = rest.slice(rows - count)
            held, count = [], 0
        if rest.num_rows:
            held.append(rest)
            count += rest.num_rows
    if held:
        yield pyarrow.Table.from_batches(held)


_DELIMITERS = ",;\t|"
# A row must fit into a block; no honest row is longer.
_BLOCK_of_delimited = 8 * 2**20
_PATIENCE = 10.0  # seconds


def read_delimited(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of a file of delimited text in order; the first row names the columns."""
    import pandas as pd

    scan = scan_text(path)
    delimiter = _find_delimiter(scan.sample)
    if scan.odd_quotes:
        _refuse_open_quotes(path, scan, delimiter)
    header = _read_header(path, scan.sample, delimiter)
    names = [name.strip() for name in header]
    wanted = request.choose([name for name in names if name], path)
    places = {name: header[names.index(name)] for name in wanted}
    kinds: dict[str, Kind | None] = {name: request.kind(name) for name in wanted}
    start = 0
    for cells in regroup(_batches(path, scan, delimiter, list(places.values())), request.rows):
        columns = {
            name: convert_cells(
                cells[place], f"{path}: column {name!r}", kind=kinds[name], start=start, comma=delimiter != ","
            )
            for name, place in places.items()
        }
        frame = pd.DataFrame(columns, index=pd.RangeIndex(cells.num_rows), copy=False)
        # What the first chunk shows holds for the ones after it.
        kinds = {name: kind or kind_of(frame[name]) for name, kind in kinds.items()}
        yield split_frame(frame, request, start)
        start += len(frame)


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


def _read_header(path: Path, sample: str, delimiter: str) -> list[str]:
    rows = csv.reader(io.StringIO(sample.removeprefix("\ufeff"), newline=""), delimiter=delimiter)
    header = next((row for row in rows if row), [])
    if not any(name.strip() for name in header):
        raise InvalidInputError(f"{path} has no row of names; give a file whose first row names the columns.")
    if all(_is_number(name) for name in header):
        raise InvalidInputError(
            f"{path} has numbers ({quoted(header, 3)}) where the names of the columns should stand; add a first row "
            "of names."
        )
    nameless = [str(place + 1) for place, name in enumerate(header) if not name.strip()]
    if nameless:
        warnings.warn(
            f"{path}: column {', '.join(nameless)} has no name and is left out; name it to keep it.",
            MomentAlignWarning,
            stacklevel=3,
        )
    return header


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _batches(path: Path, scan: Scan, delimiter: str, names: list[str]) -> Iterator[Any]:
    """Yield batches of cells as text, or say which row cannot be split."""
    pyarrow, arrow_csv = need("pyarrow"), need("pyarrow.csv")
    ragged: list[Any] = []

    # Arrow calls this in a thread of its own, where coverage does not look.
    def remember(row: Any) -> str:  # pragma: no cover
        ragged.append(row)
        return "error"

    encoding = "utf-8" if scan.encoding == "utf-8-sig" else scan.encoding
    with reading(path), open_bytes(path) as file:
        content, handler, reader = _Content(file), remember, None
        lent = weakref.ref(content), weakref.ref(handler)
        del remember
        try:
            reader = arrow_csv.open_csv(
                content,
                read_options=arrow_csv.ReadOptions(block_size=_BLOCK_of_delimited, encoding=encoding),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=True, invalid_row_handler=handler
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pyarrow.string()),
                    include_columns=names,
                    null_values=MISSING,
                    strings_can_be_null=True,
                ),
            )
            yield from reader
        except pyarrow.ArrowInvalid as error:
            _refuse_ragged(path, ragged, error, scan, delimiter)
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


def _refuse_ragged(path: Path, ragged: list[Any], error: Exception, scan: Scan, delimiter: str) -> None:
    if "Empty CSV" in str(error):
        return
    if not ragged:
        raise InvalidInputError(
            f"{path} has a row that cannot be split ({said(error)}); look for a quote that is never closed."
        ) from error
    row = ragged[0]
    number = _first_ragged(path, scan, delimiter, row)
    raise InvalidInputError(
        f"{path}: row {number} has {row.actual_columns} fields where the first row names "
        f"{row.expected_columns} ({row.text!r:.60}); correct the row."
    ) from None


def _first_ragged(path: Path, scan: Scan, delimiter: str, row: Any) -> int:
    """The number of a row that Arrow could not split; it does not always know it itself."""
    with open_bytes(path) as file:
        rows = csv.reader(io.TextIOWrapper(file, scan.encoding, newline=""), delimiter=delimiter)
        lengths = (len(fields) for fields in rows if fields)
        return next((place for place, length in enumerate(lengths) if length == row.actual_columns), 0)


def _refuse_open_quotes(path: Path, scan: Scan, delimiter: str) -> None:
    """Say in which row a quoted field is never closed; a quote inside a field without quotes does no harm."""
    with open_bytes(path) as file:
        rows = csv.reader(io.TextIOWrapper(file, scan.encoding, newline=""), delimiter=delimiter, strict=True)
        line = 1
        try:
            for _ in rows:
                line = rows.line_num + 1
        except csv.Error:
            raise InvalidInputError(
                f"{path}: line {line} begins a row with a quote too few or too many; close the quoted field, and write "
                "a quote inside of it twice."
            ) from None


# pandas stores the index of a filtered frame under such names; it is no column of the user.
_INDEX = re.compile(r"__index_level_\d+__")
_DEFAULT_ROWS = 2**16


def read_parquet(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of a Parquet file in order."""
    pyarrow = need("pyarrow")
    start = 0
    try:
        # Reading ahead would hold memory in proportion to the file.
        with reading(path), need("pyarrow.parquet").ParquetFile(path, pre_buffer=False) as file:
            schema = file.schema_arrow
            names = request.choose([name for name in schema.names if not _INDEX.fullmatch(name)], path)
            for name in names:
                _refuse_type(path, name, schema.field(name).type)
            batches = file.iter_batches(batch_size=request.rows or _DEFAULT_ROWS, columns=names)
            for table in regroup(batches, request.rows):
                yield split_frame(_to_frame(path, table, request, start), request, start)
                start += table.num_rows
    except pyarrow.ArrowInvalid as error:
        raise DamagedFileError(f"{path} is not a whole Parquet file ({said(error)}); get the file again.") from error


def _refuse_type(path: Path, name: str, kind: Any) -> None:
    types = need("pyarrow").types
    value = kind.value_type if types.is_dictionary(kind) else kind
    tests = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_decimal,
        types.is_null,
        types.is_date,
        types.is_timestamp,
        _is_text,
    )
    if not any(test(value) for test in tests):
        raise InvalidInputError(
            f"{path}: column {name!r} is of type {kind}, which is no number, date or text; remove or convert it."
        )


def _is_text(kind: Any) -> bool:
    types = need("pyarrow").types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _to_frame(path: Path, table: Any, request: Request, start: int) -> Any:
    """Return Arrow columns as a DataFrame; numbers are not copied where their memory can be shared."""
    pyarrow, compute = need("pyarrow"), need("pyarrow.compute")
    types = pyarrow.types
    converted: dict[str, Any] = {}
    for place, name in enumerate(table.column_names):
        column, kind = table.column(place), table.schema.field(place).type
        if types.is_dictionary(kind):
            kind = kind.value_type
            column = compute.cast(column, kind)
        if types.is_decimal(kind) or types.is_null(kind):
            column = compute.cast(column, pyarrow.float64())
        elif types.is_timestamp(kind):
            column = compute.cast(column, pyarrow.timestamp("us"), safe=False)
        wanted = request.kinds.get(name)
        if wanted == "text" and not _is_text(kind):
            column = compute.cast(column, pyarrow.string())
        elif wanted in ("number", "date") and _is_text(kind):
            converted[name] = convert_cells(column, f"{path}: column {name!r}", kind=wanted, start=start)
        table = table.set_column(place, name, column)
    frame = table.to_pandas(split_blocks=True, date_as_object=False, ignore_metadata=True)
    return frame.assign(**converted) if converted else frame

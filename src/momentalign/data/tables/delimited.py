"""CSV and TSV: delimiter, encoding and compression found out, cells read as text and converted column by column.

Cells are converted by all of their column, or by the kind the caller names, so a chunk is read as the whole would be.
"""

from __future__ import annotations

import csv
import io
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from momentalign.data.tables.batches import regroup
from momentalign.data.tables.encoding import Scan, scan_text
from momentalign.data.tables.kinds import MISSING, Kind, convert_cells, kind_of
from momentalign.data.tables.libraries import need
from momentalign.data.tables.opening import open_bytes, reading, said
from momentalign.data.tables.table import Request, Table, quoted, split_frame
from momentalign.errors import InvalidInputError, MomentAlignWarning

__all__ = ["read_delimited"]

_DELIMITERS = ",;\t|"
# A row must fit into a block; no honest row is longer.
_BLOCK = 8 * 2**20
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
                read_options=arrow_csv.ReadOptions(block_size=_BLOCK, encoding=encoding),
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

"""Where predictions go: CSV, TSV or Parquet, part by part, to a file that appears whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from momentalign.data.tables.libraries import need
from momentalign.errors import InvalidInputError, MomentAlignError
from momentalign.files import whole_file

__all__ = ["Write", "open_output"]

Write = Callable[[Any], None]
"""Takes the next rows as an Arrow table."""
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


@contextmanager
def open_output(path: Path | None) -> Iterator[Write]:
    """Yield a function that writes Arrow tables to a file by the suffix of its name, or as CSV to standard output.

    The file gets its name when all is written; on any error nothing is left of it.
    """
    if path is None:
        with _tables(sys.stdout.buffer, ".csv") as write:
            yield write
        sys.stdout.buffer.flush()
        return
    suffix = path.suffix.lower() or ".csv"
    if suffix not in (*_DELIMITERS, ".parquet"):
        raise InvalidInputError(f"out={str(path)!r} must end in .csv, .tsv or .parquet.")
    if path.is_dir():
        raise InvalidInputError(f"out={str(path)!r} is a folder; name a file in it.")
    with _saying(path), whole_file(path) as file, _tables(file, suffix) as write:
        yield write


@contextmanager
def _tables(file: IO[bytes], suffix: str) -> Iterator[Write]:
    writer: Any = None

    def write(table: Any) -> None:
        nonlocal writer
        if writer is None:
            writer = _writer(file, suffix, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _writer(file: IO[bytes], suffix: str, schema: Any) -> Any:
    if suffix == ".parquet":
        return need("pyarrow.parquet").ParquetWriter(file, schema)
    csv = need("pyarrow.csv")
    return csv.CSVWriter(file, schema, write_options=csv.WriteOptions(delimiter=_DELIMITERS[suffix]))


@contextmanager
def _saying(path: Path) -> Iterator[None]:
    """Turn what the system says about a file into one sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, MomentAlignError):
            raise
        raise InvalidInputError(
            f"{path} cannot be written ({error.strerror or error}); give a place with room in a folder that can be."
        ) from error

"""Parquet, read by row groups so that a file larger than memory can be streamed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.tables.delimited import convert_cells, regroup
from momentalign.tables.opening import one_line, reading
from momentalign.tables.table import Request, Table, split_frame

__all__ = ["read_parquet"]

# pandas stores the index of a filtered frame under such names; it is no column of the user.
_INDEX = re.compile(r"__index_level_\d+__")
_BATCH = 2**16


def read_parquet(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of a Parquet file in order."""
    start = 0
    try:
        # Reading ahead would hold memory in proportion to the file.
        with reading(path), pq.ParquetFile(path, pre_buffer=False) as file:
            schema = file.schema_arrow
            request = request.resolve([name for name in schema.names if not _INDEX.fullmatch(name)], path)
            names = list(request.columns or ())
            for name in names:
                _refuse_type(path, name, schema.field(name).type)
            batches = file.iter_batches(batch_size=request.rows or _BATCH, columns=names)
            for table in regroup(batches, request.rows):
                yield split_frame(_to_frame(path, table.select(names), request, start), request, start)
                start += table.num_rows
    except pa.ArrowInvalid as error:
        raise DamagedFileError(
            f"{path} is not a whole Parquet file ({one_line(error)}); get the file again."
        ) from error


def _refuse_type(path: Path, name: str, kind: Any) -> None:
    types = pa.types
    value = kind.value_type if types.is_dictionary(kind) else kind
    tests = (
        types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null, types.is_date,
        types.is_timestamp, _is_text,
    )  # fmt: skip
    if not any(test(value) for test in tests):
        raise InvalidInputError(
            f"{path}: column {name!r} is of type {kind}, which is no number, date or text; remove or convert it."
        )


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _to_frame(path: Path, table: Any, request: Request, start: int) -> pd.DataFrame:
    """Return Arrow columns as a DataFrame; numbers are not copied where their memory can be shared."""
    columns, converted = {}, {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind, wanted = column.type, request.kinds.get(name)
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
            column = pc.cast(column, kind)
        if wanted == "text" and not _is_text(kind):
            kind = pa.string()
        elif pa.types.is_decimal(kind) or pa.types.is_null(kind):
            kind = pa.float64()
        elif pa.types.is_timestamp(kind):
            kind = pa.timestamp("us")
        elif wanted in ("number", "date") and _is_text(kind):
            converted[name] = convert_cells(column, f"{path}: column {name!r}", kind=wanted, start=start)
        columns[name] = column if column.type == kind else pc.cast(column, kind, safe=not pa.types.is_timestamp(kind))
    frame: pd.DataFrame = pa.table(columns).to_pandas(split_blocks=True, date_as_object=False, ignore_metadata=True)
    return frame.assign(**converted) if converted else frame

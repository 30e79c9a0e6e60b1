"""Parquet, read by row groups so that a file larger than memory can be streamed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from momentalign.data.tables.batches import regroup
from momentalign.data.tables.kinds import convert_cells
from momentalign.data.tables.libraries import need
from momentalign.data.tables.opening import reading, said
from momentalign.data.tables.table import Request, Table, split_frame
from momentalign.errors import DamagedFileError, InvalidInputError

__all__ = ["read_parquet"]

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

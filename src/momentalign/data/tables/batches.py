"""Batches of Arrow as a file yields them, regrouped to the number of rows that was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from momentalign.data.tables.libraries import need

__all__ = ["regroup"]


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

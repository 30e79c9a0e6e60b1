"""Moments of Dask arrays and data frames: one task for each block of rows, then a tree of merges.

Blocks never meet: each becomes moments where it lies, and moments, whose size does not depend on the rows, are what is
sent on. Imported where Dask is there, since data of its types are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from momentalign.errors import InvalidInputError, InvalidTypeError

if TYPE_CHECKING:
    from momentalign.moments.running import Moments

__all__ = ["tree_moments"]

# Moments that one task merges.
SPLIT_EVERY = 8
# Bytes of a block that is put together from blocks of columns.
_BLOCK_BYTES = 2**25


def tree_moments(data: Any, empty: Moments, name: str) -> Moments:
    """Return the moments of all rows of a Dask array or data frame, by whichever scheduler is in charge.

    `empty` are moments without rows, of the order and cross that are asked for.

    Examples
    --------
    >>> import dask.array
    >>> from momentalign.moments.running import Moments
    >>> tree_moments(dask.array.ones((10, 2), chunks=(3, 2)), Moments(order=2), "data")
    Moments(order=2, cross=1) of 10 rows, 2 features
    """
    from dask.delayed import delayed

    parts = [delayed(_block_moments)(block, empty, name) for block in _row_blocks(data, name)]
    while len(parts) > 1:
        groups = [parts[first : first + SPLIT_EVERY] for first in range(0, len(parts), SPLIT_EVERY)]
        parts = [delayed(_merged)(group) for group in groups]
    found: Moments = parts[0].compute()
    return found


def _block_moments(block: Any, empty: Moments, name: str) -> Moments:
    found = empty.copy()
    found._update(block, None, name)
    return found


def _merged(parts: list[Moments]) -> Moments:
    found = parts[0].copy()
    for part in parts[1:]:
        found.merge(part)
    return found


def _row_blocks(data: Any, name: str) -> list[Any]:
    """The blocks of rows, each a promise of a matrix with all columns."""
    if getattr(data, "ndim", 0) != 2 or not hasattr(data, "to_delayed"):
        raise InvalidTypeError(
            f"{name} must be a Dask array or data frame of two dimensions, got {type(data).__name__}; make one of it."
        )
    if not hasattr(data, "numblocks"):  # a data frame, which is cut along rows alone
        return list(data.to_delayed())
    whole = data if data.numblocks[1] == 1 else _with_whole_rows(data, name)
    return list(whole.to_delayed()[:, 0])


def _with_whole_rows(data: Any, name: str) -> Any:
    if any(math.isnan(size) for sizes in data.chunks for size in sizes):
        raise InvalidInputError(
            f"the columns of {name} lie in {data.numblocks[1]} blocks of unknown sizes; call compute_chunk_sizes() "
            "first, or make the array with all columns in one block."
        )
    return data.rechunk({0: "auto", 1: -1}, block_size_limit=_BLOCK_BYTES)

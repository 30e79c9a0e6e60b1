"""A checksum of rows that arrive in chunks: it tells other rows, or the same in another order, from the first."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.networks.shallow import Matrix

__all__ = ["Checksum"]


class Checksum:
    """CRC-32 of all rows and labels in their order, the same however they are cut into chunks.

    The code is that of Peterson and Brown (Cyclic codes for error detection, Proceedings of the IRE 49, 1961); other
    rows have the same one by a chance of 2^-32. It is no protection against forgery.

    Examples
    --------
    >>> rows, labels = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    >>> sums = [Checksum(), Checksum(), Checksum()]
    >>> sums[0].add(rows, labels)
    >>> for part in (slice(0, 1), slice(1, 3)):
    ...     sums[1].add(rows[part], labels[part])
    >>> sums[2].add(rows[::-1], labels)
    >>> sums[0] == sums[1], sums[0] == sums[2]
    (True, False)
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checksum) and self._sums == other._sums

    def add(self, rows: Matrix, labels: NDArray[Any] | None) -> None:
        """Take in the next rows, of the type of all others, and their labels."""
        for name, content in _contents(rows, labels).items():
            self._sums[name] = zlib.crc32(np.ascontiguousarray(content).data, self._sums.get(name, 0))


def _contents(rows: Matrix, labels: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """What stands in rows and labels, each part such that parts of consecutive chunks can be put end to end."""
    contents = _sparse_contents(rows) if sparse.issparse(rows) else {"rows": rows}
    if labels is not None:
        contents["labels"] = _label_content(labels)
    return contents


def _sparse_contents(rows: Any) -> dict[str, NDArray[Any]]:
    # Integers of one width: scipy chooses it by the size of a chunk.
    return {
        "values": rows.data[: rows.nnz],
        "columns": rows.indices[: rows.nnz].astype(np.int32, copy=False),
        "lengths": np.diff(rows.indptr).astype(np.int32, copy=False),
    }


def _label_content(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as bytes; the types numpy gives them differ from chunk to chunk, by the longest name or by a half."""
    if labels.dtype.kind in "biuf":
        return labels.astype(np.float64)
    return np.frombuffer("\0".join([*map(str, labels.tolist()), ""]).encode(errors="surrogatepass"), np.uint8)

"""The sparse text format of SVMlight and LIBSVM: ``label index:value index:value ...`` in each line.

Index j of the file is column j, whether the file counts from 0 or from 1: two domains, or two chunks of one file, then
never disagree by one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.data.tables.opening import open_bytes, reading
from momentalign.data.tables.table import Request, Table
from momentalign.errors import InvalidInputError

__all__ = ["read_svmlight"]

# The name under which the first field of a line is asked for.
LABEL = "label"


def read_svmlight(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of an svmlight file in order, CSR of float32; each part is as wide as its largest index asks."""
    if request.label not in (None, LABEL) or request.id_column is not None:
        raise InvalidInputError(
            f"{path} is an svmlight file, whose only named column is {LABEL!r}, got "
            f"{request.id_column or request.label!r}; ask for {LABEL!r} or for none."
        )
    start = 0
    with reading(path), open_bytes(path) as file:
        filled = ((number, line) for number, line in enumerate(file, start=1) if line.partition(b"#")[0].strip())
        while block := list(islice(filled, request.rows)):
            rows, labels = _parse(path, block)
            yield Table(rows, _tidy(labels) if request.label else None, start=start)
            start += len(block)


def _parse(path: Path, lines: list[tuple[int, bytes]]) -> tuple[sparse.csr_matrix, NDArray[np.float64]]:
    """Return numbered lines as rows and labels, or say which line is in the way."""
    try:
        return _load([line for _, line in lines])
    except (ValueError, OverflowError):
        number, line = next((number, line) for number, line in lines if not _is_row(line))
        raise InvalidInputError(
            f"{path}: line {number} is not of the form 'label index:value ...' with rising indices "
            f"({line[:40].decode(errors='replace').strip()!r}); correct it."
        ) from None


def _is_row(line: bytes) -> bool:
    try:
        _load([line])
    except (ValueError, OverflowError):
        return False
    return True


def _load(lines: list[bytes]) -> tuple[sparse.csr_matrix, NDArray[np.float64]]:
    from sklearn.datasets import load_svmlight_file

    rows, labels = load_svmlight_file(io.BytesIO(b"".join(lines)), dtype=np.float32, zero_based=True)
    if not np.isfinite(rows.data).all():
        raise ValueError("a value is not finite")
    return sparse.csr_matrix(rows), labels.astype(np.float64)


def _tidy(labels: NDArray[np.float64]) -> NDArray[Any]:
    """Whole numbers as such: the class 1, not 1.0."""
    whole = bool(np.isfinite(labels).all()) and bool((labels == np.round(labels)).all())
    return labels.astype(np.int64) if whole else labels

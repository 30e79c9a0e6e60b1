"""Files of matrices: npz and npy archives of numpy and scipy, and the sparse text format of SVMlight and LIBSVM.

Arrays of Python objects are pickles and are never read.
"""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.lib import format as numpy_format
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import DamagedFileError, InvalidInputError, MomentAlignError
from momentalign.tables.opening import one_line, open_bytes, reading
from momentalign.tables.table import Request, Table, quoted, split_frame

__all__ = ["read_archive", "read_svmlight"]

_SPARSE = {"format", "shape", "data"}
# Arrays of an archive that may hold the names of the columns.
_NAMES = ("columns", "feature_names")
# What libraries raise on damaged archives and headers; a header can also ask for more memory than there is.
_DAMAGES = (
    zipfile.BadZipFile, tokenize.TokenError, NotImplementedError, SyntaxError, ValueError, TypeError, LookupError,
    OverflowError, MemoryError, RecursionError, RuntimeError,
)  # fmt: skip
# The name under which the first field of an svmlight line is asked for.
_LABEL = "label"


@dataclass
class _Array:
    """An array of a file, of which rows are read one after the other."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    content: IO[bytes]
    whole: NDArray[Any] | None

    def read(self, rows: int) -> NDArray[Any]:
        """Return the next rows."""
        if self.whole is not None:
            taken, self.whole = self.whole[:rows], self.whole[rows:]
            return taken
        shape = (rows, *self.shape[1:])
        size = math.prod(shape) * self.dtype.itemsize
        content = self.content.read(size)
        if len(content) < size:
            raise EOFError(f"array {self.name!r} ends early")
        return np.frombuffer(content, self.dtype).reshape(shape)


def read_archive(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of an npz or npy file in order.

    One array of two or more dimensions holds the rows, an array ``columns`` or ``feature_names`` the names of its
    columns, and every array of one dimension and as many entries is a column under its own name.
    """
    try:
        with reading(path), ExitStack() as stack:
            file = stack.enter_context(path.open("rb"))
            if not file.peek(2).startswith(b"PK"):
                yield from _read_columns(path, [_open_array(path, "rows", file, path.stat().st_size)], request)
                return
            archive = stack.enter_context(zipfile.ZipFile(path))
            members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
            if set(members) >= _SPARSE:
                yield from _read_sparse(path, request)
                return
            arrays = [
                _open_array(path, name, stack.enter_context(archive.open(member)), archive.getinfo(member).file_size)
                for name, member in members.items()
            ]
            yield from _read_columns(path, arrays, request)
    except _DAMAGES as error:
        if isinstance(error, MomentAlignError):
            raise
        raise DamagedFileError(
            f"{path} is not a whole file of numpy arrays ({one_line(error)}); save it again."
        ) from error


def _open_array(path: Path, name: str, content: IO[bytes], size: int) -> _Array:
    """Read the header of an array in a file of some size; what follows is left for later."""
    version = numpy_format.read_magic(content)
    header = numpy_format.read_array_header_1_0 if version == (1, 0) else numpy_format.read_array_header_2_0
    shape, fortran, dtype = header(content)
    if dtype.hasobject:
        raise InvalidInputError(
            f"{path}: array {name!r} holds Python objects, a pickle that could run code and is never read; save it as "
            "numbers or strings."
        )
    if dtype.kind not in "biufUM":
        raise InvalidInputError(
            f"{path}: array {name!r} is of type {dtype}, which is no number, date or text; convert it."
        )
    if 0 in shape:
        raise InvalidInputError(
            f"{path}: array {name!r} of shape {shape} has no rows or no columns; save one that has both."
        )
    if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize > size:
        raise EOFError(f"array {name!r} ends early, its shape should be {shape}")
    array = _Array(name, shape, dtype, content, None)
    if fortran and len(shape) > 1:
        array.whole = _Array(name, shape[::-1], dtype, content, None).read(shape[-1]).T
    return array


def _read_columns(path: Path, arrays: list[_Array], request: Request) -> Iterator[Table]:
    block, names, single = _sort_out(path, arrays)
    request = request.resolve([*names, *(array.name for array in single)], path)
    count = (single[0] if block is None else block).shape[0]
    for start in range(0, count, request.rows or count):
        rows = min(request.rows or count, count - start)
        frame = pd.DataFrame({array.name: array.read(rows) for array in single}, index=pd.RangeIndex(rows))
        if block is not None:
            values = block.read(rows).reshape(rows, -1)
            frame = pd.concat([pd.DataFrame(values, columns=names, copy=False), frame], axis=1)
        yield split_frame(frame[list(request.columns or ())], request, start)


def _sort_out(path: Path, arrays: list[_Array]) -> tuple[_Array | None, list[str], list[_Array]]:
    """Return the array of rows, the names of its columns, and the arrays that are a column each."""
    blocks = [array for array in arrays if len(array.shape) > 1]
    if len(blocks) > 1:
        listed = ", ".join(f"{array.name!r} {array.shape}" for array in blocks)
        raise InvalidInputError(f"{path} has several arrays that could be the rows ({listed}); keep one of them.")
    single = [array for array in arrays if len(array.shape) == 1]
    names: list[str] = []
    if blocks:
        width = math.prod(blocks[0].shape[1:])
        given = [
            array for array in single if array.name in _NAMES and array.shape == (width,) and array.dtype.kind == "U"
        ]
        single = [array for array in single if array not in given]
        names = given[0].read(width).tolist() if given else [f"x{column}" for column in range(width)]
    if not blocks and not single:
        raise InvalidInputError(
            f"{path} has no array of rows; save one of two dimensions, or one of one dimension per column."
        )
    lengths = {array.name: array.shape[0] for array in [*blocks, *single]}
    if len(set(lengths.values())) != 1:
        raise InvalidInputError(
            f"{path} must hold arrays of as many rows each, got {quoted(list(lengths.items()))}; keep those that "
            "belong together."
        )
    return (blocks[0] if blocks else None), names, single


def _read_sparse(path: Path, request: Request) -> Iterator[Table]:
    if request.label is not None or request.id_column is not None:
        raise InvalidInputError(
            f"{path} is a sparse matrix and has no column {request.label or request.id_column!r}; save it with its "
            "labels by sklearn.datasets.dump_svmlight_file."
        )
    found = sparse.load_npz(path)
    if hasattr(found, "check_format"):
        found.check_format(full_check=True)  # Indices beyond the matrix would be followed.
    rows = sparse.csr_matrix(found).astype(np.float32)
    step = request.rows or max(rows.shape[0], 1)
    for start in range(0, rows.shape[0], step):
        yield Table(rows[start : start + step], start=start)


def read_svmlight(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of an svmlight file in order, CSR of float32; each part is as wide as its largest index asks.

    A line is ``label index:value index:value ...``. Index j is column j, whether the file counts from 0 or from 1: two
    domains, or two parts of one file, then never disagree by one.
    """
    if request.label not in (None, _LABEL) or request.id_column is not None:
        raise InvalidInputError(
            f"{path} is an svmlight file, whose only named column is {_LABEL!r}, got "
            f"{request.id_column or request.label!r}; ask for {_LABEL!r} or for none."
        )
    start = 0
    with reading(path), open_bytes(path) as file:
        filled = ((number, line) for number, line in enumerate(file, start=1) if line.partition(b"#")[0].strip())
        while block := list(islice(filled, request.rows)):
            rows, labels = _parse(path, block)
            yield Table(rows, labels if request.label else None, start=start)
            start += len(block)


def _parse(path: Path, lines: list[tuple[int, bytes]]) -> tuple[sparse.csr_matrix, NDArray[Any]]:
    """Return numbered lines as rows and labels, or say which line is wrong."""
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


def _load(lines: list[bytes]) -> tuple[sparse.csr_matrix, NDArray[Any]]:
    """Return rows, and labels as text, a whole number without a point: all labels of the file decide what they are."""
    from sklearn.datasets import load_svmlight_file

    rows, labels = load_svmlight_file(io.BytesIO(b"".join(lines)), dtype=np.float32, zero_based=True)
    if not np.isfinite(rows.data).all():
        raise ValueError("a value is not finite")
    texts = [str(int(label)) if label.is_integer() else repr(label) for label in labels.tolist()]
    return sparse.csr_matrix(rows), np.array(texts, dtype=object)

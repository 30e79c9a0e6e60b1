"""Arrays of numpy (npz, npy), read row by row from the archive, and sparse matrices that scipy saved.

Arrays of Python objects are pickles and are never read.

The sparse text format of SVMlight and LIBSVM: ``label index:value index:value ...`` in each line.

Index j of the file is column j, whether the file counts from 0 or from 1: two domains, or two chunks of one file, then
never disagree by one.

A folder of images, one subfolder per class: squares of one size, as pixels or as flat rows.
"""

from __future__ import annotations

import io
import math
import tokenize
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as numpy_format
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import DamagedFileError, InvalidInputError, MomentAlignError
from momentalign.tables.opening import need, open_bytes, reading, said
from momentalign.tables.table import Request, Table, quoted, split_frame
from momentalign.validation import positive_int

__all__ = ["list_images", "read_archive", "read_image_folder", "read_images", "read_svmlight"]

_SPARSE = {"format", "shape", "data"}
# Arrays of an archive that may hold the names of the columns.
_NAMES = ("columns", "feature_names")
# What libraries raise on damaged archives and heads; a head can also ask for more memory than there is.
_DAMAGES = (
    zipfile.BadZipFile, tokenize.TokenError, NotImplementedError, SyntaxError, ValueError, TypeError, LookupError,
    OverflowError, MemoryError, RecursionError, RuntimeError,
)  # fmt: skip


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
            yield from _read_arrays(path, request, stack)
    except _DAMAGES as error:
        if isinstance(error, MomentAlignError):
            raise
        raise DamagedFileError(f"{path} is not a whole file of numpy arrays ({said(error)}); save it again.") from error


def _read_arrays(path: Path, request: Request, stack: ExitStack) -> Iterator[Table]:
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


def _open_array(path: Path, name: str, content: IO[bytes], size: int) -> _Array:
    """Read the head of an array in a file of some size; what follows is left for later."""
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
    import pandas as pd

    block, names, single = _sort_out(path, arrays)
    wanted = request.choose([*names, *(array.name for array in single)], path)
    parts = [*single, *([block] if block else [])]
    count = parts[0].shape[0]
    for start in range(0, count, request.rows or max(count, 1)):
        rows = min(request.rows or count, count - start)
        frame = pd.DataFrame({array.name: array.read(rows) for array in single}, index=pd.RangeIndex(rows))
        if block is not None:
            values = block.read(rows).reshape(rows, -1)
            frame = pd.concat([pd.DataFrame(values, columns=names, copy=False), frame], axis=1)
        yield split_frame(frame[wanted], request, start)


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


# The names under which the subfolder and the path of an image are asked for.
LABEL_IMAGES, FILE = "label", "file"
_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
# Pillow reads far more, some of it by running other programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
_STEP = 4096


def list_images(folder: str | Path) -> list[Path]:
    """Return the images of a folder and of its subfolders, one level deep, in alphabetical order."""
    place = Path(folder)
    with reading(place):
        files = [path for pattern in ("*", "*/*") for path in place.glob(pattern)]
        found = sorted(path for path in files if path.suffix.lower() in _SUFFIXES and path.is_file())
    if not found:
        raise InvalidInputError(
            f"{place} holds no images ({', '.join(sorted(_SUFFIXES))}); give a file, or a folder with one subfolder "
            "of images per class."
        )
    return found


def read_images(files: list[Path], *, side: int = 32) -> NDArray[np.uint8]:
    """Return images as red, green and blue squares, (N, 3, side, side).

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "red.png"
    ...     Image.new("RGB", (40, 30), "red").save(file)
    ...     pixels = read_images([file], side=8)
    >>> pixels.shape, pixels[0, :, 0, 0].tolist()
    ((1, 3, 8, 8), [255, 0, 0])
    """
    positive_int(side, "side", example="32")
    pixels = np.empty((len(files), 3, side, side), np.uint8)
    for row, file in enumerate(files):
        pixels[row] = np.moveaxis(np.asarray(_open_square(file, side)), -1, 0)
    return pixels


def read_image_folder(path: Path, request: Request) -> Iterator[Table]:
    """Yield images as flat rows of numbers from 0 to 1; ``label`` is the subfolder of one, ``file`` its path."""
    if request.label not in (None, LABEL_IMAGES) or request.id_column not in (None, FILE):
        raise InvalidInputError(
            f"{path} is a folder of images, whose named columns are {LABEL_IMAGES!r} and {FILE!r}, got "
            f"{request.label!r} and {request.id_column!r}; ask for these or for none."
        )
    files = list_images(path)
    labels = _labels(path, files) if request.label else None
    names = np.array([file.relative_to(path).as_posix() for file in files], dtype=object)
    step = request.rows or len(files)
    for start in range(0, len(files), step):
        part = slice(start, start + step)
        yield Table(
            _flat(files[part], request.side),
            None if labels is None else labels[part],
            names[part] if request.id_column else None,
            start,
        )


def _labels(path: Path, files: list[Path]) -> NDArray[Any]:
    stray = [file for file in files if file.parent == path]
    if stray:
        raise InvalidInputError(
            f"{path} has images outside of any subfolder ({stray[0].name!r}), which have no label; put each image into "
            "the subfolder of its class."
        )
    return np.array([file.parent.name for file in files], dtype=object)


def _flat(files: list[Path], side: int) -> NDArray[np.float32]:
    """Return images as rows; bytes are turned into numbers part by part, so memory holds the rows once."""
    rows = np.empty((len(files), 3 * side * side), np.float32)
    for start in range(0, len(files), _STEP):
        part = slice(start, start + _STEP)
        np.divide(read_images(files[part], side=side).reshape(-1, rows.shape[1]), np.float32(255), out=rows[part])
    return rows


def _open_square(file: Path, side: int) -> Any:
    pillow = need("PIL.Image", extra="deep")
    with reading(file), warnings.catch_warnings():
        # An image that would fill the memory is no image to train on.
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        try:
            with pillow.open(file, formats=_FORMATS) as image:
                return image.convert("RGB").resize((side, side), pillow.Resampling.BILINEAR)
        except (ValueError, SyntaxError, pillow.DecompressionBombWarning, pillow.DecompressionBombError) as error:
            raise DamagedFileError(
                f"{file} is not a whole image ({said(error)}); remove it or get it again."
            ) from error

"""Every format but delimited text: Arrow's own, JSON lines and Excel; npz, npy and svmlight; folders of images.

Parquet, Feather, npz and svmlight are read part by part, JSON lines and Excel as a whole. Arrays of Python objects are
pickles and are never read.
"""

from __future__ import annotations

import io
import math
import re
import tokenize
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
import pyarrow.parquet as pq
from numpy.lib import format as numpy_format
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import DamagedFileError, InvalidInputError, MissingExtraError
from momentalign.tables.delimited import BLOCK, convert_cells, regroup
from momentalign.tables.opening import one_line, open_bytes, reading
from momentalign.tables.table import Request, Table, quoted, split_frame

__all__ = [
    "DAMAGES",
    "list_images",
    "read_archive",
    "read_excel",
    "read_feather",
    "read_image_folder",
    "read_images",
    "read_json_lines",
    "read_parquet",
    "read_svmlight",
]

# pandas stores the index of a filtered frame under such names; it is no column of the user.
_INDEX = re.compile(r"__index_level_\d+__")
_BATCH = 2**16

_SPARSE = {"format", "shape", "data"}
# Arrays of an archive that may hold the names of the columns.
_NAMES = ("columns", "feature_names")
_OF_ARROW = (pa.ArrowException, UnicodeDecodeError)
# What libraries raise on damaged archives and headers; a header can also ask for more memory than there is.
_OF_ARCHIVES = (
    zipfile.BadZipFile, tokenize.TokenError, NotImplementedError, SyntaxError, ValueError, TypeError, LookupError,
    ArithmeticError, MemoryError, RecursionError, RuntimeError, AttributeError,
)  # fmt: skip
DAMAGES: dict[str, tuple[str, tuple[type[Exception], ...]]] = {
    "parquet": ("Parquet file", _OF_ARROW),
    "feather": ("Feather file", _OF_ARROW),
    "jsonlines": ("JSON file", _OF_ARROW),
    "excel": ("workbook", _OF_ARCHIVES),
    "npz": ("file of numpy arrays", _OF_ARCHIVES),
}
"""Of a format what its files are called, and the errors that say that one is not whole."""
# A matrix of more rows or columns than these and the bytes of its file would be memory that nothing fills.
_MOST_EMPTY = 2**24
# A workbook that unpacks to more is none.
_MOST_UNPACKED = 2**31

# The names under which the label of svmlight, and the subfolder and the path of an image, are asked for.
_LABEL, _FILE = "label", "file"
_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
# Images of a table are brought to so many rows and columns of pixels.
_SIDE = 32
# Pillow reads far more, some of it by running other programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
# Bytes are turned into numbers for so many images at a time, so that memory holds the rows once.
_STEP = 4096


# ---------------------------------------------------------------------------------------------------------------------
# Tables of Arrow


def read_parquet(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of a Parquet file in order, row group by row group."""
    # Reading ahead would hold memory in proportion to the file.
    with pq.ParquetFile(path, pre_buffer=False) as file:
        request = _resolve(path, file.schema_arrow, request)
        batches = file.iter_batches(batch_size=request.rows or _BATCH, columns=request.wanted)
        yield from _tables(path, batches, request)


def read_feather(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of a Feather file (of Arrow) in order, batch by batch."""
    with pa.memory_map(str(path)) as content:
        file = pa.ipc.open_file(content)
        request = _resolve(path, file.schema, request)
        batches = (file.get_batch(index) for index in range(file.num_record_batches))
        yield from _tables(path, (_validated(batch) for batch in batches), request)


def read_json_lines(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of a file with an object in each line; a key that an object lacks is a missing value."""
    with open_bytes(path) as file:
        try:
            whole = _validated(arrow_json.read_json(file, arrow_json.ReadOptions(block_size=BLOCK)))
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"{path} cannot be read as JSON lines ({one_line(error)}); write one object of plain values a line."
            ) from error
    yield from _tables(path, whole.to_batches(), _resolve(path, whole.schema, request))


def _validated(part: Any) -> Any:
    part.validate(full=True)
    return part


def _resolve(path: Path, schema: Any, request: Request) -> Request:
    """Return the request with the columns to read, none of which is of a type that is no number, date or text."""
    request = request.resolve([name for name in schema.names if not _INDEX.fullmatch(name)], path)
    types = pa.types
    tests = (
        types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null, types.is_date,
        types.is_timestamp, _is_text,
    )  # fmt: skip
    for name in request.wanted:
        kind = schema.field(name).type
        value = kind.value_type if types.is_dictionary(kind) else kind
        if not any(test(value) for test in tests):
            raise InvalidInputError(
                f"{path}: column {name!r} is of type {kind}, which is no number, date or text; remove or convert it."
            )
    return request


def _tables(path: Path, batches: Iterable[Any], request: Request) -> Iterator[Table]:
    start = 0
    for table in regroup(batches, request.rows):
        yield split_frame(_to_frame(path, table.select(request.wanted), request, start), request, start)
        start += table.num_rows


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


def read_excel(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of the first sheet of a workbook, whose first row names the columns."""
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MOST_UNPACKED:
            raise DamagedFileError(f"{path} unpacks to more than 2 GB; save the sheet as CSV.")
    as_written = {name: object for name in (request.label, request.id_column) if name is not None}
    try:
        frame = pd.read_excel(path, dtype=as_written)
    except ImportError as error:
        raise MissingExtraError.of(f"{path} is a workbook, which openpyxl reads", "excel") from error
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    request = request.resolve(list(frame.columns), path)
    for part in request.parts(len(frame)):
        yield split_frame(frame[request.wanted].iloc[part].reset_index(drop=True), request, part.start)


# ---------------------------------------------------------------------------------------------------------------------
# Arrays


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
        values = np.frombuffer(content, self.dtype).reshape(shape)
        if self.dtype.kind == "U":
            letters = np.frombuffer(content, self.dtype.str[0] + "u4")
            if ((letters > 0x10FFFF) | ((letters >= 0xD800) & (letters < 0xE000))).any():
                raise ValueError(f"array {self.name!r} holds what is no letter of Unicode")
        return values


def read_archive(path: Path, request: Request) -> Iterator[Table]:
    """Yield the rows of an npz or npy file in order.

    One array of two or more dimensions holds the rows, an array ``columns`` or ``feature_names`` the names of its
    columns, and every array of one dimension and as many entries is a column under its own name.
    """
    with ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        if not file.peek(2).startswith(b"PK"):
            yield from _read_columns(path, [_open_array(path, "rows", file, path.stat().st_size)], request)
            return
        archive = stack.enter_context(zipfile.ZipFile(path))
        members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}

        def opened(name: str) -> _Array:
            member = members[name]
            content = stack.enter_context(archive.open(member))
            return _open_array(path, name, content, archive.getinfo(member).file_size)

        if set(members) >= _SPARSE:
            yield from _read_sparse(path, opened("shape"), request)
        else:
            yield from _read_columns(path, [opened(name) for name in members], request)


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
    if 0 in shape or not dtype.itemsize:
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
    for part in request.parts((single[0] if block is None else block).shape[0]):
        rows = part.stop - part.start
        frame = pd.DataFrame({array.name: array.read(rows) for array in single}, index=pd.RangeIndex(rows))
        if block is not None:
            values = block.read(rows).reshape(rows, -1)
            frame = pd.concat([pd.DataFrame(values, columns=names, copy=False), frame], axis=1)
        yield split_frame(frame[request.wanted], request, part.start)


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


def _read_sparse(path: Path, shape: _Array, request: Request) -> Iterator[Table]:
    if request.label is not None or request.id_column is not None:
        raise InvalidInputError(
            f"{path} is a sparse matrix and has no column {request.label or request.id_column!r}; save it with its "
            "labels by sklearn.datasets.dump_svmlight_file."
        )
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise ValueError("its shape is not that of a matrix")
    _refuse_empty_space(path, shape.read(2).tolist())
    found = sparse.load_npz(path)
    if hasattr(found, "check_format"):
        found.check_format(full_check=True)  # Indices beyond the matrix would be followed.
    rows = sparse.csr_matrix(found).astype(np.float32)
    for part in request.parts(rows.shape[0]):
        yield Table(rows[part], start=part.start)


def _refuse_empty_space(path: Path, shape: Iterable[int]) -> None:
    """Refuse a matrix of far more rows or columns than its file could fill: nothing could be learned from it."""
    most = max(_MOST_EMPTY, path.stat().st_size)
    for count, name in zip(shape, ("rows", "columns"), strict=True):
        if count > most:
            raise InvalidInputError(
                f"{path} has {count:,} {name}, more than a file of its size can fill ({most:,}); number them without "
                "gaps, or hash them to fewer."
            )


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
    with open_bytes(path) as file:
        filled = ((number, line) for number, line in enumerate(file, start=1) if line.partition(b"#")[0].strip())
        while block := list(islice(filled, request.rows)):
            rows, labels = _parse(path, block)
            _refuse_empty_space(path, rows.shape)
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
    """Return rows, and labels as they are written, +1 as 1: all labels of the file decide what they are."""
    from sklearn.datasets import load_svmlight_file

    if any(b"_" in line.partition(b"#")[0] for line in lines):
        raise ValueError("Python reads 1_0 as 10")
    rows, labels = load_svmlight_file(io.BytesIO(b"".join(lines)), dtype=np.float32, zero_based=True)
    if not np.isfinite(rows.data).all():
        raise ValueError("a value is not finite")
    written = [line.split(maxsplit=1)[0].decode() for line in lines]
    texts = [
        None if label != label else str(int(label)) if label.is_integer() and abs(label) < 2**53 else text
        for label, text in zip(labels.tolist(), written, strict=True)
    ]
    return sparse.csr_matrix(rows), np.array(texts, dtype=object)


# ---------------------------------------------------------------------------------------------------------------------
# Images


def read_image_folder(path: Path, request: Request) -> Iterator[Table]:
    """Yield images as flat rows of numbers from 0 to 1; ``label`` is the subfolder of one, ``file`` its path."""
    if request.label not in (None, _LABEL) or request.id_column not in (None, _FILE):
        raise InvalidInputError(
            f"{path} is a folder of images, whose named columns are {_LABEL!r} and {_FILE!r}, got "
            f"{request.label!r} and {request.id_column!r}; ask for these or for none."
        )
    files = list_images(path)
    stray = [file for file in files if file.parent == path]
    if stray and request.label:
        raise InvalidInputError(
            f"{path} has images outside of any subfolder ({stray[0].name!r}), which have no label; put each image into "
            "the subfolder of its class."
        )
    # Where no column is asked for, only the labels are.
    width = 3 * _SIDE**2 if request.columns is None or request.columns else 0
    for part in request.parts(len(files)):
        chosen = files[part]
        rows = np.empty((len(chosen), width), np.float32)
        for first in range(0, len(chosen) if width else 0, _STEP):
            pixels = read_images(chosen[first : first + _STEP])
            np.divide(pixels.reshape(len(pixels), -1), np.float32(255), out=rows[first : first + _STEP])
        labels = np.array([file.parent.name for file in chosen], dtype=object) if request.label else None
        ids = np.array([file.relative_to(path).as_posix() for file in chosen], dtype=object)
        yield Table(rows, labels, ids if request.id_column else None, part.start)


def list_images(folder: str | Path) -> list[Path]:
    """Return the images of a folder and of its subfolders, one level deep, in alphabetical order."""
    path = Path(folder)
    files = [file for pattern in ("*", "*/*") for file in path.glob(pattern)]
    found = sorted(file for file in files if file.suffix.lower() in _SUFFIXES and file.is_file())
    if not found:
        raise InvalidInputError(
            f"{path} holds no images ({', '.join(sorted(_SUFFIXES))}); give a file, or a folder with one subfolder "
            "of images per class."
        )
    for file in found:
        name = file.relative_to(path).as_posix()
        if not name.isascii() and name.encode(errors="replace").decode() != name:
            raise InvalidInputError(f"{path} holds a file whose name is not UTF-8 ({name!r}); rename it.")
    return found


def read_images(files: list[Path]) -> NDArray[np.uint8]:
    """Return images as red, green and blue squares, (N, 3, 32, 32).

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "red.png"
    ...     Image.new("RGB", (40, 30), "red").save(file)
    ...     pixels = read_images([file])
    >>> pixels.shape, pixels[0, :, 0, 0].tolist()
    ((1, 3, 32, 32), [255, 0, 0])
    """
    pixels = np.empty((len(files), 3, _SIDE, _SIDE), np.uint8)
    for row, file in enumerate(files):
        pixels[row] = np.moveaxis(np.asarray(_open_square(file)), -1, 0)
    return pixels


def _open_square(file: Path) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError.of("images are read by Pillow", "deep") from error
    damages = ValueError, SyntaxError, Image.DecompressionBombWarning, Image.DecompressionBombError
    with reading(file, "image", damages), warnings.catch_warnings():
        # An image that would fill the memory is no image to train on.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(file, formats=_FORMATS) as image:
            return image.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)

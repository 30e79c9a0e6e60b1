"""Files of images as arrays: idx, PNG and JPEG.

Nothing in a file is executed: arrays of numbers are read, anything else is refused with the file's name.

Arrays of numbers in MATLAB's files of versions 5 to 7, the format of SVHN's cropped digits.

After The MathWorks, MAT-File Format. scipy.io.loadmat reads more kinds of variables, but one wrong byte in a file can
end the process there (scipy 1.17); here every size and type is checked before it is used.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError

__all__ = ["Pixels", "cut_pictures", "decode_picture", "read_idx", "read_mat"]

Pixels = NDArray[np.uint8]

# Far above MNIST's 47 MB, and little enough that a forged header cannot fill the memory.
LARGEST_IDX = 2**30


def read_idx(path: Path, *, dimensions: int) -> Pixels:
    """Return the bytes of an idx file, plain or ``.gz``: the format of MNIST (LeCun 1998).

    The header is two zero bytes, 8 for unsigned bytes, the number of dimensions, and each size as a big-endian
    integer of 32 bits; the values follow, the last index running fastest.

    Parameters
    ----------
    path
        The file.
    dimensions
        The number of dimensions it must have: 3 for images, 1 for labels.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "labels"
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 3]))
    ...     read_idx(path, dimensions=1).tolist()
    [7, 3]
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            shape = _idx_shape(path, file.read(4 + 4 * dimensions), dimensions)
            # One byte more than there should be tells a file that is too long without reading it all.
            content = file.read(math.prod(shape) + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DamagedFileError(f"{path} is not a whole gzip file ({error}); get it again.") from error
    if len(content) != math.prod(shape):
        size = "more" if len(content) > math.prod(shape) else f"only {len(content)}"
        raise DamagedFileError(
            f"{path} is damaged: its header says {shape}, {math.prod(shape)} bytes, and it holds {size}; get it again."
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def _idx_shape(path: Path, header: bytes, dimensions: int) -> tuple[int, ...]:
    magic = bytes([0, 0, 8, dimensions])
    if header[:4] != magic or len(header) < 4 + 4 * dimensions:
        raise DamagedFileError(
            f"{path} is not an idx file of unsigned bytes in {dimensions} dimension(s): it starts with "
            f"{header[:4].hex() or 'nothing'}, expected {magic.hex()} and the sizes; get it again."
        )
    shape = struct.unpack(f">{dimensions}I", header[4:])
    if math.prod(shape) > LARGEST_IDX:
        raise DamagedFileError(f"{path} says it holds {shape} bytes, more than any set of digits; get it again.")
    return shape


def decode_picture(
    content: bytes, name: str, *, kind: Literal["PNG", "JPEG"], size: tuple[int, int] | None = None
) -> Pixels:
    """Return a picture as (height, width, 3), red, green and blue.

    Parameters
    ----------
    content
        The bytes of the file.
    name
        What errors call it.
    kind
        The only format that is tried.
    size
        The height and width it must have, checked before it is decoded; None takes any.

    Examples
    --------
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (3, 2), (255, 0, 9)).save(file, "PNG")
    >>> picture = decode_picture(file.getvalue(), "red", kind="PNG")
    >>> picture.shape, picture[0, 0].tolist()
    ((2, 3, 3), [255, 0, 9])
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ModuleNotFoundError("Pictures are read with Pillow: pip install momentalign[deep]") from error
    # Decoders raise errors of many types, not all of them OSError.
    try:
        with Image.open(io.BytesIO(content), formats=[kind]) as picture:
            found = (picture.height, picture.width)
            if size is None or found == size:
                return np.asarray(picture.convert("RGB"))
    except Exception as error:
        raise DamagedFileError(f"{name} cannot be read as {kind} ({error}); get it again.") from error
    raise DamagedFileError(f"{name} is a picture of {found}, expected {size} (height, width); get it again.")


def cut_pictures(joined: Pixels, offset: NDArray[np.integer], name: str) -> list[Pixels]:
    """Return pictures whose JPEG files stand end to end: picture i is ``joined[offset[i]:offset[i + 1]]``."""
    parts = np.split(joined, offset[1:-1])
    return [decode_picture(part.tobytes(), f"{name}, picture {i}", kind="JPEG") for i, part in enumerate(parts)]


HEADER = 128
MATRIX, COMPRESSED = 14, 15
# Classes of arrays that are full and numeric, from double to uint64.
NUMERIC = range(6, 16)
COMPLEX = 0x800
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
# More than SVHN's largest file needs (531,131 images), so that a few bytes cannot unfold to fill the memory.
LARGEST = 2**31 - 1


class _Element(NamedTuple):
    kind: int
    data: memoryview


def read_mat(path: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    """Return real, full arrays of a MATLAB file in the types they are stored in.

    Parameters
    ----------
    path
        The file.
    names
        The variables to read.

    Examples
    --------
    >>> import tempfile
    >>> from scipy.io import savemat
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     savemat(Path(folder) / "some.mat", {"y": [[1], [10]]})
    ...     read_mat(Path(folder) / "some.mat", ("y",))[0].tolist()
    [[1], [10]]
    """
    try:
        arrays = _read(memoryview(path.read_bytes()), names)
    except (ValueError, struct.error, zlib.error) as error:
        raise DamagedFileError(
            f"{path} is not a whole MATLAB file of version 5 to 7 ({error}); get it again."
        ) from error
    for name in names:
        if name not in arrays:
            raise DamagedFileError(f"{path} holds no real, full array of numbers {name!r}; get it again.")
    return [arrays[name] for name in names]


def _read(content: memoryview, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    order = {b"\0\1IM": "<", b"\1\0MI": ">"}.get(bytes(content[HEADER - 4 : HEADER]))
    if order is None:
        raise ValueError("its header says something else")
    arrays = {}
    for element in _elements(content[HEADER:], order):
        matrix = _unfold(element, order) if element.kind == COMPRESSED else element
        found = _array(matrix, order, names)
        if found is not None:
            arrays[found[0]] = found[1]
    return arrays


def _elements(content: memoryview, order: str) -> Iterator[_Element]:
    """The tagged pieces of a stretch of bytes, one after the other."""
    place = 0
    while place < len(content):
        kind, size = struct.unpack_from(f"{order}II", content, place)
        start = place + 8
        if kind >> 16:  # the short form: size and kind share a word and at most four bytes follow in the next
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
        if start + size > len(content) or (start == place + 4 and size > 4):
            raise ValueError(f"a piece of {size} bytes is cut off")
        yield _Element(kind, content[start : start + size])
        # Compressed pieces alone do not end at a multiple of eight bytes.
        place = start + size + (0 if kind == COMPRESSED else -(start + size - place) % 8)


def _unfold(element: _Element, order: str) -> _Element:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(element.data, LARGEST)
    if not unpacker.eof:
        raise ValueError("a compressed variable is cut off or too large")
    return next(_elements(memoryview(content), order), element)


def _array(matrix: _Element, order: str, names: tuple[str, ...]) -> tuple[str, NDArray[Any]] | None:
    """Name and values of a variable that is asked for, or None where it is another or no array of numbers."""
    parts = list(islice(_elements(matrix.data, order), 4)) if matrix.kind == MATRIX else []
    if len(parts) < 4:
        return None
    (flags,) = struct.unpack_from(f"{order}I", parts[0].data)
    name = bytes(parts[2].data).decode("latin-1")
    if name not in names or flags & 0xFF not in NUMERIC or flags & COMPLEX:
        return None
    return name, _values(parts[3], order, np.frombuffer(parts[1].data, f"{order}i4").tolist())


def _values(element: _Element, order: str, shape: list[int]) -> NDArray[Any]:
    if element.kind not in TYPES:
        raise ValueError(f"values are of the unknown type {element.kind}")
    values = np.frombuffer(element.data, f"{order}{TYPES[element.kind]}")
    if min(shape, default=-1) < 0 or values.size != math.prod(shape):
        raise ValueError(f"an array of shape {tuple(shape)} has {values.size} values")
    # The bytes of this machine, so that two machines' files give arrays of one type.
    return values.astype(values.dtype.newbyteorder("="), copy=False).reshape(shape, order="F")

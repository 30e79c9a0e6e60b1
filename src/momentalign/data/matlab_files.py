"""Arrays of numbers in MATLAB's files of versions 5 to 7, the format of SVHN's cropped digits.

After The MathWorks, MAT-File Format. scipy.io.loadmat reads more kinds of variables, but one wrong byte in a file can
end the process there (scipy 1.17); here every size and type is checked before it is used.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError

__all__ = ["read_mat"]

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

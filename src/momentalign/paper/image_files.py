"""Files of images as arrays: idx, the format of MNIST, and pictures in PNG and JPEG.

Nothing in a file is executed: arrays of numbers are read, anything else is refused with the file's name.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError

__all__ = ["Pixels", "decode_picture", "read_idx"]

Pixels = NDArray[np.uint8]

# Far above MNIST's 47 MB, and little enough that a forged header cannot fill the memory.
LARGEST_IDX = 2**30


def read_idx(path: Path, *, dimensions: int) -> Pixels:
    """Return the bytes of an idx file, plain or ``.gz`` (LeCun 1998).

    The header is two zero bytes, 8 for unsigned bytes, the number of dimensions (3 for images, 1 for labels), and each
    size as a big-endian integer of 32 bits; the values follow, the last index running fastest.

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
        raise DamagedFileError(f"{path} claims to hold {shape} bytes, more than any set of digits; get it again.")
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

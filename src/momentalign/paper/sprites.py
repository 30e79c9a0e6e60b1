"""Small images as one picture inside a page: a row of them as a PNG, written with the standard library.

PNG (Portable Network Graphics), W3C Recommendation, 2003: chunks with a length, a name and a checksum around rows of
pixels, each of which may be written as differences to its neighbours.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError

__all__ = ["png", "sprite"]

Pixels = NDArray[np.uint8]

_SIDE = 32


def sprite(images: Sequence[str]) -> str:
    """Return images of 32 x 32 pixels side by side as the address of one picture.

    Parameters
    ----------
    images
        Bytes (3, 32, 32), red, green and blue, in hexadecimal.

    Examples
    --------
    >>> sprite(["ff" * 3072])[:40]
    'data:image/png;base64,iVBORw0KGgoAAAANSU'
    """
    pixels = np.concatenate([_pixels(image, index) for index, image in enumerate(images)], axis=1)
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode('ascii')}"


def png(pixels: Pixels) -> bytes:
    """Return pixels (height, width, 3) as a PNG file.

    Examples
    --------
    >>> png(np.zeros((2, 2, 3), np.uint8))[1:4]
    b'PNG'
    """
    height, width, _ = pixels.shape
    rows = pixels.reshape(height, -1)
    left = rows - np.pad(rows, ((0, 0), (3, 0)))[:, :-3]
    above = rows - np.pad(rows, ((1, 0), (0, 0)))[:-1]
    # The number before each row says what it is a difference to: nothing, the pixel at its left, the one above.
    forms = [np.insert(values, 0, kind, axis=1) for kind, values in enumerate((rows, left, above))]
    smallest = min((zlib.compress(form.tobytes(), 9) for form in forms), key=len)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", smallest), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _pixels(image: str, index: int) -> Pixels:
    """Return one image as (32, 32, 3)."""
    try:
        return np.frombuffer(bytes.fromhex(image), np.uint8).reshape(3, _SIDE, _SIDE).transpose(1, 2, 0)
    except ValueError:
        raise InvalidInputError(
            f"image {index} is not 3 x {_SIDE} x {_SIDE} bytes in hexadecimal: {image!r:.20}; write the result again."
        ) from None

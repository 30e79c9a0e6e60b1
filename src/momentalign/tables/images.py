"""A folder of images, one subfolder per class: squares of one size, as pixels or as flat rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.tables.opening import one_line, reading
from momentalign.tables.table import Request, Table

__all__ = ["list_images", "read_image_folder", "read_images"]

# The names under which the subfolder and the path of an image are asked for.
_LABEL, _FILE = "label", "file"
_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
# Pillow reads far more, some of it by running other programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
# Bytes are turned into numbers for so many images at a time, so that memory holds the rows once.
_STEP = 4096


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
    step = request.rows or len(files)
    for start in range(0, len(files), step):
        part = files[start : start + step]
        wanted = request.columns is None or bool(request.columns)  # Without any column, the labels alone are asked for.
        rows = np.empty((len(part), 3 * request.side**2 if wanted else 0), np.float32)
        for first in range(0, len(part) if wanted else 0, _STEP):
            pixels = read_images(part[first : first + _STEP], side=request.side)
            np.divide(pixels.reshape(len(pixels), -1), np.float32(255), out=rows[first : first + _STEP])
        labels = np.array([file.parent.name for file in part], dtype=object) if request.label else None
        names = np.array([file.relative_to(path).as_posix() for file in part], dtype=object)
        yield Table(rows, labels, names if request.id_column else None, start)


def list_images(folder: str | Path) -> list[Path]:
    """Return the images of a folder and of its subfolders, one level deep, in alphabetical order."""
    path = Path(folder)
    with reading(path):
        files = [file for pattern in ("*", "*/*") for file in path.glob(pattern)]
        found = sorted(file for file in files if file.suffix.lower() in _SUFFIXES and file.is_file())
    if not found:
        raise InvalidInputError(
            f"{path} holds no images ({', '.join(sorted(_SUFFIXES))}); give a file, or a folder with one subfolder "
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
    pixels = np.empty((len(files), 3, side, side), np.uint8)
    for row, file in enumerate(files):
        pixels[row] = np.moveaxis(np.asarray(_open_square(file, side)), -1, 0)
    return pixels


def _open_square(file: Path, side: int) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise InvalidInputError("images are read by Pillow: pip install 'momentalign[deep]'.") from error
    with reading(file), warnings.catch_warnings():
        # An image that would fill the memory is no image to train on.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file, formats=_FORMATS) as image:
                return image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
        except (ValueError, SyntaxError, Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise DamagedFileError(
                f"{file} is not a whole image ({one_line(error)}); remove it or get it again."
            ) from error

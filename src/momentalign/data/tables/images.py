"""A folder of images, one subfolder per class: squares of one size, as pixels or as flat rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.data.tables.libraries import need
from momentalign.data.tables.opening import reading, said
from momentalign.data.tables.table import Request, Table
from momentalign.errors import DamagedFileError, InvalidInputError

__all__ = ["list_images", "read_image_folder", "read_images"]

# The names under which the subfolder and the path of an image are asked for.
LABEL, FILE = "label", "file"
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
    if isinstance(side, bool) or not isinstance(side, int) or side < 1:
        raise InvalidInputError(f"side must be a whole number of at least 1, got {side!r}; try side=32.")
    pixels = np.empty((len(files), 3, side, side), np.uint8)
    for row, file in enumerate(files):
        pixels[row] = np.moveaxis(np.asarray(_open_square(file, side)), -1, 0)
    return pixels


def read_image_folder(path: Path, request: Request) -> Iterator[Table]:
    """Yield images as flat rows of numbers from 0 to 1; ``label`` is the subfolder of one, ``file`` its path."""
    if request.label not in (None, LABEL) or request.id_column not in (None, FILE):
        raise InvalidInputError(
            f"{path} is a folder of images, whose named columns are {LABEL!r} and {FILE!r}, got "
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

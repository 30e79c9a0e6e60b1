"""Opening a file of a user: plain or compressed, and what can be wrong before its content is looked at."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from momentalign.data.tables.libraries import need
from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError

__all__ = ["COMPRESSED", "compression", "find_path", "open_bytes", "reading", "said"]

# First bytes of a compressed file -> its usual suffix.
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2", b"\xfd7zXZ": ".xz"}
COMPRESSED = tuple(_MAGIC.values())


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system or a decompressor says about a file into one sentence."""
    try:
        yield
    except PermissionError as error:
        raise InvalidInputError(f"{path} may not be read ({error.strerror}); ask for the right to read it.") from error
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, DataNotFoundError):
            raise
        raise DamagedFileError(f"{path} cannot be read to its end ({said(error)}); get the file again.") from error


def said(error: Exception) -> str:
    r"""What a library said, in one line of reasonable length.

    Examples
    --------
    >>> said(ValueError("first\nsecond"))
    'first second'
    """
    return " ".join(str(error).split())[:200]


def find_path(path: str | Path) -> Path:
    """Return the path of a file that can be opened and is not empty, or of a folder.

    Examples
    --------
    >>> find_path("absent.csv")
    Traceback (most recent call last):
    ...
    momentalign.errors.DataNotFoundError: absent.csv is not there; give the path of a table or of a folder of images.
    """
    place = Path(path)
    with reading(place):
        if not place.exists():
            raise DataNotFoundError(f"{place} is not there; give the path of a table or of a folder of images.")
        if place.is_dir():
            return place
        if not place.is_file():
            raise InvalidInputError(f"{place} is not a plain file; give the path of one.")
        with place.open("rb") as file:
            if not file.read(1):
                raise InvalidInputError(f"{place} is empty; give a file with a row of names and rows of values.")
    return place


def compression(path: Path) -> str:
    """Return the suffix that belongs to the compression of a file's content, or ``""``; the name must not deny it."""
    with path.open("rb") as file:
        head = file.read(8)
    found = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")
    if path.suffix in COMPRESSED and path.suffix != found:
        actual = f"compressed as {found}" if found else "not compressed"
        raise InvalidInputError(f"{path} ends in {path.suffix} but its content is {actual}; rename it.")
    return found


def open_bytes(path: Path) -> IO[bytes]:
    """Open the decompressed content of a file."""
    match compression(path):
        case ".gz":
            return cast("IO[bytes]", gzip.open(path))
        case ".bz2":
            return cast("IO[bytes]", bz2.open(path))
        case ".xz":
            return lzma.open(path)
        case ".zst":
            pyarrow = need("pyarrow")
            return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd"))
    return path.open("rb")

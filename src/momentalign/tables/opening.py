"""Opening a file of a user: plain or compressed, and what can be wrong before its content is looked at.

Libraries that not every installation has, asked for where they are used.

Which format a file has: by its content first, by its name where the content can be several.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, cast, get_args

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError

__all__ = [
    "COMPRESSED",
    "FileFormat",
    "compression",
    "find_format",
    "find_path",
    "need",
    "open_bytes",
    "reading",
    "said",
]


def need(module: str, *, extra: str = "tables") -> Any:
    """Return a module, or say what to install.

    Examples
    --------
    >>> need("pyarrow.csv").__name__
    'pyarrow.csv'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise InvalidInputError(
            f"{name} is needed to read this file and is not installed; pip install 'momentalign[{extra}]'."
        ) from error


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


FileFormat: TypeAlias = Literal["csv", "parquet", "npz", "svmlight", "images"]

_SUFFIXES: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".npy": "npz",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".svm": "svmlight",
}
_HEAD = 2**16
# A number for the label, perhaps a query, then index:value; a row of zeros has none of these.
_SVMLIGHT_LINE = re.compile(rb"\s*[-+.\deE]+(\s+qid:\d+)?(?P<values>(\s+\d+:[^\s:]+)*)\s*(#.*)?")


def find_format(path: Path, file_format: FileFormat | None = None) -> FileFormat:
    r"""Return the format of a file or folder that is there.

    Parameters
    ----------
    path
        The file; a folder holds images.
    file_format
        The format where it is known; None looks at the content.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.txt"
    ...     _ = file.write_text("1 3:0.5 7:2\n-1 2:1\n")
    ...     find_format(file)
    'svmlight'
    """
    if file_format is not None and file_format not in get_args(FileFormat):
        known = ", ".join(get_args(FileFormat))
        raise InvalidInputError(f"file_format must be one of {known}, got {file_format!r}.")
    if path.is_dir():
        if file_format not in (None, "images"):
            raise InvalidInputError(f"{path} is a folder, not a {file_format} file; give the path of one file in it.")
        return "images"
    if file_format == "images":
        raise InvalidInputError(f"{path} is a file; images are read from a folder with one subfolder per class.")
    return file_format or _by_content(path)


def _by_content(path: Path) -> FileFormat:
    with reading(path), open_bytes(path) as file:
        head = file.read(_HEAD)
    suffix = (Path(path.stem) if path.suffix in COMPRESSED else path).suffix
    named = _SUFFIXES.get(suffix.lower())
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"\x93NUMPY") or _is_archive(path, head):
        return "npz"
    if named in ("parquet", "npz"):
        raise DamagedFileError(
            f"{path} is named like a {named} file but does not begin like one; get it again or rename it."
        )
    if named == "svmlight" or _looks_like_svmlight(head):
        return "svmlight"
    return "csv"


def _is_archive(path: Path, head: bytes) -> bool:
    if not head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return False
    if path.suffix.lower() != ".npz" and not _holds_arrays(path):
        raise InvalidInputError(
            f"{path} is a ZIP archive without numpy arrays (an Excel file is one too); unpack it or save it as CSV."
        )
    return True


def _holds_arrays(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def _looks_like_svmlight(head: bytes) -> bool:
    # The last line of a head is cut.
    lines = head.splitlines()[:-1] if len(head) == _HEAD else head.splitlines()
    lines = [line for line in lines if line.partition(b"#")[0].strip()]
    matches = [_SVMLIGHT_LINE.fullmatch(line) for line in lines[:20]]
    return all(matches) and any(match["values"] for match in matches if match)

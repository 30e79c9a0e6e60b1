"""Which format a file has: by its content first, by its name where the content can be several."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from momentalign.data.tables.opening import COMPRESSED, open_bytes, reading
from momentalign.errors import DamagedFileError, InvalidInputError

__all__ = ["FileFormat", "find_format"]

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

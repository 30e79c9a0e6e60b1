"""Opening a file of a user: is it there, is it compressed, which format does it have, and may an output replace it.

The format is found by the content first, and by the name where several formats share their content.
"""

from __future__ import annotations

import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal, TypeAlias, cast

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError, MomentAlignError, printable
from momentalign.files import check_path

__all__ = ["FileFormat", "check_outputs", "find_format", "find_path", "one_line", "open_bytes", "reading"]

FileFormat: TypeAlias = Literal["csv", "parquet", "feather", "jsonlines", "excel", "npz", "svmlight", "images"]

# The first bytes of a compressed file, its usual suffix, and the codec of Arrow that reads it.
_COMPRESSED = {
    b"\x1f\x8b": (".gz", "gzip"),
    b"\x28\xb5\x2f\xfd": (".zst", "zstd"),
    b"BZh": (".bz2", "bz2"),
    b"\xfd7zXZ": (".xz", "xz"),
}
_SUFFIXES: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".json": "jsonlines",
    ".jsonl": "jsonlines",
    ".ndjson": "jsonlines",
    ".feather": "feather",
    ".arrow": "feather",
    ".npz": "npz",
    ".npy": "npz",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".svm": "svmlight",
}
_HEAD = 2**16
# A number for the label, perhaps a query, then index:value; a row of zeros has none of these.
_SVMLIGHT_LINE = re.compile(rb"\s*[-+.\deE]+(\s+qid:\d+)?(?P<values>(\s+\d+:[^\s:]+)*)\s*(#.*)?")


@contextmanager
def reading(path: Path, what: str = "", damages: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn what the system, a decompressor or a library says about a file into one sentence.

    `damages` are the errors that a library raises where a file is not a whole one of its kind, `what`.
    """
    try:
        yield
    except MomentAlignError:
        raise
    except PermissionError as error:
        raise InvalidInputError(f"{path} may not be read ({error.strerror}); ask for the right to read it.") from error
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise DamagedFileError(f"{path} cannot be read to its end ({one_line(error)}); get the file again.") from error
    except damages as error:
        raise DamagedFileError(f"{path} is not a whole {what} ({one_line(error)}); get or save it again.") from error


def one_line(error: Exception) -> str:
    r"""The message of a library in one line of reasonable length.

    Examples
    --------
    >>> one_line(ValueError("first\nsecond"))
    'first second'
    """
    return printable(str(error))[:200]


def find_path(path: str | Path) -> Path:
    """Return the path of a file that can be opened and is not empty, or of a folder.

    Examples
    --------
    >>> find_path("absent.csv")
    Traceback (most recent call last):
    ...
    momentalign.errors.DataNotFoundError: absent.csv is not there; give the path of a table or of a folder of images.
    """
    found = check_path(path)
    with reading(found):
        if not found.exists():
            raise DataNotFoundError(f"{found} is not there; give the path of a table or of a folder of images.")
        if found.is_dir():
            return found
        if not found.is_file():
            raise InvalidInputError(f"{found} is not a plain file; give the path of one.")
        with found.open("rb") as file:
            if not file.read(1):
                raise InvalidInputError(f"{found} is empty; give a file with a row of names and rows of values.")
    return found


def open_bytes(path: Path) -> IO[bytes]:
    """Open the decompressed content of a file; its name must not claim another compression than it has."""
    import pyarrow

    with path.open("rb") as file:
        head = file.read(8)
    suffix, codec = next((found for magic, found in _COMPRESSED.items() if head.startswith(magic)), ("", ""))
    if path.suffix in {known for known, _ in _COMPRESSED.values()} and path.suffix != suffix:
        actual = f"compressed as {suffix}" if suffix else "not compressed"
        raise InvalidInputError(f"{path} ends in {path.suffix} but its content is {actual}; rename it.")
    if codec == "xz":  # the only one that Arrow does not know
        return lzma.open(path)
    if codec:
        return cast("IO[bytes]", io.BufferedReader(pyarrow.input_stream(str(path), compression=codec)))
    return path.open("rb")


def find_format(path: Path) -> FileFormat:
    r"""Return the format of a file that is there by its content; a folder holds images.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.txt"
    ...     _ = file.write_text("1 3:0.5 7:2\n-1 2:1\n")
    ...     find_format(file)
    'svmlight'
    """
    if path.is_dir():
        return "images"
    with open_bytes(path) as file:
        head = file.read(_HEAD)
    compressed = path.suffix in {suffix for suffix, _ in _COMPRESSED.values()}
    named = _SUFFIXES.get((Path(path.stem) if compressed else path).suffix.lower())
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"ARROW1"):
        return "feather"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _format_of_archive(path)
    if head.startswith(b"\x93NUMPY"):
        return "npz"
    if named in ("parquet", "feather", "npz"):
        raise DamagedFileError(
            f"{path} is named like a {named} file but does not begin like one; get it again or rename it."
        )
    if head.lstrip().startswith(b"{"):
        return "jsonlines"
    if named == "jsonlines":
        raise InvalidInputError(f"{path} does not begin with an object of JSON; write one object a line.")
    return "svmlight" if named == "svmlight" or _looks_like_svmlight(head) else "csv"


def _format_of_archive(path: Path) -> FileFormat:
    """Tell numpy arrays and a workbook, both ZIP archives, from any other."""
    names: list[str] = []
    with suppress(zipfile.BadZipFile, ValueError, NotImplementedError), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if path.suffix.lower() == ".npz" or any(name.endswith(".npy") for name in names):
        return "npz"
    if "xl/workbook.xml" in names:
        return "excel"
    raise InvalidInputError(f"{path} is a ZIP archive without numpy arrays or a workbook; unpack it or save it as CSV.")


def _looks_like_svmlight(head: bytes) -> bool:
    # The last line of a head may be cut off.
    lines = head.splitlines()[:-1] if len(head) == _HEAD else head.splitlines()
    lines = [line for line in lines if line.partition(b"#")[0].strip()]
    matches = [_SVMLIGHT_LINE.fullmatch(line) for line in lines[:20]]
    return all(matches) and any(match["values"] for match in matches if match)


def check_outputs(outputs: Mapping[str, Path], inputs: Iterable[str | Path] = ()) -> None:
    """Refuse outputs of one name, and an output that is a file that is read.

    Parameters
    ----------
    outputs
        What each output is, as a message calls it, and its path.
    inputs
        The files and folders that are read; addresses of databases are none.

    Examples
    --------
    >>> check_outputs({"the page": Path("r.json"), "its results": Path("r.json")})
    Traceback (most recent call last):
    ...
    momentalign.errors.InvalidInputError: r.json would be both the page and its results; give another name to --out.
    """
    taken: dict[Path, str] = {}
    sources = {Path(path).resolve() for path in inputs}
    for what, path in outputs.items():
        resolved = check_path(path).resolve()
        if resolved in sources or any(path.exists() and other.exists() and path.samefile(other) for other in sources):
            raise InvalidInputError(f"{path} is the file that is read and would be {what}; give another name to --out.")
        if resolved in taken:
            raise InvalidInputError(f"{path} would be both {taken[resolved]} and {what}; give another name to --out.")
        taken[resolved] = what

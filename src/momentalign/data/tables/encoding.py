"""The encoding of a text file, found by one reading of its bytes; nothing is guessed from a part of it."""

from __future__ import annotations

import codecs
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from momentalign.data.tables.opening import open_bytes, reading
from momentalign.errors import InvalidInputError, MomentAlignWarning

__all__ = ["Scan", "scan_text"]

_BLOCK = 2**20
# UTF-32 before UTF-16: its mark begins with the other's.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Latin-1 has control characters here, Windows-1252 the euro sign and typographic quotes.
_WINDOWS = re.compile(rb"[\x80-\x9f]")


class Scan(NamedTuple):
    """What one reading of a text file found."""

    encoding: str
    sample: str
    odd_quotes: bool


def scan_text(path: Path) -> Scan:
    """Return the encoding of a file, its first megabyte as text, and whether its quotes fail to pair up.

    A file without a mark at its start is UTF-8 if all its bytes are, else Windows-1252 or Latin-1. Every encoding
    other than UTF-8 is named in a warning.
    """
    with reading(path):
        head = next(_blocks(path), b"")
        encoding = _marked(head) or "utf-8"
        valid, quotes = _read_through(path, encoding)
        if not valid and encoding == "utf-8":
            encoding = "cp1252" if any(map(_WINDOWS.search, _blocks(path))) else "latin-1"
            valid, _ = _read_through(path, encoding)
    if not valid:
        raise InvalidInputError(f"{path} looks like a text in {encoding} but is not all of it; save it as UTF-8.")
    if not encoding.startswith("utf-8"):
        warnings.warn(
            f"{path} is not in UTF-8 and is read as {encoding}; save it as UTF-8 if letters come out wrong.",
            MomentAlignWarning,
            stacklevel=2,
        )
    return Scan(encoding, codecs.getincrementaldecoder(encoding)().decode(head), odd_quotes=quotes % 2 == 1)


def _blocks(path: Path) -> Iterator[bytes]:
    with open_bytes(path) as file:
        while block := file.read(_BLOCK):
            yield block


def _marked(head: bytes) -> str | None:
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    # Latin letters in UTF-16 have 0 in every second byte.
    even, odd = head[0:1000:2], head[1:1000:2]
    if odd.count(0) > 0.6 * len(odd) and 0 not in even:
        return "utf-16-le"
    if even.count(0) > 0.6 * len(even) and 0 not in odd:
        return "utf-16-be"
    return None


def _read_through(path: Path, encoding: str) -> tuple[bool, int]:
    """Return whether all of a file is in an encoding, and how many quotes it has."""
    decoder = codecs.getincrementaldecoder(encoding)()
    place = quotes = 0
    try:
        for block in _blocks(path):
            if not encoding.startswith(("utf-16", "utf-32")) and (offset := block.find(0)) >= 0:
                raise InvalidInputError(
                    f"{path} holds a NUL byte at byte {place + offset}, which no table in text has; export it again."
                )
            decoder.decode(block)
            place += len(block)
            quotes += block.count(b'"')
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False, 0
    return True, quotes

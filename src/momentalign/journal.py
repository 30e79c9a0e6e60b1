"""An append-only journal of finished cells: one line of JSON each, so that a stopped run goes on where it stopped.

The experiments of Section 6 are grids of cells (task, method, seed). The first line of a journal says which run it is;
every further line is one finished cell with its result. Each line carries a digest of itself and is written in one
piece and flushed, so whatever kills the writer costs the last line at most. Nothing in a journal is ever rewritten.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError
from momentalign.files import check_path, flush_folder

if sys.platform != "win32":
    import fcntl

__all__ = ["Journal", "cell_key"]

FORMAT = "momentalign journal"
FORMAT_VERSION = 1
HEAD = f'{{"digest":"{"?" * 16}","format":"{FORMAT}",'.encode()  # how a header begins, whatever its digest
DIFFERENCES = 5  # shown when a journal turns out to be another run's


def cell_key(cell: Mapping[str, Any]) -> str:
    """Return a cell as canonical JSON: names sorted, no spaces; equal cells have equal keys.

    Examples
    --------
    >>> cell_key({"task": "books->dvd", "seed": 0}) == cell_key({"seed": 0, "task": "books->dvd"})
    True
    """
    return _canonical(dict(cell), "cell")


class Journal:
    """The finished cells of one run, in a file that several processes may append to at once.

    Parameters
    ----------
    path
        The file; made, with its folder, where it is missing.
    identity
        What makes results comparable: the experiment, protocol, versions, checksums of the data. A journal that was
        begun with another identity is refused.
    fresh
        Forget what the journal holds and begin anew. A file that is no journal is refused all the same.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> journal = Journal(Path(folder.name) / "cells.jsonl", {"what": "sentiment"})
    >>> journal.append({"task": "books->dvd", "seed": 0}, {"accuracy": 0.8})
    >>> journal.done()
    {'{"seed":0,"task":"books->dvd"}': {'accuracy': 0.8}}
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path = check_path(path)
        self.identity: dict[str, Any] = json.loads(_canonical(dict(identity), "identity"))
        with _naming(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._begin(fresh=fresh)
        self.done()

    def done(self) -> dict[str, Any]:
        """Return the result of every finished cell by its key; of a cell that was written twice the first counts."""
        # Without the lock one could see the instant in which another process has emptied the file to begin anew.
        with _naming(self.path), _opened(self.path, os.O_RDONLY) as handle, _locked(handle, shared=True):
            # After the last newline stands nothing, or what a killed writer began.
            *lines, _ = _content(handle).split(b"\n")
        self._check_header(lines[0] if lines else b"")
        results: dict[str, Any] = {}
        for number, line in enumerate(lines[1:], start=2):
            entry = self._entry(line, number, {"cell": dict, "result": dict})
            results.setdefault(cell_key(entry["cell"]), entry["result"])
        return results

    def append(self, cell: Mapping[str, Any], result: dict[str, Any]) -> None:
        """Write one finished cell; when this returns it is on the disk."""
        line = _seal({"cell": dict(cell), "result": result}, "cell and result")
        with _naming(self.path), _opened(self.path, os.O_RDWR) as handle, _locked(handle):
            _cut_torn_line(handle)
            _write(handle, line)

    def _begin(self, *, fresh: bool) -> None:
        """Write the header, unless there is one already."""
        body = {"format": FORMAT, "format_version": FORMAT_VERSION, "identity": self.identity}
        header = _seal(body)
        with _opened(self.path, os.O_RDWR | os.O_CREAT) as handle, _locked(handle):
            content = _content(handle)
            if fresh and not _begins_as_journal(content):
                raise InvalidInputError(
                    f"{self.path} is no journal of momentalign and is left alone; give another folder."
                )
            # A file that is no beginning of this header belongs to another program.
            if fresh or header[:-1].startswith(content):
                os.ftruncate(handle, 0)
                _write(handle, header)
        flush_folder(self.path.parent)

    def _check_header(self, line: bytes) -> None:
        header = self._entry(line, 1, {"format": str, "format_version": int, "identity": dict})
        if header["format"] != FORMAT or header["format_version"] != FORMAT_VERSION:
            raise DamagedFileError(
                f"{self.path} has format {header['format']!r} {header['format_version']!r}, this version reads "
                f"{FORMAT!r} {FORMAT_VERSION}; give another folder, or start over with --fresh."
            )
        differences = _differences(header["identity"], self.identity)
        if differences:
            raise InvalidInputError(
                f"{self.path} belongs to another run: {'; '.join(differences)}; "
                "give another folder, or start over with --fresh."
            )

    def _entry(self, line: bytes, number: int, kinds: Mapping[str, type]) -> dict[str, Any]:
        """The content of a line, which has these names with values of these kinds."""
        try:
            body = _unseal(line)
            if set(body) != set(kinds):
                raise ValueError(f"it holds {', '.join(sorted(body))}, not {', '.join(sorted(kinds))}")
            for name, kind in kinds.items():
                if type(body[name]) is not kind:
                    raise ValueError(f"its {name} is {body[name]!r:.40}")
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
            remedy = "give another folder" if number == 1 else "remove that line, or start over with --fresh"
            raise DamagedFileError(f"{self.path}, line {number}, is damaged ({error}); {remedy}.") from error
        return body


def _canonical(value: Any, name: str) -> str:
    """Write plain values as JSON in the one way that keys and digests rely on."""
    message = f"{name} must hold plain finite values that JSON can write, got {value!r:.200}"
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except TypeError as error:
        raise InvalidTypeError(f"{message} ({error}); turn arrays and their numbers into lists and floats.") from error
    except ValueError as error:
        raise InvalidInputError(f"{message} ({error}); replace what is not finite.") from error


def _seal(body: dict[str, Any], name: str = "line") -> bytes:
    """Return a line of JSON that holds a digest of the rest of it."""
    digest = hashlib.sha256(_canonical(body, name).encode()).hexdigest()[:16]
    return f"{_canonical({**body, 'digest': digest}, name)}\n".encode()


def _unseal(line: bytes) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(line)
    body.pop("digest")
    if _seal(body) != line + b"\n":
        raise ValueError("its content does not match its digest")
    return body


def _begins_as_journal(content: bytes) -> bool:
    """Whether this is a journal or what a killed writer left of one."""
    return all(
        found == byte or (byte == ord("?") and found in b"0123456789abcdef")
        for found, byte in zip(content, HEAD, strict=False)
    )


def _differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Say where two identities differ, leaf by leaf."""
    one, other = dict(_leaves(there)), dict(_leaves(here))
    names = [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    parts = [f"{name} is {one.get(name, 'missing')} there and {other.get(name, 'missing')} here" for name in names]
    return [*parts[:DIFFERENCES], *([f"and {len(parts) - DIFFERENCES} more"] if len(parts) > DIFFERENCES else [])]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of nested dictionaries, as JSON, with the path to each."""
    if isinstance(value, dict) and value:
        for key in value:
            yield from _leaves(value[key], f"{name}.{key}" if name else key)
    else:
        yield name, _canonical(value, name)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn an error of the system into one that names the journal and the remedy."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"the journal {path} cannot be read or written ({error.strerror}); give a folder that can be."
        ) from error


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file for reading or appending; what was written is on the disk when it is closed."""
    handle = os.open(path, flags | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    try:
        yield handle
        if flags & os.O_RDWR:
            os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _locked(handle: int, *, shared: bool = False) -> Iterator[None]:
    """Keep writers out: a torn line must be told from one that is being written."""
    if sys.platform == "win32":
        yield  # Windows has no such lock: there one process at a time may write.
        return
    fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


def _cut_torn_line(handle: int) -> None:
    """Cut off what a killed writer left after the last newline, so that no line is glued to it."""
    os.lseek(handle, -1, os.SEEK_END)
    if os.read(handle, 1) != b"\n":
        os.ftruncate(handle, _content(handle).rfind(b"\n") + 1)


def _content(handle: int) -> bytes:
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, os.fstat(handle).st_size)


def _write(handle: int, line: bytes) -> None:
    if os.write(handle, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

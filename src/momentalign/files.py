"""Files that are whole at any moment: the old content or the new one, whatever happens in between."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO

__all__ = ["flush_folder", "remove_leftovers", "replace_file", "whole_file"]

RANDOM_LETTERS = 8  # that tempfile gives to a name


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that at any moment its old or its new content is there, whole; nothing else is left behind."""
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write part by part; it takes its name when all is written, and on any error nothing is left.

    What a killed writer of the same file left is removed first.
    """
    remove_leftovers(path.parent, escape(path.name))
    handle, temporary = _temporary(path)
    with _still_locked(handle):
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            Path(temporary).chmod(0o666 & ~umask)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    flush_folder(path.parent)


def remove_leftovers(folder: Path, names: str) -> None:
    """Remove what killed writers of some files left in a folder; `names` is a pattern as of a shell.

    A living writer holds a lock on its file, which ends with its process however that ends.
    """
    for leftover in folder.glob(f".{names}.{'[a-z0-9_]' * RANDOM_LETTERS}"):
        with suppress(OSError), leftover.open("r+b") as file:
            if _lock(file.fileno()):
                leftover.unlink()


def _temporary(path: Path) -> tuple[int, str]:
    """Open a locked file beside a path; one that another process took for a leftover before the lock is let go."""
    while True:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        if _lock(handle) and os.fstat(handle).st_nlink:
            return handle, temporary
        os.close(handle)


def _lock(handle: int) -> bool:
    """Take the lock of an open file if nobody holds it."""
    if os.name != "posix":
        return True  # Windows does not remove files that are open.
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _still_locked(handle: int) -> Iterator[None]:
    """Keep the lock of a file while it is closed and renamed."""
    if os.name != "posix":
        yield
        return
    kept = os.dup(handle)
    try:
        yield
    finally:
        os.close(kept)


def flush_folder(folder: Path) -> None:
    """Make names of new files in a folder last."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

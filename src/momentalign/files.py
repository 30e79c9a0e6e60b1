"""Files: whole at any moment, checked before they are used, never executed.

A *file* is written beside its path, flushed and renamed: whatever happens, its old or its new content is there.

A *folder* holds a model: arrays in a safetensors file named after its digest, and a JSON manifest that names it. The
manifest is renamed last, so at any moment the folder holds a whole model, the old or the new one, whoever writes.
Reading checks digests before anything is parsed. Only files that momentalign wrote are replaced or removed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError, InvalidTypeError
from momentalign.tensors import strict_json, unpack_tensors

if sys.platform != "win32":
    import fcntl

__all__ = [
    "check_folder",
    "check_path",
    "flush_folder",
    "read_folder",
    "remove_leftovers",
    "replace_file",
    "whole_file",
    "write_folder",
]

POSIX = os.name == "posix"
# A file that is being written is called ".NAME.momentalign-" and so many random letters.
UNFINISHED = ".momentalign-"
RANDOM_LETTERS = 16


def check_path(path: object, name: str = "path") -> Path:
    """Return the path that a file or folder can have, whether or not it is there.

    Examples
    --------
    >>> check_path(3)
    Traceback (most recent call last):
    ...
    momentalign.errors.InvalidTypeError: path must be a path, got 3.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(text := os.fspath(path), str):
        raise InvalidTypeError(f"{name} must be a path, got {path!r:.80}.")
    if not text or "\0" in text:
        raise InvalidInputError(f"{name} names no file, got {text!r:.80}; give the path of one.")
    try:
        Path(text).stat()
    except UnicodeEncodeError:  # half of a surrogate pair that no bytes of a name stand for
        raise InvalidInputError(f"{name} is not valid Unicode, got {text!r:.80}; give another.") from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise InvalidInputError(
                f"{name} cannot be opened ({error.strerror}), got {text!r:.80}; give another."
            ) from None
    return Path(text)


# Files


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that at any moment its old or its new content is there, whole; nothing else is left behind."""
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write part by part; it takes its name when all is written, and on any error nothing is left.

    What a killed writer of the same file left is removed first. A device or a pipe is not replaced.
    """
    if not path.name or (path.exists() and not path.is_file()):
        raise InvalidInputError(f"{path} is not a plain file, which could be replaced; name a file.")
    remove_leftovers(path.parent, escape(path.name))
    handle, unfinished = _open_beside(path)
    # A copy of the handle keeps the lock while the file is closed and renamed; Windows renames no open file.
    lock = os.dup(handle) if POSIX else None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)
    flush_folder(path.parent)


def _open_beside(path: Path) -> tuple[int, Path]:
    """Make a locked file beside a path, with the rights that the system gives to new files."""
    while True:
        unfinished = path.with_name(f".{path.name}{UNFINISHED}{secrets.token_hex(RANDOM_LETTERS // 2)}")
        handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        # Before it was locked another process may have taken it for a leftover.
        if _lock(handle) and os.fstat(handle).st_nlink:
            return handle, unfinished
        os.close(handle)


def remove_leftovers(folder: Path, names: str) -> None:
    """Remove what killed writers of some files left in a folder; `names` is a pattern as of a shell.

    A living writer holds a lock on its file, which ends with its process however that ends.
    """
    for leftover in folder.glob(f".{names}{UNFINISHED}{'[0-9a-f]' * RANDOM_LETTERS}"):
        with suppress(OSError), leftover.open("r+b") as file:
            if _lock(file.fileno()):
                leftover.unlink()


def _lock(handle: int) -> bool:
    """Take the lock of an open file if nobody holds it; Windows needs none, as it removes no open file."""
    if sys.platform != "win32":
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def flush_folder(folder: Path) -> None:
    """Make names of new files in a folder last."""
    if not POSIX:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Folders

MANIFEST = "manifest.json"
WEIGHTS = re.compile(r"weights-([0-9a-f]{16})\.safetensors")
FORMAT = "momentalign model"
FORMAT_VERSION = 1
# A manifest is a page of text; anything larger is none.
LARGEST_MANIFEST = 64 * 2**20
FORMAT_LINE = f'"format": "{FORMAT}"'.encode()
# In a manifest only its own digest stands so far to the left.
DIGEST_LINE = re.compile(rb'\n "digest": "([0-9a-f]{64})",')
# A link could lead anywhere, and a pipe would wait for a writer.
FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


def write_folder(path: str | Path, arrays: Mapping[str, NDArray[Any]], description: Mapping[str, Any]) -> None:
    """Write arrays and a JSON description to a folder, replacing the model it held in one step."""
    from safetensors.numpy import save

    folder = check_path(path)
    packed = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    digest = hashlib.sha256(packed).hexdigest()
    weights = folder / f"weights-{digest[:16]}.safetensors"
    body = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "files": {weights.name: digest},
        "bytes": len(packed),
        "description": dict(description),
    }
    manifest = _seal(body)
    with _naming_failures(folder), _only_writer(folder) as made:
        earlier = _earlier_weights(folder)
        try:
            replace_file(weights, packed)
            replace_file(folder / MANIFEST, manifest)
        except BaseException:
            if not (folder / MANIFEST).is_file() or (folder / MANIFEST).read_bytes() != manifest:
                if weights not in earlier:
                    weights.unlink(missing_ok=True)
                if made:
                    folder.rmdir()
            raise
        remove_leftovers(folder, "weights-*.safetensors")
        for stale in earlier:
            if stale != weights:
                stale.unlink()


def check_folder(path: str | Path) -> None:
    """Refuse a folder that :func:`write_folder` would, before minutes are spent on training; nothing is left behind."""
    folder = check_path(path)
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    with _naming_failures(folder):
        with tempfile.TemporaryFile(dir=existing):
            pass
        if existing == folder:
            with _folder_lock(folder, shared=True):
                _earlier_weights(folder)


@contextmanager
def _naming_failures(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(
            f"the model cannot be written to {folder} ({reason}); give a folder that can be."
        ) from error


@contextmanager
def _only_writer(folder: Path) -> Iterator[bool]:
    """Keep other writers out of a folder, which is made where it is missing; yield whether it was."""
    while True:
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        with _folder_lock(folder, shared=False) as still_there:
            if still_there:
                yield made
                return


@contextmanager
def _folder_lock(folder: Path, *, shared: bool) -> Iterator[bool]:
    """Wait for the lock of a folder, which ends with its process; yield whether the folder is still there then.

    On Windows and on network file systems without locks nobody waits: there one process at a time may write.
    """
    if sys.platform == "win32":
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        # A writer that failed removes the folder it made, and another may have made a new one.
        yield folder.exists() and os.path.samestat(os.fstat(handle), folder.stat())
    finally:
        # A process that was forked meanwhile has a copy of the handle.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _earlier_weights(folder: Path) -> list[Path]:
    """Return the weights of earlier models in a folder; a manifest or weights of another program are refused."""
    manifest = b""
    if os.path.lexists(folder / MANIFEST):
        with suppress(DamagedFileError):
            manifest = bytes(_read_member(folder, MANIFEST, largest=LARGEST_MANIFEST))
        if FORMAT_LINE not in manifest:
            raise _foreign(folder, MANIFEST)
    weights = list(folder.glob("weights-*.safetensors"))
    for path in weights:
        name = WEIGHTS.fullmatch(path.name)
        # Weights that no manifest names are those of a killed writer, if their name holds their digest.
        if name is None or not (path.name.encode() in manifest or _digest(path).startswith(name[1])):
            raise _foreign(folder, path.name)
    return weights


def _foreign(folder: Path, name: str) -> InvalidInputError:
    return InvalidInputError(
        f"the model cannot be written to {folder}, whose {name} momentalign did not write; give another folder, or "
        "move that file away."
    )


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(_read_member(path.parent, path.name)).hexdigest()
    except DamagedFileError:
        return ""


def read_folder(path: str | Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the description of a folder written by :func:`write_folder`, or raise."""
    folder = check_path(path)
    if not (folder / MANIFEST).is_file():
        raise DataNotFoundError(f"{folder} holds no {MANIFEST}; give the folder that save() wrote.")
    # A writer may replace the model between a look at the manifest and one at the weights; then look again without it.
    with suppress(DamagedFileError):
        return _read_model(folder)
    with _folder_lock(folder, shared=True):
        return _read_model(folder)


def _read_model(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    body = _unseal(folder / MANIFEST)
    _check_format(folder, body)
    ((name, digest),) = body["files"].items()
    packed = _read_member(folder, name, size=body.get("bytes"))
    if hashlib.sha256(packed).hexdigest() != digest:
        raise DamagedFileError(f"{folder / name} is damaged: its digest is not the one in the manifest; save it again.")
    try:
        arrays = unpack_tensors(packed)
    except ValueError as error:
        raise DamagedFileError(f"{folder / name} is not a safetensors file ({error}); save it again.") from error
    for key, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DamagedFileError(f"{folder / name} holds values that are not finite in {key!r}; train it again.")
    return arrays, body["description"]


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()


def _seal(body: Mapping[str, Any]) -> bytes:
    return _canonical({**body, "digest": hashlib.sha256(_canonical(body)).hexdigest()})


def _unseal(path: Path) -> dict[str, Any]:
    """Read a manifest whose every byte is accounted for by its digest, which is checked before anything is parsed."""
    content = _read_member(path.parent, path.name, largest=LARGEST_MANIFEST)
    line = DIGEST_LINE.search(content)
    if line is None:
        raise DamagedFileError(f"{path} is not a manifest of momentalign (it has no digest); save the model again.")
    digest = hashlib.sha256(memoryview(content)[: line.start()])
    digest.update(memoryview(content)[line.end() :])
    if digest.hexdigest() != line[1].decode():
        raise DamagedFileError(f"{path} is damaged: its content does not match its digest; save the model again.")
    try:
        body = dict(strict_json(content))
        del body["digest"]
        if content != _seal(body):
            raise ValueError("it is laid out in another way")
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{path} is not a manifest of momentalign ({error}); save the model again.") from error
    return body


def _read_member(folder: Path, name: str, *, size: int | None = None, largest: int | None = None) -> bytearray:
    """Read a plain file through one opening: what is looked at is what is read. A wrong size costs no reading."""
    path = folder / name
    try:
        handle = os.open(path, FLAGS)
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{path} is missing or not a plain file; save the model again.") from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFileError(f"{path} is missing or not a plain file; save the model again.")
        if largest is not None and found.st_size > largest:
            raise DamagedFileError(f"{path} is larger than any manifest; save the model again.")
        if size is not None and found.st_size != size:
            raise DamagedFileError(f"{path} is damaged: it has {found.st_size} bytes, not {size}; save it again.")
        content = bytearray(found.st_size)
        with os.fdopen(handle, "rb", closefd=False) as file:
            if file.readinto(content) != len(content):
                raise DamagedFileError(f"{path} became shorter while it was read; save the model again.")
    finally:
        os.close(handle)
    return content


def _check_format(folder: Path, body: Mapping[str, Any]) -> None:
    version = body.get("format_version")
    if body.get("format") != FORMAT or type(version) is not int or version < 1:
        raise DamagedFileError(f"{folder} is not a model of momentalign; give the folder that save() wrote.")
    if version > FORMAT_VERSION:
        raise DamagedFileError(
            f"{folder} was written by a newer momentalign (format {version}, this one reads {FORMAT_VERSION}); upgrade."
        )
    files = body.get("files")
    named = isinstance(files, dict) and len(files) == 1 and isinstance(body.get("description"), dict)
    if not named or not all(WEIGHTS.fullmatch(name) for name in files or ()):
        raise DamagedFileError(f"{folder} has a manifest that names no or foreign files; save the model again.")

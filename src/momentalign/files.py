"""Files that are whole at any moment: the old content or the new one, whatever happens in between.

Folders of numbers: arrays in safetensors, the rest in a JSON manifest, digests checked before anything is built.

Order of writing: arrays under a name that holds their digest, then the manifest that names them, each to a temporary
file that is flushed and renamed. At any moment the folder holds a whole model, the old or the new one.
Order of reading: read, check digests, check schema, build. Nothing in a folder is ever executed.

The arrays of a safetensors file, as windows on its bytes: nothing is copied, nothing is believed.

The format: the length of a header in eight bytes, the header in JSON, then the numbers. Tensors must follow each other
without a gap or an overlap up to the last byte, and no name may stand twice, so that every reader sees the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError

__all__ = [
    "flush_folder",
    "read_folder",
    "read_header",
    "remove_leftovers",
    "replace_file",
    "strict_json",
    "unpack_tensors",
    "whole_file",
    "write_folder",
]

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


# Types that numpy has too.
TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip
LENGTH = 8
NOTES = "__metadata__"


def unpack_tensors(packed: bytearray) -> dict[str, NDArray[Any]]:
    """Return the arrays of a safetensors file by their names; they share its memory.

    Examples
    --------
    >>> from safetensors.numpy import save
    >>> unpack_tensors(bytearray(save({"bias": np.arange(3.0)})))
    {'bias': array([0., 1., 2.])}
    """
    header, start = read_header(packed)
    header.pop(NOTES, None)
    arrays: dict[str, NDArray[Any]] = {}
    place = 0
    for name, entry in sorted(header.items(), key=lambda item: _offsets(*item)):
        begin, end = _offsets(name, entry)
        if begin != place:
            raise ValueError(f"tensor {name!r:.80} does not begin where the one before it ends")
        arrays[name] = _window(packed, start, name, entry)
        place = end
    if start + place != len(packed):
        raise ValueError(f"its tensors take {place} bytes of {len(packed) - start}")
    return arrays


def read_header(packed: bytes | bytearray) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file and where its numbers begin; `packed` may end there."""
    start = LENGTH + int.from_bytes(packed[:LENGTH], "little")
    if not LENGTH < start <= len(packed):
        raise ValueError(f"its header should take {start - LENGTH} of {len(packed)} bytes")
    header = strict_json(packed[LENGTH:start])
    if not isinstance(header, dict):
        raise ValueError("its header names no tensors")
    return header, start


def strict_json(content: bytes | bytearray) -> Any:
    """Read JSON that means the same to every reader: no name twice, finite numbers, any nesting or a ValueError."""
    try:
        text = content.decode("utf-8")
        return json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice")
    return result


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _offsets(name: str, entry: Any) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not (_are_sizes(offsets) and len(offsets) == 2):
        raise ValueError(f"tensor {name!r:.80} has no beginning and end")
    return offsets[0], offsets[1]


def _window(packed: bytearray, start: int, name: str, entry: dict[str, Any]) -> NDArray[Any]:
    shape, kind, (begin, end) = entry.get("shape"), entry.get("dtype"), _offsets(name, entry)
    if not (isinstance(kind, str) and kind in TYPES and _are_sizes(shape)):
        raise ValueError(f"tensor {name!r:.80} has no type and shape that are known")
    dtype = np.dtype(TYPES[kind])
    if math.prod(shape) * dtype.itemsize != end - begin or start + end > len(packed):
        raise ValueError(f"tensor {name!r:.80} has another size than its shape says")
    values = np.frombuffer(packed, dtype, math.prod(shape), start + begin if end > begin else 0)
    return np.require(values.reshape(shape), requirements="A")


def _are_sizes(numbers: Any) -> TypeGuard[list[int]]:
    return isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)


MANIFEST = "manifest.json"
FORMAT = "momentalign model"
FORMAT_VERSION = 1
# A manifest is a page of text; anything larger is not one of ours.
LARGEST_MANIFEST = 64 * 2**20
# In a manifest only its own digest stands so far to the left.
DIGEST_LINE = re.compile(rb'\n "digest": "([0-9a-f]{64})",')
# A link could lead anywhere, and a pipe would wait for a writer.
FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))

Arrays = Mapping[str, NDArray[Any]]


def write_folder(path: str | Path, arrays: Arrays, description: Mapping[str, Any]) -> None:
    """Write arrays and a JSON description to a folder, replacing what it held in one step."""
    from safetensors.numpy import save

    folder = Path(path)
    packed = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    digest = hashlib.sha256(packed).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    body = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "files": {name: digest},
        "bytes": len(packed),
        "description": dict(description),
    }
    try:
        with _undone_on_error(folder, name, sealed := _seal(body)):
            replace_file(folder / name, packed)
            replace_file(folder / MANIFEST, sealed)
        remove_leftovers(folder, "weights-*.safetensors")
        for stale in folder.glob("weights-*.safetensors"):
            if stale.name != name:
                stale.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(
            f"the model cannot be written to {folder} ({reason}); give a folder that can be."
        ) from error


@contextmanager
def _undone_on_error(folder: Path, name: str, sealed: bytes) -> Iterator[None]:
    """Make a folder; on any error remove it and the new weights again, unless the new manifest names them already."""
    made, kept = not folder.exists(), (folder / name).exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        manifest = folder / MANIFEST
        if not (manifest.is_file() and manifest.read_bytes() == sealed):
            if not kept:
                (folder / name).unlink(missing_ok=True)
            if made:
                folder.rmdir()
        raise


def read_folder(path: str | Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the description of a folder written by :func:`write_folder`, or raise."""
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise DataNotFoundError(f"{folder} holds no {MANIFEST}; give the folder that save() wrote.")
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
        raise DamagedFileError(f"{path} is not a manifest of ours (it has no digest); save the model again.")
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
        raise DamagedFileError(f"{path} is not a manifest of ours ({error}); save the model again.") from error
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
    if not named or not all(re.fullmatch(r"weights-[0-9a-f]{16}\.safetensors", name) for name in files or ()):
        raise DamagedFileError(f"{folder} has a manifest that names no or foreign files; save the model again.")

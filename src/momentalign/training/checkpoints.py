"""Folders of numbers: arrays in safetensors, the rest in a JSON manifest, digests checked before anything is built.

Order of writing: arrays under a name that holds their digest, then the manifest that names them, each to a temporary
file that is flushed and renamed. At any moment the folder holds a whole model, the old or the new one.
Order of reading: read, check digests, check schema, build. Nothing in a folder is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.files import remove_leftovers, replace_file
from momentalign.training.tensors import strict_json, unpack_tensors

__all__ = ["read_folder", "write_folder"]

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

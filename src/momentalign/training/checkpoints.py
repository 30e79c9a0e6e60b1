"""Folders of numbers: arrays in safetensors, the rest in a JSON manifest, digests checked before anything is built.

Order of writing: arrays under a name that holds their digest, then the manifest that names them, each to a temporary
file that is flushed and renamed. At any moment the folder holds a whole model, the old or the new one.
Order of reading: read, check digests, check schema, build. Nothing in a folder is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.files import replace_file

__all__ = ["read_folder", "write_folder"]

MANIFEST = "manifest.json"
FORMAT = "momentalign model"
FORMAT_VERSION = 1
# A manifest is a page of text; anything larger is not one of ours.
LARGEST_MANIFEST = 64 * 2**20

Arrays = Mapping[str, NDArray[Any]]


def write_folder(path: str | Path, arrays: Arrays, description: Mapping[str, Any]) -> None:
    """Write arrays and a JSON description to a folder, replacing what it held in one step."""
    from safetensors.numpy import save

    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        packed = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        digest = hashlib.sha256(packed).hexdigest()
        name = f"weights-{digest[:16]}.safetensors"
        replace_file(folder / name, packed)
        body = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "files": {name: digest},
            "description": dict(description),
        }
        replace_file(folder / MANIFEST, _seal(body))
        for stale in folder.glob("weights-*.safetensors"):
            if stale.name != name:
                stale.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(
            f"the model cannot be written to {folder} ({reason}); give a folder that can be."
        ) from error


def read_folder(path: str | Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the description of a folder written by :func:`write_folder`, or raise."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise DataNotFoundError(f"{folder} holds no {MANIFEST}; give the folder that save() wrote.")
    body = _unseal(folder / MANIFEST)
    _check_format(folder, body)
    ((name, digest),) = body["files"].items()
    packed = _read_member(folder, name)
    if hashlib.sha256(packed).hexdigest() != digest:
        raise DamagedFileError(f"{folder / name} is damaged: its digest is not the one in the manifest; save it again.")
    try:
        arrays = load(packed)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
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
    """Read a manifest whose every byte is accounted for by its digest."""
    content = _read_member(path.parent, path.name, largest=LARGEST_MANIFEST)
    try:
        body = json.loads(content, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
        digest = body.pop("digest")
        whole = content == _seal(body)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise DamagedFileError(f"{path} is not a manifest of ours ({error}); save the model again.") from error
    if not whole or not isinstance(digest, str):
        raise DamagedFileError(f"{path} is damaged: its content does not match its digest; save the model again.")
    return dict(body)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice")
    return result


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _read_member(folder: Path, name: str, *, largest: int | None = None) -> bytes:
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise DamagedFileError(f"{path} is missing or not a plain file; save the model again.")
    if largest is not None and path.stat().st_size > largest:
        raise DamagedFileError(f"{path} is larger than any manifest; save the model again.")
    return path.read_bytes()


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

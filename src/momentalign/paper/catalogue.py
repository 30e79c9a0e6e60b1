"""The data sets of the paper (Section 6.1): what each file is, its licence, its digest, and where it is found.

What is known of them stands in ``data_sets.toml``. Files are looked for in the folder given as ``--data DIR`` or in
``MOMENTALIGN_DATA``, and their SHA-256 is checked before they are read. :mod:`momentalign.paper.originals` downloads
the public originals.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError

__all__ = [
    "DATA_SETS",
    "FILES",
    "BenchmarkFile",
    "DataSet",
    "Original",
    "check_sha256",
    "data_folder",
    "file_sha256",
    "find_data_set",
    "find_file",
]


@dataclass(frozen=True, kw_only=True)
class BenchmarkFile:
    """A file that an experiment reads; `rebuilt_sha256` is the digest of the one rebuilt from the public originals."""

    name: str
    sha256: str
    what: str
    origin: str
    licence: str
    rebuilt_sha256: str | None = None


@dataclass(frozen=True)
class Original:
    """A public file, and its SHA-256 where one was published."""

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return urlsplit(self.url).path.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """What ``momentalign datasets`` knows under one name.

    A folder holds either `files` or `kept`, the originals as published. Of originals without a known digest, `counts`
    says how many paths a pattern must match, and `labels` the SHA-256 of the digits in a list of labels, one byte each.
    Of an archive the files are taken whose names fit `members`.
    """

    name: str
    what: str
    licence: str
    files: tuple[BenchmarkFile, ...]
    originals: tuple[Original, ...] = ()
    kept: tuple[str, ...] = ()
    members: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    note: str = ""


def _load() -> Iterator[DataSet]:
    text = files("momentalign.paper").joinpath("data_sets.toml").read_text(encoding="utf-8")
    for entry in tomllib.loads(text)["data_set"]:
        shared = {"what": entry["what"], "licence": entry["licence"]}
        yield DataSet(
            name=entry["name"],
            files=tuple(BenchmarkFile(**{**shared, **file}) for file in entry["file"]),
            originals=tuple(Original(**original) for original in entry.get("originals", ())),
            kept=tuple(entry.get("kept", ())),
            members=entry.get("members", ""),
            counts=tuple(entry.get("counts", {}).items()),
            labels=tuple(entry.get("labels", {}).items()),
            note=entry.get("note", ""),
            **shared,
        )


DATA_SETS = tuple(_load())
"""What can be asked for by name, in the order of the paper's sections."""

FILES = {file.name: file for data_set in DATA_SETS for file in data_set.files}
"""Every known file."""


def find_data_set(name: str) -> DataSet:
    """Return what is known under a name.

    Examples
    --------
    >>> find_data_set("mnist").kept[0]
    'train-images-idx3-ubyte.gz'
    """
    for data_set in DATA_SETS:
        if data_set.name == name:
            return data_set
    raise InvalidInputError(f"name must be one of {', '.join(known.name for known in DATA_SETS)}, got {name!r}.")


def data_folder(folder: str | Path | None, *, name: str, explanation: str) -> Path:
    """Return the folder of the data sets: `folder`, or the one in ``MOMENTALIGN_DATA``.

    `name` and `explanation` (a sentence) say in the error what is needed.
    """
    found = folder if folder is not None else os.environ.get("MOMENTALIGN_DATA")
    if found is None:
        raise DataNotFoundError(
            f"{name} is needed: give its folder as --data DIR or in MOMENTALIGN_DATA. {explanation}"
        )
    return Path(found)


def find_file(name: str, folder: str | Path | None = None) -> Path:
    """Return the path of a benchmark file whose checksum is right, or say how to get it."""
    file = FILES[name]
    description = f"{file.what}: {file.origin}"
    path = data_folder(folder, name=name, explanation=f"It is {description}.") / name
    if not path.is_file():
        raise DataNotFoundError(
            f"{path} is not there. {name} is {description}; --data DIR says where to look, "
            "momentalign datasets list what can be downloaded."
        )
    check_sha256(path, file.sha256, file.rebuilt_sha256, remedy=f"get it again: {description}")
    return path


def check_sha256(path: Path, *known: str | None, remedy: str) -> None:
    """Refuse a file whose SHA-256 is none of the known ones."""
    digest = file_sha256(path)
    if digest not in known:
        raise DamagedFileError(
            f"{path} is not the file it should be (SHA-256 {digest[:12]}, expected {str(known[0])[:12]}); {remedy}."
        )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()

"""The public originals of the data sets (Section 6.1): downloaded, checked, and made into what the experiments read.

Where all arrays of a benchmark file are in the originals it is rebuilt, with a digest known beforehand: it is written
without compression, whose bytes differ between versions of zlib. Other originals stay as they are. Of an archive only
plain files with the names of a fixed pattern are taken.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.files import replace_file
from momentalign.paper.catalogue import BenchmarkFile, DataSet, file_sha256, find_data_set
from momentalign.paper.download import download, mirrored

__all__ = ["Presence", "State", "get", "look", "save_arrays", "tar_members"]

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
NamedProgress: TypeAlias = Callable[[str, int, int | None], None]
State: TypeAlias = Literal["right", "counted", "damaged", "in part", "absent"]

# Above the largest picture and the largest set; a forged archive cannot fill the disk.
LARGEST_MEMBER, LARGEST_ARCHIVE = 2**24, 2**30
FIRST_BYTES = {".png": b"\x89PNG", ".jpg": b"\xff\xd8", ".txt": b""}


class Presence(NamedTuple):
    """The state of a data set in a folder, and its files; "counted" where no checksum is known but counts are right."""

    state: State
    paths: tuple[Path, ...]


def look(data_set: DataSet, folder: Path) -> Presence:
    """Return the state of a data set in a folder, as benchmark files or as originals.

    Examples
    --------
    >>> from momentalign.paper.catalogue import find_data_set
    >>> look(find_data_set("mnist"), Path("nowhere"))
    Presence(state='absent', paths=())
    """
    files = [folder / file.name for file in data_set.files]
    kept = [folder / name for name in data_set.kept]
    if all(path.is_file() for path in files):
        right = all(map(_is_right, data_set.files, files))
        return Presence("right" if right else "damaged", tuple(files))
    if kept and all(path.exists() for path in kept):
        if data_set.counts:
            return Presence("damaged" if _wrong_content(data_set, folder) else "counted", tuple(kept))
        known = [(original.sha256, folder / original.name) for original in data_set.originals]
        right = all(path.is_file() and file_sha256(path) == sha256 for sha256, path in known)
        return Presence("right" if right else "damaged", tuple(kept))
    some = tuple(path for path in (*files, *kept) if path.exists())
    return Presence("in part" if some else "absent", some)


def get(
    data_set: DataSet,
    folder: Path,
    *,
    mirror: str | None = None,
    progress: NamedProgress = lambda _name, _done, _total: None,
) -> Presence:
    """Download the originals of a data set and make them into what the experiments read; right files are left alone.

    Parameters
    ----------
    data_set
        What to get.
    folder
        Where it goes; made if needed. The digests of the downloads are written to ``<name>.origin.json``.
    mirror
        An address that serves the same paths; its scheme and host replace those of every address.
    progress
        Called with the name of a file, its bytes so far, and all its bytes where the server states them.
    """
    if not data_set.originals:
        raise DataNotFoundError(f"{data_set.name} cannot be downloaded ({data_set.note}).")
    found = look(data_set, folder)
    if found.state in ("right", "counted"):
        return found
    _check_nothing_in_the_way(data_set, folder)
    try:
        downloads = folder / "downloads" / data_set.name
        downloads.mkdir(parents=True, exist_ok=True)
        # Originals without counts are what is read; others are unpacked or rebuilt.
        goal = folder if data_set.kept and not data_set.counts else downloads
        paths = [
            download(
                mirrored(original.url, mirror), goal / original.name, sha256=original.sha256,
                progress=partial(progress, original.name),
            )
            for original in data_set.originals
        ]  # fmt: skip
        record = _record(data_set, paths, mirror)
        _finish(data_set, folder, downloads, paths)
        replace_file(folder / f"{data_set.name}.origin.json", json.dumps(record, indent=1).encode())
        shutil.rmtree(downloads)
        if not any(downloads.parent.iterdir()):
            downloads.parent.rmdir()
    except OSError as error:
        if isinstance(error, DataNotFoundError):
            raise
        raise InvalidInputError(
            f"{error.filename or folder} cannot be written ({error.strerror}); make room or give another folder as "
            "--data DIR."
        ) from error
    return look(data_set, folder)


def save_arrays(arrays: Arrays) -> bytes:
    """Return a numpy archive whose bytes depend on nothing but the arrays and their order.

    Examples
    --------
    >>> with np.load(io.BytesIO(save_arrays({"x": np.arange(3)})), allow_pickle=False) as archive:
    ...     archive["x"].tolist()
    [0, 1, 2]
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            # Else it tells the system it was written on.
            member.create_system, member.external_attr = 3, 0o600 << 16
            values = io.BytesIO()
            np.lib.format.write_array(values, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            archive.writestr(member, values.getvalue())
    return content.getvalue()


def tar_members(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    r"""Yield the first group and the bytes of plain files in a ``.tar.gz`` whose name in the top folder fits a pattern.

    Examples
    --------
    >>> temporary = tempfile.TemporaryDirectory()
    >>> path = Path(temporary.name) / "some.tar.gz"
    >>> with tarfile.open(path, "w:gz") as archive:
    ...     for name in ("top/pictures/1.jpg", "top/../1.jpg"):
    ...         member = tarfile.TarInfo(name)
    ...         member.size = 2
    ...         archive.addfile(member, io.BytesIO(b"JP"))
    >>> list(tar_members(path, r"pictures/(\d+\.jpg)"))
    [('1.jpg', b'JP')]
    >>> temporary.cleanup()
    """
    left = LARGEST_ARCHIVE
    try:
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                found = re.fullmatch(pattern, member.name.partition("/")[2], re.ASCII)
                file = archive.extractfile(member) if found and member.isfile() else None
                if found is None or file is None:
                    continue
                left -= member.size
                if member.size > LARGEST_MEMBER or left < 0:
                    raise DamagedFileError(f"{path} holds {found[1]} of {member.size} bytes, more than is expected.")
                yield found[1], file.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DamagedFileError(f"{path} is not a whole .tar.gz file ({error}).") from error


def _is_right(file: BenchmarkFile, path: Path) -> bool:
    return file_sha256(path) in (file.sha256, file.rebuilt_sha256)


def _is_rebuilt(data_set: DataSet) -> bool:
    return all(file.rebuilt_sha256 is not None for file in data_set.files)


def _check_nothing_in_the_way(data_set: DataSet, folder: Path) -> None:
    """Refuse to write over what a user put there; only a file that is rebuilt is replaced."""
    known = {original.name: original.sha256 for original in data_set.originals}
    kept = [folder / name for name in data_set.kept]
    wrong = [path for path in kept if path.exists() and (path.is_dir() or file_sha256(path) != known.get(path.name))]
    if not _is_rebuilt(data_set):
        files = [(file, folder / file.name) for file in data_set.files]
        wrong += [path for file, path in files if path.is_file() and not _is_right(file, path)]
    if wrong:
        raise InvalidInputError(
            f"{wrong[0]} is there and is not what it should be; move it away, then get {data_set.name} again."
        )


def _record(data_set: DataSet, paths: Sequence[Path], mirror: str | None) -> dict[str, Any]:
    """The digests of what was downloaded, to compare with."""
    pairs = zip(data_set.originals, paths, strict=True)
    return {
        "data_set": data_set.name,
        "originals": [
            {
                "url": mirrored(original.url, mirror),
                "bytes": path.stat().st_size,
                "sha256": file_sha256(path),
                "checksum_known": original.sha256 is not None,
            }
            for original, path in pairs
        ],
    }


def _finish(data_set: DataSet, folder: Path, downloads: Path, paths: list[Path]) -> None:
    """Rebuild or unpack the downloads; what is damaged is removed, so that the next try starts anew."""
    try:
        if _is_rebuilt(data_set):
            (file,) = data_set.files
            content = save_arrays(REBUILD[data_set.name](paths))
            digest = hashlib.sha256(content).hexdigest()
            if digest != file.rebuilt_sha256:
                raise DamagedFileError(
                    f"{file.name} made of the downloads is not what it should be (SHA-256 {digest[:12]}, expected "
                    f"{str(file.rebuilt_sha256)[:12]})."
                )
            replace_file(folder / file.name, content)
        elif data_set.counts:
            _unpack(data_set, folder, downloads, paths[0])
    except DamagedFileError as error:
        for path in paths:
            path.unlink()
        raise DamagedFileError(f"{error} What was downloaded for {data_set.name} is removed; get it again.") from error


def _unpack(data_set: DataSet, folder: Path, downloads: Path, path: Path) -> None:
    """Take the pictures out beside the archive, and move them into the folder when all are there."""
    with tempfile.TemporaryDirectory(dir=downloads) as temporary:
        inside = Path(temporary)
        for name, content in tar_members(path, data_set.members):
            if not content.startswith(FIRST_BYTES[Path(name).suffix]):
                raise DamagedFileError(f"{path} holds {name}, which is no picture.")
            (inside / name).parent.mkdir(parents=True, exist_ok=True)
            (inside / name).write_bytes(content)
        wrong = _wrong_content(data_set, inside)
        if wrong:
            raise DamagedFileError(f"{path} holds {wrong}.")
        for name in data_set.kept:
            (inside / name).replace(folder / name)


def _wrong_content(data_set: DataSet, folder: Path) -> str:
    """Describe what is wrong with counts and labels; empty where nothing is."""
    for pattern, count in data_set.counts:
        # Some systems leave hidden files of their own in every folder.
        found = sum(not path.name.startswith(".") for path in folder.glob(pattern))
        if found != count:
            return f"{found} of {pattern}, expected {count}"
    for name, digest in data_set.labels:
        path = folder / name
        lines = path.read_bytes().split(b"\n") if path.is_file() else []
        digits = bytes(int(line.split()[-1]) for line in lines if re.fullmatch(rb"\S+ \d\s*", line))
        if hashlib.sha256(digits).hexdigest() != digest:
            return f"{name} with other labels than those of MNIST"
    return ""


def _artificial(paths: list[Path]) -> Arrays:
    names = ("x_source", "x_target", "y_source", "y_target")
    return {name: _array(path) for name, path in zip(names, paths, strict=True)}


def _array(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        raise DamagedFileError(f"{path} is not an array of numbers ({error}).") from error
    if not isinstance(array, np.ndarray):
        raise DamagedFileError(f"{path} is an archive, expected one array.")
    return array


def _reviews(paths: list[Path]) -> Arrays:
    """The layout of amazon.mat: a column a review, training then test rows of each category; words are not named."""
    from scipy import sparse
    from sklearn.datasets import load_svmlight_files

    try:
        parts = load_svmlight_files([str(path) for path in paths], n_features=5000, zero_based=True)
    except (ValueError, OverflowError) as error:
        raise DamagedFileError(f"The reviews are not svmlight files of 5,000 columns ({error}).") from error
    rows = sparse.vstack(parts[::2], format="csr")
    sizes = [part.shape[0] for part in parts[::2]]
    ends = np.cumsum([0, *(train + test for train, test in zip(sizes[::2], sizes[1::2], strict=True))])
    return {
        "xx_data": rows.data.astype(np.uint8),
        "xx_indices": rows.indices.astype(np.uint16),
        "xx_indptr": rows.indptr.astype(np.int32),
        "xx_shape": np.array(rows.shape[::-1], np.int32),
        "yy": np.concatenate(parts[1::2]).astype(np.int8)[:, None],
        "offset": ends.astype(np.int32)[:, None],
        "vocabulary": np.empty(0, "U1"),
    }


def _photographs(paths: list[Path]) -> Arrays:
    """JPEG files end to end in the order of their names."""
    pictures = sorted(tar_members(paths[0], find_data_set("photographs").members))
    ends = np.cumsum([0, *(len(content) for _, content in pictures)])
    return {
        "jpeg": np.frombuffer(b"".join(content for _, content in pictures), np.uint8),
        "jpeg_offset": ends.astype(np.int64),
        "image_id": np.array([int(name.partition(".")[0]) for name, _ in pictures], np.int32),
    }


REBUILD: Mapping[str, Callable[[list[Path]], Arrays]] = {
    "artificial": _artificial,
    "reviews": _reviews,
    "photographs": _photographs,
}

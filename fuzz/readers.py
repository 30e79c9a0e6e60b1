"""What the fuzzers call: each reader of files on any bytes. Only errors of ours may come out."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from momentalign.errors import MomentAlignError
from momentalign.files import read_folder
from momentalign.tables.read import read_chunks, read_table
from momentalign.tensors import unpack_tensors

__all__ = ["SEEDS", "TARGETS", "try_bytes"]

FOLDER = Path(tempfile.gettempdir())


def _table(content: bytes, suffix: str) -> None:
    """Read a file whole and in parts; of both the rows must be as many."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder) / f"table{suffix}"
        path.write_bytes(content)
        whole = len(read_table(path))
        if sum(len(part) for part in read_chunks(path, rows=2)) != whole:
            raise AssertionError("a file has another number of rows in parts than as a whole")


def _manifest(content: bytes) -> None:
    """Read a folder whose manifest is anything; beside it stands a file that it may name."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        (Path(folder) / "manifest.json").write_bytes(content)
        (Path(folder) / "weights-0123456789abcdef.safetensors").write_bytes(content)
        read_folder(folder)


def _tensors(content: bytes) -> None:
    try:
        arrays = unpack_tensors(bytearray(content))
    except ValueError:
        return
    if sum(array.nbytes for array in arrays.values()) > len(content):
        raise AssertionError("a file gives more bytes than it has")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "csv": lambda content: _table(content, ".csv"),
    "npz": lambda content: _table(content, ".npz"),
    "npy": lambda content: _table(content, ".npy"),
    "svmlight": lambda content: _table(content, ".svm"),
    "manifest": _manifest,
    "tensors": _tensors,
}


def _archive() -> list[bytes]:
    import io

    import numpy as np
    from scipy import sparse

    files = [io.BytesIO() for _ in range(4)]
    np.savez(files[0], x=np.ones((3, 2)), y=np.array(["a", "b", "c"]))
    np.save(files[1], np.asfortranarray(np.ones((2, 3), np.float32)))
    sparse.save_npz(files[2], sparse.csr_matrix(np.eye(3)))
    np.savez_compressed(files[3], a=np.arange(4), b=np.arange(4.0))
    return [file.getvalue() for file in files]


def _folder() -> list[bytes]:
    import numpy as np

    from momentalign.files import write_folder

    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, {"a": np.arange(3.0), "b": np.ones((2, 2), np.float32)}, {"text": "ü"})
        return [file.read_bytes() for file in sorted(Path(folder).iterdir())]


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "csv": lambda: [b"a,b\n1,2\n3,4\n", b'"a";b\n"x ""y""";2020-01-01\n', "ä\tb\n1\tNA\n".encode("utf-16")],
    "npz": _archive,
    "npy": _archive,
    "svmlight": lambda: [b"1 1:0.5 7:2\n-1 2:1 # note\n", b"0 qid:1 3:1e-3\n"],
    "manifest": _folder,
    "tensors": _folder,
}


def try_bytes(name: str, content: bytes) -> None:
    """Give bytes to a reader; an error of ours is a good answer, any other comes out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            TARGETS[name](content)
        except MomentAlignError as error:
            if "\n" in str(error) or not str(error).endswith("."):
                raise AssertionError(f"no sentence: {error}") from error

"""What the fuzzers call: each reader of files on any bytes. Only errors of ours may come out."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from momentalign.errors import MomentAlignError
from momentalign.files import read_folder, write_folder
from momentalign.journal import Journal
from momentalign.paper.backbones import load_weights
from momentalign.tables.read import read_chunks, read_table
from momentalign.tensors import unpack_tensors
from momentalign.workflow.model import load

__all__ = ["SEEDS", "TARGETS", "try_bytes"]

FOLDER = Path(tempfile.gettempdir())
GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "0.1.0"
IDENTITY = {"what": "fuzz"}


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


def _description(content: bytes) -> None:
    """Load a model whose manifest has the right digests and describes anything; a loaded one predicts."""
    arrays, _ = read_folder(GOLDEN / "classifier")
    try:
        described = json.loads(content)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            write_folder(folder, arrays, described)
            model = load(folder)
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, MomentAlignError):
            raise
        return  # Nothing that JSON can hold was described.
    model.predict([[0.0] * model.n_features_in_])


def _torch(content: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder) / "weights.pth"
        path.write_bytes(content)
        load_weights(path)


def _journal(content: bytes) -> None:
    """Read a journal whose lines after the first are anything, and a file that is anything."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder) / "cells.jsonl"
        journal = Journal(path, IDENTITY)
        with path.open("ab") as file:
            file.write(content)
        try:
            journal.done()
        except MomentAlignError:
            path.write_bytes(content)
            Journal(path, IDENTITY)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "csv": lambda content: _table(content, ".csv"),
    "npz": lambda content: _table(content, ".npz"),
    "npy": lambda content: _table(content, ".npy"),
    "svmlight": lambda content: _table(content, ".svm"),
    "manifest": _manifest,
    "description": _description,
    "tensors": _tensors,
    "torch": _torch,
    "journal": _journal,
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

    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, {"a": np.arange(3.0), "b": np.ones((2, 2), np.float32)}, {"text": "ü"})
        return [file.read_bytes() for file in sorted(Path(folder).iterdir())]


def _weights() -> list[bytes]:
    import io

    import torch

    old, new = io.BytesIO(), io.BytesIO()
    for file, zipped in ((old, False), (new, True)):
        torch.save({"a": torch.ones(2, 3)}, file, _use_new_zipfile_serialization=zipped)
    return [old.getvalue(), new.getvalue()]


def _lines() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cells.jsonl"
        journal = Journal(path, IDENTITY)
        header = path.read_bytes()
        journal.append({"seed": 1}, {"accuracy": 0.5})
        return [path.read_bytes().removeprefix(header), header, b""]


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "csv": lambda: [b"a,b\n1,2\n3,4\n", b'"a";b\n"x ""y""";2020-01-01\n', "ä\tb\n1\tNA\n".encode("utf-16")],
    "npz": _archive,
    "npy": _archive,
    "svmlight": lambda: [b"1 1:0.5 7:2\n-1 2:1 # note\n", b"0 qid:1 3:1e-3\n"],
    "manifest": _folder,
    "description": lambda: [json.dumps(read_folder(GOLDEN / "classifier")[1]).encode()],
    "tensors": _folder,
    "torch": _weights,
    "journal": _lines,
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

"""What the fuzzers once found; each file was answered by an error that was not ours, or by a wait without end."""

import importlib.util
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

spec = importlib.util.spec_from_file_location("momentalign_fuzz_readers", Path(__file__).parents[2] / "fuzz/readers.py")
readers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(readers)


def _array(shape, *, head=None, numbers=bytes(24)):
    words = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode() if head is None else head
    return b"\x93NUMPY\x01\x00" + (len(words) + 1).to_bytes(2, "little") + words + b"\n" + numbers


def _sparse(indices, indptr, kind):
    content = io.BytesIO()
    np.savez(
        content, indices=np.array(indices, np.int32), indptr=np.array(indptr, np.int32), format=kind,
        shape=np.array([3, 3]), data=np.ones(len(indices)),
    )  # fmt: skip
    return content.getvalue()


def _cut_directory():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("x.npy", _array((2, 3)))
    return content.getvalue().replace(b"PK\x01\x02", b"PK\x09\x02")


FOUND = {
    "head that is cut off": ("npz", _array(None, head=b"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3")),
    "head that asks for petabytes": ("npz", _array((10**15, 2))),
    "head with more than an index can count": ("npz", _array((10**40,))),
    "head of rows without columns": ("npz", _array((10**12, 0))),
    "head of columns without rows": ("npz", _array((0, 10**12))),
    "head of a negative shape": ("npz", _array((-2, -3))),
    "index beyond a sparse matrix": ("npz", _sparse([0, 1, 900_000], [0, 1, 2, 3], b"csr")),
    "row beyond a sparse matrix": ("npz", _sparse([0, 1, 2], [0, 5, 2, 3], b"csr")),
    "index beyond a sparse matrix by columns": ("npz", _sparse([0, 1, 900_000], [0, 1, 2, 3], b"csc")),
    "archive with a broken directory": ("npy", _cut_directory()),
    "tensor whose type is a list": ("tensors", b'2\0\0\0\0\0\0\0{"a":{"dtype":[],"shape":[],"data_offsets":[0,0]}}'),
}  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name):
    target, content = FOUND[name]
    readers.try_bytes(target, content)
    if target != "tensors":  # which have no file that an error of ours could name
        with pytest.raises(readers.MomentAlignError):
            readers.TARGETS[target](content)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", readers.TARGETS)
def test_the_seeds_are_sound(name):
    """A fuzzer that begins with files that are refused would look at refusals only."""
    answers = []
    for content in readers.SEEDS[name]():
        try:
            readers.TARGETS[name](content)
            answers.append("read")
        except readers.MomentAlignError:
            answers.append("refused")
    assert "read" in answers or name in ("manifest", "tensors")


def test_another_error_comes_out(monkeypatch):
    monkeypatch.setitem(readers.TARGETS, "csv", lambda content: content.nothing)
    with pytest.raises(AttributeError):
        readers.try_bytes("csv", b"a,b\n1,2\n")
    assert "momentalign" in sys.modules

import struct
import zlib

import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat, savemat

from momentalign.errors import DamagedFileError
from momentalign.paper.image_files import read_mat

TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]


def _element(kind, data, order="<"):
    padding = 0 if kind == 15 else -len(data) % 8  # compressed pieces have none
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(padding)


def _matrix(data, *, order="<", flags=9, shape=(2, 1), name=b"some", kind=2):
    """An array as MATLAB writes it; 9 is its class uint8, 2 the type of bytes."""
    return _element(
        14,
        _element(6, struct.pack(f"{order}II", flags, 0), order)
        + _element(5, struct.pack(f"{order}{len(shape)}i", *shape), order)
        + _element(1, name, order)
        + _element(kind, data, order),
        order,
    )


def _file(path, content, order="<"):
    path.write_bytes(bytes(124) + (b"\0\1IM" if order == "<" else b"\1\0MI") + content)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.mat"


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_are_those_of_scipy(path, rng, dtype, compressed):
    written = {
        "X": rng.integers(0, 100, (5, 4, 3, 2)).astype(dtype),
        "y": rng.integers(0, 100, (2, 1)).astype(dtype),
        "a_longer_name": rng.integers(0, 100, (1, 9)).astype(dtype),
    }
    savemat(path, {"text": "no number", **written}, do_compression=compressed)
    theirs = loadmat(path)
    for name, array in zip(written, read_mat(path, tuple(written)), strict=True):
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, theirs[name])
        np.testing.assert_array_equal(array, written[name])


def test_files_of_machines_of_the_other_order_of_bytes_are_read(path):
    values = np.array([1, 258, 70000], ">i4")
    _file(path, _matrix(values.tobytes(), order=">", flags=12, shape=(3, 1), kind=5), ">")
    (array,) = read_mat(path, ("some",))
    assert array.dtype == np.int32
    assert array.tolist() == [[1], [258], [70000]]


OBJECTS = {
    "cell": np.array([1, "two"], dtype=object),
    "struct": {"a": 1},
    "text": "ten",
    "sparse": sparse.eye(3, format="csc"),
    "complex": np.array([1j]),
    "logical": None,
}


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_no_real_full_array_of_numbers_is_refused(path, kind, compressed):
    other = {} if OBJECTS[kind] is None else {"y": OBJECTS[kind]}
    savemat(path, {"X": np.ones((2, 2)), **other}, do_compression=compressed)
    with pytest.raises(DamagedFileError, match=rf"{path} holds no real, full array of numbers 'y'; get it again"):
        read_mat(path, ("X", "y"))


DAMAGED = {
    "empty": (b"", "header says"),
    "version 7.3": (bytes(124) + b"\0\2IM" + bytes(999), "header says"),
    "text": (b"<html>" * 99, "header says"),
}
CONTENT = {
    "unknown type of values": (_matrix(b"ab", kind=0xAA), "unknown type 170"),
    "too few values": (_matrix(b"ab", shape=(3, 1)), r"shape \(3, 1\) has 2 values"),
    "negative shape": (_matrix(b"ab", shape=(-2, -1)), r"shape \(-2, -1\) has 2 values"),
    "no shape": (_matrix(b"a", shape=()), r"shape \(\) has 1 values"),
    "broken shape": (_matrix(b"ab").replace(_element(5, struct.pack("<2i", 2, 1)), _element(5, b"abc")), "get it"),
    "short form too long": (struct.pack("<HHI", 2, 5, 0) + bytes(8), "a piece of 5 bytes is cut off"),
    "piece cut off": (_matrix(b"ab")[:-9], r"a piece of \d+ bytes is cut off"),
    "tag cut off": (b"\x0e\0\0", "get it again"),
    "no flags": (_element(14, _element(6, b"") + _element(5, b"") + _element(1, b"") + _element(2, b"")), "get it"),
    "not zlib": (_element(15, b"nothing like that"), "decompressing"),
    "zlib cut off": (_element(15, zlib.compress(_matrix(b"ab"))[:-6]), "compressed variable is cut off"),
    "nothing compressed": (_element(15, zlib.compress(b"")), "holds no real"),
    "matrix of flags alone": (_element(14, _element(6, bytes(8))), "holds no real"),
    "matrix of nothing": (_element(14, b""), "holds no real"),
    "another piece": (_element(2, b"ab"), "holds no real"),
    "nothing": (b"", "holds no real"),
}


@pytest.mark.parametrize("case", DAMAGED | CONTENT)
def test_a_damaged_file_is_named_with_the_reason(path, case):
    content, words = (DAMAGED | CONTENT)[case]
    if case in DAMAGED:
        path.write_bytes(content)
    else:
        _file(path, content)
    with pytest.raises(DamagedFileError, match=f"^{path} .*{words}"):
        read_mat(path, ("some",))


def test_the_pieces_those_cases_are_made_of_are_right(path):
    for content in (_matrix(b"ab"), _element(15, zlib.compress(_matrix(b"ab")))):
        (array,) = read_mat(_file(path, content), ("some",))
        assert array.tolist() == [[97], [98]]


def test_a_few_bytes_that_unfold_to_very_many_are_refused(path, monkeypatch):
    monkeypatch.setattr("momentalign.paper.image_files.LARGEST", 10**6)
    _file(path, _element(15, zlib.compress(_matrix(bytes(2 * 10**6), shape=(2000, 1000)))))
    with pytest.raises(DamagedFileError, match="cut off or too large"):
        read_mat(path, ("some",))


@pytest.mark.parametrize("compressed", [False, True])
def test_whatever_byte_is_lost_or_changed_the_process_goes_on(path, rng, compressed):
    X = rng.integers(0, 256, (4, 4, 3, 2), np.uint8)
    savemat(path, {"X": X, "y": np.array([[1], [10]])}, do_compression=compressed)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedFileError):
            read_mat(path, ("X", "y"))
    refused = 0
    for place in range(124, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xAA]) + whole[place + 1 :])
        try:
            read_mat(path, ("X", "y"))
        except DamagedFileError:
            refused += 1
    assert refused > (0.9 * (len(whole) - 124) if compressed else 40)

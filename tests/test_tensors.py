"""Our reader of safetensors files sees what the library sees; what it refuses is in tests/attacks/test_loaders.py."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import load, save

from momentalign.tensors import TYPES, read_header, strict_json, unpack_tensors

KINDS = st.sampled_from([np.dtype(name) for name in TYPES.values()])
ARRAYS = KINDS.flatmap(lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, min_side=0, max_side=4)))


@given(st.dictionaries(st.text(max_size=5).filter(lambda name: name != "__metadata__"), ARRAYS, max_size=5))
def test_it_reads_what_the_library_reads(arrays):
    packed = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    expected, found = load(packed), unpack_tensors(bytearray(packed))
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.aligned


def test_a_single_number_is_read_from_its_place():
    header = (
        b'{"__metadata__":{"a":"note"},"row":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        b'"one":{"dtype":"F32","shape":[],"data_offsets":[8,12]}}'
    )
    packed = struct.pack("<Q", len(header)) + header + np.array([1, 2, 3], "<f4").tobytes()
    found = unpack_tensors(bytearray(packed))
    assert found["one"] == 3.0
    assert found["row"].tolist() == [1.0, 2.0]
    assert found["row"].flags.aligned, "the header is of an odd length"


def test_arrays_share_the_memory_of_the_file():
    packed = bytearray(save({"a": np.zeros(3)}))
    unpack_tensors(packed)["a"][0] = 1.0
    assert unpack_tensors(packed)["a"].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("content", [b'{"a": 1, "a": 2}', b"NaN", b"-Infinity", b"[" * 100_000, b"\xff", b'{"a":'])
def test_json_that_readers_could_understand_differently_is_refused(content):
    with pytest.raises(ValueError, match=r"."):
        strict_json(content)


def test_a_header_is_read_without_the_numbers():
    packed = save({"a": np.zeros(3)})
    header, start = read_header(packed[: len(packed) - 24])
    assert header["a"]["shape"] == [3]
    assert start == len(packed) - 24


def _file(*tensors, numbers):
    entries = ",".join(
        f'"{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[{begin},{end}]}}'
        for name, shape, begin, end in tensors
    )
    header = f"{{{entries}}}".encode()
    return bytearray(struct.pack("<Q", len(header)) + header + bytes(numbers))


@pytest.mark.parametrize(
    ("tensors", "numbers", "words"),
    [
        ([("a", [2], 0, 8), ("b", [2], 12, 20)], 20, "'b' does not begin where the one before it ends"),
        ([("a", [2], 0, 8), ("b", [2], 4, 12)], 12, "'b' does not begin where the one before it ends"),
        ([("a", [2], 4, 12)], 12, "'a' does not begin where"),
        ([("a", [2], 0, 8)], 9, "its tensors take 8 bytes of 9"),
        ([("a", [2], 0, 8)], 7, "'a' has another size than its shape says"),
        ([("a", [3], 0, 8)], 8, "'a' has another size than its shape says"),
        ([("a", [-2], 0, 8)], 8, "'a' has no type and shape that are known"),
        ([("a", [2], -8, 0)], 8, "'a' has no beginning and end"),
    ],
)
def test_tensors_fill_the_file_without_a_gap_or_an_overlap(tensors, numbers, words):
    with pytest.raises(ValueError, match=words):
        unpack_tensors(_file(*tensors, numbers=numbers))

import gzip
import io
import struct
import sys

import numpy as np
import pytest
from PIL import Image

from momentalign.errors import DamagedFileError
from momentalign.paper.image_files import decode_picture, read_idx


def _idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def _write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _encode(pixels, kind, **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


NAMES = ["plain", "packed.gz"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(300,), (4, 7), (5, 3, 2), (0, 28, 28)])
def test_idx_files_come_back_as_they_were(tmp_path, rng, name, shape):
    array = rng.integers(0, 256, shape, np.uint8)
    read = read_idx(_write(tmp_path / name, _idx(array)), dimensions=len(shape))
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, array)


IMAGES = _idx(np.ones((3, 2, 2), np.uint8))
DAMAGED_IDX = {
    "empty": (b"", "starts with nothing, expected 00000803"),
    "labels": (_idx(np.ones(3, np.uint8)), "starts with 00000801, expected 00000803"),
    "floats": (bytes([0, 0, 13, 3]) + IMAGES[4:], "starts with 00000d03"),
    "header cut off": (IMAGES[:10], "and the sizes; get it again"),
    "values cut off": (IMAGES[:-1], r"header says \(3, 2, 2\), 12 bytes, and it holds only 11"),
    "values left over": (IMAGES + b"\0", "12 bytes, and it holds more"),
    "endless": (struct.pack(">4B3I", 0, 0, 8, 3, 2**31, 2**31, 2), "more than any set of digits"),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", DAMAGED_IDX)
def test_a_damaged_idx_file_is_named_with_the_reason(tmp_path, name, case):
    content, words = DAMAGED_IDX[case]
    with pytest.raises(DamagedFileError, match=f"^{tmp_path / name} .*{words}"):
        read_idx(_write(tmp_path / name, content), dimensions=3)


@pytest.mark.parametrize("damage", [lambda c: c[:-9], lambda c: b"no" + c, lambda c: c[:10] + b"\xff" + c[11:]])
def test_a_damaged_gzip_file_is_named(tmp_path, damage):
    path = tmp_path / "images.gz"
    path.write_bytes(damage(gzip.compress(IMAGES)))
    with pytest.raises(DamagedFileError, match=f"^{path} is not a whole gzip file .*get it again"):
        read_idx(path, dimensions=3)


def test_a_png_comes_back_as_it_was(rng):
    pixels = rng.integers(0, 256, (5, 4, 3), np.uint8)
    np.testing.assert_array_equal(decode_picture(_encode(pixels, "PNG"), "some", kind="PNG", size=(5, 4)), pixels)


def test_grey_and_indexed_pictures_become_colours():
    grey = np.array([[0, 9], [200, 255]], np.uint8)
    coloured = np.repeat(grey[:, :, None], 3, axis=2)
    np.testing.assert_array_equal(decode_picture(_encode(grey, "PNG"), "some", kind="PNG"), coloured)
    file = io.BytesIO()
    Image.fromarray(coloured).convert("P").save(file, "PNG")
    assert decode_picture(file.getvalue(), "some", kind="PNG").shape == (2, 2, 3)


PNG = _encode(np.arange(3072, dtype=np.uint8).reshape(32, 32, 3), "PNG")
BAD_PICTURES = {
    "empty": (b"", "cannot be read as PNG"),
    "text": (b"<html>" * 20, "cannot be read as PNG"),
    "cut off": (PNG[: len(PNG) // 2], "cannot be read as PNG"),
    "another format": (_encode(np.zeros((32, 32, 3), np.uint8), "JPEG"), "cannot be read as PNG"),
    "another size": (_encode(np.zeros((28, 30, 3), np.uint8), "PNG"), r"a picture of \(28, 30\), expected \(32, 32\)"),
}


@pytest.mark.parametrize("case", BAD_PICTURES)
def test_a_damaged_picture_is_named_with_the_reason(case):
    content, words = BAD_PICTURES[case]
    with pytest.raises(DamagedFileError, match=f"^seven.png .*{words}"):
        decode_picture(content, "seven.png", kind="PNG", size=(32, 32))


def test_without_pillow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"Pillow: pip install momentalign\[deep\]"):
        decode_picture(PNG, "some", kind="PNG")

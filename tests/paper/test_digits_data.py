"""The three sets of digits, from the packed files and from those their authors published."""

import io
import sys
from functools import cache

import numpy as np
import pytest
from PIL import Image

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.paper import digits_data as digits
from momentalign.paper.digits_data import decode_picture, grey_to_colour, load_mnist, load_mnist_m, load_svhn

LOADERS = {"MNIST": load_mnist, "SVHN": load_svhn, "MNIST-M": load_mnist_m}


def draw_images(seed, rows=5, shape=(3, 32, 32)):
    return np.random.default_rng(seed).integers(0, 256, (rows, *shape), np.uint8)


def pack(images):
    """Planes G, R - G and B - G, each pixel less the one above and then less the one to the left, modulo 256."""
    red, green, blue = images.transpose(1, 0, 2, 3)
    planes = np.stack([green, red - green, blue - green], axis=1)
    return np.diff(np.diff(planes, axis=2, prepend=np.uint8(0)), axis=3, prepend=np.uint8(0))


def encode(pixels, kind):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


# As they are published; other tests put digests of small files in their place.
PUBLISHED = dict(digits.DIGESTS)


def check(loaded, images, labels):
    assert (loaded.images.dtype, loaded.labels.dtype) == (np.uint8, np.int64)
    assert loaded.images.flags.c_contiguous
    np.testing.assert_array_equal(loaded.images, images)
    assert loaded.labels.tolist() == list(labels)


def test_grey_images_are_padded_by_two_zeros_and_get_three_equal_colours():
    grey = draw_images(0, shape=(28, 28)) | 1
    images = grey_to_colour(grey)
    for colour in range(3):
        np.testing.assert_array_equal(images[:, colour], np.pad(grey, ((0, 0), (2, 2), (2, 2))))


@pytest.mark.parametrize("split", ["train", "test"])
def test_packed_mnist(write, split):
    grey = {"train": draw_images(0, 4, (28, 28)), "test": draw_images(1, 3, (28, 28))}
    labels = {"train": [0, 9, 2, 2], "test": [5, 6, 7]}
    arrays = {f"x_{part}": grey[part] for part in grey} | {f"y_{part}": np.uint8(labels[part]) for part in grey}
    write.packed("MNIST", split, arrays)
    check(load_mnist(split, write.folder), grey_to_colour(grey[split]), labels[split])


@pytest.mark.parametrize("name", ["SVHN", "MNIST-M"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_packed_parts_are_unpacked_and_joined_in_order(write, monkeypatch, name, split):
    monkeypatch.setattr(digits, "BLOCK", 3)
    rows = [5, 7][: len(digits.FORMS[name, split][0])]
    assert len(rows) == (2 if (name, split) == ("SVHN", "train") else 1)
    images = [draw_images(seed, count) for seed, count in enumerate(rows)]
    labels = [np.arange(count, dtype=np.uint8) + seed for seed, count in enumerate(rows)]
    write.packed(name, split, *({"x_packed": pack(part), "y": own} for part, own in zip(images, labels, strict=True)))
    monkeypatch.setenv("MOMENTALIGN_DATA", str(write.folder))
    check(LOADERS[name](split), np.concatenate(images), np.concatenate(labels))


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_mnist_from_idx_files(write, split, end):
    grey = draw_images(2, shape=(28, 28))
    write.idx(split, grey, [3, 1, 4, 1, 9], end)
    check(load_mnist(split, write.folder), grey_to_colour(grey), [3, 1, 4, 1, 9])
    (write.folder / f"{digits.IDX[split]}-labels-idx1-ubyte{end}").unlink()
    with pytest.raises(DataNotFoundError, match="-images-idx3-ubyte and "):
        load_mnist(split, write.folder)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_svhn_from_mat_files_writes_zero_for_ten(write, split, dtype):
    images = draw_images(3)
    write.mat(split, images, np.array([[1], [10], [9], [10], [5]], dtype))
    check(load_svhn(split, write.folder), images, [1, 0, 9, 0, 5])


@pytest.mark.parametrize("inside", ["", "mnist_m"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_mnist_m_from_png_files_in_the_order_of_the_labels(write, split, inside):
    images = draw_images(4, rows=3)
    write.pictures(split, images, ["00000002.png 7", "00000000.png 0", "00000001.png 9"], inside)
    check(load_mnist_m(split, write.folder), images[[2, 0, 1]], [7, 0, 9])


def test_packed_files_come_before_the_others_if_all_parts_are_there(write):
    packed, other = draw_images(5), draw_images(6)
    for split in ("train", "test"):
        write.mat(split, other, np.ones((5, 1)))
        check(load_svhn(split, write.folder), other, [1] * 5)
    (write.folder / "svhn_train_a.npz").write_bytes(b"one part of two")
    assert len(load_svhn("train", write.folder).labels) == 5
    write.packed("SVHN", "test", {"x_packed": pack(packed), "y": np.zeros(5, np.uint8)})
    check(load_svhn("test", write.folder), packed, [0] * 5)


@pytest.mark.parametrize(
    ("load", "names"),
    [
        (load_mnist, ["mnist.npz"]),
        (load_svhn, ["svhn_train_a.npz", "svhn_train_b.npz"]),
        (load_mnist_m, ["mnistm_train_a.npz"]),
        (load_svhn, ["train_32x32.mat"]),
        (load_mnist, ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]),
        (load_mnist, ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte"]),
    ],
)
def test_a_file_with_another_digest_is_refused_before_it_is_read(tmp_path, monkeypatch, load, names):
    for name in names:
        (tmp_path / name).write_bytes(b"\0\0\x08\x01 something else")
    for reader in ("numpy.load", "scipy.io.loadmat", "gzip.decompress"):
        monkeypatch.setattr(reader, lambda *_, **__: pytest.fail("a damaged file was parsed"))
    with pytest.raises(DamagedFileError, match=r"not the file it should be .SHA-256 [0-9a-f]{12}, expected"):
        load("train", tmp_path)


@pytest.mark.parametrize(
    ("name", "split", "forms"),
    [
        ("MNIST", "train", "mnist.npz, or .* train-images-idx3-ubyte and train-labels-idx1-ubyte, plain or .gz"),
        ("MNIST", "test", "mnist.npz, or .* t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, plain or .gz"),
        ("SVHN", "train", "svhn_train_a.npz and svhn_train_b.npz, or .* train_32x32.mat"),
        ("SVHN", "test", "svhn_test.npz, or .* test_32x32.mat"),
        ("MNIST-M", "train", "mnistm_train_a.npz, or .* mnist_m_train_labels.txt with the folder mnist_m_train of PNG"),
        ("MNIST-M", "test", "mnistm_test.npz, or .* mnist_m_test_labels.txt with the folder mnist_m_test of PNG"),
    ],
)
def test_a_missing_set_is_named_with_every_form_that_is_accepted(tmp_path, monkeypatch, name, split, forms):
    with pytest.raises(DataNotFoundError, match=rf"{name} \({split}\) is not in {tmp_path}: .*{forms}.*--data DIR"):
        LOADERS[name](split, tmp_path)
    monkeypatch.delenv("MOMENTALIGN_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match=rf"{name} \({split}\) is needed: give .*--data DIR.*{forms}"):
        LOADERS[name](split)
    with pytest.raises(InvalidInputError, match='split must be "train" or "test", got None'):
        LOADERS[name](None, tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("00000001.png", "labels.txt: line 2 is '00000001.png', expected the name of a PNG file and a digit"),
        ("00000001.png 10", "line 2 is"),
        ("../00000001.png 1", "line 2 is"),
        ("", "line 2 is ''"),
        ("00000001.png \xe9", "line 2 is"),
        ("00000007.png 1", "00000007.png is not there, but the labels name it"),
    ],
)
def test_a_wrong_line_of_labels_is_named(write, line, message):
    write.pictures("test", draw_images(0, rows=2), ["00000000.png 3", line, "00000001.png 4"])
    with pytest.raises(DamagedFileError, match=message):
        load_mnist_m("test", write.folder)


# Counts of the classes where they are published, means and standard deviations of red, green and blue over 255. Those
# of SVHN's training part are the published ones of all 73,257 digits; those of MNIST are without the padding.
REAL = {
    ("MNIST", "train"): ([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], [0.1307] * 3, [0.3081] * 3),
    ("MNIST", "test"): ([980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009], [0.1325] * 3, [0.3105] * 3),
    ("SVHN", "train"): (50000, [0.4377, 0.4438, 0.4728], [0.1981, 0.2010, 0.1971]),
    ("SVHN", "test"): (
        [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
        [0.4524, 0.4525, 0.4690],
        [0.2195, 0.2266, 0.2285],
    ),
    ("MNIST-M", "train"): (30000, [0.4577, 0.4618, 0.4073], [0.2521, 0.2372, 0.2591]),
    ("MNIST-M", "test"): (9001, [0.4609, 0.4644, 0.4109], [0.2526, 0.2379, 0.2587]),
}


@cache
def real(name, split):
    """A set, which is loaded once."""
    return LOADERS[name](split)


@pytest.mark.data
@pytest.mark.parametrize(("name", "split"), REAL)
def test_the_real_files_have_the_classes_and_colours_they_should(name, split):
    images, labels = real(name, split)
    counts, means, stds = REAL[name, split]
    found = np.bincount(labels)
    assert (found.tolist() if isinstance(counts, list) else found.sum()) == counts
    assert len(found) == 10
    assert images.shape == (len(labels), 3, 32, 32)
    if name == "MNIST-M":
        np.testing.assert_array_equal(labels, real("MNIST", split).labels[: len(labels)])
    some = images[::5, :, 2:30, 2:30] if name == "MNIST" else images[::5]
    for colour, mean, std in zip(range(3), means, stds, strict=True):
        shares, values = np.bincount(some[:, colour].ravel(), minlength=256) / some[:, 0].size, np.arange(256) / 255
        assert shares @ values == pytest.approx(mean, abs=0.004)
        assert (shares @ values**2 - (shares @ values) ** 2) ** 0.5 == pytest.approx(std, abs=0.004)


@pytest.mark.data
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_unpacked_originals_hold_what_the_packed_set_holds(write, split):
    expected = real("MNIST", split)
    write.idx(split, np.ascontiguousarray(expected.images[:, 0, 2:-2, 2:-2]), expected.labels)
    names = [f"{digits.IDX[split]}-{name}-ubyte" for name in ("images-idx3", "labels-idx1")]
    assert [digits.DIGESTS[name] for name in names] == [PUBLISHED[name] for name in names]
    check(load_mnist(split, write.folder), *expected)


PNG = encode(np.arange(3072, dtype=np.uint8).reshape(32, 32, 3), "PNG")


def test_pictures_come_back_as_they_were_in_three_colours(rng):
    pixels = rng.integers(0, 256, (5, 4, 3), np.uint8)
    np.testing.assert_array_equal(decode_picture(encode(pixels, "PNG"), "some", kind="PNG", size=(5, 4)), pixels)
    grey = np.array([[0, 9], [200, 255]], np.uint8)
    np.testing.assert_array_equal(
        decode_picture(encode(grey, "PNG"), "some", kind="PNG"), np.repeat(grey[:, :, None], 3, axis=2)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as PNG"),
        (b"<html>" * 20, "cannot be read as PNG"),
        (PNG[: len(PNG) // 2], "cannot be read as PNG"),
        (encode(np.zeros((32, 32, 3), np.uint8), "JPEG"), "cannot be read as PNG"),
        (encode(np.zeros((28, 30, 3), np.uint8), "PNG"), r"a picture of \(28, 30\), expected \(32, 32\)"),
    ],
)
def test_a_damaged_picture_is_named_with_the_reason(content, message):
    with pytest.raises(DamagedFileError, match=f"^seven.png .*{message}"):
        decode_picture(content, "seven.png", kind="PNG", size=(32, 32))


def test_without_pillow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"Pillow: pip install .*\[deep\]"):
        decode_picture(PNG, "some", kind="PNG")

"""The three sets of digits, from the packed files and from those their authors published."""

import gzip
import hashlib
import struct
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.paper import digits_data as digits
from momentalign.paper.catalogue import Original
from momentalign.paper.digits_data import (
    grey_to_colour,
    load_mnist,
    load_mnist_m,
    load_photographs,
    load_svhn,
    make_mnist_m,
)

LOADERS = {"MNIST": load_mnist, "SVHN": load_svhn, "MNIST-M": load_mnist_m}
IDX = {"train": "train", "test": "t10k"}


def _images(seed, rows=5, shape=(3, 32, 32)):
    return np.random.default_rng(seed).integers(0, 256, (rows, *shape), np.uint8)


def _pack(images):
    """Planes G, R - G and B - G, each pixel less the one above and then less the one to the left, modulo 256."""
    red, green, blue = images.transpose(1, 0, 2, 3)
    planes = np.stack([green, red - green, blue - green], axis=1)
    return np.diff(np.diff(planes, axis=2, prepend=np.uint8(0)), axis=3, prepend=np.uint8(0))


def _as_known(monkeypatch, folder, name, split, *contents):
    """Write archives under the names of the real ones, their digests in place of the real ones."""
    files = []
    for file, content in zip(digits.PACKED[name, split], contents, strict=True):
        np.savez_compressed(folder / file.name, **content)
        files.append(replace(file, sha256=hashlib.sha256((folder / file.name).read_bytes()).hexdigest()))
    monkeypatch.setitem(digits.PACKED, (name, split), tuple(files))


def _write_idx(path, array):
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def _write_mnist(folder, split, grey, labels, end=""):
    _write_idx(folder / f"{IDX[split]}-images-idx3-ubyte{end}", grey)
    _write_idx(folder / f"{IDX[split]}-labels-idx1-ubyte{end}", np.asarray(labels, np.uint8))


def _write_svhn(monkeypatch, folder, split, images, labels):
    """A MATLAB file under the name of the official one, its digest in place of the official one."""
    path = folder / f"{split}_32x32.mat"
    savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": labels}, do_compression=True)
    known = Original(path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setitem(digits.SVHN_ORIGINALS, split, known)


def _write_mnist_m(folder, split, images, lines):
    (folder / f"mnist_m_{split}").mkdir(parents=True)
    for row, image in enumerate(images):
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / f"mnist_m_{split}" / f"{row:08}.png")
    (folder / f"mnist_m_{split}_labels.txt").write_text("\n".join(lines), encoding="ascii")


def _check(loaded, images, labels):
    assert loaded.images.dtype == np.uint8
    assert loaded.labels.dtype == np.int64
    assert loaded.images.flags.c_contiguous
    np.testing.assert_array_equal(loaded.images, images)
    assert loaded.labels.tolist() == list(labels)


def test_grey_images_are_padded_by_two_zeros_and_get_three_equal_colours():
    grey = _images(0, shape=(28, 28)) | 1
    images = grey_to_colour(grey)
    assert images.shape == (5, 3, 32, 32)
    for colour in range(3):
        np.testing.assert_array_equal(images[:, colour, 2:30, 2:30], grey)
        np.testing.assert_array_equal(images[:, colour], np.pad(grey, ((0, 0), (2, 2), (2, 2))))


@pytest.mark.parametrize("split", ["train", "test"])
def test_packed_mnist(tmp_path, monkeypatch, split):
    grey, labels = {"train": _images(0, 4, (28, 28)), "test": _images(1, 3, (28, 28))}, {"train": [0, 9, 2, 2]}
    labels["test"] = [5, 6, 7]
    arrays = {f"x_{part}": grey[part] for part in grey} | {f"y_{part}": np.uint8(labels[part]) for part in grey}
    _as_known(monkeypatch, tmp_path, "MNIST", split, arrays)
    _check(load_mnist(split, tmp_path), grey_to_colour(grey[split]), labels[split])


@pytest.mark.parametrize("name", ["SVHN", "MNIST-M"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_packed_parts_are_unpacked_and_joined_in_order(tmp_path, monkeypatch, name, split):
    monkeypatch.setattr(digits, "BLOCK", 3)
    rows = [5, 7][: len(digits.PACKED[name, split])]
    images = [_images(seed, count) for seed, count in enumerate(rows)]
    labels = [np.arange(count, dtype=np.uint8) + seed for seed, count in enumerate(rows)]
    contents = [{"x_packed": _pack(part), "y": own} for part, own in zip(images, labels, strict=True)]
    _as_known(monkeypatch, tmp_path, name, split, *contents)
    monkeypatch.setenv("MOMENTALIGN_DATA", str(tmp_path))
    _check(LOADERS[name](split), np.concatenate(images), np.concatenate(labels))
    assert len(rows) == (2 if (name, split) == ("SVHN", "train") else 1)


@pytest.mark.parametrize("name", LOADERS)
def test_a_packed_file_with_another_digest_is_refused_before_it_is_read(tmp_path, monkeypatch, name):
    for file in digits.PACKED[name, "train"]:
        (tmp_path / file.name).write_bytes(b"something else")
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("a damaged file was parsed"))
    with pytest.raises(DamagedFileError, match=r"not the file it should be .SHA-256 [0-9a-f]{12}, expected"):
        LOADERS[name]("train", tmp_path)


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_mnist_from_idx_files(tmp_path, split, end):
    grey = _images(2, shape=(28, 28))
    _write_mnist(tmp_path, split, grey, [3, 1, 4, 1, 9], end)
    _check(load_mnist(split, tmp_path), grey_to_colour(grey), [3, 1, 4, 1, 9])


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_svhn_from_mat_files_writes_zero_for_ten(tmp_path, monkeypatch, split, dtype):
    images = _images(3)
    _write_svhn(monkeypatch, tmp_path, split, images, np.array([[1], [10], [9], [10], [5]], dtype))
    _check(load_svhn(split, tmp_path), images, [1, 0, 9, 0, 5])


@pytest.mark.parametrize("inside", ["", "mnist_m"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_mnist_m_from_png_files_in_the_order_of_the_labels(tmp_path, split, inside):
    images = _images(4, rows=3)
    _write_mnist_m(tmp_path / inside, split, images, ["00000002.png 7", "00000000.png 0", "00000001.png 9"])
    _check(load_mnist_m(split, tmp_path), images[[2, 0, 1]], [7, 0, 9])


def test_packed_files_come_before_the_others(tmp_path, monkeypatch):
    packed, other = _images(5), _images(6)
    _write_svhn(monkeypatch, tmp_path, "test", other, np.ones((5, 1)))
    _check(load_svhn("test", tmp_path), other, [1] * 5)
    _as_known(monkeypatch, tmp_path, "SVHN", "test", {"x_packed": _pack(packed), "y": np.zeros(5, np.uint8)})
    _check(load_svhn("test", tmp_path), packed, [0] * 5)


def test_one_packed_part_of_two_is_not_enough_but_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "svhn_train_a.npz").write_bytes(b"something")
    with pytest.raises(DataNotFoundError, match=r"svhn_train_a.npz and svhn_train_b.npz, or from"):
        load_svhn("train", tmp_path)
    _write_svhn(monkeypatch, tmp_path, "train", _images(7), np.ones((5, 1)))
    assert len(load_svhn("train", tmp_path).labels) == 5


# (set, split, every form that is accepted)
FORMS = [
    ("MNIST", "train", "mnist.npz, or .* train-images-idx3-ubyte and train-labels-idx1-ubyte, plain or .gz"),
    ("MNIST", "test", "mnist.npz, or .* t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, plain or .gz"),
    ("SVHN", "train", "svhn_train_a.npz and svhn_train_b.npz, or .* train_32x32.mat"),
    ("SVHN", "test", "svhn_test.npz, or .* test_32x32.mat"),
    ("MNIST-M", "train", "mnistm_train_a.npz, or .* mnist_m_train_labels.txt with the folder mnist_m_train of PNG"),
    ("MNIST-M", "test", "mnistm_test.npz, or .* mnist_m_test_labels.txt with the folder mnist_m_test of PNG"),
]


@pytest.mark.parametrize(("name", "split", "forms"), FORMS)
def test_a_missing_set_is_named_with_every_form_that_is_accepted(tmp_path, monkeypatch, name, split, forms):
    with pytest.raises(DataNotFoundError, match=rf"{name} \({split}\) is not in {tmp_path}: .*{forms}.*--data DIR"):
        LOADERS[name](split, tmp_path)
    monkeypatch.delenv("MOMENTALIGN_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match=rf"{name} \({split}\) is needed: give .*--data DIR.*{forms}"):
        LOADERS[name](split)


@pytest.mark.parametrize("left_out", ["images-idx3", "labels-idx1"])
def test_images_without_labels_and_labels_without_images_are_missing(tmp_path, left_out):
    _write_mnist(tmp_path, "train", _images(0, shape=(28, 28)), [0] * 5)
    (tmp_path / f"train-{left_out}-ubyte").unlink()
    with pytest.raises(DataNotFoundError, match="train-images-idx3-ubyte and train-labels-idx1-ubyte"):
        load_mnist("train", tmp_path)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("split", ["valid", None, "TRAIN"])
def test_an_unknown_split_is_named(tmp_path, name, split):
    with pytest.raises(InvalidInputError, match=f'split must be "train" or "test", got {split!r}'):
        LOADERS[name](split, tmp_path)


@pytest.mark.parametrize(
    ("shape", "labels", "words"),
    [
        ((28, 28), [1] * 4, "train-labels-idx1-ubyte holds 4 labels for 5 images"),
        ((28, 28), [1] * 6, "train-labels-idx1-ubyte holds 6 labels for 5 images"),
        ((28, 28), [1, 2, 3, 4, 10], "train-labels-idx1-ubyte holds the label 10, expected 0 to 9"),
        ((28, 27), [1] * 5, r"train-images-idx3-ubyte holds images of shape \(5, 28, 27\), expected \(N, 28, 28\)"),
    ],
)
def test_idx_files_that_do_not_fit_are_refused(tmp_path, shape, labels, words):
    _write_mnist(tmp_path, "train", _images(0, shape=shape), labels)
    with pytest.raises(DamagedFileError, match=words):
        load_mnist("train", tmp_path)


def test_a_mat_file_with_another_digest_is_refused_before_it_is_read(tmp_path, monkeypatch):
    """A wrong byte in such a file can end the process in scipy."""
    savemat(tmp_path / "test_32x32.mat", {"X": _images(0).transpose(2, 3, 1, 0), "y": np.ones((5, 1))})
    monkeypatch.setattr("scipy.io.loadmat", lambda *_, **__: pytest.fail("a damaged file was parsed"))
    with pytest.raises(DamagedFileError, match=r"test_32x32.mat is not the file it should be .*expected cdce80dfb2a2"):
        load_svhn("test", tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("00000001.png", "labels.txt: line 2 is '00000001.png', expected the name of a PNG file and a digit"),
        ("00000001.png 10", "line 2 is"),
        ("../00000001.png 1", "line 2 is"),
        ("", "line 2 is ''"),
        ("00000001.png \xe9", "line 2 is"),
        ("00000007.png 1", "00000007.png is not there, but the labels name it"),
    ],
)
def test_a_wrong_line_of_labels_is_named(tmp_path, line, words):
    _write_mnist_m(tmp_path, "test", _images(0, rows=2), [])
    listing = tmp_path / "mnist_m_test_labels.txt"
    listing.write_text(f"00000000.png 3\n{line}\n00000001.png 4", encoding="latin-1")
    with pytest.raises(DamagedFileError, match=words):
        load_mnist_m("test", tmp_path)


def test_pictures_of_another_size_are_named(tmp_path):
    _write_mnist_m(tmp_path, "test", _images(0, rows=2, shape=(3, 28, 28)), ["00000000.png 3"])
    with pytest.raises(DamagedFileError, match=r"00000000.png is a picture of \(28, 28\), expected \(32, 32\)"):
        load_mnist_m("test", tmp_path)


# Counts of the classes where they are published, means and standard deviations of red, green and blue over 255. Those
# of SVHN's training part are the published ones of all 73,257 digits; those of MNIST are without the padding.
REAL = {
    ("MNIST", "train"): ([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], [0.1307] * 3, [0.3081] * 3),
    ("MNIST", "test"): ([980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009], [0.1325] * 3, [0.3105] * 3),
    ("SVHN", "train"): (None, [0.4377, 0.4438, 0.4728], [0.1981, 0.2010, 0.1971]),
    ("SVHN", "test"): (
        [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
        [0.4524, 0.4525, 0.4690],
        [0.2195, 0.2266, 0.2285],
    ),
    ("MNIST-M", "train"): (None, [0.4577, 0.4618, 0.4073], [0.2521, 0.2372, 0.2591]),
    ("MNIST-M", "test"): (None, [0.4609, 0.4644, 0.4109], [0.2526, 0.2379, 0.2587]),
}
SIZES = {("SVHN", "train"): 50000, ("MNIST-M", "train"): 30000, ("MNIST-M", "test"): 9001}


@pytest.mark.data
@pytest.mark.parametrize(("name", "split"), REAL)
def test_the_real_files_have_the_classes_and_colours_they_should(name, split):
    images, labels = LOADERS[name](split)
    counts, means, stds = REAL[name, split]
    if counts is None:
        assert len(labels) == SIZES[name, split]
        assert np.unique(labels).tolist() == list(range(10))
    else:
        assert np.bincount(labels).tolist() == counts
    assert images.shape == (len(labels), 3, 32, 32)
    if name == "MNIST-M":
        np.testing.assert_array_equal(labels, load_mnist(split).labels[: len(labels)])
    some = images[::5, :, 2:30, 2:30] if name == "MNIST" else images[::5]
    np.testing.assert_allclose(some.mean(axis=(0, 2, 3)) / 255, means, atol=0.004)
    np.testing.assert_allclose(some.std(axis=(0, 2, 3)) / 255, stds, atol=0.004)


@pytest.fixture
def photographs(rng):
    return [rng.integers(0, 256, (height, width, 3), np.uint8) for height, width in ((9, 7), (6, 5), (8, 20))]


def _cuts(image, photographs):
    """Where a patch was cut: every (photograph, row, column) that has it."""
    height, width = image.shape[1:]
    return [
        (index, row, column)
        for index, photograph in enumerate(photographs)
        for row in range(photograph.shape[0] - height + 1)
        for column in range(photograph.shape[1] - width + 1)
        if (photograph[row : row + height, column : column + width].transpose(2, 0, 1) == image).all()
    ]


def test_every_patch_is_a_cut_of_a_photograph_and_every_cut_is_drawn_evenly(photographs):
    cuts = [_cuts(image, photographs) for image in make_mnist_m(np.zeros((1500, 3, 6, 5), np.uint8), photographs, 1)]
    assert all(len(cut) == 1 for cut in cuts)
    counts = {cut: cuts.count([cut]) for (cut,) in cuts}
    # 4 x 3, 1 and 3 x 16 cuts in the three photographs, each photograph a third of the draws.
    assert len(counts) == 12 + 1 + 48
    assert abs(counts[1, 0, 0] - 500) < 80
    assert abs(np.mean([counts[0, row, column] for row in range(4) for column in range(3)]) - 500 / 12) < 8


def test_ink_of_any_strength_inverts_the_cut_and_seeds_decide(photographs, rng):
    ink = (rng.integers(1, 256, (40, 1, 6, 5)) * rng.integers(0, 2, (40, 1, 6, 5))).repeat(3, axis=1).astype(np.uint8)
    made, cuts = make_mnist_m(ink, photographs, 3), make_mnist_m(np.zeros_like(ink), photographs, 3)
    np.testing.assert_array_equal(made, np.where(ink > 0, 255 - cuts, cuts))
    np.testing.assert_array_equal(made, make_mnist_m(ink, photographs, 3))
    assert (made != make_mnist_m(ink, photographs, 4)).any(axis=(1, 2, 3)).mean() > 0.5


@pytest.mark.parametrize("bad", [np.s_[:5], np.s_[:, :4]])
def test_photographs_that_are_too_small_are_refused(photographs, bad):
    for given in ([], [photographs[0], photographs[0][bad]]):
        with pytest.raises(InvalidInputError, match="photographs must hold pictures of at least 6 x 5"):
            make_mnist_m(np.zeros((1, 3, 6, 5), np.uint8), given)


# Photograph, row and column of the cuts under the first published test digits, found by comparing every one.
PUBLISHED = [(137, 269, 152), (13, 332, 84), (44, 108, 30), (199, 228, 239)]


@pytest.mark.data
def test_the_published_set_is_made_so():
    mnist, published, photographs = load_mnist("test").images[:9001], load_mnist_m("test").images, load_photographs()
    assert len(photographs) == 200
    assert {photograph.shape for photograph in photographs} == {(321, 481, 3), (481, 321, 3)}
    for digit, image, (index, row, column) in zip(mnist, published, PUBLISHED, strict=False):
        cut = photographs[index][row : row + 32, column : column + 32]
        np.testing.assert_array_equal(make_mnist_m(digit[None], [cut])[0], image)
    made = make_mnist_m(mnist[::9], photographs)
    for moment in (np.mean, np.std):
        np.testing.assert_allclose(moment(made, axis=(0, 2, 3)), moment(published, axis=(0, 2, 3)), atol=0.01 * 255)

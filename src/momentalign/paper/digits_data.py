"""Digit images of three worlds: handwriting (MNIST), house numbers (SVHN), handwriting over photographs (MNIST-M).

Section 6.1 of Zellinger et al. (2019). All are read as images of 32 x 32 in three colours. References: Y. LeCun, The
MNIST database of handwritten digits, 1998; Y. Netzer et al., Reading digits in natural images with unsupervised feature
learning, 2011; Y. Ganin et al., Domain-adversarial training of neural networks, JMLR 17, 2016.

MNIST-M: digits over random cuts of photographs, the colours inverted where the digit is.

The recipe of Y. Ganin et al., Domain-adversarial training of neural networks, JMLR 17, 2016, Section 5.2.4, as their
published set has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.paper.catalogue import (
    MNIST,
    MNIST_M_TEST,
    MNIST_M_TRAIN_A,
    PHOTOGRAPHS,
    SVHN_TEST,
    SVHN_TRAIN_A,
    SVHN_TRAIN_B,
    data_folder,
    find_file,
)
from momentalign.paper.image_files import Pixels, cut_pictures, decode_picture, read_idx, read_mat

__all__ = [
    "Digits",
    "Split",
    "blend",
    "grey_to_colour",
    "load_mnist",
    "load_mnist_m",
    "load_photographs",
    "load_svhn",
    "make_mnist_m",
]

Split: TypeAlias = Literal["train", "test"]
Labels: TypeAlias = NDArray[np.int64]

SIDE = 32
# MNIST's own word for its test part.
IDX = {"train": "train", "test": "t10k"}
PACKED = {
    ("MNIST", "train"): (MNIST,),
    ("MNIST", "test"): (MNIST,),
    ("SVHN", "train"): (SVHN_TRAIN_A, SVHN_TRAIN_B),
    ("SVHN", "test"): (SVHN_TEST,),
    ("MNIST-M", "train"): (MNIST_M_TRAIN_A,),
    ("MNIST-M", "test"): (MNIST_M_TEST,),
}
# Images unpacked at a time: their three planes stay in the cache.
BLOCK = 256


class Digits(NamedTuple):
    """Images (N, 3, 32, 32) of bytes, red, green and blue, and the digits they show, 0 to 9."""

    images: Pixels
    labels: Labels


def load_mnist(split: Split, folder: str | Path | None = None) -> Digits:
    """Return MNIST, 60,000 training or 10,000 test digits, padded and coloured by :func:`grey_to_colour`.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``.
    folder
        Where ``mnist.npz`` or the four idx files (plain or ``.gz``) are; None takes ``MOMENTALIGN_DATA``.

    Examples
    --------
    >>> import tempfile
    >>> temporary = tempfile.TemporaryDirectory()
    >>> folder = Path(temporary.name)
    >>> header = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28])
    >>> _ = (folder / "t10k-images-idx3-ubyte").write_bytes(header + bytes(784))
    >>> _ = (folder / "t10k-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]))
    >>> digits = load_mnist("test", folder)
    >>> digits.images.shape, digits.labels.tolist()
    ((1, 3, 32, 32), [7])
    >>> temporary.cleanup()
    """
    place = _place("MNIST", split, folder)
    if _is_packed("MNIST", split, place):
        with np.load(find_file(PACKED["MNIST", split][0], place), allow_pickle=False) as arrays:
            return Digits(grey_to_colour(arrays[f"x_{split}"]), arrays[f"y_{split}"].astype(np.int64))
    images = _plain_or_gz(place / f"{IDX[split]}-images-idx3-ubyte")
    labels = _plain_or_gz(place / f"{IDX[split]}-labels-idx1-ubyte")
    if images is None or labels is None:
        raise _missing("MNIST", split, place)
    grey = read_idx(images, dimensions=3)
    _refuse_shape(images, grey, (len(grey), 28, 28))
    return Digits(grey_to_colour(grey), _labels(labels, read_idx(labels, dimensions=1), len(grey)))


def load_svhn(split: Split, folder: str | Path | None = None) -> Digits:
    """Return the cropped house numbers, 73,257 training or 26,032 test digits; the packed training files hold 50,000.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``.
    folder
        Where ``svhn_train_a.npz`` and ``svhn_train_b.npz`` (the first 50,000 training digits in the official order) or
        ``svhn_test.npz``, or the official ``train_32x32.mat`` or ``test_32x32.mat`` are; None takes
        ``MOMENTALIGN_DATA``.

    Examples
    --------
    >>> import tempfile
    >>> from scipy.io import savemat
    >>> temporary = tempfile.TemporaryDirectory()
    >>> folder = Path(temporary.name)
    >>> images = np.zeros((32, 32, 3, 2), np.uint8)
    >>> savemat(folder / "test_32x32.mat", {"X": images, "y": [[4], [10]]})  # the official files write 10 for 0
    >>> load_svhn("test", folder).labels.tolist()
    [4, 0]
    >>> temporary.cleanup()
    """
    place = _place("SVHN", split, folder)
    if _is_packed("SVHN", split, place):
        return _unpack_all("SVHN", split, place)
    path = place / f"{split}_32x32.mat"
    if not path.is_file():
        raise _missing("SVHN", split, place)
    images, labels = read_mat(path, ("X", "y"))
    _refuse_shape(path, images, (SIDE, SIDE, 3, images.shape[-1]))
    if not np.isin(labels, np.arange(1, 11)).all():
        raise DamagedFileError(f"{path} holds labels that are not 1 to 10; get it again.")
    digits = _labels(path, labels.ravel() % 10, images.shape[-1])
    return Digits(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits)


def load_mnist_m(split: Split, folder: str | Path | None = None) -> Digits:
    """Return MNIST-M as published, 59,001 training or 9,001 test digits; the packed training file holds 30,000.

    Digit i is digit i of MNIST; :func:`~momentalign.paper.digits_data.make_mnist_m` makes others by the same recipe.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``.
    folder
        Where ``mnistm_train_a.npz`` (the first 30,000 training digits) or ``mnistm_test.npz``, or the published
        ``mnist_m_train_labels.txt`` and folder ``mnist_m_train`` of PNG files (or ``..._test...``), perhaps inside
        ``mnist_m``, are; None takes ``MOMENTALIGN_DATA``.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> temporary = tempfile.TemporaryDirectory()
    >>> folder = Path(temporary.name)
    >>> (folder / "mnist_m_test").mkdir()
    >>> Image.new("RGB", (32, 32), (1, 2, 3)).save(folder / "mnist_m_test" / "00000000.png")
    >>> _ = (folder / "mnist_m_test_labels.txt").write_text("00000000.png 7")
    >>> digits = load_mnist_m("test", folder)
    >>> digits.images[0, :, 0, 0].tolist(), digits.labels.tolist()
    ([1, 2, 3], [7])
    >>> temporary.cleanup()
    """
    place = _place("MNIST-M", split, folder)
    if _is_packed("MNIST-M", split, place):
        return _unpack_all("MNIST-M", split, place)
    for inside in (place, place / "mnist_m"):
        listing = inside / f"mnist_m_{split}_labels.txt"
        if listing.is_file():
            return _read_pictures(listing, inside / f"mnist_m_{split}")
    raise _missing("MNIST-M", split, place)


def grey_to_colour(grey: Pixels) -> Pixels:
    """Return grey images (N, 28, 28) as (N, 3, 32, 32): two rows or columns of zeros on each side, three equal colours.

    Examples
    --------
    >>> images = grey_to_colour(np.full((1, 28, 28), 9, np.uint8))
    >>> images.shape, images[0, 2, 16, :4].tolist()
    ((1, 3, 32, 32), [0, 0, 9, 9])
    """
    images = np.zeros((len(grey), 3, SIDE, SIDE), np.uint8)
    images[:, :, 2:-2, 2:-2] = grey[:, None]
    return images


def _place(name: str, split: str, folder: str | Path | None) -> Path:
    if split not in get_args(Split):
        raise InvalidInputError(f'split must be "train" or "test", got {split!r}.')
    return data_folder(folder, name=f"{name} ({split})", explanation=f"It is read from {_forms(name, split)}.")


def _forms(name: str, split: str) -> str:
    """Everything a split may be read from, in words."""
    usual = {
        "MNIST": f"the idx files {IDX[split]}-images-idx3-ubyte and {IDX[split]}-labels-idx1-ubyte, plain or .gz",
        "SVHN": f"the official {split}_32x32.mat",
        "MNIST-M": f"the published mnist_m_{split}_labels.txt with the folder mnist_m_{split} of PNG files",
    }
    return f"{' and '.join(file.name for file in PACKED[name, split])}, or from {usual[name]}"


def _missing(name: str, split: str, place: Path) -> DataNotFoundError:
    return DataNotFoundError(
        f"{name} ({split}) is not in {place}: it is read from {_forms(name, split)}; --data DIR says where to look."
    )


def _is_packed(name: str, split: str, place: Path) -> bool:
    return all((place / file.name).is_file() for file in PACKED[name, split])


def _unpack_all(name: str, split: str, place: Path) -> Digits:
    """The parts of a packed split, one after the other; only one part is held twice at a time."""
    paths = [find_file(file, place) for file in PACKED[name, split]]
    labels = [_member(path, "y") for path in paths]
    images = np.empty((sum(map(len, labels)), 3, SIDE, SIDE), np.uint8)
    start = 0
    for path, own in zip(paths, labels, strict=True):
        _unpack(_member(path, "x_packed"), images[start : start + len(own)])
        start += len(own)
    return Digits(images, np.concatenate(labels).astype(np.int64))


def _member(path: Path, name: str) -> Pixels:
    with np.load(path, allow_pickle=False) as arrays:
        return np.asarray(arrays[name])


def _unpack(packed: Pixels, images: Pixels) -> None:
    """Undo the packing: planes G, R - G and B - G modulo 256, differenced down and across."""
    for start in range(0, len(packed), BLOCK):
        block = packed[start : start + BLOCK]
        planes = np.add.accumulate(np.add.accumulate(block, axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
        green, rest = planes[:, :1], planes[:, 1:]
        out = images[start : start + BLOCK]
        out[:, 1:2] = green
        np.add(rest, green, out=out[:, ::2])


def _plain_or_gz(path: Path) -> Path | None:
    return next((form for form in (path, path.with_name(f"{path.name}.gz")) if form.is_file()), None)


def _refuse_shape(path: Path, images: NDArray[Any], shape: tuple[int, ...]) -> None:
    if images.shape != shape or images.dtype != np.uint8:
        raise DamagedFileError(
            f"{path} holds images of shape {images.shape} and type {images.dtype}, expected {shape} and uint8; "
            "get it again."
        )


def _labels(path: Path, labels: NDArray[Any], images: int) -> Labels:
    if len(labels) != images:
        raise DamagedFileError(f"{path} holds {len(labels)} labels for {images} images; get both again.")
    if labels.size and labels.max() > 9:
        raise DamagedFileError(f"{path} holds the label {labels.max()}, expected 0 to 9; get it again.")
    return labels.astype(np.int64)


def _read_pictures(listing: Path, folder: Path) -> Digits:
    """The PNG files of a folder in the order of a text file with a name and a label in every line."""
    lines = listing.read_text(encoding="ascii", errors="replace").splitlines()
    images = np.empty((len(lines), 3, SIDE, SIDE), np.uint8)
    labels = np.empty(len(lines), np.int64)
    for row, line in enumerate(lines):
        # A name without slashes: a listing cannot lead out of its folder.
        parts = re.fullmatch(r"(\w+\.png) (\d)\s*", line)
        if parts is None:
            raise DamagedFileError(
                f"{listing}: line {row + 1} is {line!r:.40}, expected the name of a PNG file and a digit; get it again."
            )
        images[row] = _read_picture(folder / parts[1]).transpose(2, 0, 1)
        labels[row] = int(parts[2])
    return Digits(images, labels)


def _read_picture(path: Path) -> Pixels:
    if not path.is_file():
        raise DamagedFileError(f"{path} is not there, but the labels name it; get the set again.")
    return decode_picture(path.read_bytes(), str(path), kind="PNG", size=(SIDE, SIDE))


def make_mnist_m(images: Pixels, photographs: Sequence[Pixels], seed: int = 0, *, first: int = 0) -> Pixels:
    r"""Blend each digit with a cut of a photograph, drawn evenly: first the photograph, then the place in it.

    Parameters
    ----------
    images
        Digits (N, 3, height, width) of bytes, zero where there is no ink, as of
        :func:`~momentalign.paper.digits_data.load_mnist`.
    photographs
        Pictures (height, width, 3) of bytes, none smaller than an image, as of :func:`load_photographs`.
    seed
        The same seed gives the same images, on every machine and however many are made in one call.
    first
        The number of `images[0]` in the whole set, for making it in blocks.

    Returns
    -------
    Images of the same shape.

    Examples
    --------
    >>> digit = np.zeros((1, 3, 4, 4), np.uint8)
    >>> digit[:, :, 1:3, 2] = 200
    >>> sky = np.full((9, 9, 3), (10, 20, 250), np.uint8)
    >>> make_mnist_m(digit, [sky])[0, 2].tolist()
    [[250, 250, 250, 250], [250, 250, 5, 250], [250, 250, 5, 250], [250, 250, 250, 250]]
    """
    _refuse_images(images)
    _refuse_photographs(photographs, images.shape[2:])
    if first < 0:
        raise InvalidInputError(f"first must be at least 0, got {first}; it is the number of images made before.")
    # Three draws an image, so that image i has the same ones whatever the blocks are.
    generator = np.random.PCG64(seed)
    generator.advance(3 * first)
    draws = np.random.Generator(generator).random((len(images), 3))
    return blend(images, _cuts(photographs, draws, images.shape))


def blend(images: Pixels, patches: Pixels) -> Pixels:
    r"""Return patches whose colours are inverted where there is ink.

    With the digit :math:`d` and the patch :math:`p` every value becomes :math:`|p - 255 [d > 0]|`. The paper writes
    :math:`|p - d|`; the published images were made with a digit of two levels, any ink counting as full.

    Examples
    --------
    >>> blend(np.array([[0, 1, 255]], np.uint8), np.array([[10, 20, 30]], np.uint8)).tolist()
    [[10, 235, 225]]
    """
    return np.where(images > 0, ~patches, patches)


def load_photographs(folder: str | Path | None = None) -> list[Pixels]:
    """Return the 200 training photographs of BSDS500, (321, 481, 3) or (481, 321, 3) bytes each.

    Parameters
    ----------
    folder
        Where ``bsds500_train_jpeg.npz`` is; None takes ``MOMENTALIGN_DATA``.
    """
    with np.load(find_file(PHOTOGRAPHS, folder), allow_pickle=False) as arrays:
        return cut_pictures(arrays["jpeg"], arrays["jpeg_offset"], PHOTOGRAPHS.name)


def _cuts(photographs: Sequence[Pixels], draws: NDArray[np.float64], shape: tuple[int, ...]) -> Pixels:
    """A cut of a photograph for each row of numbers in [0, 1)."""
    height, width = shape[2:]
    patches = np.empty(shape, np.uint8)
    chosen = (draws[:, 0] * len(photographs)).astype(np.intp)
    rooms = np.array([(p.shape[0] - height + 1, p.shape[1] - width + 1) for p in photographs])[chosen]
    corners = (draws[:, 1:] * rooms).astype(np.intp)
    planes = [photograph.transpose(2, 0, 1) for photograph in photographs]
    for patch, photograph, (row, column) in zip(patches, chosen.tolist(), corners.tolist(), strict=True):
        patch[:] = planes[photograph][:, row : row + height, column : column + width]
    return patches


def _refuse_images(images: Pixels) -> None:
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != np.uint8:
        raise InvalidInputError(
            f"images must be bytes of shape (N, 3, height, width), got {images.shape} of {images.dtype}; "
            "load_mnist gives such."
        )


def _refuse_photographs(photographs: Sequence[Pixels], size: tuple[int, ...]) -> None:
    if not len(photographs):
        raise InvalidInputError("photographs holds 0 pictures; load_photographs gives 200.")
    for index, photograph in enumerate(photographs):
        colours = photograph.ndim == 3 and photograph.shape[2] == 3 and photograph.dtype == np.uint8
        if not colours or photograph.shape[0] < size[0] or photograph.shape[1] < size[1]:
            raise InvalidInputError(
                f"photographs: number {index} has shape {photograph.shape} and type {photograph.dtype}, expected bytes "
                f"(height, width, 3) of at least {tuple(size)}; leave it out or enlarge it."
            )

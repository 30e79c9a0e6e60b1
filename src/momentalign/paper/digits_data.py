"""Digit images of three worlds: handwriting (MNIST), house numbers (SVHN), handwriting over photographs (MNIST-M).

Section 6.1 of Zellinger et al. (2019). All are read as images of 32 x 32 in three colours. References: Y. LeCun, The
MNIST database of handwritten digits, 1998; Y. Netzer et al., Reading digits in natural images with unsupervised feature
learning, 2011; Y. Ganin et al., Domain-adversarial training of neural networks, JMLR 17, 2016.
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
    SVHN_ORIGINALS,
    SVHN_TEST,
    SVHN_TRAIN_A,
    SVHN_TRAIN_B,
    check_sha256,
    data_folder,
    find_file,
)
from momentalign.paper.image_files import Pixels, decode_picture, read_idx

__all__ = [
    "Digits",
    "Split",
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
# MNIST's own name for its test part.
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
    """
    folder = _folder("MNIST", split, folder)
    if _is_packed("MNIST", split, folder):
        with np.load(find_file(PACKED["MNIST", split][0], folder), allow_pickle=False) as arrays:
            return Digits(grey_to_colour(arrays[f"x_{split}"]), arrays[f"y_{split}"].astype(np.int64))
    images = _plain_or_gz(folder / f"{IDX[split]}-images-idx3-ubyte")
    labels = _plain_or_gz(folder / f"{IDX[split]}-labels-idx1-ubyte")
    if images is None or labels is None:
        raise _missing("MNIST", split, folder)
    grey, digits = read_idx(images, dimensions=3), read_idx(labels, dimensions=1)
    if grey.shape[1:] != (28, 28):
        raise DamagedFileError(f"{images} holds images of shape {grey.shape}, expected (N, 28, 28); get it again.")
    if len(digits) != len(grey):
        raise DamagedFileError(f"{labels} holds {len(digits)} labels for {len(grey)} images; get both again.")
    if digits.size and digits.max() > 9:
        raise DamagedFileError(f"{labels} holds the label {digits.max()}, expected 0 to 9; get it again.")
    return Digits(grey_to_colour(grey), digits.astype(np.int64))


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
    """
    folder = _folder("SVHN", split, folder)
    if _is_packed("SVHN", split, folder):
        return _load_packed("SVHN", split, folder)
    path = folder / f"{split}_32x32.mat"
    if not path.is_file():
        raise _missing("SVHN", split, folder)
    # Checked before it is read: a wrong byte in a MATLAB file can end the process in loadmat.
    check_sha256(path, SVHN_ORIGINALS[split].sha256, remedy="get it again with momentalign datasets get svhn")
    from scipy.io import loadmat

    arrays = loadmat(path, variable_names=["X", "y"])
    # The official files write 10 for 0.
    labels = arrays["y"].ravel() % 10
    return Digits(np.ascontiguousarray(arrays["X"].transpose(3, 2, 0, 1)), labels.astype(np.int64))


def load_mnist_m(split: Split, folder: str | Path | None = None) -> Digits:
    """Return MNIST-M as published, 59,001 training or 9,001 test digits; the packed training file holds 30,000.

    Digit i is digit i of MNIST; :func:`make_mnist_m` makes others in the same way.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``.
    folder
        Where ``mnistm_train_a.npz`` (the first 30,000 training digits) or ``mnistm_test.npz``, or the published
        ``mnist_m_train_labels.txt`` and folder ``mnist_m_train`` of PNG files (or ``..._test...``), perhaps inside
        ``mnist_m``, are; None takes ``MOMENTALIGN_DATA``.
    """
    folder = _folder("MNIST-M", split, folder)
    if _is_packed("MNIST-M", split, folder):
        return _load_packed("MNIST-M", split, folder)
    for inside in (folder, folder / "mnist_m"):
        listing = inside / f"mnist_m_{split}_labels.txt"
        if listing.is_file():
            return _load_pictures(listing, inside / f"mnist_m_{split}")
    raise _missing("MNIST-M", split, folder)


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


def load_photographs(folder: str | Path | None = None) -> list[Pixels]:
    """Return the 200 training photographs of BSDS500, (321, 481, 3) or (481, 321, 3) bytes each."""
    with np.load(find_file(PHOTOGRAPHS, folder), allow_pickle=False) as arrays:
        files = np.split(arrays["jpeg"], arrays["jpeg_offset"][1:-1])
    return [
        decode_picture(file.tobytes(), f"{PHOTOGRAPHS.name}, picture {index}", kind="JPEG")
        for index, file in enumerate(files)
    ]


def make_mnist_m(images: Pixels, photographs: Sequence[Pixels], seed: int = 0) -> Pixels:
    r"""Blend each digit with a random cut of a random photograph, as MNIST-M was made.

    With the digit :math:`d` and the cut :math:`p` every value becomes :math:`|p - 255 [d > 0]|`. The paper of Ganin et
    al. (Section 5.2.4) writes :math:`|p - d|`; the published images were made with any ink counting as full.

    Parameters
    ----------
    images
        Digits (N, 3, height, width) of bytes, zero where there is no ink, as of :func:`load_mnist`.
    photographs
        Pictures (height, width, 3) of bytes, none smaller than an image, as of :func:`load_photographs`.
    seed
        The same seed gives the same images, on every machine.

    Examples
    --------
    >>> digit = np.zeros((1, 3, 4, 4), np.uint8)
    >>> digit[:, :, 1:3, 2] = 200
    >>> sky = np.full((9, 9, 3), (10, 20, 250), np.uint8)
    >>> make_mnist_m(digit, [sky])[0, 2].tolist()
    [[250, 250, 250, 250], [250, 250, 5, 250], [250, 250, 5, 250], [250, 250, 250, 250]]
    """
    height, width = images.shape[2:]
    if not photographs or any(p.shape[0] < height or p.shape[1] < width for p in photographs):
        raise InvalidInputError(
            f"photographs must hold pictures of at least {height} x {width}; load_photographs does."
        )
    # Three draws an image: the photograph, then the row and the column in it.
    draws = np.random.default_rng(seed).random((len(images), 3))
    chosen = (draws[:, 0] * len(photographs)).astype(np.intp)
    rooms = np.array([(p.shape[0] - height + 1, p.shape[1] - width + 1) for p in photographs])[chosen]
    corners = (draws[:, 1:] * rooms).astype(np.intp)
    cuts = np.empty(images.shape, np.uint8)
    for cut, index, (row, column) in zip(cuts, chosen.tolist(), corners.tolist(), strict=True):
        cut[:] = photographs[index][row : row + height, column : column + width].transpose(2, 0, 1)
    return np.where(images > 0, ~cuts, cuts)


def _folder(name: str, split: str, folder: str | Path | None) -> Path:
    if split not in get_args(Split):
        raise InvalidInputError(f'split must be "train" or "test", got {split!r}.')
    return data_folder(folder, name=f"{name} ({split})", explanation=f"It is read from {_forms(name, split)}.")


def _missing(name: str, split: str, folder: Path) -> DataNotFoundError:
    return DataNotFoundError(
        f"{name} ({split}) is not in {folder}: it is read from {_forms(name, split)}; --data DIR says where to look."
    )


def _forms(name: str, split: str) -> str:
    """Everything a split may be read from."""
    usual = {
        "MNIST": f"the idx files {IDX[split]}-images-idx3-ubyte and {IDX[split]}-labels-idx1-ubyte, plain or .gz",
        "SVHN": f"the official {split}_32x32.mat",
        "MNIST-M": f"the published mnist_m_{split}_labels.txt with the folder mnist_m_{split} of PNG files",
    }
    return f"{' and '.join(file.name for file in PACKED[name, split])}, or from {usual[name]}"


def _plain_or_gz(path: Path) -> Path | None:
    return next((form for form in (path, path.with_name(f"{path.name}.gz")) if form.is_file()), None)


def _is_packed(name: str, split: str, folder: Path) -> bool:
    return all((folder / file.name).is_file() for file in PACKED[name, split])


def _load_packed(name: str, split: str, folder: Path) -> Digits:
    """The parts of a packed split, one after the other; only one part is held twice at a time."""
    paths = [find_file(file, folder) for file in PACKED[name, split]]
    labels = [_array(path, "y") for path in paths]
    images = np.empty((sum(map(len, labels)), 3, SIDE, SIDE), np.uint8)
    start = 0
    for path, own in zip(paths, labels, strict=True):
        _unpack(_array(path, "x_packed"), images[start : start + len(own)])
        start += len(own)
    return Digits(images, np.concatenate(labels).astype(np.int64))


def _array(path: Path, name: str) -> NDArray[Any]:
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


def _load_pictures(listing: Path, folder: Path) -> Digits:
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
        path = folder / parts[1]
        if not path.is_file():
            raise DamagedFileError(f"{path} is not there, but the labels name it; get the set again.")
        picture = decode_picture(path.read_bytes(), str(path), kind="PNG", size=(SIDE, SIDE))
        images[row], labels[row] = picture.transpose(2, 0, 1), int(parts[2])
    return Digits(images, labels)

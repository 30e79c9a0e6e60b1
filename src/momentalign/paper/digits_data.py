"""Digit images of three worlds: handwriting (MNIST), house numbers (SVHN), handwriting over photographs (MNIST-M).

Section 6.1 of Zellinger et al. (2019). All are read as images of 32 x 32 in three colours. References: Y. LeCun, The
MNIST database of handwritten digits, 1998; Y. Netzer et al., Reading digits in natural images with unsupervised feature
learning, 2011; Y. Ganin et al., Domain-adversarial training of neural networks, JMLR 17, 2016.

Files of numbers are opened only when their digest is right; pictures are decoded, whatever else is refused by name.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError, MissingExtraError
from momentalign.paper.catalogue import check_sha256, data_folder, find_data_set, find_file

__all__ = ["SIDE", "Digits", "Split", "decode_picture", "grey_to_colour", "load_mnist", "load_mnist_m", "load_svhn"]

Split: TypeAlias = Literal["train", "test"]
Pixels: TypeAlias = NDArray[np.uint8]

SIDE = 32
# MNIST's own name for its test part.
IDX = {"train": "train", "test": "t10k"}
# The digests of the originals of MNIST and SVHN, and of MNIST's where they have been unpacked.
DIGESTS = {file.name: file.sha256 for name in ("mnist", "svhn") for file in find_data_set(name).originals} | {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
# Every set and split: the packed files it is read from, and what else it may be read from.
FORMS = {
    ("MNIST", split): (
        ("mnist.npz",), f"the idx files {idx}-images-idx3-ubyte and {idx}-labels-idx1-ubyte, plain or .gz",
    )
    for split, idx in IDX.items()
} | {
    ("SVHN", "train"): (("svhn_train_a.npz", "svhn_train_b.npz"), "the official train_32x32.mat"),
    ("SVHN", "test"): (("svhn_test.npz",), "the official test_32x32.mat"),
} | {
    ("MNIST-M", split): (
        (packed,), f"the published mnist_m_{split}_labels.txt with the folder mnist_m_{split} of PNG files",
    )
    for split, packed in (("train", "mnistm_train_a.npz"), ("test", "mnistm_test.npz"))
}  # fmt: skip
BLOCK = 256  # images unpacked at a time: their three planes stay in the cache


class Digits(NamedTuple):
    """Images (N, 3, 32, 32) of bytes, red, green and blue, and the digits they show, 0 to 9."""

    images: Pixels
    labels: NDArray[np.int64]


def load_mnist(split: Split, folder: str | Path | None = None) -> Digits:
    """Return MNIST, 60,000 training or 10,000 test digits, padded and coloured by :func:`grey_to_colour`.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``.
    folder
        Where ``mnist.npz`` or the four idx files (plain or ``.gz``) are; None takes ``MOMENTALIGN_DATA``.
    """
    folder, packed = _find("MNIST", split, folder)
    if packed:
        return Digits(grey_to_colour(_array(packed[0], f"x_{split}")), _array(packed[0], f"y_{split}").astype(np.int64))
    names = (f"{IDX[split]}-images-idx3-ubyte", f"{IDX[split]}-labels-idx1-ubyte")
    found = [next(filter(Path.is_file, (folder / name, folder / f"{name}.gz")), None) for name in names]
    if found[0] is None or found[1] is None:
        raise _missing("MNIST", split, folder)
    grey, labels = _read_idx(found[0]), _read_idx(found[1])
    return Digits(grey_to_colour(grey.reshape(-1, 28, 28)), labels.astype(np.int64))


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
    folder, packed = _find("SVHN", split, folder)
    if packed:
        return _load_packed(packed)
    path = folder / f"{split}_32x32.mat"
    if not path.is_file():
        raise _missing("SVHN", split, folder)
    # A wrong byte in a MATLAB file can end the process in loadmat.
    _check_original(path)
    from scipy.io import loadmat

    arrays = loadmat(path, variable_names=["X", "y"])
    # The official files write 10 for 0.
    labels = arrays["y"].ravel() % 10
    return Digits(np.ascontiguousarray(arrays["X"].transpose(3, 2, 0, 1)), labels.astype(np.int64))


def load_mnist_m(split: Split, folder: str | Path | None = None) -> Digits:
    """Return MNIST-M as published, 59,001 training or 9,001 test digits; the packed training file holds 30,000.

    Digit i is digit i of MNIST.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``.
    folder
        Where ``mnistm_train_a.npz`` (the first 30,000 training digits) or ``mnistm_test.npz``, or the published
        ``mnist_m_train_labels.txt`` and folder ``mnist_m_train`` of PNG files (or ``..._test...``), perhaps inside
        ``mnist_m``, are; None takes ``MOMENTALIGN_DATA``.
    """
    folder, packed = _find("MNIST-M", split, folder)
    if packed:
        return _load_packed(packed)
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


def decode_picture(
    content: bytes, name: str, *, kind: Literal["PNG", "JPEG"], size: tuple[int, int] | None = None
) -> Pixels:
    """Return a picture as (height, width, 3), red, green and blue.

    Parameters
    ----------
    content
        The bytes of the file.
    name
        What errors call it.
    kind
        The only format that is tried.
    size
        The height and width it must have, checked before it is decoded; None takes any.

    Examples
    --------
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (3, 2), (255, 0, 9)).save(file, "PNG")
    >>> picture = decode_picture(file.getvalue(), "red", kind="PNG")
    >>> picture.shape, picture[0, 0].tolist()
    ((2, 3, 3), [255, 0, 9])
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError.of("Pictures are read with Pillow", "deep") from error
    # Decoders raise errors of many types, not all of them OSError.
    try:
        with Image.open(io.BytesIO(content), formats=[kind]) as picture:
            found = (picture.height, picture.width)
            if size is None or found == size:
                return np.asarray(picture.convert("RGB"))
    except Exception as error:
        raise DamagedFileError(f"{name} cannot be read as {kind} ({error}); get it again.") from error
    raise DamagedFileError(f"{name} is a picture of {found}, expected {size} (height, width); get it again.")


def _find(name: str, split: str, folder: str | Path | None) -> tuple[Path, list[Path]]:
    """The folder of a set and its packed files, if all of them are there and right."""
    if split not in IDX:
        raise InvalidInputError(f'split must be "train" or "test", got {split!r}.')
    packed, _ = FORMS[name, split]
    folder = data_folder(folder, name=f"{name} ({split})", explanation=f"It is read from {_forms(name, split)}.")
    whole = all((folder / file).is_file() for file in packed)
    return folder, [find_file(file, folder) for file in packed] if whole else []


def _missing(name: str, split: str, folder: Path) -> DataNotFoundError:
    return DataNotFoundError(
        f"{name} ({split}) is not in {folder}: it is read from {_forms(name, split)}; --data DIR says where to look."
    )


def _forms(name: str, split: str) -> str:
    """Everything a split may be read from."""
    packed, usual = FORMS[name, split]
    return f"{' and '.join(packed)}, or from {usual}"


def _check_original(path: Path) -> None:
    """Refuse an original of another content than its authors published."""
    name = "mnist" if "ubyte" in path.name else "svhn"
    check_sha256(path, DIGESTS[path.name], remedy=f"get it again with momentalign datasets get {name}")


def _read_idx(path: Path) -> Pixels:
    """The values of an idx file, flat: behind two zeros, the type, the number n of dimensions and n sizes."""
    _check_original(path)
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])


def _load_packed(paths: Sequence[Path]) -> Digits:
    """The parts of a packed split, one after the other; only one part is held twice at a time."""
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

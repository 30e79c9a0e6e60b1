"""MNIST-M: digits over random cuts of photographs, the colours inverted where the digit is.

The recipe of Y. Ganin et al., Domain-adversarial training of neural networks, JMLR 17, 2016, Section 5.2.4, as their
published set has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from momentalign.data.catalogue import PHOTOGRAPHS, find_file
from momentalign.data.image_files import Pixels, cut_pictures
from momentalign.errors import InvalidInputError

__all__ = ["blend", "load_photographs", "make_mnist_m"]


def make_mnist_m(images: Pixels, photographs: Sequence[Pixels], seed: int = 0, *, first: int = 0) -> Pixels:
    r"""Blend each digit with a cut of a photograph, drawn evenly: first the photograph, then the place in it.

    Parameters
    ----------
    images
        Digits (N, 3, height, width) of bytes, zero where there is no ink, as of
        :func:`~momentalign.data.digits.load_mnist`.
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

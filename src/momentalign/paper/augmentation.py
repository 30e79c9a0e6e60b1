"""Batches of images that live on the device that trains: drawn, changed and standardised there.

Section 6.5 of Zellinger et al. (2019) trains on up to 500,000 images of 3 kB, which fit on any accelerator as bytes.
Every image of a batch gets its own random numbers, and all images change at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional

from momentalign.errors import InvalidInputError, InvalidTypeError

__all__ = ["Augmentation", "DeviceBatches", "augment", "prepared", "standardize", "to_float"]

GREY_LEVEL = 1 / 255


@dataclass(frozen=True)
class Augmentation:
    """How far images may change; zero leaves out a change. Every range is drawn from evenly, for each image.

    Attributes
    ----------
    rotation
        Degrees, to either side.
    scale
        Enlarged or shrunk by a factor between ``1 / (1 + scale)`` and ``1 + scale``, even in its logarithm.
    shift
        Fraction of the side, in each direction.
    shear
        Fraction of its height by which an upright leans, to either side.
    channel_inversion
        Probability of the negative of one colour, for each colour by itself: what is light in red may be dark in blue.

    Examples
    --------
    >>> Augmentation(rotation=10.0, shift=0.1).rotation
    10.0
    """

    rotation: float = 0.0
    scale: float = 0.0
    shift: float = 0.0
    shear: float = 0.0
    channel_inversion: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < math.inf:
                raise InvalidInputError(f"{field.name} must be finite and not negative, got {value}; 0 leaves it out.")
        if self.channel_inversion > 1:
            raise InvalidInputError(
                f"channel_inversion is a probability, got {self.channel_inversion}; give at most 1."
            )


class DeviceBatches:
    """Random batches of images, drawn with replacement by the generator of their device.

    Parameters
    ----------
    images
        Bytes, (N, C, H, W).
    labels
        Classes, (N,); with labels a batch is ``(images, labels)``, without it is the images.
    batch_size
        Images in a batch.
    augmentation
        How far images may change.
    balanced
        Whether every class has the same share of a batch, up to one image, until :meth:`follow` gives them others.
    standardized
        Whether every image gets mean zero and standard deviation one; else values go from -1 to 1.

    Examples
    --------
    >>> images, labels = torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.tensor([0] * 9 + [1])
    >>> batches = DeviceBatches(images, labels, batch_size=4, balanced=True)
    >>> len(batches), next(iter(batches))[1].tolist()
    (3, [0, 1, 0, 1])
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor | None = None,
        *,
        batch_size: int,
        augmentation: Augmentation | None = None,
        balanced: bool = False,
        standardized: bool = True,
    ) -> None:
        if batch_size < 1 or len(images) == 0:
            raise InvalidInputError(f"batch_size={batch_size} of {len(images)} images gives no batch; raise both to 1.")
        if labels is not None and len(labels) != len(images):
            raise InvalidInputError(f"labels has {len(labels)} entries for {len(images)} images; give one for each.")
        if balanced and labels is None:
            raise InvalidInputError("balanced=True needs to know the classes; give labels.")
        self.images, self.labels, self.batch_size = images, labels, batch_size
        self.augmentation = augmentation if augmentation is not None else Augmentation()
        self.standardized = standardized
        self._classes = _rows_by_class(labels) if balanced and labels is not None else None
        self._ends: Tensor | None = None  # where the part of each class ends in a batch of length 1
        if self._classes is not None and len(self._classes[0]) > batch_size:
            raise InvalidInputError(
                f"batch_size={batch_size} is less than the {len(self._classes[0])} classes, so balanced batches would "
                "leave some out; raise it, or leave out balanced."
            )

    def __len__(self) -> int:
        """Batches that hold as many images as there are."""
        return -(-len(self.images) // self.batch_size)

    def follow(self, shares: Tensor) -> None:
        """Give every class its share of the next batches, up to two images; shares (classes,) are made to sum to 1.

        Classes come in random order, so that any part of a batch has about the same shares.

        Examples
        --------
        >>> images, labels = torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.tensor([0] * 9 + [1])
        >>> batches = DeviceBatches(images, labels, batch_size=100, balanced=True)
        >>> batches.follow(torch.tensor([0.75, 0.25]))
        >>> 74 <= 100 - int(next(iter(batches))[1].sum()) <= 76
        True
        """
        if self._classes is None or shares.shape != self._classes[1].shape:
            count = "are not balanced" if self._classes is None else f"have {len(self._classes[1])} classes"
            raise InvalidInputError(
                f"shares has shape {tuple(shares.shape)}, but these batches {count}; make balanced batches and give "
                "one share for each class."
            )
        ends = shares.double().cumsum(0)
        self._ends = (ends / ends[-1]).to(self.images.device)

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        for _ in range(len(self)):
            rows = self._draw()
            images = prepared(augment(to_float(self.images[rows]), self.augmentation), standardized=self.standardized)
            yield images if self.labels is None else (images, self.labels[rows])

    def _draw(self) -> Tensor:
        device = self.images.device
        if self._classes is None:
            return torch.randint(len(self.images), (self.batch_size,), device=device)
        rows, sizes = self._classes
        label = self._draw_labels(len(rows), device)
        index = torch.rand(self.batch_size, device=device, dtype=torch.float64) * sizes[label]
        return rows[label, index.long()]

    def _draw_labels(self, classes: int, device: torch.device) -> Tensor:
        if self._ends is None:
            return torch.arange(self.batch_size, device=device) % classes
        # At even distances from a random start: every share is met as nearly as whole images can.
        start = torch.rand(1, device=device, dtype=torch.float64)
        positions = torch.randperm(self.batch_size, device=device)
        return torch.searchsorted(self._ends, (positions + start) / self.batch_size).clamp_max(classes - 1)


def _rows_by_class(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of each class, (classes, longest), and how many they are."""
    rows = [torch.nonzero(labels == label).squeeze(1) for label in torch.unique(labels)]
    sizes = torch.tensor([len(own) for own in rows], device=labels.device)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), sizes


def to_float(images: Tensor) -> Tensor:
    """Return bytes 0 to 255 as values from 0 to 1."""
    if images.dtype != torch.uint8:
        raise InvalidTypeError(f"images must be bytes (torch.uint8), got {images.dtype}; floats need no to_float.")
    return images.float() / 255


def prepared(images: Tensor, *, standardized: bool = True) -> Tensor:
    """Return values from 0 to 1 as a network takes them."""
    return standardize(images) if standardized else 2 * images - 1


def standardize(images: Tensor) -> Tensor:
    r"""Give every image mean zero and standard deviation one over all its pixels and colours.

    .. math:: \hat x = (x - \mu(x)) / \max(\sigma(x), 1/255)

    A standard deviation below one grey level in 255 counts as one, so that a constant image becomes zero.

    Examples
    --------
    >>> standardize(torch.tensor([[[[0.0, 1.0]]], [[[0.3, 0.3]]]])).flatten(1)
    tensor([[-1.,  1.],
            [ 0.,  0.]])
    """
    variance, mean = torch.var_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)
    return (images - mean) / variance.sqrt().clamp(min=GREY_LEVEL)


def augment(images: Tensor, augmentation: Augmentation) -> Tensor:
    """Turn, scale, shear and move every image in one step, then take the negative of single colours.

    Parameters
    ----------
    images
        Values from 0 to 1, shape (N, C, H, W); pixels beyond the border repeat it.
    augmentation
        The ranges, from which the generator of the images' device draws.

    Examples
    --------
    >>> images = torch.rand(8, 3, 32, 32)
    >>> bool((augment(images, Augmentation(channel_inversion=1.0)) == 1 - images).all())
    True
    """
    if images.ndim != 4:
        raise InvalidInputError(
            f"images must have shape (N, C, H, W), got {tuple(images.shape)}; add the missing axes."
        )
    if not images.is_floating_point():
        raise InvalidTypeError(f"images must hold values from 0 to 1, got {images.dtype}; use to_float(images).")
    if augmentation.rotation or augmentation.scale or augmentation.shift or augmentation.shear:
        images = _move(images, augmentation)
    if augmentation.channel_inversion:
        chosen = torch.rand(*images.shape[:2], 1, 1, device=images.device) < augmentation.channel_inversion
        images = torch.where(chosen, 1 - images, images)
    return images


def _move(images: Tensor, augmentation: Augmentation) -> Tensor:
    """Sample every image along its own affine map, which takes a pixel to where its value comes from."""

    def draw(reach: float, *shape: int) -> Tensor:
        return (2 * torch.rand(len(images), *shape, device=images.device) - 1) * reach

    ratio = images.shape[2] / images.shape[3]
    angle = torch.deg2rad(draw(augmentation.rotation))
    factor = torch.exp(draw(math.log1p(augmentation.scale)))
    shear, shift = draw(augmentation.shear), draw(2 * augmentation.shift, 2)
    cosine, sine = torch.cos(angle) / factor, torch.sin(angle) / factor
    across = torch.stack([cosine, (cosine * shear + sine) * ratio], dim=1)
    down = torch.stack([-sine / ratio, cosine - sine * shear], dim=1)
    maps = torch.cat([torch.stack([across, down], dim=1), shift[..., None]], dim=2)
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)

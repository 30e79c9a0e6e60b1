"""Random changes of image batches on the device that trains: turned, moved, recoloured, blurred, cropped, mirrored.

Sections 6.4 and 6.5 of Zellinger et al. (2019) train on images. Every image of a batch gets its own random numbers, all
images change at once, and nothing waits for the host, so a step with it can be recorded as a CUDA graph.

Batches of images that live on the device that trains: drawn, changed and standardised there, no loader in between.

Section 6.5 of Zellinger et al. (2019) trains on up to 500,000 images of 3 kB, which fit on any accelerator as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional

from momentalign.errors import InvalidInputError, InvalidTypeError

__all__ = ["Augmentation", "DeviceBatches", "augment", "blur", "crop_and_mirror", "prepared", "standardize", "to_float"]

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
    inversion
        Probability of the negative, ``1 - image``: a dark digit on a light wall becomes a light one on a dark wall.
    channel_inversion
        Probability of the negative of one colour, for each colour by itself: what is light in red may be dark in blue.
    contrast
        Distances to the image's mean are multiplied by a factor between ``1 - contrast`` and ``1 + contrast``.
    brightness
        Added to all pixels, up to this much up or down.
    channel
        Added to all pixels of one colour, up to this much up or down.
    blur
        Largest deviation of a Gaussian blur, in pixels.
    noise
        Largest deviation of Gaussian noise.

    Examples
    --------
    >>> Augmentation(rotation=10.0, shift=0.1).rotation
    10.0
    """

    rotation: float = 0.0
    scale: float = 0.0
    shift: float = 0.0
    shear: float = 0.0
    inversion: float = 0.0
    channel_inversion: float = 0.0
    contrast: float = 0.0
    brightness: float = 0.0
    channel: float = 0.0
    blur: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < math.inf:
                raise InvalidInputError(f"{field.name} must be finite and not negative, got {value}; 0 leaves it out.")
        for name in ("inversion", "channel_inversion"):
            if getattr(self, name) > 1:
                raise InvalidInputError(f"{name} is a probability, got {getattr(self, name)}; give at most 1.")


def to_float(images: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return bytes 0 to 255 as numbers from 0 to 1.

    Examples
    --------
    >>> to_float(torch.tensor([0, 51, 255], dtype=torch.uint8))
    tensor([0.0000, 0.2000, 1.0000])
    """
    if images.dtype != torch.uint8:
        raise InvalidTypeError(f"images must be bytes (torch.uint8), got {images.dtype}; numbers need no to_float.")
    return images.to(dtype) / 255


def standardize(images: Tensor) -> Tensor:
    r"""Give every image mean zero and deviation one over all its pixels and colours.

    .. math:: \hat x = (x - \mu(x)) / \max(\sigma(x), 1/255)

    A deviation below one grey level in 255 counts as one, so that a constant image becomes zero.

    Examples
    --------
    >>> standardize(torch.tensor([[[[0.0, 1.0]]], [[[0.3, 0.3]]]])).flatten(1)
    tensor([[-1.,  1.],
            [ 0.,  0.]])
    """
    variance, mean = torch.var_mean(images.float(), dim=(1, 2, 3), correction=0, keepdim=True)
    return ((images - mean) / variance.sqrt().clamp(min=GREY_LEVEL)).to(images.dtype)


def augment(images: Tensor, augmentation: Augmentation, *, generator: torch.Generator | None = None) -> Tensor:
    """Change every image at random, within the ranges of ``augmentation``.

    The order is: turned, scaled, sheared and moved in one step, pixels beyond the border repeating it; negative, of the
    image and of single colours; contrast; brightness and colour; blur; noise. Values may leave the range from 0 to 1.

    Parameters
    ----------
    images
        Numbers from 0 to 1, shape (N, C, H, W). Type and memory format stay.
    augmentation
        The ranges.
    generator
        Where random numbers come from, on the device of ``images``; None takes the device's own.

    Examples
    --------
    >>> images = torch.rand(8, 3, 32, 32)
    >>> bool((augment(images, Augmentation(inversion=1.0)) == 1 - images).all())
    True
    """
    _refuse_images(images)
    dice = _Dice(images, generator)
    result = images.float()
    if augmentation.rotation or augmentation.scale or augmentation.shift or augmentation.shear:
        result = _move(result, augmentation, dice)
    if augmentation.inversion:
        result = torch.where(dice.uniform(1, 1, 1) < augmentation.inversion, 1 - result, result)
    if augmentation.channel_inversion:
        chosen = dice.uniform(images.shape[1], 1, 1) < augmentation.channel_inversion
        result = torch.where(chosen, 1 - result, result)
    result = _recolour(result, augmentation, dice)
    if augmentation.blur:
        result = blur(result, augmentation.blur * dice.uniform(1).expand(-1, 2))
    if augmentation.noise:
        deviation = augmentation.noise * dice.uniform(1, 1, 1)
        result = result + deviation * torch.randn(result.shape, generator=generator, device=images.device)
    return _like(images, result)


def blur(images: Tensor, deviations: Tensor) -> Tensor:
    r"""Blur with Gaussians whose deviations, shape (N, 2), are pixels down and across, for each image its own.

    Each row of the image becomes a mean of rows with weights :math:`\propto \exp(-(i - j)^2 / 2 \sigma^2)` that sum to
    one at the border too, as one matrix product; columns likewise.

    Examples
    --------
    >>> image = torch.tensor([[[[0.0, 0.0, 1.0, 0.0, 0.0]]]])
    >>> blur(image, torch.tensor([[1.0, 0.5]])).round(decimals=2)
    tensor([[[[0.0000, 0.1100, 0.7900, 0.1100, 0.0000]]]])
    """
    down, across = deviations.clamp(min=0.1).unbind(1)
    rows, columns = images.shape[2:]
    return _weights(down, rows) @ images @ _weights(across, columns).mT


def crop_and_mirror(images: Tensor, size: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Cut a square of ``size`` pixels at a random place from every image, and mirror half of them left to right.

    Parameters
    ----------
    images
        Any type, bytes too, shape (N, C, H, W).
    size
        Side of the result, at most that of the images.
    generator
        Where random numbers come from, on the device of ``images``; None takes the device's own.

    Examples
    --------
    >>> crop_and_mirror(torch.zeros(8, 3, 256, 256, dtype=torch.uint8), 227).shape
    torch.Size([8, 3, 227, 227])
    """
    count, _, height, width = images.shape
    if not 1 <= size <= min(height, width):
        raise InvalidInputError(f"size must be between 1 and the side of the images {height} x {width}, got {size}.")
    dice = _Dice(images, generator)
    steps = torch.arange(size, device=images.device)
    rows = dice.integers(height - size + 1) + steps
    columns = dice.integers(width - size + 1) + torch.where(dice.integers(2) == 0, steps, steps.flip(0))
    image = torch.arange(count, device=images.device)[:, None, None]
    cut = images.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]]
    return _like(images, cut.permute(0, 3, 1, 2))


class _Dice:
    """Random numbers on the device of the images, one for each image and place of a shape."""

    def __init__(self, images: Tensor, generator: torch.Generator | None) -> None:
        if generator is not None and generator.device.type != images.device.type:
            raise InvalidInputError(
                f"generator is on {generator.device} but images are on {images.device}; "
                f'make it with torch.Generator("{images.device.type}").'
            )
        self.count, self.device, self.generator = len(images), images.device, generator

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(self.count, *shape, device=self.device, generator=self.generator)

    def even(self, reach: float, *shape: int) -> Tensor:
        return (2 * self.uniform(*shape) - 1) * reach

    def integers(self, stop: int) -> Tensor:
        return torch.randint(stop, (self.count, 1), device=self.device, generator=self.generator)


def _move(images: Tensor, augmentation: Augmentation, dice: _Dice) -> Tensor:
    """Sample every image along its own affine map, from the place of a pixel to where its value comes from."""
    ratio = images.shape[2] / images.shape[3]
    angle = torch.deg2rad(dice.even(augmentation.rotation))
    factor = torch.exp(dice.even(math.log1p(augmentation.scale)))
    shear, shift = dice.even(augmentation.shear), dice.even(2 * augmentation.shift, 2)
    cosine, sine = torch.cos(angle) / factor, torch.sin(angle) / factor
    across = torch.stack([cosine, (cosine * shear + sine) * ratio], dim=1)
    down = torch.stack([-sine / ratio, cosine - sine * shear], dim=1)
    maps = torch.cat([torch.stack([across, down], dim=1), shift[..., None]], dim=2)
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _recolour(images: Tensor, augmentation: Augmentation, dice: _Dice) -> Tensor:
    if augmentation.contrast:
        mean = images.mean(dim=(1, 2, 3), keepdim=True)
        images = mean + (1 + dice.even(augmentation.contrast, 1, 1, 1)) * (images - mean)
    if augmentation.brightness:
        images = images + dice.even(augmentation.brightness, 1, 1, 1)
    if augmentation.channel:
        images = images + dice.even(augmentation.channel, images.shape[1], 1, 1)
    return images


def _weights(deviations: Tensor, size: int) -> Tensor:
    place = torch.arange(size, device=deviations.device)
    exponent = -((place - place[:, None]) ** 2) / (2 * deviations[:, None, None, None] ** 2)
    # Bounded from below, because products with numbers next to zero (denormal ones) are slow on CPUs.
    return torch.softmax(exponent.clamp(min=-20), dim=-1)


def _like(images: Tensor, result: Tensor) -> Tensor:
    """The result in the type and memory format of the images."""
    last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return result.to(images.dtype).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _refuse_images(images: Tensor) -> None:
    if images.ndim != 4:
        raise InvalidInputError(
            f"images must have shape (N, C, H, W), got {tuple(images.shape)}; add the missing axes."
        )
    if not images.is_floating_point():
        raise InvalidTypeError(f"images must hold numbers from 0 to 1, got {images.dtype}; use to_float(images).")


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
        Whether every image gets mean zero and deviation one; else values go from -1 to 1.

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
        self._classes = _members(labels) if balanced and labels is not None else None
        self._ends: Tensor | None = None  # of the classes' parts of a batch that is as long as 1
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
            count = "none are told apart" if self._classes is None else f"there are {len(self._classes[1])}"
            raise InvalidInputError(
                f"shares has shape {tuple(shares.shape)}, but of classes {count}; make balanced batches and give one "
                "share for each class."
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
        members, sizes = self._classes
        label = self._labels_drawn(len(members), device)
        place = torch.rand(self.batch_size, device=device, dtype=torch.float64) * sizes[label]
        return members[label, place.long()]

    def _labels_drawn(self, classes: int, device: torch.device) -> Tensor:
        if self._ends is None:
            return torch.arange(self.batch_size, device=device) % classes
        # At even distances from a random start: every share is met as nearly as whole images can.
        start = torch.rand(1, device=device, dtype=torch.float64)
        places = torch.randperm(self.batch_size, device=device)
        return torch.searchsorted(self._ends, (places + start) / self.batch_size).clamp_max(classes - 1)


def prepared(images: Tensor, *, standardized: bool = True) -> Tensor:
    """Return numbers from 0 to 1 as a network takes them."""
    return standardize(images) if standardized else 2 * images - 1


def _members(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of each class, (classes, longest), and how many they are."""
    rows = [torch.nonzero(labels == label).squeeze(1) for label in torch.unique(labels)]
    sizes = torch.tensor([len(own) for own in rows], device=labels.device)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), sizes

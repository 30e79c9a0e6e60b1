"""Batches of images that live on the device that trains: drawn, changed and standardised there, no loader in between.

Section 6.5 of Zellinger et al. (2019) trains on up to 500,000 images of 3 kB, which fit on any accelerator as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from momentalign.data.augmentation import Augmentation, augment, standardize, to_float
from momentalign.errors import InvalidInputError

__all__ = ["DeviceBatches", "prepared"]


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

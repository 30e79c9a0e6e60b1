"""The convolutional network for digits of 32 x 32 pixels: three blocks of two convolutions, a bounded embedding on top.

Section 6.5 of Zellinger et al. (2019). Structure of P. Haeusser, T. Frerix, A. Mordvintsev, D. Cremers, Associative
domain adaptation, ICCV 2017, with the activation of the embedding changed to tanh so that moments exist on a bounded
interval.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

__all__ = ["EMBEDDING", "EMBEDDING_INTERVAL", "DigitCNN"]

CHANNELS = (32, 64, 128)
SIDE = 32
EMBEDDING = "embedding"
"""The name of the layer that is aligned."""
EMBEDDING_INTERVAL = (-1.0, 1.0)


class DigitCNN(nn.Module):
    """Images (N, 3, 32, 32) to outputs (N, classes); ``embedding`` is the layer to align.

    Parameters
    ----------
    classes
        The number of outputs.
    width
        The units of the embedding.

    Examples
    --------
    >>> network = DigitCNN()
    >>> network(torch.zeros(4, 3, 32, 32)).shape
    torch.Size([4, 10])
    """

    def __init__(self, classes: int = 10, width: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, channels in zip((3, *CHANNELS), CHANNELS, strict=False):
            layers += [_convolution(inputs, channels), nn.ELU(), _convolution(channels, channels)]
            # ELU rises with its input, so it may come after the maximum, where it is a quarter of the work.
            layers += [nn.MaxPool2d(2), nn.ELU()]
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.embedding = BoundedEmbedding(CHANNELS[-1] * (SIDE // 8) ** 2, width)
        self.classifier = nn.Linear(width, classes)
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(cast(Tensor, layer.bias))

    def forward(self, images: Tensor) -> Tensor:
        """Return what enters the softmax."""
        images = images.contiguous(memory_format=torch.channels_last)
        return cast(Tensor, self.classifier(self.embedding(self.features(images))))


class BoundedEmbedding(nn.Module):
    """A linear layer and tanh, the latter in single precision: near the bounds half precision has few values left."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)

    @property
    def weight(self) -> Tensor:
        """The weights (width, inputs)."""
        return self.linear.weight

    def forward(self, features: Tensor) -> Tensor:
        """Return activations (N, width) in [-1, 1]."""
        return torch.tanh(self.linear(features).float())


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)

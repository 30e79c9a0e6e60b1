"""Any network and a layer's name: call the network, find the layer, read its output during a pass, know its range.

Section 5 of Zellinger et al. (2019) aligns the activations of one hidden layer; which one it is, a name says.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

from torch import Tensor, nn

from momentalign.errors import InvalidInputError, InvalidTypeError

__all__ = ["activation_interval", "eval_mode", "find_layer", "network_outputs", "recorded"]

NAMES_SHOWN = 12

# What these give lies between the smallest and the largest of what they are given, or zero.
KEEPING = (
    nn.Identity, nn.Flatten, nn.Unflatten,
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
)  # fmt: skip
TO_ONE = (nn.Sigmoid, nn.Hardsigmoid, nn.Softmax, nn.Softmax2d, nn.Softmin)
AROUND_ZERO = (nn.Tanh, nn.Softsign)


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """Return the submodule of a network that has this dotted name; an error lists the names nearest to it.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    >>> find_layer(network, "1")
    Tanh()
    """
    if not isinstance(name, str):
        raise InvalidTypeError(f"layer must be the name of a submodule, got {name!r}; try layer='fc'.")
    try:
        found = model.get_submodule(name)
    except AttributeError:
        found = model
    if found is model:
        raise InvalidInputError(
            f"layer {name!r} is not in {type(model).__name__}; layers it has: {_near(model, name)}."
        )
    return found


def _near(model: nn.Module, name: str) -> str:
    """The names most like this one, or the first ones."""
    names = [known for known, _ in model.named_modules() if known]
    near = difflib.get_close_matches(name, names, n=3) or names[:NAMES_SHOWN]
    return ", ".join(map(repr, near)) or "none"


def network_outputs(model: nn.Module, inputs: Any) -> Tensor:
    """Return the outputs (rows, ...) of a network, whatever form it takes its inputs and gives its outputs in.

    A dictionary whose keys are parameters of ``forward`` is given as keywords. Of a tuple or a dictionary of outputs,
    or an object with ``logits``, as those of ``transformers``, the logits are taken; they are what comes first.

    Examples
    --------
    >>> import torch
    >>> network_outputs(nn.Linear(2, 3), {"input": torch.zeros(4, 2)}).shape
    torch.Size([4, 3])
    """
    found = model(**inputs) if isinstance(inputs, Mapping) and _takes(model, inputs) else model(inputs)
    outputs: Any = found
    if isinstance(found, Mapping):
        outputs = found.get("logits")
    elif hasattr(found, "logits"):
        outputs = found.logits
    elif isinstance(found, (tuple, list)) and found:
        outputs = found[0]
    if isinstance(outputs, Tensor):
        return outputs
    raise InvalidTypeError(
        f"model must return one tensor, or logits first, got {type(found).__name__}; wrap it so that it returns its "
        "logits."
    )


def _takes(model: nn.Module, inputs: Mapping[Any, Any]) -> bool:
    """Whether the keys are keywords of the forward pass; a compiled network is asked for the one it was made of."""
    parameters = inspect.signature(getattr(model, "_orig_mod", model).forward).parameters
    return all(key in parameters for key in inputs)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put all of a network in eval mode and afterwards each part back in its own."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def recorded(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Keep what the named layers give in forward passes made inside, each as a matrix (rows, width).

    A layer that is called more than once is kept as of its last call, and as it gave it: a layer above that works in
    place changes nothing of it. Of a tuple, a dictionary or a dataclass, as of ``transformers``, the first part is
    kept.

    Examples
    --------
    >>> import torch
    >>> network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(8, 3))
    >>> with recorded(network, ["1"]) as activations:
    ...     outputs = network(torch.zeros(5, 1, 4, 4))
    >>> activations["1"].shape
    torch.Size([5, 8])
    """
    kept: dict[str, Tensor] = {}

    def keep(name: str, output: object) -> None:
        kept[name] = _as_matrix(name, output)

    handles = [
        find_layer(model, name).register_forward_hook(lambda _layer, _inputs, output, name=name: keep(name, output))
        for name in names
    ]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def _as_matrix(name: str, output: object) -> Tensor:
    if isinstance(output, Mapping):
        output = tuple(output.values())
    elif is_dataclass(output):
        output = tuple(vars(output).values())
    if isinstance(output, tuple) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise InvalidTypeError(
            f"layer {name!r} gives {type(output).__name__}, not a tensor; name a layer whose output is one tensor."
        )
    if output.ndim < 2:
        raise InvalidInputError(
            f"layer {name!r} gives shape {tuple(output.shape)}; name a layer whose output has rows and features."
        )
    flat = output.flatten(1)
    shared = flat.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()
    return flat.clone() if shared else flat


def activation_interval(layer: nn.Module) -> tuple[float, float] | None:
    """Return the range [a, b] of what a layer gives, or None where it has none or cannot be seen from outside.

    Examples
    --------
    >>> activation_interval(nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Flatten()))
    (-1.0, 1.0)
    >>> activation_interval(nn.ReLU()) is None
    True
    """
    if isinstance(layer, nn.Sequential):
        telling = [part for part in layer if not isinstance(part, KEEPING)]
        return activation_interval(telling[-1]) if telling else None
    if isinstance(layer, TO_ONE):
        return (0.0, 1.0)
    if isinstance(layer, AROUND_ZERO):
        return (-1.0, 1.0)
    if isinstance(layer, nn.Hardtanh):  # ReLU6 is one of these.
        return (float(layer.min_val), float(layer.max_val))
    return None

"""Precision of the fused CMD in float32 and bfloat16, against float64 on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import momentalign as ma
from benchmarks.figure import Figure

ROWS, OTHERS, WIDTH = 2000, 1500, 64
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "ReLU of size 100": lambda x: 100 * torch.relu(x),
    "sigmoid at offset 10,000": lambda x: torch.sigmoid(x) + 1e4,
    "nearly constant sigmoid": lambda x: torch.sigmoid(1e-3 * x),
}


def figures() -> Iterator[Figure]:
    """Yield the relative errors of value and gradient for each kind of activation."""
    for name, activation in ACTIVATIONS.items():
        generator = torch.Generator().manual_seed(1)
        source = activation(torch.randn(ROWS, WIDTH, generator=generator))
        target = activation(1.2 * torch.randn(OTHERS, WIDTH, generator=generator) + 0.3)
        value, gradient = errors(source, target)
        yield Figure("precision", f"float32, {name}, value", value, at_most=1e-5)
        yield Figure("precision", f"float32, {name}, gradient", gradient, at_most=1e-4)
        if "offset" not in name:  # bfloat16 has three digits: an offset of 10,000 leaves nothing of a sigmoid.
            value, gradient = errors(source.bfloat16(), target.bfloat16())
            yield Figure("precision", f"bfloat16, {name}, value", value, at_most=1e-2)
            yield Figure("precision", f"bfloat16, {name}, gradient", gradient, at_most=1e-2)


def errors(source: Tensor, target: Tensor) -> tuple[float, float]:
    """Return the relative errors of the distance and of its gradients (in norm) against float64."""
    value, gradients = value_and_gradients(source, target)
    exact, exact_gradients = value_and_gradients(source.double(), target.double())
    left, right = torch.cat(gradients).double(), torch.cat(exact_gradients)
    return float(abs(value.double() - exact) / exact), float((left - right).norm() / right.norm())


def value_and_gradients(source: Tensor, target: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the CMD of two samples and its gradients."""
    source, target = source.detach().requires_grad_(), target.detach().requires_grad_()
    interval = (0.0, 100.0) if float(source.detach().max()) > 2 else (0.0, 1.0)
    value = ma.cmd(source, target, interval=interval)
    return value.detach(), torch.autograd.grad(value, (source, target))

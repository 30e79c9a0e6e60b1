"""Which path computes the marginal terms of the CMD: fused loops where they fit, plain torch for the unusual."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from momentalign.discrepancies.fused.function import Backend, differentiable_terms

__all__ = ["fast_terms", "is_ordinary"]

# Below this many numbers plain torch on the CPU is quick enough, and nothing needs to be compiled or loaded.
SMALL = 2048


def fast_terms(
    source: Tensor, target: Tensor, n_moments: int, *, scale: float, summed: bool, plain: Callable[..., Tensor]
) -> Tensor | None:
    """Return the marginal terms or their sum by the fastest path that fits, or None where only `plain` does.

    The choice depends on order, shape, layout, dtype and device alone, so that equal calls give equal bits.
    """
    if not (is_ordinary(source) and is_ordinary(target)):
        return None
    backend = _backend(source, target, n_moments)
    if backend is None:
        return None
    return differentiable_terms(backend, source, target, n_moments, scale=scale, summed=summed, plain=plain)


def is_ordinary(sample: Tensor) -> bool:
    """Whether a tensor is plain contiguous memory outside of any function transform, forward mode or tracing."""
    transformed: Any = torch._C._functorch.is_functorch_wrapped_tensor(sample)
    return (
        sample.is_contiguous()
        and not transformed
        and not torch.compiler.is_compiling()
        and forward_ad._current_level < 0
        and type(sample) in (Tensor, torch.nn.Parameter)
    )


def _backend(source: Tensor, target: Tensor, order: int) -> Backend | None:
    if source.device.type == "cpu":
        return _cpu() if source.numel() + target.numel() >= SMALL else None
    if source.device.type == "cuda" and source.dtype != torch.float64 and order <= 5:
        return _cuda()
    return None


@cache
def _cpu() -> Backend:
    from momentalign.discrepancies.fused.cpu import CPUBackend

    return CPUBackend()


@cache
def _cuda() -> Backend | None:
    try:
        from momentalign.discrepancies.fused.cuda import CUDABackend
    except ImportError:  # A build of torch without Triton.
        return None
    return CUDABackend()

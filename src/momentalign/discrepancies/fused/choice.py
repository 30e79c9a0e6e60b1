"""Which path computes the marginal terms of the CMD: compiled loops where they fit, plain torch for the unusual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["fast_terms", "is_ordinary"]

# Below this many numbers plain torch is quick enough, and nothing needs to be compiled or loaded.
SMALL = 2048


def fast_terms(
    source: Tensor, target: Tensor, n_moments: int, *, scale: float, plain: Callable[..., Tensor]
) -> Tensor | None:
    """Return the marginal terms by the fastest path that fits, or None where only `plain` does.

    The choice depends on shape, layout and device alone, so that equal calls give equal bits.
    """
    if source.numel() + target.numel() < SMALL or not (is_ordinary(source) and is_ordinary(target)):
        return None
    if source.device.type == "cpu":
        from momentalign.discrepancies.fused.cpu import fused_terms

        return fused_terms(source, target, n_moments, scale=scale, plain=plain)
    return None


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

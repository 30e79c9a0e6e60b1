"""The marginal CMD on a CPU by compiled loops; a gradient that is differentiated again goes through plain torch."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from momentalign.discrepancies.fused.kernels import discrepancy_gradient, discrepancy_terms, sample_statistics

__all__ = ["fused_terms"]

_EPSILONS = {"f": float(np.finfo(np.float32).eps), "d": float(np.finfo(np.float64).eps)}


def fused_terms(source: Tensor, target: Tensor, n_moments: int, *, scale: float, plain: Any) -> Tensor:
    """Return the terms (n_moments,) of two contiguous CPU samples of one floating dtype.

    `plain` computes the same terms in torch; it stands in where the gradient itself is to be differentiated.
    """
    if not (torch.is_grad_enabled() and (source.requires_grad or target.requires_grad)):
        terms, _ = _forward(source.detach().numpy(), target.detach().numpy(), n_moments, scale)
        return torch.from_numpy(terms).to(source.dtype)
    return cast(Tensor, _FusedTerms.apply(source, target, n_moments, scale, plain))  # type: ignore[no-untyped-call]


def _forward(source: Any, target: Any, order: int, scale: float) -> tuple[Any, tuple[Any, ...]]:
    width = source.shape[1]
    shifts, moments = np.empty((2, width), source.dtype), np.empty((2, max(order, 2), width))
    directions, terms = np.empty((order, width)), np.empty(order)
    sample_statistics(source, scale, order, shifts[0], moments[0])
    sample_statistics(target, scale, order, shifts[1], moments[1])
    discrepancy_terms(shifts, moments, scale, order, _EPSILONS[source.dtype.char], directions, terms)
    return terms, (shifts, moments, directions)


class _FusedTerms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, order: int, scale: float, plain: Any) -> Tensor:
        terms, ctx.statistics = _forward(source.detach().numpy(), target.detach().numpy(), order, scale)
        ctx.save_for_backward(source, target)
        ctx.order, ctx.scale, ctx.plain = order, scale, plain
        return torch.from_numpy(terms).to(source.dtype)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        source, target = ctx.saved_tensors
        if torch.is_grad_enabled():  # The gradient is to be differentiated again.
            samples = [s for s, needed in zip((source, target), ctx.needs_input_grad, strict=False) if needed]
            terms = ctx.plain(source, target, ctx.order, scale=ctx.scale)
            found = iter(torch.autograd.grad(terms, samples, weights, create_graph=True))
            gradients = [next(found) if needed else None for needed in ctx.needs_input_grad[:2]]
            return gradients[0], gradients[1], None, None, None
        shifts, all_moments, directions = ctx.statistics
        upstream = weights.detach().double().numpy()
        parts: list[Tensor | None] = [None, None]
        for index, (sample, shift, moments, sign) in enumerate(
            zip((source, target), shifts, all_moments, (1.0, -1.0), strict=True)
        ):
            if ctx.needs_input_grad[index]:
                gradient = torch.empty_like(sample)
                discrepancy_gradient(
                    sample.detach().numpy(),
                    shift,
                    moments,
                    directions,
                    upstream,
                    ctx.scale,
                    sign,
                    ctx.order,
                    gradient.numpy(),
                )
                parts[index] = gradient
        return parts[0], parts[1], None, None, None

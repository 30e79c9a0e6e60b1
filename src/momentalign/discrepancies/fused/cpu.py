"""The marginal CMD on a CPU by compiled loops, differentiable once here and, through plain torch, as often as wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from momentalign.discrepancies.fused.kernels import discrepancy_gradient, discrepancy_terms, sample_statistics

__all__ = ["fused_terms"]


def fused_terms(source: Tensor, target: Tensor, n_moments: int, *, scale: float, plain: Any) -> Tensor:
    """Return the terms (n_moments,) of two contiguous CPU samples of one floating dtype.

    `plain` computes the same terms in torch; it stands in where the gradient itself is to be differentiated.
    """
    if not (torch.is_grad_enabled() and (source.requires_grad or target.requires_grad)):
        terms, _ = _forward(source.detach().numpy(), target.detach().numpy(), n_moments, scale)
        return torch.from_numpy(terms).to(source.dtype)
    return _FusedTerms.apply(source, target, n_moments, scale, plain)  # type: ignore[no-any-return,no-untyped-call]


def _forward(source: Any, target: Any, order: int, scale: float) -> tuple[Any, tuple[Any, ...]]:
    width = source.shape[1]
    statistics = []
    for sample in (source, target):
        shift, moments = np.empty(width, sample.dtype), np.empty((max(order, 2), width))
        sample_statistics(sample, scale, order, shift, moments)
        statistics += [shift, moments]
    directions, terms = np.empty((order, width)), np.empty(order)
    epsilon = float(np.finfo(source.dtype).eps)
    discrepancy_terms(*statistics, scale, order, epsilon, directions, terms)
    return terms, (*statistics, directions)


class _FusedTerms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, order: int, scale: float, plain: Any) -> Tensor:
        terms, ctx.statistics = _forward(source.detach().numpy(), target.detach().numpy(), order, scale)
        ctx.save_for_backward(source, target)
        ctx.order, ctx.scale, ctx.plain = order, scale, plain
        return torch.from_numpy(terms).to(source.dtype)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:  # type: ignore[override]
        source, target = ctx.saved_tensors
        if torch.is_grad_enabled():  # The gradient is to be differentiated again.
            samples = [s for s, needed in zip((source, target), ctx.needs_input_grad, strict=False) if needed]
            terms = ctx.plain(source, target, ctx.order, scale=ctx.scale)
            found = iter(torch.autograd.grad(terms, samples, weights, create_graph=True))
            gradients = [next(found) if needed else None for needed in ctx.needs_input_grad[:2]]
            return gradients[0], gradients[1], None, None, None
        source_shift, source_moments, target_shift, target_moments, directions = ctx.statistics
        upstream = weights.detach().double().numpy()
        parts: list[Tensor | None] = [None, None]
        for index, (sample, shift, moments, sign) in enumerate(
            ((source, source_shift, source_moments, 1.0), (target, target_shift, target_moments, -1.0))
        ):
            if ctx.needs_input_grad[index]:
                gradient = torch.empty_like(sample)
                discrepancy_gradient(
                    sample.detach().numpy(), shift, moments, directions, upstream, ctx.scale, sign, ctx.order, gradient.numpy()
                )
                parts[index] = gradient
        return parts[0], parts[1], None, None, None

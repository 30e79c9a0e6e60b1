"""The marginal CMD as one differentiable function of fused loops: compiled ones on the CPU, Triton's on CUDA.

A backend reads the samples once for the terms and once more for the gradients. Where loops do not fit, and for a
gradient that is differentiated again, the terms are those of plain torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["Backend", "differentiable_terms", "fast_terms", "is_ordinary"]

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
    from momentalign.discrepancies._cpu import CPUBackend

    return CPUBackend()


@cache
def _cuda() -> Backend | None:
    try:
        from momentalign.discrepancies._triton import CUDABackend
    except ImportError:  # A build of torch without Triton.
        return None
    return CUDABackend()


def differentiable_terms(
    backend: Backend,
    source: Tensor,
    target: Tensor,
    order: int,
    *,
    scale: float,
    summed: bool,
    plain: Callable[..., Tensor],
) -> Tensor:
    """Return the terms (order,) of two samples or, `summed`, their sum; `plain` computes the terms in torch."""
    if not (torch.is_grad_enabled() and (source.requires_grad or target.requires_grad)):
        terms, _ = backend.terms(source.detach(), target.detach(), order, scale)
        return terms[order] if summed else terms[:order]
    call = _Terms.apply(source, target, order, scale, summed, plain, backend)  # type: ignore[no-untyped-call]
    return cast(Tensor, call)


class _Terms(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        source: Tensor,
        target: Tensor,
        order: int,
        scale: float,
        summed: bool,
        plain: Callable[..., Tensor],
        backend: Backend,
    ) -> Tensor:
        ahead = ctx.needs_input_grad[:2] if summed else (False, False)
        terms, ctx.statistics = backend.terms(source.detach(), target.detach(), order, scale, ahead=ahead)
        ctx.save_for_backward(source, target)
        ctx.order, ctx.scale, ctx.summed, ctx.plain, ctx.backend = order, scale, summed, plain, backend
        return terms[order] if summed else terms[:order]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        samples = ctx.saved_tensors
        needed = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            found = _plain_gradients(ctx, samples, upstream, needed)
        else:
            found = ctx.backend.gradients(samples, ctx.statistics, upstream, ctx.order, ctx.scale, needed)
        return (*found, None, None, None, None, None)


def _plain_gradients(
    ctx: Any, samples: tuple[Tensor, Tensor], upstream: Tensor, needed: Sequence[bool]
) -> list[Tensor | None]:
    """Gradients that can be differentiated again."""
    terms = ctx.plain(*samples, ctx.order, scale=ctx.scale)
    terms = terms.sum() if ctx.summed else terms
    wanted = [sample for sample, need in zip(samples, needed, strict=True) if need]
    found = iter(torch.autograd.grad(terms, wanted, upstream, create_graph=True))
    return [next(found) if need else None for need in needed]


class Backend(Protocol):
    """What fused loops offer."""

    def terms(
        self, source: Tensor, target: Tensor, order: int, scale: float, *, ahead: Sequence[bool] = (False, False)
    ) -> tuple[Tensor, Any]:
        """Return the terms and after them their sum, (order + 1,), and the statistics the gradients need.

        `ahead` says which gradients of the sum will be asked for, should a backend like to have them ready.
        """
        ...

    def gradients(
        self,
        samples: tuple[Tensor, Tensor],
        statistics: Any,
        upstream: Tensor,
        order: int,
        scale: float,
        needed: Sequence[bool],
    ) -> list[Tensor | None]:
        """Return the gradients of ``(upstream * terms).sum()``, upstream a scalar or one value per term."""
        ...

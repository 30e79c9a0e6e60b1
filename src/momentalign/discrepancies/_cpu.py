"""The CPU backend of the marginal CMD: compiled loops on one thread, float32 and float64.

The marginal CMD as one differentiable function over a backend of fused loops.

A backend reads the samples once for the terms and once more for the gradients. A gradient that is differentiated again
goes through plain torch.

Which path computes the marginal terms of the CMD: fused loops where they fit, plain torch for the unusual.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

from momentalign.moments.loops import compiled, discrepancy_gradient, discrepancy_terms, sample_statistics

__all__ = ["Backend", "CPUBackend", "differentiable_terms", "fast_terms", "is_ordinary"]

SMALLEST_KEPT, LARGEST_KEPT, KEPT = 2**14, 2**22, 4  # bytes of an array, and how many of them
_EPSILONS = {"f": float(np.finfo(np.float32).eps), "d": float(np.finfo(np.float64).eps)}


class _Buffers:
    """Memory for gradients, used again once a gradient is gone: fresh memory costs more than a gradient itself.

    Every gradient is a view of its own, whose end gives the memory back. Only arrays of middle size are kept, a few of
    them. Small ones cost nothing, and for large ones numpy asks for large pages.
    """

    def __init__(self) -> None:
        self._free: list[NDArray[Any]] = []
        self._lent: set[_Loan] = set()
        # The end of a view may be noticed anywhere, also while this thread holds the lock.
        self._lock = threading.RLock()

    def take(self, like: NDArray[Any]) -> NDArray[Any]:
        """Return an array of that shape and type with any content."""
        if not SMALLEST_KEPT <= like.nbytes <= LARGEST_KEPT:
            return np.empty_like(like)
        with self._lock:
            memory = self._free_like(like)
            view = memory[...]
            loan = _Loan(view, self._take_back)
            loan.memory = memory
            self._lent.add(loan)
        return view

    def _free_like(self, like: NDArray[Any]) -> NDArray[Any]:
        for index in reversed(range(len(self._free))):
            if self._free[index].shape == like.shape and self._free[index].dtype == like.dtype:
                return self._free.pop(index)
        return np.empty_like(like)

    def _take_back(self, loan: _Loan) -> None:
        with self._lock:
            self._lent.discard(loan)
            self._free.append(loan.memory)
            del self._free[:-KEPT]


class _Loan(weakref.ref[Any]):
    """What notices the end of an array that was handed out."""

    __slots__ = ("memory",)
    memory: NDArray[Any]
    __hash__, __eq__ = object.__hash__, object.__eq__


_BUFFERS = _Buffers()


@compiled
def pair_terms(
    source: NDArray[Any],
    target: NDArray[Any],
    scale: float,
    order: int,
    epsilon: float,
    shifts: NDArray[Any],
    moments: NDArray[Any],
    directions: NDArray[Any],
    terms: NDArray[Any],
) -> None:
    """Fill the statistics of both samples, the directions and the terms: all of the forward pass in one call."""
    sample_statistics(source, scale, order, shifts[0], moments[0])
    sample_statistics(target, scale, order, shifts[1], moments[1])
    discrepancy_terms(shifts, moments, scale, order, epsilon, directions, terms)


@compiled
def pair_gradients(
    source: NDArray[Any],
    target: NDArray[Any],
    scale: float,
    order: int,
    shifts: NDArray[Any],
    moments: NDArray[Any],
    directions: NDArray[Any],
    weights: NDArray[Any],
    source_gradient: NDArray[Any],
    target_gradient: NDArray[Any],
) -> None:
    """Write both gradients, each unless its array is empty: all of the backward pass in one call."""
    if source_gradient.size:
        discrepancy_gradient(source, shifts[0], moments[0], directions, weights, scale, 1.0, order, source_gradient)
    if target_gradient.size:
        discrepancy_gradient(target, shifts[1], moments[1], directions, weights, scale, -1.0, order, target_gradient)


class CPUBackend:
    """Compiled loops over contiguous CPU memory."""

    def terms(
        self,
        source: Tensor,
        target: Tensor,
        order: int,
        scale: float,
        *,
        ahead: Sequence[bool] = (False, False),  # noqa: ARG002
    ) -> tuple[Tensor, Any]:
        """Return the terms and their sum, and (shifts, moments, directions); gradients are left for later."""
        rows, others = source.numpy(), target.numpy()
        width = rows.shape[1]
        shifts, moments = np.empty((2, width), rows.dtype), np.empty((2, order + order % 2, width))
        directions, terms = np.empty((order, width)), np.empty(order + 1, rows.dtype)
        pair_terms(rows, others, scale, order, _EPSILONS[rows.dtype.char], shifts, moments, directions, terms)
        return torch.from_numpy(terms), (shifts, moments, directions)

    def gradients(
        self,
        samples: tuple[Tensor, Tensor],
        statistics: Any,
        upstream: Tensor,
        order: int,
        scale: float,
        needed: Sequence[bool],
    ) -> list[Tensor | None]:
        """Return one gradient per sample that needs one."""
        weights = np.full(order, upstream.item()) if upstream.ndim == 0 else upstream.double().numpy()
        rows, others = samples[0].detach().numpy(), samples[1].detach().numpy()
        # An empty array is left alone.
        of_rows = _BUFFERS.take(rows if needed[0] else rows[:0])
        of_others = _BUFFERS.take(others if needed[1] else others[:0])
        shifts, moments, directions = statistics
        pair_gradients(rows, others, scale, order, shifts, moments, directions, weights, of_rows, of_others)
        return [
            torch.from_numpy(of_rows) if needed[0] else None,
            torch.from_numpy(of_others) if needed[1] else None,
        ]


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
        from momentalign.discrepancies._cuda import CUDABackend
    except ImportError:  # A build of torch without Triton.
        return None
    return CUDABackend()

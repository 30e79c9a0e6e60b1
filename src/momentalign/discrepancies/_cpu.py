"""The CPU backend of the CMD: compiled loops on one thread. It imports numba, so it is imported on first use."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from momentalign.moments.loops import (
    compiled,
    discrepancy_gradient,
    discrepancy_terms,
    inner,
    sample_statistics,
)

__all__ = ["CPUBackend", "add_kernels", "slopes_in_place"]

SMALLEST_KEPT, LARGEST_KEPT, KEPT = 2**14, 2**22, 4  # bytes of an array, and how many of them
_EPSILONS = {"f": float(np.finfo(np.float32).eps), "d": float(np.finfo(np.float64).eps)}


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
        x, y = source.numpy(), target.numpy()
        width = x.shape[1]
        shifts, moments = np.empty((2, width), x.dtype), np.empty((2, order + order % 2, width))
        directions, terms = np.empty((order, width)), np.empty(order + 1, x.dtype)
        _pair_terms(x, y, scale, order, _EPSILONS[x.dtype.char], shifts, moments, directions, terms)
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
        x, y = (sample.detach().numpy() for sample in samples)
        # An empty array is left alone.
        found = [_BUFFERS.take(values if need else values[:0]) for values, need in zip((x, y), needed, strict=True)]
        shifts, moments, directions = statistics
        _pair_gradients(x, y, scale, order, shifts, moments, directions, weights, found[0], found[1])
        return [torch.from_numpy(gradient) if need else None for gradient, need in zip(found, needed, strict=True)]


@compiled
def _pair_terms(
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
    sample_statistics(source, scale, shifts[0], moments[0])
    sample_statistics(target, scale, shifts[1], moments[1])
    discrepancy_terms(shifts, moments, scale, order, epsilon, directions, terms)


@compiled
def _pair_gradients(
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
def add_kernels(grams: NDArray[Any], signs: NDArray[Any], sums: NDArray[Any], own: NDArray[Any]) -> None:
    """Add ``signs @ h_j`` to `sums` (k + 1, rows) and write h_j of each row with itself to `own` (k + 1, tile)."""
    known, tile, width = grams.shape
    kernels = np.empty((known + 2, width))
    for row in range(tile):
        _fill_kernels(grams, row, known + 1, kernels)
        sign = signs[row]
        for j in range(2, known + 2):
            total, kernel = sums[j], kernels[j]
            for c in range(width):
                total[c] += sign * kernel[c]
            own[j, row] = kernel[row]


@compiled
def slopes_in_place(grams: NDArray[Any], weights: NDArray[Any]) -> None:
    """Turn p_i into ``sum_j weights[j] h_(j-i) / i``, the slope of the weighted sum in p_i, for i below k."""
    known, tile, width = grams.shape
    kernels = np.empty((known + 1, width))
    for row in range(tile):
        _fill_kernels(grams, row, known, kernels)
        for i in range(1, known + 1):
            slope = grams[i - 1, row]
            slope[:] = 0.0
            for j in range(max(i, 2), known + 2):
                factor, kernel = weights[j] / i, kernels[j - i]
                for c in range(width):
                    slope[c] += factor * kernel[c]


@inner
def _fill_kernels(grams: NDArray[Any], row: int, highest: int, kernels: NDArray[Any]) -> None:
    """Write h_0 to h_highest of one row with all rows to `kernels`, h_k without its part p_k / k."""
    known, width = grams.shape[0], grams.shape[2]
    kernels[0] = 1.0
    for j in range(1, highest + 1):
        out = kernels[j]
        if j <= known:
            last = grams[j - 1, row]
            for c in range(width):
                out[c] = last[c]
        else:
            out[:] = 0.0
        for i in range(1, j):
            gram, before = grams[i - 1, row], kernels[j - i]
            for c in range(width):
                out[c] += gram[c] * before[c]
        inverse = 1.0 / j
        for c in range(width):
            out[c] *= inverse

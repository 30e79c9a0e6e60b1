"""The CPU backend of the marginal CMD: compiled loops on one thread, float32 and float64."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from momentalign.discrepancies.fused.kernels import pair_gradients, pair_terms

__all__ = ["CPUBackend"]

SMALLEST_KEPT, LARGEST_KEPT, KEPT = 2**14, 2**22, 4  # bytes of an array, and how many of them
_EPSILONS = {"f": float(np.finfo(np.float32).eps), "d": float(np.finfo(np.float64).eps)}


class _Buffers:
    """Arrays for gradients, taken again once nobody refers to them: fresh memory costs more than a gradient itself.

    Only arrays of middle size are kept, a few of them. Small ones cost nothing, and for large ones numpy asks for large
    pages.
    """

    def __init__(self) -> None:
        self._kept: list[NDArray[Any]] = []
        self._lock = threading.Lock()

    def take(self, like: NDArray[Any]) -> NDArray[Any]:
        """Return an array of that shape and type with any content."""
        if not SMALLEST_KEPT <= like.nbytes <= LARGEST_KEPT:
            return np.empty_like(like)
        with self._lock:
            for array in self._kept:
                # The list, the loop and the call refer to it; a tensor that lives in it would be one more.
                if array.shape == like.shape and array.dtype == like.dtype and sys.getrefcount(array) <= 3:
                    return array
            self._kept = [*self._kept[-KEPT + 1 :], np.empty_like(like)]
            return self._kept[-1]


_BUFFERS = _Buffers()


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

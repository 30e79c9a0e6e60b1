"""The CPU backend of the marginal CMD: compiled loops on one thread, float32 and float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from momentalign.discrepancies.fused.kernels import pair_gradients, pair_terms

__all__ = ["CPUBackend"]

_EPSILONS = {"f": float(np.finfo(np.float32).eps), "d": float(np.finfo(np.float64).eps)}


class CPUBackend:
    """Compiled loops over contiguous CPU memory."""

    def terms(self, source: Tensor, target: Tensor, order: int, scale: float) -> tuple[Tensor, Any]:
        """Return the terms and their sum, and (shifts, moments, directions)."""
        rows, others = source.numpy(), target.numpy()
        width = rows.shape[1]
        shifts, moments = np.empty((2, width), rows.dtype), np.empty((2, order + order % 2, width))
        directions, terms = np.empty((order, width)), np.empty(order + 1)
        pair_terms(rows, others, scale, order, _EPSILONS[rows.dtype.char], shifts, moments, directions, terms)
        return torch.from_numpy(terms).to(source.dtype), (shifts, moments, directions)

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
        shifts, moments, directions = statistics
        weights = upstream.double().numpy() if upstream.ndim else np.full(order, upstream.item())
        rows, others = (sample.detach().numpy() for sample in samples)
        # numpy asks for large pages, which cost half as much to touch first; an empty array is left alone.
        found = [np.empty_like(x if need else x[:0]) for x, need in zip((rows, others), needed, strict=True)]
        pair_gradients(rows, others, scale, order, shifts, moments, directions, weights, *found)
        return [torch.from_numpy(gradient) if need else None for gradient, need in zip(found, needed, strict=True)]

"""The CPU backend of the marginal CMD: compiled loops on one thread, float32 and float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from momentalign.discrepancies.fused.kernels import discrepancy_gradient, discrepancy_terms, sample_statistics

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
        sample_statistics(rows, scale, order, shifts[0], moments[0])
        sample_statistics(others, scale, order, shifts[1], moments[1])
        discrepancy_terms(shifts, moments, scale, order, _EPSILONS[rows.dtype.char], directions, terms)
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
        weights = np.broadcast_to(upstream.double().numpy(), (order,)).copy()
        gradients: list[Tensor | None] = [None, None]
        for index, sample in enumerate(samples):
            if needed[index]:
                gradients[index] = gradient = torch.empty_like(sample)
                rows, sign = sample.detach().numpy(), 1.0 - 2.0 * index
                shift, own = shifts[index], moments[index]
                discrepancy_gradient(rows, shift, own, directions, weights, scale, sign, order, gradient.numpy())
        return gradients

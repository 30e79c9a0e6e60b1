"""The CUDA backend of the marginal CMD: Triton kernels, both domains in one launch.

Three launches give the terms (power sums about a rough mean, their merge in float64, the norms) and one both gradients:
every sample is read once for the moments, read once more and written once for its gradient. float32, bfloat16 and
float16 in, float32 accumulation. Orders 1 to 5; higher ones take plain torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from momentalign.discrepancies.fused import triton_kernels as kernels
from momentalign.discrepancies.rounding import ROUNDING_ERRORS

__all__ = ["HIGHEST", "CUDABackend"]

HIGHEST = 6  # moments that are kept: five orders, and the even one above for the rounding level
SEEN = 32  # rows that give the rough mean
ROWS, COLUMNS = 16, 128  # the tile one program works on
PROGRAMS = 2048  # programs to aim at: enough to fill the largest card several times


class CUDABackend:
    """Triton kernels over contiguous memory of an accelerator (or of the CPU under Triton's interpreter)."""

    def terms(self, source: Tensor, target: Tensor, order: int, scale: float) -> tuple[Tensor, Any]:
        """Return the terms (order,) in float32 and (shifts, moments, scales), all kept on the device."""
        width = source.shape[1]
        blocks = _ceil_div(width, COLUMNS)
        longest = max(source.shape[0], target.shape[0])
        chunks = max(1, min(PROGRAMS // (2 * blocks), _ceil_div(longest, 4 * ROWS)))
        device = source.device
        partial = torch.empty((2, chunks, HIGHEST, width), dtype=torch.float32, device=device)
        shifts = torch.empty((2, width), dtype=torch.float32, device=device)
        moments = torch.empty((2, HIGHEST, width), dtype=torch.float64, device=device)
        squares = torch.empty((2, HIGHEST, blocks), dtype=torch.float64, device=device)
        norms = torch.empty(HIGHEST, dtype=torch.float64, device=device)
        rows = (source.shape[0], target.shape[0])
        kernels.power_sums[(chunks, blocks, 2)](
            source, target, *rows, width, 1.0 / scale, shifts, partial, chunks, SEEN, ROWS, COLUMNS, HIGHEST
        )
        kernels.merge[(blocks,)](
            partial, shifts, *rows, width, 1.0 / scale, moments, squares, chunks, blocks, COLUMNS, HIGHEST
        )
        terms = torch.empty(order, dtype=torch.float32, device=device)
        level = ROUNDING_ERRORS * 2.0**-23
        kernels.norms_of[(1,)](squares, blocks, level, order, norms, terms, 1 << (blocks - 1).bit_length(), HIGHEST)
        return terms, (shifts, moments, norms)

    def gradients(
        self,
        samples: tuple[Tensor, Tensor],
        statistics: Any,
        upstream: Tensor,
        order: int,
        scale: float,
        needed: Sequence[bool],
    ) -> list[Tensor | None]:
        """Return both gradients from one launch; one that is not needed is neither computed nor allocated."""
        shifts, moments, norms = statistics
        source, target = (sample.detach() for sample in samples)
        found = [torch.empty_like(sample) if need else None for sample, need in zip(samples, needed, strict=True)]
        outputs = [gradient if gradient is not None else shifts for gradient in found]
        width = source.shape[1]
        blocks = _ceil_div(width, COLUMNS)
        longest = max(sample.shape[0] for sample, need in zip(samples, needed, strict=True) if need)
        chunks = max(1, min(4 * PROGRAMS // blocks, _ceil_div(longest, 2 * ROWS)))
        kernels.gradients[(chunks, blocks, 2)](
            source, target, source.shape[0], target.shape[0], width, 1.0 / scale, shifts, moments, norms,
            upstream.contiguous(), order, *outputs, needed[0], needed[1], chunks, ROWS, COLUMNS, HIGHEST,
        )  # fmt: skip
        return found


def _ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)

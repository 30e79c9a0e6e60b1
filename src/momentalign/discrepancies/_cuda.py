"""The CUDA backend of the marginal CMD: Triton kernels, both domains in one launch.

A small sample takes one launch for the terms and, in float32, the gradients of their sum; a large one three (power sums
about a rough mean, their merge in float64, the norms), and one more for both gradients. Every sample is read once for
the moments, read once more and written once for its gradient. float32, bfloat16 and float16 in, float32 accumulation.
Orders 1 to 5; higher ones take plain torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from momentalign.discrepancies import _triton as kernels
from momentalign.moments.sample import ROUNDING_ERRORS

__all__ = ["CUDABackend"]

LEVEL = ROUNDING_ERRORS * 2.0**-23
SMALL = 2**18  # numbers that one program reads about as fast as a card starts three more kernels
ROWS, COLUMNS = 32, 128  # the tile one program of the power sums works on
PROGRAMS = 512  # programs to aim at: a few for every processor of the card
GRADIENT_ROWS, GRADIENT_COLUMNS = 16, 1024
GRADIENT_PROGRAMS = 65536


class _Ready(NamedTuple):
    """Gradients of the sum of the terms, computed along with it."""

    gradients: list[Tensor | None]


class CUDABackend:
    """Triton kernels over contiguous memory of an accelerator (or of the CPU under Triton's interpreter)."""

    def terms(
        self, source: Tensor, target: Tensor, order: int, scale: float, *, ahead: Sequence[bool] = (False, False)
    ) -> tuple[Tensor, Any]:
        """Return the terms and their sum (order + 1,) in float32, and the statistics, all on the device.

        Small samples are bound by the interpreter, which is slow in the thread that goes backward: their gradients are
        computed ahead.
        """
        samples, rows, others, width = (source, target), source.shape[0], target.shape[0], source.shape[1]
        statistics = torch.empty(kernels.statistics_size(width), dtype=torch.float64, device=source.device)
        terms = torch.empty(order + 1, dtype=torch.float32, device=source.device)
        if (rows + others) * width <= SMALL:
            # Half precision waits: a loss scale has to be there before its small gradients are rounded.
            wanted = [bool(need) and source.dtype == torch.float32 for need in ahead]
            found = [torch.empty_like(sample) if need else None for sample, need in zip(samples, wanted, strict=True)]
            with _on_device_of(source):
                kernels.small_terms[(1,)](
                    source, target, rows, others, width, 1.0 / scale, LEVEL, order, statistics, terms,
                    *_outputs(found, source), *wanted, ROWS, COLUMNS,
                )  # fmt: skip
            return terms, _Ready(found) if any(wanted) else statistics
        blocks = _ceil_div(width, COLUMNS)
        chunks = max(1, min(PROGRAMS // (2 * blocks), _ceil_div(max(rows, others), 4 * ROWS)))
        partial = torch.empty(2 * chunks * kernels.POWERS * width, dtype=torch.float32, device=source.device)
        squares = torch.empty(2 * 5 * blocks, dtype=torch.float64, device=source.device)
        with _on_device_of(source):
            kernels.power_sums[(chunks, blocks, 2)](
                source, target, rows, others, width, 1.0 / scale, statistics, partial, chunks, ROWS, COLUMNS
            )
            kernels.merge[(blocks,)](
                partial, rows, others, width, 1.0 / scale, statistics, squares, chunks, blocks, COLUMNS
            )
            kernels.norms_of[(1,)](
                squares, blocks, LEVEL, order, width, statistics, terms, 1 << (blocks - 1).bit_length()
            )
        return terms, statistics

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
        if isinstance(statistics, _Ready):
            return [None if gradient is None else gradient * upstream for gradient in statistics.gradients]
        source, target = samples[0].detach(), samples[1].detach()
        found = [torch.empty_like(sample) if need else None for sample, need in zip(samples, needed, strict=True)]
        rows, others, width = source.shape[0], target.shape[0], source.shape[1]
        longest = max(sample.shape[0] for sample, need in zip(samples, needed, strict=True) if need)
        columns = min(GRADIENT_COLUMNS, max(32, 1 << (width - 1).bit_length()))
        lines = max(GRADIENT_ROWS, 4096 // columns)
        blocks = _ceil_div(width, columns)
        chunks = max(1, min(GRADIENT_PROGRAMS // blocks, _ceil_div(longest, lines)))
        stride = upstream.stride(0) if upstream.ndim else 0
        with _on_device_of(source):
            kernels.gradients[(chunks, blocks, 2)](
                source, target, rows, others, width, 1.0 / scale, statistics, upstream, stride, order,
                *_outputs(found, source), needed[0], needed[1], chunks, lines, columns,
            )  # fmt: skip
        return found


def _on_device_of(sample: Tensor) -> AbstractContextManager[Any]:
    """Launches go to the device that is current, whatever their arguments lie on."""
    return torch.cuda.device(sample.device) if sample.is_cuda else nullcontext()


def _outputs(gradients: list[Tensor | None], unused: Tensor) -> list[Tensor]:
    """Where a kernel writes; a gradient that is not needed gets memory that is left alone."""
    return [unused if gradient is None else gradient for gradient in gradients]


def _ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)

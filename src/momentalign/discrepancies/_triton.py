"""The CUDA backend of the marginal CMD: Triton kernels, both domains in one launch.

A small sample takes one launch for the terms and, in float32, the gradients of their sum; a large one three (power sums
about a rough mean, their merge in float64, the norms), and one more for both gradients. float32, bfloat16 and float16
in, float32 accumulation; orders 1 to 5. The mathematics stand in :mod:`~momentalign.moments.loops`, which do the same.

Statistics are one float64 array: for each domain six rows of `width` (the mean minus the shift, central moments 2 to 6)
and a seventh with the shift; after both domains the five norms, and last a one, the upstream gradient of what small
samples compute ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from momentalign.moments.centre import ROUNDING_ERRORS

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
        statistics = torch.empty(2 * 7 * width + 6, dtype=torch.float64, device=source.device)
        terms = torch.empty(order + 1, dtype=torch.float32, device=source.device)
        if (rows + others) * width <= SMALL:
            # Half precision waits: a loss scale has to be there before its small gradients are rounded.
            wanted = [bool(need) and source.dtype == torch.float32 for need in ahead]
            found = [torch.empty_like(sample) if need else None for sample, need in zip(samples, wanted, strict=True)]
            with _on_device_of(source):
                small_terms[(1,)](
                    source, target, rows, others, width, 1.0 / scale, LEVEL, order, statistics, terms,
                    *_outputs(found, source), *wanted, ROWS, COLUMNS,
                )  # fmt: skip
            return terms, _Ready(found) if any(wanted) else statistics
        blocks = _ceil_div(width, COLUMNS)
        chunks = max(1, min(PROGRAMS // (2 * blocks), _ceil_div(max(rows, others), 4 * ROWS)))
        partial = torch.empty(2 * chunks * POWERS * width, dtype=torch.float32, device=source.device)
        squares = torch.empty(2 * 5 * blocks, dtype=torch.float64, device=source.device)
        with _on_device_of(source):
            power_sums[(chunks, blocks, 2)](
                source, target, rows, others, width, 1.0 / scale, statistics, partial, chunks, ROWS, COLUMNS
            )
            merge[(blocks,)](partial, rows, others, width, 1.0 / scale, statistics, squares, chunks, blocks, COLUMNS)
            norms_of[(1,)](squares, blocks, LEVEL, order, width, statistics, terms, 1 << (blocks - 1).bit_length())
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
            gradients[(chunks, blocks, 2)](
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


POWERS = 6  # five orders, and the even one above for the rounding level
SIX = tl.constexpr(6)
SEVEN = tl.constexpr(7)
SEEN = tl.constexpr(32)  # rows that give the rough mean
CHUNKS = tl.constexpr(32)  # partial sums that are merged at a time


@triton.jit
def _rough_mean(sample, rows, width, columns, inside):
    """Mean of a few rows, evenly spaced; whoever asks for the same columns finds the same."""
    seen = tl.minimum(rows, SEEN)
    index = tl.arange(0, SEEN)
    picked = (index.to(tl.int64) * rows) // seen
    mask = (index < seen)[:, None] & inside[None, :]
    few = tl.load(sample + picked[:, None] * width + columns[None, :], mask=mask, other=0.0)
    return tl.sum(few.to(tl.float32), 0) / seen.to(tl.float32)


@triton.jit
def _sums(
    sample, first, rows, stride, width, columns, inside, shift, inverse, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Sums of the powers 1 to 6 about the shift, over every stride-th tile of rows from `first` on."""
    line = tl.arange(0, ROWS)
    zero = tl.zeros((ROWS, COLUMNS), tl.float32)
    s1, s2, s3, s4, s5, s6 = zero, zero, zero, zero, zero, zero
    for start in range(first, rows, stride):
        row = start + line
        mask = (row < rows)[:, None] & inside[None, :]
        values = tl.load(sample + row.to(tl.int64)[:, None] * width + columns[None, :], mask=mask, other=0.0)
        z = tl.where(mask, (values.to(tl.float32) - shift[None, :]) * inverse, 0.0)
        q = z * z
        c = q * z
        s1 += z
        s2 += q
        s3 += c
        s4 += q * q
        s5 += q * c
        s6 += c * c
    return tl.sum(s1, 0), tl.sum(s2, 0), tl.sum(s3, 0), tl.sum(s4, 0), tl.sum(s5, 0), tl.sum(s6, 0)


@triton.jit
def power_sums(
    source, target, source_rows, target_rows, width, inverse, statistics, partial, chunks,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Power sums of both domains, one program per (chunk of rows, block of columns, domain)."""
    chunk, block, domain = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if domain == 0:
        sample, rows = source, source_rows
    else:
        sample, rows = target, target_rows
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    shift = _rough_mean(sample, rows, width, columns, inside)
    if chunk == 0:
        tl.store(statistics + (domain * SEVEN + SIX) * width + columns, shift.to(tl.float64), mask=inside)
    s1, s2, s3, s4, s5, s6 = _sums(
        sample, chunk * ROWS, rows, chunks * ROWS, width, columns, inside, shift, inverse, ROWS, COLUMNS
    )
    base = partial + ((domain * chunks + chunk) * SIX).to(tl.int64) * width + columns
    tl.store(base, s1, mask=inside)
    tl.store(base + width, s2, mask=inside)
    tl.store(base + 2 * width, s3, mask=inside)
    tl.store(base + 3 * width, s4, mask=inside)
    tl.store(base + 4 * width, s5, mask=inside)
    tl.store(base + 5 * width, s6, mask=inside)


@triton.jit
def _merged(partial, domain, j, rows, chunks, width, columns, inside):
    """Mean of one power about the shift, its partial sums added in float64."""
    total = tl.zeros(columns.shape, tl.float64)
    index = tl.arange(0, CHUNKS)
    for first in range(0, chunks, CHUNKS):
        chunk = first + index
        offset = ((domain * chunks + chunk) * SIX + j).to(tl.int64)[:, None] * width + columns[None, :]
        sums = tl.load(partial + offset, mask=(chunk < chunks)[:, None] & inside[None, :], other=0.0)
        total += tl.sum(sums.to(tl.float64), 0)
    return total / rows


@triton.jit
def _central(r1, r2, r3, r4, r5, r6, own, width, columns, inside):
    """Move mean powers about the shift to the mean; store the moments and return them."""
    d = r1
    dd = d * d
    c2 = tl.maximum(r2 - dd, 0.0)
    c3 = r3 - 3 * d * r2 + 2 * dd * d
    c4 = tl.maximum(r4 - 4 * d * r3 + 6 * dd * r2 - 3 * dd * dd, 0.0)
    c5 = r5 - 5 * d * r4 + 10 * dd * r3 - 10 * dd * d * r2 + 4 * dd * dd * d
    c6 = tl.maximum(r6 - 6 * d * r5 + 15 * dd * r4 - 20 * dd * d * r3 + 15 * dd * dd * r2 - 5 * dd * dd * dd, 0.0)
    base = own + columns
    tl.store(base, d, mask=inside)
    tl.store(base + width, c2, mask=inside)
    tl.store(base + 2 * width, c3, mask=inside)
    tl.store(base + 3 * width, c4, mask=inside)
    tl.store(base + 4 * width, c5, mask=inside)
    tl.store(base + 5 * width, c6, mask=inside)
    return d, c2, c3, c4, c5, c6


@triton.jit
def _squares(d1, parts, a2, a3, a4, a5, a6, b2, b3, b4, b5, b6):
    """Squared differences of the five orders and their squared rounding levels, over a block of columns."""
    m1 = tl.sqrt(a2) + tl.sqrt(b2) + parts
    m3 = tl.sqrt(a2 * a4) + tl.sqrt(b2 * b4)
    m5 = tl.sqrt(a4 * a6) + tl.sqrt(b4 * b6)
    return (
        tl.sum(d1 * d1, 0),
        tl.sum((a2 - b2) * (a2 - b2), 0),
        tl.sum((a3 - b3) * (a3 - b3), 0),
        tl.sum((a4 - b4) * (a4 - b4), 0),
        tl.sum((a5 - b5) * (a5 - b5), 0),
        tl.sum(m1 * m1, 0),
        tl.sum((a2 + b2) * (a2 + b2), 0),
        tl.sum(m3 * m3, 0),
        tl.sum((a4 + b4) * (a4 + b4), 0),
        tl.sum(m5 * m5, 0),
    )


@triton.jit
def merge(
    partial, source_rows, target_rows, width, inverse, statistics, squares, chunks, blocks, COLUMNS: tl.constexpr
):
    """Moments of both domains, and per block of columns the squared differences and rounding levels."""
    block = tl.program_id(0)
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    a1, a2, a3, a4, a5, a6 = _central(
        _merged(partial, 0, 0, source_rows, chunks, width, columns, inside),
        _merged(partial, 0, 1, source_rows, chunks, width, columns, inside),
        _merged(partial, 0, 2, source_rows, chunks, width, columns, inside),
        _merged(partial, 0, 3, source_rows, chunks, width, columns, inside),
        _merged(partial, 0, 4, source_rows, chunks, width, columns, inside),
        _merged(partial, 0, 5, source_rows, chunks, width, columns, inside),
        statistics, width, columns, inside,
    )  # fmt: skip
    b1, b2, b3, b4, b5, b6 = _central(
        _merged(partial, 1, 0, target_rows, chunks, width, columns, inside),
        _merged(partial, 1, 1, target_rows, chunks, width, columns, inside),
        _merged(partial, 1, 2, target_rows, chunks, width, columns, inside),
        _merged(partial, 1, 3, target_rows, chunks, width, columns, inside),
        _merged(partial, 1, 4, target_rows, chunks, width, columns, inside),
        _merged(partial, 1, 5, target_rows, chunks, width, columns, inside),
        statistics + SEVEN * width, width, columns, inside,
    )  # fmt: skip
    source_shift = tl.load(statistics + SIX * width + columns, mask=inside, other=0.0)
    target_shift = tl.load(statistics + (SEVEN + SIX) * width + columns, mask=inside, other=0.0)
    between = (source_shift - target_shift) * inverse
    d1 = between + (a1 - b1)
    parts = tl.abs(between) + tl.abs(a1) + tl.abs(b1)
    q1, q2, q3, q4, q5, l1, l2, l3, l4, l5 = _squares(d1, parts, a2, a3, a4, a5, a6, b2, b3, b4, b5, b6)
    base = squares + block
    tl.store(base, q1)
    tl.store(base + blocks, q2)
    tl.store(base + 2 * blocks, q3)
    tl.store(base + 3 * blocks, q4)
    tl.store(base + 4 * blocks, q5)
    tl.store(base + 5 * blocks, l1)
    tl.store(base + 6 * blocks, l2)
    tl.store(base + 7 * blocks, l3)
    tl.store(base + 8 * blocks, l4)
    tl.store(base + 9 * blocks, l5)


@triton.jit
def _norm(square, level, rounding, j, order, norms, terms):
    """Store the norm of one order, zero at rounding level (an overflow stays visible), and return what it counts."""
    norm = tl.sqrt(square)
    noise = (norm <= rounding * tl.sqrt(level)) & (level < float("inf"))
    norm = tl.where(noise, 0.0, norm)
    tl.store(norms + j, norm)
    if j < order:
        tl.store(terms + j, norm.to(tl.float32))
    return tl.where(j < order, norm, 0.0)


@triton.jit
def norms_of(squares, blocks, rounding, order, width, statistics, terms, BLOCKS: tl.constexpr):
    """Norm of each order from the blocks of columns, and their sum after the last term."""
    index = tl.arange(0, BLOCKS)
    inside = index < blocks
    norms = statistics + 2 * SEVEN * width
    total = 0.0
    for j in tl.static_range(5):
        square = tl.sum(tl.load(squares + j * blocks + index, mask=inside, other=0.0), 0)
        level = tl.sum(tl.load(squares + (5 + j) * blocks + index, mask=inside, other=0.0), 0)
        total += _norm(square, level, rounding, j, order, norms, terms)
    tl.store(terms + order, total.to(tl.float32))


@triton.jit
def _own_moments(sample, rows, width, columns, inside, inverse, own, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Shift and moments of all rows of one domain by one program."""
    shift = _rough_mean(sample, rows, width, columns, inside)
    tl.store(own + SIX * width + columns, shift.to(tl.float64), mask=inside)
    s1, s2, s3, s4, s5, s6 = _sums(sample, 0, rows, ROWS, width, columns, inside, shift, inverse, ROWS, COLUMNS)
    d, c2, c3, c4, c5, c6 = _central(
        s1.to(tl.float64) / rows, s2.to(tl.float64) / rows, s3.to(tl.float64) / rows,
        s4.to(tl.float64) / rows, s5.to(tl.float64) / rows, s6.to(tl.float64) / rows,
        own, width, columns, inside,
    )  # fmt: skip
    return shift.to(tl.float64) * inverse, d, c2, c3, c4, c5, c6


@triton.jit
def _slope(statistics, width, columns, inside, norms, upstream, stride, j, order):
    """Difference of one order times upstream gradient over norm; zero for orders that do not count."""
    norm = tl.load(norms + j)
    weight = tl.load(upstream + tl.minimum(j, order - 1) * stride).to(tl.float64)
    factor = tl.where((j < order) & (norm != 0.0), weight / tl.where(norm != 0.0, norm, 1.0), 0.0)
    of_source = tl.load(statistics + j * width + columns, mask=inside, other=0.0)
    of_target = tl.load(statistics + (SEVEN + j) * width + columns, mask=inside, other=0.0)
    return (of_source - of_target) * factor, factor


@triton.jit
def _write_gradient(
    sample, gradient, rows, domain, chunk, chunks, columns, inside, width, inverse, statistics, upstream, stride, order,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Evaluate the gradient polynomial at every value of some columns, over every chunks-th tile of rows."""
    norms = statistics + 2 * SEVEN * width
    own = statistics + domain * SEVEN * width + columns
    c2 = tl.load(own + width, mask=inside, other=0.0)
    c3 = tl.load(own + 2 * width, mask=inside, other=0.0)
    c4 = tl.load(own + 3 * width, mask=inside, other=0.0)
    g1, factor = _slope(statistics, width, columns, inside, norms, upstream, stride, 0, order)
    g2, _ = _slope(statistics, width, columns, inside, norms, upstream, stride, 1, order)
    g3, _ = _slope(statistics, width, columns, inside, norms, upstream, stride, 2, order)
    g4, _ = _slope(statistics, width, columns, inside, norms, upstream, stride, 3, order)
    g5, _ = _slope(statistics, width, columns, inside, norms, upstream, stride, 4, order)
    source_shift = tl.load(statistics + SIX * width + columns, mask=inside, other=0.0)
    target_shift = tl.load(statistics + (SEVEN + SIX) * width + columns, mask=inside, other=0.0)
    g1 += (source_shift - target_shift) * inverse * factor
    share = (1.0 - 2.0 * domain) * inverse / rows
    k0 = (share * (g1 - 3 * g3 * c2 - 4 * g4 * c3 - 5 * g5 * c4)).to(tl.float32)[None, :]
    k1 = (share * 2 * g2).to(tl.float32)[None, :]
    k2 = (share * 3 * g3).to(tl.float32)[None, :]
    k3 = (share * 4 * g4).to(tl.float32)[None, :]
    k4 = (share * 5 * g5).to(tl.float32)[None, :]
    shift = tl.load(own + SIX * width, mask=inside, other=0.0).to(tl.float32)[None, :]
    rest = tl.load(own, mask=inside, other=0.0).to(tl.float32)[None, :]
    line = tl.arange(0, ROWS)
    for start in range(chunk * ROWS, rows, chunks * ROWS):
        row = start + line
        mask = (row < rows)[:, None] & inside[None, :]
        offset = row.to(tl.int64)[:, None] * width + columns[None, :]
        values = tl.load(sample + offset, mask=mask, other=0.0).to(tl.float32)
        z = (values - shift) * inverse - rest
        slope = k0 + z * (k1 + z * (k2 + z * (k3 + z * k4)))
        tl.store(gradient + offset, slope.to(gradient.dtype.element_ty), mask=mask)


@triton.jit
def small_terms(
    source, target, source_rows, target_rows, width, inverse, rounding, order, statistics, terms,
    source_gradient, target_gradient, source_needed, target_needed, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Everything by one program, gradients of the sum included: for small samples a launch costs more than the work."""
    zero = tl.sum(tl.zeros((2,), tl.float64), 0)
    q1, q2, q3, q4, q5 = zero, zero, zero, zero, zero
    l1, l2, l3, l4, l5 = zero, zero, zero, zero, zero
    for first in range(0, width, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inside = columns < width
        e0, e1, e2, e3, e4, e5, e6 = _own_moments(
            source, source_rows, width, columns, inside, inverse, statistics, ROWS, COLUMNS
        )
        f0, f1, f2, f3, f4, f5, f6 = _own_moments(
            target, target_rows, width, columns, inside, inverse, statistics + SEVEN * width, ROWS, COLUMNS
        )
        d1 = tl.where(inside, (e0 - f0) + (e1 - f1), 0.0)
        parts = tl.where(inside, tl.abs(e0 - f0) + tl.abs(e1) + tl.abs(f1), 0.0)
        a, b, c, d, e, f, g, h, i, j = _squares(d1, parts, e2, e3, e4, e5, e6, f2, f3, f4, f5, f6)
        q1 += a
        q2 += b
        q3 += c
        q4 += d
        q5 += e
        l1 += f
        l2 += g
        l3 += h
        l4 += i
        l5 += j
    norms = statistics + 2 * SEVEN * width
    total = _norm(q1, l1, rounding, 0, order, norms, terms)
    total += _norm(q2, l2, rounding, 1, order, norms, terms)
    total += _norm(q3, l3, rounding, 2, order, norms, terms)
    total += _norm(q4, l4, rounding, 3, order, norms, terms)
    total += _norm(q5, l5, rounding, 4, order, norms, terms)
    tl.store(terms + order, total.to(tl.float32))
    one = norms + 5
    tl.store(one, zero + 1.0)
    tl.debug_barrier()  # What other threads of this program stored is read again.
    for first in range(0, width, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inside = columns < width
        if source_needed:
            _write_gradient(
                source, source_gradient, source_rows, 0, 0, 1, columns, inside, width, inverse, statistics,
                one, 0, order, ROWS,
            )  # fmt: skip
        if target_needed:
            _write_gradient(
                target, target_gradient, target_rows, 1, 0, 1, columns, inside, width, inverse, statistics,
                one, 0, order, ROWS,
            )  # fmt: skip


@triton.jit
def gradients(
    source, target, source_rows, target_rows, width, inverse, statistics, upstream, stride, order,
    source_gradient, target_gradient, source_needed, target_needed, chunks,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of both domains, one program per (chunk of rows, block of columns, domain)."""
    chunk, block, domain = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if domain == 0:
        sample, gradient, rows, needed = source, source_gradient, source_rows, source_needed
    else:
        sample, gradient, rows, needed = target, target_gradient, target_rows, target_needed
    if needed:
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        _write_gradient(
            sample, gradient, rows, domain, chunk, chunks, columns, columns < width, width, inverse, statistics,
            upstream, stride, order, ROWS,
        )  # fmt: skip

r"""Triton kernels of the marginal CMD: power sums, their merge, norms and gradients.

The mathematics stand in `kernels`, which does the same on a CPU. Triton's language has no types that mypy knows.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["gradients", "merge", "norms_of", "power_sums"]


@triton.jit
def power_sums(
    source, target, source_rows, target_rows, width, inverse, shifts, partial,
    chunks, SEEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    """Sums of the powers 1 to 6 about a rough mean, one program per (chunk of rows, block of columns, domain)."""
    chunk, block, domain = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if domain == 0:
        sample, rows = source, source_rows
    else:
        sample, rows = target, target_rows
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    # Every program of a column block sees the same few rows and so finds the same shift.
    seen = tl.minimum(rows, SEEN)
    index = tl.arange(0, SEEN)
    picked = (index.to(tl.int64) * rows) // seen
    few = tl.load(
        sample + picked[:, None] * width + columns[None, :], mask=(index < seen)[:, None] & inside[None, :], other=0.0
    )
    shift = tl.sum(few.to(tl.float32), 0) / seen.to(tl.float32)
    if chunk == 0:
        tl.store(shifts + domain * width + columns, shift, mask=inside)
    line = tl.arange(0, ROWS)
    zero = tl.zeros((ROWS, COLUMNS), tl.float32)
    s1, s2, s3, s4, s5, s6 = zero, zero, zero, zero, zero, zero
    for first in range(chunk * ROWS, rows, chunks * ROWS):
        row = first + line
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
    base = partial + ((domain * chunks + chunk) * HIGHEST).to(tl.int64) * width + columns
    tl.store(base, tl.sum(s1, 0), mask=inside)
    tl.store(base + width, tl.sum(s2, 0), mask=inside)
    tl.store(base + 2 * width, tl.sum(s3, 0), mask=inside)
    tl.store(base + 3 * width, tl.sum(s4, 0), mask=inside)
    tl.store(base + 4 * width, tl.sum(s5, 0), mask=inside)
    tl.store(base + 5 * width, tl.sum(s6, 0), mask=inside)


@triton.jit
def _mean_power(partial, domain, j, rows, chunks, width, columns, inside, HIGHEST: tl.constexpr):
    """Mean of one power about the shift, summed over chunks in float64."""
    total = tl.zeros(columns.shape, tl.float64)
    for chunk in range(chunks):
        offset = ((domain * chunks + chunk) * HIGHEST + j).to(tl.int64) * width
        total += tl.load(partial + offset + columns, mask=inside, other=0.0).to(tl.float64)
    return total / rows


@triton.jit
def _central(partial, domain, rows, chunks, width, columns, inside, moments, HIGHEST: tl.constexpr):
    """Central moments 2 to 6 of one domain, stored and returned with the mean minus the shift."""
    r1 = _mean_power(partial, domain, 0, rows, chunks, width, columns, inside, HIGHEST)
    r2 = _mean_power(partial, domain, 1, rows, chunks, width, columns, inside, HIGHEST)
    r3 = _mean_power(partial, domain, 2, rows, chunks, width, columns, inside, HIGHEST)
    r4 = _mean_power(partial, domain, 3, rows, chunks, width, columns, inside, HIGHEST)
    r5 = _mean_power(partial, domain, 4, rows, chunks, width, columns, inside, HIGHEST)
    r6 = _mean_power(partial, domain, 5, rows, chunks, width, columns, inside, HIGHEST)
    d = r1
    c2 = tl.maximum(r2 - d * d, 0.0)
    c3 = r3 - 3 * d * r2 + 2 * d * d * d
    c4 = tl.maximum(r4 - 4 * d * r3 + 6 * d * d * r2 - 3 * d * d * d * d, 0.0)
    c5 = r5 - 5 * d * r4 + 10 * d * d * r3 - 10 * d * d * d * r2 + 4 * d * d * d * d * d
    c6 = r6 - 6 * d * r5 + 15 * d * d * r4 - 20 * d * d * d * r3 + 15 * d * d * d * d * r2 - 5 * d * d * d * d * d * d
    c6 = tl.maximum(c6, 0.0)
    base = moments + domain * HIGHEST * width + columns
    tl.store(base, d, mask=inside)
    tl.store(base + width, c2, mask=inside)
    tl.store(base + 2 * width, c3, mask=inside)
    tl.store(base + 3 * width, c4, mask=inside)
    tl.store(base + 4 * width, c5, mask=inside)
    tl.store(base + 5 * width, c6, mask=inside)
    return d, c2, c3, c4, c5, c6


@triton.jit
def merge(
    partial, shifts, source_rows, target_rows, width, inverse, moments, squares,
    chunks, blocks, COLUMNS: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    """Moments of both domains, and per block of columns the squared differences and their squared rounding levels."""
    block = tl.program_id(0)
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    a1, a2, a3, a4, a5, a6 = _central(partial, 0, source_rows, chunks, width, columns, inside, moments, HIGHEST)
    b1, b2, b3, b4, b5, b6 = _central(partial, 1, target_rows, chunks, width, columns, inside, moments, HIGHEST)
    source_shift = tl.load(shifts + columns, mask=inside, other=0.0).to(tl.float64)
    target_shift = tl.load(shifts + width + columns, mask=inside, other=0.0).to(tl.float64)
    d1 = (source_shift - target_shift) * inverse + (a1 - b1)
    m1 = tl.sqrt(a2) + tl.sqrt(b2)
    m3 = tl.sqrt(a2 * a4) + tl.sqrt(b2 * b4)
    m5 = tl.sqrt(a4 * a6) + tl.sqrt(b4 * b6)
    tl.store(squares + block, tl.sum(d1 * d1, 0))
    tl.store(squares + blocks + block, tl.sum((a2 - b2) * (a2 - b2), 0))
    tl.store(squares + 2 * blocks + block, tl.sum((a3 - b3) * (a3 - b3), 0))
    tl.store(squares + 3 * blocks + block, tl.sum((a4 - b4) * (a4 - b4), 0))
    tl.store(squares + 4 * blocks + block, tl.sum((a5 - b5) * (a5 - b5), 0))
    levels = squares + HIGHEST * blocks + block
    tl.store(levels, tl.sum(m1 * m1, 0))
    tl.store(levels + blocks, tl.sum((a2 + b2) * (a2 + b2), 0))
    tl.store(levels + 2 * blocks, tl.sum(m3 * m3, 0))
    tl.store(levels + 3 * blocks, tl.sum((a4 + b4) * (a4 + b4), 0))
    tl.store(levels + 4 * blocks, tl.sum(m5 * m5, 0))


@triton.jit
def norms_of(squares, blocks, rounding, order, norms, terms, BLOCKS: tl.constexpr, HIGHEST: tl.constexpr):
    """Norm of each order, zero at rounding level; an overflow stays visible."""
    index = tl.arange(0, BLOCKS)
    inside = index < blocks
    for j in range(HIGHEST - 1):
        norm = tl.sqrt(tl.sum(tl.load(squares + j * blocks + index, mask=inside, other=0.0), 0))
        level = tl.sqrt(tl.sum(tl.load(squares + (HIGHEST + j) * blocks + index, mask=inside, other=0.0), 0))
        noise = (norm <= rounding * level) & (level < float("inf"))
        norm = tl.where(noise, 0.0, norm)
        tl.store(norms + j, norm)
        if j < order:
            tl.store(terms + j, norm.to(tl.float32))


@triton.jit
def _slope(upstream, norms, j, order):
    """Upstream gradient over norm of one order; zero for orders that do not count."""
    norm = tl.load(norms + j)
    weight = tl.load(upstream + tl.minimum(j, order - 1)).to(tl.float64)
    return tl.where((j < order) & (norm != 0.0), weight / tl.where(norm != 0.0, norm, 1.0), 0.0)


@triton.jit
def gradients(
    source, target, source_rows, target_rows, width, inverse, shifts, moments, norms, upstream, order,
    source_gradient, target_gradient, source_needed, target_needed,
    chunks, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    """Evaluate the gradient polynomial at every value, one program per (chunk of rows, block of columns, domain)."""
    chunk, block, domain = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if domain == 0:
        sample, gradient, rows, needed = source, source_gradient, source_rows, source_needed
    else:
        sample, gradient, rows, needed = target, target_gradient, target_rows, target_needed
    if not needed:
        return
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    own = moments + domain * HIGHEST * width + columns
    first_moments = moments + columns
    other_moments = moments + HIGHEST * width + columns
    middle = tl.load(own, mask=inside, other=0.0)
    c2 = tl.load(own + width, mask=inside, other=0.0)
    c3 = tl.load(own + 2 * width, mask=inside, other=0.0)
    c4 = tl.load(own + 3 * width, mask=inside, other=0.0)
    d1 = tl.load(first_moments, mask=inside, other=0.0) - tl.load(other_moments, mask=inside, other=0.0)
    d1 += (
        tl.load(shifts + columns, mask=inside, other=0.0).to(tl.float64)
        - tl.load(shifts + width + columns, mask=inside, other=0.0).to(tl.float64)
    ) * inverse
    d2 = tl.load(first_moments + width, mask=inside, other=0.0) - tl.load(other_moments + width, mask=inside, other=0.0)
    d3 = tl.load(first_moments + 2 * width, mask=inside, other=0.0) - tl.load(
        other_moments + 2 * width, mask=inside, other=0.0
    )
    d4 = tl.load(first_moments + 3 * width, mask=inside, other=0.0) - tl.load(
        other_moments + 3 * width, mask=inside, other=0.0
    )
    d5 = tl.load(first_moments + 4 * width, mask=inside, other=0.0) - tl.load(
        other_moments + 4 * width, mask=inside, other=0.0
    )
    factor = (1.0 - 2.0 * domain) * inverse / rows
    a2 = 2 * d2 * _slope(upstream, norms, 1, order)
    a3 = 3 * d3 * _slope(upstream, norms, 2, order)
    a4 = 4 * d4 * _slope(upstream, norms, 3, order)
    a5 = 5 * d5 * _slope(upstream, norms, 4, order)
    a1 = d1 * _slope(upstream, norms, 0, order) - a3 * c2 - a4 * c3 - a5 * c4
    k0 = (factor * a1).to(tl.float32)[None, :]
    k1 = (factor * a2).to(tl.float32)[None, :]
    k2 = (factor * a3).to(tl.float32)[None, :]
    k3 = (factor * a4).to(tl.float32)[None, :]
    k4 = (factor * a5).to(tl.float32)[None, :]
    shift = tl.load(shifts + domain * width + columns, mask=inside, other=0.0)[None, :]
    rest = middle.to(tl.float32)[None, :]
    line = tl.arange(0, ROWS)
    for first in range(chunk * ROWS, rows, chunks * ROWS):
        row = first + line
        mask = (row < rows)[:, None] & inside[None, :]
        offset = row.to(tl.int64)[:, None] * width + columns[None, :]
        values = tl.load(sample + offset, mask=mask, other=0.0).to(tl.float32)
        z = (values - shift) * inverse - rest
        slope = k0 + z * (k1 + z * (k2 + z * (k3 + z * k4)))
        tl.store(gradient + offset, slope.to(gradient.dtype.element_ty), mask=mask)

"""Compiled loops that add up powers of rows about a rough mean, and move and merge such sums.

All is added in float64, whatever the precision of the rows. One read is enough: the sums are moved to the true mean
afterwards (binomial theorem), and since the rough mean is near it neither offsets nor odd orders lose digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit

__all__ = ["centre", "merge", "power_sums", "rough_mean", "weighted_mean", "weighted_power_sums"]

Array: TypeAlias = Any  # a numpy array, float32 or float64

Function = TypeVar("Function", bound=Callable[..., Any])

TILE = 512  # features that are worked on together: their sums stay in the nearest cache
BLOCK = 256  # rows that are summed before their sums are added to the rest, so that errors grow slowly
SEEN = 32  # rows that give the rough mean


def _compiled(function: Function) -> Function:
    """Compile on first use, keep it on disk; products may be contracted with additions, nothing else is reordered."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})(function))


@_compiled
def rough_mean(sample: Array, shift: Array) -> None:
    """Fill `shift` (width,) with the mean of a few rows; of a constant it is the constant itself."""
    rows, width = sample.shape
    seen = min(SEEN, rows)
    shift[:] = 0.0
    for i in range(seen):
        row = i * rows // seen
        for f in range(width):
            shift[f] += np.float64(sample[row, f]) - np.float64(sample[0, f])
    for f in range(width):
        shift[f] = shift[f] / seen + sample[0, f]


@_compiled
def power_sums(sample: Array, shift: Array, sums: Array) -> None:
    """Fill `sums` (orders, width) with the sums over the rows of (x - shift)^j, j = 1 to orders."""
    rows, width = sample.shape
    orders = sums.shape[0]
    tile = min(TILE, width)
    part, work = np.empty((orders, tile)), np.empty((2, tile))
    sums[:] = 0.0
    for first in range(0, width, tile):
        size = min(tile, width - first)
        for start in range(0, rows, BLOCK):
            stop = min(start + BLOCK, rows)
            part[:] = 0.0
            if orders == 5:
                _add_five(sample, start, stop, first, size, shift, part)
            else:
                _add_any(sample, start, stop, first, size, shift, part, work)
            for j in range(orders):
                for c in range(size):
                    sums[j, first + c] += part[j, c]


@_compiled
def _add_five(sample: Array, start: int, stop: int, first: int, size: int, shift: Array, part: Array) -> None:
    """Add powers 1 to 5 of rows start to stop, four rows at a time so that the sums are loaded once for all four."""
    s1, s2, s3, s4, s5 = part[0], part[1], part[2], part[3], part[4]
    middle = shift[first : first + size]
    row = start
    while row + 4 <= stop:
        r0 = sample[row, first : first + size]
        r1 = sample[row + 1, first : first + size]
        r2 = sample[row + 2, first : first + size]
        r3 = sample[row + 3, first : first + size]
        for c in range(size):
            m = middle[c]
            a1, a2, a3, a4, a5 = s1[c], s2[c], s3[c], s4[c], s5[c]
            z = r0[c] - m
            q = z * z
            k = q * z
            a1, a2, a3, a4, a5 = a1 + z, a2 + q, a3 + k, a4 + q * q, a5 + q * k
            z = r1[c] - m
            q = z * z
            k = q * z
            a1, a2, a3, a4, a5 = a1 + z, a2 + q, a3 + k, a4 + q * q, a5 + q * k
            z = r2[c] - m
            q = z * z
            k = q * z
            a1, a2, a3, a4, a5 = a1 + z, a2 + q, a3 + k, a4 + q * q, a5 + q * k
            z = r3[c] - m
            q = z * z
            k = q * z
            a1, a2, a3, a4, a5 = a1 + z, a2 + q, a3 + k, a4 + q * q, a5 + q * k
            s1[c], s2[c], s3[c], s4[c], s5[c] = a1, a2, a3, a4, a5
        row += 4
    while row < stop:
        rest = sample[row, first : first + size]
        for c in range(size):
            z = rest[c] - middle[c]
            q = z * z
            s1[c] += z
            s2[c] += q
            s3[c] += q * z
            s4[c] += q * q
            s5[c] += q * (q * z)
        row += 1


@_compiled
def _add_any(
    sample: Array, start: int, stop: int, first: int, size: int, shift: Array, part: Array, work: Array
) -> None:
    centred, power = work[0], work[1]
    for row in range(start, stop):
        values = sample[row, first : first + size]
        for c in range(size):
            z = values[c] - shift[first + c]
            centred[c] = z
            power[c] = z
            part[0, c] += z
        for j in range(1, part.shape[0]):
            total = part[j]
            for c in range(size):
                power[c] *= centred[c]
                total[c] += power[c]


@_compiled
def weighted_mean(sample: Array, weights: Array, shift: Array) -> None:
    """Fill `shift` (width,) with the weighted mean, rounded; a mean of few rows can be far off where weights differ."""
    rows, width = sample.shape
    total = 0.0
    shift[:] = 0.0
    for row in range(rows):
        total += weights[row]
        for f in range(width):
            shift[f] += weights[row] * (np.float64(sample[row, f]) - np.float64(sample[0, f]))
    for f in range(width):
        shift[f] = shift[f] / total + sample[0, f]


@_compiled
def weighted_power_sums(sample: Array, weights: Array, shift: Array, sums: Array) -> None:
    """Fill `sums` (orders, width) with the sums over the rows of w (x - shift)^j, j = 1 to orders."""
    rows, width = sample.shape
    orders = sums.shape[0]
    part = np.empty((orders, width))
    sums[:] = 0.0
    for start in range(0, rows, BLOCK):
        part[:] = 0.0
        for row in range(start, min(start + BLOCK, rows)):
            for f in range(width):
                z = sample[row, f] - shift[f]
                power = weights[row] * z
                for j in range(orders):
                    part[j, f] += power
                    power *= z
        sums += part


@_compiled
def centre(count: float, shift: Array, powers: Array, mean: Array, rest: Array, sums: Array) -> None:
    """Fill mean, rest and central sums (orders - 1, width) from the sums of powers (orders, width) about a shift."""
    orders, width = powers.shape
    work = np.empty(orders + 1)
    for f in range(width):
        step = powers[0, f] / count
        mean[f], rest[f] = _two_sum(shift[f], step)
        work[0] = count
        for j in range(orders):
            work[j + 1] = powers[j, f]
        _move(work, -step)
        for j in range(2, orders + 1):
            sums[j - 2, f] = _possible(work[j], j)


@_compiled
def merge(
    count: float,
    mean: Array,
    rest: Array,
    sums: Array,
    other_count: float,
    other_mean: Array,
    other_rest: Array,
    other_sums: Array,
    steps: Array,
    new_mean: Array,
    new_rest: Array,
    new_sums: Array,
) -> None:
    """Fill mean, rest and central sums of two samples together, and the steps from the one mean to the other."""
    orders, width = sums.shape[0] + 1, sums.shape[1]
    ours, theirs = count / (count + other_count), other_count / (count + other_count)
    work, other_work = np.empty(orders + 1), np.empty(orders + 1)
    for f in range(width):
        # Above their last common digit the means cancel exactly, below it stand the rests.
        step = (other_mean[f] - mean[f]) + (other_rest[f] - rest[f])
        steps[f] = step
        new_mean[f], new_rest[f] = _two_sum(mean[f], rest[f] + theirs * step)
        work[0], other_work[0] = count, other_count
        work[1], other_work[1] = 0.0, 0.0
        for j in range(2, orders + 1):
            work[j], other_work[j] = sums[j - 2, f], other_sums[j - 2, f]
        _move(work, -theirs * step)
        _move(other_work, ours * step)
        for j in range(2, orders + 1):
            new_sums[j - 2, f] = _possible(work[j] + other_work[j], j)


@_compiled
def _move(work: Array, step: float) -> None:
    """Turn sums of z^p, orders 0 and up, into sums of (z + step)^p, by Pascal's triangle row by row."""
    for first in range(1, len(work)):
        for order in range(len(work) - 1, first - 1, -1):
            work[order] += step * work[order - 1]


@_compiled
def _possible(total: float, order: int) -> float:
    """Rounding must not make an even sum negative; NaN stays NaN."""
    return 0.0 if order % 2 == 0 and total < 0.0 else total


@_compiled
def _two_sum(one: float, other: float) -> tuple[float, float]:
    """The rounded sum and what rounding took away (Knuth)."""
    total = one + other
    back = total - one
    return total, (one - (total - back)) + (other - back)

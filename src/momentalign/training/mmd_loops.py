"""The Gaussian MMD, compiled, with its gradient in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from momentalign.discrepancies.mmd import MEDIAN_ROWS
from momentalign.moments.loops import inner
from momentalign.training.distance_loops import HALF, ONE, Compared, Objective, distance, dot
from momentalign.training.kernels import MATRIX, Array, kernel

__all__ = ["mmd"]


@distance
def mmd(objective: Objective, compared: Compared) -> float:
    """The biased Gaussian MMD, its width fixed or by the median heuristic."""
    hidden, delta, source, active = compared.hidden, compared.delta, compared.source, compared.active
    rows, units = hidden.shape
    gram = np.empty((rows, rows), np.float32)
    fill_squares(hidden, active, gram)
    beta = objective.beta if objective.beta > 0.0 else 1.0 / median_square(gram)
    to_gaussians(gram, beta)
    weighted, totals = np.zeros((units, rows), np.float32), np.zeros(rows)
    signs = np.empty(rows, np.float32)
    for i in range(rows):
        signs[i] = 1.0 / source if i < source else -1.0 / (rows - source)
        line = gram[i]
        for j in range(rows):
            totals[j] += signs[i] * line[j]
    for first in range(0, rows, 8):
        _add_eight(gram, hidden, signs, first, active, weighted)
    value = 0.0
    for i in range(rows):
        value += signs[i] * totals[i]
        factor = -4.0 * beta * objective.weight * signs[i]
        for u in range(units):
            delta[i, u] = np.float32(factor) * (np.float32(totals[i]) * hidden[i, u] - weighted[u, i])
    return value


@kernel(types.void(MATRIX, types.int64, MATRIX))
def fill_squares(hidden: Array, active: int, squares: Array) -> None:
    """Fill the squared distances of all pairs of rows, the upper half along rows."""
    rows, units = hidden.shape
    flipped, lengths = np.empty((units, rows), np.float32), np.empty(rows, np.float32)
    for i in range(rows):
        lengths[i] = dot(hidden[i], hidden[i])
        for u in range(units):
            flipped[u, i] = hidden[i, u]
    two, zero = np.float32(-2.0), np.float32(0.0)
    for i in range(rows):
        line, own, others = squares[i, i:], hidden[i], lengths[i:]
        for j in range(rows - i):
            line[j] = lengths[i] + others[j]
        for u in range(0, active, 8):  # Units are filled up to more than eight, with zeros.
            a0, a1, a2, a3 = two * own[u], two * own[u + 1], two * own[u + 2], two * own[u + 3]
            a4, a5, a6, a7 = two * own[u + 4], two * own[u + 5], two * own[u + 6], two * own[u + 7]
            t0, t1, t2, t3 = flipped[u, i:], flipped[u + 1, i:], flipped[u + 2, i:], flipped[u + 3, i:]
            t4, t5, t6, t7 = flipped[u + 4, i:], flipped[u + 5, i:], flipped[u + 6, i:], flipped[u + 7, i:]
            for j in range(rows - i):
                left = (a0 * t0[j] + a1 * t1[j]) + (a2 * t2[j] + a3 * t3[j])
                line[j] += left + ((a4 * t4[j] + a5 * t5[j]) + (a6 * t6[j] + a7 * t7[j]))
        for j in range(rows - i):
            line[j] = max(line[j], zero)


@kernel(types.float64(MATRIX))
def median_square(squares: Array) -> float:
    """Return the median squared distance of distinct rows, the lower one of two; 1 where it is zero.

    As :func:`~momentalign.discrepancies.mmd.mmd` takes it, of at most ``MEDIAN_ROWS`` rows. The bits of numbers that
    are not negative are ordered like the numbers: two counts of their halves find it.
    """
    rows = squares.shape[0]
    step = (rows + MEDIAN_ROWS - 1) // MEDIAN_ROWS
    seen = (rows + step - 1) // step
    left = (seen * (seen - 1) // 2 - 1) // 2
    if left < 0:
        return 1.0
    bits, counts = squares.view(np.int32), np.zeros((2, 2**16), np.int64)
    upper, lower = 0, 0
    for i in range(0, rows, step):
        for j in range(i + step, rows, step):
            counts[0, (bits[i, j] >> 16) & 0xFFFF] += 1
    while left >= counts[0, upper]:
        left -= counts[0, upper]
        upper += 1
    for i in range(0, rows, step):
        for j in range(i + step, rows, step):
            if (bits[i, j] >> 16) & 0xFFFF == upper:
                counts[1, bits[i, j] & 0xFFFF] += 1
    while left >= counts[1, lower]:
        left -= counts[1, lower]
        lower += 1
    median = np.int32(upper << 16 | lower).view(np.float32)
    return 1.0 if median == 0.0 else float(median)


@kernel(types.void(MATRIX, types.float64))
def to_gaussians(squares: Array, beta: float) -> None:
    """Turn squared distances into exp(-beta |x - y|^2), the lower half mirrored."""
    negative = np.float32(-beta)
    for i in range(squares.shape[0]):
        line = squares[i, i:]
        for j in range(line.shape[0]):
            line[j] = _exponential(negative * line[j])
        for j in range(i):
            squares[i, j] = squares[j, i]


@inner
def _add_eight(gram: Array, hidden: Array, signs: Array, first: int, active: int, weighted: Array) -> None:
    """Add the products of up to eight rows of the Gram matrix with their signed activations, unit by unit."""
    rows = gram.shape[0]
    last = rows - 1
    i1, i2, i3, i4 = min(first + 1, last), min(first + 2, last), min(first + 3, last), min(first + 4, last)
    i5, i6, i7 = min(first + 5, last), min(first + 6, last), min(first + 7, last)
    factors = np.zeros(8, np.float32)  # Missing rows weigh nothing.
    for i in range(min(8, rows - first)):
        factors[i] = signs[first + i]
    k0, k1, k2, k3 = gram[first], gram[i1], gram[i2], gram[i3]
    k4, k5, k6, k7 = gram[i4], gram[i5], gram[i6], gram[i7]
    for u in range(active):
        out = weighted[u]
        a0, a1 = factors[0] * hidden[first, u], factors[1] * hidden[i1, u]
        a2, a3 = factors[2] * hidden[i2, u], factors[3] * hidden[i3, u]
        a4, a5 = factors[4] * hidden[i4, u], factors[5] * hidden[i5, u]
        a6, a7 = factors[6] * hidden[i6, u], factors[7] * hidden[i7, u]
        for j in range(rows):
            left = (a0 * k0[j] + a1 * k1[j]) + (a2 * k2[j] + a3 * k3[j])
            out[j] += left + ((a4 * k4[j] + a5 * k5[j]) + (a6 * k6[j] + a7 * k7[j]))


@inner
def _exponential(value: Any) -> Any:
    """Return exp in float32, written so that loops over it become vector instructions."""
    value = min(max(value, np.float32(-80.0)), np.float32(80.0))
    # Adding and subtracting 1.5 * 2^23 rounds to the nearest whole number.
    power = (value * np.float32(1.4426950408889634) + np.float32(12582912.0)) - np.float32(12582912.0)
    rest = value - power * np.float32(0.693359375) - power * np.float32(-2.12194440e-4)
    series = np.float32(1.0 / 5040.0)
    series = series * rest + np.float32(1.0 / 720.0)
    series = series * rest + np.float32(1.0 / 120.0)
    series = series * rest + np.float32(1.0 / 24.0)
    series = series * rest + np.float32(1.0 / 6.0)
    series = series * rest + HALF
    series = series * rest + ONE
    series = series * rest + ONE
    return series * np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)

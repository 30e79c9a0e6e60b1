r"""Compiled loops of the marginal moments: their sums, their move to the mean, the terms of the CMD and its gradient.

They serve the CMD of arrays and of tensors on the CPU, :class:`~momentalign.Moments` of streams and the compiled
training loops alike (Section 7.5 of Zellinger et al. 2019). Powers are taken about a rough mean (of a few rows) and
moved to the true mean in float64 by the binomial theorem, so that one read is enough and neither offsets nor odd orders
lose digits. Sums are added in blocks of rows, in float64 or, where speed matters more, in the precision of the data.

The gradient of the CMD with respect to an activation is a polynomial in the centred activation, with coefficients per
feature:

.. math:: \frac{\partial\,\mathrm{cmd}}{\partial x_i} = \frac1n \Bigl(\alpha_1 + \sum_{j=2}^k j\,\alpha_j
          \bigl(z_i^{j-1} - c_{j-1}\bigr)\Bigr), \qquad \alpha_j = a_j
          \frac{c_j(S) - c_j(T)}{\lVert c_j(S) - c_j(T)\rVert}
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit

from momentalign.moments.centre import ROUNDING_ERRORS

__all__ = [
    "add_covariance",
    "add_product",
    "centre",
    "centred_rows",
    "compiled",
    "cross_variance_term",
    "discrepancy_gradient",
    "discrepancy_terms",
    "merge",
    "power_sums",
    "reordered",
    "rough_mean",
    "sample_statistics",
    "weighted_mean",
    "weighted_power_sums",
]

Array: TypeAlias = Any  # a numpy array, float32 or float64

Function = TypeVar("Function", bound=Callable[..., Any])

TILE = 1024  # features that are worked on together: their sums stay in the nearest cache
BLOCK = 256  # rows that are summed before their sums are added to the rest, so that errors grow slowly
SEEN = 32  # rows that give the rough mean
SAFE_LOW, SAFE_HIGH = 1e-140, 1e140  # norms whose squares stay within float64


def compiled(function: Function) -> Function:
    """Compile a loop on first use and keep it on disk.

    Products may be contracted with additions; nothing else is reordered, so results do not depend on the machine's
    width.
    """
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})(function))


def reordered(function: Function) -> Function:
    """Compile like :func:`compiled`, with sums in vector registers; their order is fixed by the shape alone."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})(function))


@compiled
def rough_mean(sample: Array, origin: Array, shift: Array) -> None:
    """Fill `shift` (width,) with the mean of a few rows, added up about an origin (width,).

    About the first row the mean of a constant is the constant itself.
    """
    rows, width = sample.shape
    seen = min(SEEN, rows)
    shift[:] = 0.0
    for i in range(seen):
        row = i * rows // seen
        for f in range(width):
            shift[f] += sample[row, f] - origin[f]
    for f in range(width):
        shift[f] = shift[f] / seen + origin[f]


@compiled
def power_sums(sample: Array, shift: Array, inverse: float, sums: Array) -> None:
    """Fill `sums` (orders, width) with the sums over the rows of ((x - shift) inverse)^j, j = 1 to orders.

    Blocks of rows are added up in the precision of `shift`, blocks in that of `sums`.
    """
    rows, width = sample.shape
    orders, tile = sums.shape[0], min(TILE, width)
    part, work = np.empty((orders, tile), shift.dtype), np.empty((2, tile), shift.dtype)
    sums[:] = 0.0
    for first in range(0, width, tile):
        size = min(tile, width - first)
        for start in range(0, rows, BLOCK):
            stop = min(start + BLOCK, rows)
            part[:] = 0.0
            if orders == 5:
                _add_five(sample, start, stop, first, size, shift, inverse, part)
            elif orders == 6:
                _add_six(sample, start, stop, first, size, shift, inverse, part)
            else:
                _add_any(sample, start, stop, first, size, shift, inverse, part, work)
            for j in range(orders):
                for c in range(size):
                    sums[j, first + c] += part[j, c]


@compiled
def _add_five(
    sample: Array, start: int, stop: int, first: int, size: int, shift: Array, inverse: float, part: Array
) -> None:
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
            z = (r0[c] - m) * inverse
            q = z * z
            k = q * z
            a1, a2, a3, a4, a5 = a1 + z, a2 + q, a3 + k, a4 + q * q, a5 + q * k
            z = (r1[c] - m) * inverse
            q = z * z
            k = q * z
            a1, a2, a3, a4, a5 = a1 + z, a2 + q, a3 + k, a4 + q * q, a5 + q * k
            z = (r2[c] - m) * inverse
            q = z * z
            k = q * z
            a1, a2, a3, a4, a5 = a1 + z, a2 + q, a3 + k, a4 + q * q, a5 + q * k
            z = (r3[c] - m) * inverse
            q = z * z
            k = q * z
            a1, a2, a3, a4, a5 = a1 + z, a2 + q, a3 + k, a4 + q * q, a5 + q * k
            s1[c], s2[c], s3[c], s4[c], s5[c] = a1, a2, a3, a4, a5
        row += 4
    while row < stop:
        rest = sample[row, first : first + size]
        for c in range(size):
            z = (rest[c] - middle[c]) * inverse
            q = z * z
            s1[c] += z
            s2[c] += q
            s3[c] += q * z
            s4[c] += q * q
            s5[c] += q * (q * z)
        row += 1


@compiled
def _add_six(
    sample: Array, start: int, stop: int, first: int, size: int, shift: Array, inverse: float, sums: Array
) -> None:
    """Add powers 1 to 6 of rows start to stop, four rows at a time so that the sums are loaded once for all four."""
    s1, s2, s3, s4, s5, s6 = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    middle = shift[first : first + size]
    row = start
    while row + 4 <= stop:
        r0 = sample[row, first : first + size]
        r1 = sample[row + 1, first : first + size]
        r2 = sample[row + 2, first : first + size]
        r3 = sample[row + 3, first : first + size]
        for c in range(size):
            m = middle[c]
            z0 = (r0[c] - m) * inverse
            z1 = (r1[c] - m) * inverse
            z2 = (r2[c] - m) * inverse
            z3 = (r3[c] - m) * inverse
            q0, q1, q2, q3 = z0 * z0, z1 * z1, z2 * z2, z3 * z3
            c0, c1, c2, c3 = q0 * z0, q1 * z1, q2 * z2, q3 * z3
            s1[c] += (z0 + z1) + (z2 + z3)
            s2[c] += (q0 + q1) + (q2 + q3)
            s3[c] += (c0 + c1) + (c2 + c3)
            s4[c] += (q0 * q0 + q1 * q1) + (q2 * q2 + q3 * q3)
            s5[c] += (q0 * c0 + q1 * c1) + (q2 * c2 + q3 * c3)
            s6[c] += (c0 * c0 + c1 * c1) + (c2 * c2 + c3 * c3)
        row += 4
    while row < stop:
        rest = sample[row, first : first + size]
        for c in range(size):
            z = (rest[c] - middle[c]) * inverse
            q = z * z
            s1[c] += z
            s2[c] += q
            s3[c] += q * z
            s4[c] += q * q
            s5[c] += q * (q * z)
            s6[c] += (q * z) * (q * z)
        row += 1


@compiled
def _add_any(
    sample: Array,
    start: int,
    stop: int,
    first: int,
    size: int,
    shift: Array,
    inverse: float,
    sums: Array,
    work: Array,
) -> None:
    centred, power = work[0], work[1]
    for row in range(start, stop):
        values = sample[row, first : first + size]
        for c in range(size):
            z = (values[c] - shift[first + c]) * inverse
            centred[c] = z
            power[c] = z
            sums[0, c] += z
        for j in range(1, sums.shape[0]):
            total = sums[j]
            for c in range(size):
                power[c] *= centred[c]
                total[c] += power[c]


@compiled
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


@compiled
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


@compiled
def _move(powers: Array, zeroth: float, steps: Array) -> None:
    """Turn sums (orders, width) of z^j, j = 1 and up, into those of (z + step)^j, by Pascal's triangle row by row.

    `zeroth` is the sum of z^0, `steps` (width,) are the steps of the features.
    """
    orders, width = powers.shape
    for first in range(orders):
        for j in range(orders - 1, first - 1, -1):
            line = powers[j]
            if j == 0:
                for f in range(width):
                    line[f] += steps[f] * zeroth
            else:
                above = powers[j - 1]
                for f in range(width):
                    line[f] += steps[f] * above[f]


@compiled
def centre(count: float, shift: Array, powers: Array, mean: Array, rest: Array, sums: Array) -> None:
    """Fill mean, rest and central sums (orders - 1, width) from the sums of powers (orders, width) about a shift."""
    orders, width = powers.shape
    moved, steps = powers.copy(), np.empty(width)
    for f in range(width):
        step = powers[0, f] / count
        mean[f], rest[f] = _two_sum(shift[f], step)
        steps[f] = -step
    _move(moved, count, steps)
    for j in range(1, orders):
        for f in range(width):
            sums[j - 1, f] = _possible(moved[j, f], j + 1)


@compiled
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
    share, other_share = count / (count + other_count), other_count / (count + other_count)
    work, other_work = np.zeros((orders, width)), np.zeros((orders, width))
    back, forth = np.empty(width), np.empty(width)
    for f in range(width):
        # Above their last common digit the means cancel exactly, below it stand the rests.
        step = (other_mean[f] - mean[f]) + (other_rest[f] - rest[f])
        steps[f], back[f], forth[f] = step, -other_share * step, share * step
        new_mean[f], new_rest[f] = _two_sum(mean[f], rest[f] + other_share * step)
    work[1:], other_work[1:] = sums, other_sums
    _move(work, count, back)
    _move(other_work, other_count, forth)
    for j in range(1, orders):
        for f in range(width):
            new_sums[j - 1, f] = _possible(work[j, f] + other_work[j, f], j + 1)


@compiled
def _possible(total: float, order: int) -> float:
    """Rounding must not make an even sum negative; NaN stays NaN."""
    return 0.0 if order % 2 == 0 and total < 0.0 else total


@compiled
def _two_sum(one: float, other: float) -> tuple[float, float]:
    """The rounded sum and what rounding took away (Knuth)."""
    total = one + other
    back = total - one
    return total, (one - (total - back)) + (other - back)


@compiled
def sample_statistics(sample: Array, scale: float, order: int, shift: Array, moments: Array) -> None:
    """Fill `shift` (width,) and `moments` (order or order + 1, width): the mean minus the shift, then central moments.

    The last order is even: the rounding level of an odd order comes from the even ones around it. Moments are in units
    of `scale`.
    """
    rows, width = sample.shape
    rough_mean(sample, np.zeros(width, sample.dtype), shift)
    power_sums(sample, shift, sample.dtype.type(1.0 / scale), moments)
    steps = np.empty(width)
    highest = order + order % 2
    for j in range(highest):
        for f in range(width):
            moments[j, f] /= rows
    for f in range(width):
        steps[f] = -moments[0, f]
    _move(moments, 1.0, steps)
    for j in range(1, highest):
        for f in range(width):
            moments[j, f] = _possible(moments[j, f], j + 1)
    for f in range(width):
        moments[0, f] = -steps[f]


@compiled
def _magnitude(moments: Array, j: int, f: int) -> Any:
    """Size of the summands of order j, E|z|^j; of odd orders from the even moments around it."""
    if j % 2 == 0:
        return moments[j - 1, f]
    before = moments[j - 2, f] if j > 1 else 1.0
    return math.sqrt(before) * math.sqrt(moments[j, f])  # Their product could leave the range of the numbers.


@compiled
def discrepancy_terms(
    shifts: Array, moments: Array, scale: float, order: int, epsilon: float, directions: Array, terms: Array
) -> None:
    """Fill `terms` (order + 1,), the sum last, and `directions` (order, width): differences over their norms.

    A term at rounding level is zero, and so is its direction.

    `shifts` (2, width) and `moments` (2, order or order + 1, width) are the statistics of source and target.
    """
    source, target = moments[0], moments[1]
    width = source.shape[1]
    terms[order] = 0.0
    for j in range(1, order + 1):
        squares, level = 0.0, 0.0
        for f in range(width):
            difference = source[j - 1, f] - target[j - 1, f]
            size = _magnitude(source, j, f) + _magnitude(target, j, f)
            if j == 1:  # The difference of the means is put together from parts, each of them rounded.
                between = (np.float64(shifts[0, f]) - np.float64(shifts[1, f])) / scale
                difference += between
                size += abs(between) + abs(source[0, f]) + abs(target[0, f])
            directions[j - 1, f] = difference
            squares += difference * difference
            level += size * size
        norm, level = math.sqrt(squares), math.sqrt(level)
        if not SAFE_LOW < norm < SAFE_HIGH or not level < SAFE_HIGH:
            norm, level = _careful_norms(source, target, directions, j)
        # An overflow is no noise: it stays visible in the term.
        noise = norm <= ROUNDING_ERRORS * epsilon * level and level < math.inf
        terms[j - 1] = 0.0 if noise else norm
        terms[order] += terms[j - 1]
        inverse = 0.0 if noise else 1.0 / norm
        for f in range(width):
            directions[j - 1, f] *= inverse


@compiled
def _careful_norms(source: Array, target: Array, directions: Array, j: int) -> tuple[float, float]:
    """The norms of differences and of sizes of order j where their squares leave the range of the numbers."""
    width = source.shape[1]
    peak, largest = 0.0, 0.0
    for f in range(width):
        peak = max(peak, abs(directions[j - 1, f]))
        largest = max(largest, _magnitude(source, j, f) + _magnitude(target, j, f))
    squares, sizes = 0.0, 0.0
    for f in range(width):
        if peak > 0.0:
            squares += (directions[j - 1, f] / peak) ** 2
        if largest > 0.0:
            sizes += ((_magnitude(source, j, f) + _magnitude(target, j, f)) / largest) ** 2
    return peak * math.sqrt(squares), largest * math.sqrt(sizes)


@compiled
def discrepancy_gradient(
    sample: Array,
    shift: Array,
    moments: Array,
    directions: Array,
    weights: Array,
    scale: float,
    sign: float,
    order: int,
    gradient: Array,
) -> None:
    """Write the gradient of sum_j weights[j] * term_j with respect to one sample into `gradient` (rows, width)."""
    rows, width = sample.shape
    degree = max(order, 2)
    coefficients = np.zeros((degree, width), sample.dtype)
    middle = np.empty(width, sample.dtype)
    factor = sign / (rows * scale)
    for f in range(width):
        # The shift and the rest of the mean, subtracted in two steps, keep the digits of the centred value.
        middle[f] = moments[0, f]
        constant = weights[0] * directions[0, f]
        for j in range(2, order + 1):
            alpha = weights[j - 1] * directions[j - 1, f] * j
            coefficients[j - 1, f] = factor * alpha
            if j > 2:
                constant -= alpha * moments[j - 2, f]
        coefficients[0, f] = factor * constant
    inverse = sample.dtype.type(1.0 / scale)
    if order == 5:
        _polynomial_four(sample, shift, middle, inverse, coefficients, gradient)
    else:
        _polynomial_any(sample, shift, middle, inverse, coefficients, gradient)


@compiled
def _polynomial_four(
    sample: Array, shift: Array, middle: Array, inverse: float, coefficients: Array, gradient: Array
) -> None:
    """Polynomials of degree four, row by row: with more rows at a time the compiler gives up vector instructions."""
    rows, width = sample.shape
    a0, a1, a2, a3, a4 = coefficients[0], coefficients[1], coefficients[2], coefficients[3], coefficients[4]
    for i in range(rows):
        values, out = sample[i], gradient[i]
        for f in range(width):
            z = (values[f] - shift[f]) * inverse - middle[f]
            out[f] = a0[f] + z * (a1[f] + z * (a2[f] + z * (a3[f] + z * a4[f])))


@compiled
def _polynomial_any(
    sample: Array, shift: Array, middle: Array, inverse: float, coefficients: Array, gradient: Array
) -> None:
    rows, width = sample.shape
    degree = coefficients.shape[0]
    for i in range(rows):
        values, out = sample[i], gradient[i]
        for f in range(width):
            out[f] = coefficients[degree - 1, f]
        for j in range(degree - 2, -1, -1):
            line = coefficients[j]
            for f in range(width):
                z = (values[f] - shift[f]) * inverse - middle[f]
                out[f] = out[f] * z + line[f]


@compiled
def centred_rows(sample: Array, shift: Array, moments: Array, scale: float) -> Array:
    """Return the sample about its mean, in units of `scale`."""
    centred = np.empty_like(sample)
    inverse = np.float32(1.0 / scale)
    for i in range(sample.shape[0]):
        for u in range(sample.shape[1]):
            centred[i, u] = (sample[i, u] - shift[u]) * inverse - np.float32(moments[0, u])
    return centred


@compiled
def add_covariance(centred: Array, factor: float, matrix: Array) -> None:
    """Add factor * centred^T centred to a square float64 matrix."""
    rows, units = centred.shape
    block = np.empty((units, units), np.float32)
    for start in range(0, rows, BLOCK):
        block[:] = np.float32(0.0)
        for i in range(start, min(start + BLOCK, rows)):
            row = centred[i]
            for u in range(units):
                value, line = row[u], block[u]
                for v in range(units):
                    line[v] += value * row[v]
        for u in range(units):
            for v in range(units):
                matrix[u, v] += factor * block[u, v]


@compiled
def add_product(centred: Array, matrix: Array, factor: float, delta: Array) -> None:
    """Add factor * centred @ matrix (symmetric) to `delta`."""
    units = matrix.shape[0]
    narrow = (matrix * factor).astype(np.float32)
    for i in range(centred.shape[0]):
        row, out = centred[i], delta[i]
        for u in range(units):
            value, line = row[u], narrow[u]
            for v in range(units):
                out[v] += value * line[v]


@compiled
def cross_variance_term(
    source: Array,
    target: Array,
    shifts: Array,
    moments: Array,
    scale: float,
    epsilon: float,
    strength: float,
    delta: Array,
) -> float:
    """Return the term of order 2 over all cross-variances, divided by sqrt(2) (Section 6.5).

    `strength` times its gradient is added to `delta`, in which the rows of the target follow those of the source.
    """
    rows, units = source.shape
    of_source = centred_rows(source, shifts[0], moments[0], scale)
    of_target = centred_rows(target, shifts[1], moments[1], scale)
    difference = np.zeros((units, units))
    add_covariance(of_source, 1.0 / rows, difference)
    add_covariance(of_target, -1.0 / target.shape[0], difference)
    squares, variance = 0.0, 0.0
    for u in range(units):
        variance += moments[0, 1, u] + moments[1, 1, u]
        for v in range(units):
            squares += difference[u, v] ** 2 * (1.0 if u == v else 0.5)
    norm = math.sqrt(squares)
    # Products add the rows of a block one after the other; their error grows with the root of the number of rows.
    growth = max(1.0, math.sqrt(min(max(rows, target.shape[0]), BLOCK)) / 4.0)
    if norm <= ROUNDING_ERRORS * epsilon * growth * variance:
        return 0.0
    for u in range(units):
        for v in range(units):
            difference[u, v] *= (1.0 if u == v else 0.5) / norm
    factor = 2.0 * strength / (math.sqrt(2.0) * scale)
    add_product(of_source, difference, factor / rows, delta[:rows])
    add_product(of_target, difference, -factor / target.shape[0], delta[rows:])
    return norm / math.sqrt(2.0)

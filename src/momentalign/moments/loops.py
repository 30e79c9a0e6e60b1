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
from numba import config, njit

from momentalign.moments.centre import ROUNDING_ERRORS
from momentalign.moments.compile_cache import compile_cache

__all__ = [
    "FEW",
    "FEW_SUMS",
    "SEEN",
    "about_the_mean",
    "compiled",
    "discrepancy_gradient",
    "discrepancy_terms",
    "few_polynomials",
    "few_power_sums",
    "gradient_coefficients",
    "inner",
    "many_polynomials",
    "many_power_sums",
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
FEW, FEW_SUMS = 5, 6  # orders of a CMD, and of the sums it rests on, that are computed together
BLOCK = 256  # rows that are summed before their sums are added to the rest, so that errors grow slowly
SEEN = 32  # rows that give the rough mean
SAFE_LOW, SAFE_HIGH = 1e-140, 1e140  # norms whose squares stay within float64


def compiled(function: Function) -> Function:
    """Compile a loop on first use and keep it on disk.

    Products may be contracted with additions; nothing else is reordered, so results do not depend on the machine's
    width.
    """
    return _compiled(function, {"contract"})


def inner(function: Function) -> Function:
    """Compile like :func:`compiled` what other loops call, without the part that Python calls, which takes time."""
    return _compiled(function, {"contract"}, **INNER)


def reordered(function: Function) -> Function:
    """Compile like :func:`inner`, with sums in vector registers; their order is fixed by the shape alone."""
    return _compiled(function, {"contract", "reassoc"}, **INNER)


INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def _compiled(function: Function, fastmath: set[str], **wrappers: bool) -> Function:
    compiles: Any = njit
    loop: Any = compiles(nogil=True, error_model="numpy", fastmath=fastmath, **wrappers)(function)
    if not vars(config)["DISABLE_JIT"]:
        loop._cache = compile_cache(function)
    return cast(Function, loop)


@inner
def rough_mean(sample: Array, shift: Array) -> None:
    """Fill `shift` (width,) with the mean of a few rows."""
    rows, width = sample.shape
    seen = min(SEEN, rows)
    for f in range(width):
        shift[f] = 0.0
        for i in range(seen):
            shift[f] += sample[i * rows // seen, f]
        shift[f] /= seen


@inner
def power_sums(sample: Array, shift: Array, inverse: float, sums: Array) -> None:
    """Fill `sums` (orders, width) with the sums over the rows of ((x - shift) inverse)^j, j = 1 to orders.

    Blocks of rows are added up in the precision of `shift`, blocks in that of `sums`.
    """
    if sums.shape[0] <= FEW_SUMS:
        few_power_sums(sample, shift, inverse, sums)
    else:
        many_power_sums(sample, shift, inverse, sums)


@compiled
def few_power_sums(sample: Array, shift: Array, inverse: float, sums: Array) -> None:
    """The same for up to six orders, four rows at a time so that the sums are loaded once for all four."""
    rows, width = sample.shape
    orders, tile = sums.shape[0], min(TILE, width)
    part = np.empty((FEW_SUMS, tile), shift.dtype)
    s1, s2, s3, s4, s5, s6 = part[0], part[1], part[2], part[3], part[4], part[5]
    sums[:] = 0.0
    for first in range(0, width, tile):
        size = min(tile, width - first)
        middle = shift[first : first + size]
        for start in range(0, rows, BLOCK):
            row, stop = start, min(start + BLOCK, rows)
            part[:] = 0.0
            while row + 4 <= stop:
                r0, r1 = sample[row, first : first + size], sample[row + 1, first : first + size]
                r2, r3 = sample[row + 2, first : first + size], sample[row + 3, first : first + size]
                for c in range(size):
                    m = middle[c]
                    z0, z1, z2, z3 = (
                        (r0[c] - m) * inverse,
                        (r1[c] - m) * inverse,
                        (r2[c] - m) * inverse,
                        (r3[c] - m) * inverse,
                    )
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
                for c in range(size):
                    z = (sample[row, first + c] - middle[c]) * inverse
                    power = z
                    for j in range(FEW_SUMS):
                        part[j, c] += power
                        power *= z
                row += 1
            for j in range(orders):
                for c in range(size):
                    sums[j, first + c] += part[j, c]


@compiled
def many_power_sums(sample: Array, shift: Array, inverse: float, sums: Array) -> None:
    """The same for any number of orders, row by row."""
    rows, width = sample.shape
    orders, tile = sums.shape[0], min(TILE, width)
    part, work = np.empty((orders, tile), shift.dtype), np.empty((2, tile), shift.dtype)
    centred, power = work[0], work[1]
    sums[:] = 0.0
    for first in range(0, width, tile):
        size = min(tile, width - first)
        for start in range(0, rows, BLOCK):
            part[:] = 0.0
            for row in range(start, min(start + BLOCK, rows)):
                values = sample[row, first : first + size]
                for c in range(size):
                    z = (values[c] - shift[first + c]) * inverse
                    centred[c] = z
                    power[c] = z
                    part[0, c] += z
                for j in range(1, orders):
                    total = part[j]
                    for c in range(size):
                        power[c] *= centred[c]
                        total[c] += power[c]
            for j in range(orders):
                for c in range(size):
                    sums[j, first + c] += part[j, c]


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
def sample_statistics(sample: Array, scale: float, shift: Array, moments: Array) -> None:
    """Fill `shift` (width,) and `moments` (order or order + 1, width): the mean minus the shift, then central moments.

    The last order is even: the rounding level of an odd order comes from the even ones around it. Moments are in units
    of `scale`.
    """
    rough_mean(sample, shift)
    power_sums(sample, shift, sample.dtype.type(1.0 / scale), moments)
    about_the_mean(sample.shape[0], moments)


@inner
def about_the_mean(rows: int, moments: Array) -> None:
    """Turn sums of powers (orders, width) about a shift into the mean minus the shift and central moments, in place."""
    orders, width = moments.shape
    for f in range(width):
        for j in range(orders):
            moments[j, f] /= rows
        step = moments[0, f]
        # By Pascal's triangle, row by row.
        for first in range(orders):
            for j in range(orders - 1, max(first, 1) - 1, -1):
                moments[j, f] -= step * moments[j - 1, f]
            if first == 0:
                moments[0, f] -= step
        moments[0, f] = step
        for j in range(1, orders, 2):  # Rounding must not make an even moment negative.
            if moments[j, f] < 0.0:
                moments[j, f] = 0.0


@inner
def _magnitude(moments: Array, j: int, f: int) -> Any:
    """Size of the summands of order j, E|z|^j; of odd orders from the even moments around it."""
    if j % 2 == 0:
        return moments[j - 1, f]
    before = moments[j - 2, f] if j > 1 else 1.0
    return math.sqrt(before) * math.sqrt(moments[j, f])  # Their product could leave the range of the numbers.


@inner
def discrepancy_terms(
    shifts: Array, moments: Array, scale: float, order: int, epsilon: float, directions: Array, terms: Array
) -> None:
    """Fill `terms` (order + 1,), the sum last, and `directions` (order, width): differences over their norms.

    A term at rounding level is zero, and so is its direction.

    `shifts` (2, width) and `moments` (2, order or order + 1, width) are the statistics of source and target.
    """
    source, target = moments[0], moments[1]
    width = source.shape[1]
    sizes = np.empty(width)
    terms[order] = 0.0
    for j in range(1, order + 1):
        differences = directions[j - 1]
        for f in range(width):
            differences[f] = source[j - 1, f] - target[j - 1, f]
            sizes[f] = _magnitude(source, j, f) + _magnitude(target, j, f)
            if j == 1:  # The difference of the means is put together from parts, each of them rounded.
                between = (np.float64(shifts[0, f]) - np.float64(shifts[1, f])) / scale
                differences[f] += between
                sizes[f] += abs(between) + abs(source[0, f]) + abs(target[0, f])
        norm, level = _norm(differences), _norm(sizes)
        # An overflow is no noise: it stays visible in the term.
        noise = norm <= ROUNDING_ERRORS * epsilon * level and level < math.inf
        terms[j - 1] = 0.0 if noise else norm
        terms[order] += terms[j - 1]
        inverse = 0.0 if noise else 1.0 / norm
        for f in range(width):
            differences[f] *= inverse


@inner
def _norm(values: Array) -> float:
    """The Euclidean norm, whose squares may leave the range of the numbers."""
    squares, peak = 0.0, 0.0
    for value in values:
        squares += value * value
        if abs(value) > peak:
            peak = abs(value)
    norm = math.sqrt(squares)
    if SAFE_LOW < norm < SAFE_HIGH or not 0.0 < peak < math.inf:
        return norm
    squares = 0.0
    for value in values:
        squares += (value / peak) * (value / peak)
    return peak * math.sqrt(squares)


@inner
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
    coefficients, middle = np.empty((max(order, FEW), width), sample.dtype), np.empty(width, sample.dtype)
    gradient_coefficients(moments, directions, weights, sign / (rows * scale), order, coefficients, middle)
    inverse = sample.dtype.type(1.0 / scale)
    if order <= FEW:
        few_polynomials(sample, shift, middle, inverse, coefficients, gradient)
    else:
        many_polynomials(sample, shift, middle, inverse, coefficients, gradient)


@inner
def gradient_coefficients(
    moments: Array,
    directions: Array,
    weights: Array,
    factor: float,
    order: int,
    coefficients: Array,
    middle: Array,
) -> None:
    """Fill the coefficients (degrees, width) of the gradient's polynomials, and the mean minus the shift (width,)."""
    for f in range(middle.shape[0]):
        # The shift and the rest of the mean, subtracted in two steps, keep the digits of the centred value.
        middle[f] = moments[0, f]
        constant = weights[0] * directions[0, f]
        for j in range(2, coefficients.shape[0] + 1):
            alpha = weights[j - 1] * directions[j - 1, f] * j if j <= order else 0.0
            coefficients[j - 1, f] = factor * alpha
            if j > 2 and j <= order:
                constant -= alpha * moments[j - 2, f]
        coefficients[0, f] = factor * constant


@inner
def few_polynomials(
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


@inner
def many_polynomials(
    sample: Array, shift: Array, middle: Array, inverse: float, coefficients: Array, gradient: Array
) -> None:
    """Polynomials of any degree."""
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

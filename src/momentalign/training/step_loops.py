"""Compiled loops: one update of the weights, Eqs. (25) to (27) of Zellinger et al. (2019), by any of four rules."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from momentalign.discrepancies.fused.kernels import compiled

__all__ = ["ADADELTA", "ADAGRAD", "ADAM", "SGD", "adagrad_sparse", "rates_of", "step_dense", "step_row", "step_sparse"]

Array: TypeAlias = Any  # a numpy array; the loops are compiled for float32 and whole numbers
Arguments: TypeAlias = Any  # a tuple of numbers

ADAGRAD, ADADELTA, SGD, ADAM = 0, 1, 2, 3

ONE = np.float32(1.0)
EPSILON = np.float32(1e-8)
RHO = np.float32(0.95)
BETA_1, BETA_2 = 0.9, 0.999


@compiled
def rates_of(rule: Arguments, step: int) -> Arguments:
    """Return (learning rate of this update, momentum, second bias correction of Adam)."""
    kind, rate, momentum, decay = rule
    if kind == ADAM:
        return np.float32(rate / (1.0 - BETA_1**step)), np.float32(0.0), np.float32(math.sqrt(1.0 - BETA_2**step))
    return np.float32(rate / (1.0 + decay * (step - 1))), np.float32(momentum), ONE


@compiled
def step_row(values: Array, gradient: Array, first: Array, second: Array, kind: int, rates: Arguments) -> None:
    """Update one row of weights in place: Eqs. (25) to (27)."""
    rate, momentum, correction = rates
    size = values.shape[0]
    if kind == ADAGRAD:
        for u in range(size):
            g = gradient[u]
            first[u] += g * g
            values[u] -= rate * g / (np.sqrt(first[u]) + EPSILON)
    elif kind == ADADELTA:
        for u in range(size):
            g = gradient[u]
            first[u] = RHO * first[u] + (ONE - RHO) * g * g
            move = np.sqrt(second[u] + EPSILON) / np.sqrt(first[u] + EPSILON) * g
            second[u] = RHO * second[u] + (ONE - RHO) * move * move
            values[u] -= rate * move
    elif kind == SGD:
        for u in range(size):
            first[u] = momentum * first[u] + gradient[u]
            values[u] -= rate * first[u]
    else:
        for u in range(size):
            g = gradient[u]
            first[u] = np.float32(BETA_1) * first[u] + np.float32(1.0 - BETA_1) * g
            second[u] = np.float32(BETA_2) * second[u] + np.float32(1.0 - BETA_2) * g * g
            values[u] -= rate * first[u] / (np.sqrt(second[u]) / correction + EPSILON)


@compiled
def step_sparse(
    pointers: Array,
    column_rows: Array,
    values: Array,
    rows: int,
    delta: Array,
    weight: Array,
    first: Array,
    second: Array,
    kind: int,
    rates: Arguments,
) -> None:
    """Gradient of each input's weights from its column of the batch, and the update at once; no gradient is stored.

    The rows of a column are in order; those from `rows` on have no part in the update.
    """
    inputs, units = weight.shape
    gradient = np.empty(units, np.float32)
    for j in range(inputs):
        begin, end = pointers[j], pointers[j + 1]
        gradient[:] = np.float32(0.0)
        p = begin
        while p + 4 <= end and column_rows[p + 3] < rows:
            x0, x1, x2, x3 = values[p], values[p + 1], values[p + 2], values[p + 3]
            d0, d1 = delta[column_rows[p]], delta[column_rows[p + 1]]
            d2, d3 = delta[column_rows[p + 2]], delta[column_rows[p + 3]]
            for u in range(units):
                gradient[u] += (x0 * d0[u] + x1 * d1[u]) + (x2 * d2[u] + x3 * d3[u])
            p += 4
        while p < end and column_rows[p] < rows:
            x, d = values[p], delta[column_rows[p]]
            for u in range(units):
                gradient[u] += x * d[u]
            p += 1
        step_row(weight[j], gradient, first[j], second[j], kind, rates)


@compiled
def adagrad_sparse(
    pointers: Array,
    column_rows: Array,
    values: Array,
    rows: int,
    delta: Array,
    weight: Array,
    squares: Array,
    rate: float,
) -> None:
    """The same for Adagrad, which does not move without a gradient: inputs that are zero in the batch are skipped.

    The last four entries of a column, for most words all there are, go into the update without being stored.
    """
    inputs, units = weight.shape
    gradient = np.empty(units, np.float32)
    for j in range(inputs):
        p, end = pointers[j], pointers[j + 1]
        while end > p and column_rows[end - 1] >= rows:
            end -= 1
        if p == end:
            continue
        gradient[:] = np.float32(0.0)
        while p + 4 < end:
            x0, x1, x2, x3 = values[p], values[p + 1], values[p + 2], values[p + 3]
            d0, d1 = delta[column_rows[p]], delta[column_rows[p + 1]]
            d2, d3 = delta[column_rows[p + 2]], delta[column_rows[p + 3]]
            for u in range(units):
                gradient[u] += (x0 * d0[u] + x1 * d1[u]) + (x2 * d2[u] + x3 * d3[u])
            p += 4
        # Missing entries weigh nothing.
        p1, p2, p3 = min(p + 1, end - 1), min(p + 2, end - 1), min(p + 3, end - 1)
        x0 = values[p]
        x1 = values[p1] if p + 1 < end else np.float32(0.0)
        x2 = values[p2] if p + 2 < end else np.float32(0.0)
        x3 = values[p3] if p + 3 < end else np.float32(0.0)
        d0, d1, d2, d3 = delta[column_rows[p]], delta[column_rows[p1]], delta[column_rows[p2]], delta[column_rows[p3]]
        w, q = weight[j], squares[j]
        for u in range(units):
            g = gradient[u] + ((x0 * d0[u] + x1 * d1[u]) + (x2 * d2[u] + x3 * d3[u]))
            q[u] += g * g
            w[u] -= rate * g / (np.sqrt(q[u]) + EPSILON)


@compiled
def step_dense(
    dense: Array,
    first_row: int,
    rows: int,
    delta: Array,
    weight: Array,
    first: Array,
    second: Array,
    kind: int,
    rates: Arguments,
) -> None:
    """Gradient of all inputs' weights from dense rows, then the update row by row."""
    inputs, units = weight.shape
    gradient = np.zeros((inputs, units), np.float32)
    i = 0
    while i + 4 <= rows:
        d0, d1, d2, d3 = delta[i], delta[i + 1], delta[i + 2], delta[i + 3]
        x0, x1 = dense[first_row + i], dense[first_row + i + 1]
        x2, x3 = dense[first_row + i + 2], dense[first_row + i + 3]
        for j in range(inputs):
            line = gradient[j]
            y0, y1, y2, y3 = x0[j], x1[j], x2[j], x3[j]
            for u in range(units):
                line[u] += (y0 * d0[u] + y1 * d1[u]) + (y2 * d2[u] + y3 * d3[u])
        i += 4
    while i < rows:
        row, d = dense[first_row + i], delta[i]
        for j in range(inputs):
            x, line = row[j], gradient[j]
            for u in range(units):
                line[u] += x * d[u]
        i += 1
    for j in range(inputs):
        step_row(weight[j], gradient[j], first[j], second[j], kind, rates)

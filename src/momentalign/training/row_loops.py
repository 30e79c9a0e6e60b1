"""Compiled loops that depend on the layout of the rows: dense, or sparse by rows and by columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from momentalign.moments.loops import compiled
from momentalign.training.kernels import INTEGERS, MATRIX, VECTOR, Array, kernel, named_tuple
from momentalign.training.update_loops import (
    ADADELTA,
    EPSILON,
    NETWORK,
    SGD,
    WEIGHTS,
    Network,
    Weights,
    adadelta,
    adam,
    sgd,
)

__all__ = [
    "DENSE",
    "SPARSE",
    "DenseRows",
    "SparseRows",
    "descend_adagrad_sparse",
    "descend_dense",
    "descend_sparse",
    "forward_dense",
    "forward_sparse",
    "nonzeros",
]


class DenseRows(NamedTuple):
    """The rows of all batches one after the other, source rows of a batch before its target rows."""

    values: Array


class SparseRows(NamedTuple):
    """The same as CSR, and once more as columns: pointers of each batch (batches, inputs + 1) into them."""

    pointers: Array
    indices: Array
    values: Array
    column_pointers: Array
    column_rows: Array
    column_values: Array


INDICES = types.Array(types.int32, 1, "C")
DENSE = named_tuple(DenseRows, MATRIX)
SPARSE = named_tuple(SparseRows, INTEGERS, INDICES, VECTOR, types.Array(types.int64, 2, "C"), INDICES, VECTOR)
FORWARD = (types.int64, WEIGHTS, MATRIX)
DESCEND = (types.int64, types.int64, MATRIX, NETWORK, types.int64, types.float32, types.float32)


@kernel(types.void(DENSE, *FORWARD))
def forward_dense(rows: DenseRows, first: int, weights: Weights, hidden: Array) -> None:
    """Fill `hidden` with what enters the sigmoid, for the rows from `first` on, four inputs at a time."""
    weight, bias = weights.bottom, weights.bias
    inputs, units = weight.shape
    for i in range(hidden.shape[0]):
        row, out = rows.values[first + i], hidden[i]
        for u in range(units):
            out[u] = bias[u]
        j = 0
        while j + 4 <= inputs:
            x0, x1, x2, x3 = row[j], row[j + 1], row[j + 2], row[j + 3]
            w0, w1, w2, w3 = weight[j], weight[j + 1], weight[j + 2], weight[j + 3]
            for u in range(units):
                out[u] += (x0 * w0[u] + x1 * w1[u]) + (x2 * w2[u] + x3 * w3[u])
            j += 4
        while j < inputs:
            x, w = row[j], weight[j]
            for u in range(units):
                out[u] += x * w[u]
            j += 1


@kernel(types.void(SPARSE, *FORWARD))
def forward_sparse(rows: SparseRows, first: int, weights: Weights, hidden: Array) -> None:
    """The same, eight entries at a time."""
    weight, bias, indices, values = weights.bottom, weights.bias, rows.indices, rows.values
    units = weight.shape[1]
    for i in range(hidden.shape[0]):
        out = hidden[i]
        for u in range(units):
            out[u] = bias[u]
        p, end = rows.pointers[first + i], rows.pointers[first + i + 1]
        while p + 8 <= end:
            x0, x1, x2, x3 = values[p], values[p + 1], values[p + 2], values[p + 3]
            x4, x5, x6, x7 = values[p + 4], values[p + 5], values[p + 6], values[p + 7]
            w0, w1 = weight[indices[p]], weight[indices[p + 1]]
            w2, w3 = weight[indices[p + 2]], weight[indices[p + 3]]
            w4, w5 = weight[indices[p + 4]], weight[indices[p + 5]]
            w6, w7 = weight[indices[p + 6]], weight[indices[p + 7]]
            for u in range(units):
                left = (x0 * w0[u] + x1 * w1[u]) + (x2 * w2[u] + x3 * w3[u])
                out[u] += left + ((x4 * w4[u] + x5 * w5[u]) + (x6 * w6[u] + x7 * w7[u]))
            p += 8
        while p < end:
            x, w = values[p], weight[indices[p]]
            for u in range(units):
                out[u] += x * w[u]
            p += 1


@kernel(types.int64(DENSE, *DESCEND))
def descend_dense(
    rows: DenseRows, _batch: int, first: int, delta: Array, network: Network, _rule: int, _rate: Any, _other: Any
) -> int:
    """Fill in the gradient of the bottom weights, four rows at a time; all weights are then still to be updated."""
    gradient = network.gradient.bottom
    values, size = rows.values, delta.shape[0]
    inputs, units = gradient.shape
    gradient[:] = np.float32(0.0)
    i = 0
    while i + 4 <= size:
        d0, d1, d2, d3 = delta[i], delta[i + 1], delta[i + 2], delta[i + 3]
        x0, x1 = values[first + i], values[first + i + 1]
        x2, x3 = values[first + i + 2], values[first + i + 3]
        for j in range(inputs):
            line = gradient[j]
            y0, y1, y2, y3 = x0[j], x1[j], x2[j], x3[j]
            for u in range(units):
                line[u] += (y0 * d0[u] + y1 * d1[u]) + (y2 * d2[u] + y3 * d3[u])
        i += 4
    while i < size:
        row, d = values[first + i], delta[i]
        for j in range(inputs):
            x, line = row[j], gradient[j]
            for u in range(units):
                line[u] += x * d[u]
        i += 1
    return 0


@kernel(types.int64(SPARSE, *DESCEND))
def descend_sparse(
    rows: SparseRows, batch: int, _first: int, delta: Array, network: Network, rule: int, rate: Any, other: Any
) -> int:
    """Update each bottom weight with its gradient, from its column of the batch, by any rule but Adagrad's.

    No gradient is stored. The rows of a column are in order; those without activations have no part in the update.
    Returns where the weights that are still to be updated begin.
    """
    pointers, column_rows, values = rows.column_pointers[batch], rows.column_rows, rows.column_values
    weight, first_sums, second_sums = network.weights.bottom, network.first.bottom, network.second.bottom
    size = delta.shape[0]
    inputs, units = weight.shape
    line = np.empty(units, np.float32)
    for j in range(inputs):
        begin, end = pointers[j], pointers[j + 1]
        line[:] = np.float32(0.0)
        p = begin
        while p + 4 <= end and column_rows[p + 3] < size:
            x0, x1, x2, x3 = values[p], values[p + 1], values[p + 2], values[p + 3]
            d0, d1 = delta[column_rows[p]], delta[column_rows[p + 1]]
            d2, d3 = delta[column_rows[p + 2]], delta[column_rows[p + 3]]
            for u in range(units):
                line[u] += (x0 * d0[u] + x1 * d1[u]) + (x2 * d2[u] + x3 * d3[u])
            p += 4
        while p < end and column_rows[p] < size:
            x, d = values[p], delta[column_rows[p]]
            for u in range(units):
                line[u] += x * d[u]
            p += 1
        if rule == ADADELTA:
            adadelta(weight[j], line, first_sums[j], second_sums[j], rate, other)
        elif rule == SGD:
            sgd(weight[j], line, first_sums[j], second_sums[j], rate, other)
        else:
            adam(weight[j], line, first_sums[j], second_sums[j], rate, other)
    return int(weight.size)


@kernel(types.int64(SPARSE, *DESCEND))
def descend_adagrad_sparse(
    rows: SparseRows, batch: int, _first: int, delta: Array, network: Network, _rule: int, rate: Any, _other: Any
) -> int:
    """The same for Adagrad, which does not move without a gradient: inputs that are zero in the batch are skipped.

    The last four entries of a column, for most words all there are, go into the update without being stored.
    """
    pointers, column_rows, values = rows.column_pointers[batch], rows.column_rows, rows.column_values
    weight, sums = network.weights.bottom, network.first.bottom
    size = delta.shape[0]
    inputs, units = weight.shape
    line = np.empty(units, np.float32)
    for j in range(inputs):
        p, end = pointers[j], pointers[j + 1]
        while end > p and column_rows[end - 1] >= size:
            end -= 1
        if p == end:
            continue
        line[:] = np.float32(0.0)
        while p + 4 < end:
            x0, x1, x2, x3 = values[p], values[p + 1], values[p + 2], values[p + 3]
            d0, d1 = delta[column_rows[p]], delta[column_rows[p + 1]]
            d2, d3 = delta[column_rows[p + 2]], delta[column_rows[p + 3]]
            for u in range(units):
                line[u] += (x0 * d0[u] + x1 * d1[u]) + (x2 * d2[u] + x3 * d3[u])
            p += 4
        # Missing entries weigh nothing.
        p1, p2, p3 = min(p + 1, end - 1), min(p + 2, end - 1), min(p + 3, end - 1)
        x0 = values[p]
        x1 = values[p1] if p + 1 < end else np.float32(0.0)
        x2 = values[p2] if p + 2 < end else np.float32(0.0)
        x3 = values[p3] if p + 3 < end else np.float32(0.0)
        d0, d1, d2, d3 = delta[column_rows[p]], delta[column_rows[p1]], delta[column_rows[p2]], delta[column_rows[p3]]
        w, q = weight[j], sums[j]
        for u in range(units):
            g = line[u] + ((x0 * d0[u] + x1 * d1[u]) + (x2 * d2[u] + x3 * d3[u]))
            q[u] += g * g
            w[u] -= rate * g / (np.sqrt(q[u]) + EPSILON)
    return int(weight.size)


@compiled
def nonzeros(dense: Array) -> tuple[Array, Array, Array]:
    """Return values, columns and row pointers of the entries of dense rows that are not zero."""
    rows, inputs = dense.shape
    pointers = np.zeros(rows + 1, np.int64)
    for i in range(rows):
        count = 0
        for j in range(inputs):
            count += dense[i, j] != 0.0
        pointers[i + 1] = pointers[i] + count
    values, columns = np.empty(pointers[rows], np.float32), np.empty(pointers[rows], np.int32)
    for i in range(rows):
        p = pointers[i]
        for j in range(inputs):
            if dense[i, j] != 0.0:
                values[p], columns[p] = dense[i, j], j
                p += 1
    return values, columns, pointers

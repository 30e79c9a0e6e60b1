r"""Compiled loops: one call, some epochs of one network with a sigmoid layer, gradients in closed form.

Section 7.5 of Zellinger et al. (2019) is the specification, its misprints corrected (the gradients with respect to
V, b and W take the hidden activations h_0, not h_1). Everything is float32 with sums that matter in float64; the
inner loops run over the hidden units, which are contiguous, so that they use vector instructions. No thread is
started and the interpreter lock is free, so that networks train side by side in threads.

Compiled loops: one update of the weights, Eqs. (25) to (27) of Zellinger et al. (2019), by any of four rules.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from momentalign.moments.loops import compiled
from momentalign.training.distance_loops import (
    DANN,
    DOMAINS_CMD,
    NO_DISTANCE,
    ONE,
    add_adversary,
    add_distance,
    add_domains,
    dot,
)

__all__ = [
    "ADADELTA",
    "ADAGRAD",
    "ADAM",
    "SGD",
    "adagrad_sparse",
    "evaluate",
    "nonzeros",
    "rates_of",
    "run_epoch",
    "run_epochs",
    "step_dense",
    "step_row",
    "step_sparse",
]

Array: TypeAlias = Any  # a numpy array; the loops are compiled for float32 and whole numbers
Arguments: TypeAlias = Any  # a tuple of numbers

ADAGRAD, ADADELTA, SGD, ADAM = 0, 1, 2, 3

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


@compiled
def run_epoch(
    data: Arguments,
    layout: Arguments,
    network: Arguments,
    state: Arguments,
    objective: Arguments,
    rule: Arguments,
    step: int,
) -> tuple[float, float, int]:
    """Train one network for one epoch, in place; return mean source loss, mean distance and the updates so far.

    Parameters
    ----------
    data : tuple
        (is_sparse, dense rows, CSR indptr, indices, values, CSC pointers per batch, CSC rows, CSC values, labels):
        the rows of all batches one after the other, source rows of a batch before its target rows.
    layout : tuple
        (first row of each batch and the end, source rows of each batch, bounds of the domains within each batch,
        number of sources).
    network : tuple
        W (inputs, padded units), b (padded units,), V transposed (classes, padded units), c (classes,), weights
        (padded units,) and bias (1,) of the domain classifier, units. The units are filled up with idle ones, whose
        weights and activations stay zero, to whole vector registers.
    state : tuple
        Two arrays per weight for the optimizer.
    objective : tuple
        (kind of distance, weight, order, scale, beta, which domains are compared, how they are weighted, weights).
    rule : tuple
        (optimizer, learning rate, momentum, decay).
    step : int
        Updates made so far.
    """
    sparse, dense, indptr, indices, values, pointers, column_rows, column_values, labels = data
    starts, sources, bounds, n_sources = layout
    weight, bias, top, top_bias, adversary, adversary_bias, active = network
    kind, strength, order, scale, beta, between, weighting, numbers = objective
    batches = sources.shape[0]
    longest = 0
    for b in range(batches):
        longest = max(longest, starts[b + 1] - starts[b])
    units, classes = weight.shape[1], top.shape[0]
    hidden = np.empty((longest, units), np.float32)
    delta = np.empty((longest, units), np.float32)
    total_loss, total_distance = 0.0, 0.0
    for b in range(batches):
        first, source = starts[b], sources[b]
        # Without a distance the target rows have no part in the update.
        rows = source if kind == NO_DISTANCE else starts[b + 1] - starts[b]
        if sparse:
            _forward_sparse(indptr, indices, values, first, rows, weight, bias, hidden)
        else:
            _forward_dense(dense, first, rows, weight, bias, hidden)
        _sigmoid(hidden, rows, active)
        distance = 0.0
        adversary_gradient, adversary_bias_gradient = np.zeros(units, np.float32), np.zeros(1, np.float32)
        if kind == DANN and rows > source:
            distance, adversary_bias_gradient[0] = add_adversary(
                hidden, source, rows, adversary, adversary_bias, strength, delta, adversary_gradient
            )
        elif kind == DOMAINS_CMD and rows > source:
            distance = add_domains(
                hidden, bounds[b], n_sources, between, weighting, numbers, strength, order, scale, delta
            )
        elif kind != NO_DISTANCE and rows > source:
            distance = add_distance(hidden, source, rows, active, kind, strength, order, scale, beta, delta)
        else:
            delta[:rows] = np.float32(0.0)
        top_gradient = np.zeros((classes, units), np.float32)
        top_bias_gradient = np.zeros(classes, np.float32)
        loss = _cross_entropy(
            hidden, source, labels[first : first + source], top, top_bias, delta, top_gradient, top_bias_gradient
        )
        bias_gradient = np.zeros(units, np.float32)
        _through_sigmoid(hidden, rows, delta, bias_gradient)
        step += 1
        rates = rates_of(rule, step)
        if sparse and rule[0] == ADAGRAD:
            adagrad_sparse(pointers[b], column_rows, column_values, rows, delta, weight, state[0], rates[0])
        elif sparse:
            step_sparse(
                pointers[b], column_rows, column_values, rows, delta, weight, state[0], state[1], rule[0], rates
            )
        else:
            step_dense(dense, first, rows, delta, weight, state[0], state[1], rule[0], rates)
        step_row(bias, bias_gradient, state[2], state[3], rule[0], rates)
        for k in range(classes):
            step_row(top[k], top_gradient[k], state[4][k], state[5][k], rule[0], rates)
        step_row(top_bias, top_bias_gradient, state[6], state[7], rule[0], rates)
        if kind == DANN:
            step_row(adversary, adversary_gradient, state[8], state[9], rule[0], rates)
            step_row(adversary_bias, adversary_bias_gradient, state[10], state[11], rule[0], rates)
        total_loss += loss
        total_distance += distance
    return total_loss / batches, total_distance / batches, step


@compiled
def run_epochs(
    data: Arguments,
    layout: Arguments,
    network: Arguments,
    state: Arguments,
    objective: Arguments,
    rule: Arguments,
    step: int,
    figures: Array,
) -> int:
    """Call :func:`run_epoch` once per row of `figures` (epochs, 2), fill them in, and return the updates so far."""
    for epoch in range(figures.shape[0]):
        loss, distance, step = run_epoch(data, layout, network, state, objective, rule, step)
        figures[epoch, 0], figures[epoch, 1] = loss, distance
    return step


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


@compiled
def evaluate(data: Arguments, network: Arguments) -> tuple[float, float]:
    """Return mean cross-entropy and accuracy on rows (is_sparse, dense, indptr, indices, values, labels)."""
    sparse, dense, indptr, indices, values, labels = data
    weight, bias, top, top_bias, _, _, active = network
    rows, chunk = labels.shape[0], 256
    hidden = np.empty((min(chunk, rows), weight.shape[1]), np.float32)
    outputs = np.empty(top.shape[0], np.float32)
    loss, right = 0.0, 0
    for first in range(0, rows, chunk):
        size = min(chunk, rows - first)
        if sparse:
            _forward_sparse(indptr, indices, values, first, size, weight, bias, hidden)
        else:
            _forward_dense(dense, first, size, weight, bias, hidden)
        _sigmoid(hidden, size, active)
        for i in range(size):
            label = labels[first + i]
            best, normalizer = _outputs(hidden[i], top, top_bias, outputs)
            loss += normalizer - outputs[label]
            right += best == label
    return loss / rows, right / rows


@compiled
def _forward_dense(dense: Array, first: int, rows: int, weight: Array, bias: Array, hidden: Array) -> None:
    inputs, units = weight.shape
    for i in range(rows):
        row, out = dense[first + i], hidden[i]
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


@compiled
def _forward_sparse(
    indptr: Array, indices: Array, values: Array, first: int, rows: int, weight: Array, bias: Array, hidden: Array
) -> None:
    units = weight.shape[1]
    for i in range(rows):
        out = hidden[i]
        for u in range(units):
            out[u] = bias[u]
        p, end = indptr[first + i], indptr[first + i + 1]
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


@compiled
def _exponential(value: Any) -> Any:
    """Exp to about 1e-9, written so that loops over it become vector instructions.

    Activations are then rounded once, and no gradient of theirs carries more noise than float32 has to.
    """
    value = min(max(value, -80.0), 80.0)
    # Adding and subtracting 1.5 * 2^52 rounds to the nearest whole number.
    power = (value * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0
    rest = value - power * 0.6931471805599453
    series = 1.0 / 40320.0
    series = series * rest + 1.0 / 5040.0
    series = series * rest + 1.0 / 720.0
    series = series * rest + 1.0 / 120.0
    series = series * rest + 1.0 / 24.0
    series = series * rest + 1.0 / 6.0
    series = series * rest + 0.5
    series = series * rest + 1.0
    series = series * rest + 1.0
    return series * np.float64(np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32))


@compiled
def _sigmoid(hidden: Array, rows: int, active: int) -> None:
    units = hidden.shape[1]
    for i in range(rows):
        out = hidden[i]
        for u in range(units):
            out[u] = 1.0 / (1.0 + _exponential(-np.float64(out[u])))
        for u in range(active, units):
            out[u] = np.float32(0.0)


@compiled
def _outputs(activation: Array, top: Array, top_bias: Array, outputs: Array) -> tuple[int, float]:
    """Fill what enters the softmax; return the best class and the logarithm of the sum of exponentials."""
    classes, best = top.shape[0], 0
    for k in range(classes):
        outputs[k] = dot(activation, top[k]) + top_bias[k]
        if outputs[k] > outputs[best]:
            best = k
    peak, total = np.float64(outputs[best]), 0.0
    for k in range(classes):
        total += math.exp(outputs[k] - peak)
    return best, peak + math.log(total)


@compiled
def _cross_entropy(
    hidden: Array,
    source: int,
    labels: Array,
    top: Array,
    top_bias: Array,
    delta: Array,
    top_gradient: Array,
    top_bias_gradient: Array,
) -> float:
    """Return the mean cross-entropy; add its gradients to `delta` (activations) and to those of the top layer."""
    classes, units = top.shape
    outputs = np.empty(classes, np.float32)
    loss = 0.0
    for i in range(source):
        activation, out = hidden[i], delta[i]
        _, normalizer = _outputs(activation, top, top_bias, outputs)
        loss += normalizer - outputs[labels[i]]
        for k in range(classes):
            error = np.float32((math.exp(outputs[k] - normalizer) - (k == labels[i])) / source)
            top_bias_gradient[k] += error
            line, gradient = top[k], top_gradient[k]
            for u in range(units):
                out[u] += error * line[u]
                gradient[u] += error * activation[u]
    return loss / source


@compiled
def _through_sigmoid(hidden: Array, rows: int, delta: Array, bias_gradient: Array) -> None:
    units = hidden.shape[1]
    for i in range(rows):
        activation, out = hidden[i], delta[i]
        for u in range(units):
            out[u] *= activation[u] * (ONE - activation[u])
            bias_gradient[u] += out[u]

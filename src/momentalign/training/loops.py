r"""Compiled loops: one call, one epoch of one network with a sigmoid layer, gradients in closed form.

Section 7.5 of Zellinger et al. (2019) is the specification, its misprints corrected (the gradients with respect to
V, b and W take the hidden activations h_0, not h_1). Everything is float32 with sums that matter in float64; the
inner loops run over the hidden units, which are contiguous, so that they use vector instructions. No thread is
started and the interpreter lock is free, so that networks train side by side in threads.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from momentalign.discrepancies.fused.kernels import (
    compiled,
    discrepancy_gradient,
    discrepancy_terms,
    reordered,
    sample_statistics,
)
from momentalign.discrepancies.rounding import ROUNDING_ERRORS

__all__ = [
    "ADADELTA",
    "ADAGRAD",
    "ADAM",
    "CMD",
    "CORAL",
    "CV_CMD",
    "MMD",
    "NO_DISTANCE",
    "SGD",
    "evaluate",
    "run_epoch",
    "run_epochs",
]

Array: TypeAlias = Any  # a numpy array; the loops are compiled for float32 and whole numbers
Arguments: TypeAlias = Any  # a tuple of arrays and numbers

ADAGRAD, ADADELTA, SGD, ADAM = 0, 1, 2, 3
NO_DISTANCE, CMD, CV_CMD, CORAL, MMD = 0, 1, 2, 3, 4

ONE, HALF = np.float32(1.0), np.float32(0.5)
EPSILON = np.float32(1e-8)
FLOAT32_EPSILON = 2.0**-23
RHO = np.float32(0.95)
BETA_1, BETA_2 = 0.9, 0.999


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
        (first row of each batch and the end, source rows of each batch).
    network : tuple
        W (inputs, padded units), b (padded units,), V transposed (classes, padded units), c (classes,), units. The
        units are filled up with idle ones, whose weights and activations stay zero, to whole vector registers.
    state : tuple
        Two arrays per weight for the optimizer.
    objective : tuple
        (kind of distance, weight, order, scale, beta).
    rule : tuple
        (optimizer, learning rate, momentum, decay).
    step : int
        Updates made so far.
    """
    sparse, dense, indptr, indices, values, pointers, column_rows, column_values, labels = data
    starts, sources = layout
    weight, bias, top, top_bias, active = network
    kind, strength, order, scale, beta = objective
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
        if kind != NO_DISTANCE and rows > source:
            distance = _distance(hidden, source, rows, active, kind, strength, order, scale, beta, delta)
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
        rates = _rates(rule, step)
        if sparse and rule[0] == ADAGRAD:
            _adagrad_sparse(pointers[b], column_rows, column_values, rows, delta, weight, state[0], rates[0])
        elif sparse:
            _step_sparse(
                pointers[b], column_rows, column_values, rows, delta, weight, state[0], state[1], rule[0], rates
            )
        else:
            _step_dense(dense, first, rows, delta, weight, state[0], state[1], rule[0], rates)
        _step(bias, bias_gradient, state[2], state[3], rule[0], rates)
        for k in range(classes):
            _step(top[k], top_gradient[k], state[4][k], state[5][k], rule[0], rates)
        _step(top_bias, top_bias_gradient, state[6], state[7], rule[0], rates)
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
def evaluate(data: Arguments, network: Arguments) -> tuple[float, float]:
    """Return mean cross-entropy and accuracy on rows (is_sparse, dense, indptr, indices, values, labels)."""
    sparse, dense, indptr, indices, values, labels = data
    weight, bias, top, top_bias, active = network
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
        while p + 4 <= end:
            x0, x1, x2, x3 = values[p], values[p + 1], values[p + 2], values[p + 3]
            w0, w1 = weight[indices[p]], weight[indices[p + 1]]
            w2, w3 = weight[indices[p + 2]], weight[indices[p + 3]]
            for u in range(units):
                out[u] += (x0 * w0[u] + x1 * w1[u]) + (x2 * w2[u] + x3 * w3[u])
            p += 4
        while p < end:
            x, w = values[p], weight[indices[p]]
            for u in range(units):
                out[u] += x * w[u]
            p += 1


@compiled
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


@compiled
def _sigmoid(hidden: Array, rows: int, active: int) -> None:
    units = hidden.shape[1]
    for i in range(rows):
        out = hidden[i]
        for u in range(units):
            out[u] = ONE / (ONE + _exponential(-out[u]))
        for u in range(active, units):
            out[u] = np.float32(0.0)


@reordered
def _dot(left: Array, right: Array) -> Any:
    total = np.float32(0.0)
    for u in range(left.shape[0]):
        total += left[u] * right[u]
    return total


@compiled
def _outputs(activation: Array, top: Array, top_bias: Array, outputs: Array) -> tuple[int, float]:
    """Fill what enters the softmax; return the best class and the logarithm of the sum of exponentials."""
    classes, best = top.shape[0], 0
    for k in range(classes):
        outputs[k] = _dot(activation, top[k]) + top_bias[k]
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


@compiled
def _distance(
    hidden: Array,
    source: int,
    rows: int,
    active: int,
    kind: int,
    strength: float,
    order: int,
    scale: float,
    beta: float,
    delta: Array,
) -> float:
    """Return the distance of source and target activations and write `strength` times its gradient to `delta`."""
    if kind == MMD:
        return _mean_embedding(hidden[:rows], source, beta, strength, delta)
    if kind == CORAL:
        delta[:rows] = np.float32(0.0)
        return _correlation(hidden, source, rows, active, strength, delta)
    units = hidden.shape[1]
    of_source, of_target = hidden[:source], hidden[source:rows]
    shifts, moments = np.empty((2, units), np.float32), np.empty((2, order + order % 2, units))
    sample_statistics(of_source, scale, order, shifts[0], moments[0])
    sample_statistics(of_target, scale, order, shifts[1], moments[1])
    directions, terms = np.empty((order, units)), np.empty(order + 1)
    discrepancy_terms(shifts, moments, scale, order, FLOAT32_EPSILON, directions, terms)
    weights = np.full(order, strength)
    if kind == CV_CMD:
        weights[1] = 0.0
    discrepancy_gradient(of_source, shifts[0], moments[0], directions, weights, scale, 1.0, order, delta[:source])
    discrepancy_gradient(of_target, shifts[1], moments[1], directions, weights, scale, -1.0, order, delta[source:rows])
    if kind == CV_CMD:
        terms[1] = _cross_variances(of_source, of_target, shifts, moments, scale, strength, delta)
    return float(terms[:order].sum())


@compiled
def _centre(sample: Array, shift: Array, moments: Array, scale: float) -> Array:
    """Return the sample about its mean, in units of `scale`."""
    centred = np.empty_like(sample)
    inverse = np.float32(1.0 / scale)
    for i in range(sample.shape[0]):
        for u in range(sample.shape[1]):
            centred[i, u] = (sample[i, u] - shift[u]) * inverse - np.float32(moments[0, u])
    return centred


@compiled
def _add_covariance(centred: Array, factor: float, matrix: Array) -> None:
    """Add factor * centred^T centred to a square float64 matrix."""
    rows, units = centred.shape
    block = np.empty((units, units), np.float32)
    for start in range(0, rows, 256):
        block[:] = np.float32(0.0)
        for i in range(start, min(start + 256, rows)):
            row = centred[i]
            for u in range(units):
                value, line = row[u], block[u]
                for v in range(units):
                    line[v] += value * row[v]
        for u in range(units):
            for v in range(units):
                matrix[u, v] += factor * block[u, v]


@compiled
def _add_product(centred: Array, matrix: Array, factor: float, delta: Array) -> None:
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
def _cross_variances(
    source: Array, target: Array, shifts: Array, moments: Array, scale: float, strength: float, delta: Array
) -> float:
    """Term of order 2 over all cross-variances, divided by sqrt(2) (Section 6.5); its gradient is added to `delta`."""
    rows, units = source.shape
    of_source = _centre(source, shifts[0], moments[0], scale)
    of_target = _centre(target, shifts[1], moments[1], scale)
    difference = np.zeros((units, units))
    _add_covariance(of_source, 1.0 / rows, difference)
    _add_covariance(of_target, -1.0 / target.shape[0], difference)
    squares, level = 0.0, 0.0
    for u in range(units):
        level += moments[0, 1, u] + moments[1, 1, u]
        for v in range(units):
            squares += difference[u, v] ** 2 * (1.0 if u == v else 0.5)
    norm = math.sqrt(squares)
    if norm <= 4.0 * ROUNDING_ERRORS * FLOAT32_EPSILON * level:  # Blocks of 256 rows are summed one after the other.
        return 0.0
    for u in range(units):
        for v in range(units):
            difference[u, v] *= (1.0 if u == v else 0.5) / norm
    factor = 2.0 * strength / (math.sqrt(2.0) * scale)
    _add_product(of_source, difference, factor / rows, delta[:rows])
    _add_product(of_target, difference, -factor / target.shape[0], delta[rows:])
    return norm / math.sqrt(2.0)


@compiled
def _correlation(hidden: Array, source: int, rows: int, active: int, strength: float, delta: Array) -> float:
    """Deep CORAL; `strength` times its gradient is added to `delta`."""
    units = hidden.shape[1]
    shift, moments = np.empty(units, np.float32), np.empty((2, units))
    sample_statistics(hidden[:source], 1.0, 1, shift, moments)
    of_source = _centre(hidden[:source], shift, moments, 1.0)
    sample_statistics(hidden[source:rows], 1.0, 1, shift, moments)
    of_target = _centre(hidden[source:rows], shift, moments, 1.0)
    source_rows, target_rows = max(source - 1, 1), max(rows - source - 1, 1)
    difference = np.zeros((units, units))
    _add_covariance(of_source, 1.0 / source_rows, difference)
    _add_covariance(of_target, -1.0 / target_rows, difference)
    factor = strength / active**2
    _add_product(of_source, difference, factor / source_rows, delta[:source])
    _add_product(of_target, difference, -factor / target_rows, delta[source:rows])
    return float((difference**2).sum() / (4.0 * active**2))


@compiled
def _mean_embedding(hidden: Array, source: int, beta: float, strength: float, delta: Array) -> float:
    """Biased Gaussian MMD; `strength` times its gradient is written to `delta`."""
    rows, units = hidden.shape
    target = rows - source
    signs = np.empty(rows, np.float32)
    squares = np.empty(rows, np.float32)
    for i in range(rows):
        signs[i] = 1.0 / source if i < source else -1.0 / target
        squares[i] = _dot(hidden[i], hidden[i])
    kernel = np.empty(rows, np.float32)
    negative = np.float32(-beta)
    value = 0.0
    for i in range(rows):
        own, out = hidden[i], delta[i]
        for j in range(rows):
            kernel[j] = max(squares[i] + squares[j] - np.float32(2.0) * _dot(own, hidden[j]), np.float32(0.0))
        total = 0.0
        for j in range(rows):
            kernel[j] = signs[j] * _exponential(negative * kernel[j])
        for j in range(rows):
            total += kernel[j]
        for u in range(units):
            out[u] = np.float32(total) * own[u]
        for j in range(rows):
            weight, other = kernel[j], hidden[j]
            for u in range(units):
                out[u] -= weight * other[u]
        factor = np.float32(-4.0 * beta * strength * signs[i])
        for u in range(units):
            out[u] *= factor
        value += signs[i] * total
    return value


@compiled
def _rates(rule: Arguments, step: int) -> Arguments:
    """Return (learning rate of this update, momentum, second bias correction of Adam)."""
    kind, rate, momentum, decay = rule
    if kind == ADAM:
        return np.float32(rate / (1.0 - BETA_1**step)), np.float32(0.0), np.float32(math.sqrt(1.0 - BETA_2**step))
    return np.float32(rate / (1.0 + decay * (step - 1))), np.float32(momentum), ONE


@compiled
def _step(values: Array, gradient: Array, first: Array, second: Array, kind: int, rates: Arguments) -> None:
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
def _step_sparse(
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
        _step(weight[j], gradient, first[j], second[j], kind, rates)


@compiled
def _adagrad_sparse(
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
def _step_dense(
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
        _step(weight[j], gradient[j], first[j], second[j], kind, rates)

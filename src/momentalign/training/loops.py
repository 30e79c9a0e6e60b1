r"""Compiled loops: one call, some epochs of one network with a sigmoid layer, gradients in closed form.

Section 7.5 of Zellinger et al. (2019) is the specification, its misprints corrected (the gradients with respect to
V, b and W take the hidden activations h_0, not h_1). Everything is float32 with sums that matter in float64; the
inner loops run over the hidden units, which are contiguous, so that they use vector instructions. No thread is
started and the interpreter lock is free, so that networks train side by side in threads.

What depends on the layout of the rows, on the distance or on the optimizer is a kernel: it is compiled by itself when
a fit needs it, and :func:`run_epochs` is given its address. So a fit compiles one layout, one distance and one rule.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import types

from momentalign.moments.loops import compiled
from momentalign.training.distance_loops import ONE, Compared, dot
from momentalign.training.kernels import MATRIX, VECTOR, kernel, named_tuple
from momentalign.training.target_loss import FEWEST

__all__ = [
    "RULES",
    "Batches",
    "DenseRows",
    "Kernels",
    "Network",
    "Rule",
    "Sharpened",
    "SparseRows",
    "Weights",
    "descend_adagrad_sparse",
    "descend_dense",
    "descend_sparse",
    "evaluate",
    "forward_dense",
    "forward_sparse",
    "no_sharpening",
    "nonzeros",
    "run_epochs",
    "sharpening",
    "target_shares",
]

Array: TypeAlias = Any  # a numpy array; the loops are compiled for float32 and whole numbers

RULES = {"adagrad": 0, "adadelta": 1, "sgd": 2, "adam": 3}
ADAGRAD, ADADELTA, SGD, ADAM = RULES.values()

EPSILON = np.float32(1e-8)
RHO = np.float32(0.95)
BETA_1, BETA_2 = 0.9, 0.999
TINY = 1e-30


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


class Batches(NamedTuple):
    """Where batches stand among the rows.

    Attributes
    ----------
    starts
        The first row of each batch, and the end.
    sources
        How many source rows each has.
    bounds
        The first row of each domain within each batch, and the end (batches, domains + 1).
    n_sources
        How many of the domains are sources.
    labels
        The class of each row, -1 for those of the target.
    """

    starts: Array
    sources: Array
    bounds: Array
    n_sources: int
    labels: Array


class Weights(NamedTuple):
    """The weights of a network, or an array for each of them: all in one, and the parts.

    Units are filled up with idle ones, whose weights and activations stay zero, to whole vector registers.
    """

    flat: Array
    bottom: Array
    bias: Array
    top: Array
    top_bias: Array
    classifier: Array
    classifier_bias: Array


class Network(NamedTuple):
    """One network: weights, room for their gradients, and two sums per weight for the optimizer."""

    weights: Weights
    gradient: Weights
    first: Weights
    second: Weights
    units: int
    used: int
    """How many of the weights are trained: without an adversarial distance not the domain classifier's."""


class Rule(NamedTuple):
    """How weights are updated, Eqs. (25) to (27): one of ``RULES`` and its numbers."""

    kind: int
    rate: float
    momentum: float
    decay: float


class Sharpened(NamedTuple):
    """What the loss on target predictions is computed from, and where its gradients go.

    Attributes
    ----------
    weight, shares
        The weight of the loss, and the class shares.
    hidden, delta
        Activations of target rows (rows, units), and their gradients.
    top, top_bias, top_gradient, top_bias_gradient
        The top layer of the network.
    """

    weight: float
    shares: Array
    hidden: Array
    delta: Array
    top: Array
    top_bias: Array
    top_gradient: Array
    top_bias_gradient: Array


class Kernels(NamedTuple):
    """Addresses of what a fit needs.

    Attributes
    ----------
    forward
        Fills activations with what enters the sigmoid.
    distance
        Returns a distance and writes its gradient, see :mod:`~momentalign.training.distance_loops`.
    descend
        Computes the gradient of the bottom weights, or updates them at once.
    sharpen
        Adds the gradient of the loss on target predictions.
    """

    forward: Any
    distance: Any
    descend: Any
    sharpen: Any


DENSE = named_tuple(DenseRows, types.Array(types.float32, 2, "C"))
SPARSE = named_tuple(
    SparseRows,
    types.Array(types.int64, 1, "C"),
    types.Array(types.int32, 1, "C"),
    VECTOR,
    types.Array(types.int64, 2, "C"),
    types.Array(types.int32, 1, "C"),
    VECTOR,
)
WEIGHTS = named_tuple(Weights, VECTOR, MATRIX, VECTOR, MATRIX, VECTOR, VECTOR, VECTOR)
NETWORK = named_tuple(Network, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS, types.int64, types.int64)
SHARES = types.Array(types.float64, 1, "C")
SHARPENED = named_tuple(Sharpened, types.float64, SHARES, MATRIX, MATRIX, MATRIX, VECTOR, MATRIX, VECTOR)
RULE = named_tuple(Rule, types.int64, types.float64, types.float64, types.float64)


@compiled
def run_epochs(
    rows: Any,
    batches: Batches,
    network: Network,
    objective: Any,
    compares: bool,
    sharpen: float,
    shares: Array,
    rule: Rule,
    kernels: Kernels,
    updates: int,
    figures: Array,
) -> int:
    """Train one network in place, an epoch per row of `figures` (epochs, 2), and return the updates made so far.

    Mean source losses and mean distances are written to `figures`. Without a distance, which `compares` says, and
    where nothing is sharpened the target rows have no part in an update.
    """
    weights, gradient, first, second, active, used = network
    count, units = batches.sources.shape[0], weights.bias.shape[0]
    longest = 0
    for b in range(count):
        longest = max(longest, batches.starts[b + 1] - batches.starts[b])
    all_hidden, all_delta = np.empty((longest, units), np.float32), np.empty((longest, units), np.float32)
    for epoch in range(figures.shape[0]):
        total_loss, total_distance = 0.0, 0.0
        for b in range(count):
            start, source = batches.starts[b], batches.sources[b]
            size = batches.starts[b + 1] - start if compares or sharpen > 0.0 else source
            hidden, delta = all_hidden[:size], all_delta[:size]
            kernels.forward(rows, start, weights.bottom, weights.bias, hidden)
            sigmoid(hidden, active)
            for i in range(gradient.bottom.size, used):
                gradient.flat[i] = 0.0
            if compares and size > source:
                compared = Compared(
                    hidden,
                    delta,
                    source,
                    active,
                    batches.bounds[b],
                    batches.n_sources,
                    weights.classifier,
                    weights.classifier_bias,
                    gradient.classifier,
                    gradient.classifier_bias,
                )
                total_distance += kernels.distance(objective, compared)
            else:
                delta[:] = np.float32(0.0)
            labels = batches.labels[start : start + source]
            total_loss += cross_entropy(
                hidden, labels, weights.top, weights.top_bias, delta, gradient.top, gradient.top_bias
            )
            if size > source:
                of_target = Sharpened(
                    sharpen,
                    shares,
                    hidden[source:],
                    delta[source:],
                    weights.top,
                    weights.top_bias,
                    gradient.top,
                    gradient.top_bias,
                )
                kernels.sharpen(of_target)
            through_sigmoid(hidden, delta, gradient.bias)
            updates += 1
            begin = kernels.descend(rows, b, start, delta, network, rule, updates)
            step(
                weights.flat[begin:used],
                gradient.flat[begin:used],
                first.flat[begin:used],
                second.flat[begin:used],
                rule,
                updates,
            )
        figures[epoch, 0], figures[epoch, 1] = total_loss / count, total_distance / count
    return updates


@compiled
def target_shares(rows: Any, batches: Batches, weights: Weights, active: int, forward: Any, shares: Array) -> None:
    """Fill `shares` with the mean probability of each class over the target rows of all batches."""
    outputs, total = np.empty(shares.shape[0], np.float32), 0
    shares[:] = 0.0
    for b in range(batches.sources.shape[0]):
        first, end = batches.starts[b] + batches.sources[b], batches.starts[b + 1]
        hidden = np.empty((end - first, weights.bias.shape[0]), np.float32)
        forward(rows, first, weights.bottom, weights.bias, hidden)
        sigmoid(hidden, active)
        for i in range(hidden.shape[0]):
            _, normalizer = _outputs(hidden[i], weights.top, weights.top_bias, outputs)
            for k in range(shares.shape[0]):
                shares[k] += math.exp(outputs[k] - normalizer)
        total += hidden.shape[0]
    for k in range(shares.shape[0]):
        shares[k] /= total


@compiled
def evaluate(rows: Any, labels: Array, weights: Weights, active: int, forward: Any) -> tuple[float, float]:
    """Return mean cross-entropy and accuracy on some rows."""
    count, chunk = labels.shape[0], 256
    all_hidden = np.empty((min(chunk, count), weights.bias.shape[0]), np.float32)
    outputs = np.empty(weights.top.shape[0], np.float32)
    loss, right = 0.0, 0
    for first in range(0, count, chunk):
        hidden = all_hidden[: min(chunk, count - first)]
        forward(rows, first, weights.bottom, weights.bias, hidden)
        sigmoid(hidden, active)
        for i in range(hidden.shape[0]):
            label = labels[first + i]
            best, normalizer = _outputs(hidden[i], weights.top, weights.top_bias, outputs)
            loss += normalizer - outputs[label]
            right += best == label
    return loss / count, right / count


@kernel(types.void(DENSE, types.int64, MATRIX, VECTOR, MATRIX))
def forward_dense(rows: DenseRows, first: int, weight: Array, bias: Array, hidden: Array) -> None:
    """Fill `hidden` with what enters the sigmoid, for the rows from `first` on, four inputs at a time."""
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


@kernel(types.void(SPARSE, types.int64, MATRIX, VECTOR, MATRIX))
def forward_sparse(rows: SparseRows, first: int, weight: Array, bias: Array, hidden: Array) -> None:
    """The same, eight entries at a time."""
    units, indices, values = weight.shape[1], rows.indices, rows.values
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


@compiled
def sigmoid(hidden: Array, active: int) -> None:
    """Turn `hidden` into activations; the units from `active` on only fill up vector registers and stay zero."""
    for i in range(hidden.shape[0]):
        out = hidden[i]
        for u in range(hidden.shape[1]):
            out[u] = 1.0 / (1.0 + _exponential(-np.float64(out[u])))
        for u in range(active, hidden.shape[1]):
            out[u] = np.float32(0.0)


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
def cross_entropy(
    hidden: Array,
    labels: Array,
    top: Array,
    top_bias: Array,
    delta: Array,
    top_gradient: Array,
    top_bias_gradient: Array,
) -> float:
    """Return the mean cross-entropy; add its gradients to `delta` (activations) and to those of the top layer."""
    classes, units = top.shape
    outputs, source = np.empty(classes, np.float32), labels.shape[0]
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
    return float(loss / source)


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


@kernel(types.void(SHARPENED))
def no_sharpening(part: Sharpened) -> None:
    """Stand in where nothing is sharpened."""


@kernel(types.void(SHARPENED))
def sharpening(part: Sharpened) -> None:
    """Add the gradients of :func:`~momentalign.training.target_loss.target_loss`, weighted."""
    rows, units, classes = part.hidden.shape[0], part.hidden.shape[1], part.top.shape[0]
    outputs, logarithms, mean = np.empty(classes, np.float32), np.empty((rows, classes)), np.zeros(classes)
    for i in range(rows):
        _, normalizer = _outputs(part.hidden[i], part.top, part.top_bias, outputs)
        for k in range(classes):
            logarithms[i, k] = outputs[k] - normalizer
            mean[k] += math.exp(logarithms[i, k]) / rows
    slopes = np.empty(classes)
    for k in range(classes):
        slopes[k] = math.log(max(mean[k], TINY)) - math.log(max(part.shares[k], FEWEST))
    for i in range(rows):
        entropy, slope = 0.0, 0.0
        for k in range(classes):
            probability = math.exp(logarithms[i, k])
            entropy -= probability * logarithms[i, k]
            slope += probability * slopes[k]
        activation, out = part.hidden[i], part.delta[i]
        for k in range(classes):
            change = slopes[k] - slope - logarithms[i, k] - entropy
            error = np.float32(part.weight / rows * math.exp(logarithms[i, k]) * change)
            part.top_bias_gradient[k] += error
            line, gradient = part.top[k], part.top_gradient[k]
            for u in range(units):
                out[u] += error * line[u]
                gradient[u] += error * activation[u]


@compiled
def through_sigmoid(hidden: Array, delta: Array, bias_gradient: Array) -> None:
    """Turn gradients for activations into those for what enters the sigmoid, and add up those of the bias."""
    units = hidden.shape[1]
    for i in range(hidden.shape[0]):
        activation, out = hidden[i], delta[i]
        for u in range(units):
            out[u] *= activation[u] * (ONE - activation[u])
            bias_gradient[u] += out[u]


DESCEND = (types.int64, types.int64, MATRIX, NETWORK, RULE, types.int64)


@kernel(types.int64(DENSE, *DESCEND))
def descend_dense(
    rows: DenseRows,
    batch: int,  # noqa: ARG001
    first: int,
    delta: Array,
    network: Network,
    rule: Rule,  # noqa: ARG001
    updates: int,  # noqa: ARG001
) -> int:
    """Fill in the gradient of the bottom weights, four rows at a time; all weights are then still to be updated."""
    values, size = rows.values, delta.shape[0]
    gradient = network.gradient.bottom
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
    rows: SparseRows,
    batch: int,
    first: int,  # noqa: ARG001
    delta: Array,
    network: Network,
    rule: Rule,
    updates: int,
) -> int:
    """Update each bottom weight with its gradient, from its column of the batch; no gradient is stored.

    The rows of a column are in order; those without activations have no part in the update. Returns where the weights
    that are still to be updated begin.
    """
    pointers, column_rows, values = rows.column_pointers[batch], rows.column_rows, rows.column_values
    size = delta.shape[0]
    weight, first_sums, second_sums = network.weights.bottom, network.first.bottom, network.second.bottom
    rate, momentum, correction = _rates(rule, updates)
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
        _step(weight[j], line, first_sums[j], second_sums[j], rule.kind, rate, momentum, correction)
    return int(weight.size)


@kernel(types.int64(SPARSE, *DESCEND))
def descend_adagrad_sparse(
    rows: SparseRows,
    batch: int,
    first: int,  # noqa: ARG001
    delta: Array,
    network: Network,
    rule: Rule,
    updates: int,
) -> int:
    """The same for Adagrad, which does not move without a gradient: inputs that are zero in the batch are skipped.

    The last four entries of a column, for most words all there are, go into the update without being stored.
    """
    pointers, column_rows, values = rows.column_pointers[batch], rows.column_rows, rows.column_values
    size = delta.shape[0]
    weight, first_sums = network.weights.bottom, network.first.bottom
    rate, _, _ = _rates(rule, updates)
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
        w, q = weight[j], first_sums[j]
        for u in range(units):
            g = line[u] + ((x0 * d0[u] + x1 * d1[u]) + (x2 * d2[u] + x3 * d3[u]))
            q[u] += g * g
            w[u] -= rate * g / (np.sqrt(q[u]) + EPSILON)
    return int(weight.size)


@compiled
def step(values: Array, gradient: Array, first: Array, second: Array, rule: Rule, update: int) -> None:
    """Update weights in place by their gradient; `first` and `second` are the sums that the rule keeps."""
    rate, momentum, correction = _rates(rule, update)
    _step(values, gradient, first, second, rule.kind, rate, momentum, correction)


@compiled
def _step(
    values: Array,
    gradient: Array,
    first: Array,
    second: Array,
    kind: int,
    rate: float,
    momentum: float,
    correction: float,
) -> None:
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
def _rates(rule: Rule, update: int) -> tuple[Any, Any, Any]:
    """Return the learning rate of this update, the momentum, and the second bias correction of Adam."""
    if rule.kind == ADAM:
        return np.float32(rule.rate / (1.0 - BETA_1**update)), ONE, np.float32(math.sqrt(1.0 - BETA_2**update))
    return np.float32(rule.rate / (1.0 + rule.decay * (update - 1))), np.float32(rule.momentum), ONE


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

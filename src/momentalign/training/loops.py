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
from typing import Any, NamedTuple

import numpy as np
from numba import types

from momentalign.moments.loops import compiled, inner
from momentalign.training.distance_loops import ONE, Compared, Objective, dot
from momentalign.training.kernels import FLOATS, INTEGERS, MATRIX, VECTOR, WIDE, Array, kernel, named_tuple
from momentalign.training.target_loss import FEWEST
from momentalign.training.update_loops import WEIGHTS, Network, Rule, Weights, rates

__all__ = [
    "BATCHES",
    "CODES",
    "Batches",
    "Kernels",
    "evaluate",
    "no_sharpening",
    "run_epochs",
    "sharpening",
    "target_shares",
]

TINY = 1e-30


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
    step
        Updates weights by their gradients.
    """

    forward: Any
    distance: Any
    descend: Any
    sharpen: Any
    step: Any


CODES = types.Array(types.int32, 1, "C")
BATCHES = named_tuple(Batches, INTEGERS, INTEGERS, types.Array(types.int64, 2, "C"), types.int64, CODES)


@compiled
def run_epochs(
    rows: Any,
    batches: Batches,
    network: Network,
    objective: Objective,
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
            kernels.forward(rows, start, weights, hidden)
            sigmoid(hidden, active)
            for i in range(gradient.bottom.size, used):
                gradient.flat[i] = 0.0
            if compares and size > source:
                classifier = weights.classifier, weights.classifier_bias, gradient.classifier, gradient.classifier_bias
                bounds = batches.bounds[b]
                compared = Compared(hidden, delta, source, active, bounds, batches.n_sources, *classifier)
                total_distance += kernels.distance(objective, compared)
            else:
                for i in range(size):
                    for u in range(units):
                        delta[i, u] = 0.0
            labels = batches.labels[start : start + source]
            total_loss += cross_entropy(hidden[:source], labels, delta, weights, gradient)
            if size > source:
                kernels.sharpen(sharpen, shares, hidden[source:], delta[source:], weights, gradient)
            through_sigmoid(hidden, delta, gradient.bias)
            updates += 1
            rate, other = rates(rule, updates)
            begin = kernels.descend(rows, b, start, delta, network, rule.kind, rate, other)
            kernels.step(
                weights.flat[begin:used],
                gradient.flat[begin:used],
                first.flat[begin:used],
                second.flat[begin:used],
                rate,
                other,
            )
        figures[epoch, 0], figures[epoch, 1] = total_loss / count, total_distance / count
    return updates


@compiled
def target_shares(rows: Any, batches: Batches, weights: Weights, active: int, forward: Any, shares: Array) -> None:
    """Fill `shares` with the mean probability of each class over the target rows of all batches."""
    total = 0
    for k in range(shares.shape[0]):
        shares[k] = 0.0
    for b in range(batches.sources.shape[0]):
        first, end = batches.starts[b] + batches.sources[b], batches.starts[b + 1]
        hidden = np.empty((end - first, weights.bias.shape[0]), np.float32)
        logarithms = np.empty((end - first, shares.shape[0]))
        forward(rows, first, weights, hidden)
        sigmoid(hidden, active)
        log_probabilities(hidden, weights, logarithms)
        for i in range(end - first):
            for k in range(shares.shape[0]):
                shares[k] += math.exp(logarithms[i, k])
        total += end - first
    for k in range(shares.shape[0]):
        shares[k] /= total


@compiled
def evaluate(rows: Any, labels: Array, weights: Weights, active: int, forward: Any) -> tuple[float, float]:
    """Return mean cross-entropy and accuracy on some rows."""
    count, classes = labels.shape[0], weights.top.shape[0]
    chunk = min(256, count)
    all_hidden, all_logarithms = np.empty((chunk, weights.bias.shape[0]), np.float32), np.empty((chunk, classes))
    loss, right = 0.0, 0
    for first in range(0, count, chunk):
        size = min(chunk, count - first)
        hidden, logarithms = all_hidden[:size], all_logarithms[:size]
        forward(rows, first, weights, hidden)
        sigmoid(hidden, active)
        log_probabilities(hidden, weights, logarithms)
        for i in range(size):
            best = 0
            for k in range(1, classes):
                if logarithms[i, k] > logarithms[i, best]:
                    best = k
            loss -= logarithms[i, labels[first + i]]
            right += best == labels[first + i]
    return loss / count, right / count


@kernel(types.void(MATRIX, types.int64))
def sigmoid(hidden: Array, active: int) -> None:
    """Turn `hidden` into activations; the units from `active` on only fill up vector registers and stay zero."""
    for i in range(hidden.shape[0]):
        out = hidden[i]
        for u in range(hidden.shape[1]):
            out[u] = 1.0 / (1.0 + _exponential(-np.float64(out[u])))
        for u in range(active, hidden.shape[1]):
            out[u] = np.float32(0.0)


@inner
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


@kernel(types.float64(MATRIX, CODES, MATRIX, WEIGHTS, WEIGHTS))
def cross_entropy(hidden: Array, labels: Array, delta: Array, weights: Weights, gradient: Weights) -> float:
    """Return the mean cross-entropy; add its gradients to `delta` (activations) and to those of the top layer."""
    rows, classes = hidden.shape[0], weights.top.shape[0]
    logarithms, errors = np.empty((rows, classes)), np.empty((rows, classes), np.float32)
    log_probabilities(hidden, weights, logarithms)
    loss = 0.0
    for i in range(rows):
        loss -= logarithms[i, labels[i]]
        for k in range(classes):
            errors[i, k] = (math.exp(logarithms[i, k]) - (k == labels[i])) / rows
    add_errors(errors, hidden, delta, weights, gradient)
    return float(loss / rows)


@kernel(types.void(MATRIX, MATRIX, MATRIX, WEIGHTS, WEIGHTS))
def add_errors(errors: Array, hidden: Array, delta: Array, weights: Weights, gradient: Weights) -> None:
    """Add what the slopes at the outputs (rows, classes) give to the gradients of activations and of the top layer."""
    for i in range(errors.shape[0]):
        activation, out = hidden[i], delta[i]
        for k in range(errors.shape[1]):
            error, line, slopes = errors[i, k], weights.top[k], gradient.top[k]
            gradient.top_bias[k] += error
            for u in range(activation.shape[0]):
                out[u] += error * line[u]
                slopes[u] += error * activation[u]


@kernel(types.void(MATRIX, WEIGHTS, WIDE))
def log_probabilities(hidden: Array, weights: Weights, logarithms: Array) -> None:
    """Fill the logarithms of the probabilities of each class (rows, classes)."""
    top, top_bias = weights.top, weights.top_bias
    classes = top.shape[0]
    for i in range(hidden.shape[0]):
        activation, out = hidden[i], logarithms[i]
        peak, total = -math.inf, 0.0
        for k in range(classes):
            output = dot(activation, top[k]) + top_bias[k]
            out[k] = output
            if output > peak:
                peak = output
        for k in range(classes):
            total += math.exp(out[k] - peak)
        normalizer = peak + math.log(total)
        for k in range(classes):
            out[k] -= normalizer


sharpen = kernel(types.void(types.float64, FLOATS, MATRIX, MATRIX, WEIGHTS, WEIGHTS))


@sharpen
def no_sharpening(
    _weight: float, _shares: Array, _hidden: Array, _delta: Array, _weights: Weights, _gradient: Weights
) -> None:
    """Stand in where nothing is sharpened."""


@sharpen
def sharpening(weight: float, shares: Array, hidden: Array, delta: Array, weights: Weights, gradient: Weights) -> None:
    """Add the gradients of :func:`~momentalign.training.target_loss.target_loss`, weighted.

    They go to those of the activations of target rows and to those of the top layer.
    """
    rows, classes = hidden.shape[0], weights.top.shape[0]
    logarithms, slopes = np.empty((rows, classes)), np.empty(classes)
    errors = np.empty((rows, classes), np.float32)
    log_probabilities(hidden, weights, logarithms)
    for k in range(classes):
        mean = 0.0
        for i in range(rows):
            mean += math.exp(logarithms[i, k]) / rows
        slopes[k] = math.log(max(mean, TINY)) - math.log(max(shares[k], FEWEST))
    for i in range(rows):
        entropy, slope = 0.0, 0.0
        for k in range(classes):
            probability = math.exp(logarithms[i, k])
            entropy -= probability * logarithms[i, k]
            slope += probability * slopes[k]
        for k in range(classes):
            change = slopes[k] - slope - logarithms[i, k] - entropy
            errors[i, k] = weight / rows * math.exp(logarithms[i, k]) * change
    add_errors(errors, hidden, delta, weights, gradient)


@kernel(types.void(MATRIX, MATRIX, VECTOR))
def through_sigmoid(hidden: Array, delta: Array, bias_gradient: Array) -> None:
    """Turn gradients for activations into those for what enters the sigmoid, and add up those of the bias."""
    units = hidden.shape[1]
    for i in range(hidden.shape[0]):
        activation, out = hidden[i], delta[i]
        for u in range(units):
            out[u] *= activation[u] * (ONE - activation[u])
            bias_gradient[u] += out[u]

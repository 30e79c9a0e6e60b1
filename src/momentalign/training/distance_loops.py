"""Distances between source and target activations, compiled, with gradients in closed form.

The CMD and the CV-CMD of Zellinger et al. (2019), Eq. (23) and Sections 6.5 and 7.5; Deep CORAL; and the domain
classifier. Each is a kernel, compiled by itself when a fit needs it. The MMD stands in ``mmd_loops``, the CMD of
several sources and several targets in ``domain_loops``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from momentalign.moments.centre import ROUNDING_ERRORS
from momentalign.moments.loops import (
    BLOCK,
    FEW,
    about_the_mean,
    discrepancy_terms,
    few_polynomials,
    few_power_sums,
    gradient_coefficients,
    many_polynomials,
    many_power_sums,
    reordered,
    rough_mean,
)
from momentalign.training.kernels import FLOATS, INTEGERS, MATRIX, VECTOR, WIDE, Array, Kernel, kernel, named_tuple

__all__ = [
    "Compared",
    "Objective",
    "cmd",
    "coral",
    "cv_cmd",
    "dann",
    "distance",
    "dot",
    "marginal_loops",
    "no_distance",
    "statistics",
    "terms_of",
    "write_gradient",
]

ONE, HALF = np.float32(1.0), np.float32(0.5)
FLOAT32_EPSILON = 2.0**-23


class Objective(NamedTuple):
    """The numbers of the distance that a network minimises.

    Attributes
    ----------
    weight
        The weight of the distance, by which its gradient is multiplied.
    order, scale, beta
        What the distance has for settings: moments, length of the interval, width of a Gaussian.
    between, weighting, numbers
        Where domains are several: what is compared (``BETWEEN``), how domains weigh (``WEIGHTINGS``), and one number
        per source where `weighting` says so.
    sums, polynomials
        Addresses of what adds powers and of what evaluates gradients, for so many moments: :func:`marginal_loops`.
    """

    weight: float
    order: int
    scale: float
    beta: float
    between: int
    weighting: int
    numbers: Array
    sums: Any
    polynomials: Any


class Compared(NamedTuple):
    """What a distance is computed from, and where its gradients go.

    Attributes
    ----------
    hidden, delta
        Activations (rows, units), source rows first, and their gradients.
    source, active
        How many source rows there are, and how many of the units are no filling.
    bounds, n_sources
        The first row of each domain and the end; how many of the domains are sources.
    classifier, classifier_bias, classifier_gradient, classifier_bias_gradient
        The domain classifier of the network.
    """

    hidden: Array
    delta: Array
    source: int
    active: int
    bounds: Array
    n_sources: int
    classifier: Array
    classifier_bias: Array
    classifier_gradient: Array
    classifier_bias_gradient: Array


SUMS = types.void(MATRIX, VECTOR, types.float32, WIDE)
POLYNOMIALS = types.void(MATRIX, VECTOR, VECTOR, types.float32, MATRIX, MATRIX)
SETTINGS = types.float64, types.int64, types.float64, types.float64, types.int64, types.int64, FLOATS
OBJECTIVE = named_tuple(Objective, *SETTINGS, types.FunctionType(SUMS), types.FunctionType(POLYNOMIALS))
ACTIVATIONS = MATRIX, MATRIX, types.int64, types.int64, INTEGERS, types.int64
COMPARED = named_tuple(Compared, *ACTIVATIONS, VECTOR, VECTOR, VECTOR, VECTOR)
STATISTICS = types.Array(types.float64, 3, "C")
distance = kernel(types.float64(OBJECTIVE, COMPARED))


@distance
def no_distance(objective: Objective, compared: Compared) -> float:  # noqa: ARG001
    """Stand in where nothing is compared."""
    return 0.0


few_sums, many_sums = kernel(SUMS)(few_power_sums), kernel(SUMS)(many_power_sums)
few_slopes, many_slopes = kernel(POLYNOMIALS)(few_polynomials), kernel(POLYNOMIALS)(many_polynomials)


def marginal_loops(order: int) -> tuple[Kernel, Kernel]:
    """Return what adds powers and what evaluates gradients of a CMD of so many moments."""
    return (few_sums, few_slopes) if order <= FEW else (many_sums, many_slopes)


@kernel(types.void(OBJECTIVE, MATRIX, VECTOR, WIDE))
def statistics(objective: Objective, sample: Array, shift: Array, moments: Array) -> None:
    """Fill what :func:`~momentalign.moments.loops.sample_statistics` does."""
    rough_mean(sample, shift)
    objective.sums(sample, shift, np.float32(1.0 / objective.scale), moments)
    about_the_mean(sample.shape[0], moments)


terms_of = kernel(types.void(MATRIX, STATISTICS, types.float64, types.int64, types.float64, WIDE, FLOATS))(
    discrepancy_terms
)


@kernel(types.void(OBJECTIVE, MATRIX, VECTOR, WIDE, WIDE, FLOATS, types.float64, MATRIX))
def write_gradient(
    objective: Objective,
    sample: Array,
    shift: Array,
    moments: Array,
    directions: Array,
    weights: Array,
    sign: float,
    gradient: Array,
) -> None:
    """Write what :func:`~momentalign.moments.loops.discrepancy_gradient` does."""
    rows, width = sample.shape
    order, scale = objective.order, objective.scale
    coefficients, middle = np.empty((max(order, FEW), width), np.float32), np.empty(width, np.float32)
    gradient_coefficients(moments, directions, weights, sign / (rows * scale), order, coefficients, middle)
    objective.polynomials(sample, shift, middle, np.float32(1.0 / scale), coefficients, gradient)


@kernel(types.float64(OBJECTIVE, COMPARED, types.int64, MATRIX, STATISTICS))
def marginal_terms(objective: Objective, compared: Compared, left_out: int, shifts: Array, moments: Array) -> float:
    """Fill the statistics, write the gradient of the CMD without one of its terms, and return its value."""
    hidden, delta, n, order = compared.hidden, compared.delta, compared.source, objective.order
    source, target = hidden[:n], hidden[n:]
    statistics(objective, source, shifts[0], moments[0])
    statistics(objective, target, shifts[1], moments[1])
    directions, terms, weights = np.empty((order, hidden.shape[1])), np.empty(order + 1), np.empty(order)
    terms_of(shifts, moments, objective.scale, order, FLOAT32_EPSILON, directions, terms)
    for j in range(order):
        weights[j] = objective.weight if j + 1 != left_out else 0.0
    write_gradient(objective, source, shifts[0], moments[0], directions, weights, 1.0, delta[:n])
    write_gradient(objective, target, shifts[1], moments[1], directions, weights, -1.0, delta[n:])
    return float(terms[order] - terms[left_out - 1] if left_out else terms[order])


@distance
def cmd(objective: Objective, compared: Compared) -> float:
    """The CMD, Eq. (23)."""
    order, units = objective.order, compared.hidden.shape[1]
    shifts, moments = np.empty((2, units), np.float32), np.empty((2, order + order % 2, units))
    return float(marginal_terms(objective, compared, 0, shifts, moments))


@distance
def cv_cmd(objective: Objective, compared: Compared) -> float:
    """The CMD with all cross-variances in its second term (Section 6.5)."""
    order, units = objective.order, compared.hidden.shape[1]
    shifts, moments = np.empty((2, units), np.float32), np.empty((2, order + order % 2, units))
    value = marginal_terms(objective, compared, 2, shifts, moments)
    return float(value + cross_variances(objective, compared, shifts, moments))


@kernel(types.float64(OBJECTIVE, COMPARED, MATRIX, STATISTICS))
def cross_variances(objective: Objective, compared: Compared, shifts: Array, moments: Array) -> float:
    """Return the term of order 2 over all cross-variances, divided by sqrt(2); add its weighted gradient."""
    n, scale = compared.source, objective.scale
    rows, units = compared.hidden.shape
    centred = np.empty((rows, units), np.float32)
    centre_rows(compared.hidden[:n], shifts[0], moments[0], scale, centred[:n])
    centre_rows(compared.hidden[n:], shifts[1], moments[1], scale, centred[n:])
    difference = np.zeros((units, units))
    add_covariance(centred[:n], 1.0 / n, difference)
    add_covariance(centred[n:], -1.0 / (rows - n), difference)
    squares, variance = 0.0, 0.0
    for u in range(units):
        variance += moments[0, 1, u] + moments[1, 1, u]
        for v in range(units):
            squares += difference[u, v] ** 2 * (1.0 if u == v else 0.5)
    norm = math.sqrt(squares)
    # Products add the rows of a block one after the other; their error grows with the root of the number of rows.
    growth = max(1.0, math.sqrt(min(max(n, rows - n), BLOCK)) / 4.0)
    if norm <= ROUNDING_ERRORS * FLOAT32_EPSILON * growth * variance:
        return 0.0
    for u in range(units):
        for v in range(units):
            difference[u, v] *= (1.0 if u == v else 0.5) / norm
    factor = 2.0 * objective.weight / (math.sqrt(2.0) * scale)
    add_product(centred[:n], difference, factor / n, compared.delta[:n])
    add_product(centred[n:], difference, -factor / (rows - n), compared.delta[n:])
    return norm / math.sqrt(2.0)


@kernel(types.void(MATRIX, VECTOR, WIDE, types.float64, MATRIX))
def centre_rows(sample: Array, shift: Array, moments: Array, scale: float, centred: Array) -> None:
    """Fill the sample about its mean, in units of `scale`."""
    inverse = np.float32(1.0 / scale)
    for i in range(sample.shape[0]):
        for u in range(sample.shape[1]):
            centred[i, u] = (sample[i, u] - shift[u]) * inverse - np.float32(moments[0, u])


@kernel(types.void(MATRIX, types.float64, WIDE))
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


@kernel(types.void(MATRIX, WIDE, types.float64, MATRIX))
def add_product(centred: Array, matrix: Array, factor: float, delta: Array) -> None:
    """Add factor * centred @ matrix (symmetric) to `delta`."""
    units = matrix.shape[0]
    narrow = np.empty((units, units), np.float32)
    for u in range(units):
        for v in range(units):
            narrow[u, v] = matrix[u, v] * factor
    for i in range(centred.shape[0]):
        row, out = centred[i], delta[i]
        for u in range(units):
            value, line = row[u], narrow[u]
            for v in range(units):
                out[v] += value * line[v]


@distance
def coral(objective: Objective, compared: Compared) -> float:
    """Deep CORAL."""
    hidden, delta, source, active = compared.hidden, compared.delta, compared.source, compared.active
    rows, units = hidden.shape
    delta[:] = np.float32(0.0)
    shift, moments, centred = np.empty(units, np.float32), np.empty((2, units)), np.empty((rows, units), np.float32)
    statistics(objective, hidden[:source], shift, moments)
    centre_rows(hidden[:source], shift, moments, 1.0, centred[:source])
    statistics(objective, hidden[source:], shift, moments)
    centre_rows(hidden[source:], shift, moments, 1.0, centred[source:])
    source_rows, target_rows = max(source - 1, 1), max(rows - source - 1, 1)
    difference = np.zeros((units, units))
    add_covariance(centred[:source], 1.0 / source_rows, difference)
    add_covariance(centred[source:], -1.0 / target_rows, difference)
    factor, value = objective.weight / active**2, 0.0
    add_product(centred[:source], difference, factor / source_rows, delta[:source])
    add_product(centred[source:], difference, -factor / target_rows, delta[source:])
    for u in range(units):
        for v in range(units):
            value += difference[u, v] * difference[u, v]
    return value / (4.0 * active**2)


@distance
def dann(objective: Objective, compared: Compared) -> float:
    """The loss of one domain classifier, which tells all sources from all targets.

    It goes the other way: its gradients are those of its own loss.
    """
    hidden, delta, source, strength = compared.hidden, compared.delta, compared.source, objective.weight
    weight, bias, gradient = compared.classifier, compared.classifier_bias, compared.classifier_gradient
    rows = hidden.shape[0]
    units = hidden.shape[1]
    gradient[:] = np.float32(0.0)
    value, total = 2.0 * math.log(2.0), 0.0
    for i in range(rows):
        activation, out = hidden[i], delta[i]
        logit = np.float64(dot(activation, weight)) + bias[0]
        probability = 1.0 / (1.0 + math.exp(-max(min(logit, 80.0), -80.0)))
        if i < source:
            error, logit = probability / source, -logit
        else:
            error = (probability - 1.0) / (rows - source)
        value -= (max(-logit, 0.0) + math.log1p(math.exp(-abs(logit)))) / (source if i < source else rows - source)
        error *= strength
        total += error
        narrow = np.float32(error)
        for u in range(units):
            out[u] = -narrow * weight[u]
            gradient[u] += narrow * activation[u]
    compared.classifier_bias_gradient[0] = total
    return value


@reordered
def dot(left: Array, right: Array) -> Any:
    """Return the inner product of two float32 vectors."""
    total = np.float32(0.0)
    for u in range(left.shape[0]):
        total += left[u] * right[u]
    return total

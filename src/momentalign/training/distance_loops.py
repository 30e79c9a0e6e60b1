"""Distances between source and target activations, compiled, with gradients in closed form.

The CMD and the CV-CMD of Zellinger et al. (2019), Eq. (23) and Sections 6.5 and 7.5; Deep CORAL; the Gaussian MMD;
the domain classifier; and the CMD of several sources and several targets. Each is a kernel, compiled by itself when a
fit needs it; those a training loop can be given stand in ``DISTANCES``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import types

from momentalign.discrepancies.several_domains import TEMPERATURE
from momentalign.moments.loops import (
    add_covariance,
    add_product,
    centred_rows,
    compiled,
    cross_variance_term,
    discrepancy_gradient,
    discrepancy_terms,
    reordered,
    sample_statistics,
)
from momentalign.training.kernels import MATRIX, VECTOR, kernel, named_tuple

__all__ = ["BETWEEN", "DISTANCES", "WEIGHTINGS", "Compared", "Objective", "dot", "marginal_terms"]

Array: TypeAlias = Any  # a numpy array; the loops are compiled for float32 and whole numbers

ONE, HALF = np.float32(1.0), np.float32(0.5)
FLOAT32_EPSILON = 2.0**-23

BETWEEN = {"pooled": 0, "pairs": 1, "barycentre": 2}
POOLED, PAIRS, BARYCENTRE = BETWEEN.values()
WEIGHTINGS = {"equal": 0, "size": 1, "similarity": 2, "numbers": 3}
EQUAL, SIZE, SIMILARITY, NUMBERS = WEIGHTINGS.values()


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
    """

    weight: float
    order: int
    scale: float
    beta: float
    between: int
    weighting: int
    numbers: Array


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


OBJECTIVE = named_tuple(
    Objective,
    types.float64,
    types.int64,
    types.float64,
    types.float64,
    types.int64,
    types.int64,
    types.Array(types.float64, 1, "C"),
)
COMPARED = named_tuple(
    Compared,
    MATRIX,
    MATRIX,
    types.int64,
    types.int64,
    types.Array(types.int64, 1, "C"),
    types.int64,
    VECTOR,
    VECTOR,
    VECTOR,
    VECTOR,
)


distance = kernel(types.float64(OBJECTIVE, COMPARED))


@distance
def no_distance(objective: Objective, compared: Compared) -> float:  # noqa: ARG001
    """Stand in where nothing is compared."""
    return 0.0


@distance
def cmd(objective: Objective, compared: Compared) -> float:
    """The CMD, Eq. (23)."""
    weights = np.full(objective.order, objective.weight)
    _, _, terms = marginal_terms(objective, compared, weights)
    return float(terms[objective.order])


@distance
def cv_cmd(objective: Objective, compared: Compared) -> float:
    """The CMD with all cross-variances in its second term (Section 6.5)."""
    order, scale = objective.order, objective.scale
    weights = np.full(order, objective.weight)
    weights[1] = 0.0
    shifts, moments, terms = marginal_terms(objective, compared, weights)
    source, target = compared.hidden[: compared.source], compared.hidden[compared.source :]
    terms[1] = cross_variance_term(
        source, target, shifts, moments, scale, FLOAT32_EPSILON, objective.weight, compared.delta
    )
    return float(terms[:order].sum())


@compiled
def marginal_terms(objective: Objective, compared: Compared, weights: Array) -> tuple[Array, Array, Array]:
    """Return shifts, moments and the terms of the CMD, their sum last; write the gradient of the weighted terms."""
    hidden, delta, n = compared.hidden, compared.delta, compared.source
    order, scale, units = objective.order, objective.scale, compared.hidden.shape[1]
    shifts, moments = np.empty((2, units), np.float32), np.empty((2, order + order % 2, units))
    sample_statistics(hidden[:n], scale, order, shifts[0], moments[0])
    sample_statistics(hidden[n:], scale, order, shifts[1], moments[1])
    directions, terms = np.empty((order, units)), np.empty(order + 1)
    discrepancy_terms(shifts, moments, scale, order, FLOAT32_EPSILON, directions, terms)
    discrepancy_gradient(hidden[:n], shifts[0], moments[0], directions, weights, scale, 1.0, order, delta[:n])
    discrepancy_gradient(hidden[n:], shifts[1], moments[1], directions, weights, scale, -1.0, order, delta[n:])
    return shifts, moments, terms


@distance
def coral(objective: Objective, compared: Compared) -> float:
    """Deep CORAL."""
    hidden, delta, source, active = compared.hidden, compared.delta, compared.source, compared.active
    rows = hidden.shape[0]
    delta[:] = np.float32(0.0)
    units = hidden.shape[1]
    shift, moments = np.empty(units, np.float32), np.empty((2, units))
    sample_statistics(hidden[:source], 1.0, 1, shift, moments)
    of_source = centred_rows(hidden[:source], shift, moments, 1.0)
    sample_statistics(hidden[source:], 1.0, 1, shift, moments)
    of_target = centred_rows(hidden[source:], shift, moments, 1.0)
    source_rows, target_rows = max(source - 1, 1), max(rows - source - 1, 1)
    difference = np.zeros((units, units))
    add_covariance(of_source, 1.0 / source_rows, difference)
    add_covariance(of_target, -1.0 / target_rows, difference)
    factor = objective.weight / active**2
    add_product(of_source, difference, factor / source_rows, delta[:source])
    add_product(of_target, difference, -factor / target_rows, delta[source:])
    return float((difference**2).sum() / (4.0 * active**2))


@distance
def mmd(objective: Objective, compared: Compared) -> float:
    """The biased Gaussian MMD."""
    hidden, delta, source, active = compared.hidden, compared.delta, compared.source, compared.active
    beta, strength = objective.beta, objective.weight
    rows, units = hidden.shape
    kernel = _gaussians(hidden, active, beta)
    weighted, totals = np.zeros((units, rows), np.float32), np.zeros(rows)
    signs = np.empty(rows, np.float32)
    for i in range(rows):
        signs[i] = 1.0 / source if i < source else -1.0 / (rows - source)
        line = kernel[i]
        for j in range(rows):
            totals[j] += signs[i] * line[j]
    for first in range(0, rows, 8):
        _add_eight(kernel, hidden, signs, first, active, weighted)
    value = 0.0
    for i in range(rows):
        value += signs[i] * totals[i]
        factor = -4.0 * beta * strength * signs[i]
        for u in range(units):
            delta[i, u] = np.float32(factor) * (np.float32(totals[i]) * hidden[i, u] - weighted[u, i])
    return value


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


@distance
def cmd_of_domains(objective: Objective, compared: Compared) -> float:
    """The CMD of several domains, :func:`~momentalign.discrepancies.several_domains.multi_domain_cmd`.

    The moments of each domain are computed once; each pair adds its directions to those of both domains, and each
    domain's gradient is one polynomial, whatever the number of its partners.
    """
    hidden, delta, bounds, sources = compared.hidden, compared.delta, compared.bounds, compared.n_sources
    strength, order, scale, _, between, weighting, numbers = objective
    domains, units = sources + 1 if between == POOLED else bounds.shape[0] - 1, hidden.shape[1]
    bounds = _ends(bounds, domains)
    shifts, moments = np.empty((domains + 1, units), np.float32), np.empty((domains + 1, order + order % 2, units))
    for d in range(domains):
        sample_statistics(hidden[bounds[d] : bounds[d + 1]], scale, order, shifts[d], moments[d])
    weights = _domain_weights(bounds, sources, weighting, numbers, shifts, moments, scale, order)
    directions = np.zeros((domains, order, units))
    if between == POOLED:
        value = _to_target(weights[:sources], shifts, moments, scale, order, directions)
    elif between == PAIRS:
        value = _all_pairs(weights, shifts, moments, scale, order, directions)
    else:
        value = _to_barycentre(weights, shifts, moments, scale, order, directions)
    factors = np.full(order, strength)
    for d in range(domains):
        first, end = bounds[d], bounds[d + 1]
        sample, out = hidden[first:end], delta[first:end]
        discrepancy_gradient(sample, shifts[d], moments[d], directions[d], factors, scale, 1.0, order, out)
    return value


@compiled
def _gaussians(hidden: Array, active: int, beta: float) -> Array:
    """Return exp(-beta |x - y|^2) of all pairs of rows: the upper half computed along rows, the lower one mirrored."""
    rows, units = hidden.shape
    flipped = np.empty((units, rows), np.float32)
    squares = np.empty(rows, np.float32)
    for i in range(rows):
        squares[i] = dot(hidden[i], hidden[i])
        for u in range(units):
            flipped[u, i] = hidden[i, u]
    kernel = np.empty((rows, rows), np.float32)
    negative, two, zero = np.float32(-beta), np.float32(-2.0), np.float32(0.0)
    for i in range(rows):
        line, own, others = kernel[i, i:], hidden[i], squares[i:]
        for j in range(rows - i):
            line[j] = squares[i] + others[j]
        for u in range(0, active, 8):  # Units are filled up to more than eight, with zeros.
            a0, a1, a2, a3 = two * own[u], two * own[u + 1], two * own[u + 2], two * own[u + 3]
            a4, a5, a6, a7 = two * own[u + 4], two * own[u + 5], two * own[u + 6], two * own[u + 7]
            t0, t1, t2, t3 = flipped[u, i:], flipped[u + 1, i:], flipped[u + 2, i:], flipped[u + 3, i:]
            t4, t5, t6, t7 = flipped[u + 4, i:], flipped[u + 5, i:], flipped[u + 6, i:], flipped[u + 7, i:]
            for j in range(rows - i):
                left = (a0 * t0[j] + a1 * t1[j]) + (a2 * t2[j] + a3 * t3[j])
                line[j] += left + ((a4 * t4[j] + a5 * t5[j]) + (a6 * t6[j] + a7 * t7[j]))
        for j in range(rows - i):
            line[j] = _exponential(negative * max(line[j], zero))
        for j in range(i):
            kernel[i, j] = kernel[j, i]
    return kernel


@compiled
def _add_eight(kernel: Array, hidden: Array, signs: Array, first: int, active: int, weighted: Array) -> None:
    """Add the products of up to eight rows of the kernel with their signed activations, unit by unit."""
    rows = kernel.shape[0]
    last = rows - 1
    i1, i2, i3, i4 = min(first + 1, last), min(first + 2, last), min(first + 3, last), min(first + 4, last)
    i5, i6, i7 = min(first + 5, last), min(first + 6, last), min(first + 7, last)
    factors = np.zeros(8, np.float32)  # Missing rows weigh nothing.
    for i in range(min(8, rows - first)):
        factors[i] = signs[first + i]
    k0, k1, k2, k3 = kernel[first], kernel[i1], kernel[i2], kernel[i3]
    k4, k5, k6, k7 = kernel[i4], kernel[i5], kernel[i6], kernel[i7]
    for u in range(active):
        out = weighted[u]
        a0, a1 = factors[0] * hidden[first, u], factors[1] * hidden[i1, u]
        a2, a3 = factors[2] * hidden[i2, u], factors[3] * hidden[i3, u]
        a4, a5 = factors[4] * hidden[i4, u], factors[5] * hidden[i5, u]
        a6, a7 = factors[6] * hidden[i6, u], factors[7] * hidden[i7, u]
        for j in range(rows):
            left = (a0 * k0[j] + a1 * k1[j]) + (a2 * k2[j] + a3 * k3[j])
            out[j] += left + ((a4 * k4[j] + a5 * k5[j]) + (a6 * k6[j] + a7 * k7[j]))


@compiled
def _ends(bounds: Array, domains: int) -> Array:
    """The bounds of so many domains, the last one up to the end."""
    ends = np.empty(domains + 1, np.int64)
    for d in range(domains):
        ends[d] = bounds[d]
    ends[domains] = bounds[bounds.shape[0] - 1]
    return ends


@compiled
def _add_times(out: Array, factor: float, values: Array) -> None:
    """Add a multiple of one matrix to another; plain loops compile in a tenth of the time of array expressions."""
    for i in range(out.shape[0]):
        for f in range(out.shape[1]):
            out[i, f] += factor * values[i, f]


@compiled
def _shares(weights: Array) -> Array:
    """Weights that sum to 1."""
    total = 0.0
    for weight in weights:
        total += weight
    shares = np.empty(weights.shape[0])
    for d in range(weights.shape[0]):
        shares[d] = weights[d] / total
    return shares


@compiled
def _of_different(shares: Array) -> float:
    """Twice the sum over pairs of products of shares."""
    whole = 1.0
    for share in shares:
        whole -= share * share
    return whole


@compiled
def _compare(
    shifts: Array, moments: Array, d: int, e: int, scale: float, order: int, between: Array, terms: Array
) -> float:
    """Return the CMD of two domains and fill the directions of its terms."""
    pair, statistics = np.empty((2, shifts.shape[1]), np.float32), np.empty((2, moments.shape[1], moments.shape[2]))
    for f in range(shifts.shape[1]):
        pair[0, f], pair[1, f] = shifts[d, f], shifts[e, f]
        for j in range(moments.shape[1]):
            statistics[0, j, f], statistics[1, j, f] = moments[d, j, f], moments[e, j, f]
    discrepancy_terms(pair, statistics, scale, order, FLOAT32_EPSILON, between, terms)
    return float(terms[order])


@compiled
def _domain_weights(
    bounds: Array,
    sources: int,
    weighting: int,
    numbers: Array,
    shifts: Array,
    moments: Array,
    scale: float,
    order: int,
) -> Array:
    domains = bounds.shape[0] - 1
    weights = np.ones(domains)
    if weighting == SIZE:
        for d in range(domains):
            weights[d] = bounds[d + 1] - bounds[d]
    elif weighting == NUMBERS:
        shares = _shares(numbers)
        for s in range(sources):
            weights[s] = sources * shares[s]
    elif weighting == SIMILARITY:
        _fill_nearness(weights, sources, shifts, moments, scale, order)
    return weights


@compiled
def _fill_nearness(weights: Array, sources: int, shifts: Array, moments: Array, scale: float, order: int) -> None:
    """Weights of the sources that fall with their mean distance to the targets."""
    domains = weights.shape[0]
    between, terms = np.empty((order, shifts.shape[1])), np.empty(order + 1)
    far = np.zeros(sources)
    mean, nearest = 0.0, np.inf
    for s in range(sources):
        for t in range(sources, domains):
            far[s] += _compare(shifts, moments, s, t, scale, order, between, terms) / (domains - sources)
        mean += far[s] / sources
        nearest = min(nearest, far[s])
    total = 0.0
    for s in range(sources):
        weights[s] = np.exp((nearest - far[s]) / (TEMPERATURE * (mean if mean > 0.0 else 1.0)))
        total += weights[s]
    for s in range(sources):
        weights[s] *= sources / total


@compiled
def _to_target(weights: Array, shifts: Array, moments: Array, scale: float, order: int, directions: Array) -> float:
    """Each source to the target, which stands after them."""
    target = weights.shape[0]
    between, terms = np.empty((order, shifts.shape[1])), np.empty(order + 1)
    value, shares = 0.0, _shares(weights)
    for s in range(target):
        value += shares[s] * _compare(shifts, moments, s, target, scale, order, between, terms)
        _add_times(directions[s], shares[s], between)
        _add_times(directions[target], -shares[s], between)
    return value


@compiled
def _all_pairs(weights: Array, shifts: Array, moments: Array, scale: float, order: int, directions: Array) -> float:
    domains = weights.shape[0]
    between, terms = np.empty((order, shifts.shape[1])), np.empty(order + 1)
    shares = _shares(weights)
    whole = _of_different(shares)
    value = 0.0
    for d in range(domains):
        for e in range(d + 1, domains):
            factor = 2.0 * shares[d] * shares[e] / whole
            value += factor * _compare(shifts, moments, d, e, scale, order, between, terms)
            _add_times(directions[d], factor, between)
            _add_times(directions[e], -factor, between)
    return value


@compiled
def _to_barycentre(weights: Array, shifts: Array, moments: Array, scale: float, order: int, directions: Array) -> float:
    """Every domain to the mean of their moments, which is put after them as one more domain."""
    domains = weights.shape[0]
    between, terms = np.empty((order, shifts.shape[1])), np.empty(order + 1)
    shares = _shares(weights)
    _fill_barycentre(shares, shifts, moments, scale)
    whole = _of_different(shares)
    value = 0.0
    pull = np.zeros((order, shifts.shape[1]))
    for d in range(domains):
        factor = shares[d] / whole
        value += factor * _compare(shifts, moments, d, domains, scale, order, between, terms)
        _add_times(directions[d], factor, between)
        _add_times(pull, factor, between)
    for d in range(domains):  # The barycentre moves with every domain.
        _add_times(directions[d], -shares[d], pull)
    return value


@compiled
def _fill_barycentre(shares: Array, shifts: Array, moments: Array, scale: float) -> None:
    domains, units = shares.shape[0], shifts.shape[1]
    for j in range(moments.shape[1]):
        for f in range(units):
            moments[domains, j, f] = 0.0
    for f in range(units):
        middle = 0.0
        for d in range(domains):
            middle += shares[d] * shifts[d, f]
        shifts[domains, f] = middle
        for d in range(domains):
            moments[domains, 0, f] += shares[d] * (np.float64(shifts[d, f]) - np.float64(shifts[domains, f])) / scale
    for d in range(domains):
        _add_times(moments[domains], shares[d], moments[d])


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


@reordered
def dot(left: Array, right: Array) -> Any:
    """Return the inner product of two float32 vectors."""
    total = np.float32(0.0)
    for u in range(left.shape[0]):
        total += left[u] * right[u]
    return total


DISTANCES = {
    None: no_distance,
    "cmd": cmd,
    "cv-cmd": cv_cmd,
    "coral": coral,
    "mmd": mmd,
    "dann": dann,
    "cmd of several domains": cmd_of_domains,
}
"""The kernels by the kinds of :class:`~momentalign.discrepancies.base.Compiled`.

Each returns the distance of activations and writes its weight times its gradient to ``compared.delta``.
"""

"""The CMD of several sources and several targets, compiled, with its gradient in closed form."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from momentalign.discrepancies.several_domains import TEMPERATURE
from momentalign.moments.loops import inner
from momentalign.training.distance_loops import (
    FLOAT32_EPSILON,
    Compared,
    Objective,
    distance,
    statistics,
    terms_of,
    write_gradient,
)

__all__ = ["BETWEEN", "WEIGHTINGS", "cmd_of_domains"]

Array: TypeAlias = Any  # a numpy array; the loops are compiled for float32 and whole numbers

BETWEEN = {"pooled": 0, "pairs": 1, "barycentre": 2}
POOLED, PAIRS, BARYCENTRE = BETWEEN.values()
WEIGHTINGS = {"equal": 0, "size": 1, "similarity": 2, "numbers": 3}
EQUAL, SIZE, SIMILARITY, NUMBERS = WEIGHTINGS.values()


@distance
def cmd_of_domains(objective: Objective, compared: Compared) -> float:
    """The CMD of several domains, :func:`~momentalign.discrepancies.several_domains.multi_domain_cmd`.

    The moments of each domain are computed once; each pair adds its directions to those of both domains, and each
    domain's gradient is one polynomial, whatever the number of its partners.
    """
    hidden, delta, bounds, sources = compared.hidden, compared.delta, compared.bounds, compared.n_sources
    strength, order, scale = objective.weight, objective.order, objective.scale
    between, weighting, numbers = objective.between, objective.weighting, objective.numbers
    domains, units = sources + 1 if between == POOLED else bounds.shape[0] - 1, hidden.shape[1]
    bounds = _ends(bounds, domains)
    shifts, moments = np.empty((domains + 1, units), np.float32), np.empty((domains + 1, order + order % 2, units))
    for d in range(domains):
        statistics(objective, hidden[bounds[d] : bounds[d + 1]], shifts[d], moments[d])
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
        write_gradient(objective, sample, shifts[d], moments[d], directions[d], factors, 1.0, out)
    return value


@inner
def _ends(bounds: Array, domains: int) -> Array:
    """The bounds of so many domains, the last one up to the end."""
    ends = np.empty(domains + 1, np.int64)
    for d in range(domains):
        ends[d] = bounds[d]
    ends[domains] = bounds[bounds.shape[0] - 1]
    return ends


@inner
def _add_times(out: Array, factor: float, values: Array) -> None:
    """Add a multiple of one matrix to another; plain loops compile in a tenth of the time of array expressions."""
    for i in range(out.shape[0]):
        for f in range(out.shape[1]):
            out[i, f] += factor * values[i, f]


@inner
def _shares(weights: Array) -> Array:
    """Weights that sum to 1."""
    total = 0.0
    for weight in weights:
        total += weight
    shares = np.empty(weights.shape[0])
    for d in range(weights.shape[0]):
        shares[d] = weights[d] / total
    return shares


@inner
def _of_different(shares: Array) -> float:
    """Twice the sum over pairs of products of shares."""
    whole = 1.0
    for share in shares:
        whole -= share * share
    return whole


@inner
def _compare(
    shifts: Array, moments: Array, d: int, e: int, scale: float, order: int, between: Array, terms: Array
) -> float:
    """Return the CMD of two domains and fill the directions of its terms."""
    pair, both = np.empty((2, shifts.shape[1]), np.float32), np.empty((2, moments.shape[1], moments.shape[2]))
    for f in range(shifts.shape[1]):
        pair[0, f], pair[1, f] = shifts[d, f], shifts[e, f]
        for j in range(moments.shape[1]):
            both[0, j, f], both[1, j, f] = moments[d, j, f], moments[e, j, f]
    terms_of(pair, both, scale, order, FLOAT32_EPSILON, between, terms)
    return float(terms[order])


@inner
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


@inner
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


@inner
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


@inner
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


@inner
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


@inner
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

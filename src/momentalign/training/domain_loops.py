"""The CMD of several sources and several targets, compiled, with its gradient in closed form."""

from __future__ import annotations

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
from momentalign.training.kernels import Array

__all__ = ["BETWEEN", "WEIGHTINGS", "cmd_of_domains"]

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
    order, scale, between = objective.order, objective.scale, objective.between
    domains, units = sources + 1 if between == POOLED else bounds.shape[0] - 1, hidden.shape[1]
    bounds = _ends(bounds, domains)
    # The barycentre stands after the domains.
    shifts, moments = np.empty((domains + 1, units), np.float32), np.empty((domains + 1, order + order % 2, units))
    for d in range(domains):
        statistics(objective, hidden[bounds[d] : bounds[d + 1]], shifts[d], moments[d])
    weights = _domain_weights(bounds, sources, objective, shifts, moments)
    shares = _shares(weights[: sources if between == POOLED else domains])
    if between == BARYCENTRE:
        _fill_barycentre(shares, shifts, moments, scale)
    factors = _pair_factors(between, shares)
    directions = np.zeros((domains + 1, order, units))
    value, own, terms = 0.0, np.empty((order, units)), np.empty(order + 1)
    for d in range(shares.shape[0]):
        for e in range(d + 1, factors.shape[0]):
            if factors[d, e] != 0.0:
                value += factors[d, e] * _compare(shifts, moments, d, e, scale, order, own, terms)
                _add_times(directions[d], factors[d, e], own)
                _add_times(directions[e], -factors[d, e], own)
    slopes = np.full(order, objective.weight)
    for d in range(domains):
        first, end = bounds[d], bounds[d + 1]
        if between == BARYCENTRE:  # It moves with every domain.
            _add_times(directions[d], shares[d], directions[domains])
        write_gradient(
            objective, hidden[first:end], shifts[d], moments[d], directions[d], slopes, 1.0, delta[first:end]
        )
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
def _pair_factors(between: int, shares: Array) -> Array:
    """How much the distance of each pair counts: of a source and the target, two domains, or one and the barycentre."""
    count = shares.shape[0]
    factors, whole = np.zeros((count + 1, count + 1)), 1.0
    for share in shares:
        whole -= share * share
    for d in range(count):
        if between == PAIRS:
            for e in range(d + 1, count):
                factors[d, e] = 2.0 * shares[d] * shares[e] / whole
        else:
            factors[d, count] = shares[d] if between == POOLED else shares[d] / whole
    return factors


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
def _domain_weights(bounds: Array, sources: int, objective: Objective, shifts: Array, moments: Array) -> Array:
    weighting = objective.weighting
    domains = bounds.shape[0] - 1
    weights = np.ones(domains)
    if weighting == SIZE:
        for d in range(domains):
            weights[d] = bounds[d + 1] - bounds[d]
    elif weighting == NUMBERS:
        shares = _shares(objective.numbers)
        for s in range(sources):
            weights[s] = sources * shares[s]
    elif weighting == SIMILARITY:
        _fill_nearness(weights, sources, shifts, moments, objective.scale, objective.order)
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

"""Compiled loops: the CMD of several source and several target domains, and its gradient in closed form.

The formulas are those of :func:`~momentalign.discrepancies.several_domains.multi_domain_cmd`. The rows of a batch stand
domain by domain. The moments of each domain are computed once; each pair adds its directions to those of both domains,
and each domain's gradient is one polynomial, whatever the number of its partners.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from momentalign.discrepancies.domain_pairs import TEMPERATURE
from momentalign.discrepancies.fused.kernels import (
    compiled,
    discrepancy_gradient,
    discrepancy_terms,
    sample_statistics,
)
from momentalign.training.distance_loops import FLOAT32_EPSILON

__all__ = ["BARYCENTRE", "EQUAL", "NUMBERS", "PAIRS", "POOLED", "SIMILARITY", "SIZE", "add_domains"]

Array: TypeAlias = Any  # a numpy array; the loops are compiled for float32 and whole numbers

POOLED, PAIRS, BARYCENTRE = 0, 1, 2
EQUAL, SIZE, SIMILARITY, NUMBERS = 0, 1, 2, 3


@compiled
def add_domains(
    hidden: Array,
    bounds: Array,
    sources: int,
    between: int,
    weighting: int,
    numbers: Array,
    strength: float,
    order: int,
    scale: float,
    delta: Array,
) -> float:
    """Return the distance of several domains and write `strength` times its gradient to `delta`.

    `bounds` (domains + 1,) are the first rows of the domains and the end, the first `sources` of them sources;
    `numbers` (sources,) their weights where `weighting` says so.
    """
    if between == POOLED:
        bounds = np.append(bounds[: sources + 1], bounds[-1])
    domains, units = bounds.shape[0] - 1, hidden.shape[1]
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
def _compare(
    shifts: Array, moments: Array, d: int, e: int, scale: float, order: int, between: Array, terms: Array
) -> float:
    """Return the CMD of two domains and fill the directions of its terms."""
    pair, statistics = np.empty((2, shifts.shape[1]), np.float32), np.empty((2, moments.shape[1], moments.shape[2]))
    pair[0], pair[1] = shifts[d], shifts[e]
    statistics[0], statistics[1] = moments[d], moments[e]
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
        weights[:sources] = numbers / numbers.mean()
    elif weighting == SIMILARITY:
        weights[:sources] = _nearness(domains, sources, shifts, moments, scale, order)
    return weights


@compiled
def _nearness(domains: int, sources: int, shifts: Array, moments: Array, scale: float, order: int) -> Array:
    """Weights of the sources that fall with their mean distance to the targets."""
    between, terms = np.empty((order, shifts.shape[1])), np.empty(order + 1)
    far = np.zeros(sources)
    for s in range(sources):
        for t in range(sources, domains):
            far[s] += _compare(shifts, moments, s, t, scale, order, between, terms) / (domains - sources)
    mean = far.mean()
    near = np.exp((far.min() - far) / (TEMPERATURE * (mean if mean > 0.0 else 1.0)))
    return sources * near / near.sum()


@compiled
def _to_target(weights: Array, shifts: Array, moments: Array, scale: float, order: int, directions: Array) -> float:
    """Each source to the target, which stands after them."""
    target = weights.shape[0]
    between, terms = np.empty((order, shifts.shape[1])), np.empty(order + 1)
    value, total = 0.0, weights.sum()
    for s in range(target):
        share = weights[s] / total
        value += share * _compare(shifts, moments, s, target, scale, order, between, terms)
        directions[s] += share * between
        directions[target] -= share * between
    return value


@compiled
def _all_pairs(weights: Array, shifts: Array, moments: Array, scale: float, order: int, directions: Array) -> float:
    domains = weights.shape[0]
    between, terms = np.empty((order, shifts.shape[1])), np.empty(order + 1)
    shares = weights / weights.sum()
    # Twice the sum over pairs of products of shares.
    whole = 1.0 - (shares**2).sum()
    value = 0.0
    for d in range(domains):
        for e in range(d + 1, domains):
            factor = 2.0 * shares[d] * shares[e] / whole
            value += factor * _compare(shifts, moments, d, e, scale, order, between, terms)
            directions[d] += factor * between
            directions[e] -= factor * between
    return value


@compiled
def _to_barycentre(weights: Array, shifts: Array, moments: Array, scale: float, order: int, directions: Array) -> float:
    """Every domain to the mean of their moments, which is put after them as one more domain."""
    domains = weights.shape[0]
    between, terms = np.empty((order, shifts.shape[1])), np.empty(order + 1)
    shares = weights / weights.sum()
    _fill_barycentre(shares, shifts, moments, scale)
    whole = 1.0 - (shares**2).sum()
    value = 0.0
    pull = np.zeros_like(between)
    for d in range(domains):
        factor = shares[d] / whole
        value += factor * _compare(shifts, moments, d, domains, scale, order, between, terms)
        directions[d] += factor * between
        pull += factor * between
    for d in range(domains):  # The barycentre moves with every domain.
        directions[d] -= shares[d] * pull
    return value


@compiled
def _fill_barycentre(shares: Array, shifts: Array, moments: Array, scale: float) -> None:
    domains, units = shares.shape[0], shifts.shape[1]
    moments[domains] = 0.0
    for f in range(units):
        middle = 0.0
        for d in range(domains):
            middle += shares[d] * shifts[d, f]
        shifts[domains, f] = middle
        for d in range(domains):
            moments[domains, 0, f] += shares[d] * (np.float64(shifts[d, f]) - np.float64(shifts[domains, f])) / scale
    for d in range(domains):
        moments[domains] += shares[d] * moments[d]

r"""Central sums of a sample and how those of two samples add up to those of both.

Of rows :math:`x_i` with weights :math:`w_i` (1 where there are none) these are kept, for each feature,

.. math:: n = \sum_i w_i, \qquad m = \frac1n \sum_i w_i x_i, \qquad M_p = \sum_i w_i (x_i - m)^p, \quad p \ge 2.

With :math:`\delta = m_B - m_A` and :math:`n = n_A + n_B` the sums of two samples merge as

.. math::

    m = m_A + \frac{n_B}{n} \delta, \qquad
    M_p = \sum_{k=0}^{p} \binom{p}{k} \Bigl[ \Bigl(-\frac{n_B}{n}\delta\Bigr)^k M_{p-k}^A
                                            + \Bigl(\frac{n_A}{n}\delta\Bigr)^k M_{p-k}^B \Bigr],

with :math:`M_0 = n` and :math:`M_1 = 0` of each part, and the sums of products of two features as
:math:`C = C^A + C^B + \frac{n_A n_B}{n} \delta \delta^\top` (Chan, Golub, LeVeque: Algorithms for computing the sample
variance, The American Statistician 37, 1983; Pébay, Terriberry, Kolla, Bennett: Numerically stable, scalable formulas
for parallel and online computation of higher-order multivariate central moments with arbitrary weights, Computational
Statistics 31, 2016).

A term of the Central Moment Discrepancy, Eq. (23), at the rounding level of its moments counts as zero, as it does for
the samples themselves. The level of order j is a multiple of the last digit of :math:`E|z|^j`, of which the sums know
the even orders; an odd one lies between its neighbours, and the highest odd order above

.. math:: E|z|^{p+1} \ge (E|z|^p)^{3/2} \, (E|z|^{p-2})^{-1/2}

(the logarithm of :math:`E|z|^p` is convex in p), which normal samples miss by a factor of 1.2 at order 5 and a single
outlier not at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError
from momentalign.moments.centre import ROUNDING_ERRORS, moved_sums
from momentalign.moments.loops import (
    FEW_SUMS,
    SEEN,
    few_power_sums,
    many_power_sums,
    weighted_mean,
    weighted_power_sums,
)

__all__ = ["CentralSums", "dense_sums", "difference_terms", "merged", "no_rows", "scaled", "sparse_sums"]

Floats = NDArray[np.float64]

# Numbers of a sample that are centred at a time for its products: they stay in the cache.
_STEP = 2**17
# Numbers of a sample whose powers are added up by compiled loops; of fewer numpy does it in some milliseconds.
_WORTH_COMPILING = 2**18
# A column of a CSR matrix is far from zero where its squared mean is so many times its variance: one zero in 17 values
# or fewer.
FAR = 16.0


@dataclass(frozen=True)
class CentralSums:
    """The sums of one sample; its arrays are never changed in place."""

    count: int | float
    """The number of rows, or the sum of their weights."""
    mean: Floats
    """(width,)"""
    rest: Floats
    """(width,): the true mean minus `mean`, below the last digit of it."""
    sums: Floats
    """(orders - 1, width): central sums of orders 2 and up."""
    products: Floats | None
    """(width, width): central sums of the products of two features, where they are asked for."""


def no_rows(width: int, orders: int, *, crossed: bool) -> CentralSums:
    """Return the sums of a sample without rows."""
    products = np.zeros((width, width)) if crossed else None
    return CentralSums(0, np.zeros(width), np.zeros(width), np.zeros((orders - 1, width)), products)


def dense_sums(rows: NDArray[Any], weights: Floats | None, orders: int, *, crossed: bool) -> CentralSums:
    """Return the sums of at least one row, float32 or float64 in C order, with weights that do not sum to zero.

    Examples
    --------
    >>> found = dense_sums(np.array([[0.0], [1.0], [5.0]]), None, 3, crossed=False)
    >>> found.count, found.mean.tolist(), found.sums.ravel().tolist()
    (3, [2.0], [14.0, 18.0])
    """
    width = rows.shape[1]
    shift, powers = np.empty(width), np.empty((orders, width))
    if weights is None:
        shift[:] = _rough_mean(rows)
        if rows.size < _WORTH_COMPILING:
            _power_sums(rows, shift, powers)
        elif orders <= FEW_SUMS:
            few_power_sums(rows, shift, 1.0, powers)
        else:
            many_power_sums(rows, shift, 1.0, powers)
    else:
        weighted_mean(rows, weights, shift)
        weighted_power_sums(rows, weights, shift, powers)
    count = len(rows) if weights is None else float(weights.sum())
    found = _about_the_mean(count, shift, powers)
    return replace(found, products=_dense_products(rows, weights, found)) if crossed else found


def _rough_mean(rows: NDArray[Any]) -> Floats:
    """The mean of a few rows, added up about the first: that of a constant is the constant itself."""
    first, seen = rows[0].astype(np.float64), min(SEEN, len(rows))
    some = rows[np.arange(seen) * len(rows) // seen].astype(np.float64)
    return np.asarray(first + (some - first).sum(0) / seen)


def _power_sums(rows: NDArray[Any], shift: Floats, powers: Floats) -> None:
    """Fill the sums of powers about a shift, as the compiled loops do."""
    with np.errstate(all="ignore"):
        centred = rows - shift
        power = centred.copy()
        for sums in powers:
            sums[:] = power.sum(0)
            power *= centred


def _dense_products(rows: NDArray[Any], weights: Floats | None, found: CentralSums) -> Floats:
    # About the rounded mean; what rounding took away is taken off.
    total = -found.count * np.outer(found.rest, found.rest)
    step = max(1, _STEP // rows.shape[1])
    for start in range(0, len(rows), step):
        centred = rows[start : start + step] - found.mean
        total += centred.T @ (centred if weights is None else weights[start : start + step, None] * centred)
    return total


def sparse_sums(rows: Any, weights: Floats | None, orders: int, *, crossed: bool) -> CentralSums:
    """Return the sums of at least one row in CSR form without making it dense: zeros are counted, not visited."""
    width = rows.shape[1]
    row_weights = np.ones(rows.shape[0]) if weights is None else weights
    count = rows.shape[0] if weights is None else float(weights.sum())
    each = np.repeat(row_weights, np.diff(rows.indptr))

    def by_column(values: Floats) -> Floats:
        return np.asarray(np.bincount(rows.indices, each * values, minlength=width), dtype=np.float64)

    values = rows.data.astype(np.float64)
    shift = by_column(values) / count
    # The weight of the zeros; none where the column is full, which a difference of sums would leave to rounding.
    full = np.bincount(rows.indices, each > 0.0, minlength=width) == np.count_nonzero(row_weights)
    zeros = np.where(full, 0.0, count - by_column(np.ones_like(values)))
    centred, power = values - shift[rows.indices], np.ones_like(values)
    powers = np.empty((orders, width))
    for order in range(1, orders + 1):
        power = power * centred
        powers[order - 1] = by_column(power) + zeros * (-shift) ** order
    found = _about_the_mean(count, shift, powers)
    return replace(found, products=_sparse_products(rows, row_weights, found)) if crossed else found


def _sparse_products(rows: Any, weights: Floats, found: CentralSums) -> Floats:
    """Sums of products: of columns far from zero, which hold hardly any zeros, about the mean, of others about zero.

    About zero, a product loses as many digits as the means are larger than the standard deviations.
    """
    wide = rows.astype(np.float64)
    far = found.mean**2 > FAR * found.sums[0] / found.count
    near, count = wide[:, ~far], found.count
    raw = np.asarray((near.T @ near.multiply(weights[:, None]).tocsr()).todense())
    products = np.empty((len(far), len(far)))
    products[np.ix_(~far, ~far)] = raw - count * np.outer(found.mean[~far], found.mean[~far])
    if far.any():
        dense, means, rests = wide[:, far], found.mean[far], found.rest[far]
        own = -count * np.outer(rests, rests)
        mixed = -count * np.outer(rests, found.mean[~far])
        step = max(1, _STEP // len(means))
        for start in range(0, wide.shape[0], step):
            part = slice(start, start + step)
            centred = dense[part].toarray() - means
            weighted = weights[part, None] * centred
            own += centred.T @ weighted
            mixed += (near[part].T @ weighted).T
        products[np.ix_(far, far)], products[np.ix_(far, ~far)] = own, mixed
        products[np.ix_(~far, far)] = mixed.T
    np.fill_diagonal(products, found.sums[0])
    return products


def _about_the_mean(count: int | float, shift: Floats, powers: Floats) -> CentralSums:
    """Central sums from the sums of powers about a shift."""
    with np.errstate(all="ignore"):  # What overflows stays visible, and is refused where it is asked for.
        step = powers[0] / count
        mean, rest = _two_sum(shift, step)
        moved = moved_sums(np.vstack([np.full_like(step, count), powers]), -step)
    return CentralSums(count, mean, rest, _possible(moved[2:]), None)


def _possible(sums: Floats) -> Floats:
    """Central sums of orders 2 and up; rounding must not make an even one negative, and NaN stays NaN."""
    sums[::2][sums[::2] < 0.0] = 0.0
    return sums


def _two_sum(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """The rounded sum and what rounding took away (Knuth)."""
    total = one + other
    back = total - one
    return total, (one - (total - back)) + (other - back)


def merged(one: CentralSums, other: CentralSums) -> CentralSums:
    """Return the sums of both samples together.

    Examples
    --------
    >>> parts = [dense_sums(np.array(rows), None, 3, crossed=False) for rows in ([[0.0], [1.0]], [[5.0]])]
    >>> found = merged(*parts)
    >>> found.count, found.mean.tolist(), found.sums.round(9).ravel().tolist()
    (3, [2.0], [14.0, 18.0])
    """
    if not one.count or not other.count:
        return one if one.count else other
    n, m = float(one.count), float(other.count)
    share, other_share = n / (n + m), m / (n + m)
    with np.errstate(all="ignore"):
        # Above their last common digit the means cancel exactly, below it stand the rests.
        steps = (other.mean - one.mean) + (other.rest - one.rest)
        mean, rest = _two_sum(one.mean, one.rest + other_share * steps)
        own = moved_sums(_raw(one), -other_share * steps) + moved_sums(_raw(other), share * steps)
    sums = _possible(own[2:])
    products = None
    if one.products is not None and other.products is not None:
        products = one.products + other.products + n * (m / (n + m)) * np.outer(steps, steps)
    return CentralSums(one.count + other.count, mean, rest, sums, products)


def _raw(found: CentralSums) -> Floats:
    """The sums of orders 0 and up about the mean."""
    none = np.zeros_like(found.mean)
    return np.vstack([none + found.count, none, found.sums])


def scaled(found: CentralSums, factor: float) -> CentralSums:
    """Return the sums with all weights multiplied by `factor`."""
    products = None if found.products is None else factor * found.products
    return replace(found, count=factor * found.count, sums=factor * found.sums, products=products)


# Every row may have been merged alone, and errors grow with the root of the number of merges; streams of more batches
# than this are no worse, and weights of any size are no rows.
_MOST_MERGES = 10**7


def difference_terms(one: CentralSums, other: CentralSums, n_moments: int, *, scale: float) -> Floats:
    """Return the weighted terms of orders 1 to `n_moments`; the second is that of CV-CMD where products are known.

    Examples
    --------
    >>> samples = np.array([[0.0], [1.0]]), np.array([[0.5], [0.5]])
    >>> difference_terms(*(dense_sums(rows, None, 3, crossed=False) for rows in samples), 3, scale=1.0).tolist()
    [0.0, 0.25, 0.0]
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        terms = _marginal_terms(one, other, n_moments, scale)
        if one.products is not None and other.products is not None:
            terms[1] = _cross_variance_term(one, other, scale)
    if not np.isfinite(terms).all():
        raise InvalidInputError(
            f"powers of values divided by |b - a| = {scale:.3g} overflow float64; give the range of the values as "
            "interval=(a, b), or lower n_moments."
        )
    return terms


def _marginal_terms(one: CentralSums, other: CentralSums, n_moments: int, scale: float) -> Floats:
    pair = _central(one, scale), _central(other, scale)
    means = ((one.mean - other.mean) + (one.rest - other.rest)) / scale
    differences = [means, *(pair[0] - pair[1])]
    sizes = [_size(pair[0], order) + _size(pair[1], order) for order in range(1, n_moments + 1)]
    levels = [_level(one, other, order) * _norm(size) for order, size in enumerate(sizes, 1)]
    return np.array([_guarded(*pair) for pair in zip(differences, levels, strict=False)])


def _cross_variance_term(one: CentralSums, other: CentralSums, scale: float) -> float:
    """The norm over all products of two features, each once, divided by sqrt(2) (CV-CMD, Section 6.5)."""
    first, second = (part.products / part.count / scale**2 for part in (one, other) if part.products is not None)
    difference = first - second
    above = np.triu_indices(len(difference))
    variance = float(np.trace(first) + np.trace(second))
    return _guarded(difference[above], _level(one, other, 2) * variance) / math.sqrt(2.0)


def _central(found: CentralSums, scale: float) -> Floats:
    orders = np.arange(2.0, len(found.sums) + 2.0)
    return found.sums / found.count / (scale**orders)[:, None]


def _size(central: Floats, order: int) -> Floats:
    """The size of the summands of one order, E|z|^j, from central moments of orders 2 and up."""
    even: list[Floats] = [np.ones_like(central[0]), *central[::2]]  # orders 0, 2, 4, ...
    half = order // 2
    if order % 2 == 0:
        return even[half]
    if half + 1 < len(even):
        return np.asarray(np.sqrt(even[half]) * np.sqrt(even[half + 1]))  # Their product may leave float64.
    below = even[half - 1]
    return np.where(below > 0.0, even[half] * np.sqrt(even[half] / np.where(below > 0.0, below, 1.0)), 0.0)


def _level(one: CentralSums, other: CentralSums, order: int) -> float:
    """The rounding of a moment relative to its size."""
    merges = min(max(one.count, other.count), _MOST_MERGES)
    # To move a sum to another mean is to add up binomials of its order; they sum to 2^order, their errors to the root.
    growth = max(1.0, math.sqrt(merges) / 4.0) * math.sqrt(2.0**order)
    return ROUNDING_ERRORS * float(np.finfo(np.float64).eps) * growth


def _guarded(difference: Floats, level: float) -> float:
    norm = _norm(difference)
    # An overflow is no noise: it stays visible in the term.
    return 0.0 if norm <= level and level < math.inf else norm


def _norm(values: Floats) -> float:
    """Euclidean norm whose squares cannot leave the range of float64."""
    peak = float(np.abs(values).max())
    return peak * float(np.linalg.norm(values / peak)) if 0.0 < peak < math.inf else peak

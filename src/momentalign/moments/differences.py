r"""The terms of the Central Moment Discrepancy from the central sums of two samples, Eq. (23).

A term at the rounding level of its moments counts as zero, as it does where the distance is taken of the samples
themselves. The level of order j is a multiple of the last digit of :math:`E|z|^j`, of which the sums know the even
orders; an odd one lies between its neighbours, and the highest odd order above

.. math:: E|z|^{p+1} \ge (E|z|^p)^{3/2} \, (E|z|^{p-2})^{-1/2}

(the logarithm of :math:`E|z|^p` is convex in p), which normal samples miss by a factor of 1.2 at order 5 and a single
outlier not at all.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError
from momentalign.moments.central_sums import CentralSums
from momentalign.moments.rounding import ROUNDING_ERRORS

__all__ = ["difference_terms"]

Floats = NDArray[np.float64]

# Every row may have been merged alone, and errors grow with the root of the number of merges; streams of more batches
# than this are no worse, and weights of any size are no rows.
_MOST_MERGES = 10**7


def difference_terms(one: CentralSums, other: CentralSums, n_moments: int, *, scale: float) -> Floats:
    """Return the weighted terms of orders 1 to `n_moments`; the second is that of CV-CMD where products are known.

    Examples
    --------
    >>> from momentalign.moments.central_sums import dense_sums
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
    ours, theirs = _central(one, scale), _central(other, scale)
    means = ((one.mean - other.mean) + (one.rest - other.rest)) / scale
    differences = [means, *(ours - theirs)]
    sizes = [_size(ours, order) + _size(theirs, order) for order in range(1, n_moments + 1)]
    levels = [_level(one, other, order) * _norm(size) for order, size in enumerate(sizes, 1)]
    return np.array([_guarded(*pair) for pair in zip(differences, levels, strict=False)])


def _cross_variance_term(one: CentralSums, other: CentralSums, scale: float) -> float:
    """The norm over all products of two features, each once, divided by sqrt(2) (CV-CMD, Section 6.5)."""
    ours, theirs = (part.products / part.count / scale**2 for part in (one, other) if part.products is not None)
    difference = ours - theirs
    above = np.triu_indices(len(difference))
    variance = float(np.trace(ours) + np.trace(theirs))
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

r"""The Central Moment Discrepancy of two samples, order by order, with permutation p-values.

Every feature is brought to [0, 1] first: the 1st and 99th percentile of both samples together become 0 and 1, values
beyond are set to these ends, so that no long tail rules the higher orders. Then, as in Eq. (23) of Zellinger et al.
(2019) with :math:`|b - a| = 1`, order :math:`j` is

.. math:: t_j = \lVert c_j(S) - c_j(T) \rVert_2, \qquad
    c_1 = \frac1n \sum_i x_i, \quad c_j = \frac1n \sum_i (x_i - c_1)^j .

If both samples have one distribution, any relabelling of the rows is as likely as the real one, so

.. math:: p_j = \frac{1 + \#\{\pi : t_j^\pi \ge t_j\}}{1 + \#\{\pi\}}

is a valid p-value in samples of any size. The moments of a relabelled sample follow from sums of powers, and the sums
of all relabellings are one product of a 0/1 matrix (relabellings, rows) with the powers (rows, orders x features).
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.moments.centre import central_moments
from momentalign.validation import Floats

__all__ = ["MomentShift", "compare_moments", "unit_interval"]

Bools = NDArray[np.bool_]

_TAIL = 0.01
_QUANTILE = 0.95
# Equal relabellings must count as equal whatever the order of their sums.
_ROUNDING = 1e-10
_FEATURES_AT_ONCE = 64
_RELABELLINGS_AT_ONCE = 128


class MomentShift(NamedTuple):
    """The terms of the distance, orders 1 to k, and their sum last, beside those of relabelled rows."""

    values: Floats
    p_values: Floats
    by_chance: Floats
    """The 95 % quantile of the relabelled samples: what chance alone would seldom exceed."""


def compare_moments(
    source: Floats,
    target: Floats,
    *,
    n_moments: int = 5,
    n_permutations: int = 1000,
    random_state: np.random.Generator | int = 0,
) -> MomentShift:
    """Return the CMD of two samples order by order, and how seldom relabelled rows are as far apart.

    Parameters
    ----------
    source, target
        Shapes (rows, features) and (other rows, features); NaN is missing and left out of its feature's moments.
    n_moments
        The number of orders.
    n_permutations
        The number of relabellings; the smallest possible p-value is 1 / (1 + `n_permutations`).
    random_state
        What the relabellings are drawn with.

    References
    ----------
    B. Phipson, G. K. Smyth: Permutation p-values should never be zero, Statistical Applications in Genetics and
    Molecular Biology 9, 2010.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> shift = compare_moments(random.random((100, 3)), random.random((80, 3)) ** 2, n_permutations=99)
    >>> shift.values.shape, float(shift.p_values[0])
    ((6,), 0.01)
    """
    random = np.random.default_rng(random_state)
    scaled = unit_interval(np.vstack([source, target]))
    chosen = _relabellings(len(source), len(target), n_permutations, random)
    squares = np.zeros((len(chosen), n_moments))
    for start in range(0, scaled.shape[1], _FEATURES_AT_ONCE):
        squares += _squared_differences(scaled[:, start : start + _FEATURES_AT_ONCE], chosen, n_moments)
    terms = np.sqrt(squares)
    every = np.column_stack([terms, terms.sum(axis=1)])
    values, relabelled = every[0], every[1:]
    reached = (relabelled >= values * (1.0 - _ROUNDING)).sum(axis=0)
    return MomentShift(values, (1 + reached) / (1 + n_permutations), np.quantile(relabelled, _QUANTILE, axis=0))


def unit_interval(rows: Floats) -> Floats:
    """Return features brought to [0, 1] by their 1st and 99th percentiles, by their range where these coincide.

    Examples
    --------
    >>> unit_interval(np.array([[2.0, 5.0], [4.0, 5.0], [3.0, np.nan]]))
    array([[0. , 0. ],
           [1. , 0. ],
           [0.5, nan]])
    """
    ordered = np.sort(rows, axis=0)  # NaN comes last.
    last = np.maximum((~np.isnan(ordered)).sum(axis=0) - 1, 0)
    columns = np.arange(rows.shape[1])
    low = ordered[np.floor(_TAIL * last).astype(int), columns]
    high = ordered[np.ceil((1.0 - _TAIL) * last).astype(int), columns]
    flat = low == high
    low, high = np.where(flat, ordered[0], low), np.where(flat, ordered[last, columns], high)
    # Halves keep the length of an interval of huge numbers finite.
    length = high / 2 - low / 2
    scaled = (rows / 2 - low / 2) / np.where(length > 0.0, length, 1.0)
    return np.asarray(np.clip(scaled, 0.0, 1.0))


def _relabellings(rows: int, other_rows: int, count: int, random: np.random.Generator) -> Bools:
    """Return which rows count as the source: as they are in the first line, drawn in all others."""
    labels = np.arange(rows + other_rows) < rows
    return np.vstack([labels, random.permuted(np.tile(labels, (count, 1)), axis=1)])


def _squared_differences(features: Floats, chosen: Bools, n_moments: int) -> Floats:
    """Return the squared norms (relabellings, orders) of the differences of moments over some features."""
    present = ~np.isnan(features)
    whole = bool(present.all())
    # About the common mean little is lost when moments are moved to the mean of each sample.
    mean = np.nansum(features, axis=0) / np.maximum(present.sum(axis=0), 1)
    centred = np.where(present, features - mean, 0.0)
    powers = np.hstack([*accumulate([centred] * n_moments, np.multiply), *([] if whole else [present])])
    totals = powers.sum(axis=0)
    squares = []
    for start in range(0, len(chosen), _RELABELLINGS_AT_ONCE):
        labels = chosen[start : start + _RELABELLINGS_AT_ONCE].astype(float)
        sums = labels @ powers
        rows = labels.sum(axis=1)[:, None, None]
        moments = []
        for side, size in ((sums, rows), (totals - sums, len(features) - rows)):
            blocks = side.reshape(len(labels), -1, features.shape[1])
            # A relabelled sample without a single value in some feature says nothing of that feature.
            with np.errstate(invalid="ignore"):
                raw = blocks[:, :n_moments] / (size if whole else blocks[:, n_moments:])
            moments.append(central_moments(raw))
        squares.append(np.nan_to_num((moments[0] - moments[1]) ** 2).sum(axis=2))
    return np.vstack(squares)

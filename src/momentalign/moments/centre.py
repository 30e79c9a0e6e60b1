"""Moments about one point from moments about another, for many samples at once.

All arrays have the shape (..., orders, width): the means of the powers 1 to k of each feature, or its mean and its
central moments of the orders 2 to k. Powers of features in [0, 1], or about a point near their mean, lose no digits
that matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROUNDING_ERRORS", "central_moments", "moved_sums", "raw_moments"]

Floats = NDArray[np.float64]

ROUNDING_ERRORS = 32.0
"""A term of a distance below so many rounding errors of its moments is noise: sums of some hundred rows err so."""


def central_moments(raw: Floats) -> Floats:
    """Return mean and central moments, (..., orders, width), from the means of powers about any point.

    Examples
    --------
    >>> sample = np.array([1.0, 2.0, 6.0])
    >>> central_moments(np.array([[(sample**power).mean()] for power in (1, 2, 3)])).round(9).ravel().tolist()
    [3.0, 4.666666667, 6.0]
    """
    mean = raw[..., :1, :]
    return np.concatenate([mean, _moved(raw, -mean)[..., 1:, :]], axis=-2)


def raw_moments(step: Floats, central: Floats) -> Floats:
    """Return the means of powers, orders 1 to k, (k, width), about a point from which the mean is `step` away.

    Parameters
    ----------
    step
        Shape (width,).
    central
        The central moments of the orders 2 to k, (k - 1, width).

    Examples
    --------
    >>> raw_moments(np.array([1.0]), np.array([[4.0], [0.0]])).ravel().tolist()
    [1.0, 5.0, 13.0]
    """
    return _moved(np.vstack([np.zeros_like(step), central]), step)


def _moved(raw: Floats, step: Floats) -> Floats:
    """Means of (z + step)^p from those of z^p, orders 1 and up."""
    return moved_sums(np.concatenate([np.ones_like(raw[..., :1, :]), raw], axis=-2), step)[..., 1:, :]


def moved_sums(sums: Floats, step: Floats) -> Floats:
    """Sums of (z + step)^p (..., orders + 1, width) from those of z^p, p = 0 and up; Pascal's triangle row by row."""
    table = sums.copy()
    for order in range(1, table.shape[-2]):
        table[..., order:, :] += step * table[..., order - 1 : -1, :]
    return table

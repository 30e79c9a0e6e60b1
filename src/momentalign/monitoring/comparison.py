r"""How far the moments of two samples are apart, measured in what chance alone would give.

With the central moments :math:`c_j` of a reference of n and a window of w rows, features in [0, 1], the differences of
order j are the summands of the Central Moment Discrepancy, Eq. (23) in Zellinger et al. (2019),

.. math:: d_j = c_j(W) - c_j(R), \qquad \mathrm{cmd} = \sum_j \lVert d_j \rVert_2 .

If both samples have one distribution, the variance of each entry is, to first order (Serfling 1980, Section 2.2),

.. math:: s_1^2 = \Bigl( \frac1n + \frac1w \Bigr) c_2, \qquad
          s_j^2 = \Bigl( \frac1n + \frac1w \Bigr)
                  \bigl( c_{2j} - c_j^2 - 2 j c_{j-1} c_{j+1} + j^2 c_{j-1}^2 c_2 \bigr),

with the moments of both samples together. Two figures of each order follow: many features that moved a little show in
the first, one feature that moved much in the second,

.. math:: \frac{\lVert d_j \rVert_2}{\lVert s_j \rVert_2}, \qquad \max_f \frac{|d_{jf}|}{s_{jf}} .

    R. J. Serfling: Approximation Theorems of Mathematical Statistics. Wiley, 1980.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Differences", "central_moments", "differences", "raw_moments"]

Floats = NDArray[np.float64]

# Of two-valued features the variance of a moment can vanish while the moment still varies to second order.
_LEAST_SHARE = 0.01


class Differences(NamedTuple):
    """Differences of moments and their variances by chance, (..., orders, width) each; zero where nothing varies."""

    values: Floats
    variances: Floats

    @property
    def ratios(self) -> Floats:
        """The differences in units of what chance gives, (..., orders, width)."""
        return _over(self.values, np.sqrt(self.variances))

    @property
    def figures(self) -> Floats:
        """Of all features together, then of the feature that moved most: (..., 2 orders)."""
        together = _over(np.sqrt((self.values**2).sum(axis=-1)), np.sqrt(self.variances.sum(axis=-1)))
        return np.concatenate([together, np.abs(self.ratios).max(axis=-1)], axis=-1)


def differences(reference: Floats, window: Floats, counts: tuple[int, int], rounding: Floats) -> Differences:
    """Compare moments of two samples.

    Parameters
    ----------
    reference, window
        Means of the powers 1 to 2 k of both samples about one point, (..., 2 k, width).
    counts
        Rows of the reference and of the window.
    rounding
        Deviations, (width,), that count as none.

    Examples
    --------
    >>> sample = np.array([0.1, 0.4, 0.5, 0.9])
    >>> raw = [np.array([[(sample + shift) ** p] for p in (1, 2)]).mean(axis=-1) for shift in (0.0, 0.2)]
    >>> found = differences(*raw, counts=(4, 4), rounding=np.zeros(1))
    >>> found.values.round(3).tolist(), found.ratios.round(3).tolist()
    ([[0.2]], [[0.933]])
    """
    orders = reference.shape[-2] // 2
    share = counts[1] / sum(counts)
    pooled = central_moments((1.0 - share) * reference + share * window)
    values = central_moments(window[..., :orders, :]) - central_moments(reference[..., :orders, :])
    varies = pooled[..., 1:2, :] > rounding**2
    variances = (1 / counts[0] + 1 / counts[1]) * _variances(pooled, orders)
    # Rounding can make the variance of next to nothing negative.
    return Differences(np.where(varies, values, 0.0), np.where(varies, np.maximum(variances, 0.0), 0.0))


def central_moments(raw: Floats) -> Floats:
    """Return mean and central moments, (..., orders, width), from the means of powers about any point."""
    mean = raw[..., :1, :]
    return np.concatenate([mean, _moved(raw, -mean)[..., 1:, :]], axis=-2)


def raw_moments(step: Floats, central: Floats) -> Floats:
    """Return the means of powers, orders 1 to k, (k, width), about a point from which the mean is `step` away.

    Examples
    --------
    >>> raw_moments(np.array([1.0]), np.array([[4.0], [0.0]])).ravel().tolist()
    [1.0, 5.0, 13.0]
    """
    return _moved(np.vstack([np.zeros_like(step), central]), step)


def _moved(raw: Floats, step: Floats) -> Floats:
    """Means of (z + step)^p from those of z^p, orders 1 and up; Pascal's triangle row by row."""
    table = np.concatenate([np.ones_like(raw[..., :1, :]), raw], axis=-2)
    for order in range(1, table.shape[-2]):
        table[..., order:, :] += step * table[..., order - 1 : -1, :]
    return np.asarray(table[..., 1:, :])


def _variances(pooled: Floats, orders: int) -> Floats:
    """Variance of one row's part in each central moment, (..., orders, width)."""
    none = np.zeros_like(pooled[..., 0, :])
    c = [none + 1.0, none, *np.moveaxis(pooled, -2, 0)[1:]]
    return np.stack(
        [
            np.maximum(
                c[2 * j] - c[j] ** 2 - 2 * j * c[j - 1] * c[j + 1] * (j > 1) + (j * c[j - 1]) ** 2 * c[2] * (j > 1),
                _LEAST_SHARE * c[2 * j],
            )
            for j in range(1, orders + 1)
        ],
        axis=-2,
    )


def _over(part: Floats, scale: Floats) -> Floats:
    return np.asarray(np.divide(part, scale, out=np.zeros_like(part), where=scale > 0.0))

r"""Moments of a domain that need not be in memory at once: count, mean and central moments of each feature, merged.

With :math:`\delta = m - m'` the way from the common mean to that of a part, the central sums of the parts add up as

.. math:: M_p = \sum_{\text{parts}} \sum_{k=0}^{p} \binom{p}{k} \delta^k M'_{p-k},

    P. Pébay: Formulas for robust, one-pass parallel computation of covariances and arbitrary-order statistical moments,
    Sandia National Laboratories, SAND2008-6212, 2008.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.networks.shallow import Matrix

__all__ = ["ORDER", "DomainMoments"]

Floats = NDArray[np.float64]

ORDER = 5
"""The highest order that is kept, that of the paper's distance."""
# Rows whose powers are taken at a time: they stay in the cache.
_STEP = 4096


@dataclass(frozen=True)
class DomainMoments:
    """Moments of each feature of a sample.

    Attributes
    ----------
    count
        Rows of the sample.
    mean
        Shape (features,).
    central
        Central moments of orders 2 to 5, (4, features).

    Examples
    --------
    >>> parts = DomainMoments.of(np.array([[0.0], [1.0]])) + DomainMoments.of(np.array([[5.0]]))
    >>> parts.count, parts.mean.tolist(), parts.central[:2].round(3).ravel().tolist()
    (3, [2.0], [4.667, 6.0])
    """

    count: int
    mean: Floats
    central: Floats

    @classmethod
    def of(cls, rows: Matrix) -> Self:
        """Return the moments of rows, dense or CSR; sparse ones stay so."""
        parts = [rows[start : start + _STEP] for start in range(0, rows.shape[0], _STEP)]
        total = cls._of_part(parts[0])
        for part in parts[1:]:
            total = total + cls._of_part(part)
        return total

    @classmethod
    def _of_part(cls, rows: Matrix) -> Self:
        count = rows.shape[0]
        if sparse.issparse(rows):
            # Of columns of zeros and a few values the powers about zero are as good as those about the mean.
            raw = np.stack([_sparse_power_mean(rows, order) for order in range(1, ORDER + 1)])
            return cls(count, raw[0], _about(raw, raw[0]))
        values = np.asarray(rows, dtype=np.float64)
        mean = values.mean(axis=0)
        centred = values - mean
        power, central = centred, []
        for _ in range(2, ORDER + 1):
            power = power * centred
            central.append(power.mean(axis=0))
        return cls(count, mean, np.stack(central))

    def __add__(self, other: Self) -> Self:
        """Return the moments of both samples together."""
        count = self.count + other.count
        share = other.count / count
        step = other.mean - self.mean
        mean = self.mean + share * step
        ours, theirs = self._moved(-share * step), other._moved((1.0 - share) * step)
        return type(self)(count, mean, (1.0 - share) * ours + share * theirs)

    def _moved(self, step: Floats) -> Floats:
        """Moments of orders 2 to 5 about a point from which the mean is `step` away."""
        own = [np.ones_like(step), np.zeros_like(step), *self.central]
        return np.stack(
            [np.sum([comb(p, k) * step**k * own[p - k] for k in range(p + 1)], axis=0) for p in range(2, ORDER + 1)]
        )

    @property
    def deviation(self) -> Floats:
        """The standard deviation of each feature."""
        return cast(Floats, np.sqrt(np.maximum(self.central[0], 0.0)))

    def to_description(self) -> dict[str, Any]:
        """Return the moments as plain JSON."""
        return {"count": self.count, "mean": self.mean.tolist(), "central": self.central.tolist()}

    @classmethod
    def from_description(cls, description: Mapping[str, Any], *, features: int) -> Self:
        """Return the moments that :meth:`to_description` described; anything else raises ValueError or the like."""
        count = description["count"]
        mean, central = (np.asarray(description[name], dtype=np.float64) for name in ("mean", "central"))
        if type(count) is not int or count < 1:
            raise ValueError(f"moments of {count!r:.40} rows")
        if mean.shape != (features,) or central.shape != (ORDER - 1, features):
            raise ValueError(f"moments of {features} features are expected")
        if not (np.isfinite(mean).all() and np.isfinite(central).all()):
            raise ValueError("moments that are not finite")
        return cls(count, mean, central)


def _sparse_power_mean(rows: Any, order: int) -> Floats:
    power = rows.astype(np.float64)
    power.data **= order
    return np.asarray(power.mean(axis=0), dtype=np.float64).ravel()


def _about(raw: Floats, mean: Floats) -> Floats:
    """Central moments of orders 2 to 5 from moments about zero of orders 1 to 5."""
    own = [np.ones_like(mean), *raw]
    return np.stack(
        [np.sum([comb(p, k) * (-mean) ** k * own[p - k] for k in range(p + 1)], axis=0) for p in range(2, ORDER + 1)]
    )

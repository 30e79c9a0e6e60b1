r"""Features of any range brought to [0, 1], so that powers of them stay bounded and no long tail rules the high orders.

With :math:`q_1` and :math:`q_{99}` the 1st and 99th percentile of a feature in the reference, the interval reaches a
quarter of their distance beyond both, about 3.5 deviations of a normal feature to either side,

.. math:: x \mapsto \min\Bigl(1, \max\Bigl(0, \frac{x - a}{b - a}\Bigr)\Bigr), \qquad
          a = q_1 - \tfrac14 (q_{99} - q_1), \quad b = q_{99} + \tfrac14 (q_{99} - q_1).

Where the percentiles coincide the smallest and largest value stand for them, and the interval of a constant has length
1 about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["UnitInterval"]

Floats = NDArray[np.float64]

_TAIL = 0.01
_MARGIN = 0.25
# Differences of this part of a value are none: features are often float32.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class UnitInterval:
    """The ends, (width,) each, that become 0 and 1.

    Examples
    --------
    >>> interval = UnitInterval.of(np.array([[0.0, 7.0], [2.0, 7.0]]))
    >>> interval.low.tolist(), interval.high.tolist()
    ([-0.5, 6.5], [2.5, 7.5])
    >>> interval.apply(np.array([[1.0, 70.0]])).tolist()
    [[0.5, 1.0]]
    """

    low: Floats
    high: Floats

    @classmethod
    def of(cls, rows: Floats) -> Self:
        """Return the interval of reference rows, (rows, width) without missing values."""
        ordered = np.sort(rows, axis=0)
        last = len(rows) - 1
        low, high = ordered[int(np.floor(_TAIL * last))], ordered[int(np.ceil((1.0 - _TAIL) * last))]
        flat = low == high
        low, high = np.where(flat, ordered[0], low), np.where(flat, ordered[-1], high)
        margin = np.where(low == high, 0.5, _MARGIN * (high - low))
        return cls(low - margin, high + margin)

    def apply(self, rows: NDArray[np.floating]) -> Floats:
        """Return rows in [0, 1]; what lies beyond the ends is set to them."""
        return np.clip((rows - self.low) / self.length, 0.0, 1.0)

    @property
    def length(self) -> Floats:
        """The length of each feature's interval."""
        return self.high - self.low

    @property
    def rounding(self) -> Floats:
        """What counts as no difference, in units of the interval."""
        return np.asarray(_ROUNDING * np.maximum(np.abs(self.low), np.abs(self.high)) / self.length)

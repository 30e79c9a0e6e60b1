r"""The last rows of a stream as blocks of moments: nothing else of the rows is kept.

A window of w rows moves in steps of w / 10 rows. It is either *sliding*, the last ten blocks, or *forgetting*: before a
block is added the weights of all earlier rows are multiplied by

.. math:: \gamma = \frac{w - h}{w + h}, \quad h = \frac{w}{10}, \qquad \text{so that} \quad
          \frac{(\sum_i w_i)^2}{\sum_i w_i^2} \to h \, \frac{1 + \gamma}{1 - \gamma} = w

rows are in effect remembered. Blocks of as many rows are kept as means of powers about one point: for features in
[0, 1] these lose no digits that matter, and those of the window are their average.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.moments.running import Moments
from momentalign.monitoring.comparison import raw_moments
from momentalign.monitoring.inputs import finite

__all__ = ["STEPS", "Window"]

Floats = NDArray[np.float64]

STEPS = 10
"""Steps that a window is long."""
# After three windows a forgetting one remembers 99.5 % of the rows that it ever will.
_STEPS_UNTIL_FULL = {False: STEPS, True: 3 * STEPS}
# More than any stream has; powers of floats take no larger whole numbers than fit into one.
_MOST_STEPS = 2**53
_KEEP = (STEPS - 1) / (STEPS + 1)


class Window:
    """Moments of the last rows of a stream.

    Parameters
    ----------
    rows
        How many, a multiple of ten.
    order
        The highest order of the moments.
    forgetting
        Whether old rows fade instead of leaving.
    centre
        The point, (width,), that powers are taken about.

    Examples
    --------
    >>> window = Window(20, order=2, forgetting=False, centre=np.zeros(1))
    >>> [float(raw[0, 0]) for raw in window.add(np.arange(24.0)[:, None])]
    [9.5, 11.5, 13.5]
    """

    def __init__(self, rows: int, *, order: int, forgetting: bool, centre: Floats) -> None:
        self._step, self._order, self._forgetting, self._centre = rows // STEPS, order, forgetting, centre
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._blocks: deque[Floats] = deque(maxlen=1 if self._forgetting else STEPS)
        self._open = Moments(self._order)
        self._steps = 0

    @property
    def rows(self) -> int:
        """Rows seen since the start or the last :meth:`clear`."""
        return self._steps * self._step + int(self._open.count)

    def add(self, rows: Floats) -> Iterator[Floats]:
        """Add rows; at the end of every step, once the window is full, yield its raw moments, (order, width)."""
        start = 0
        while start < len(rows):
            stop = start + self._step - int(self._open.count)
            self._open.update(rows[start:stop])
            start = stop
            if self._open.count == self._step:
                self._close()
                if self._steps >= _STEPS_UNTIL_FULL[self._forgetting]:
                    yield np.mean(self._blocks, axis=0)

    def _close(self) -> None:
        """End a step."""
        block = raw_moments(self._open.mean - self._centre, self._open.central)
        if self._forgetting and self._blocks:
            # Earlier steps weigh 1 + keep + keep^2 + ... in units of the new one.
            earlier = (1.0 - _KEEP**self._steps) / (1.0 - _KEEP)
            block = (_KEEP * earlier * self._blocks[0] + block) / (_KEEP * earlier + 1.0)
        self._blocks.append(block)
        self._open = Moments(self._order)
        self._steps += 1

    def to_dict(self) -> dict[str, Any]:
        """Return where the window stands as plain JSON."""
        blocks = [block.tolist() for block in self._blocks]
        return {"steps": self._steps, "open": self._open.to_dict(), "blocks": blocks}

    def restore(self, description: Mapping[str, Any]) -> None:
        """Go on where :meth:`to_dict` was called; a description that cannot be raises ValueError or the like."""
        steps, opened = description["steps"], Moments.from_dict(description["open"])
        blocks = [finite(block, (self._order, len(self._centre))) for block in description["blocks"]]
        if (
            type(steps) is not int
            or not 0 <= steps <= _MOST_STEPS
            or len(blocks) != min(steps, self._blocks.maxlen or 0)
        ):
            raise ValueError(f"{len(blocks)} blocks after {steps!r:.40} steps")
        if opened.order != self._order or not 0 <= opened.count < self._step or opened.count % 1:
            raise ValueError(f"{opened!r} in steps of {self._step} rows")
        if opened.count and opened.mean.shape != self._centre.shape:
            raise ValueError(f"{opened!r} beside {len(self._centre)} features")
        self._steps, self._open = steps, opened
        self._blocks.extend(blocks)

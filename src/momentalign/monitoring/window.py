r"""How rows come to a monitor, and what is kept of the last of them: blocks of moments, and nothing else of the rows.

A window of w rows moves in steps of w / 10 rows. It is either *sliding*, the last ten blocks, or *forgetting*: before a
block is added the weights of all earlier rows are multiplied by

.. math:: \gamma = \frac{w - h}{w + h}, \quad h = \frac{w}{10}, \qquad \text{so that} \quad
          \frac{(\sum_i w_i)^2}{\sum_i w_i^2} \to h \, \frac{1 + \gamma}{1 - \gamma} = w

rows are in effect remembered. Blocks of as many rows are kept as means of powers about one point: for features in
[0, 1] these lose no digits that matter, and those of the window are their average.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.centre import raw_moments
from momentalign.moments.readers import read_blocks, read_matrix, refuse_other_names
from momentalign.moments.streaming import Moments, described_array
from momentalign.validation import Floats

__all__ = ["MOST_STEPS", "STEPS", "Rows", "Window", "check_names", "check_unit"]


# Rows of a sparse matrix that are made dense at a time.
_DENSE_ROWS = 1024


class Rows:
    """Rows of any kind that moments can be taken of, and what an error calls them."""

    def __init__(self, data: Any, name: str) -> None:
        self.matrix, self.name = read_matrix(data, name), name

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.matrix.shape[0])

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.matrix.shape[1])

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of a data frame's columns."""
        return tuple(map(str, self.matrix.columns)) if hasattr(self.matrix, "columns") else None

    def sample(self, most: int, random: np.random.Generator, names: Sequence[str]) -> NDArray[np.floating[Any]]:
        """Return at most so many rows, drawn without replacement, dense."""
        matrix = self.matrix
        if self.count > most:
            chosen = np.sort(random.choice(self.count, most, replace=False))
            matrix = matrix.iloc[chosen] if hasattr(matrix, "iloc") else matrix[chosen]
        return np.vstack(list(Rows(matrix, self.name).blocks(names)))

    def blocks(self, names: Sequence[str]) -> Iterator[NDArray[np.floating[Any]]]:
        """Yield the rows dense, block by block; values that are not finite are refused with their feature's name."""
        for _, block in read_blocks(self.matrix, self.name):
            for part in _dense(block):
                self._refuse_non_finite(part, names)
                yield part

    def check_features(self, names: Sequence[str]) -> None:
        """Refuse rows of other features."""
        if self.width != len(names):
            raise InvalidInputError(
                f"{self.name} has {self.width} columns and the reference has {len(names)}; give the same features."
            )
        refuse_other_names(self.columns, self.name, names, "the reference")

    def _refuse_non_finite(self, rows: NDArray[np.floating[Any]], names: Sequence[str]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            total = rows.sum()
        if np.isfinite(total):
            return  # One sum is quicker than a look at each value.
        finite_columns = np.isfinite(rows).all(axis=0)
        if not finite_columns.all():
            raise InvalidInputError(
                f"{self.name} holds NaN or infinite values in feature {names[int(np.argmin(finite_columns))]!r}; "
                "remove or impute them first."
            )


def _dense(block: Any) -> Iterator[NDArray[np.floating[Any]]]:
    if not hasattr(block, "tocsr"):
        yield block
        return
    for start in range(0, block.shape[0], _DENSE_ROWS):
        rows = block[start : start + _DENSE_ROWS].toarray()
        yield np.asarray(rows, np.float32 if rows.dtype == np.float32 else np.float64)


def check_names(names: Sequence[str] | None, rows: Rows) -> tuple[str, ...]:
    """Return the names of the features, one for each column.

    Examples
    --------
    >>> check_names(None, Rows(np.ones((3, 2)), "reference"))
    ('x0', 'x1')
    """
    if names is None:
        return rows.columns or tuple(f"x{index}" for index in range(rows.width))
    try:
        given = None if isinstance(names, str) else tuple(names)
    except TypeError:
        given = None
    if given is None or not all(isinstance(name, str) for name in given):
        raise InvalidTypeError(f"feature_names must be a list of strings, got {names!r:.60}.")
    if len(given) != rows.width:
        raise InvalidInputError(
            f"feature_names has {len(given)} names for {rows.width} columns of reference; give one for each."
        )
    return given


def check_unit(moments: Moments) -> Moments:
    """Return moments of features in [0, 1]; a description of others is invalid and raises ValueError.

    Examples
    --------
    >>> check_unit(Moments.of([[0.5], [7.0]]))
    Traceback (most recent call last):
    ...
    ValueError: moments of values outside [0, 1]
    """
    if moments.count:
        _refuse_beyond(moments.mean - 0.5, 0.5)
        _refuse_beyond(moments.central, 1.0)
    return moments


def _refuse_beyond(values: Floats, most: float) -> None:
    # Sums of ones may be rounded up.
    if np.abs(values).max() > most * (1.0 + 1e-6):
        raise ValueError("moments of values outside [0, 1]")


STEPS = 10
"""Steps that a window is long."""
MOST_STEPS = 2**53
"""More than any stream has; powers of floats take no larger whole numbers than fit into one."""
# After three windows a forgetting one remembers 99.5 % of the rows that it ever will.
_STEPS_UNTIL_FULL = {False: STEPS, True: 3 * STEPS}
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
        """Go on where :meth:`to_dict` was called; an invalid description raises ValueError or the like."""
        steps, opened = description["steps"], check_unit(Moments.from_dict(description["open"]))
        shape = len(description["blocks"]), self._order, len(self._centre)
        blocks = list(described_array(description, "blocks", shape) if shape[0] else [])
        for block in blocks:
            _refuse_beyond(block, 1.0)
        if (
            type(steps) is not int
            or not 0 <= steps <= MOST_STEPS
            or len(blocks) != min(steps, self._blocks.maxlen or 0)
        ):
            raise ValueError(f"{len(blocks)} blocks after {steps!r:.40} steps")
        if opened.order != self._order or not 0 <= opened.count < self._step or opened.count % 1:
            raise ValueError(f"{opened!r} in steps of {self._step} rows")
        if opened.count and opened.mean.shape != self._centre.shape:
            raise ValueError(f"{opened!r} beside {len(self._centre)} features")
        self._steps, self._open = steps, opened
        self._blocks.extend(blocks)

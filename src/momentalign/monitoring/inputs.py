"""How rows and names come to a monitor: in blocks, dense, finite, with the feature named that is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.chunks import read_blocks, read_matrix
from momentalign.moments.columns import refuse_other_names

__all__ = ["Rows", "finite", "read_names", "read_random", "read_rows"]

Floats = NDArray[np.float64]

# Rows of a sparse matrix that are made dense at a time.
_DENSE_ROWS = 1024


@dataclass(frozen=True)
class Rows:
    """Rows of any kind that moments can be taken of, and what an error calls them."""

    matrix: Any
    name: str

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

    def some(self, most: int, random: np.random.Generator, names: Sequence[str]) -> Floats:
        """Return at most so many rows, drawn without replacement, dense."""
        matrix = self.matrix
        if self.count > most:
            chosen = np.sort(random.choice(self.count, most, replace=False))
            matrix = matrix.iloc[chosen] if hasattr(matrix, "iloc") else matrix[chosen]
        return np.vstack([block.astype(np.float64) for block in Rows(matrix, self.name).blocks(names)])

    def blocks(self, names: Sequence[str]) -> Iterator[NDArray[np.floating[Any]]]:
        """Yield the rows dense, block by block; values that are not finite are refused with their feature's name."""
        for _, block in read_blocks(self.matrix, self.name):
            for part in _dense(block):
                _refuse_non_finite(part, self.name, names)
                yield part

    def check_features(self, names: Sequence[str]) -> None:
        """Refuse rows of other features."""
        if self.width != len(names):
            raise InvalidInputError(
                f"{self.name} has {self.width} columns and the reference has {len(names)}; give the same features."
            )
        refuse_other_names(self.columns, self.name, names, "the reference")


def read_rows(data: Any, name: str) -> Rows:
    """Return rows that can be read, or say what is wrong with them."""
    return Rows(read_matrix(data, name), name)


def read_random(random_state: object) -> np.random.Generator:
    """Return what is drawn with, or say what is wrong with it.

    Examples
    --------
    >>> read_random(0).integers(10, size=3).tolist()
    [8, 6, 5]
    """
    try:
        if isinstance(random_state, bool):
            raise TypeError
        return np.random.default_rng(random_state)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidTypeError(
            f"random_state must be a whole number of at least 0, a Generator or None, got {random_state!r}; try "
            "random_state=0."
        ) from None


def read_names(names: Sequence[str] | None, rows: Rows) -> tuple[str, ...]:
    """Return the names of the features, one for each column.

    Examples
    --------
    >>> read_names(None, read_rows(np.ones((3, 2)), "reference"))
    ('x0', 'x1')
    """
    if names is None:
        return rows.columns or tuple(f"x{place}" for place in range(rows.width))
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidTypeError(f"feature_names must be a list of strings, got {names!r:.60}.")
    if len(names) != rows.width:
        raise InvalidInputError(
            f"feature_names has {len(names)} names for {rows.width} columns of reference; give one for each."
        )
    return tuple(names)


def finite(values: object, shape: tuple[int, ...]) -> Floats:
    """Return described numbers as an array of a shape, or raise ValueError."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"numbers of shape {array.shape} instead of {shape}, or not finite")
    return array


def _refuse_non_finite(rows: NDArray[np.floating[Any]], name: str, names: Sequence[str]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows.sum()
    if np.isfinite(total):
        return  # One sum is quicker than a look at each value.
    spoiled = ~np.isfinite(rows).all(axis=0)
    if spoiled.any():
        raise InvalidInputError(
            f"{name} holds NaN or infinite values in feature {names[int(np.argmax(spoiled))]!r}; remove or impute them "
            "first."
        )


def _dense(block: Any) -> Iterator[NDArray[np.floating[Any]]]:
    if not hasattr(block, "tocsr"):
        yield block
        return
    for start in range(0, block.shape[0], _DENSE_ROWS):
        yield np.asarray(block[start : start + _DENSE_ROWS].toarray(), dtype=np.float64)

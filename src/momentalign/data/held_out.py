"""Rows held out of a stream whose end is not in sight: by lot, each row's by its number, in bounded memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["HeldOut", "lots"]


def lots(start: int, count: int, seed: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each of `count` rows from number `start` on, the same whoever asks.

    The finaliser of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014)
    on the row's number times its golden increment: lots of neighbours have nothing in common, so that no period of the
    file, such as labels that alternate, shows in the rows that are held out.

    Examples
    --------
    >>> bool((lots(0, 10, seed=1)[4:] == lots(4, 6, seed=1)).all()), round(float(lots(0, 10_000, seed=1).mean()), 2)
    (True, 0.5)
    """
    numbers = np.arange(start, start + count, dtype=np.uint64) + np.uint64(1)
    mixed = (numbers + np.uint64(seed % 2**32) * np.uint64(2**32)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


class _Part(NamedTuple):
    lots: NDArray[np.float64]
    rows: Any
    labels: NDArray[Any]


class HeldOut:
    """Collects the rows of a stream whose lot is below a share, which is halved whenever they become too many.

    Parameters
    ----------
    share
        The part of all rows to hold out.
    seed
        Another seed holds out other rows.
    most
        The most rows to hold.

    Examples
    --------
    >>> held = HeldOut(share=0.5, seed=0, most=100)
    >>> for start in range(0, 1000, 50):
    ...     held.add(start, np.arange(start, start + 50)[:, None], np.zeros(50))
    >>> held.share, len(held) <= 100
    (0.0625, True)
    """

    def __init__(self, share: float, seed: int, most: int) -> None:
        self.share, self._seed, self._most = share, seed, most
        self._parts: list[_Part] = []

    def __len__(self) -> int:
        return sum(len(part.lots) for part in self._parts)

    def mask(self, start: int, count: int) -> NDArray[np.bool_]:
        """Return which rows from number `start` on are held out."""
        return lots(start, count, self._seed) < self.share

    def add(self, start: int, rows: Any, labels: NDArray[Any]) -> None:
        """Look at the next rows of the stream, of which the first has the number `start`."""
        self._parts.append(_chosen(_Part(lots(start, len(labels), self._seed), rows, labels), self.share))
        while len(self) > self._most:
            self.share /= 2.0
            self._parts = [_chosen(part, self.share) for part in self._parts]

    def drop(self) -> None:
        """Hold out nothing."""
        self.share = 0.0
        self._parts = [_chosen(part, self.share) for part in self._parts]

    def rows(self) -> tuple[Any, NDArray[Any]]:
        """Return rows and labels in the order of the stream; at least one part was added."""
        matrices = [part.rows for part in self._parts]
        is_sparse = any(sparse.issparse(matrix) for matrix in matrices)
        joined = sparse.vstack(matrices, format="csr") if is_sparse else np.concatenate(matrices)
        return joined, np.concatenate([part.labels for part in self._parts])


def _chosen(part: _Part, share: float) -> _Part:
    chosen = part.lots < share
    return _Part(part.lots[chosen], part.rows[chosen], part.labels[chosen])

"""Class-balanced batches: every class as often as the largest one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Sampler

from momentalign.errors import InvalidInputError

__all__ = ["BalancedSampler"]


class BalancedSampler(Sampler[int]):
    """Row numbers in random order, one of every class in turn; smaller classes start again until the largest ends.

    A batch size that is a multiple of the number of classes makes every batch exactly balanced. The order is a function
    of `seed` and of the number of the epoch alone, which :class:`~momentalign.training.deep.loaders.PairedLoader` sets.

    Parameters
    ----------
    labels
        The class of every row of the dataset, shape (rows,).
    seed
        The same seed gives the same orders.

    Examples
    --------
    >>> labels = [0, 0, 0, 0, 1, 1]
    >>> order = list(BalancedSampler(labels))
    >>> sorted(labels[row] for row in order[:4]), len(order)
    ([0, 0, 1, 1], 8)
    """

    def __init__(self, labels: ArrayLike | Tensor, *, seed: int = 0) -> None:
        self._labels = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
        if self._labels.ndim != 1 or len(self._labels) == 0:
            raise InvalidInputError(
                f"labels must be one class for every row, got shape {self._labels.shape}; give a sequence of labels."
            )
        self.seed = seed
        self.epoch = 0
        self._rank, self._ranks = 0, 1
        self._members = [np.flatnonzero(self._labels == label) for label in np.unique(self._labels)]

    def of_rank(self, rank: int, ranks: int) -> BalancedSampler:
        """Return the sampler of one rank: every `ranks`-th row of the common order."""
        own = BalancedSampler(self._labels, seed=self.seed)
        own._rank, own._ranks = rank, ranks
        return own

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._members) * max(map(len, self._members)) // self._ranks

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng((self.seed, self.epoch))
        longest = max(map(len, self._members))
        columns = [_repeated(random, rows, longest) for rows in self._members]
        # Within every turn the classes come in an order of their own.
        order = random.permuted(np.stack(columns, axis=1), axis=1).ravel()
        yield from order[self._rank :: self._ranks][: len(self)].tolist()


def _repeated(random: np.random.Generator, rows: Any, length: int) -> Any:
    """Shuffled rows, shuffled anew each time they start again."""
    rounds = -(-length // len(rows))
    return np.concatenate([random.permutation(rows) for _ in range(rounds)])[:length]

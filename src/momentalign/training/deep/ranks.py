"""The processes of one run: what they tell each other, each one's part of the data, class-balanced batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from momentalign.discrepancies.distributed import joined_sum
from momentalign.errors import InvalidInputError

__all__ = [
    "BalancedSampler",
    "gathered",
    "mean_over_ranks",
    "number_of_ranks",
    "of_this_rank",
    "sharded",
    "share_of_rank",
    "sum_over_ranks",
]

State = TypeVar("State")


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


def number_of_ranks() -> int:
    """Return how many processes train together; 1 outside of torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gathered(state: State) -> list[State]:
    """Return the states of all ranks, in order; every rank has to ask."""
    if number_of_ranks() == 1:
        return [state]
    states: list[Any] = [None] * number_of_ranks()
    dist.all_gather_object(states, state)
    return states


def of_this_rank(states: Sequence[State]) -> State:
    """Return this rank's part of what :func:`gathered` returned when a checkpoint was written."""
    if len(states) != number_of_ranks():
        raise InvalidInputError(
            f"the checkpoint was written by {len(states)} processes and is read by {number_of_ranks()}; "
            "go on with as many devices as before."
        )
    return states[dist.get_rank() if number_of_ranks() > 1 else 0]


def share_of_rank(rows: int | torch.Tensor, *, like: torch.Tensor) -> torch.Tensor | float:
    """Return what a mean over this rank's rows counts where means of ranks are averaged to that of all rows."""
    if number_of_ranks() == 1:
        return 1.0
    own = torch.as_tensor(rows, dtype=like.dtype, device=like.device)
    total = own.clone()
    dist.all_reduce(total)
    return own * number_of_ranks() / total


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the sum over the ranks; its gradient is that of the sum of all ranks' losses."""
    return values if number_of_ranks() == 1 else joined_sum(values, dist.group.WORLD)


def mean_over_ranks(mean: Tensor, share: Tensor | float) -> Tensor:
    """Return the mean over the rows of all ranks from that over this rank's, which count as :func:`share_of_rank`."""
    return mean if number_of_ranks() == 1 else sum_over_ranks(share * mean) / number_of_ranks()


def sharded(loader: Any, name: str) -> Any:
    """Return a loader of this rank's part of the data; what is not a DataLoader is taken to hold its part already."""
    if number_of_ranks() == 1 or not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    sampler = loader.sampler
    if isinstance(sampler, DistributedSampler):
        return loader
    if isinstance(sampler, BalancedSampler):
        return _with_sampler(loader, sampler.of_rank(dist.get_rank(), number_of_ranks()))
    plain = type(loader) is DataLoader and type(loader.batch_sampler) is BatchSampler
    if not plain or type(sampler) not in (RandomSampler, SequentialSampler):
        raise InvalidInputError(
            f"{name} has {type(sampler).__name__}, which cannot be split over {number_of_ranks()} processes; give it a "
            "torch.utils.data.DistributedSampler."
        )
    # All ranks agree on the seed of rank 0, another one in every run that is not seeded.
    seed = gathered(int(torch.initial_seed() % 2**31))[0]
    own: DistributedSampler[Any] = DistributedSampler(
        loader.dataset, shuffle=type(sampler) is RandomSampler, seed=seed, drop_last=loader.drop_last
    )
    return _with_sampler(loader, own)


KEPT = (
    "batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn",
    "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
)  # fmt: skip


def _with_sampler(loader: DataLoader[Any], sampler: Any) -> DataLoader[Any]:
    return DataLoader(loader.dataset, sampler=sampler, **{name: getattr(loader, name) for name in KEPT})

"""Two loaders as one: the longer one ends the epoch, the shorter one starts again, and both can be resumed.

The pairs of Section 6.3 of Zellinger et al. (2019). A loader cannot say where it stands. So the state of all
generators is kept as it was when a loader was last started, together with the number of batches it has given since: to
resume, it is started again under that state and gives as many batches, which are thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError
from momentalign.training.deep.lightning import kept_random_state, random_state, restore_random_state
from momentalign.training.deep.ranks import gathered, number_of_ranks, of_this_rank, sharded
from momentalign.validation import positive_int

__all__ = ["PairedLoader"]

END = object()


class PairedLoader:
    """Pairs ``(source_batch, target_batch)`` of two loaders, as many in an epoch as the longer one has.

    Parameters
    ----------
    source_loader, target_loader
        DataLoaders, or anything that can be iterated over again and again. Both start anew with every epoch, and the
        shorter one whenever it ends (with ``shuffle=True`` in a new order). A sampler that knows ``set_epoch`` is told
        how often it has been started.
    steps
        Pairs in an epoch, where a loader has no length or another length is wanted.

    Notes
    -----
    With several processes each gets its own part of a DataLoader's rows, batches of the same size as before. Any other
    iterable is taken to hold the part of its process already.

    Resuming reads again what had been read of the current round. It ends with the same batches if the order of a round
    is settled when it starts, as with the samplers of torch; a loader with a ``state_dict`` of its own is asked for it.

    Examples
    --------
    >>> pairs = PairedLoader(["s0", "s1"], ["t0", "t1", "t2"])
    >>> list(pairs), len(pairs)
    ([('s0', 't0'), ('s1', 't1'), ('s0', 't2')], 3)
    """

    def __init__(self, source_loader: Iterable[Any], target_loader: Iterable[Any], *, steps: int | None = None) -> None:
        self._sides = [_Side(source_loader, "source_loader"), _Side(target_loader, "target_loader")]
        self._steps = None if steps is None else positive_int(steps, "steps", example="100")
        self._position = 0
        self._pending: Mapping[str, Any] | None = None
        self._random: Mapping[str, Any] | None = None
        self._ranks = 1

    def __len__(self) -> int:
        self._split_over_ranks()
        return self._steps if self._steps is not None else max(side.length() for side in self._sides)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Go on from a loaded state, else start a new epoch; nothing happens before the first pair is asked for."""
        steps = len(self)
        self._begin(steps)
        while self._position < steps:
            pair = self._sides[0].next_batch(), self._sides[1].next_batch()
            self._position += 1
            yield pair

    def _begin(self, steps: int) -> None:
        pending, self._pending = self._pending, None
        random, self._random = self._random, None
        if random is not None:
            restore_random_state(random)
        self._position = 0 if pending is None else pending["position"] % steps
        if pending is not None:
            for side, state in zip(self._sides, pending["sides"], strict=True):
                side.resume(state, midway=self._position > 0)
        if self._position == 0:
            for side in self._sides:
                side.start()

    def state_dict(self) -> dict[str, Any]:
        """Return where this loader stands on every rank, as tensors and plain numbers."""
        return {"ranks": gathered({"position": self._position, "sides": [side.state() for side in self._sides]})}

    def load_state_dict(self, state_dict: Mapping[str, Any], *, random: Mapping[str, Any] | None = None) -> None:
        """Make the next iteration go on from a state.

        The generators of the process are left as they are; those of `random` are restored when it begins.
        """
        self._pending, self._random = of_this_rank(state_dict["ranks"]), random

    def peek(self, side: int = 0) -> Any:
        """Return a batch of the source, or with 1 of the target, as if nobody had asked for it."""
        return self._sides[side].peek()

    def _split_over_ranks(self) -> None:
        """Processes may have found each other only after this object was made."""
        if self._ranks != number_of_ranks():
            self._ranks = number_of_ranks()
            for side in self._sides:
                side.loader = sharded(side.loader, side.name)


class _Side:
    """One loader, and what is needed to bring it where it stands."""

    def __init__(self, loader: Any, name: str) -> None:
        if not hasattr(loader, "__iter__"):
            raise InvalidTypeError(f"{name} must give batches when iterated over, got {loader!r}; give a DataLoader.")
        if hasattr(loader, "__next__"):
            raise InvalidTypeError(
                f"{name} is an iterator, which can be gone through only once; give a DataLoader or a list of batches."
            )
        self.loader, self.name = loader, name
        self._empty = f"{name} gives no batch; give one with rows, and look at drop_last."
        self._rounds = 0
        self._consumed = 0
        self._iterator: Iterator[Any] = iter(())
        self._first: Any = END
        self._random = random_state()
        self._generators: list[torch.Tensor] = []

    def length(self) -> int:
        """Batches in one round."""
        try:
            return len(self.loader)
        except TypeError:
            raise InvalidInputError(
                f"{self.name} does not know its length; say how many pairs make an epoch with steps=."
            ) from None

    def start(self) -> None:
        """Begin a round."""
        for sampler in _parts(self.loader):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self._rounds)
        self._random = random_state()
        self._generators = [generator.get_state() for generator in _generators(self.loader)]
        self._rounds += 1
        self._consumed = 0
        self._iterator = iter(self.loader)
        # Samplers draw when they are asked for the first time; nothing else shall draw in between.
        self._first = next(self._iterator, END)

    def next_batch(self) -> Any:
        """Give the next batch, from the next round where this one has ended."""
        batch = self._take()
        if batch is END:
            self.start()
            batch = self._take()
        if batch is END:
            raise InvalidInputError(self._empty)
        self._consumed += 1
        return batch

    def _take(self) -> Any:
        first, self._first = self._first, END
        return next(self._iterator, END) if first is END else first

    def peek(self) -> Any:
        generators = _generators(self.loader)
        before = [generator.get_state() for generator in generators]
        with kept_random_state():
            batch = next(iter(self.loader), END)
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
        if batch is END:
            raise InvalidInputError(self._empty)
        return batch

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "rounds": self._rounds,
            "consumed": self._consumed,
            "random": self._random,
            "generators": self._generators,
            "generators_now": [generator.get_state() for generator in _generators(self.loader)],
        }
        if _keeps_its_state(self.loader):
            state["own"] = self.loader.state_dict()
        return state

    def resume(self, state: Mapping[str, Any], *, midway: bool) -> None:
        """Bring the loader where the state stands; between two epochs there is nothing to go through again."""
        generators = _generators(self.loader)
        if len(generators) != len(state["generators"]):
            raise DamagedFileError(
                f"the checkpoint is not of this {self.name}: it has {len(generators)} generators of its own, that of "
                f"the checkpoint had {len(state['generators'])}; give the loader the run was started with."
            )
        self._rounds = state["rounds"]
        if midway:
            with kept_random_state():
                self._go_through_again(state)
        for generator, now in zip(generators, state["generators_now"], strict=True):
            generator.set_state(now)

    def _go_through_again(self, state: Mapping[str, Any]) -> None:
        self._rounds -= 1
        restore_random_state(state["random"])
        for generator, started in zip(_generators(self.loader), state["generators"], strict=True):
            generator.set_state(started)
        if "own" in state:
            self.loader.load_state_dict(state["own"])
            self.start()
            self._consumed = state["consumed"]
            return
        self.start()
        for _ in range(state["consumed"]):
            self.next_batch()


def _parts(loader: Any) -> list[Any]:
    """The loader's sampler and batch sampler, and the sampler in that; each once."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    found = [getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
    return list({id(part): part for part in found if part is not None}.values())


def _generators(loader: Any) -> list[torch.Generator]:
    """The torch generators a loader draws from by itself; each once."""
    found = [getattr(part, "generator", None) for part in (loader, *_parts(loader))]
    return list({id(part): part for part in found if isinstance(part, torch.Generator)}.values())


def _keeps_its_state(loader: Any) -> bool:
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")

"""Engines that go on with other rows: weights and the optimizer's state are carried from one part of the data on.

Algorithm 1 of Zellinger et al. (2019) asks only for the next pair of batches; where it comes from is nobody's business.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from momentalign.networks.shallow import Layer
from momentalign.training.batched import BatchedEngine, RowReader
from momentalign.training.compiled import CompiledEngine, CompiledTask, compile_loops, is_compilable
from momentalign.training.recipe import Engine, EpochFigures, Member, Recipe, Task

__all__ = ["Carried", "CarryingEngine", "go_on", "is_compiled", "open_engine"]


@dataclass(frozen=True)
class Carried:
    """What one network takes along from a part of the data to the next.

    Attributes
    ----------
    compiled
        Whether compiled loops train it; they are not left in between, the two engines round differently.
    layers
        Its weights as the engine has them, float64 in the batched one.
    state
        What else the engine keeps: the optimizer's sums, the domain classifier, the number of updates.
    """

    compiled: bool
    layers: list[Layer]
    state: Any


class CarryingEngine(Engine, Protocol):
    """An engine of one network that takes its rows part by part."""

    def take(self, task: Task) -> None:
        """Go on with these rows."""
        ...

    def run_epoch(self) -> EpochFigures:
        """Train once on the rows that were taken last."""
        ...

    def state(self) -> Any:
        """Return a copy of all that is no weight of the network."""
        ...

    def restore(self, state: Any) -> None:
        """Take over a copy of what :meth:`state` returned."""
        ...


def is_compiled(task: Task, recipe: Recipe, member: Member, *, device: str) -> bool:
    """Whether compiled loops train this task, by the rule of :func:`~momentalign.training.stack.train_stack`."""
    return device == "cpu" and recipe.loss == "cross_entropy" and is_compilable(task, recipe, [member])


def open_engine(task: Task, recipe: Recipe, member: Member, *, device: str, compiled: bool) -> CarryingEngine:
    """Return an engine with the weights the member starts from and the rows of a task."""
    if compiled:
        engine = _CompiledParts(task, recipe, member)
        compile_loops(engine)
        return engine
    return _BatchedParts(task, recipe, member, device=device)


def go_on(
    task: Task, recipe: Recipe, member: Member, *, device: str = "cpu", carried: Carried | None = None
) -> tuple[Carried, EpochFigures]:
    """Train one network for one epoch on the rows of a task and return what it takes along.

    `carried` is left as it is: whoever is interrupted can go on from it once more. Nothing is carried of a decaying
    learning rate but in compiled loops.

    Examples
    --------
    >>> import numpy as np
    >>> rows, labels = np.array([[0.0], [1.0], [0.1], [0.9]], np.float32), np.array([0, 1, 0, 1])
    >>> recipe = Recipe(hidden=(2,), batch_size=2)
    >>> whole, _ = go_on(Task(rows, labels, None, 2), recipe, Member(seed=0))
    >>> half, _ = go_on(Task(rows[:2], labels[:2], None, 2), recipe, Member(seed=0))
    >>> both, _ = go_on(Task(rows[2:], labels[2:], None, 2), recipe, Member(seed=0), carried=half)
    >>> bool((both.layers[0].weight == whole.layers[0].weight).all())
    True
    """
    compiled = is_compiled(task, recipe, member, device=device) if carried is None else carried.compiled
    if carried is not None:
        member = replace(member, initial=carried.layers)
    engine = open_engine(task, recipe, member, device=device, compiled=compiled)
    if carried is not None:
        engine.restore(carried.state)
    figures = engine.run_epoch()
    return Carried(compiled, engine.layers(0), engine.state()), figures


class _CompiledParts(CompiledEngine):
    """Compiled loops, the rows laid out part by part."""

    def __init__(self, task: Task, recipe: Recipe, member: Member) -> None:
        super().__init__(CompiledTask(task, recipe), task, recipe, [member])
        self._recipe = recipe

    def take(self, task: Task) -> None:
        held_out = self._task.validation
        # What was laid out last goes before the next is.
        del self._task
        self._task = CompiledTask(task, self._recipe)
        self._task.validation = held_out

    def state(self) -> Any:
        network = self._networks[0]
        # The weights of the domain classifier stand among those of the network.
        return deepcopy((network.weights[4:6], network._state, network._step))

    def restore(self, state: Any) -> None:
        network = self._networks[0]
        adversary, network._state, network._step = deepcopy(state)
        network.weights = (*network.weights[:4], *adversary, network.units)


class _BatchedParts(BatchedEngine):
    """Autograd on any device, the rows moved there part by part."""

    def __init__(self, task: Task, recipe: Recipe, member: Member, *, device: str) -> None:
        super().__init__(task, recipe, [member], device=device)
        self._recipe = recipe

    def take(self, task: Task) -> None:
        self._epoch = self._recipe.epoch(task)
        # What was moved last goes before the next is.
        del self._source, self._target
        self._source = RowReader(task.source, self._device, self._dtype)
        self._target = None if task.target is None else RowReader(task.target, self._device, self._dtype)
        self._labels = torch.as_tensor(task.labels, device=self._device)

    def state(self) -> Any:
        adversary = [part.detach().clone() for part in self._adversaries]
        return adversary, deepcopy(self._optimizer.state_dict()["state"])

    def restore(self, state: Any) -> None:
        adversary, sums = state
        for part, value in zip(self._adversaries, adversary, strict=True):
            part.data.copy_(value)
        # Rates are those of now: only what was summed up goes on.
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": deepcopy(sums), "param_groups": groups})

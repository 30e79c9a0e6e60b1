"""The networks of the twelve tasks of Table 2 side by side on an accelerator, there and back (Algorithm 1).

A single task leaves a large card waiting; twelve of them make every update one batched product that fills it. Rows
live on the device as dense batches, laid out once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from momentalign.networks.shallow import Layer, Matrix
from momentalign.selection.reverse import BothWays, turned
from momentalign.training.config import NetworkSpec, Rows, Task, TrainedNetwork, TrainingConfig
from momentalign.training.stack import run_engine, train_stack
from momentalign.training.torch_engine import Batch, TorchEngine, own_settings

__all__ = ["GroupedEngine", "reverse_scores_of_tasks", "train_tasks"]

# Weights move, and an epoch is recorded anew, when this part of what is computed or less has to be.
WORTH_REARRANGING = 0.6


def train_tasks(
    tasks: Sequence[Task],
    config: TrainingConfig,
    specs: Sequence[Sequence[NetworkSpec]],
    *,
    device: str = "cpu",
) -> list[list[TrainedNetwork]]:
    """Train one network per task and spec; ``result[task][spec]``.

    The tasks have one shape, and `specs` is a sequence for each task, all of one length. On an accelerator the tasks
    train side by side, on the CPU one after the other.
    """
    if device == "cpu":
        return [train_stack(task, config, own) for task, own in zip(tasks, specs, strict=True)]
    engine = GroupedEngine(tasks, config, specs, device=device)
    trained = run_engine(engine, tasks[0], config, list(chain(*specs)), None)
    return [trained[start : start + len(specs[0])] for start in range(0, len(trained), len(specs[0]))]


def reverse_scores_of_tasks(
    tasks: Sequence[Task], config: TrainingConfig, specs: Sequence[NetworkSpec], *, seed: int, device: str = "cpu"
) -> NDArray[np.float64]:
    """Return the scores of reverse validation (tasks, specs) of tasks of one shape, with a fifth of the rows held out.

    They are those of :func:`~momentalign.selection.reverse.reverse_scores` for each task alone.
    """
    ways = [BothWays.split(task, share=0.8, seed=seed) for task in tasks]
    there = train_tasks([way.forward for way in ways], config, [specs] * len(tasks), device=device)
    back = [
        (way, way.back(network.layers), turned(spec, network.layers))
        for way, networks in zip(ways, there, strict=True)
        for spec, network in zip(specs, networks, strict=True)
    ]
    trained = train_tasks([task for _, task, _ in back], config, [[spec] for *_, spec in back], device=device)
    scores = [way.accuracy(network.layers) for (way, *_), (network,) in zip(back, trained, strict=True)]
    return np.array(scores).reshape(len(tasks), len(specs))


class _Weights(NamedTuple):
    """Hidden layers of a task's networks side by side, so that its rows meet all of them in one product."""

    bottom: Tensor
    """(tasks, inputs, networks of a task * units)"""
    bias: Tensor
    """(tasks, 1, networks of a task * units)"""
    top: Tensor
    """(networks, units, classes)"""
    top_bias: Tensor
    """(networks, 1, classes)"""


class GroupedEngine(TorchEngine):
    """Trains as many networks on every task; network number ``task * size + spec``."""

    def __init__(
        self, tasks: Sequence[Task], config: TrainingConfig, specs: Sequence[Sequence[NetworkSpec]], *, device: str
    ) -> None:
        super().__init__(config, list(chain(*specs)), device=device, dtype=torch.float32)
        self._all_specs = self._specs
        size = len(specs[0])
        # The networks of each task that are computed, side by side, and those that still train among all of them.
        self._slots = [list(range(first, first + size)) for first in range(0, len(self._all_specs), size)]
        self._active = list(range(len(self._all_specs)))
        self._shown = self._positions()
        # An epoch is recorded once and replayed where its kernels are the same every time.
        optimizer = config.optimizer
        self._recordable = self._device.type == "cuda" and not optimizer.decay and optimizer.name != "adam"
        self._recorded: tuple[torch.cuda.CUDAGraph, Tensor] | None = None
        self._warm = False
        with own_settings(self._device):
            self._lay_out(tasks)
            self._start(self._start_weights(tasks))

    def _lay_out(self, tasks: Sequence[Task]) -> None:
        """Put the batches of all tasks on the device, source rows before target rows."""
        sources = [_to_device(task.source, self._device) for task in tasks]
        targets = [None if task.target is None else _to_device(task.target, self._device) for task in tasks]
        labels = torch.tensor(np.stack([task.labels for task in tasks]), device=self._device)
        self._laid_out = [
            (
                torch.stack([_together(*pair, rows, others) for pair in zip(sources, targets, strict=True)]),
                labels[:, rows],
            )
            for rows, others in self._config.epoch(tasks[0])
        ]
        self._validation: tuple[Tensor, Tensor] | None = None
        if tasks[0].validation is not None:
            rows = torch.stack([_to_device(task.validation, self._device) for task in tasks])
            held_out = np.stack([np.asarray(task.validation_labels) for task in tasks])
            self._validation = rows, torch.tensor(held_out, device=self._device)

    def _start_weights(self, tasks: Sequence[Task]) -> list[Tensor]:
        """The weights training starts from; they depend on the specs and on shapes, which all tasks share."""
        known: dict[tuple[int, ...], _Weights] = {}
        found = []
        for task, own in zip(tasks, self._slots, strict=True):
            key = tuple(id(self._all_specs[network]) for network in own)
            if key not in known:
                known[key] = self._side_by_side([self._all_specs[network].start(task, self._config) for network in own])
            found.append(known[key])
        bottom, bias, top, top_bias = zip(*found, strict=True)
        return [torch.stack(bottom), torch.stack(bias), torch.cat(top), torch.cat(top_bias)]

    def _side_by_side(self, networks: Sequence[Sequence[Layer]]) -> _Weights:
        arrays = (
            np.concatenate([layers[0].weight for layers in networks], axis=1),
            np.concatenate([layers[0].bias for layers in networks])[None],
            np.stack([layers[1].weight for layers in networks]),
            np.stack([layers[1].bias for layers in networks])[:, None],
        )
        return _Weights(*(torch.tensor(part, dtype=self._dtype, device=self._device) for part in arrays))

    def _epoch(self) -> Tensor:
        """Like any engine's; recorded after the first one and then replayed."""
        if self._recorded is None and self._recordable and self._warm:
            self._optimizer.zero_grad()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                figures = super()._epoch()
            self._recorded = graph, figures
        if self._recorded is None:
            self._warm = True
            return super()._epoch()
        graph, figures = self._recorded
        graph.replay()
        return figures

    def _batches(self) -> Iterator[Batch]:
        for rows, labels in self._laid_out:
            yield Batch(rows, None, self._per_network(labels))

    def _held_out(self) -> tuple[Tensor, Tensor]:
        assert self._validation is not None  # noqa: S101
        rows, labels = self._validation
        return rows, self._per_network(labels)

    def _per_network(self, labels: Tensor) -> Tensor:
        return labels.repeat_interleave(len(self._slots[0]), 0)

    def _activations(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        hidden, count = self._hidden(batch.source), batch.labels.shape[1]
        return hidden[:, :count], hidden[:, count:] if hidden.shape[1] > count else None

    def _hidden(self, rows: Tensor) -> Tensor:
        """Activations (networks, rows, units) of all networks by one batched product."""
        weights = _Weights(*self._parameters)
        together = torch.baddbmm(weights.bias, rows, weights.bottom).sigmoid()
        apart = together.view(*together.shape[:2], len(self._slots[0]), weights.top.shape[1]).transpose(1, 2)
        return apart.reshape(-1, together.shape[1], weights.top.shape[1])

    def _outputs(self, hidden: Tensor) -> Tensor:
        weights = _Weights(*self._parameters)
        return torch.baddbmm(weights.top_bias, hidden, weights.top)

    def layers(self, index: int) -> list[Layer]:
        """Return a copy of the weights of one network."""
        position, weights = self._positions()[index], _Weights(*self._parameters)
        task, slot = divmod(position, len(self._slots[0]))
        units = weights.top.shape[1]
        own = slice(slot * units, (slot + 1) * units)
        return self._as_layers(
            [
                weights.bottom[task, :, own],
                weights.bias[task, 0, own],
                weights.top[position],
                weights.top_bias[position, 0],
            ]
        )

    def keep_only(self, indices: Sequence[int]) -> None:
        """Train these networks only; others are still computed until room for them can be given up."""
        self._active = [self._active[index] for index in indices]
        self._make_room()
        self._shown = self._positions()

    def _make_room(self) -> None:
        """Drop tasks that have stopped, and networks that all the others can spare, if that is worth it."""
        alive = set(self._active)
        tasks = [task for task, own in enumerate(self._slots) if not alive.isdisjoint(own)]
        size = max(len(alive.intersection(self._slots[task])) for task in tasks)
        if len(tasks) * size > WORTH_REARRANGING * len(self._slots) * len(self._slots[0]):
            return
        # Networks that train come first; where a task has fewer than the others, stopped ones fill up.
        kept = [
            sorted(range(len(self._slots[task])), key=lambda slot: self._slots[task][slot] not in alive)[:size]
            for task in tasks
        ]
        self._cut_down(tasks, kept)
        self._slots = [[self._slots[task][slot] for slot in own] for task, own in zip(tasks, kept, strict=True)]
        self._laid_out = [(rows[tasks], labels[tasks]) for rows, labels in self._laid_out]
        if self._validation is not None:
            rows, labels = self._validation
            self._validation = rows[tasks], labels[tasks]
        self._recorded, self._warm = None, False
        self._prepare([self._all_specs[network] for network in chain(*self._slots)])

    def _cut_down(self, kept_tasks: Sequence[int], kept_slots: Sequence[Sequence[int]]) -> None:
        """Keep the weights, and what the optimizer knows of them, of some slots of some tasks."""
        size, units = len(self._slots[0]), _Weights(*self._parameters).top.shape[1]
        slots = torch.tensor(kept_slots, device=self._device)
        tasks = torch.tensor(kept_tasks, device=self._device)
        networks = (tasks[:, None] * size + slots).flatten()
        columns = (slots[:, :, None] * units + torch.arange(units, device=self._device)).flatten(1)

        def cut(number: int, values: Tensor) -> Tensor:
            if number >= 2:  # neither the bottom weights nor their biases: one entry per network
                return values[networks]
            own = values[tasks]
            return own.gather(2, columns[:, None].expand(-1, own.shape[1], -1))

        self._cut(cut)

    def _positions(self) -> list[int]:
        """Where the networks that still train stand among those that are computed."""
        position = {network: number for number, network in enumerate(chain(*self._slots))}
        return [position[network] for network in self._active]


def _together(source: Tensor, target: Tensor | None, rows: Rows, others: Rows | None) -> Tensor:
    chosen = source[torch.as_tensor(rows, device=source.device)]
    if target is None or others is None:
        return chosen
    return torch.cat([chosen, target[torch.as_tensor(others, device=target.device)]])


def _to_device(rows: Matrix, device: torch.device) -> Tensor:
    """Dense rows on the device; sparse ones travel as they are and are spread out there."""
    if not hasattr(rows, "tocoo"):
        return torch.tensor(rows, dtype=torch.float32, device=device)
    entries = rows.tocoo()
    dense = torch.zeros(entries.shape, dtype=torch.float32, device=device)
    index = tuple(torch.tensor(part, dtype=torch.int64, device=device) for part in (entries.row, entries.col))
    return dense.index_put_(index, torch.tensor(entries.data, dtype=torch.float32, device=device))

"""The grouped engine: networks on several tasks of one shape, side by side on an accelerator (Algorithm 1).

A single task leaves a large card waiting; twelve of them make every update one batched product that fills it. Rows
live on the device as dense batches, laid out once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from momentalign.networks.shallow import Layer, Matrix
from momentalign.training.config import EpochFigures, NetworkSpec, Rows, Task, TrainingConfig, ValidationFigures
from momentalign.training.torch_engine import (
    StackDistance,
    cross_entropy,
    make_optimizer,
    open_device,
    own_distances,
    stack_weights,
)

__all__ = ["GroupedEngine", "are_alike"]

# Weights move, and an epoch is recorded anew, when this part of what is computed or less has to be.
WORTH_REARRANGING = 0.6


def are_alike(tasks: Sequence[Task], config: TrainingConfig) -> bool:
    """Whether the tasks have classes, two domains and one shape, so that their batches can be stacked."""
    ordinary = len(config.hidden) == 1 and not config.balanced and config.loss == "cross_entropy"
    simple = not any(task.has_several_domains for task in tasks)
    return ordinary and simple and len({_shape(task) for task in tasks}) == 1


def _shape(task: Task) -> tuple[object, ...]:
    others = [None if rows is None else rows.shape for rows in (task.target, task.validation)]
    return (task.source.shape, task.n_classes, *others)


class GroupedEngine:
    """Trains as many networks on every task; network number ``task * size + spec``."""

    def __init__(
        self, tasks: Sequence[Task], config: TrainingConfig, specs: Sequence[Sequence[NetworkSpec]], *, device: str
    ) -> None:
        self._device = open_device(device)
        self._members = own_distances([spec for own in specs for spec in own])
        size = len(specs[0])
        # The networks of each task that are computed, side by side, and those that still train among all of them.
        self._slots = [list(range(first, first + size)) for first in range(0, len(self._members), size)]
        self._active = list(range(len(self._members)))
        self._lay_out(tasks, config)
        self._parameters = [part.requires_grad_() for part in self._starts(tasks, config)]
        self._of_distances = stack_weights(self._members, config.hidden[-1], dtype=torch.float32, device=self._device)
        self._trained = [*self._parameters, *(part for own in self._of_distances.values() for part in own)]
        self._optimizer = make_optimizer(config.optimizer, self._trained)
        self._decay = config.optimizer.decay
        self._updates = 0
        self._rate = config.optimizer.rate
        # An epoch is recorded once and replayed where its kernels are the same every time.
        self._recordable = self._device.type == "cuda" and not self._decay and config.optimizer.name != "adam"
        self._recorded: tuple[torch.cuda.CUDAGraph, Tensor] | None = None
        self._warm = False
        self._prepare()

    def _starts(self, tasks: Sequence[Task], config: TrainingConfig) -> list[Tensor]:
        """The weights training starts from: those of a task's hidden layers side by side, then the top layers."""
        known: dict[tuple[int, ...], list[Tensor]] = {}
        found = []
        for task, own in zip(tasks, self._slots, strict=True):
            # A start depends on the spec and on shapes, which all tasks share.
            key = tuple(id(self._members[network]) for network in own)
            if key not in known:
                known[key] = self._parts([self._members[network].start(task, config) for network in own])
            found.append(known[key])
        bottom, bias, top, top_bias = zip(*found, strict=True)
        return [torch.stack(bottom), torch.stack(bias), torch.cat(top), torch.cat(top_bias)]

    def _parts(self, starts: Sequence[Sequence[Layer]]) -> list[Tensor]:
        arrays = (
            np.concatenate([layers[0].weight for layers in starts], axis=1),
            np.concatenate([layers[0].bias for layers in starts])[None],
            np.stack([layers[1].weight for layers in starts]),
            np.stack([layers[1].bias for layers in starts])[:, None],
        )
        return [torch.tensor(part, dtype=torch.float32, device=self._device) for part in arrays]

    def _prepare(self) -> None:
        """Set what depends on which networks are left."""
        every = [self._members[network] for own in self._slots for network in own]
        self._distance = StackDistance(every, self._of_distances)
        self._weights = torch.tensor([spec.weight for spec in every], device=self._device)

    def _lay_out(self, tasks: Sequence[Task], config: TrainingConfig) -> None:
        """Put the batches of all tasks on the device, source rows before target rows."""
        sources = [_to_device(task.source, self._device) for task in tasks]
        targets = [None if task.target is None else _to_device(task.target, self._device) for task in tasks]
        labels = torch.tensor(np.stack([task.labels for task in tasks]), device=self._device)
        self._batches = [
            (
                torch.stack([_joined(*pair, rows, others) for pair in zip(sources, targets, strict=True)]),
                labels[:, rows],
            )
            for rows, others in config.epoch(tasks[0])
        ]
        self._validation: Tensor | None = None
        if tasks[0].validation is not None:
            self._validation = torch.stack([_to_device(task.validation, self._device) for task in tasks])
            held_out = np.stack([np.asarray(task.validation_labels) for task in tasks])
            self._validation_labels = torch.tensor(held_out, device=self._device)

    def run_epochs(self, count: int) -> list[EpochFigures]:
        """Train every network for some epochs."""
        return [self._run_epoch() for _ in range(count)]

    def _run_epoch(self) -> EpochFigures:
        if self._recorded is None and self._recordable and self._warm:
            self._recorded = self._record()
        if self._recorded is not None:
            graph, total = self._recorded
            graph.replay()
        else:
            total = self._epoch()
            self._warm = True
        figures = (total / len(self._batches)).double().cpu().numpy()[:, self._positions()]
        return EpochFigures(figures[0], figures[1])

    def _record(self) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        self._optimizer.zero_grad()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            total = self._epoch()
        return graph, total

    def _epoch(self) -> Tensor:
        """One epoch of updates; returns summed losses and distances (2, networks)."""
        distance, weights = self._distance, self._weights
        total = torch.zeros(2, len(weights), device=self._device)
        for rows, labels in self._batches:
            source = labels.shape[1]
            hidden = self._hidden(rows)
            loss = cross_entropy(self._outputs(hidden[:, :source]), self._per_network(labels))
            between = distance(hidden[:, :source], hidden[:, source:]) if hidden.shape[1] > source else 0 * loss
            self._optimizer.zero_grad()
            (loss + weights * between).sum().backward()  # type: ignore[no-untyped-call]
            for group in self._optimizer.param_groups:
                group["lr"] = self._rate / (1.0 + self._decay * self._updates)
            self._optimizer.step()
            self._updates += 1
            total += torch.stack([loss.detach(), between.detach()])
        return total

    def validate(self) -> ValidationFigures:
        """Evaluate every network on the held-out source rows of its task."""
        assert self._validation is not None  # noqa: S101
        with torch.no_grad():
            outputs, labels = self._outputs(self._hidden(self._validation)), self._per_network(self._validation_labels)
            loss = cross_entropy(outputs, labels)
            accuracy = (outputs.argmax(-1) == labels).double().mean(-1)
            figures = torch.stack([loss.double(), accuracy]).cpu().numpy()[:, self._positions()]
        return ValidationFigures(figures[0], figures[1])

    def layers(self, index: int) -> list[Layer]:
        """Return a copy of the weights of one network, left on the device until someone wants the numbers."""
        position = self._positions()[index]
        task, spec = divmod(position, len(self._slots[0]))
        bottom, bias, top, top_bias = (parameter.detach() for parameter in self._parameters)
        units = top.shape[1]
        place = slice(spec * units, (spec + 1) * units)
        parts = (bottom[task, :, place], bias[task, 0, place], top[position], top_bias[position, 0])
        weight, lower, upper, last = (part.clone() for part in parts)
        return [Layer(weight, lower), Layer(upper, last)]  # type: ignore[arg-type]

    def retain(self, indices: Sequence[int]) -> None:
        """Go on with these networks; others are still computed until room for them can be given up."""
        self._active = [self._active[index] for index in indices]
        alive = set(self._active)
        kept = [task for task, own in enumerate(self._slots) if not alive.isdisjoint(own)]
        size = max(len(alive.intersection(self._slots[task])) for task in kept)
        if len(kept) * size > WORTH_REARRANGING * len(self._slots) * len(self._slots[0]):
            return
        # Networks that train come first; where a task has fewer than the others, stopped ones fill up.
        places = [
            sorted(range(len(self._slots[task])), key=lambda place: self._slots[task][place] not in alive)[:size]
            for task in kept
        ]
        self._rearrange(kept, places)
        self._slots = [[self._slots[task][place] for place in own] for task, own in zip(kept, places, strict=True)]
        self._batches = [(rows[kept], labels[kept]) for rows, labels in self._batches]
        self._recorded, self._warm = None, False
        self._prepare()
        if self._validation is not None:
            self._validation, self._validation_labels = self._validation[kept], self._validation_labels[kept]

    def _rearrange(self, kept: Sequence[int], places: Sequence[Sequence[int]]) -> None:
        """Cut weights and the state of the optimizer down to some networks of some tasks."""
        size, units = len(self._slots[0]), self._parameters[2].shape[1]
        chosen = torch.tensor(places, device=self._device)
        tasks = torch.tensor(kept, device=self._device)
        networks = (tasks[:, None] * size + chosen).flatten()
        columns = (chosen[:, :, None] * units + torch.arange(units, device=self._device)).flatten(1)

        def cut(number: int, values: Tensor) -> Tensor:
            if number >= 2:
                return values[networks]
            own = values[tasks]
            return own.gather(2, columns[:, None].expand(-1, own.shape[1], -1))

        for number, parameter in enumerate(self._trained):
            for name, value in self._optimizer.state[parameter].items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    self._optimizer.state[parameter][name] = cut(number, value)
            parameter.data, parameter.grad = cut(number, parameter.data), None

    def _positions(self) -> list[int]:
        """Where the networks that still train stand among those that are computed."""
        place = {network: position for position, network in enumerate(itertools.chain(*self._slots))}
        return [place[network] for network in self._active]

    def _hidden(self, rows: Tensor) -> Tensor:
        """Activations (networks, rows, units) of all networks by one batched product."""
        bottom, bias = self._parameters[:2]
        units = self._parameters[2].shape[1]
        together = torch.sigmoid(torch.baddbmm(bias, rows, bottom))
        apart = together.view(*together.shape[:2], len(self._slots[0]), units).transpose(1, 2)
        return apart.reshape(-1, together.shape[1], units)

    def _outputs(self, hidden: Tensor) -> Tensor:
        return torch.baddbmm(self._parameters[3], hidden, self._parameters[2])

    def _per_network(self, labels: Tensor) -> Tensor:
        return labels.repeat_interleave(len(self._slots[0]), 0)


def _joined(source: Tensor, target: Tensor | None, rows: Rows, others: Rows | None) -> Tensor:
    picked = source[torch.as_tensor(rows, device=source.device)]
    if target is None or others is None:
        return picked
    return torch.cat([picked, target[torch.as_tensor(others, device=target.device)]])


def _to_device(rows: Matrix, device: torch.device) -> Tensor:
    """Dense rows on the device; sparse ones travel as they are and are spread out there."""
    if not hasattr(rows, "tocoo"):
        return torch.tensor(rows, dtype=torch.float32, device=device)
    entries = rows.tocoo()
    dense = torch.zeros(entries.shape, dtype=torch.float32, device=device)
    places = tuple(torch.tensor(part, dtype=torch.int64, device=device) for part in (entries.row, entries.col))
    return dense.index_put_(places, torch.tensor(entries.data, dtype=torch.float32, device=device))

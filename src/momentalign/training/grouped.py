"""The grouped engine: the same networks on several tasks of one shape, side by side on an accelerator (Algorithm 1).

A single task leaves a large card waiting; twelve of them make every update one batched product that fills it. Rows
live on the device as dense batches, laid out once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from momentalign.networks import Layer, Matrix
from momentalign.training.batched import cross_entropy, make_optimizer
from momentalign.training.objective import StackDistance
from momentalign.training.recipe import EpochFigures, Member, Recipe, Task, ValidationFigures

__all__ = ["GroupedEngine", "are_alike"]


def are_alike(tasks: Sequence[Task], recipe: Recipe) -> bool:
    """Whether the tasks have one shape, so that their batches can be stacked."""
    return len({_shape(task) for task in tasks}) == 1 and len(recipe.hidden) == 1 and not recipe.balanced


def _shape(task: Task) -> tuple[object, ...]:
    others = [None if rows is None else rows.shape for rows in (task.target, task.validation)]
    return (task.source.shape, task.n_classes, *others)


class GroupedEngine:
    """Trains every member on every task; network number ``task * members + member``."""

    def __init__(self, tasks: Sequence[Task], recipe: Recipe, members: Sequence[Member], *, device: str) -> None:
        self._device = torch.device(device)
        self._members, self._tasks = list(members), list(range(len(tasks)))
        self._active = list(range(len(tasks) * len(members)))
        self._batches = [
            (
                self._stack([_joined(task, rows, others) for task in tasks]),
                self._labels([t.labels[rows] for t in tasks]),
            )
            for rows, others in recipe.epoch(tasks[0])
        ]
        if tasks[0].validation is not None:
            self._validation = self._stack([task.validation for task in tasks])
            self._validation_labels = self._labels([np.asarray(task.validation_labels) for task in tasks])
        starts = [member.start(task, recipe) for task in tasks for member in members]
        count = (len(tasks), len(members))
        bottom = np.stack([layers[0].weight for layers in starts]).reshape(*count, *starts[0][0].weight.shape)
        bias = np.stack([layers[0].bias for layers in starts]).reshape(count[0], 1, -1)
        self._parameters = [
            self._parameter(bottom.transpose(0, 2, 1, 3).reshape(count[0], bottom.shape[2], -1)),
            self._parameter(bias),
            self._parameter(np.stack([layers[1].weight for layers in starts])),
            self._parameter(np.stack([layers[1].bias for layers in starts])[:, None]),
        ]
        self._optimizer = make_optimizer(recipe.optimizer, self._parameters)
        self._decay = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda update: 1.0 / (1.0 + recipe.optimizer.decay * update)
        )

    def run_epochs(self, count: int) -> list[EpochFigures]:
        """Train every network for some epochs."""
        return [self._run_epoch() for _ in range(count)]

    def _run_epoch(self) -> EpochFigures:
        distance = StackDistance(self._members * len(self._tasks))
        weights = torch.tensor([m.weight for m in self._members], device=self._device).repeat(len(self._tasks))
        total = torch.zeros(2, len(weights), device=self._device)
        for rows, labels in self._batches:
            source = labels.shape[1]
            hidden = self._hidden(rows)
            loss = cross_entropy(self._outputs(hidden[:, :source]), self._per_network(labels))
            between = distance(hidden[:, :source], hidden[:, source:]) if hidden.shape[1] > source else 0 * loss
            self._optimizer.zero_grad()
            (loss + weights * between).sum().backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            self._decay.step()
            total += torch.stack([loss.detach(), between.detach()])
        figures = (total / len(self._batches)).double().cpu().numpy()[:, self._positions()]
        return EpochFigures(figures[0], figures[1])

    def validate(self) -> ValidationFigures:
        """Evaluate every network on the held-out source rows of its task."""
        with torch.no_grad():
            outputs, labels = self._outputs(self._hidden(self._validation)), self._per_network(self._validation_labels)
            loss = cross_entropy(outputs, labels)
            accuracy = (outputs.argmax(-1) == labels).double().mean(-1)
            figures = torch.stack([loss.double(), accuracy]).cpu().numpy()[:, self._positions()]
        return ValidationFigures(figures[0], figures[1])

    def layers(self, index: int) -> list[Layer]:
        """Return a copy of the weights of one network."""
        position = self._positions()[index]
        task, member = divmod(position, len(self._members))
        bottom, bias, top, top_bias = (parameter.detach() for parameter in self._parameters)
        units = top.shape[1]
        place = slice(member * units, (member + 1) * units)
        parts = (bottom[task, :, place], bias[task, 0, place], top[position], top_bias[position, 0])
        weight, lower, upper, last = (part.cpu().numpy().copy() for part in parts)
        return [Layer(weight, lower), Layer(upper, last)]

    def retain(self, indices: Sequence[int]) -> None:
        """Go on with these networks; a task none of whose networks trains any more is dropped."""
        self._active = [self._active[index] for index in indices]
        alive = {network // len(self._members) for network in self._active}
        kept = [position for position, task in enumerate(self._tasks) if task in alive]
        if len(kept) == len(self._tasks):
            return
        networks = [p * len(self._members) + m for p in kept for m in range(len(self._members))]
        for number, parameter in enumerate(self._parameters):
            chosen = torch.tensor(kept if number < 2 else networks, device=self._device)
            for name, value in self._optimizer.state[parameter].items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    self._optimizer.state[parameter][name] = value[chosen]
            parameter.data, parameter.grad = parameter.data[chosen], None
        self._tasks = [self._tasks[position] for position in kept]
        self._batches = [(rows[kept], labels[kept]) for rows, labels in self._batches]
        if hasattr(self, "_validation"):
            self._validation, self._validation_labels = self._validation[kept], self._validation_labels[kept]

    def _positions(self) -> list[int]:
        """Where the networks that still train stand among those that are computed."""
        place = {task: position for position, task in enumerate(self._tasks)}
        size = len(self._members)
        return [place[network // size] * size + network % size for network in self._active]

    def _hidden(self, rows: Tensor) -> Tensor:
        """Activations (networks, rows, units) of all networks by one batched product."""
        bottom, bias = self._parameters[:2]
        units = self._parameters[2].shape[1]
        together = torch.sigmoid(torch.baddbmm(bias, rows, bottom))
        apart = together.view(*together.shape[:2], len(self._members), units).transpose(1, 2)
        return apart.reshape(-1, together.shape[1], units)

    def _outputs(self, hidden: Tensor) -> Tensor:
        return torch.baddbmm(self._parameters[3], hidden, self._parameters[2])

    def _per_network(self, labels: Tensor) -> Tensor:
        return labels.repeat_interleave(len(self._members), 0)

    def _parameter(self, values: np.ndarray) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self._device, requires_grad=True)

    def _labels(self, labels: Sequence[np.ndarray]) -> Tensor:
        return torch.tensor(np.stack(labels), device=self._device)

    def _stack(self, blocks: Sequence[Matrix]) -> Tensor:
        return torch.stack([_to_device(rows, self._device) for rows in blocks])


def _joined(task: Task, rows: np.ndarray, others: np.ndarray | None) -> list[Matrix]:
    return [task.source[rows]] if others is None or task.target is None else [task.source[rows], task.target[others]]


def _to_device(rows: Matrix | list[Matrix], device: torch.device) -> Tensor:
    """Dense rows on the device; sparse ones travel as they are and are spread out there."""
    if isinstance(rows, list):
        return torch.cat([_to_device(block, device) for block in rows])
    if not hasattr(rows, "tocoo"):
        return torch.tensor(rows, dtype=torch.float32, device=device)
    entries = rows.tocoo()
    dense = torch.zeros(entries.shape, dtype=torch.float32, device=device)
    places = tuple(torch.tensor(part, dtype=torch.int64, device=device) for part in (entries.row, entries.col))
    return dense.index_put_(places, torch.tensor(entries.data, dtype=torch.float32, device=device))

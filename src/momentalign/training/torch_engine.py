"""The batched engine: the weights of all networks stacked, every update one batched product (Algorithm 1).

Made for GPUs and for anything unusual (any callable distance, several hidden layers); gradients by autograd.

The distance term of Eq. (24) for a stack: one value per network, each with its own distance.

Networks that use a distance of this library are computed together; any other callable is called network by network.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from momentalign.discrepancies.base import DistanceLoss, Stacked, StackedDomains, stack_key
from momentalign.discrepancies.domain_pairs import average_over_pairs
from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import Layer, Matrix
from momentalign.training.config import (
    Distance,
    EpochFigures,
    LossName,
    NetworkSpec,
    Optimizer,
    Rows,
    Task,
    TrainingConfig,
    ValidationFigures,
    domain_sizes,
)

__all__ = [
    "HUBER_DELTA",
    "BatchedEngine",
    "RowReader",
    "StackDistance",
    "absolute_error",
    "cross_entropy",
    "huber_error",
    "make_optimizer",
    "one_thread",
    "open_device",
    "own_distances",
    "squared_error",
    "stack_weights",
]


StackWeights: TypeAlias = Mapping[type, Sequence[Tensor]]


class StackDistance:
    """Distances (stack,) of stacked activations (stack, rows, width).

    `weights` are those of :func:`stack_weights`, which the distances train along with the networks.
    """

    def __init__(self, specs: Sequence[NetworkSpec], weights: StackWeights | None = None) -> None:
        together: dict[object, list[int]] = {}
        for index, spec in enumerate(specs):
            if spec.distance is not None and spec.weight:
                domain_weights = spec.domain_weights
                numbers = domain_weights if isinstance(domain_weights, str) else tuple(domain_weights)
                key = (stack_key(spec.distance) or index, spec.between, numbers)
                together.setdefault(key, []).append(index)
        self._groups = [_Group(specs, indices, weights or {}) for indices in together.values()]

    @property
    def needed(self) -> bool:
        """Whether any network has a distance at all."""
        return bool(self._groups)

    def __call__(
        self, source: Tensor, target: Tensor, sizes: tuple[Sequence[int], Sequence[int]] | None = None
    ) -> Tensor:
        """Return one distance per network; zero for a network without.

        `sizes` are the numbers of rows of each source and of each target, one after the other in the batches, where
        there are several.
        """
        values = source.new_zeros(source.shape[0])
        for group in self._groups:
            if len(group.indices) == source.shape[0]:
                return group.distances(source, target, sizes, None)
            chosen = group.chosen(source.device)
            parts = source.index_select(0, chosen), target.index_select(0, chosen)
            values = values.index_put((chosen,), group.distances(*parts, sizes, chosen))
        return values


class _Group:
    """Networks of a stack whose distances are computed together, and what is compared where domains are several."""

    def __init__(self, specs: Sequence[NetworkSpec], indices: list[int], weights: StackWeights) -> None:
        own = [specs[index] for index in indices]
        losses = [spec.distance for spec in own]
        first, between, domain_weights = losses[0], own[0].between, own[0].domain_weights
        self.indices = indices
        self._chosen: Tensor | None = None
        self._weights: Sequence[Tensor] = ()
        self._stacked: Stacked
        self._for_domains: StackedDomains
        if isinstance(first, DistanceLoss) and stack_key(first) is not None:
            self._weights = weights.get(type(first), ())
            self._stacked = first.stack(losses)
            self._for_domains = first.for_domains(losses, between, domain_weights)
        else:
            assert first is not None  # noqa: S101  (networks without a distance are in no group)
            self._stacked = partial(_call, first)
            self._for_domains = average_over_pairs(self._stacked, between, domain_weights, repr(first))

    def chosen(self, device: torch.device) -> Tensor:
        """Return the indices as a tensor, put on the device once: a recorded epoch may not copy from the host."""
        if self._chosen is None:
            self._chosen = torch.tensor(self.indices, device=device)
        return self._chosen

    def distances(
        self,
        source: Tensor,
        target: Tensor,
        sizes: tuple[Sequence[int], Sequence[int]] | None,
        chosen: Tensor | None,
    ) -> Tensor:
        """Return the distances of the networks of this group, whose activations are given."""
        weights = self._weights if chosen is None else [part.index_select(0, chosen) for part in self._weights]
        if sizes is None:
            return self._stacked(source, target, *weights)
        return self._for_domains(
            torch.split(source, list(sizes[0]), -2), torch.split(target, list(sizes[1]), -2), *weights
        )


def own_distances(specs: Sequence[NetworkSpec]) -> list[NetworkSpec]:
    """Return the networks with copies of the distances that are called one by one: some learn from what they are given.

    So a network in a stack is the network alone, and training changes no object of the caller's.
    """
    return [
        replace(spec, distance=copy.deepcopy(spec.distance))
        if isinstance(spec.distance, nn.Module) and stack_key(spec.distance) is None
        else spec
        for spec in specs
    ]


def stack_weights(
    specs: Sequence[NetworkSpec], width: int, *, dtype: torch.dtype, device: torch.device
) -> dict[type, list[Tensor]]:
    """Return the weights that the distances of a stack train, by the class of the distance; all start from zero.

    Every network has some, also one that does not use them. They are those of no loss object, whatever its state.
    """
    kinds = {type(spec.distance): spec.distance for spec in specs if isinstance(spec.distance, DistanceLoss)}
    shapes = {kind: distance.stack_weights(width) for kind, distance in kinds.items()}
    return {
        kind: [torch.zeros(len(specs), *shape, dtype=dtype, device=device, requires_grad=True) for shape in own]
        for kind, own in shapes.items()
        if own
    }


def _call(distance: Distance, source: Tensor, target: Tensor) -> Tensor:
    if isinstance(distance, nn.Module) and any(True for _ in distance.parameters()):
        raise InvalidInputError(
            f"discrepancy {type(distance).__name__} has weights of its own, which a stack does not train; use "
            '"dann" or AdversarialLoss without hidden layers, or train with your own loop.'
        )
    value = distance(source[0], target[0])
    attached = isinstance(value, Tensor) and (value.requires_grad or not source.requires_grad)
    if isinstance(value, Tensor) and value.ndim == 0 and (attached or not torch.is_grad_enabled()):
        return value[None]
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
    raise InvalidInputError(
        "discrepancy must return a scalar torch tensor that depends on the activations it was given, got "
        f"{type(value).__name__}{shape}; return for instance difference.square().sum()."
    )


# In deviations of the values that are learned: smaller differences count by their square, larger ones by their size.
HUBER_DELTA = 0.25


class BatchedEngine:
    """Trains a stack of networks with torch on any device."""

    def __init__(
        self,
        task: Task,
        config: TrainingConfig,
        specs: Sequence[NetworkSpec],
        *,
        device: str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        with _own_settings():
            self._build(task, config, specs, device, dtype)

    def _build(
        self, task: Task, config: TrainingConfig, specs: Sequence[NetworkSpec], device: str, dtype: torch.dtype | None
    ) -> None:
        self._device = open_device(device)
        if dtype is None:
            # Products of stacked and of single networks are rounded differently; in float64 nobody can tell.
            dtype = torch.float64 if self._device.type == "cpu" else torch.float32
        self._dtype = dtype
        self._members = own_distances(specs)
        self._epoch = config.epoch(task)
        self._domains = (task.source_domains, task.target_domains) if task.has_several_domains else None
        self._source = RowReader(task.source, self._device, dtype)
        self._target = None if task.target is None else RowReader(task.target, self._device, dtype)
        self._loss, self._accuracy = LOSSES[config.loss]
        self._labels = torch.as_tensor(task.labels, device=self._device)
        if task.validation is not None and task.validation_labels is not None:
            self._validation = RowReader(task.validation, self._device, dtype)
            self._validation_labels = torch.as_tensor(task.validation_labels, device=self._device)
            self._validation_rows = np.arange(task.validation.shape[0])
        starts = [spec.start(task, config) for spec in specs]
        self._parameters = [
            torch.tensor(np.stack(values), dtype=dtype, device=self._device, requires_grad=True)
            for layer in zip(*starts, strict=True)
            for values in ([part.weight for part in layer], [part.bias[None] for part in layer])
        ]
        self._of_distances = stack_weights(specs, config.hidden[-1], dtype=dtype, device=self._device)
        self._trained = [*self._parameters, *self._distance_weights()]
        self._optimizer = make_optimizer(config.optimizer, self._trained)
        self._decay = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda update: 1.0 / (1.0 + config.optimizer.decay * update)
        )
        self._prepare()

    def _prepare(self) -> None:
        """Set what depends on which networks are left."""
        self._distance = StackDistance(self._members if self._target is not None else [], self._of_distances)
        self._weights = torch.tensor([spec.weight for spec in self._members], dtype=self._dtype, device=self._device)

    def _distance_weights(self) -> list[Tensor]:
        return [part for own in self._of_distances.values() for part in own]

    def run_epochs(self, count: int) -> list[EpochFigures]:
        """Train every network for some epochs."""
        return [self.run_epoch() for _ in range(count)]

    def run_epoch(self) -> EpochFigures:
        """Train every network for one epoch."""
        with _own_settings():
            figures = torch.stack([self._update(*rows) for rows in self._epoch]).mean(0)
        source_loss, distance = figures.double().cpu().numpy()
        return EpochFigures(source_loss, distance)

    def _update(self, source_rows: Rows, target_rows: Rows | None) -> Tensor:
        """Make one gradient step, Eq. (25), and return losses and distances (2, stack) before it."""
        source, outputs = self._forward(self._source(source_rows))
        loss = self._loss(outputs, self._labels[torch.as_tensor(source_rows, device=self._device)])
        distance = torch.zeros_like(loss)
        if self._distance.needed and self._target is not None and target_rows is not None:
            target = self._hidden(self._target(target_rows))
            distance = self._distance(source, target, self._sizes(source_rows, target_rows))
        self._optimizer.zero_grad()
        (loss + self._weights * distance).sum().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._decay.step()
        return torch.stack([loss.detach(), distance.detach()])

    def _sizes(self, source_rows: Rows, target_rows: Rows) -> tuple[list[int], list[int]] | None:
        """Rows of each source and of each target in a batch; None for one of each."""
        if self._domains is None:
            return None
        return domain_sizes(self._domains[0], source_rows), domain_sizes(self._domains[1], target_rows)

    def validate(self) -> ValidationFigures:
        """Evaluate every network on the held-out source rows."""
        with _own_settings(), torch.no_grad():
            _, outputs = self._forward(self._validation(self._validation_rows))
            loss = self._loss(outputs, self._validation_labels)
            accuracy = self._accuracy(outputs, self._validation_labels)
        return ValidationFigures(loss.double().cpu().numpy(), accuracy.cpu().numpy())

    def layers(self, index: int) -> list[Layer]:
        """Return a copy of the weights of one network."""
        arrays = [parameter[index].detach().cpu().numpy().copy() for parameter in self._parameters]
        return [Layer(weight, bias[0]) for weight, bias in zip(arrays[::2], arrays[1::2], strict=True)]

    def retain(self, indices: Sequence[int]) -> None:
        """Go on with these networks only; the optimizer's state is cut along with the weights."""
        chosen = torch.tensor(indices, device=self._device)
        self._members = [self._members[index] for index in indices]
        for parameter in self._trained:
            state = self._optimizer.state[parameter]
            for name, value in state.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    state[name] = value[chosen]
            parameter.data = parameter.data[chosen]
            parameter.grad = None
        self._prepare()

    def _hidden(self, rows: Tensor) -> Tensor:
        for weight, bias in zip(self._parameters[:-2:2], self._parameters[1:-2:2], strict=True):
            rows = torch.sigmoid(torch.matmul(rows, weight) + bias)
        return rows

    def _forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self._hidden(rows)
        return hidden, torch.matmul(hidden, self._parameters[-2]) + self._parameters[-1]


class RowReader:
    """Rows of a matrix as tensors: dense data move to the device once, sparse rows are made dense batch by batch."""

    def __init__(self, matrix: Matrix, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._sparse = matrix if hasattr(matrix, "tocsr") else None
        self._dense = None if self._sparse is not None else torch.tensor(matrix, dtype=dtype, device=device)

    def __call__(self, rows: Rows) -> Tensor:
        """Return some rows, by their numbers."""
        if self._dense is None:
            assert self._sparse is not None  # noqa: S101
            return torch.tensor(self._sparse[rows].toarray(), dtype=self._dtype, device=self._device)
        if len(rows) == len(self._dense) and _in_order(rows):
            return self._dense
        return self._dense[torch.as_tensor(rows, device=self._device)]


def _in_order(rows: Rows) -> bool:
    return bool(rows[0] == 0 and (np.diff(rows) == 1).all())


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log probability of the right class, Eq. (22), for outputs (stack, rows, classes).

    Labels (rows,) are those of every network, or (stack, rows) each network's own.
    """
    chosen = outputs.gather(-1, labels.expand(outputs.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    return (outputs.logsumexp(-1) - chosen).mean(-1)


def squared_error(outputs: Tensor, values: Tensor) -> Tensor:
    """Mean squared difference of outputs (stack, rows, outputs) from values (rows, outputs), one mean per network."""
    return (outputs - values).square().mean((-2, -1))


def absolute_error(outputs: Tensor, values: Tensor) -> Tensor:
    """Mean size of the differences of outputs (stack, rows, outputs) from values (rows, outputs)."""
    return (outputs - values).abs().mean((-2, -1))


def huber_error(outputs: Tensor, values: Tensor) -> Tensor:
    r"""Mean of Huber's function of the differences of outputs (stack, rows, outputs) from values (rows, outputs).

    It is :math:`r^2` for :math:`|r| \le \delta` and :math:`\delta (2 |r| - \delta)` beyond, with :math:`\delta` =
    ``HUBER_DELTA``: the squared difference with a slope that stops growing (Huber 1964, twice his function).
    """
    size = (outputs - values).abs()
    within = size.clamp(max=HUBER_DELTA)
    return (within * (2.0 * size - within)).mean((-2, -1))


def _accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.argmax(-1) == labels).double().mean(-1)


def _no_accuracy(outputs: Tensor, values: Tensor) -> Tensor:  # noqa: ARG001
    return outputs.new_full(outputs.shape[:1], torch.nan)


LOSSES: dict[LossName, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "cross_entropy": (cross_entropy, _accuracy),
    "squared": (squared_error, _no_accuracy),
    "absolute": (absolute_error, _no_accuracy),
    "huber": (huber_error, _no_accuracy),
}
"""What is minimised on the source, and what says how often it is right."""


def make_optimizer(optimizer: Optimizer, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """Element-wise rules, so that stacked weights are trained as if alone."""
    if optimizer.name == "adagrad":
        return torch.optim.Adagrad(parameters, lr=optimizer.rate, eps=1e-8)
    if optimizer.name == "adadelta":
        return torch.optim.Adadelta(parameters, lr=optimizer.rate, rho=0.95, eps=1e-8)
    if optimizer.name == "sgd":
        return torch.optim.SGD(parameters, lr=optimizer.rate, momentum=optimizer.momentum)
    return torch.optim.Adam(parameters, lr=optimizer.rate)


def open_device(name: str) -> torch.device:
    """Return a device that works, or say why it does not."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidInputError(
            f'device {name!r} cannot be used ({reason}); try device="cpu" or device="auto".'
        ) from None
    return device


@contextmanager
def _own_settings() -> Iterator[None]:
    """Train the same whatever the caller has set: gradients on, no autocast, one thread; all is put back after."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False), one_thread():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: the number of threads would change float32 weights in the third digit."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

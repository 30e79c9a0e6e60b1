"""Training with torch: the weights of all networks stacked, gradients by autograd (Algorithm 1).

For accelerators and for anything unusual: any callable distance, several hidden layers, continuous targets. Each
network has its own distance: those of this library are computed together, any other callable network by network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from momentalign.discrepancies.base import DistanceLoss, Stacked, StackedDomains
from momentalign.discrepancies.several_domains import Between, average_over_pairs
from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import Layer, Matrix
from momentalign.training.config import (
    Distance,
    Engine,
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
from momentalign.training.target_loss import epochs_between_shares, target_loss

__all__ = [
    "HUBER_DELTA",
    "Batch",
    "BatchedEngine",
    "StackDistance",
    "TorchEngine",
    "cross_entropy",
    "make_optimizer",
    "one_thread",
    "open_device",
    "own_distances",
    "own_settings",
    "stack_weights",
]

# In standard deviations of the targets: smaller errors count by their square, larger ones by their size.
HUBER_DELTA = 0.25

Sizes: TypeAlias = tuple[Sequence[int], Sequence[int]]
StackWeights: TypeAlias = Mapping[type, Sequence[Tensor]]


class Batch(NamedTuple):
    """The rows of one update on the device, their labels, and how many rows each source and each target has in it.

    A layout that computes both domains in one product has its target rows behind the source rows in `source`.
    """

    source: Tensor
    target: Tensor | None
    labels: Tensor
    sizes: tuple[list[int], list[int]] | None = None


class TorchEngine(Engine):
    """A stack of networks trained with torch: loss, distance and gradient step; subclasses lay out rows and weights.

    `specs` are those of all networks that are computed, in the order of the values that losses and distances have.
    """

    _parameters: list[Tensor]
    _shown: slice | list[int] = slice(None)
    """Which of the computed networks still train, in order."""

    def __init__(
        self, config: TrainingConfig, specs: Sequence[NetworkSpec], *, device: str, dtype: torch.dtype | None = None
    ) -> None:
        self._device = open_device(device)
        # Products of stacked and of single networks are rounded differently; in float64 nobody can tell.
        self._dtype = dtype or (torch.float64 if self._device.type == "cpu" else torch.float32)
        self._config, self._specs = config, own_distances(specs)
        self._loss = LOSSES[config.loss]
        self._updates, self._rate = 0, config.optimizer.rate

    def _start(self, parameters: list[Tensor]) -> None:
        """Take over the weights training starts from."""
        self._parameters = [part.requires_grad_() for part in parameters]
        width = self._config.hidden[-1]
        self._of_distances = stack_weights(self._specs, width, dtype=self._dtype, device=self._device)
        self._optimizer = make_optimizer(self._config.optimizer, [*self._parameters, *self._distance_weights()])
        self._prepare(self._specs)

    def _prepare(self, specs: Sequence[NetworkSpec]) -> None:
        """Set what depends on which networks are computed."""
        self._specs = list(specs)
        self._distance = StackDistance(self._specs, self._of_distances)
        self._weights = torch.tensor([spec.weight for spec in self._specs], dtype=self._dtype, device=self._device)
        self._sharpen = torch.tensor([spec.sharpen for spec in self._specs], dtype=self._dtype, device=self._device)
        self._sharpens = any(spec.sharpen for spec in self._specs)
        self._looks_at_target = self._distance.needed or self._sharpens

    def _distance_weights(self) -> list[Tensor]:
        return [part for own in self._of_distances.values() for part in own]

    def run_epochs(self, count: int) -> list[EpochFigures]:
        """Train every network for some epochs."""
        with own_settings(self._device):
            return [EpochFigures(*self._epoch().double().cpu().numpy()[:, self._shown]) for _ in range(count)]

    def _epoch(self) -> Tensor:
        """Make the updates of one epoch and return mean losses and distances (2, networks)."""
        batches = list(self._batches())
        if self._sharpens and (self._updates // len(batches)) % epochs_between_shares(len(batches)) == 0:
            self._look_up_shares(batches)
        return torch.stack([self._update(batch) for batch in batches]).mean(0)

    def _look_up_shares(self, batches: Sequence[Batch]) -> None:
        """Take the class shares that each network predicts for the target rows of an epoch."""
        with torch.no_grad():
            rows = [batch.target for batch in batches if batch.target is not None]
            found = [self._outputs(self._hidden(part)).softmax(-1).sum(-2) for part in rows]
            self._shares = torch.stack(found).sum(0) / sum(part.shape[-2] for part in rows)

    def _update(self, batch: Batch) -> Tensor:
        """Make one gradient step, Eq. (25), and return losses and distances (2, networks) before it."""
        source, target = self._activations(batch)
        loss = self._loss(self._outputs(source), batch.labels)
        distance = torch.zeros_like(loss) if target is None else self._distance(source, target, batch.sizes)
        objective = loss + self._weights * distance
        if self._sharpens and target is not None:
            objective = objective + self._sharpen * target_loss(self._outputs(target), self._shares)
        self._optimizer.zero_grad()
        objective.sum().backward()  # type: ignore[no-untyped-call]
        optimizer = self._config.optimizer
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * (1.0 / (1.0 + optimizer.decay * self._updates))
        self._optimizer.step()
        self._updates += 1
        return torch.stack([loss.detach(), distance.detach()])

    def validate(self) -> ValidationFigures:
        """Evaluate every network on the held-out source rows."""
        with own_settings(self._device), torch.no_grad():
            rows, labels = self._held_out()
            found = self._outputs(self._hidden(rows))
            loss = self._loss(found, labels).double()
            accuracy = torch.full_like(loss, torch.nan)
            if self._config.loss == "cross_entropy":
                accuracy = (found.argmax(-1) == labels).double().mean(-1)
            figures = torch.stack([loss, accuracy])
        return ValidationFigures(*figures.cpu().numpy()[:, self._shown])

    def _cut(self, cut: Callable[[int, Tensor], Tensor]) -> None:
        """Cut weights and the state of the optimizer down; `cut` is given the number of a parameter and its values."""
        for number, parameter in enumerate((*self._parameters, *self._distance_weights())):
            state = self._optimizer.state[parameter]
            for name, value in state.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    state[name] = cut(number, value)
            parameter.data, parameter.grad = cut(number, parameter.data), None

    def _as_layers(self, parts: Sequence[Tensor]) -> list[Layer]:
        """Copies of weights and biases as layers: arrays, or tensors that stay on an accelerator until the end."""
        copies: list[Any] = [part.detach().clone() for part in parts]
        if self._device.type == "cpu":
            copies = [part.numpy() for part in copies]
        return [Layer(weight, bias) for weight, bias in zip(copies[::2], copies[1::2], strict=True)]

    def _batches(self) -> Iterable[Batch]:
        raise NotImplementedError

    def _held_out(self) -> tuple[Tensor, Tensor]:
        """The held-out rows and their labels."""
        raise NotImplementedError

    def _activations(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Hidden activations of source and target; None where no network compares them."""
        raise NotImplementedError

    def _hidden(self, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def _outputs(self, hidden: Tensor) -> Tensor:
        raise NotImplementedError


class EngineState(NamedTuple):
    """What an engine knows beside the weights of its network: what training takes along to other rows."""

    distance: Any
    """A distance may have taken its interval from the first rows it saw."""
    distance_weights: list[Tensor]
    sums: dict[str, Any]
    """What the optimizer has summed up."""
    updates: int


class BatchedEngine(TorchEngine):
    """One task on any device, with any number of hidden layers; the weights of all networks are stacked."""

    def __init__(
        self,
        task: Task,
        config: TrainingConfig,
        specs: Sequence[NetworkSpec],
        *,
        device: str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(config, specs, device=device, dtype=dtype)
        with own_settings(self._device):
            self.take(task)
            if task.validation is not None and task.validation_labels is not None:
                self._validation = RowReader(task.validation, self._device, self._dtype)
                self._validation_labels = torch.as_tensor(task.validation_labels, device=self._device)
            starts = [spec.start(task, config) for spec in specs]
            stacked = [
                Layer(np.stack([part.weight for part in layer]), np.stack([part.bias[None] for part in layer]))
                for layer in zip(*starts, strict=True)
            ]
            self._start([torch.tensor(part, dtype=self._dtype, device=self._device) for part in chain(*stacked)])

    def take(self, task: Task) -> None:
        """Go on with the rows of this task; what is held out stays."""
        self._epoch_rows = self._config.epoch(task)
        self._domains = (task.source_domains, task.target_domains) if task.has_several_domains else None
        # What was moved last goes before the next is.
        self._source = self._target = None
        self._source = RowReader(task.source, self._device, self._dtype)
        self._target = None if task.target is None else RowReader(task.target, self._device, self._dtype)
        self._labels = torch.as_tensor(task.labels, device=self._device)

    def _batches(self) -> Iterator[Batch]:
        assert self._source is not None  # noqa: S101  (take has been called)
        for rows, others in self._epoch_rows:
            target = None
            if self._target is not None and others is not None and self._looks_at_target:
                target = self._target(others)
            labels = self._labels[torch.as_tensor(rows, device=self._device)]
            yield Batch(self._source(rows), target, labels, self._sizes(rows, others))

    def _sizes(self, rows: Rows, others: Rows | None) -> tuple[list[int], list[int]] | None:
        """Rows of each source and of each target in a batch; None for one of each."""
        if self._domains is None or others is None:
            return None
        return domain_sizes(self._domains[0], rows), domain_sizes(self._domains[1], others)

    def _held_out(self) -> tuple[Tensor, Tensor]:
        return self._validation(np.arange(len(self._validation_labels))), self._validation_labels

    def _activations(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        return self._hidden(batch.source), None if batch.target is None else self._hidden(batch.target)

    def _hidden(self, rows: Tensor) -> Tensor:
        weights, biases = self._parameters[:-2:2], self._parameters[1:-2:2]
        for weight, bias in zip(weights, biases, strict=True):
            rows = (rows @ weight + bias).sigmoid()
        return rows

    def _outputs(self, hidden: Tensor) -> Tensor:
        return hidden @ self._parameters[-2] + self._parameters[-1]

    def layers(self, index: int) -> list[Layer]:
        """Return a copy of the weights of one network."""
        weights, biases = self._parameters[::2], self._parameters[1::2]
        return self._as_layers(
            [part for weight, bias in zip(weights, biases, strict=True) for part in (weight[index], bias[index, 0])]
        )

    def keep_only(self, indices: Sequence[int]) -> None:
        """Train these networks only; the optimizer's state is cut along with the weights."""
        chosen = torch.tensor(indices, device=self._device)
        self._cut(lambda _, values: values[chosen])
        if self._sharpens:
            self._shares = self._shares[chosen]
        self._prepare([self._specs[index] for index in indices])

    def state(self) -> EngineState:
        """Return a copy of all that is no weight of the only network."""
        weights = [part.detach().clone() for part in self._distance_weights()]
        sums = deepcopy(self._optimizer.state_dict()["state"])
        return EngineState(self._specs[0].distance, weights, sums, self._updates)

    def restore(self, state: EngineState) -> None:
        """Take over a copy of what :meth:`state` returned."""
        self._prepare(own_distances([replace(self._specs[0], distance=state.distance)]))
        for part, value in zip(self._distance_weights(), state.distance_weights, strict=True):
            part.data.copy_(value)
        # The learning rate is that of now: only what was summed up goes on.
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": deepcopy(state.sums), "param_groups": groups})
        self._updates = state.updates


class StackDistance:
    """Distances (stack,) of stacked activations (stack, rows, width).

    `weights` are those of :func:`stack_weights`, which the distances train along with the networks.
    """

    def __init__(self, specs: Sequence[NetworkSpec], weights: StackWeights | None = None) -> None:
        together: dict[tuple[Any, bool, Between, Any], list[int]] = {}
        for index, spec in enumerate(specs):
            if spec.distance is not None and spec.weight:
                domain_weights = spec.domain_weights
                numbers = domain_weights if isinstance(domain_weights, str) else tuple(domain_weights)
                own_key = _stack_key(spec.distance)
                key = (index if own_key is None else own_key, own_key is not None, spec.between, numbers)
                together.setdefault(key, []).append(index)
        self._groups = [
            _Group([specs[index] for index in indices], indices, weights or {}, stacked=key[1])
            for key, indices in together.items()
        ]

    @property
    def needed(self) -> bool:
        """Whether any network has a distance at all."""
        return bool(self._groups)

    def __call__(self, source: Tensor, target: Tensor, sizes: Sizes | None = None) -> Tensor:
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

    def __init__(self, own: Sequence[NetworkSpec], indices: list[int], weights: StackWeights, *, stacked: bool) -> None:
        losses = [spec.distance for spec in own]
        first, between, domain_weights = losses[0], own[0].between, own[0].domain_weights
        self.indices = indices
        self._chosen: Tensor | None = None
        self._weights: Sequence[Tensor] = ()
        self._stacked: Stacked
        self._for_domains: StackedDomains
        if isinstance(first, DistanceLoss) and stacked:
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
        sizes: Sizes | None,
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
    """Return the networks with copies of their distances: some learn from what they are given.

    So a network in a stack is the network alone, and training changes no object of the caller's.
    """
    return [
        replace(spec, distance=deepcopy(spec.distance)) if isinstance(spec.distance, nn.Module) else spec
        for spec in specs
    ]


def _stack_key(distance: object) -> tuple[type[DistanceLoss], Hashable] | None:
    """What tells which distances are computed together; None for any that is called network by network."""
    key = distance.stack_key if isinstance(distance, DistanceLoss) else None
    return None if key is None else (type(distance), key)  # type: ignore[return-value]


def stack_weights(
    specs: Sequence[NetworkSpec], width: int, *, dtype: torch.dtype, device: torch.device
) -> dict[type, list[Tensor]]:
    """Return the weights that the distances of a stack train, by the class of the distance; all start from zero.

    Every network has some, also one that does not use them. They are those of no loss object, whatever its state.
    """
    distances = [spec.distance for spec in specs if isinstance(spec.distance, DistanceLoss)]
    shapes = {type(distance): distance.stack_weights(width) for distance in distances}
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
        if len(rows) == len(self._dense) and rows[0] == 0 and (np.diff(rows) == 1).all():
            return self._dense
        return self._dense[torch.as_tensor(rows, device=self._device)]


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log probability of the right class, Eq. (22), for outputs (stack, rows, classes).

    Labels (rows,) are those of every network, or (stack, rows) each network's own.
    """
    chosen = outputs.gather(-1, labels.expand(outputs.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    return (outputs.logsumexp(-1) - chosen).mean(-1)


def huber(differences: Tensor) -> Tensor:
    r"""Return Huber's function of each difference, the square with a slope that stops growing.

    It is :math:`r^2` for :math:`|r| \le \delta` and :math:`\delta (2 |r| - \delta)` beyond, with :math:`\delta` =
    ``HUBER_DELTA`` (Huber 1964, twice his function).
    """
    size = differences.abs()
    within = size.clamp(max=HUBER_DELTA)
    return within * (2.0 * size - within)


def _mean_of(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The mean of a function of outputs (stack, rows, outputs) minus targets (rows, outputs), one per network."""
    return lambda outputs, targets: function(outputs - targets).mean((-2, -1))


LOSSES: dict[LossName, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": cross_entropy,
    "squared": _mean_of(torch.square),
    "absolute": _mean_of(torch.abs),
    "huber": _mean_of(huber),
}
"""What is minimised on the source."""


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
def own_settings(device: torch.device) -> Iterator[None]:
    """Train the same whatever the caller has set: gradients on, no autocast, one thread; all is put back after."""
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast(device.type, enabled=False),
        one_thread(),
    ):
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: the number of threads would change float32 weights in the third digit.

    That of other threads stays as it is, also of those that start meanwhile.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    _set_own_threads(1)
    try:
        yield
    finally:
        _set_own_threads(threads)


def _set_own_threads(number: int) -> None:
    """Set the number of threads of this thread alone.

    torch keeps a number for each thread, and one that a thread takes over at its first computation; setting the first
    sets the second. A thread that has taken it over puts it back.
    """
    known, changed = threading.Event(), threading.Event()

    def put_back() -> None:
        taken_over = torch.get_num_threads()
        known.set()
        changed.wait()
        torch.set_num_threads(taken_over)

    keeper = threading.Thread(target=put_back, daemon=True)
    keeper.start()
    try:
        known.wait()
        torch.set_num_threads(number)
    finally:
        changed.set()
        keeper.join()

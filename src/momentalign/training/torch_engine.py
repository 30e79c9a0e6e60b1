"""The batched engine: the weights of all networks stacked, every update one batched product (Algorithm 1).

Made for GPUs and for anything unusual (any callable distance, several hidden layers); gradients by autograd.

The distance term of Eq. (24) for a stack: one value per network, each with its own distance.

Networks that use a distance of this library are computed together; any other callable is called network by network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from momentalign.discrepancies.adversarial import AdversarialLoss, stacked_adversarial
from momentalign.discrepancies.central_moment import CMDLoss, stacked_terms
from momentalign.discrepancies.coral import CORALLoss, stacked_coral
from momentalign.discrepancies.domain_pairs import Between, DomainWeights, mean_of_pairs
from momentalign.discrepancies.mmd import MMDLoss, stacked_median_betas, stacked_mmd
from momentalign.discrepancies.several_domains import stacked_domains
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
from momentalign.validation import check_interval

__all__ = [
    "HUBER_DELTA",
    "BatchedEngine",
    "RowReader",
    "StackDistance",
    "absolute_error",
    "adversaries",
    "cross_entropy",
    "huber_error",
    "make_optimizer",
    "one_thread",
    "open_device",
    "squared_error",
]


class _Way(NamedTuple):
    """How some networks are computed together: the kind of distance, and what it compares where domains are several."""

    kind: str
    between: Between
    weights: DomainWeights


class StackDistance:
    """Distances (stack,) of stacked activations (stack, rows, width).

    `adversaries` are the weights (stack, width, 1) and biases (stack, 1, 1) of :func:`adversaries`. The MMD compares
    all pairs of rows; of samples larger than `mmd_rows` so many are drawn by `generator`, anew for every call.
    """

    def __init__(
        self,
        specs: Sequence[NetworkSpec],
        adversaries: Sequence[Tensor] = (),
        *,
        mmd_rows: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.specs = list(specs)
        self._adversaries = list(adversaries)
        self._mmd_rows, self._generator = mmd_rows, generator
        self._groups = _group(specs)
        self._kept: dict[str, Tensor] = {}

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
        for way, indices in self._groups.items():
            if len(indices) == source.shape[0]:
                return self._compare(way, indices, source, target, sizes)
            chosen = self._constant(f"{way} specs", indices, source)
            parts = source.index_select(0, chosen), target.index_select(0, chosen)
            values = values.index_put((chosen,), self._compare(way, indices, *parts, sizes))
        return values

    def _compare(
        self,
        way: _Way,
        indices: Sequence[int],
        source: Tensor,
        target: Tensor,
        sizes: tuple[Sequence[int], Sequence[int]] | None,
    ) -> Tensor:
        if sizes is None or way.kind == "dann":  # One domain classifier tells all sources from all targets.
            return self._evaluate(way.kind, indices, source, target)
        sources, targets = torch.split(source, list(sizes[0]), -2), torch.split(target, list(sizes[1]), -2)
        if way.kind.startswith("cmd cross=1 "):
            return self._domains_cmd(way, indices, sources, targets)
        if way.between == "barycentre":
            raise InvalidInputError(
                'between="barycentre" is a mean of moments, which only discrepancy="cmd" compares, got '
                f'{self.specs[indices[0]].distance!r}; try between="pairs" or discrepancy="cmd".'
            )
        samples = [*sources, target] if way.between == "pooled" else [*sources, *targets]
        return mean_of_pairs(
            lambda left, right: torch.stack(
                [self._evaluate(way.kind, indices, samples[d], samples[e]) for d, e in zip(left, right, strict=True)]
            ),
            [sample.shape[-2] for sample in samples],
            len(sources),
            between=way.between,
            weights=way.weights,
        )

    def _domains_cmd(
        self, way: _Way, indices: Sequence[int], sources: Sequence[Tensor], targets: Sequence[Tensor]
    ) -> Tensor:
        """The CMD of several domains: networks together where their orders are the same, else one by one."""
        losses = [loss for loss in (self.specs[index].distance for index in indices) if isinstance(loss, CMDLoss)]
        scale = check_interval(losses[0].interval)
        together = len({loss.n_moments for loss in losses}) == 1
        parts = [slice(None)] if together else [slice(place, place + 1) for place in range(len(losses))]
        return torch.cat(
            [
                stacked_domains(
                    [sample[part] for sample in sources],
                    [sample[part] for sample in targets],
                    loss.n_moments,
                    scale=scale,
                    between=way.between,
                    weights=way.weights,
                )
                for part, loss in zip(parts, losses, strict=False)
            ]
        )

    def _constant(self, name: str, numbers: Sequence[float], like: Tensor) -> Tensor:
        """Numbers as a tensor, put on the device once: a recorded epoch may not copy from the host."""
        if name not in self._kept:
            dtype = torch.float64 if isinstance(numbers[0], float) else torch.int64
            self._kept[name] = torch.tensor(numbers, device=like.device, dtype=dtype)
        return self._kept[name]

    def _evaluate(self, key: str, indices: Sequence[int], source: Tensor, target: Tensor) -> Tensor:
        distances = [self.specs[index].distance for index in indices]
        if key.startswith("cmd"):
            return self._cmd(key, [d for d in distances if isinstance(d, CMDLoss)], source, target)
        if key.startswith("mmd"):
            losses = [d for d in distances if isinstance(d, MMDLoss)]
            return self._mmd(losses, self._some_rows(source), self._some_rows(target))
        if key == "coral":
            return stacked_coral(source, target)
        if key == "dann":
            return stacked_adversarial(source, target, *self._adversaries_of(indices, source))
        (distance,) = distances
        return _call(distance, source[0], target[0])

    def _mmd(self, losses: Sequence[MMDLoss], source: Tensor, target: Tensor) -> Tensor:
        if losses[0].has_median_widths:
            return stacked_mmd(source, target, stacked_median_betas(source, target, losses[0].kernel))
        betas = self._constant("betas", [float(d.beta) for d in losses], source)  # type: ignore[arg-type]
        return stacked_mmd(source, target, betas.to(source.dtype))

    def _some_rows(self, sample: Tensor) -> Tensor:
        if self._mmd_rows is None or sample.shape[1] <= self._mmd_rows:
            return sample
        chosen = torch.randperm(sample.shape[1], generator=self._generator, device=sample.device)[: self._mmd_rows]
        return sample.index_select(1, chosen)

    def _adversaries_of(self, indices: Sequence[int], source: Tensor) -> list[Tensor]:
        if len(indices) == len(self.specs):
            return self._adversaries
        return [part.index_select(0, self._constant("dann specs", indices, source)) for part in self._adversaries]

    def _cmd(self, key: str, losses: Sequence[CMDLoss], source: Tensor, target: Tensor) -> Tensor:
        """All networks up to the highest order among them; each counts its own orders only."""
        orders = [loss.n_moments for loss in losses]
        scale = check_interval(losses[0].interval)
        terms = stacked_terms(source, target, max(orders), scale=scale, cross=losses[0].cross)
        if min(orders) == max(orders):
            return terms.sum(-1)
        limits = self._constant(f"{key} orders", orders, terms)
        return (terms * (torch.arange(max(orders), device=terms.device) < limits[:, None])).sum(-1)


def _group(specs: Sequence[NetworkSpec]) -> dict[_Way, list[int]]:
    """Indices of the networks that can be computed together, by how."""
    groups: dict[_Way, list[int]] = {}
    for index, spec in enumerate(specs):
        if spec.distance is not None and spec.weight:
            weights = spec.domain_weights
            numbers = weights if isinstance(weights, str) else tuple(weights)
            way = _Way(_key(spec.distance, index), spec.between, numbers)
            groups.setdefault(way, []).append(index)
    return groups


def _key(distance: Distance, index: int) -> str:
    if type(distance) is CMDLoss and not distance.unbiased and distance.interval != "data":
        return f"cmd cross={distance.cross} scale={check_interval(distance.interval)}"
    if type(distance) is MMDLoss and distance.is_plain_gaussian:
        return "mmd"
    if type(distance) is MMDLoss and distance.has_median_widths:
        return f"mmd {distance.kernel} median"
    if type(distance) is AdversarialLoss and not distance.hidden:
        return "dann"
    return "coral" if type(distance) is CORALLoss else f"call {index}"


def adversaries(specs: Sequence[NetworkSpec], width: int, *, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return the domain classifiers of a stack, weights and biases from zero, to be trained; none where none is used.

    Each is a linear classifier of its own, whatever the state of the :class:`AdversarialLoss` that asks for it.
    """
    if not any(type(spec.distance) is AdversarialLoss for spec in specs):
        return []
    weight = torch.zeros(len(specs), width, 1, dtype=dtype, device=device)
    bias = torch.zeros(len(specs), 1, 1, dtype=dtype, device=device)
    return [weight.requires_grad_(), bias.requires_grad_()]


def _call(distance: Distance | None, source: Tensor, target: Tensor) -> Tensor:
    if isinstance(distance, nn.Module) and any(True for _ in distance.parameters()):
        raise InvalidInputError(
            f"discrepancy {type(distance).__name__} has weights of its own, which a stack does not train; use "
            '"dann" or AdversarialLoss without hidden layers, or train with your own loop.'
        )
    value = distance(source, target) if distance is not None else None
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
        self._members = list(specs)
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
        self._adversaries = adversaries(specs, config.hidden[-1], dtype=dtype, device=self._device)
        self._optimizer = make_optimizer(config.optimizer, [*self._parameters, *self._adversaries])
        self._decay = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda update: 1.0 / (1.0 + config.optimizer.decay * update)
        )
        self._prepare()

    def _prepare(self) -> None:
        """Set what depends on which networks are left."""
        self._distance = StackDistance(self._members if self._target is not None else [], self._adversaries)
        self._weights = torch.tensor([spec.weight for spec in self._members], dtype=self._dtype, device=self._device)

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
        for parameter in (*self._parameters, *self._adversaries):
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

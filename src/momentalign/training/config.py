"""What a stack of networks is: the task, the config all networks share, and what each has of its own.

Algorithm 1 of Zellinger et al. (2019), for many networks at once. How a stack runs is an engine's business. Batches of
both domains are cut in order and paired as in Section 6.3: the longer domain ends the epoch and the shorter one starts
again from its first batch. Several sources, or several targets, all have their rows in every batch.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from momentalign.discrepancies.several_domains import Between, DomainWeights
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.networks.shallow import Initializer, Layer, Matrix, initial_layers
from momentalign.validation import positive_int

__all__ = [
    "FEWEST_ROWS",
    "Distance",
    "Engine",
    "EpochFigures",
    "History",
    "LossName",
    "NetworkSpec",
    "Optimizer",
    "OptimizerName",
    "Rows",
    "Task",
    "TrainedNetwork",
    "TrainingConfig",
    "ValidationFigures",
    "ValueLossName",
    "batches",
    "count_batches",
    "domain_batches",
    "domain_sizes",
    "paired_batches",
    "with_rows_of_every_domain",
]

Rows = NDArray[np.intp]

# A part with fewer rows has no distribution.
FEWEST_ROWS = 2


def count_batches(rows: int, size: int | None) -> int:
    """Return into how many batches rows are cut; a rest of less than half a batch makes none of its own.

    Moments of a handful of rows say nothing, so no batch is that small unless the sample is.

    Examples
    --------
    >>> [count_batches(rows, 300) for rows in (10, 300, 449, 450, 1400)]
    [1, 1, 1, 2, 5]
    """
    if size is None:
        return 1
    whole, rest = divmod(rows, size)
    return max(1, whole + (2 * rest >= size))


def batches(order: Rows, batch_size: int | None) -> list[Rows]:
    """Cut rows into batches in order; a rest of less than half a batch joins the one before it.

    Examples
    --------
    >>> [len(batch) for batch in batches(np.arange(1400), 300)], [len(batch) for batch in batches(np.arange(1401), 700)]
    ([300, 300, 300, 300, 200], [700, 701])
    """
    size = batch_size or len(order)
    return np.split(order, [size * number for number in range(1, count_batches(len(order), batch_size))])


def domain_batches(domains: Rows | None, order: Rows, batch_size: int | None) -> list[Rows]:
    """Cut rows into batches that hold up to `batch_size` rows of every domain, those of domain 0 first.

    `domains` are the numbers of the domains of all rows, None where there is one. Each domain is cut by itself, so that
    its moments in a batch rest on as many rows as if it were alone; the longest ends the epoch, the others start again.

    Examples
    --------
    >>> [rows.tolist() for rows in domain_batches(np.array([0, 1, 0, 1, 0, 0]), np.arange(6), 2)]
    [[0, 2, 1, 3], [4, 5, 1, 3]]
    """
    if domains is None:
        return batches(order, batch_size)
    own = [batches(order[domains[order] == domain], batch_size) for domain in range(domains.max() + 1)]
    longest = max(map(len, own))
    return [np.concatenate([part[number % len(part)] for part in own]) for number in range(longest)]


def domain_sizes(domains: Rows | None, rows: Rows) -> list[int]:
    """Return how many rows of each domain there are among some rows, as :func:`domain_batches` orders them.

    Examples
    --------
    >>> domain_sizes(np.array([0, 1, 0, 1, 0, 0]), np.array([0, 2, 4, 1]))
    [3, 1]
    """
    return [len(rows)] if domains is None else np.bincount(domains[rows], minlength=domains.max() + 1).tolist()


def paired_batches(source: list[Rows], target: list[Rows]) -> list[tuple[Rows, Rows]]:
    """Pair the batches of one epoch; the shorter list starts again until the longer one ends.

    Examples
    --------
    >>> pairs = paired_batches(batches(np.arange(4), 2), batches(np.arange(6), 2))
    >>> [(s.tolist(), t.tolist()) for s, t in pairs]
    [([0, 1], [0, 1]), ([2, 3], [2, 3]), ([0, 1], [4, 5])]
    """
    if len(source) >= len(target):
        return list(zip(source, cycle(target), strict=False))
    return list(zip(cycle(source), target, strict=False))


OptimizerName: TypeAlias = Literal["adagrad", "adadelta", "sgd", "adam"]
ValueLossName: TypeAlias = Literal["squared", "absolute", "huber"]
LossName: TypeAlias = Literal["cross_entropy", ValueLossName]
Distance: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Figures: TypeAlias = NDArray[np.float64]

# Paper and protocol: Adagrad and SGD 0.01, Adadelta 1, Adam 0.001 (all as in the Keras of 2017).
LEARNING_RATES: dict[OptimizerName, float] = {"adagrad": 0.01, "adadelta": 1.0, "sgd": 0.01, "adam": 0.001}
LARGEST_RATE = 1e38
# What is taken where no optimizer is named. On sparse rows the paper's; on dense ones, where a third of the trainings
# with it ran to the last epoch, Adam was as accurate in a quarter of the time.
ON_SPARSE_ROWS: tuple[OptimizerName, float] = ("adagrad", 0.01)
ON_DENSE_ROWS: tuple[OptimizerName, float] = ("adam", 0.003)


@dataclass(frozen=True)
class Optimizer:
    """The gradient weighting of Eq. (25): Adagrad (26), Adadelta (27), SGD with momentum and decay, or Adam.

    Attributes
    ----------
    name
        ``"adagrad"``, ``"adadelta"``, ``"sgd"`` or ``"adam"``.
    learning_rate
        None takes the paper's: 0.01, 1, 0.01 and 0.001.
    momentum, decay
        For SGD: the momentum, and the learning rate of update t is divided by 1 + decay * t.
    by_rows
        Whether the rows choose another name, and the learning rate where none is given, see :meth:`for_rows`.
    """

    name: OptimizerName = "adagrad"
    learning_rate: float | None = None
    momentum: float = 0.9
    decay: float = 0.0
    by_rows: bool = False
    rate: float = field(init=False)
    """The learning rate in force."""

    def __post_init__(self) -> None:
        if self.name not in get_args(OptimizerName):
            known = ", ".join(get_args(OptimizerName))
            raise InvalidInputError(f"optimizer must be one of {known}, got {self.name!r}.")
        rate = LEARNING_RATES[self.name] if self.learning_rate is None else self.learning_rate
        if isinstance(rate, bool) or not isinstance(rate, numbers.Real):
            raise InvalidTypeError(f"learning_rate must be a positive number or None, got {rate!r}.")
        if not 0 < rate < LARGEST_RATE:
            raise InvalidInputError(f"learning_rate must be a positive number that float32 can hold, got {rate!r}.")
        object.__setattr__(self, "rate", float(rate))

    def for_rows(self, rows: Matrix) -> Optimizer:
        """Return this optimizer, or where rows choose, Adagrad with rate 0.01 for sparse and Adam with 0.003 for dense.

        Examples
        --------
        >>> Optimizer(by_rows=True).for_rows(np.zeros((3, 2))).name
        'adam'
        """
        if not self.by_rows:
            return self
        name, rate = ON_SPARSE_ROWS if sparse.issparse(rows) else ON_DENSE_ROWS
        return Optimizer(name, rate if self.learning_rate is None else self.learning_rate)


@dataclass(frozen=True)
class Task:
    """The data of one adaptation task: float32 matrices (dense or CSR) and labels.

    Labels are codes 0 to n_classes - 1; for a loss of numbers they are float32 numbers (rows, outputs), and `n_classes`
    is the number of outputs.

    `source_domains`, `target_domains` and `validation_domains` number the domain of each row, from 0 on, where there
    are several sources or targets; None is one domain.
    """

    source: Matrix
    labels: NDArray[Any]
    target: Matrix | None
    n_classes: int
    validation: Matrix | None = None
    validation_labels: NDArray[Any] | None = None
    source_domains: Rows | None = None
    target_domains: Rows | None = None
    validation_domains: Rows | None = None

    @property
    def has_several_domains(self) -> bool:
        """Whether there are several sources or several targets."""
        return self.source_domains is not None or self.target_domains is not None

    @property
    def domain_rows(self) -> list[int]:
        """How many rows each source and each target has."""
        sources = domain_sizes(self.source_domains, np.arange(len(self.labels)))
        if self.target is None:
            return sources
        return sources + domain_sizes(self.target_domains, np.arange(self.target.shape[0]))

    def split(self, training: Rows, held_out: Rows | None, target: Rows | None = None) -> Task:
        """Return a task of some source rows, others held out, and of some target rows, each in the order given.

        Held-out rows of domains that would have too few to train on are taken back.
        """
        domains = self.source_domains
        if held_out is not None and domains is not None:
            training, held_out = with_rows_of_every_domain(training, held_out, domains)
        found = replace(
            self,
            source=self.source[training],
            labels=self.labels[training],
            source_domains=None if domains is None else domains[training],
        )
        if held_out is not None and len(held_out):
            found = replace(
                found,
                validation=self.source[held_out],
                validation_labels=self.labels[held_out],
                validation_domains=None if domains is None else domains[held_out],
            )
        if self.target is None or target is None:
            return found
        others = self.target_domains
        return replace(found, target=self.target[target], target_domains=None if others is None else others[target])


def with_rows_of_every_domain(training: Rows, held_out: Rows, domains: Rows | None) -> tuple[Rows, Rows]:
    """Take back the held-out rows of domains that would have too few to train on.

    Examples
    --------
    >>> with_rows_of_every_domain(np.array([0, 1, 2]), np.array([3, 4]), np.array([0, 0, 1, 1, 0]))
    (array([0, 1, 2, 3]), array([4]))
    """
    if domains is None:
        return training, held_out
    few = np.bincount(domains[training], minlength=domains.max() + 1) < FEWEST_ROWS
    back = few[domains[held_out]]
    return np.concatenate([training, held_out[back]]), held_out[~back]


@dataclass(frozen=True)
class TrainingConfig:
    """What all networks of a stack share.

    Attributes
    ----------
    batch_size
        None trains on the whole sample at once.
    patience
        Stop a network after that many epochs without a lower validation loss (training loss where nothing is held out);
        None never stops early.
    keep
        ``"best"`` keeps the epoch with the best validation accuracy, the lower loss among equals; for numbers that with
        the lowest validation loss. ``"last"`` keeps the last.
    snapshot_every
        Keep the weights of every so many epochs; 0 keeps none.
    compiled
        None compiles the loops where a training is long enough; True for short trainings that are done many times.
    loss
        What is minimised on the source beside the distance: ``"cross_entropy"`` of classes, or ``"squared"``,
        ``"absolute"`` or ``"huber"`` differences from numbers, for which no loops are compiled.
    """

    hidden: Sequence[int] = (50,)
    optimizer: Optimizer = field(default_factory=Optimizer)
    batch_size: int | None = 300
    max_epochs: int = 1500
    patience: int | None = 10
    keep: Literal["best", "last"] = "best"
    initializer: Initializer = "glorot_uniform"
    snapshot_every: int = 0
    compiled: bool | None = None
    loss: LossName = "cross_entropy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", _check_hidden(self.hidden))
        for name in ("batch_size", "max_epochs", "patience"):
            value = getattr(self, name)
            if value is not None or name == "max_epochs":
                object.__setattr__(self, name, positive_int(value, name))
        if self.loss not in get_args(LossName):
            raise InvalidInputError(f"loss must be one of {', '.join(get_args(LossName))}, got {self.loss!r}.")

    def for_rows(self, rows: Matrix) -> TrainingConfig:
        """Return the config with the optimizer for these rows, see :meth:`Optimizer.for_rows`."""
        return replace(self, optimizer=self.optimizer.for_rows(rows)) if self.optimizer.by_rows else self

    def epoch(self, task: Task) -> list[tuple[Rows, Rows | None]]:
        """Return the rows of each update of an epoch: pairs of source and target batches."""
        source = domain_batches(task.source_domains, np.arange(len(task.labels)), self.batch_size)
        if task.target is None:
            return [(rows, None) for rows in source]
        target = domain_batches(task.target_domains, np.arange(task.target.shape[0]), self.batch_size)
        return list(paired_batches(source, target))


def _check_hidden(hidden: object) -> tuple[int, ...]:
    """Return the units of the hidden layers, or say what is wrong with them."""
    if isinstance(hidden, str) or not isinstance(hidden, Iterable):
        raise InvalidTypeError(f"hidden must be a sequence of whole numbers, got {hidden!r}; try hidden=(50,).")
    units = [positive_int(number, "hidden", example="(50,)") for number in hidden]
    if not units:
        raise InvalidInputError("hidden is empty, there is no layer to align; try hidden=(50,).")
    return tuple(units)


@dataclass(frozen=True)
class NetworkSpec:
    """What one network of a stack has of its own: seed, weight, distance, and weights to start from.

    `between` and `domain_weights` say what is compared where the task has several sources or targets, see
    :func:`~momentalign.discrepancies.several_domains.multi_domain_cmd`.

    `sharpen`, the weight of :func:`~momentalign.training.target_loss.target_loss`, adds a second phase, see
    :func:`~momentalign.training.stack.train_stack`.
    """

    seed: int
    weight: float = 0.0
    distance: Distance | None = None
    initial: Sequence[Layer] | None = None
    between: Between = "pooled"
    domain_weights: DomainWeights = "equal"
    sharpen: float = 0.0

    def start(self, task: Task, config: TrainingConfig) -> Sequence[Layer]:
        """Return the weights training starts from."""
        if self.initial is not None:
            return self.initial
        sizes = [task.source.shape[1], *config.hidden, task.n_classes]
        return initial_layers(sizes, self.seed, initializer=config.initializer)


class EpochFigures(NamedTuple):
    """Means over the updates of one epoch, one value per network."""

    source_loss: Figures
    distance: Figures


class ValidationFigures(NamedTuple):
    """Loss and accuracy (NaN without classes) on the held-out source rows, one value per network."""

    loss: Figures
    accuracy: Figures


@dataclass
class History:
    """What happened in each epoch of one network."""

    source_loss: list[float] = field(default_factory=list)
    distance: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    validation_accuracy: list[float] = field(default_factory=list)


@dataclass
class TrainedNetwork:
    """A trained network: its weights, the epoch they are from (counted from 1), and how it got there."""

    layers: list[Layer]
    best_epoch: int
    n_epochs: int
    history: History
    snapshots: dict[int, list[Layer]]


class Engine(ABC):
    """How a stack runs: all networks that still train, some epochs a call."""

    @abstractmethod
    def run_epochs(self, count: int) -> list[EpochFigures]:
        """Train every network for some epochs and return the figures of each."""

    @abstractmethod
    def validate(self) -> ValidationFigures:
        """Evaluate every network on the held-out source rows."""

    @abstractmethod
    def layers(self, index: int) -> list[Layer]:
        """Return a copy of the weights of one network."""

    def keep_only(self, indices: Sequence[int]) -> None:  # noqa: B027
        """Train these networks only from now on; an engine of one network has none to drop."""

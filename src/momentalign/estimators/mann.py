"""What classifier and regressor share: fit, partial_fit and fit_chunks, from rows to one trained network (Algorithm 1).

A subclass says what labels are (`_labels`), and what to do with a trained network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from momentalign.discrepancies.names import named_distance
from momentalign.discrepancies.several_domains import (
    Between,
    DomainWeights,
    check_between,
    check_domain_weights,
    refuse_other_count,
)
from momentalign.errors import DivergedError, InvalidInputError, InvalidTypeError
from momentalign.estimators.chunks import HeldOut, read_chunked_domains
from momentalign.estimators.domains import (
    DomainEstimator,
    Domains,
    all_or_nothing,
    as_float32,
    domain_ids,
    read_domains,
    with_rows_of_every_domain,
)
from momentalign.estimators.labels import Labels
from momentalign.moments.streaming import Moments
from momentalign.moments.sums import dense_sums, merged
from momentalign.networks.shallow import Layer, Matrix, activations
from momentalign.progress import epoch_bar
from momentalign.training.chunked import Carried, go_on, train_chunks
from momentalign.training.config import (
    Distance,
    EpochFigures,
    History,
    LossName,
    NetworkSpec,
    Optimizer,
    OptimizerName,
    Task,
    TrainedNetwork,
    TrainingConfig,
)
from momentalign.training.stack import LARGEST_LOSS, train_stack
from momentalign.validation import check_device, check_number, check_seed, naming, positive_int

__all__ = ["LARGEST_WEIGHT", "MOST_HELD_OUT", "BaseMANN", "hidden_moments", "in_chunks", "split_layers"]

# Rows that are predicted at once: bounds the memory that widening to float64 takes.
CHUNK = 16384
# Beyond this the squares of gradients leave float32.
LARGEST_WEIGHT = 1e15
# Rows that fit_chunks holds out, and in memory, unless told otherwise.
MOST_HELD_OUT = 10_000


class BaseMANN(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DomainEstimator, ABC):  # type: ignore[misc]
    """A network whose hidden activations are aligned between two domains; its subclasses say what it learns."""

    _carried: tuple[Any, Carried] | None = None
    """What the optimizer was set to in the last partial_fit, and its state."""

    __metadata_request__partial_fit: ClassVar = {"sample_domain": True}
    __metadata_request__predict: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__score: ClassVar = {"sample_domain": True, "allow_source": True}

    hidden: Sequence[int]
    discrepancy: str | Distance | None
    weight: float | Literal["auto"]
    n_moments: int
    optimizer: OptimizerName
    learning_rate: float | None
    batch_size: int | None
    max_epochs: int
    patience: int | None
    validation_fraction: float
    device: str
    random_state: int | np.random.RandomState | None
    verbose: int
    between: Between
    domain_weights: DomainWeights

    _labels: ClassVar[type[Labels]]
    """What reads the labels."""

    @property
    @abstractmethod
    def _loss(self) -> LossName:
        """What is minimised on the labelled rows."""

    @property
    def _is_automatic(self) -> bool:
        return isinstance(self.weight, str) and self.weight == "auto"

    @abstractmethod
    def _keep_labels(self, labels: Any) -> None:
        """Remember how outputs are turned back into labels."""

    @all_or_nothing
    def fit(self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None, y_target: Any = None) -> Self:
        """Train on labelled source rows and, where given, unlabelled target rows.

        Parameters
        ----------
        X, y
            Source rows (array, DataFrame or CSR matrix) and their labels; with `sample_domain` the rows of all domains.
        X_target
            Target rows, with the same columns. Inside the searches and validations of scikit-learn use `sample_domain`:
            they cut any argument as long as `X` like its rows.
        sample_domain
            One id per row of `X`: positive for sources, negative for targets, whose entries in `y` are not looked at.
            Where there are several, `between` and `domain_weights` say what is compared, and every batch has
            `batch_size` rows of each.
        y_target
            Labels of some target rows, NaN, None or, where labels are classes, -1 where unknown; those rows join the
            labelled ones.
        """
        config, task, spec, domains = self._prepare(X, y, X_target, sample_domain, y_target)
        self._train(task, config, spec, check_device(self.device))
        self._note_moments(domains)
        return self

    def _prepare(
        self, X: Any, y: Any, X_target: Any, sample_domain: Any = None, y_target: Any = None
    ) -> tuple[TrainingConfig, Task, NetworkSpec, Domains]:
        """Check parameters and data; return how to train, on what, and which network."""
        config, labels = self._config(), self._labels()
        spec = self._spec(config)
        domains = read_domains(self, X, y, X_target, labels=labels, sample_domain=sample_domain, y_target=y_target)
        self._keep_labels(labels)
        refuse_other_count(spec.domain_weights, len(domain_ids(domains.source_ids)))
        weight = spec.weight if domains.target is not None else 0.0
        spec = replace(spec, seed=check_seed(self.random_state), weight=weight)
        return config, self._split(domains, labels, spec.seed), spec, domains

    def _split(self, domains: Domains, labels: Labels, seed: int) -> Task:
        """Shuffle source and target once and hold out a part of the source."""
        task = _whole_task(domains, labels)
        training, held_out = labels.hold_out(task.labels, self._fraction_held_out(), seed)
        if held_out is not None:
            training, held_out = with_rows_of_every_domain(training, held_out, task.source_domains)
        if task.target is not None:
            order = np.random.default_rng([seed, 1]).permutation(task.target.shape[0])
            task = replace(task, target=task.target[order], target_domains=_picked(task.target_domains, order))
        if held_out is not None and len(held_out):
            task = replace(
                task,
                validation=task.source[held_out],
                validation_labels=task.labels[held_out],
                validation_domains=_picked(task.source_domains, held_out),
            )
        return replace(
            task,
            source=task.source[training],
            labels=task.labels[training],
            source_domains=_picked(task.source_domains, training),
        )

    def _train(self, task: Task, config: TrainingConfig, spec: NetworkSpec, device: str) -> None:
        with epoch_bar(type(self).__name__, verbose=self.verbose) as progress:
            (network,) = train_stack(task, config, [spec], device=device, progress=progress)
        self._keep(network)

    def _keep(self, network: TrainedNetwork) -> None:
        """Predict with one network; what belonged to other weights is forgotten."""
        self.coefs_, self.intercepts_ = split_layers(network.layers)
        self.n_epochs_, self.best_epoch_ = network.n_epochs, network.best_epoch
        self.history_ = dict(vars(network.history))
        self.domains_ = np.zeros(0, dtype=np.int64)
        self.moments_: dict[int, Moments] = {}
        self._carried = None

    def _note_moments(self, domains: Domains) -> None:
        """Keep the moments of the last hidden layer of each domain, sources first.

        Section 3 of Zellinger et al. (2019): they are what the alignment made alike. Labelled target rows are target
        rows.
        """
        sides = ((domains.source, domains.source_ids), (domains.target, domains.target_ids))
        self.moments_ = {
            domain: hidden_moments(rows[: len(ids)][ids == domain], self.coefs_, self.intercepts_)
            for rows, ids in sides
            if rows is not None and ids is not None
            for domain in domain_ids(ids)
        }
        self.domains_ = np.array(list(self.moments_), dtype=np.int64)

    def _partial_fit(self, X: Any, y: Any, X_target: Any, labels: Labels, sample_domain: Any) -> Self:
        """Learn from some more rows in one pass; `labels` are those of the calls before, if there were any."""
        config, device = self._config(), check_device(self.device)
        spec = self._spec(config)
        self._refuse_other_columns(X)
        known = {name: vars(self)[name] for name in ("n_features_in_", "feature_names_in_") if name in vars(self)}
        domains = read_domains(self, X, y, X_target, labels=labels, sample_domain=sample_domain)
        self.__dict__ |= known
        self._keep_labels(labels)
        refuse_other_count(spec.domain_weights, len(domain_ids(domains.source_ids)))
        settings = (config.hidden, config.optimizer.name, self.discrepancy, self.n_moments, device)
        carried = self._carried[1] if self._carried is not None and self._carried[0] == settings else None
        initial = self._learned_layers(config)
        spec = replace(spec, seed=0 if initial else check_seed(self.random_state), initial=initial)
        task = _whole_task(domains, labels)
        carried, figures = go_on(task, config, spec, device=device, carried=carried)
        epochs = getattr(self, "n_epochs_", 0) + 1
        self._keep(TrainedNetwork(carried.layers, epochs, epochs, self._longer_history(figures, epochs), {}))
        self._carried = (settings, carried)
        return self

    def _fit_chunks(self, source: Any, target: Any, labels: Labels, most_held_out: int) -> Self:
        """Train on chunks that are read once before and once in every epoch."""
        config = self._config()
        spec = self._spec(config)
        spec = replace(spec, seed=check_seed(self.random_state), weight=spec.weight if target is not None else 0.0)
        refuse_other_count(spec.domain_weights, 1)
        most = positive_int(most_held_out, "most_held_out", example="10000")
        held_out = HeldOut(self._fraction_held_out(), spec.seed, most)
        chunked = read_chunked_domains(self, source, target, labels, held_out=held_out)
        self._keep_labels(labels)
        with epoch_bar(type(self).__name__, verbose=self.verbose) as progress:
            network = train_chunks(chunked, config, spec, device=check_device(self.device), progress=progress)
        self._keep(network)
        return self

    def _refuse_other_columns(self, X: Any) -> None:
        if hasattr(self, "n_features_in_"):
            with naming("X"):
                validate_data(self, X, reset=False, skip_check_array=True)

    def _learned_layers(self, config: TrainingConfig) -> list[Layer] | None:
        """The weights so far, as they are stored; None before the first call."""
        if not hasattr(self, "coefs_"):
            return None
        if len(getattr(self, "networks_", [0])) > 1:
            raise InvalidInputError(
                f"this model combines {len(self.networks_)} networks, which cannot learn on; fit one of one weight."
            )
        hidden = tuple(int(weight.shape[1]) for weight in self.coefs_[:-1])
        if hidden != config.hidden:
            raise InvalidInputError(
                f"hidden is {config.hidden}, the network that is to learn on has {hidden}; keep it or take a clone."
            )
        return [Layer(weight, bias) for weight, bias in zip(self.coefs_, self.intercepts_, strict=True)]

    def _longer_history(self, figures: EpochFigures, call: int) -> History:
        loss, distance = float(figures.source_loss[0]), float(figures.distance[0])
        if not (loss < LARGEST_LOSS and distance < LARGEST_LOSS):
            raise DivergedError(
                f"training diverged: source loss {loss:g}, distance {distance:g} in pass {call}; lower learning_rate "
                "or weight, or scale the features."
            )
        history = History(**{name: list(values) for name, values in getattr(self, "history_", {}).items()})
        history.source_loss.append(loss)
        history.distance.append(distance)
        return history

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the hidden activations of each row, (rows, width), values in [0, 1]."""
        check_is_fitted(self)
        return self._apply(activations, X, self.coefs_, self.intercepts_)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a folder: safetensors and a JSON manifest; read it back with ``ma.load(path)``."""
        from momentalign.estimators.persistence import save

        save(self, path)

    def _rows(self, X: Any) -> Matrix:
        return validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])

    def _apply(
        self, function: Any, X: Any, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]
    ) -> NDArray[np.floating[Any]]:
        rows = self._rows(X)
        return in_chunks(function, rows, coefs, intercepts).astype(rows.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return int(self.coefs_[-1].shape[0])

    def _config(self) -> TrainingConfig:
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Iterable):
            raise InvalidTypeError(
                f"hidden must be a sequence of whole numbers, got {self.hidden!r}; try hidden=(50,)."
            )
        hidden = tuple(positive_int(units, "hidden", example="(50,)") for units in self.hidden)
        if not hidden:
            raise InvalidInputError("hidden is empty, there is no layer to align; try hidden=(50,).")
        batch_size = None if self.batch_size is None else positive_int(self.batch_size, "batch_size")
        max_epochs = positive_int(self.max_epochs, "max_epochs")
        patience = None if self.patience is None else positive_int(self.patience, "patience")
        optimizer = Optimizer(self.optimizer, self.learning_rate)
        return TrainingConfig(hidden, optimizer, batch_size, max_epochs, patience, loss=self._loss)

    def _spec(self, config: TrainingConfig) -> NetworkSpec:
        """The network that the parameters describe, without its seed."""
        weight = 1.0 if self._is_automatic else check_number(self.weight, "weight", least=0.0, most=LARGEST_WEIGHT)
        distance = named_distance(self.discrepancy, self.n_moments, width=config.hidden[-1])
        between, weights = check_between(self.between), check_domain_weights(self.domain_weights)
        return NetworkSpec(0, weight, distance, between=between, domain_weights=weights)

    def _fraction_held_out(self) -> float:
        fraction = check_number(self.validation_fraction, "validation_fraction", least=0.0)
        if fraction >= 1.0:
            raise InvalidInputError(f"validation_fraction must be below 1, got {fraction}; try 0.3.")
        return fraction


def hidden_moments(rows: Matrix, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]) -> Moments:
    """Return the moments up to order 5 of the hidden activations of some rows, a chunk of them at a time.

    Examples
    --------
    >>> weights, biases = [np.ones((1, 2)), np.ones((2, 2))], [np.zeros(2), np.zeros(2)]
    >>> hidden_moments(np.zeros((3, 1)), weights, biases).mean.tolist()
    [0.5, 0.5]
    """
    layers = _wide_layers(coefs, intercepts)
    sums = None
    for chunk in _wide_chunks(rows):
        part = dense_sums(np.ascontiguousarray(activations(layers, chunk)), None, 5, crossed=False)
        sums = part if sums is None else merged(sums, part)
    assert sums is not None  # noqa: S101  (a domain has rows)
    return Moments.of_sums(sums)


def _whole_task(domains: Domains, labels: Labels) -> Task:
    """All rows in float32. Without a target nothing is compared, and several sources are as one."""
    source = as_float32(domains.source, "X")
    if domains.target is None:
        return Task(source, domains.labels, None, labels.n_outputs)
    return Task(
        source,
        domains.labels,
        as_float32(domains.target, "X_target"),
        labels.n_outputs,
        source_domains=domains.source_numbers,
        target_domains=domains.target_numbers,
    )


def _picked(numbers: NDArray[np.intp] | None, rows: NDArray[np.intp]) -> NDArray[np.intp] | None:
    return None if numbers is None else numbers[rows]


def in_chunks(
    function: Any, rows: Matrix, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]
) -> NDArray[np.float64]:
    """Return a function of a network and of rows, some rows at a time.

    In float64 a row gets the same result to the last visible digit, whatever rows stand around it.
    """
    layers = _wide_layers(coefs, intercepts)
    return np.concatenate([function(layers, chunk) for chunk in _wide_chunks(rows)])


def _wide_layers(coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]) -> list[Layer]:
    return [Layer(w.astype(np.float64), b.astype(np.float64)) for w, b in zip(coefs, intercepts, strict=True)]


def _wide_chunks(rows: Matrix) -> Iterator[Matrix]:
    return (rows[start : start + CHUNK].astype(np.float64) for start in range(0, rows.shape[0], CHUNK))


def split_layers(layers: Sequence[Layer]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Return weights and biases as an estimator keeps them."""
    return [layer.weight.astype(np.float32) for layer in layers], [layer.bias.astype(np.float32) for layer in layers]

"""What classifier and regressor share: parameters, the order of a fit, and one trained network (Algorithm 1).

What an estimator keeps of each domain it was fitted to: the moments of its hidden activations.

Section 3 of Zellinger et al. (2019): they are what the alignment made alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from momentalign.discrepancies.domain_pairs import (
    Between,
    DomainWeights,
    read_between,
    read_domain_weights,
    refuse_other_count,
)
from momentalign.discrepancies.names import named_distance
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.domains import Domains, as_float32, domain_ids, split_layers, with_rows_of_every_domain
from momentalign.moments.streaming import Moments
from momentalign.networks.shallow import Layer, Matrix, activations
from momentalign.progress import epoch_bar
from momentalign.training.config import (
    Distance,
    LossName,
    NetworkSpec,
    Optimizer,
    OptimizerName,
    Task,
    TrainedNetwork,
    TrainingConfig,
)
from momentalign.training.stack import train_stack
from momentalign.validation import check_device, check_number, check_seed, positive_int

__all__ = [
    "LARGEST_WEIGHT",
    "BaseMANN",
    "hidden_moments",
    "in_chunks",
    "moments_by_domain",
    "read_moments",
    "write_moments",
]

# Rows whose activations are in memory at once.
CHUNK = 16384


def moments_by_domain(
    domains: Domains, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]
) -> dict[int, Moments]:
    """Return the moments of the last hidden layer for every id, sources first; labelled target rows are target rows."""
    sides = ((domains.source, domains.source_ids), (domains.target, domains.target_ids))
    return {
        int(number): hidden_moments(rows[: len(ids)][ids == number], coefs, intercepts)
        for rows, ids in sides
        if rows is not None and ids is not None
        for number in domain_ids(ids)
    }


def hidden_moments(rows: Matrix, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]) -> Moments:
    """Return the moments up to order 5 of the hidden activations of some rows, a chunk of them at a time.

    Examples
    --------
    >>> weights, biases = [np.ones((1, 2)), np.ones((2, 2))], [np.zeros(2), np.zeros(2)]
    >>> hidden_moments(np.zeros((3, 1)), weights, biases).mean.tolist()
    [0.5, 0.5]
    """
    layers = [Layer(w.astype(np.float64), b.astype(np.float64)) for w, b in zip(coefs, intercepts, strict=True)]
    moments = Moments()
    for start in range(0, rows.shape[0], CHUNK):
        moments.update(activations(layers, rows[start : start + CHUNK].astype(np.float64)))
    return moments


def write_moments(estimator: Any) -> dict[str, Any]:
    """Return ``domains_`` and ``moments_`` as plain JSON; empty where an estimator has none."""
    moments = getattr(estimator, "moments_", {})
    return {"domains": list(moments), "moments": [found.to_dict() for found in moments.values()]}


def read_moments(description: Mapping[str, Any], width: int) -> dict[int, Moments]:
    """Return what :func:`write_moments` described, checked; nothing where a model was saved without."""
    ids, found = description.get("domains", []), description.get("moments", [])
    if len(set(ids)) != len(found) or any(type(number) is not int or number == 0 for number in ids):
        raise ValueError("the moments of every domain, and an id for each, are expected")
    moments = {number: Moments.from_dict(part) for number, part in zip(ids, found, strict=True)}
    if any(len(part.mean) != width for part in moments.values()):
        raise ValueError(f"moments of {width} hidden units are expected")
    return moments


# Rows that are predicted at once: bounds the memory that widening to float64 takes.
# Beyond this the squares of gradients leave float32.
LARGEST_WEIGHT = 1e15


class BaseMANN(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A network whose hidden activations are aligned between two domains; its subclasses say what it learns."""

    # What metadata routing hands on without being asked, as pipelines and scorers of skada expect it.
    __metadata_request__fit: ClassVar = {"sample_domain": True}
    __metadata_request__partial_fit: ClassVar = {"sample_domain": True}
    __metadata_request__predict: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__score: ClassVar = {"sample_domain": True, "allow_source": True}

    def __init__(
        self,
        hidden: Sequence[int] = (50,),
        discrepancy: str | Distance | None = "cmd",
        weight: float | Literal["auto"] = 1.0,
        n_moments: int = 5,
        optimizer: OptimizerName = "adagrad",
        learning_rate: float | None = None,
        batch_size: int | None = 300,
        max_epochs: int = 1500,
        patience: int | None = 10,
        validation_fraction: float = 0.3,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        between: Between = "pooled",
        domain_weights: DomainWeights = "equal",
    ) -> None:
        self.hidden = hidden
        self.discrepancy = discrepancy
        self.weight = weight
        self.n_moments = n_moments
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.between = between
        self.domain_weights = domain_weights

    @abstractmethod
    def _read_domains(self, X: Any, y: Any, X_target: Any, *, sample_domain: Any, y_target: Any) -> Domains:
        """Return the domains with labels as a :class:`Task` takes them, and remember how to turn outputs back."""

    @abstractmethod
    def _hold_out(
        self, labels: NDArray[Any], fraction: float, seed: int
    ) -> tuple[NDArray[np.intp], NDArray[np.intp] | None]:
        """Split rows into training and validation; None where nothing is held out."""

    @property
    @abstractmethod
    def _loss(self) -> LossName:
        """What is minimised on the labelled rows."""

    @property
    @abstractmethod
    def _n_outputs(self) -> int:
        """Units of the last layer."""

    def fit(self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None, y_target: Any = None) -> Self:
        """Train on labelled source rows and, where given, unlabelled target rows.

        Parameters
        ----------
        X, y
            Source rows (array, DataFrame or CSR matrix) and their labels; with `sample_domain` the rows of all domains.
        X_target
            Target rows, with the same columns.
        sample_domain
            One id per row of `X`: positive for sources, negative for targets, whose entries in `y` are not looked at.
            Where there are several, `between` and `domain_weights` say what is compared, and every batch has
            `batch_size` rows of each.
        y_target
            Labels of some target rows, NaN, None or, where labels are classes, -1 where unknown; those rows join the
            labelled ones.
        """
        before = dict(vars(self))
        try:
            self._fit(X, y, X_target, sample_domain, y_target)
        except BaseException:  # A refused call changes nothing, also where the model was fitted before.
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Any, y: Any, X_target: Any, sample_domain: Any, y_target: Any) -> None:
        task, spec, domains = self._prepare(X, y, X_target, sample_domain, y_target)
        self._train(task, self._config(), spec, check_device(self.device))
        self._note(moments_by_domain(domains, self.coefs_, self.intercepts_))

    def _prepare(
        self, X: Any, y: Any, X_target: Any, sample_domain: Any = None, y_target: Any = None
    ) -> tuple[Task, NetworkSpec, Domains]:
        """Check parameters and data; return what to train on and which network."""
        self._config()
        spec = self._spec()
        domains = self._read_domains(X, y, X_target, sample_domain=sample_domain, y_target=y_target)
        spec = replace(spec, seed=check_seed(self.random_state))
        refuse_other_count(spec.domain_weights, len(domain_ids(domains.source_ids)))
        if domains.target is None:
            spec = replace(spec, weight=0.0)
        return self._task(domains, spec.seed), spec, domains

    def _spec(self) -> NetworkSpec:
        """The network that the parameters describe, without its seed."""
        distance = named_distance(self.discrepancy, self.n_moments, width=self._config().hidden[-1])
        weights = read_domain_weights(self.domain_weights)
        return NetworkSpec(0, self._weight(), distance, between=read_between(self.between), domain_weights=weights)

    def _weight(self) -> float:
        return check_number(self.weight, "weight", least=0.0, most=LARGEST_WEIGHT)

    def _train(self, task: Task, config: TrainingConfig, spec: NetworkSpec, device: str) -> None:
        with epoch_bar(type(self).__name__, verbose=self.verbose) as progress:
            (network,) = train_stack(task, config, [spec], device=device, progress=progress)
        self._keep(network)

    def _keep(self, network: TrainedNetwork) -> None:
        self.coefs_, self.intercepts_ = split_layers(network.layers)
        self.n_epochs_, self.best_epoch_ = network.n_epochs, network.best_epoch
        self.history_ = dict(vars(network.history))
        self._note({})  # Moments of other weights mean nothing.

    def _note(self, moments: dict[int, Moments]) -> None:
        self.domains_, self.moments_ = np.array(list(moments), dtype=np.int64), moments

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _config(self) -> TrainingConfig:
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Iterable):
            raise InvalidTypeError(
                f"hidden must be a sequence of whole numbers, got {self.hidden!r}; try hidden=(50,)."
            )
        hidden = tuple(positive_int(units, "hidden", example="(50,)") for units in self.hidden)
        if not hidden:
            raise InvalidInputError("hidden is empty, there is no layer to align; try hidden=(50,).")
        return TrainingConfig(
            hidden=hidden,
            optimizer=Optimizer(self.optimizer, self.learning_rate),
            batch_size=None if self.batch_size is None else positive_int(self.batch_size, "batch_size"),
            max_epochs=positive_int(self.max_epochs, "max_epochs"),
            patience=None if self.patience is None else positive_int(self.patience, "patience"),
            loss=self._loss,
        )

    def _task(self, domains: Domains, seed: int) -> Task:
        """Shuffle source and target once and hold out a part of the source."""
        fraction = check_number(self.validation_fraction, "validation_fraction", least=0.0)
        if fraction >= 1.0:
            raise InvalidInputError(f"validation_fraction must be below 1, got {fraction}; try 0.3.")
        source, labels, target = as_float32(domains.source, "X"), domains.labels, domains.target
        # Without a target nothing is compared, and several sources are as one.
        numbers = None if target is None else domains.source_numbers
        training, held_out = self._hold_out(labels, fraction, seed)
        if held_out is not None:
            training, held_out = with_rows_of_every_domain(training, held_out, numbers)
        task = Task(
            source[training], labels[training], None, self._n_outputs, source_domains=_picked(numbers, training)
        )
        if held_out is not None and len(held_out):
            rows, codes, own = source[held_out], labels[held_out], _picked(numbers, held_out)
            task = replace(task, validation=rows, validation_labels=codes, validation_domains=own)
        if target is None:
            return task
        order = np.random.default_rng([seed, 1]).permutation(target.shape[0])
        target = as_float32(target[order], "X_target")
        return replace(task, target=target, target_domains=_picked(domains.target_numbers, order))


def _picked(numbers: NDArray[np.intp] | None, rows: NDArray[np.intp]) -> NDArray[np.intp] | None:
    return None if numbers is None else numbers[rows]


def in_chunks(
    function: Any, rows: Matrix, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]
) -> NDArray[np.float64]:
    """Return a function of a network and of rows, some rows at a time.

    In float64 a row gets the same result to the last visible digit, whatever rows stand around it.
    """
    layers = [Layer(w.astype(np.float64), b.astype(np.float64)) for w, b in zip(coefs, intercepts, strict=True)]
    chunks = [rows[start : start + CHUNK].astype(np.float64) for start in range(0, rows.shape[0], CHUNK)]
    return np.concatenate([function(layers, chunk) for chunk in chunks])

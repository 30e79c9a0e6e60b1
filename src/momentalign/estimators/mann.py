"""What classifier and regressor share: fit, partial_fit and fit_chunks, from rows to one trained network (Algorithm 1).

A subclass says what labels are (`_labels`), and what to do with a trained network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from momentalign.discrepancies.names import named_distance
from momentalign.discrepancies.several_domains import Between, DomainWeights
from momentalign.errors import DivergedError, InvalidInputError
from momentalign.estimators.chunks import HeldOut, read_chunked_domains
from momentalign.estimators.domains import (
    DomainEstimator,
    Domains,
    Labels,
    all_or_nothing,
    read_domains,
    read_rows,
)
from momentalign.estimators.row_weights import RowWeights
from momentalign.estimators.scale_warnings import first_rows, warn_of_scales
from momentalign.moments.streaming import Moments
from momentalign.moments.sums import dense_sums, merged
from momentalign.networks.shallow import Layer, Matrix, activations, outputs
from momentalign.progress import epoch_bar
from momentalign.training.chunked import TrainingState, resume, train_chunks
from momentalign.training.config import (
    Distance,
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
from momentalign.validation import (
    check_choice,
    check_device,
    check_domain_weights,
    check_number,
    check_seed,
    positive_int,
    refuse_other_count,
)

if TYPE_CHECKING:
    from momentalign.report.svg import Picture

__all__ = ["LARGEST_WEIGHT", "MOST_HELD_OUT", "BaseMANN", "Settings", "hidden_moments", "in_chunks", "split_layers"]

# Rows that are predicted at once: bounds the memory that widening to float64 takes.
CHUNK = 16384
# Beyond this the squares of gradients leave float32.
LARGEST_WEIGHT = 1e15
# Rows that fit_chunks holds out, and in memory, unless told otherwise.
MOST_HELD_OUT = 10_000


class Settings(NamedTuple):
    """What the parameters of an estimator say, checked: how to train, which network, where, what is held out."""

    config: TrainingConfig
    spec: NetworkSpec
    device: str
    fraction_held_out: float


class BaseMANN(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DomainEstimator, ABC):  # type: ignore[misc]
    """A network whose hidden activations are aligned between two domains; its subclasses say what it learns."""

    _state: tuple[Any, TrainingState] | None = None
    """What the optimizer was set to in the last partial_fit, and where it stopped."""

    __metadata_request__partial_fit: ClassVar = {"sample_domain": True}
    __metadata_request__predict: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__score: ClassVar = {"sample_domain": True, "allow_source": True}

    hidden: Sequence[int]
    discrepancy: str | Distance | None
    weight: float | Literal["auto"]
    n_moments: int
    optimizer: OptimizerName | None
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
    # Those of a classifier only.
    sharpen: float = 0.0
    class_weight: Any = None

    @abstractmethod
    def _labels(self) -> Labels:
        """Return what reads the labels."""

    @property
    @abstractmethod
    def _loss(self) -> LossName:
        """What is minimised on the labelled rows."""

    @abstractmethod
    def _keep_labels(self, labels: Any) -> None:
        """Remember how outputs are turned back into labels."""

    @property
    def _is_automatic(self) -> bool:
        return isinstance(self.weight, str) and self.weight == "auto"

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        X_target: Any = None,
        *,
        sample_domain: Any = None,
        y_target: Any = None,
        sample_weight: Any = None,
    ) -> Self:
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
        sample_weight
            One weight per row of `X`; those of target rows are not looked at. A row of weight two is the row given
            twice: rows are repeated, by weights that are not whole up to four times, and equal rows are held out
            together.
        """
        settings, task, domains = self._prepare(X, y, X_target, sample_domain, y_target, sample_weight)
        self._train(task, settings)
        # Section 3 of Zellinger et al. (2019): what the alignment made alike. Labelled target rows are target rows.
        layers = _wide_layers(self.coefs_, self.intercepts_)
        parts = [(domains.source, domains.source_ids)]
        if domains.target_ids is not None:
            parts.append((domains.target, domains.target_ids))
        for rows, ids in parts:
            for domain in sorted(np.unique(ids).tolist(), key=abs):
                self.moments_[domain] = hidden_moments(rows[: len(ids)][ids == domain], layers)
        self.domains_ = np.array(list(self.moments_), dtype=np.int64)
        return self

    def _prepare(
        self,
        X: Any,
        y: Any,
        X_target: Any,
        sample_domain: Any = None,
        y_target: Any = None,
        sample_weight: Any = None,
    ) -> tuple[Settings, Task, Domains]:
        """Check parameters and data; return how to train, on what, and the domains it is made of."""
        settings = self._settings()
        seed, labels = check_seed(self.random_state), self._labels()
        weights = RowWeights(sample_weight, self.class_weight)
        domains = read_domains(
            self, X, y, X_target, labels=labels, sample_domain=sample_domain, y_target=y_target, weights=weights
        )
        self._keep_labels(labels)
        refuse_other_count(settings.spec.domain_weights, domains.n_sources)
        task = domains.task()
        warn_of_scales(self, domains.source, domains.target, settings.config.hidden[0])
        spec = replace(settings.spec, seed=seed, weight=0.0 if task.target is None else settings.spec.weight)
        # Batches are cut in order: source and target are shuffled once.
        training, held_out = _hold_out(labels, task.labels, domains.groups, settings.fraction_held_out, seed)
        order = None if task.target is None else np.random.default_rng([seed, 1]).permutation(task.target.shape[0])
        return settings._replace(spec=spec), task.split(training, held_out, order), domains

    def _settings(self, method: str = "fit") -> Settings:  # noqa: ARG002
        """Check all parameters, for `method`: fit, partial_fit or fit_chunks."""
        optimizer = Optimizer(learning_rate=self.learning_rate, by_rows=True)
        if self.optimizer is not None:
            optimizer = Optimizer(self.optimizer, self.learning_rate)
        config = TrainingConfig(
            self.hidden, optimizer, self.batch_size, self.max_epochs, self.patience, loss=self._loss
        )
        weight = check_number(1.0 if self._is_automatic else self.weight, "weight", least=0.0, most=LARGEST_WEIGHT)
        sharpen = check_number(self.sharpen, "sharpen", least=0.0, most=LARGEST_WEIGHT)
        fraction = check_number(self.validation_fraction, "validation_fraction", least=0.0, below=1.0, example=0.3)
        between = check_choice(self.between, "between", get_args(Between))
        domain_weights, device = check_domain_weights(self.domain_weights), check_device(self.device)
        distance = named_distance(self.discrepancy, self.n_moments, width=config.hidden[-1])
        spec = NetworkSpec(0, weight, distance, None, between, domain_weights, sharpen)
        return Settings(config, spec, device, fraction)

    def _train(self, task: Task, settings: Settings) -> None:
        config, spec, device, _ = settings
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
        self._state = None

    def _partial_fit(
        self, X: Any, y: Any, X_target: Any, labels: Labels, sample_domain: Any, sample_weight: Any
    ) -> Self:
        """Learn from some more rows in one pass; `labels` are those of the calls before, if there were any."""
        config, spec, device, _ = self._settings("partial_fit")
        is_first = not hasattr(self, "coefs_")
        weights = RowWeights(sample_weight, self.class_weight, in_order=True)
        domains = read_domains(
            self, X, y, X_target, labels=labels, sample_domain=sample_domain, weights=weights, reset=is_first
        )
        refuse_other_count(spec.domain_weights, domains.n_sources)
        task = domains.task()
        config = config.for_rows(task.source)
        if is_first:
            warn_of_scales(self, domains.source, domains.target, config.hidden[0])
            spec = replace(spec, seed=check_seed(self.random_state))
        else:
            spec = replace(spec, initial=self._learned_layers(config.hidden))
        self._keep_labels(labels)
        kept = (config.hidden, config.optimizer.name, self.discrepancy, self.n_moments, device)
        state = self._state[1] if self._state is not None and self._state[0] == kept else None
        state, figures = resume(task, config, spec, device=device, state=state)
        epochs = getattr(self, "n_epochs_", 0) + 1
        loss, distance = float(figures.source_loss[0]), float(figures.distance[0])
        if not (loss < LARGEST_LOSS and distance < LARGEST_LOSS):
            raise DivergedError(
                f"training diverged: source loss {loss:g}, distance {distance:g} in pass {epochs}; lower learning_rate "
                "or weight, or scale the features."
            )
        history = History(**{name: list(values) for name, values in getattr(self, "history_", {}).items()})
        history.source_loss.append(loss)
        history.distance.append(distance)
        self._keep(TrainedNetwork(state.layers, epochs, epochs, history, {}))
        self._state = (kept, state)
        return self

    def _learned_layers(self, hidden: Sequence[int]) -> list[Layer]:
        """The weights so far, as they are stored."""
        if len(getattr(self, "networks_", [0])) > 1:
            raise InvalidInputError(
                f"this model combines {len(self.networks_)} networks, which cannot learn on; fit one of one weight."
            )
        learned = tuple(int(weight.shape[1]) for weight in self.coefs_[:-1])
        if learned != hidden:
            raise InvalidInputError(
                f"hidden is {hidden}, the network that is to learn on has {learned}; keep it or take a clone."
            )
        return [Layer(weight, bias) for weight, bias in zip(self.coefs_, self.intercepts_, strict=True)]

    def _fit_chunks(self, source: Any, target: Any, labels: Labels, most_held_out: int) -> Self:
        """Train on chunks that are read once before and once in every epoch."""
        config, spec, device, fraction = self._settings("fit_chunks")
        spec = replace(spec, seed=check_seed(self.random_state), weight=spec.weight if target is not None else 0.0)
        refuse_other_count(spec.domain_weights, 1)
        held_out = HeldOut(fraction, spec.seed, positive_int(most_held_out, "most_held_out", example="10000"))
        chunked = read_chunked_domains(self, source, target, labels, held_out=held_out)
        X_target = None if chunked.target is None else first_rows(chunked.target())
        warn_of_scales(self, first_rows(chunked.source()), X_target, config.hidden[0])
        self._keep_labels(labels)
        with epoch_bar(type(self).__name__, verbose=self.verbose) as progress:
            network = train_chunks(chunked, config, spec, device=device, progress=progress)
        self._keep(network)
        return self

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the hidden activations of each row, (rows, width), values in [0, 1]."""
        check_is_fitted(self)
        rows = read_rows(self, X)
        return in_chunks(activations, rows, self.coefs_, self.intercepts_).astype(rows.dtype, copy=False)

    def plot(self, X: Any = None, y: Any = None, X_target: Any = None) -> Picture:
        """Return a picture: shown in a notebook, written to an SVG file by its ``save(path)``.

        Without rows it shows how training went. With `X` and `X_target` it shows what the hidden layer makes of both,
        along the two directions in which the activations of the source vary most; with the labels `y` of a classifier
        of two features it shows the plane and the boundaries in it.

        Examples
        --------
        >>> import momentalign as ma
        >>> X, y = [[0.0, 0.0], [0.1, 1.0], [1.0, 0.0], [1.1, 1.0]], [0, 0, 1, 1]
        >>> model = ma.MANNClassifier(hidden=(3,), max_epochs=5, random_state=0).fit(X, y)
        >>> model.plot().title[:20], model.plot(X, y).title[:18]
        ('Training of 5 epochs', 'Where it says 0, 1')
        """
        from momentalign.report.training import boundary_picture, embedding_picture, training_picture

        check_is_fitted(self)
        if X is None:
            return training_picture(self.history_, self.best_epoch_)
        if y is not None and (not hasattr(self, "classes_") or self.n_features_in_ != 2):
            raise InvalidInputError(
                f"boundaries are drawn for classifiers of 2 features, this {type(self).__name__} has "
                f"{self.n_features_in_}; leave y out to see the hidden layer."
            )

        def plotted(rows: Any) -> NDArray[np.float64]:
            rows = self.transform(rows) if y is None else read_rows(self, rows)
            return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)

        source, target = plotted(X), None if X_target is None else plotted(X_target)
        if y is None:
            return embedding_picture(source, target)
        codes = np.searchsorted(self.classes_, self._labels().read(y))

        def predict(grid: NDArray[np.float64]) -> NDArray[np.intp]:
            return np.asarray(in_chunks(outputs, grid, self.coefs_, self.intercepts_).argmax(axis=1))

        return boundary_picture([str(name) for name in self.classes_], predict, source, codes, target)

    def _html_repr(self) -> str:
        """What a notebook shows: parameters as scikit-learn shows them, and below them how training went."""
        from momentalign.report.notebook import card
        from momentalign.report.page import figure

        shown = str(estimator_html_repr(self))
        if not getattr(self, "history_", {}).get("distance"):
            return shown
        lead = f"{self.n_epochs_} epochs, the weights of epoch {self.best_epoch_} were kept."
        return shown + card("Training", lead, parts=[figure(self.plot())])

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a folder: safetensors and a JSON manifest; read it back with ``ma.load(path)``."""
        from momentalign.estimators.persistence import save

        save(self, path)

    @property
    def _n_features_out(self) -> int:
        return int(self.coefs_[-1].shape[0])


def hidden_moments(rows: Matrix, layers: Sequence[Layer]) -> Moments:
    """Return the moments up to order 5 of the hidden activations of some rows, a chunk of them at a time.

    Examples
    --------
    >>> layers = [Layer(np.ones((1, 2)), np.zeros(2)), Layer(np.ones((2, 2)), np.zeros(2))]
    >>> hidden_moments(np.zeros((3, 1)), layers).mean.tolist()
    [0.5, 0.5]
    """
    sums = None
    for start in range(0, rows.shape[0], CHUNK):
        hidden = activations(layers, rows[start : start + CHUNK].astype(np.float64))
        part = dense_sums(np.ascontiguousarray(hidden), None, 5, crossed=False)
        sums = part if sums is None else merged(sums, part)
    assert sums is not None  # noqa: S101  (a domain has rows)
    return Moments.of_sums(sums)


def _hold_out(
    labels: Labels, codes: NDArray[Any], groups: NDArray[np.intp] | None, fraction: float, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp] | None]:
    """Split rows into those to train on and those held out, equal rows together."""
    if groups is None:
        return labels.hold_out(codes, fraction, seed)
    _, first = np.unique(groups, return_index=True)
    parts = labels.hold_out(codes[first], fraction, seed)
    random = np.random.default_rng([seed, 2])
    training, held_out = (
        None if part is None else random.permutation(np.flatnonzero(np.isin(groups, groups[first[part]])))
        for part in parts
    )
    assert training is not None  # noqa: S101  (there are rows to train on)
    return training, held_out


def in_chunks(
    function: Any, rows: Matrix, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]
) -> NDArray[np.float64]:
    """Return a function of a network and of rows, some rows at a time.

    In float64 a row gets the same result to the last visible digit, whatever rows stand around it.
    """
    layers, starts = _wide_layers(coefs, intercepts), range(0, rows.shape[0], CHUNK)
    return np.concatenate([function(layers, rows[start : start + CHUNK].astype(np.float64)) for start in starts])


def _wide_layers(coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]) -> list[Layer]:
    return [Layer(w.astype(np.float64), b.astype(np.float64)) for w, b in zip(coefs, intercepts, strict=True)]


def split_layers(layers: Sequence[Layer]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Return weights and biases as an estimator keeps them."""
    return [layer.weight.astype(np.float32) for layer in layers], [layer.bias.astype(np.float32) for layer in layers]

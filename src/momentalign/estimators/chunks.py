"""Learning from data larger than memory: ``partial_fit`` and ``fit_chunks`` of both estimators (Algorithm 1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from momentalign.discrepancies.names import named_distance
from momentalign.errors import DivergedError, InvalidInputError
from momentalign.estimators.chunk_reading import HeldOut, read_chunked_domains
from momentalign.estimators.domains import Domains, as_float32, naming, read_domains
from momentalign.estimators.labels import ChunkLabels, ClassLabels, NumberLabels, Scale, read_valued_domains
from momentalign.estimators.mann import BaseMANN
from momentalign.networks.shallow import Layer
from momentalign.progress import epoch_bar
from momentalign.training.chunked import Carried, go_on, train_chunks
from momentalign.training.config import EpochFigures, History, NetworkSpec, Task, TrainedNetwork, TrainingConfig
from momentalign.training.stack import LARGEST_LOSS
from momentalign.validation import check_device, check_number, check_seed, positive_int

__all__ = ["ClassesInChunks", "ValuesInChunks"]

MOST_HELD_OUT = 10_000


class _InChunks(BaseMANN):
    """What learning classes and learning numbers in chunks have in common."""

    _carried: tuple[Any, Carried] | None = None

    def _all_or_nothing(self, learn: Callable[..., None], *arguments: Any) -> Self:
        """Call a function that changes the estimator; where it raises, also at ^C, all is as before."""
        before = dict(vars(self))
        try:
            learn(*arguments)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    def _learn_chunks(self, source: Any, target: Any, labels: ChunkLabels, most_held_out: int) -> None:
        config, weight = self._config(), self._single_weight()
        distance = named_distance(self.discrepancy, self.n_moments, width=config.hidden[-1])
        share = check_number(self.validation_fraction, "validation_fraction", least=0.0)
        if share >= 1.0:
            raise InvalidInputError(f"validation_fraction must be below 1, got {share}; try 0.3.")
        seed = check_seed(self.random_state)
        held_out = HeldOut(share, seed, positive_int(most_held_out, "most_held_out", example="10000"))
        chunked = read_chunked_domains(
            self, source, target, labels, held_out=held_out, n_outputs=lambda: self._take_over(labels)
        )
        spec = NetworkSpec(seed, weight if target is not None else 0.0, distance)
        with epoch_bar(type(self).__name__, verbose=self.verbose) as progress:
            network = train_chunks(chunked, config, spec, device=check_device(self.device), progress=progress)
        self._keep_one(network)

    @abstractmethod
    def _take_over(self, labels: Any) -> int:
        """Remember how outputs are turned back into labels; return how many outputs there are."""

    def _keep(self, network: TrainedNetwork) -> None:
        super()._keep(network)
        # Whatever was carried belongs to other weights.
        self._carried = None

    def _keep_one(self, network: TrainedNetwork) -> None:
        """Keep a network that is not one of several."""
        self._keep(network)

    def _single_weight(self) -> float:
        if isinstance(self.weight, str) and self.weight == "auto":
            raise InvalidInputError(
                'weight="auto" compares networks on rows it holds in memory, which chunks do not; give a number, try '
                "weight=1.0."
            )
        return self._weight()

    def _same_columns(self, X: Any) -> dict[str, Any]:
        """Refuse other columns than those of the first call, and return what is known of them."""
        known = {name: vars(self)[name] for name in ("n_features_in_", "feature_names_in_") if name in vars(self)}
        if known:
            with naming("X"):
                validate_data(self, X, reset=False, skip_check_array=True)
        return known

    def _learn_more(self, domains: Domains) -> None:
        config, weight, device = self._config(), self._single_weight(), check_device(self.device)
        distance = named_distance(self.discrepancy, self.n_moments, width=config.hidden[-1])
        settings = (config.hidden, config.optimizer.name, self.discrepancy, device)
        carried = self._carried[1] if self._carried is not None and self._carried[0] == settings else None
        initial = self._learned_layers(config)
        spec = NetworkSpec(0 if initial else check_seed(self.random_state), weight, distance, initial=initial)
        target = None if domains.target is None else as_float32(domains.target, "X_target")
        task = Task(as_float32(domains.source, "X"), domains.labels, target, self._n_outputs)
        carried, figures = go_on(task, config, spec, device=device, carried=carried)
        epochs = getattr(self, "n_epochs_", 0) + 1
        self._keep_one(TrainedNetwork(carried.layers, epochs, epochs, self._longer_history(figures, epochs), {}))
        self._carried = (settings, carried)

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


class ClassesInChunks(_InChunks):
    """Learns classes from data that arrive in parts."""

    networks_: list[Any]
    coefficients_: NDArray[np.float64]
    classes_: NDArray[Any]

    def partial_fit(
        self, X: Any, y: Any, X_target: Any = None, *, classes: Any = None, sample_domain: Any = None
    ) -> Self:
        """Learn from some more rows: one pass over them, in order.

        Weights go on from the call before, also from ``fit``, ``fit_chunks`` or ``ma.load``; the optimizer's state goes
        on from ``partial_fit`` to ``partial_fit`` as long as `optimizer`, `discrepancy` and `device` stay the same.
        Nothing is held out or stopped early: the weights are those of the last update. Whether the loops are compiled
        is decided by the rows of the first call. On an error or ^C the model is as it was before the call.

        Parameters
        ----------
        X, y, X_target, sample_domain
            As in ``fit``. Batches of `batch_size` rows of both domains are paired, the shorter one starts again
            (Section 6.3 of Zellinger et al. 2019); without target rows the call is one of a plain network.
        classes
            All classes there will ever be; needed in the first call.

        Examples
        --------
        >>> import numpy as np, momentalign as ma
        >>> random = np.random.default_rng(0)
        >>> model = ma.MANNClassifier(hidden=(8,), learning_rate=0.1, random_state=0)
        >>> for _ in range(50):
        ...     y = random.integers(2, size=300)
        ...     X = random.normal(size=(300, 2)) + 3.0 * y[:, None]
        ...     model = model.partial_fit(X, y, X + [0.0, 1.0], classes=[0, 1])
        >>> bool(model.score(X + [0.0, 1.0], y) > 0.9), model.n_epochs_
        (True, 50)
        """
        return self._all_or_nothing(self._learn_more_classes, X, y, X_target, classes, sample_domain)

    def _learn_more_classes(self, X: Any, y: Any, X_target: Any, classes: Any, sample_domain: Any) -> None:
        known = self._same_columns(X)
        labels = self._known_classes(classes)
        domains = read_domains(self, X, y, X_target, sample_domain=sample_domain)
        self.__dict__ |= known
        with naming("y"):
            labels.read(domains.labels)
            codes = labels.coded(domains.labels)
        self.classes_ = labels.classes
        self._learn_more(domains._replace(labels=codes))

    def _known_classes(self, classes: Any) -> ClassLabels:
        learned = getattr(self, "classes_", None)
        if classes is None and learned is None:
            raise InvalidInputError(
                "classes must be given in the first call of partial_fit, later rows may have others; list all of them."
            )
        labels = ClassLabels(learned if classes is None else classes)
        if learned is not None and not np.array_equal(labels.classes, learned):
            raise InvalidInputError(
                f"classes are {labels.classes.tolist()}, those of earlier calls {learned.tolist()}; give the same."
            )
        return labels

    def fit_chunks(
        self, source: Any, target: Any = None, *, classes: Any = None, most_held_out: int = MOST_HELD_OUT
    ) -> Self:
        """Train as ``fit`` does on data larger than memory, read in chunks, once before and once in every epoch.

        Rows are taken in the order of the chunks, the same in every epoch: where a file is sorted by class or by time,
        shuffle it first. The size of the chunks changes no bit of the result. A row of the source is held out by a lot
        drawn from its number and `random_state`, with the chance `validation_fraction`, which is halved until at most
        `most_held_out` rows are. Epochs, early stopping, what is kept and ``history_`` are those of ``fit``, which
        differs in two things: it shuffles the rows once, and it holds out the classes in proportion. On an error or ^C
        the model is as it was before the call.

        Parameters
        ----------
        source
            Chunks (X, y): a list, :class:`~momentalign.tables.chunks.FileChunks` or any object that yields them
            from the first on whenever it is iterated. X as in ``fit``, with the same columns in every chunk.
        target
            Chunks X; None trains a plain network.
        classes
            The classes, where other labels are to be refused; None takes those of the first reading.
        most_held_out
            The most rows of the source to hold out, and in memory.

        Examples
        --------
        >>> import numpy as np, momentalign as ma
        >>> from momentalign.tables.chunks import ArrayChunks
        >>> random = np.random.default_rng(0)
        >>> y = random.integers(2, size=2000)
        >>> X = random.normal(size=(2000, 2)) + 3.0 * y[:, None]
        >>> model = ma.MANNClassifier(hidden=(8,), max_epochs=20, learning_rate=0.1, random_state=0)
        >>> source, target = ArrayChunks(X, y, rows=500), ArrayChunks(X + [0.0, 1.0], rows=500)
        >>> bool(model.fit_chunks(source, target).score(X + [0.0, 1.0], y) > 0.9)
        True
        """
        return self._all_or_nothing(self._learn_chunks, source, target, ClassLabels(classes), most_held_out)

    def _take_over(self, labels: Any) -> int:
        self.classes_ = labels.classes
        return len(self.classes_)

    def _keep_one(self, network: TrainedNetwork) -> None:
        super()._keep_one(network)
        self.networks_, self.coefficients_ = [(self.coefs_, self.intercepts_)], np.ones(1)


class ValuesInChunks(_InChunks):
    """Learns numbers from data that arrive in parts."""

    y_mean_: NDArray[np.float64]
    y_deviation_: NDArray[np.float64]

    def partial_fit(self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None) -> Self:
        """Learn from some more rows: one pass over them, in order.

        Mean and deviation of `y`, by which values are standardised, are those of the first call and kept (an output
        that does not change there has the deviation 1): its rows should be like those to come. All else is as in
        :meth:`MANNClassifier.partial_fit <momentalign.estimators.chunks.ClassesInChunks.partial_fit>`.

        Examples
        --------
        >>> import numpy as np, momentalign as ma
        >>> random = np.random.default_rng(0)
        >>> model = ma.MANNRegressor(hidden=(8,), optimizer="adam", learning_rate=0.03, random_state=0)
        >>> for _ in range(100):
        ...     X = random.normal(size=(300, 2))
        ...     model = model.partial_fit(X, X.sum(axis=1))
        >>> bool(model.score(X, X.sum(axis=1)) > 0.9)
        True
        """
        return self._all_or_nothing(self._learn_more_values, X, y, X_target, sample_domain)

    def _learn_more_values(self, X: Any, y: Any, X_target: Any, sample_domain: Any) -> None:
        known = self._same_columns(X)
        domains = read_valued_domains(self, X, y, X_target, sample_domain=sample_domain)
        self.__dict__ |= known
        learned = hasattr(self, "y_mean_")
        labels = NumberLabels(Scale(self.y_mean_, self.y_deviation_) if learned else None)
        labels.read(domains.labels)
        if not learned:
            labels.note(domains.labels)
            labels.finish()
            self._take_over(labels)
            # What is constant now may not be so later.
            self.y_deviation_ = np.where(self.y_deviation_ > 0.0, self.y_deviation_, 1.0)
            labels = NumberLabels(Scale(self.y_mean_, self.y_deviation_))
        self._learn_more(domains._replace(labels=labels.coded(domains.labels)))

    def fit_chunks(self, source: Any, target: Any = None, *, most_held_out: int = MOST_HELD_OUT) -> Self:
        """Train as ``fit`` does on data larger than memory, read in chunks, once before and once in every epoch.

        All is as in :meth:`MANNClassifier.fit_chunks <momentalign.estimators.chunks.ClassesInChunks.fit_chunks>`; the
        y of a chunk holds one or several numbers per row, and they are standardised by those of all rows.

        Examples
        --------
        >>> import numpy as np, momentalign as ma
        >>> from momentalign.tables.chunks import ArrayChunks
        >>> X = np.random.default_rng(0).normal(size=(2000, 2))
        >>> model = ma.MANNRegressor(hidden=(8,), optimizer="adam", learning_rate=0.03, max_epochs=30, random_state=0)
        >>> bool(model.fit_chunks(ArrayChunks(X, X.sum(axis=1), rows=500)).score(X, X.sum(axis=1)) > 0.9)
        True
        """
        return self._all_or_nothing(self._learn_chunks, source, target, NumberLabels(), most_held_out)

    def _take_over(self, labels: Any) -> int:
        self.y_mean_, self.y_deviation_ = labels.scale
        return int(self.y_mean_.size)

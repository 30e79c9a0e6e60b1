"""MANNClassifier: a classifier that learns on the source and works on the target (Algorithm 1).

Moment Alignment Neural Network of Zellinger et al. (2019) as a scikit-learn estimator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from momentalign.discrepancies.several_domains import Between, DomainWeights
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.combination import (
    Members,
    aggregated_probabilities,
    train_combination,
    weight_grid,
)
from momentalign.estimators.domains import Labels, all_or_nothing, is_missing, read_rows
from momentalign.estimators.mann import MOST_HELD_OUT, BaseMANN, Settings, in_chunks, split_layers
from momentalign.networks.shallow import outputs, probabilities
from momentalign.progress import progress_bar
from momentalign.tables.table import quoted, shown
from momentalign.training.config import (
    Distance,
    LossName,
    OptimizerName,
    Rows,
    Task,
    TrainedNetwork,
)
from momentalign.validation import naming

__all__ = ["ClassLabels", "MANNClassifier"]

# Whole numbers are exact in float64 below this.
WHOLE_BELOW = 2.0**53


class MANNClassifier(ClassifierMixin, BaseMANN):  # type: ignore[misc]
    r"""Neural network classifier whose hidden activations are aligned between a source and a target domain.

    Minimises :math:`\mathcal L(h(X_S), y_S) + \lambda\, d(h_0(X_S), h_0(X_T))`, Eq. (24): the cross-entropy on the
    labelled source plus a distance between the hidden activations of both domains. Without target data it is a plain
    sigmoid network.

    Parameters
    ----------
    hidden
        Units of each hidden layer; the last one is aligned.
    discrepancy
        ``"cmd"``, ``"cv-cmd"`` (with all cross-variances), ``"mmd"``, ``"coral"``, ``"dann"`` (a domain classifier that
        learns along), None (plain network), or a callable that takes two batches of activations and returns a scalar
        tensor, such as ``ma.MMDLoss(beta=1.2)``.
    weight
        The weight :math:`\lambda` of the distance. ``"auto"`` trains a plain network and networks with several weights,
        and combines the latter without target labels, or keeps the plain one where that is safer, see
        :func:`~momentalign.estimators.combination.combine`. Where more than a fifth of the source was held out, what
        is kept is trained a second time, on all rows, for as many epochs as the held-out ones said.
    n_moments
        The number of moments of ``"cmd"`` and ``"cv-cmd"``.
    optimizer
        ``"adagrad"``, ``"adadelta"``, ``"sgd"`` or ``"adam"``. None takes Adagrad for sparse rows, as in the paper, and
        Adam for dense ones, where it is as accurate in fewer epochs.
    learning_rate
        None takes 0.01 for Adagrad and 0.003 for Adam where `optimizer` is None, else the paper's: 0.01 for Adagrad and
        SGD, 1 for Adadelta, 0.001 for Adam.
    batch_size
        Rows of each domain in an update; None for the whole sample.
    max_epochs, patience
        Train at most so many epochs; stop after `patience` epochs without a lower validation loss (None: never).
    validation_fraction
        Part of the source held out to stop early and to choose the epoch with the best accuracy; 0 holds out nothing.
    device
        ``"cpu"``, ``"cuda"``, ... or ``"auto"``: a GPU if there is one.
    random_state
        Seed of the initial weights and of the split; the same seed gives the same bits, whatever the number of threads.
    verbose
        1 shows a progress bar.
    between, domain_weights
        What is compared where `sample_domain` names several sources or targets, and how much each domain counts; see
        :func:`~momentalign.discrepancies.several_domains.multi_domain_cmd`. Numbers of `domain_weights` go with the
        sources in the order of their ids. ``"barycentre"`` needs ``discrepancy="cmd"``; any other distance is averaged
        over the pairs in the same way, and the domain classifier of ``"dann"`` tells all sources from all targets.
    sharpen
        Weight of the loss on unlabelled target predictions (:mod:`momentalign.training.target_loss`), which moves the
        class boundaries to where there are few target rows. It is added in a second phase, as long as the first, whose
        last weights are kept. Not in ``partial_fit`` and ``fit_chunks``.
    class_weight
        None, ``"balanced"``, or a dictionary of weights by class, as in scikit-learn; they multiply `sample_weight`.
        ``partial_fit`` takes a dictionary, ``fit_chunks`` and the searches take neither.

    Attributes
    ----------
    domains_ : ndarray
        The ids of the domains, sources first: those of `sample_domain`, else 1 and -2 as in skada.
    moments_ : dict
        For each id the :class:`~momentalign.moments.streaming.Moments`, up to order 5, of the hidden activations of its
        rows; empty after ``partial_fit`` and ``fit_chunks``, which do not have all rows at once.
    classes_ : ndarray
        The class labels.
    coefs_, intercepts_ : list of ndarray
        Weights (inputs, outputs) and biases of each layer.
    n_epochs_, best_epoch_ : int
        Epochs trained, and the one whose weights were kept.
    networks_, coefficients_
        The networks whose probabilities are combined, each as (coefs, intercepts), and their coefficients: one network
        with coefficient 1 unless ``weight="auto"`` combines several; ``coefs_`` are those of the largest coefficient.
    history_ : dict of list
        Per epoch: ``source_loss``, ``distance``, ``validation_loss``, ``validation_accuracy``.

    Examples
    --------
    >>> import numpy as np, momentalign as ma
    >>> random = np.random.default_rng(0)
    >>> X, y = random.normal(size=(200, 2)), np.repeat(["left", "right"], 100)
    >>> X[y == "right"] += 3
    >>> model = ma.MANNClassifier(hidden=(8,), max_epochs=200, learning_rate=0.1, random_state=0)
    >>> bool(model.fit(X, y, X_target=X + [0.0, 1.0]).score(X + [0.0, 1.0], y) > 0.9)
    True
    """

    def __init__(
        self,
        hidden: Sequence[int] = (50,),
        discrepancy: str | Distance | None = "cmd",
        weight: float | Literal["auto"] = 1.0,
        n_moments: int = 5,
        optimizer: OptimizerName | None = None,
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
        *,
        sharpen: float = 0.0,
        class_weight: Any = None,
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
        self.sharpen = sharpen
        self.class_weight = class_weight

    _loss: LossName = "cross_entropy"

    def _labels(self) -> ClassLabels:
        return ClassLabels()

    @all_or_nothing
    def partial_fit(
        self,
        X: Any,
        y: Any,
        X_target: Any = None,
        *,
        classes: Any = None,
        sample_domain: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from some more rows: one pass over them, in order.

        Weights go on from the call before, also from ``fit``, ``fit_chunks`` or ``ma.load``; the optimizer's state goes
        on from ``partial_fit`` to ``partial_fit`` as long as `optimizer`, `discrepancy` and `device` stay the same.
        Nothing is held out or stopped early: the weights are those of the last update. Whether the loops are compiled
        is decided by the rows of the first call. On an error or ^C the model is as it was before the call.

        Parameters
        ----------
        X, y, X_target, sample_domain, sample_weight
            As in ``fit``; weights compare the rows of this call. Batches of `batch_size` rows of both domains are
            paired, the shorter one starts again (Section 6.3 of Zellinger et al. 2019); without target rows the call is
            one of a plain network.
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
        return self._partial_fit(X, y, X_target, labels, sample_domain, sample_weight)

    @all_or_nothing
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
        return self._fit_chunks(source, target, ClassLabels(classes), most_held_out)

    def _keep_labels(self, labels: ClassLabels) -> None:
        self.classes_ = labels.classes

    def _settings(self, method: str = "fit") -> Settings:
        """Refuse what needs all rows at once where there are some of them."""
        settings = super()._settings(method)
        if method == "fit":
            return settings
        if settings.spec.sharpen:
            raise InvalidInputError(
                f"sharpen={self.sharpen} looks at all target rows in a second phase, which {method} does not have; "
                "give sharpen=0.0."
            )
        if self._is_automatic:
            raise InvalidInputError(
                'weight="auto" compares networks on rows it holds in memory, which chunks do not; give a number, try '
                "weight=1.0."
            )
        if method == "fit_chunks" and self.class_weight is not None:
            raise InvalidInputError(
                f"class_weight={self.class_weight!r:.80} repeats rows, which fit_chunks reads as they are; repeat them "
                "in the chunks, or use fit."
            )
        if isinstance(self.class_weight, str):
            raise InvalidInputError(
                f"class_weight={self.class_weight!r} counts all rows, and partial_fit sees some of them; give a "
                "dictionary of weights by class."
            )
        return settings

    def _train(self, task: Task, settings: Settings) -> None:
        if not self._is_automatic:
            super()._train(task, settings)
            return
        config, spec, device, _ = settings
        specs = weight_grid(spec if task.target is not None else replace(spec, distance=None))
        cores = effective_n_jobs(-1)
        with progress_bar(type(self).__name__, verbose=self.verbose) as progress:
            found = train_combination(task, config, specs, device=device, threads=cores, progress=progress)
        self._keep_members(*found)

    def _keep(self, network: TrainedNetwork) -> None:
        super()._keep(network)
        self.networks_, self.coefficients_ = [(self.coefs_, self.intercepts_)], np.ones(1)

    def _keep_members(self, networks: Sequence[TrainedNetwork], members: Members) -> None:
        """Predict with several networks; the hidden activations are those of the largest coefficient."""
        self._keep(networks[members.largest])
        self.networks_ = [split_layers(network.layers) for network in networks]
        self.coefs_, self.intercepts_ = self.networks_[members.largest]
        self.coefficients_ = members.coefficients

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: bool = True) -> NDArray[Any]:  # noqa: ARG002
        """Return the class of each row, in order, whatever its `sample_domain`: one network serves every domain."""
        check_is_fitted(self)
        is_one = len(self.networks_) == 1
        scores = in_chunks(outputs, read_rows(self, X), *self.networks_[0]) if is_one else self.predict_proba(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(
        self,
        X: Any,
        *,
        sample_domain: Any = None,  # noqa: ARG002
        allow_source: bool = True,  # noqa: ARG002
    ) -> NDArray[np.floating[Any]]:
        """Return the probability of each class, (rows, classes), in the order of ``classes_``, as :meth:`predict`."""
        check_is_fitted(self)
        rows = read_rows(self, X)
        found = np.stack([in_chunks(probabilities, rows, *network) for network in self.networks_])
        if len(found) > 1:
            found = aggregated_probabilities(coefficients=self.coefficients_, predictions=found)[None]
        return np.asarray(found[0].astype(rows.dtype, copy=False))

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sample_domain: Any = None,  # noqa: ARG002
        allow_source: bool = True,  # noqa: ARG002
    ) -> float:
        """Return the accuracy on these rows, whatever their `sample_domain`."""
        return float(super().score(X, y, sample_weight))


class ClassLabels(Labels):
    """Classes, found in the first reading or given.

    Examples
    --------
    >>> labels = ClassLabels()
    >>> for chunk in (["pear", "fig"], ["plum", "fig"]):
    ...     labels.note(labels.read(chunk))
    >>> labels.finish()
    >>> labels.classes.tolist(), labels.coded(np.array(["plum", "fig"])).tolist()
    (['fig', 'pear', 'plum'], [2, 0])
    """

    def __init__(self, classes: Any = None) -> None:
        self.classes: NDArray[Any] = np.zeros(0)
        self._given = classes is not None
        if self._given:
            with naming("classes"):
                self.classes, _ = encode_labels(column_or_1d(classes))
            self.finish()

    @property
    def n_outputs(self) -> int:
        """One unit per class."""
        return len(self.classes)

    @property
    def fewest(self) -> int:
        """One row of each class."""
        return len(self.classes)

    def read(self, y: Any) -> NDArray[Any]:
        """Return one label per row."""
        with naming("y"):
            return np.asarray(column_or_1d(y, warn=True))

    def known_of_target(self, y_target: Any, labels: NDArray[Any], rows: int) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Return the labels that are not NaN, None, the NA of pandas or, unless it is a class of the source, -1."""
        # A list of names and numbers would become an array of names.
        given = np.array(y_target, dtype=object) if isinstance(y_target, (list, tuple)) else np.asarray(y_target)
        if given.shape != (rows,):
            raise InvalidInputError(
                f"y_target must hold one entry per target row ({rows}), got shape {given.shape}; mark missing ones "
                "with NaN, None or -1."
            )
        unknown = [] if (labels == -1).any() else [-1]
        known = np.array([not (is_missing(label) or label in unknown) for label in given.tolist()], dtype=bool)
        return known, _as_kind_of(given[known], labels) if known.any() else labels[:0]

    def note(self, labels: NDArray[Any]) -> None:
        """Add the classes of a part to those found so far; refuse others than those given."""
        if self._given:
            self.coded(labels)
            return
        found, _ = encode_labels(labels)
        if len(self.classes):
            self._refuse_other_kind(found)
            found = np.unique(np.concatenate([self.classes, found]))
        self.classes = found

    def finish(self) -> None:
        """Refuse what has one class only."""
        if len(self.classes) < 2:
            raise InvalidInputError(
                f"y has one class only ({self._listed()}); a classifier needs the labels of at least 2 classes."
            )

    def coded(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        """Return the number of each label's class, or name the row whose label is none."""
        self._refuse_other_kind(labels)
        codes = np.searchsorted(self.classes, labels).clip(max=len(self.classes) - 1)
        unknown = self.classes[codes] != labels
        if unknown.any():
            row = int(unknown.argmax())
            raise InvalidInputError(
                f"y has the label {shown(labels[row])} in row {row + 1}, the classes are {self._listed()}; name all "
                "classes before the first row is learned from."
            )
        return codes

    def hold_out(self, codes: NDArray[Any], fraction: float, seed: int) -> tuple[Rows, Rows | None]:
        """Classes in proportion in both parts."""
        order = np.random.default_rng([seed, 0]).permutation(len(codes))
        counts = np.bincount(codes)
        present, held_out = np.count_nonzero(counts), math.ceil(fraction * len(codes))
        if fraction == 0.0 or counts.min() < 2 or min(held_out, len(codes) - held_out) < present:
            return order, None
        training, validation = train_test_split(
            order, test_size=held_out, stratify=codes[order], shuffle=True, random_state=seed % 2**32
        )
        return training, validation

    def _listed(self) -> str:
        return quoted(self.classes.tolist())

    def _refuse_other_kind(self, labels: NDArray[Any]) -> None:
        """Numbers and text compare as text in numpy, and 1 would be '1'."""
        if (labels.dtype.kind in "biuf") != (self.classes.dtype.kind in "biuf"):
            raise InvalidInputError(
                f"y has labels such as {shown(labels[0])} of {labels.dtype}, the classes ({self._listed()}) are of "
                f"{self.classes.dtype}; make all of them numbers or all strings."
            )


def encode_labels(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the classes in order and each label as the number of its class."""
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        raise InvalidTypeError("y holds labels of different types; make all of them numbers or all strings.") from None
    # Labels beyond the whole numbers of 64 bits are asked whether they are whole.
    with naming("y"), np.errstate(invalid="ignore"):
        check_classification_targets(labels)
    return classes, codes


def _as_kind_of(labels: NDArray[Any], source_labels: NDArray[Any]) -> NDArray[Any]:
    """Labels of the source's kind: an array that also holds missing ones is of floats or of objects."""
    plain = np.array(labels.tolist())
    if plain.dtype.kind == "f" and not np.isfinite(plain).all():
        raise InvalidInputError("y_target holds an infinite label; mark missing ones with NaN, None or -1.")
    if source_labels.dtype.kind in "iu" and plain.dtype.kind == "f" and (np.abs(plain) < WHOLE_BELOW).all():
        whole = plain.astype(np.int64)
        plain = whole if (whole == plain).all() else plain
    if source_labels.dtype.kind == "O" and plain.dtype.kind in "UO":
        return plain.astype(object)
    kinds = {plain.dtype.kind, source_labels.dtype.kind}
    if len(kinds) > 1 and not kinds <= set("iuf"):
        raise InvalidInputError(
            f"y_target holds labels such as {plain.tolist()[0]!r}, y is of {source_labels.dtype}; "
            "give labels of one kind."
        )
    return plain

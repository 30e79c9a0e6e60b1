"""MANNClassifier: a classifier that learns on the source and works on the target (Algorithm 1).

Moment Alignment Neural Network of Zellinger et al. (2019) as a scikit-learn estimator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted, validate_data

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.correlation import CORALLoss
from momentalign.discrepancies.maximum_mean import MMDLoss
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.aggregation import train_aggregated
from momentalign.estimators.domains import read_domains
from momentalign.estimators.inputs import (
    as_float32,
    encode_labels,
    joined_task,
    read_device,
    read_number,
    read_seed,
    split_layers,
)
from momentalign.estimators.progress import training_progress
from momentalign.moments import read_order
from momentalign.networks.shallow import Layer, Matrix, activations, outputs, probabilities
from momentalign.scores.aggregation import aggregated_probabilities
from momentalign.training.recipe import Distance, Member, Optimizer, OptimizerName, Recipe, Task
from momentalign.training.stack import train_stack

__all__ = ["MANNClassifier", "named_distance"]

# Rows that are predicted at once: bounds the memory that widening to float64 takes.
CHUNK = 16384
# Beyond this the squares of gradients leave float32.
LARGEST_WEIGHT = 1e15


class MANNClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
        The weight :math:`\lambda` of the distance. ``"auto"`` trains networks with several weights and combines them
        without target labels; each is trained a second time, on all rows, for as many epochs as the held-out ones
        said.
    n_moments
        The number of moments of ``"cmd"`` and ``"cv-cmd"``.
    optimizer
        ``"adagrad"`` (sparse data), ``"adadelta"`` (dense data), ``"sgd"`` or ``"adam"``.
    learning_rate
        None takes the paper's: 0.01 for Adagrad and SGD, 1 for Adadelta, 0.001 for Adam.
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

    Attributes
    ----------
    classes_ : ndarray
        The class labels.
    coefs_, intercepts_ : list of ndarray
        Weights (inputs, outputs) and biases of each layer.
    n_epochs_, best_epoch_ : int
        Epochs trained, and the one whose weights were kept.
    networks_, coefficients_
        The networks whose probabilities are combined, each as (coefs, intercepts), and their coefficients: one network
        with coefficient 1 unless ``weight="auto"``, where ``coefs_`` are those of the largest coefficient.
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
        optimizer: OptimizerName = "adagrad",
        learning_rate: float | None = None,
        batch_size: int | None = 300,
        max_epochs: int = 1500,
        patience: int | None = 10,
        validation_fraction: float = 0.3,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
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
        y_target
            Labels of some target rows, NaN, None or -1 where unknown; those rows join the labelled ones.
        """
        before = dict(vars(self))
        try:
            self._fit(X, y, X_target, sample_domain, y_target)
        except BaseException:  # A refused call changes nothing, also where the model was fitted before.
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Any, y: Any, X_target: Any, sample_domain: Any, y_target: Any) -> None:
        recipe = self._recipe()
        distance = named_distance(self.discrepancy, self.n_moments, width=recipe.hidden[-1])
        automatic = isinstance(self.weight, str) and self.weight == "auto"
        weight = 1.0 if automatic else read_number(self.weight, "weight", least=0.0, most=LARGEST_WEIGHT)
        domains = read_domains(self, X, y, X_target, sample_domain=sample_domain, y_target=y_target)
        self.classes_, codes = encode_labels(domains.labels)
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"y has one class only ({self.classes_[0]!r}); a classifier needs the labels of at least 2 classes."
            )
        seed = read_seed(self.random_state)
        task, device = self._task(domains.source, codes, domains.target, seed), read_device(self.device)
        if automatic and domains.target is not None and distance is not None:
            whole = joined_task(task)
            networks, self.coefficients_, chosen = train_aggregated(
                task, whole, recipe, distance, seed=seed, device=device
            )
        else:
            member = Member(seed, weight if domains.target is not None else 0.0, distance)
            with training_progress(type(self).__name__, verbose=self.verbose) as progress:
                networks = train_stack(task, recipe, [member], device=device, progress=progress)
            self.coefficients_, chosen = np.ones(1), 0
        self.networks_ = [split_layers(network.layers) for network in networks]
        (self.coefs_, self.intercepts_), network = self.networks_[chosen], networks[chosen]
        self.n_epochs_, self.best_epoch_ = network.n_epochs, network.best_epoch
        self.history_ = dict(vars(network.history))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row, in order."""
        one = len(self._fitted_networks()) == 1
        scores = self._apply(outputs, X, *self.networks_[0]) if one else self.predict_proba(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the probability of each class, (rows, classes), in the order of ``classes_``."""
        stack = np.stack([self._apply(probabilities, X, *network) for network in self._fitted_networks()])
        if len(stack) == 1:
            return np.asarray(stack[0])
        combined = aggregated_probabilities(coefficients=self.coefficients_, predictions=stack.astype(np.float64))
        return combined.astype(stack.dtype, copy=False)

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the hidden activations of each row, (rows, width), values in [0, 1]."""
        self._fitted_networks()
        return self._apply(activations, X, self.coefs_, self.intercepts_)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a folder: safetensors and a JSON manifest; read it back with ``ma.load(path)``."""
        from momentalign.estimators.persistence import save

        save(self, path)

    def _fitted_networks(self) -> list[tuple[list[NDArray[Any]], list[NDArray[Any]]]]:
        check_is_fitted(self)
        return self.networks_

    def _apply(
        self, function: Any, X: Any, coefs: list[NDArray[Any]], intercepts: list[NDArray[Any]]
    ) -> NDArray[np.floating[Any]]:
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        # In float64 a row gets the same result to the last visible digit, whatever rows stand around it.
        layers = [Layer(w.astype(np.float64), b.astype(np.float64)) for w, b in zip(coefs, intercepts, strict=True)]
        chunks = [X[start : start + CHUNK].astype(np.float64) for start in range(0, X.shape[0], CHUNK)]
        return np.concatenate([function(layers, rows) for rows in chunks]).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return int(self.coefs_[-1].shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _recipe(self) -> Recipe:
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Iterable):
            raise InvalidTypeError(
                f"hidden must be a sequence of whole numbers, got {self.hidden!r}; try hidden=(50,)."
            )
        hidden = tuple(read_order(units, "hidden", example="(50,)") for units in self.hidden)
        if not hidden:
            raise InvalidInputError("hidden is empty, there is no layer to align; try hidden=(50,).")
        return Recipe(
            hidden=hidden,
            optimizer=Optimizer(self.optimizer, self.learning_rate),
            batch_size=None if self.batch_size is None else read_order(self.batch_size, "batch_size"),
            max_epochs=read_order(self.max_epochs, "max_epochs"),
            patience=None if self.patience is None else read_order(self.patience, "patience"),
        )

    def _task(self, source: Matrix, codes: NDArray[np.intp], target: Matrix | None, seed: int) -> Task:
        """Shuffle both domains once and hold out the last part of the source, every class in both parts."""
        fraction = read_number(self.validation_fraction, "validation_fraction", least=0.0)
        if fraction >= 1.0:
            raise InvalidInputError(f"validation_fraction must be below 1, got {fraction}; try 0.3.")
        training, held_out = _hold_out(codes, fraction, seed)
        source = as_float32(source, "X")
        if target is not None:
            order = np.random.default_rng([seed, 1]).permutation(target.shape[0])
            target = as_float32(target[order], "X_target")
        validation = {} if held_out is None else {"validation": source[held_out], "validation_labels": codes[held_out]}
        return Task(source[training], codes[training], target, len(self.classes_), **validation)


def named_distance(discrepancy: str | Distance | None, n_moments: int, *, width: int) -> Distance | None:
    """Return the distance of `width` activations a name stands for; callables are taken as they are."""
    if discrepancy is None:
        return None
    if callable(discrepancy):
        return discrepancy
    order = read_order(n_moments, "n_moments")
    if discrepancy == "cmd":
        return CMDLoss(order)
    if discrepancy == "cv-cmd":
        return CMDLoss(order, cross=2)
    if discrepancy == "mmd":
        return MMDLoss()
    if discrepancy == "coral":
        return CORALLoss()
    if discrepancy == "dann":
        return AdversarialLoss(width)
    raise InvalidInputError(
        f'discrepancy must be "cmd", "cv-cmd", "mmd", "coral", "dann", None or a callable, got {discrepancy!r}.'
    )


def _hold_out(codes: NDArray[np.intp], fraction: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp] | None]:
    """Split rows into training and validation, classes in proportion; nothing is held out where one is too small."""
    order = np.random.default_rng([seed, 0]).permutation(len(codes))
    classes = len(np.unique(codes))
    held_out = math.ceil(fraction * len(codes))
    if fraction == 0.0 or np.bincount(codes).min() < 2 or held_out < classes or len(codes) - held_out < classes:
        return order, None
    training, validation = train_test_split(
        order, test_size=held_out, stratify=codes[order], shuffle=True, random_state=seed % 2**32
    )
    return training, validation

"""MANNRegressor: a regressor that learns on the source and works on the target (Algorithm 1 with a loss of numbers).

The network of Zellinger et al. (2019) with linear outputs; their distances ask nothing of the labels.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import assert_all_finite, check_is_fitted

from momentalign.discrepancies.several_domains import Between, DomainWeights
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.domains import Labels, all_or_nothing, read_rows
from momentalign.estimators.mann import MOST_HELD_OUT, BaseMANN, Settings, in_chunks
from momentalign.networks.shallow import outputs
from momentalign.training.config import (
    Distance,
    OptimizerName,
    Rows,
    TrainedNetwork,
    ValueLossName,
)
from momentalign.validation import naming

__all__ = ["ContinuousLabels", "MANNRegressor", "Scale", "fitted_scale", "read_values"]

Floats: TypeAlias = NDArray[np.float64]

# Rows whose mean and standard deviation are taken at once: 0.5 MB of numbers.
BLOCK = 2**16


class MANNRegressor(RegressorMixin, BaseMANN):  # type: ignore[misc]
    r"""Neural network regressor whose hidden activations are aligned between a source and a target domain.

    Minimises :math:`\frac{1}{nk}\sum_{ij} \rho(r_{ij}) + \lambda\, d(h_0(X_S), h_0(X_T))`, Eq. (24) of Zellinger et al.
    (2019) with another loss: a function :math:`\rho` of the differences :math:`r = f(X_S) - z_S` from the standardised
    values :math:`z = (y - \mathrm{mean}) / \mathrm{deviation}` of the n labelled source rows and their k outputs, plus
    a distance between the hidden activations :math:`h_0` of both domains, where :math:`f(x) = V h_0(x) + c` is linear
    in them. Without target data it is a plain sigmoid network.

    Alignment makes the activations of both domains alike. It is meant for domains whose values are distributed alike;
    where the target has larger values than the source, part of that difference is aligned away.

    Parameters
    ----------
    hidden, discrepancy, n_moments, optimizer, learning_rate, batch_size
        As in :class:`~momentalign.estimators.classifier.MANNClassifier`.
    device, random_state, verbose, between, domain_weights
        As in :class:`~momentalign.estimators.classifier.MANNClassifier`.
    weight
        The weight :math:`\lambda` of the distance, a number. There is no ``"auto"``, which combines probabilities.
    max_epochs, patience
        Train at most so many epochs; stop after `patience` epochs without a lower validation loss (None: never).
    validation_fraction
        Part of the source held out to stop early and to choose the epoch with the lowest loss; 0 holds out nothing.
    loss
        The function :math:`\rho`, in training and on the held-out rows: ``"squared"``, :math:`r^2`, which learns the
        mean; ``"absolute"``, :math:`|r|`, which learns the median; or ``"huber"``, :math:`r^2` up to
        :math:`|r| = \delta` and :math:`\delta (2 |r| - \delta)` beyond, with :math:`\delta = 0.25` deviations of `y`
        (Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35, 1964). The last two
        bear values of `y` that are far off.

    Attributes
    ----------
    y_mean_, y_deviation_ : ndarray
        Mean and deviation of the training values: of shape () where `y` is one number per row, else (outputs,).
    domains_, moments_
        As in :class:`~momentalign.estimators.classifier.MANNClassifier`.
    coefs_, intercepts_ : list of ndarray
        Weights (inputs, outputs) and biases of each layer; the last one gives standardised values.
    n_epochs_, best_epoch_ : int
        Epochs trained, and the one whose weights were kept.
    history_ : dict of list
        Per epoch: ``source_loss``, ``distance``, ``validation_loss``, of standardised values.

    Examples
    --------
    >>> import numpy as np
    >>> from momentalign.estimators.regressor import MANNRegressor
    >>> random = np.random.default_rng(0)
    >>> y, y_target = random.normal(size=200), random.normal(size=200)
    >>> X, X_target = (np.outer(v, [1.0, 1.0]) + random.normal(scale=0.3, size=(200, 2)) for v in (y, y_target))
    >>> X_target[:, 1] += 2.0
    >>> settings = {"hidden": (8,), "optimizer": "adam", "learning_rate": 0.03, "random_state": 0}
    >>> plain = MANNRegressor(discrepancy=None, **settings).fit(X, y)
    >>> aligned = MANNRegressor(**settings).fit(X, y, X_target)
    >>> bool(plain.score(X_target, y_target) < 0.5 < aligned.score(X_target, y_target))
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
        loss: ValueLossName = "squared",
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
        self.loss = loss

    y_mean_: Floats
    y_deviation_: Floats

    def _labels(self) -> ContinuousLabels:
        return ContinuousLabels()

    @property
    def _loss(self) -> ValueLossName:
        if self.loss not in (known := get_args(ValueLossName)):
            raise InvalidInputError(f"loss must be one of {', '.join(known)}, got {self.loss!r}.")
        return self.loss

    @all_or_nothing
    def partial_fit(
        self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from some more rows: one pass over them, in order.

        Mean and deviation of `y`, by which values are standardised, are those of the first call and kept (an output
        that does not change there has the deviation 1): its rows should be like those to come. All else is as in
        :meth:`~momentalign.estimators.classifier.MANNClassifier.partial_fit`.

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
        labels = ContinuousLabels(Scale(self.y_mean_, self.y_deviation_) if hasattr(self, "y_mean_") else None)
        self._partial_fit(X, y, X_target, labels, sample_domain, sample_weight)
        # What is constant in these rows may not be so later.
        self.y_deviation_ = np.where(self.y_deviation_ > 0.0, self.y_deviation_, 1.0)
        return self

    @all_or_nothing
    def fit_chunks(self, source: Any, target: Any = None, *, most_held_out: int = MOST_HELD_OUT) -> Self:
        """Train as ``fit`` does on data larger than memory, read in chunks, once before and once in every epoch.

        All is as in :meth:`~momentalign.estimators.classifier.MANNClassifier.fit_chunks`; the y of a chunk holds one
        or several numbers per row, and they are standardised by those of all rows.

        Examples
        --------
        >>> import numpy as np, momentalign as ma
        >>> from momentalign.tables.chunks import ArrayChunks
        >>> X = np.random.default_rng(0).normal(size=(2000, 2))
        >>> model = ma.MANNRegressor(hidden=(8,), optimizer="adam", learning_rate=0.03, max_epochs=30, random_state=0)
        >>> bool(model.fit_chunks(ArrayChunks(X, X.sum(axis=1), rows=500)).score(X, X.sum(axis=1)) > 0.9)
        True
        """
        return self._fit_chunks(source, target, ContinuousLabels(), most_held_out)

    def _keep_labels(self, labels: ContinuousLabels) -> None:
        assert labels.scale is not None  # noqa: S101  (labels have been learned)
        self.y_mean_, self.y_deviation_ = labels.scale

    def _settings(self, method: str = "fit") -> Settings:
        if self._is_automatic:
            raise InvalidInputError(
                'weight="auto" combines class probabilities, which a regressor has not; give a number, try weight=1.0.'
            )
        return super()._settings(method)

    def _keep(self, network: TrainedNetwork) -> None:
        super()._keep(network)
        del self.history_["validation_accuracy"]

    def predict(
        self,
        X: Any,
        *,
        sample_domain: Any = None,  # noqa: ARG002
        allow_source: bool = True,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        """Return the value of each row, in order: (rows,) or (rows, outputs), as `y` was in ``fit``.

        It does not depend on `sample_domain`: one network serves every domain.
        """
        check_is_fitted(self)
        found = in_chunks(outputs, read_rows(self, X), self.coefs_, self.intercepts_)
        return Scale(self.y_mean_, self.y_deviation_).restore(found)

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sample_domain: Any = None,  # noqa: ARG002
        allow_source: bool = True,  # noqa: ARG002
    ) -> float:
        """Return the coefficient of determination on these rows, whatever their `sample_domain`."""
        return float(super().score(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class Scale(NamedTuple):
    """Mean and standard deviation of each output: single numbers for values (rows,), arrays for (rows, outputs)."""

    mean: Floats
    standard_deviation: Floats

    def standardise(self, values: Floats) -> Floats:
        """Return values of mean 0 and standard deviation 1, always (rows, outputs); a constant output is all zeros."""
        divisor = np.where(self.standard_deviation > 0.0, self.standard_deviation, 1.0)
        return ((values - self.mean) / divisor).reshape(len(values), self.mean.size)

    def restore(self, outputs: Floats) -> Floats:
        """Return values of the shape that was learned; a constant output comes back to the last digit."""
        return self.mean + self.standard_deviation * outputs.reshape(len(outputs), *self.mean.shape)


def fitted_scale(values: Floats) -> Scale:
    """Return mean and standard deviation of the rows, or say that they leave float64.

    Examples
    --------
    >>> scale = fitted_scale(np.array([1.0, 3.0]))
    >>> scale.mean, scale.standard_deviation
    (array(2.), array(1.))
    >>> scale.standardise(np.array([1.0, 3.0])).tolist()
    [[-1.0], [1.0]]
    """
    constant = values.min(axis=0) == values.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        # Sums of equal numbers are rounded: a constant is its own mean.
        mean = np.where(constant, values[0], values.mean(axis=0))
        standard_deviation = np.where(constant, 0.0, values.std(axis=0))
    if not (np.isfinite(mean).all() and np.isfinite(standard_deviation).all()):
        raise _too_large(values)
    return Scale(mean, standard_deviation)


class ContinuousLabels(Labels):
    """Numbers, one or several per row, learned with the mean 0 and standard deviation 1 of the first reading.

    Means and standard deviations of parts are merged as in Chan, Golub and LeVeque (Algorithms for computing the sample
    variance, The American Statistician 37, 1983): no difference of large sums is taken. What is merged are blocks of
    a size of their own, so that the size of the chunks changes no digit.

    Examples
    --------
    >>> labels = ContinuousLabels()
    >>> for chunk in ([1.0, 3.0], [5.0, 7.0]):
    ...     labels.note(labels.read(chunk))
    >>> labels.finish()
    >>> labels.scale.mean, labels.coded(np.array([4.0])).tolist()
    (array(4.), [[0.0]])
    """

    def __init__(self, scale: Scale | None = None) -> None:
        self.scale, self._given = scale, scale is not None
        self._shape = None if scale is None else scale.mean.shape
        self._rows = 0
        self._waiting: list[Floats] = []
        self._n_waiting = 0

    @property
    def n_outputs(self) -> int:
        """One unit per number of a row."""
        assert self.scale is not None  # noqa: S101  (finish was called, or the scale was given)
        return int(self.scale.mean.size)

    def read(self, y: Any) -> Floats:
        """Return as many numbers per row as before; a missing one is NaN."""
        values = read_values(y, "y")
        if self._shape is not None and values.shape[1:] != self._shape:
            raise InvalidInputError(
                f"y has the shape {values.shape}, {math.prod(self._shape)} numbers per row came before; give as many."
            )
        return values

    def known_of_target(self, y_target: Any, labels: NDArray[Any], rows: int) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Return the rows all of whose numbers are known; -1 is a number like any other."""
        values, expected = read_values(y_target, "y_target"), (rows, *labels.shape[1:])
        if values.shape != expected:
            raise InvalidInputError(
                f"y_target must hold the numbers of every target row, shape {expected}, got shape {values.shape}; mark "
                "missing ones with NaN or None."
            )
        known = np.asarray(~np.isnan(values.reshape(rows, -1)).any(axis=1))
        with naming("y_target"):
            assert_all_finite(values[known], input_name="y_target")
        return known, values[known]

    def note(self, labels: Floats) -> None:
        """Take in a part; mean and standard deviation are those of all rows once the reading has ended, or as given."""
        if self._given:
            return
        self._shape = labels.shape[1:]
        self._waiting.append(labels)
        self._n_waiting += len(labels)
        if self._n_waiting >= BLOCK:
            self._merge_waiting(self._n_waiting - self._n_waiting % BLOCK)

    def finish(self) -> None:
        """Merge the last rows; there is nothing to refuse, a number that never changes can be learned."""
        if self._n_waiting:
            self._merge_waiting(self._n_waiting)

    def _merge_waiting(self, count: int) -> None:
        """Merge as many rows, block by block; the others wait for more."""
        # Columns one after the other would be summed in another order.
        joined = np.ascontiguousarray(np.concatenate(self._waiting))
        for start in range(0, count, BLOCK):
            self._merge(joined[start : min(start + BLOCK, count)])
        self._waiting, self._n_waiting = [joined[count:].copy()], len(joined) - count

    def _merge(self, values: Floats) -> None:
        """Merge mean and standard deviation of a block with those of the rows before."""
        part, rows = fitted_scale(values), len(values)
        if self.scale is None:
            self.scale, self._rows = part, rows
            return
        share = rows / (self._rows + rows)
        difference = part.mean - self.scale.mean
        with np.errstate(over="ignore"):
            variance = (1.0 - share) * self.scale.standard_deviation**2 + share * part.standard_deviation**2
            variance += share * (1.0 - share) * difference**2
        if not np.isfinite(variance).all():
            raise _too_large(values)
        self.scale = Scale(np.asarray(self.scale.mean + share * difference), np.asarray(np.sqrt(variance)))
        self._rows += rows

    def learn(self, labels: NDArray[Any], rows: Rows | None = None) -> NDArray[Any]:
        """Take in the labels of these rows, each as often as it is named: mean and standard deviation are theirs."""
        return super().learn(labels if rows is None else labels[rows])

    def coded(self, labels: Floats) -> NDArray[np.float32]:
        """Return standardised numbers, (rows, outputs)."""
        assert self.scale is not None  # noqa: S101  (finish was called, or the scale was given)
        return self.scale.standardise(labels).astype(np.float32)

    def hold_out(self, codes: NDArray[Any], fraction: float, seed: int) -> tuple[Rows, Rows | None]:
        """Any rows, at least two in each part."""
        order = np.random.default_rng([seed, 0]).permutation(len(codes))
        held_out = math.ceil(fraction * len(codes))
        if min(held_out, len(codes) - held_out) < self.fewest:
            return order, None
        return order[held_out:], order[:held_out]


def read_values(values: Any, name: str) -> Floats:
    """Return numbers (rows,) or (rows, outputs) as float64, None as NaN, or say why they are none."""
    with naming(name):
        array = np.asarray(values)
    if array.ndim not in (1, 2) or array.size == 0:
        raise InvalidInputError(
            f"{name} must hold one or several numbers per row, shape (n,) or (n, outputs), got shape {array.shape}."
        )
    if array.dtype.kind == "c":
        raise InvalidInputError(f"{name}: Complex data not supported; give real and imaginary parts as two outputs.")
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    # Numbers may stand among None as objects; a string is no number, even where it could be read as one.
    entries = array.ravel().tolist()
    strange = [entry for entry in entries if isinstance(entry, (str, bytes))]
    try:
        if array.dtype.kind == "O" and not strange:
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        strange = [entry for entry in entries if not isinstance(entry, (bool, int, float, type(None)))]
    found = " ".join(reprlib.repr((strange or entries)[0]).split())
    raise InvalidTypeError(f"{name} holds {found}, a regressor learns numbers; use MANNClassifier for classes.")


def _too_large(values: Floats) -> InvalidInputError:
    largest = np.abs(values).max()
    return InvalidInputError(f"y holds {largest:g}, too large to take a standard deviation of; scale y first.")

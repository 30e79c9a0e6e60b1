"""MANNRegressor: a regressor that learns on the source and works on the target (Algorithm 1 with a loss of numbers).

The network of Zellinger et al. (2019) with linear outputs; their distances ask nothing of the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from momentalign.discrepancies.several_domains import Between, DomainWeights
from momentalign.errors import InvalidInputError
from momentalign.estimators.domains import all_or_nothing
from momentalign.estimators.labels import ContinuousLabels, Scale
from momentalign.estimators.mann import MOST_HELD_OUT, BaseMANN, in_chunks
from momentalign.networks.shallow import outputs
from momentalign.training.config import (
    Distance,
    NetworkSpec,
    OptimizerName,
    TrainedNetwork,
    TrainingConfig,
    ValueLossName,
)

__all__ = ["MANNRegressor"]


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

    _labels = ContinuousLabels

    @property
    def _loss(self) -> ValueLossName:
        known = get_args(ValueLossName)
        if self.loss not in known:
            raise InvalidInputError(f"loss must be one of {', '.join(known)}, got {self.loss!r}.")
        return self.loss

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None) -> Self:
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
        learned = hasattr(self, "y_mean_")
        labels = ContinuousLabels(Scale(self.y_mean_, self.y_deviation_)) if learned else _LastingLabels()
        return self._partial_fit(X, y, X_target, labels, sample_domain)

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

    def _spec(self, config: TrainingConfig) -> NetworkSpec:
        if self._is_automatic:
            raise InvalidInputError(
                'weight="auto" combines class probabilities, which a regressor has not; give a number, try weight=1.0.'
            )
        return super()._spec(config)

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
        found = in_chunks(outputs, self._rows(X), self.coefs_, self.intercepts_)
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


class _LastingLabels(ContinuousLabels):
    """Labels whose scale is to serve later rows too: what is constant in these rows may not be so later."""

    def finish(self) -> None:
        super().finish()
        assert self.scale is not None  # noqa: S101  (there are rows)
        mean, standard_deviation = self.scale
        self.scale = Scale(mean, np.where(standard_deviation > 0.0, standard_deviation, 1.0))

r"""The weight of the distance without target labels: networks of several weights, refitted and combined.

The paper leaves open how to choose the weight. Instead of choosing one, networks of a grid of weights are combined by
importance-weighted least squares on the source (Dinu et al. 2023, see :mod:`momentalign.estimators.combination`).

Aggregation: the linear combination of all models instead of the choice of one.

M.-C. Dinu, M. Holzleitner, M. Beck, H. D. Nguyen, A. Huber, H. Eghbal-zadeh, B. A. Moser, S. V. Pereverzyev,
S. Hochreiter, W. Zellinger: Addressing parameter choice issues in unsupervised domain adaptation by aggregation,
ICLR 2023.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentalign.errors import InvalidInputError
from momentalign.evaluation.importance import importance_weights, logistic_ratio
from momentalign.networks.shallow import Layer, Matrix, activations, probabilities
from momentalign.training.config import Distance, NetworkSpec, Task, TrainedNetwork, TrainingConfig
from momentalign.training.stack import train_stack
from momentalign.validation import Floats, check_codes, check_row_values, check_stack

__all__ = [
    "WEIGHTS",
    "Aggregated",
    "aggregated_predictions",
    "aggregated_probabilities",
    "aggregation_coefficients",
    "train_aggregated",
]


def aggregation_coefficients(
    *, target: ArrayLike, source: ArrayLike, labels: ArrayLike, weights: ArrayLike, rcond: float = 0.1
) -> Floats:
    r"""Return the coefficients of the combination of models that has the least squared error on the target.

    The error :math:`\mathbb E_T \lVert \sum_i c_i f_i - y \rVert^2` is smallest for :math:`c = G^{-1} g` with

    .. math:: G_{ij} = \frac1m \sum_{x \in T} \langle f_i(x), f_j(x) \rangle, \qquad
        g_i = \frac1n \sum_{(x, y) \in S} w(x)\, \langle y, f_i(x) \rangle,

    y the label as a unit vector. The first needs no labels; the second, a mean over the labelled target, is replaced by
    an importance-weighted one over the source.

    Models that predict almost the same make G almost singular, and what is divided by then is noise: eigenvalues below
    `rcond` times the largest are left out (pseudo-inverse). The largest belongs to what the models have in common, so
    that a large `rcond` comes close to their plain average. Where every weight is zero, and so g, they are averaged.

    The result is as good as the weights. A model that is less confident on the target than on the source has a small
    :math:`G_{ii}` beside its :math:`g_i` and gets a large coefficient, unless the weights know of the difference: keep
    models that were not adapted out of the stack.

    Parameters
    ----------
    target
        Probabilities of the models on target rows, (models, rows, classes).
    source
        Probabilities of the same models on labelled source rows, best held-out ones, (models, other rows, classes).
    labels
        Codes of the source rows' classes, shape (other rows,).
    weights
        Importance weights of the source rows, from :func:`momentalign.evaluation.importance.importance_weights`.
    rcond
        Part of the largest eigenvalue below which eigenvalues are left out.

    Returns
    -------
    NDArray
        Shape (models,); the entries may be negative and need not sum to 1.

    Examples
    --------
    Of two models the first is right and the second always undecided.

    >>> right, undecided = [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]
    >>> stack = [right, undecided]
    >>> aggregation_coefficients(target=stack, source=stack, labels=[0, 1], weights=[1.0, 1.0]).round(6) + 0.0
    array([1., 0.])
    """
    of_target, of_source = check_stack(target, "target"), check_stack(source, "source")
    models, rows, classes = of_source.shape
    if (len(of_target), of_target.shape[2]) != (models, classes):
        raise InvalidInputError(
            f"target has {len(of_target)} models of {of_target.shape[2]} classes and source has {models} of {classes}; "
            "give the same models in the same order."
        )
    codes = check_codes(labels, "labels", rows=rows, classes=classes)
    importance = check_row_values(weights, "weights", rows=rows)
    if not 0.0 <= rcond < 1.0:
        raise InvalidInputError(f"rcond must be at least 0 and below 1, got {rcond}; try 0.1.")
    gram = np.einsum("irk,jrk->ij", of_target, of_target) / of_target.shape[1]
    moments = of_source[:, np.arange(rows), codes] @ importance / rows
    return _solve(gram, moments, rcond)


def aggregated_predictions(*, coefficients: ArrayLike, predictions: ArrayLike) -> Floats:
    r"""Return :math:`\sum_i c_i f_i(x)` for each row, (rows, classes); the predicted class is its argmax.

    Parameters
    ----------
    coefficients
        Shape (models,), from :func:`aggregation_coefficients`.
    predictions
        Probabilities of the models, (models, rows, classes).

    Examples
    --------
    >>> aggregated_predictions(coefficients=[2.0, -0.5], predictions=[[[0.75, 0.25]], [[0.5, 0.5]]])
    array([[1.25, 0.25]])
    """
    stack = check_stack(predictions, "predictions")
    factors = np.asarray(coefficients, dtype=np.float64)
    if factors.shape != (len(stack),) or not np.isfinite(factors).all():
        raise InvalidInputError(
            f"coefficients must be {len(stack)} finite numbers, got shape {factors.shape}; give one per model."
        )
    return np.asarray(np.tensordot(factors, stack, axes=1))


def aggregated_probabilities(*, coefficients: ArrayLike, predictions: ArrayLike) -> Floats:
    r"""Return the aggregated predictions as probabilities: negative entries set to zero, rows divided by their sums.

    The most probable class is that of :func:`aggregated_predictions`. A row without a positive entry is made
    uniform.

    Parameters
    ----------
    coefficients, predictions
        As for :func:`aggregated_predictions`.

    Examples
    --------
    >>> aggregated_probabilities(coefficients=[2.0, -0.5], predictions=[[[1.0, 0.0]], [[0.5, 0.5]]])
    array([[1., 0.]])
    """
    positive = np.maximum(aggregated_predictions(coefficients=coefficients, predictions=predictions), 0.0)
    positive[~positive.any(axis=1)] = 1.0
    return np.asarray(positive / positive.sum(axis=1, keepdims=True))


def _solve(gram: Floats, moments: Floats, rcond: float) -> Floats:
    """Solve G c = g in the well-determined directions."""
    if not moments.any():
        return np.full(len(moments), 1.0 / len(moments))
    values, vectors = np.linalg.eigh(gram)
    kept = values > rcond * values[-1]
    return np.asarray(vectors[:, kept] @ (vectors[:, kept].T @ moments / values[kept]))


WEIGHTS = (0.5, 1.0, 2.0, 4.0)
"""The grid around the paper's weight of 1: within it no weight is far off, and each errs in its own way."""
MIDDLE = WEIGHTS.index(1.0)


class Aggregated(NamedTuple):
    """Networks, one per weight, the coefficients of their combination, and which has the largest."""

    networks: list[TrainedNetwork]
    coefficients: NDArray[np.float64]
    largest: int


def train_aggregated(
    task: Task, whole: Task, config: TrainingConfig, distance: Distance | None, *, seed: int, device: str
) -> Aggregated:
    """Train networks with all of :data:`WEIGHTS` as one stack and combine them.

    Where `task` holds rows out, they say after how many epochs each network is best and how it counts in the
    combination; then all networks are trained again for as many epochs on `whole`, where nothing is held out.
    """
    specs = [NetworkSpec(seed, weight, distance) for weight in WEIGHTS]
    networks = train_stack(task, config, specs, device=device)
    coefficients = _coefficients([network.layers for network in networks], task, seed=seed)
    if task.validation is not None:
        networks = [
            _refitted(whole, config, spec, network, device) for spec, network in zip(specs, networks, strict=True)
        ]
    return Aggregated(networks, coefficients, int(coefficients.argmax()))


def _refitted(
    whole: Task, config: TrainingConfig, spec: NetworkSpec, network: TrainedNetwork, device: str
) -> TrainedNetwork:
    """The network trained on all rows up to the epoch of its lowest validation loss; its history stays."""
    epochs = int(np.argmin(network.history.validation_loss)) + 1
    alone = replace(config, max_epochs=epochs, patience=None, keep="last")
    (again,) = train_stack(whole, alone, [spec], device=device)
    return replace(again, history=network.history, n_epochs=network.n_epochs)


def _coefficients(networks: list[list[Layer]], task: Task, *, seed: int) -> NDArray[np.float64]:
    rows, labels = (task.source, task.labels) if task.validation is None else (task.validation, task.validation_labels)
    assert task.target is not None  # noqa: S101
    features = [_wide(activations(networks[MIDDLE], part)) for part in (rows, task.target)]
    folds = min(5, *(len(part) for part in features))
    ratio = np.ones(len(features[0]))
    if folds >= 2:
        ratio = logistic_ratio(source=features[0], target=features[1], folds=folds, seed=seed % 2**32)
    return aggregation_coefficients(
        target=_stacked(networks, task.target),
        source=_stacked(networks, rows),
        labels=np.asarray(labels),
        weights=importance_weights(ratio=ratio),
    )


def _stacked(networks: list[list[Layer]], rows: Matrix) -> NDArray[np.float64]:
    return np.stack([_wide(probabilities(layers, rows)) for layers in networks])


def _wide(values: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)

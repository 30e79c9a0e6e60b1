"""Labels that are classes: networks are combined without target labels.

The combination is that of ``MANNClassifier(weight="auto")``, see :mod:`momentalign.estimators.combination`.

Networks that predict together as one: their first layers side by side in one product.

Eqs. (18) to (20) of Zellinger et al. (2019) for several networks at once, in double precision, so that a row gets the
same visible digits whatever rows stand around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.combination import aggregated_probabilities, combine
from momentalign.estimators.domains import split_layers
from momentalign.estimators.labels import encode_labels
from momentalign.networks.shallow import Matrix
from momentalign.selection.grid import split_labelled
from momentalign.tables.table import Table
from momentalign.training.config import LossName, Task, TrainedNetwork, TrainingConfig
from momentalign.workflow.grid import Point
from momentalign.workflow.summary import ClassFit, Fit, Truth, read_truth, summarise

__all__ = ["Classes", "joined_networks"]


@dataclass(frozen=True)
class Classes:
    """The classes of the source in order, each row as the number of its class, and what is known of the target."""

    names: NDArray[Any]
    codes: NDArray[np.intp]
    truth: Truth | None
    loss: ClassVar[LossName] = "cross_entropy"

    @classmethod
    def read(cls, labels: NDArray[Any], target: Table, *, label: str, target_label: str | None) -> Self:  # noqa: ARG003
        """Return the classes of the source and, where `target_label` is given, those of the target."""
        names, codes = encode_labels(labels)
        return cls(names, codes, None if target_label is None else read_truth(target, target_label, names))

    def task(self, rows: Matrix, others: Matrix, *, share: float) -> Task:
        """Hold out a part of the source and shuffle the target: batches are cut in order."""
        training, held_out = split_labelled(self.codes, share=share, seed=0)
        order = np.random.default_rng([0, 1]).permutation(others.shape[0])
        codes, count = self.codes, len(self.names)
        return Task(rows[training], codes[training], others[order], count, rows[held_out], codes[held_out])

    def choose(self, networks: Mapping[Point, TrainedNetwork], task: Task) -> dict[Point, float]:
        """Return the coefficient of each network that predicts."""
        points = list(networks)
        specs = [point.spec(width=networks[point].layers[-1].weight.shape[0]) for point in points]
        members = combine(specs, [networks[point].layers for point in points], task)
        return {points[index]: float(c) for index, c in zip(members.indices, members.coefficients, strict=True)}

    def estimator(
        self,
        networks: Mapping[Point, TrainedNetwork],
        coefficients: Mapping[Point, float],
        config: TrainingConfig,
        method: str,
        *,
        features: int,
    ) -> MANNClassifier:
        """Return the classifier of these networks."""
        return _classifier(networks, coefficients, self.names, config, method, features=features)

    def summarise(self, fit: Fit) -> dict[str, Any]:
        """Return everything but the settings."""
        return summarise(ClassFit(**vars(fit), codes=self.codes, truth=self.truth))


def _classifier(
    networks: Mapping[Point, TrainedNetwork],
    coefficients: Mapping[Point, float],
    classes: NDArray[Any],
    config: TrainingConfig,
    method: str,
    *,
    features: int,
) -> MANNClassifier:
    """Return a classifier with these networks; its hidden activations are those of the largest coefficient."""
    model = MANNClassifier(
        hidden=config.hidden,
        discrepancy=None if method == "none" else method,
        weight="auto",
        optimizer=config.optimizer.name,
        learning_rate=config.optimizer.learning_rate,
        batch_size=config.batch_size,
        max_epochs=config.max_epochs,
        patience=config.patience,
        random_state=0,
    )
    largest = max(coefficients, key=lambda point: coefficients[point])
    model.classes_, model.n_features_in_ = classes, features
    model.networks_ = [split_layers(networks[point].layers) for point in coefficients]
    model.coefficients_ = np.array(list(coefficients.values()))
    model.coefs_, model.intercepts_ = split_layers(networks[largest].layers)
    model.n_epochs_, model.best_epoch_ = networks[largest].n_epochs, networks[largest].best_epoch
    model.history_ = dict(vars(networks[largest].history))
    return model


Floats: TypeAlias = NDArray[np.float32]
# Rows whose activations stay in the cache.
BLOCK = 4096
# Beyond it the exponential overflows; the sigmoid is zero there to the last digit.
LARGEST = 700.0


def joined_networks(estimator: MANNClassifier) -> Callable[[Matrix], Floats]:
    """Return a function from rows, dense or CSR, to the probabilities (rows, classes) of an estimator, in float32.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> rows = random.normal(size=(60, 2)).astype(np.float32)
    >>> model = MANNClassifier(hidden=(5,), max_epochs=20, random_state=0).fit(rows, rows[:, 0] > 0)
    >>> bool(np.allclose(joined_networks(model)(rows), model.predict_proba(rows), atol=1e-6))
    True
    """
    networks = [[part.astype(np.float64) for part in (*coefs, *biases)] for coefs, biases in estimator.networks_]
    if any(len(parts) != 4 for parts in networks):
        return lambda rows: estimator.predict_proba(rows).astype(np.float32)
    bottom = np.concatenate([first for first, _, _, _ in networks], axis=1)
    bias = np.concatenate([first for _, _, first, _ in networks])
    tops = [(top, top_bias) for _, top, _, top_bias in networks]

    def of_block(rows: Matrix) -> Floats:
        hidden = np.split(_sigmoid(np.asarray(rows.astype(np.float64) @ bottom) + bias), len(tops), axis=1)
        chances = [_softmax(part @ top + top_bias) for part, (top, top_bias) in zip(hidden, tops, strict=True)]
        if len(chances) == 1:
            return chances[0].astype(np.float32)
        combined = aggregated_probabilities(coefficients=estimator.coefficients_, predictions=np.stack(chances))
        return combined.astype(np.float32)

    def predict(rows: Matrix) -> Floats:
        return np.concatenate([of_block(rows[start : start + BLOCK]) for start in range(0, rows.shape[0], BLOCK)])

    return predict


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sigmoid in place; numpy's exponential takes a third of the time of scipy's expit."""
    np.negative(values, out=values)
    np.minimum(values, LARGEST, out=values)
    np.exp(values, out=values)
    values += 1.0
    return np.reciprocal(values, out=values)


def _softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    values -= values.max(axis=1, keepdims=True)
    np.exp(values, out=values)
    values /= values.sum(axis=1, keepdims=True)
    return values

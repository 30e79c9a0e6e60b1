"""Predictions chunk by chunk: what is written of each chunk, and what is kept to sum up all of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.data.tables.libraries import need
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.regressor import MANNRegressor
from momentalign.networks.shallow import Matrix
from momentalign.workflow.joined import joined_networks

__all__ = ["PREDICTION", "ClassTally", "ValueTally"]

Floats = NDArray[np.floating[Any]]

PREDICTION = "prediction"
"""The column of the predicted class or number; with `proba` the columns after it are named by :data:`PROBABILITY`."""
PROBABILITY = "probability_{}"


class ClassTally:
    """Predicted classes: with probabilities or without, and how many there are of each."""

    values = None

    def __init__(self, estimator: MANNClassifier, *, proba: bool) -> None:
        self._estimator, self._proba = estimator, proba
        self._predict = joined_networks(estimator)
        self._counts = np.zeros(len(estimator.classes_), dtype=np.int64)

    def predict(self, rows: Matrix) -> Floats:
        """Return the probability of each class, (rows, classes)."""
        return self._predict(rows)

    def columns(self, predictions: Floats) -> dict[str, Any]:
        """Return the columns to write."""
        pyarrow, classes = need("pyarrow"), self._estimator.classes_
        names = pyarrow.array(classes.tolist())
        columns = {PREDICTION: names.take(pyarrow.array(predictions.argmax(axis=1)))}
        for place, name in enumerate(classes if self._proba else ()):
            columns[PROBABILITY.format(name)] = pyarrow.array(predictions[:, place])
        return columns

    def add(self, predictions: Floats) -> None:
        """Count some rows."""
        self._counts += np.bincount(predictions.argmax(axis=1), minlength=len(self._counts))

    @property
    def classes(self) -> dict[str, int]:
        """How many rows there are of each class."""
        return {str(name): int(count) for name, count in zip(self._estimator.classes_, self._counts, strict=True)}


class ValueTally:
    """Predicted numbers: their mean and range."""

    def __init__(self, estimator: MANNRegressor) -> None:
        self._estimator = estimator
        self._count, self._sum, self._smallest, self._largest = 0, 0.0, math.inf, -math.inf
        self.classes: dict[str, int] = {}

    def predict(self, rows: Matrix) -> Floats:
        """Return the number of each row."""
        return self._estimator.predict(rows)

    def columns(self, predictions: Floats) -> dict[str, Any]:
        """Return the column to write."""
        return {PREDICTION: need("pyarrow").array(predictions)}

    def add(self, predictions: Floats) -> None:
        """Take some rows into mean and range."""
        self._count += len(predictions)
        self._sum += float(predictions.sum())
        self._smallest = min(self._smallest, float(predictions.min()))
        self._largest = max(self._largest, float(predictions.max()))

    @property
    def values(self) -> dict[str, float]:
        """Mean, smallest and largest number."""
        return {"mean": self._sum / self._count, "smallest": self._smallest, "largest": self._largest}

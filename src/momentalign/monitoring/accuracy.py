"""The accuracy that is to be expected of a model on the last rows of a stream, which are kept for that.

The estimate is that of :func:`~momentalign.estimate_accuracy`, and three more learners are asked with whom the model
agrees: randomised trees, boosting and the nearest rows. They are trained on the labelled rows once, when the monitor is
set up. Where the boundary between the classes is curved, a linear learner is wrong more and more often as the rows
drift, and a model that disagrees with it is not: more learners that are not linear outvote it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from momentalign.errors import InvalidInputError
from momentalign.evaluation.class_shares import predictions_of
from momentalign.evaluation.target_accuracy import TargetEstimate, estimate_accuracy
from momentalign.validation import Floats

__all__ = ["StreamAccuracy"]

# Labelled rows that the learners are trained on, at most and at least, and parts that are held out in turn.
_MOST_ROWS, _FEWEST_ROWS, _FOLDS = 1500, 100, 3


class StreamAccuracy:
    """Estimates the accuracy of a model on every so many rows of a stream.

    Parameters
    ----------
    model
        A fitted classifier with ``predict_proba`` and ``classes_``.
    X, y
        Labelled rows that the model was not trained on.
    names
        The features of the stream.
    window
        Rows of an estimate.
    """

    def __init__(self, model: Any, X: Any, y: ArrayLike | None, names: tuple[str, ...], window: int) -> None:
        if X is None or y is None:
            raise InvalidInputError("a model needs X and y, labelled rows that it was not trained on; give both.")
        if np.shape(X)[1:] != (len(names),):
            raise InvalidInputError(f"X must have shape (rows, {len(names)}) as the reference has, got {np.shape(X)}.")
        own = predictions_of(model, X, y, X)
        self._model, self._X, self._y, self._window = model, X, y, window
        self._learners = [_Learner(kind, X, own.codes, own.source.shape[1]) for kind in _kinds(own.codes)]
        self.clear()

    def clear(self) -> None:
        """Forget the stream."""
        self._rows: list[NDArray[np.floating[Any]]] = []

    def add(self, rows: NDArray[np.floating[Any]]) -> None:
        """Add rows of the stream."""
        self._rows.append(rows)

    def estimate(self) -> TargetEstimate | None:
        """Return the expected accuracy on the last rows once there are as many as a window since the last estimate."""
        if sum(map(len, self._rows)) < self._window:
            return None
        values = np.vstack(self._rows)[-self._window :]
        self.clear()
        rows = type(self._X)(values, columns=self._X.columns) if hasattr(self._X, "columns") else values
        predictions = [(learner.held_out, learner.predict(values)) for learner in self._learners]
        return estimate_accuracy(self._model, self._X, self._y, rows, predictions=predictions)


def _kinds(codes: NDArray[np.intp]) -> list[Any]:
    if len(codes) < _FEWEST_ROWS or len(np.unique(codes)) < 2:
        return []
    return [
        ExtraTreesClassifier(50, random_state=0),
        HistGradientBoostingClassifier(max_iter=40, random_state=0),
        KNeighborsClassifier(15),
    ]


class _Learner:
    """What a learner trained on the labelled rows says: of these rows, held out, and of any others."""

    def __init__(self, kind: Any, X: Any, codes: NDArray[np.intp], classes: int) -> None:
        rows = np.asarray(X, dtype=np.float64)
        self._classes = classes
        self._kind = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), kind)
        random = np.random.default_rng(0)
        fold = random.permutation(len(rows)) % _FOLDS
        self.held_out = np.empty((len(rows), classes))
        for part in range(_FOLDS):
            chosen = random.permutation(np.flatnonzero(fold != part))[:_MOST_ROWS]
            self._fit(rows[chosen], codes[chosen])
            self.held_out[fold == part] = self.predict(rows[fold == part])
        chosen = random.permutation(len(rows))[:_MOST_ROWS]
        self._fit(rows[chosen], codes[chosen])

    def _fit(self, rows: Floats, codes: NDArray[np.intp]) -> None:
        self._fitted = clone(self._kind).fit(rows, codes)

    def predict(self, rows: NDArray[np.floating[Any]]) -> Floats:
        """Return the probabilities of all classes of the model, also of those that no labelled row has."""
        found, known = np.zeros((len(rows), self._classes)), self._fitted.classes_
        # Of a rare class there may be no row among those that were drawn.
        found[:, known] = self._fitted.predict_proba(rows) if len(known) > 1 else 1.0
        return found

r"""Labels that are numbers: one network is taken, that with the paper's weight.

There is no label-free score of predicted numbers here, so nothing is chosen by looking at the target: the weight is 1,
the default of Zellinger et al. (2019), who treat both terms of the objective as equally important. What predictions are
worth is the part of the variance that they explain,

.. math:: R^2 = 1 - \frac{\sum_i (y_i - f(x_i))^2}{\sum_i (y_i - \bar y)^2}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError
from momentalign.estimators.labels import Scale, fitted_scale, read_values
from momentalign.estimators.regressor import MANNRegressor
from momentalign.networks.shallow import Matrix, outputs
from momentalign.selection.grid import split_unlabelled
from momentalign.tables.table import Table, shown
from momentalign.training.config import LossName, Task, TrainedNetwork, TrainingConfig
from momentalign.workflow.grid import Point
from momentalign.workflow.summary import Fit, distances, network_name, network_rows, seen, shared, verdict_of_values

__all__ = ["TrueValues", "Values", "explained", "read_true_values"]

Floats = NDArray[np.float64]

PAPER_WEIGHT = 1.0
# Fewer rows cannot be trained on and held out, two each.
FEWEST_ROWS = 4


@dataclass(frozen=True)
class TrueValues:
    """The target rows whose number is known, and these numbers."""

    label: str
    known: NDArray[np.intp]
    values: Floats

    def explained(self, predicted: Floats) -> float | None:
        """:math:`R^2` of predictions for all target rows."""
        return explained(self.values, predicted[self.known])

    def evaluation(self, predicted: Floats) -> dict[str, Any]:
        """:math:`R^2` and the root of the mean squared error."""
        error = np.sqrt(np.mean((self.values - predicted[self.known]) ** 2))
        return {
            "label": self.label,
            "rows": len(self.known),
            "r2": self.explained(predicted),
            "error": float(error),
        }


@dataclass(frozen=True)
class Values:
    """The numbers of the source, their mean and deviation, and what is known of the target."""

    values: Floats
    scale: Scale
    truth: TrueValues | None
    loss: ClassVar[LossName] = "squared"

    @classmethod
    def read(cls, labels: NDArray[Any], target: Table, *, label: str, target_label: str | None) -> Self:
        """Return the numbers of the source and, where `target_label` is given, those of the target.

        Examples
        --------
        >>> target = Table(np.zeros((2, 1), np.float32), np.array([None, "2.5"], dtype=object))
        >>> values = Values.read(np.array([1, 2, 3, 4]), target, label="price", target_label="price")
        >>> values.values.tolist(), values.truth.known.tolist(), values.truth.values.tolist()
        ([1.0, 2.0, 3.0, 4.0], [1], [2.5])
        """
        values = read_values(labels, f"label {label!r}")
        if not np.isfinite(values).all():
            row = int((~np.isfinite(values)).argmax())
            raise InvalidInputError(
                f"label {label!r} of the source, row {row + 1} holds {shown(values[row])}; give a finite number."
            )
        if len(values) < FEWEST_ROWS:
            raise InvalidInputError(
                f"the source has {len(values)} rows, too few to hold out some; give at least {FEWEST_ROWS}."
            )
        truth = None if target_label is None else read_true_values(target, target_label)
        return cls(values, fitted_scale(values), truth)

    def task(self, rows: Matrix, others: Matrix, *, share: float) -> Task:
        """Hold out a part of the source and shuffle the target: batches are cut in order."""
        training, held_out = split_unlabelled(len(self.values), share=share, seed=0)
        order = np.random.default_rng([0, 1]).permutation(others.shape[0])
        values = self.scale.standardise(self.values).astype(np.float32)
        return Task(rows[training], values[training], others[order], 1, rows[held_out], values[held_out])

    def choose(self, networks: Mapping[Point, TrainedNetwork], task: Task) -> dict[Point, float]:  # noqa: ARG002
        """Return the network with the paper's weight or, of those that were finished, the one nearest to it.

        Of several seeds it is that with the lowest loss on held-out source rows.
        """

        def distance(point: Point) -> tuple[bool, float, float]:
            loss = min(networks[point].history.validation_loss)
            return not point.weight, abs(point.weight - PAPER_WEIGHT), loss

        return {min(networks, key=distance): 1.0}

    def estimator(
        self,
        networks: Mapping[Point, TrainedNetwork],
        coefficients: Mapping[Point, float],
        config: TrainingConfig,
        method: str,  # noqa: ARG002
        *,
        features: int,
    ) -> MANNRegressor:
        """Return the regressor of the chosen network."""
        (point,) = coefficients
        model = MANNRegressor(
            hidden=config.hidden,
            discrepancy=point.method,
            weight=point.weight,
            optimizer=config.optimizer.name,
            learning_rate=config.optimizer.learning_rate,
            batch_size=config.batch_size,
            max_epochs=config.max_epochs,
            patience=config.patience,
            random_state=point.seed,
        )
        model.n_features_in_ = features
        model.y_mean_, model.y_deviation_ = self.scale
        model._keep(networks[point])
        return model

    def summarise(self, fit: Fit) -> dict[str, Any]:
        """Return everything but the settings."""
        final = fit.model.estimator.predict(fit.others)
        ours, theirs = seen(fit)
        rows = network_rows(fit, ours, theirs, lambda layers: self._figures(fit, layers))
        summary = {
            "task": "regression",
            **shared(fit, ours, theirs),
            "classes": [],
            "rows": [*rows, self._chosen(fit, ours, theirs, final)],
            "shares": [],
            "values": {"source": _spread(self.values), "target": _spread(final), "plain": self._without(fit)},
            "evaluation": None if self.truth is None else self.truth.evaluation(final),
            "bounds": None,
        }
        return {**summary, "verdict": verdict_of_values(summary, weight=fit.largest.weight)}

    def _figures(self, fit: Fit, layers: Any) -> dict[str, float | None]:
        return {
            "source_r2": self._held_out(fit, layers),
            "score": None,
            "target_r2": None if self.truth is None else self.truth.explained(self._predict(layers, fit.others)),
        }

    def _chosen(self, fit: Fit, ours: Matrix, theirs: Matrix, final: Floats) -> dict[str, Any]:
        """The row of what predicts."""
        point = fit.largest
        return {
            "name": f"{network_name(point)}, chosen" if len(fit.networks) > 1 else "the only network",
            "weight": None,
            "networks": 1,
            "source_r2": self._held_out(fit, fit.networks[point].layers),
            "score": None,
            **distances(fit, point, ours, theirs),
            "target_r2": None if self.truth is None else self.truth.explained(final),
            "coefficient": None,
            "epochs": None,
        }

    def _without(self, fit: Fit) -> dict[str, float] | None:
        """What the plain network predicts for the target, where another one was chosen."""
        if fit.plain is None or fit.largest == fit.plain:
            return None
        return _spread(self._predict(fit.networks[fit.plain].layers, fit.others))

    def _held_out(self, fit: Fit, layers: Any) -> float | None:
        """:math:`R^2` on the held-out source rows."""
        values = self.scale.restore(np.asarray(fit.task.validation_labels, dtype=np.float64))
        return explained(values, self._predict(layers, fit.task.validation))

    def _predict(self, layers: Any, rows: Matrix) -> Floats:
        return self.scale.restore(np.asarray(outputs(layers, rows), dtype=np.float64))


def explained(values: Floats, predicted: Floats) -> float | None:
    """Return :math:`R^2`, None where the values do not vary.

    Examples
    --------
    >>> explained(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0]))
    0.5
    """
    spread = float(np.sum((values - values.mean()) ** 2))
    return 1.0 - float(np.sum((values - predicted) ** 2)) / spread if spread else None


def read_true_values(target: Table, label: str) -> TrueValues:
    """Return the numbers of the target rows that have one; other words than numbers are refused."""
    import pandas as pd

    if target.labels is None:
        raise InvalidInputError(f"the target has no labels {label!r}; leave target_label out.")
    given = ~pd.isna(target.labels)
    if not given.any():
        raise InvalidInputError(f"target_label={label!r} is empty in every row; leave it out.")
    values = np.asarray(pd.to_numeric(pd.Series(target.labels), errors="coerce"), dtype=np.float64)
    wrong = given & ~np.isfinite(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"target_label={label!r}, row {row + 1} holds {shown(target.labels[row])}, which is not a number; correct "
            "it or leave target_label out."
        )
    return TrueValues(label, np.flatnonzero(given), values[given])


def _spread(values: Floats) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "deviation": float(values.std()),
        "smallest": float(values.min()),
        "largest": float(values.max()),
    }

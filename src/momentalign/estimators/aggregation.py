"""The weight of the distance without target labels: networks of several weights, refitted and combined.

The paper leaves open how to choose the weight. Instead of choosing one, networks of a grid of weights are combined by
importance-weighted least squares on the source (Dinu et al. 2023, see :mod:`momentalign.scores.aggregation`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.networks.shallow import Layer, Matrix, activations, probabilities
from momentalign.scores.aggregation import aggregation_coefficients
from momentalign.scores.importance import importance_weights, logistic_ratio
from momentalign.training.recipe import Distance, Member, Recipe, Task, TrainedNetwork
from momentalign.training.stack import train_stack

__all__ = ["WEIGHTS", "Aggregated", "train_aggregated"]

WEIGHTS = (0.5, 1.0, 2.0, 4.0)
"""The grid around the paper's weight of 1: within it no weight is far off, and each errs in its own way."""
MIDDLE = WEIGHTS.index(1.0)


class Aggregated(NamedTuple):
    """Networks, one per weight, the coefficients of their combination, and which has the largest."""

    networks: list[TrainedNetwork]
    coefficients: NDArray[np.float64]
    largest: int


def train_aggregated(
    task: Task, whole: Task, recipe: Recipe, distance: Distance | None, *, seed: int, device: str
) -> Aggregated:
    """Train networks with all of :data:`WEIGHTS` as one stack and combine them.

    Where `task` holds rows out, they say after how many epochs each network is best and how it counts in the
    combination; then all networks are trained again for as many epochs on `whole`, where nothing is held out.
    """
    members = [Member(seed, weight, distance) for weight in WEIGHTS]
    networks = train_stack(task, recipe, members, device=device)
    coefficients = _coefficients([network.layers for network in networks], task, seed=seed)
    if task.validation is not None:
        networks = [
            _refitted(whole, recipe, member, network, device) for member, network in zip(members, networks, strict=True)
        ]
    return Aggregated(networks, coefficients, int(coefficients.argmax()))


def _refitted(whole: Task, recipe: Recipe, member: Member, network: TrainedNetwork, device: str) -> TrainedNetwork:
    """The network trained on all rows up to the epoch of its lowest validation loss; its history stays."""
    epochs = int(np.argmin(network.history.validation_loss)) + 1
    alone = replace(recipe, max_epochs=epochs, patience=None, keep="last")
    (again,) = train_stack(whole, alone, [member], device=device)
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

"""Rules that judge a trained network without target labels, each by the name of the score it stands on.

The scores are pure functions of `momentalign.evaluation.scores`; here they meet a network and the rows it was trained
on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.estimators.domains import stacked_rows
from momentalign.evaluation.scores import (
    balancing_choice,
    classification_errors,
    cross_entropies,
    deep_embedded_score,
    importance_weighted_score,
    importance_weights,
    logistic_ratio,
    mutual_information,
    negative_entropy,
    neighbourhood_density,
    nuclear_norm,
)
from momentalign.networks.shallow import Layer, activations, probabilities
from momentalign.training.config import Task

__all__ = ["Rule", "balanced_weight", "density_ratio", "network_score"]

Rule: TypeAlias = Literal[
    "importance-weighted",
    "deep-embedded",
    "neighbourhood-density",
    "nuclear-norm",
    "entropy",
    "mutual-information",
    "balancing",
    "source",
]
Layers: TypeAlias = Sequence[Layer]
Floats: TypeAlias = NDArray[np.float64]

# Folds of the classifier that tells the domains apart, where there are rows for so many.
FOLDS = 5


def network_score(rule: Rule, layers: Layers, task: Task) -> float:
    """Return the score of a network on the target and the held-out source rows of its task; higher is better."""
    return _SCORES[rule](layers, task)


def density_ratio(layers: Layers, task: Task) -> Floats:
    """Return the density ratio of target to source at the held-out source rows, on the network's hidden activations.

    All source rows help to estimate it; each is judged by a classifier that has not seen it.
    """
    source = activations(layers, stacked_rows([task.source, task.validation]))
    target = activations(layers, task.target)
    ratio = logistic_ratio(source=source, target=target, folds=min(FOLDS, len(source), len(target)))
    return ratio[task.source.shape[0] :]


def balanced_weight(networks: Sequence[Layers], task: Task) -> int:
    """Return the choice of the balancing principle among networks of growing weight.

    The distance of the domains in the features of a network is their total variation as far as a linear classifier
    sees it, :math:`P_T(w > 1) - P_S(w > 1)` with the density ratio w. Where the features of the first network do not
    tell the domains apart there is nothing to balance, and it is taken.
    """
    distances = [_total_variation(layers, task) for layers in networks]
    if distances[0] == 0.0:
        return 0
    return balancing_choice(
        predictions=np.stack([_on_target(layers, task) for layers in networks]), distances=distances
    )


def _total_variation(layers: Layers, task: Task) -> float:
    source, target = activations(layers, task.source), activations(layers, task.target)
    folds = min(FOLDS, len(source), len(target))
    seen_in_source = (logistic_ratio(source=source, target=target, folds=folds) > 1.0).mean()
    missed_in_target = (logistic_ratio(source=target, target=source, folds=folds) > 1.0).mean()
    return max(0.0, 1.0 - float(seen_in_source) - float(missed_in_target))


def _importance_weighted(layers: Layers, task: Task) -> float:
    weights = importance_weights(ratio=density_ratio(layers, task))
    return importance_weighted_score(losses=_held_out_losses(layers, task), weights=weights)


def _deep_embedded(layers: Layers, task: Task) -> float:
    return deep_embedded_score(losses=_held_out_losses(layers, task), ratio=density_ratio(layers, task))


def _source_accuracy(layers: Layers, task: Task) -> float:
    found = probabilities(layers, task.validation)
    return 1.0 - float(classification_errors(probabilities=found, labels=_held_out_labels(task)).mean())


def _held_out_losses(layers: Layers, task: Task) -> Floats:
    return cross_entropies(probabilities=probabilities(layers, task.validation), labels=_held_out_labels(task))


def _held_out_labels(task: Task) -> NDArray[np.intp]:
    assert task.validation_labels is not None  # noqa: S101  (a search holds rows out)
    return task.validation_labels


def _on_target(layers: Layers, task: Task) -> NDArray[np.floating]:
    return probabilities(layers, task.target)


_SCORES: dict[Rule, Callable[[Layers, Task], float]] = {
    "importance-weighted": _importance_weighted,
    "deep-embedded": _deep_embedded,
    "neighbourhood-density": lambda layers, task: neighbourhood_density(probabilities=_on_target(layers, task)),
    "nuclear-norm": lambda layers, task: nuclear_norm(probabilities=_on_target(layers, task)),
    "entropy": lambda layers, task: negative_entropy(probabilities=_on_target(layers, task)),
    "mutual-information": lambda layers, task: mutual_information(probabilities=_on_target(layers, task)),
    "source": _source_accuracy,
}

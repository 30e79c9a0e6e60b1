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


# Those that look at nothing but the predictions for the target.
_ON_TARGET: dict[Rule, Callable[..., float]] = {
    "neighbourhood-density": neighbourhood_density,
    "nuclear-norm": nuclear_norm,
    "entropy": negative_entropy,
    "mutual-information": mutual_information,
}


def network_score(rule: Rule, layers: Layers, task: Task) -> float:
    """Return the score of a network on the target and the held-out source rows of its task; higher is better."""
    if rule in _ON_TARGET:
        return _ON_TARGET[rule](probabilities=probabilities(layers, task.target))
    labels, found = task.validation_labels, probabilities(layers, task.validation)
    assert labels is not None  # noqa: S101  (a search holds rows out)
    if rule == "source":
        return 1.0 - float(classification_errors(probabilities=found, labels=labels).mean())
    losses, ratio = cross_entropies(probabilities=found, labels=labels), density_ratio(layers, task)
    if rule == "deep-embedded":
        return deep_embedded_score(losses=losses, ratio=ratio)
    return importance_weighted_score(losses=losses, weights=importance_weights(ratio=ratio))


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
    predictions = np.stack([probabilities(layers, task.target) for layers in networks])
    return balancing_choice(predictions=predictions, distances=distances)


def _total_variation(layers: Layers, task: Task) -> float:
    source, target = activations(layers, task.source), activations(layers, task.target)
    folds = min(FOLDS, len(source), len(target))
    seen_in_source = (logistic_ratio(source=source, target=target, folds=folds) > 1.0).mean()
    missed_in_target = (logistic_ratio(source=target, target=source, folds=folds) > 1.0).mean()
    return max(0.0, 1.0 - float(seen_in_source) - float(missed_in_target))

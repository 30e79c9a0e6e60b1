"""Sentiment analysis of product reviews: the twelve tasks of Section 6.3, Table 2, of Zellinger et al. (2019).

Counts of 5,000 words and pairs of words; 2,000 labelled reviews of one category, 2,000 unlabelled ones of another, all
other reviews of that category for testing. One hidden layer of 50 sigmoid units, Adagrad, batches of 300. What the
paper leaves open is taken from the authors' protocol: both samples are shuffled once, the last 30 % of the source are
held out to stop early, all methods start from the same weights after one epoch of SGD.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign.data.benchmarks import CATEGORIES, Reviews, load_reviews
from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.correlation import CORALLoss
from momentalign.discrepancies.maximum_mean import MMDLoss
from momentalign.networks import Layer, outputs
from momentalign.training.recipe import Distance, Member, Optimizer, Recipe, Task, TrainedNetwork
from momentalign.training.stack import train_stack, train_tasks

__all__ = ["TASKS", "accuracy", "distance_of", "read_task", "recipe_of", "starts", "task_name"]

LABELLED = 2000
HELD_OUT = 0.3
SHUFFLE_SEED = 0
TASKS = tuple(itertools.permutations(CATEGORIES, 2))


@dataclass(frozen=True)
class ReviewTask:
    """One task: what a network may see, and the target's other reviews with their labels for evaluation."""

    task: Task
    test: Any
    test_labels: NDArray[np.intp]


def task_name(source: str, target: str) -> str:
    """Return how a task is called in results: ``books->dvd``."""
    return f"{source}->{target}"


@cache
def reviews(folder: str | None) -> Reviews:
    """The reviews, read once in a process."""
    return load_reviews(folder)


def read_task(source: str, target: str, *, features: str = "counts", folder: str | None = None) -> ReviewTask:
    """Return one task; `features` are ``"counts"`` or ``"log"``, log(1 + count)."""
    every = reviews(folder)
    order = np.random.default_rng(SHUFFLE_SEED).permutation(LABELLED)
    rows, labels = _weighted(every.rows[source][:LABELLED][order], features), every.labels[source][:LABELLED][order]
    others = _weighted(every.rows[target], features)
    training = LABELLED - int(HELD_OUT * LABELLED)
    task = Task(rows[:training], labels[:training], others[:LABELLED][order], 2, rows[training:], labels[training:])
    return ReviewTask(task, others[LABELLED:], every.labels[target][LABELLED:])


def _weighted(rows: Any, features: str) -> Any:
    return rows.log1p() if features == "log" else rows


def recipe_of(hidden: int = 50) -> Recipe:
    """Return the recipe of Section 6.3."""
    return Recipe(hidden=(hidden,), initializer="lecun_uniform", compiled=True)


def starts(task: Task, recipe: Recipe, seeds: Sequence[int], *, device: str = "cpu") -> list[list[Layer]]:
    """Return the weights every method starts from: after one epoch of SGD on the source, batches of 32."""
    warm_up = Recipe(
        hidden=recipe.hidden, optimizer=Optimizer("sgd", 0.1, momentum=0.0), batch_size=32, max_epochs=1, patience=None,
        keep="last", initializer=recipe.initializer, compiled=True,
    )  # fmt: skip
    alone = Task(task.source, task.labels, None, task.n_classes)
    return [network.layers for network in train_stack(alone, warm_up, [Member(seed) for seed in seeds], device=device)]


def distance_of(method: str, parameters: Mapping[str, float], *, hidden: int = 50) -> Distance | None:
    """Return the distance a method minimises, with parameters such as ``beta`` or ``n_moments``."""
    if method == "nn":
        return None
    if method in ("cmd", "cv-cmd"):
        return CMDLoss(int(parameters.get("n_moments", 5)), cross=2 if method == "cv-cmd" else 1)
    if method == "mmd":
        return MMDLoss(beta=parameters["beta"])
    return CORALLoss() if method == "coral" else AdversarialLoss(hidden)


def accuracy(network: TrainedNetwork, found: ReviewTask) -> float:
    """Share of the test reviews that a network labels right."""
    return float((outputs(network.layers, found.test).argmax(axis=1) == found.test_labels).mean())

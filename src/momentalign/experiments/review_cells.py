"""The cells of the experiments on product reviews: one task, one setting, some seeds or weights.

Sections 6.3 and 6.6 of Zellinger et al. (2019). Counts of 5,000 words and pairs of words; 2,000 labelled reviews of one
category, 2,000 unlabelled ones of another, all other reviews of that category for testing. One hidden layer of sigmoid
units, Adagrad, batches of 300. What the paper leaves open is taken from the authors' protocol: both samples are
shuffled once, the last 30 % of the source are held out to stop early, all methods start from the same weights after
one epoch of SGD.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from momentalign.data.benchmarks import CATEGORIES, Reviews, load_reviews
from momentalign.data.catalogue import REVIEWS
from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.correlation import CORALLoss
from momentalign.discrepancies.maximum_mean import MMDLoss
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.transfer_components import TransferComponentAnalysis
from momentalign.experiments.runner import Cell, run_cells, run_groups
from momentalign.journal import Journal, cell_key
from momentalign.networks.shallow import Layer, outputs
from momentalign.selection.side_by_side import Domains, reverse_scores_of_tasks
from momentalign.training.recipe import Distance, Member, Optimizer, Recipe, Task, TrainedNetwork
from momentalign.training.stack import train_tasks
from momentalign.version import __version__

__all__ = ["TASKS", "ReviewTask", "compute_all", "identity", "read_task", "task_name"]

LABELLED, HELD_OUT = 2000, 0.3
SHUFFLE_SEED = SELECTION_SEED = 0
RECIPE = Recipe(initializer="lecun_uniform", compiled=True)
TASKS = tuple(itertools.permutations(CATEGORIES, 2))
# What every method shares; a journal of another protocol is refused.
PROTOCOL = {
    "features": "counts", "hidden": RECIPE.hidden[0], "optimizer": RECIPE.optimizer.name,
    "learning_rate": RECIPE.optimizer.rate, "batch_size": RECIPE.batch_size, "max_epochs": RECIPE.max_epochs,
    "patience": RECIPE.patience, "held_out": HELD_OUT,
    "start": "lecun uniform, one epoch of SGD 0.1 in batches of 32",
    "kept": "the epoch of the best accuracy on the held-out reviews",
}  # fmt: skip


@dataclass(frozen=True)
class ReviewTask:
    """One task: what a network may see, and the target's other reviews with their labels for evaluation."""

    task: Task
    test: Any
    test_labels: NDArray[np.intp]

    def accuracy(self, layers: Sequence[Layer]) -> float:
        """Share of the test reviews that a network labels right."""
        return float((outputs(layers, self.test).argmax(axis=1) == self.test_labels).mean())


def task_name(source: str, target: str) -> str:
    """Return how a task is called in results: ``books->dvd``."""
    return f"{source}->{target}"


@cache
def _reviews(folder: str | None) -> Reviews:
    return load_reviews(folder)


def read_task(source: str, target: str, *, features: str = "counts", folder: str | None = None) -> ReviewTask:
    """Return one task; `features` are ``"counts"`` or ``"log"``, log(1 + count)."""
    every = _reviews(folder)
    order = np.random.default_rng(SHUFFLE_SEED).permutation(LABELLED)
    training = round((1.0 - HELD_OUT) * LABELLED)
    rows, others = (every.rows[name].log1p() if features == "log" else every.rows[name] for name in (source, target))
    rows, labels = rows[:LABELLED][order], every.labels[source][:LABELLED][order]
    # As many target rows as source rows are paired with them; the held-out part has no partner.
    task = Task(rows[:training], labels[:training], others[order[:training]], 2, rows[training:], labels[training:])
    return ReviewTask(task, others[LABELLED:], every.labels[target][LABELLED:])


def recipe_of(hidden: int) -> Recipe:
    """Return the recipe of Section 6.3 with so many hidden units."""
    return replace(RECIPE, hidden=(hidden,))


def starts(tasks: Sequence[Task], recipe: Recipe, seeds: Sequence[int], *, device: str) -> list[list[Sequence[Layer]]]:
    """Return the weights every method starts from, ``[task][seed]``: after one epoch of SGD on the source."""
    warm_up = replace(
        recipe, optimizer=Optimizer("sgd", 0.1, momentum=0.0), batch_size=32, max_epochs=1, patience=None, keep="last"
    )
    alone = [Task(task.source, task.labels, None, task.n_classes) for task in tasks]
    trained = train_tasks(alone, warm_up, [Member(seed) for seed in seeds], device=device)
    return [[network.layers for network in networks] for networks in trained]


def distance_of(method: str, cell: Cell) -> Distance | None:
    """Return the distance a method minimises, with the cell's ``beta``, ``n_moments`` and ``hidden``."""
    if method == "nn":
        return None
    if method in ("cmd", "cv-cmd"):
        return CMDLoss(cell.get("n_moments", 5), cross=2 if method == "cv-cmd" else 1)
    if method == "mmd":
        return MMDLoss(beta=cell["beta"])
    return CORALLoss() if method == "coral" else AdversarialLoss(cell.get("hidden", 50))


def compute_all(
    cells: Iterable[Cell],
    journal: Journal,
    *,
    folder: str | Path | None,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Compute the cells that the journal does not hold and return all results by their keys.

    On the CPU each cell is a piece of work for one process; on an accelerator cells that differ in the task alone train
    side by side.

    A cell names ``method``, ``source``, ``target``, ``seeds``, and may have ``weight``, ``beta``, ``n_moments`` and
    ``hidden``. With ``grid``, a list of weights, there is one network for each; with ``weights`` the cell asks for
    their scores by reverse validation.
    """
    where = None if folder is None else str(folder)
    if device == "cpu":
        return run_cells(cells, partial(compute, folder=where), journal, n_jobs=n_jobs, progress=progress)
    work = partial(compute_together, folder=where, device=device)
    return run_groups(cells, _groups, work, journal, progress=progress)


def _groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that differ in the task alone."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        shared = {name: value for name, value in cell.items() if name not in ("source", "target")}
        groups.setdefault(cell_key(shared), []).append(cell)
    return list(groups.values())


def compute(cell: Cell, *, folder: str | None = None) -> dict[str, Any]:
    """Compute one cell on the CPU."""
    return compute_together([cell], folder=folder, device="cpu")[0]


def compute_together(cells: Sequence[Cell], *, folder: str | None, device: str) -> list[dict[str, Any]]:
    """Compute cells that differ in their task alone."""
    if not cells:
        return []
    if cells[0]["method"] == "auto":
        return [_with_automatic_weight(cell, folder=folder, device=device) for cell in cells]
    found = [read_task(cell["source"], cell["target"], folder=folder) for cell in cells]
    cell = cells[0]
    recipe = recipe_of(cell.get("hidden", 50))
    if cell["method"] == "tca":
        return [_on_components(cell, task) for task in found]
    if "weights" in cell:
        return [{"scores": scores} for scores in _reverse_scores(cell, [task.task for task in found], recipe, device)]
    tasks = [task.task for task in found]
    members = [_members(cell, own) for own in starts(tasks, recipe, cell["seeds"], device=device)]
    trained = train_tasks(tasks, recipe, members, device=device)
    return [_figures(task, networks) for task, networks in zip(found, trained, strict=True)]


def _with_automatic_weight(cell: Cell, *, folder: str | None, device: str) -> dict[str, Any]:
    """The estimator with ``weight="auto"`` and nothing else set, on log(1 + count); no label of the target is given."""
    every = _reviews(folder)
    source, target = (every.rows[cell[name]].log1p() for name in ("source", "target"))
    labels, truth = every.labels[cell["source"]], every.labels[cell["target"]]
    models = [
        MANNClassifier(weight="auto", device=device, random_state=seed).fit(
            source[:LABELLED], labels[:LABELLED], X_target=target[:LABELLED]
        )
        for seed in cell["seeds"]
    ]
    return {
        "accuracy": [float(model.score(target[LABELLED:], truth[LABELLED:])) for model in models],
        "epochs": [int(model.n_epochs_) for model in models],
    }


def _members(cell: Cell, starts: Sequence[Sequence[Layer]]) -> list[Member]:
    distance, weights = distance_of(cell["method"], cell), cell.get("grid", [cell.get("weight", 0.0)])
    return [
        Member(seed, weight, distance, initial=start)
        for seed, start in zip(cell["seeds"], starts, strict=True)
        for weight in weights
    ]


def _figures(found: ReviewTask, networks: Sequence[TrainedNetwork]) -> dict[str, Any]:
    return {
        "accuracy": [found.accuracy(network.layers) for network in networks],
        "epochs": [network.n_epochs for network in networks],
    }


def _reverse_scores(cell: Cell, tasks: Sequence[Task], recipe: Recipe, device: str) -> list[list[float]]:
    """Reverse accuracies [task][weight]."""
    distance = distance_of(cell["method"], cell)
    members = [Member(SELECTION_SEED, weight, distance) for weight in cell["weights"]]
    domains = [Domains(*_all_of_source(task), task.target) for task in tasks]
    scores = reverse_scores_of_tasks(domains, 2, recipe, members, seed=SELECTION_SEED, device=device)
    return [[float(score) for score in own] for own in scores]


def _all_of_source(task: Task) -> tuple[Any, NDArray[np.intp]]:
    parts: list[Any] = [task.source, task.validation]
    rows = sparse.vstack(parts, format="csr")
    return rows, np.concatenate([task.labels, np.asarray(task.validation_labels)])


def _on_components(cell: Cell, found: ReviewTask) -> dict[str, Any]:
    """Logistic regression on the transfer components of both domains; every seed gives the same."""
    task = found.task
    source, labels = _all_of_source(task)
    domains: list[Any] = [source, task.target]
    scaler = StandardScaler(with_mean=False).fit(sparse.vstack(domains))
    components = TransferComponentAnalysis(n_components=cell["components"], mu=cell["mu"])
    components.fit(scaler.transform(source), X_target=scaler.transform(task.target))
    rows, others, test = (components.transform(scaler.transform(part)) for part in (source, task.target, found.test))
    # One factor for all components, so that the penalty means the same on every task.
    both = np.concatenate([rows, others])
    mean, size = both.mean(axis=0), np.sqrt(both.var(axis=0).mean())
    classifier = LogisticRegression(C=0.1, max_iter=1000).fit((rows - mean) / size, labels)
    accuracy = float(classifier.score((test - mean) / size, found.test_labels))
    return {"accuracy": [accuracy for _ in cell["seeds"]], "epochs": [0 for _ in cell["seeds"]]}


def identity(what: str) -> dict[str, Any]:
    """Return what makes results of this experiment comparable."""
    return {
        "what": what,
        "protocol": PROTOCOL,
        "versions": {"momentalign": __version__} | {name: version(name) for name in ("numpy", "scipy", "torch")},
        "data": {REVIEWS.name: REVIEWS.sha256},
    }

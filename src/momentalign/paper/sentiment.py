"""Sentiment analysis of product reviews (Section 6.3): twelve tasks, every method, Table 2, and its page.

Counts of 5,000 words and pairs of words; 2,000 labelled reviews of one category, 2,000 unlabelled ones of another, all
other reviews of that category for testing. One hidden layer of sigmoid units, Adagrad, batches of 300. What Zellinger
et al. (2019) leave open is taken from the authors' code: both samples are shuffled once, the last 30 % of the source
are held out to stop early, all methods start from the same weights after one epoch of SGD. The weights of DANN and
CORAL are not the paper's, see docs/paper.md. The sensitivity experiment (Section 6.6) uses the same cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.coral import CORALLoss
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.errors import InvalidInputError
from momentalign.estimators.classifier import MANNClassifier
from momentalign.journal import Journal, cell_key
from momentalign.networks.shallow import Layer, outputs
from momentalign.paper.catalogue import FILES
from momentalign.paper.experiment import (
    Cell,
    Progress,
    accuracy_on_components,
    cells_alike,
    identity,
    run_cells,
    split_task,
    table_result,
)
from momentalign.paper.grouped import reverse_scores_of_tasks, train_tasks
from momentalign.paper.pages import comparison_page
from momentalign.paper.problems import REVIEWS_FILE, Reviews, load_reviews
from momentalign.paper.tables import REVIEWS
from momentalign.selection.search import ReverseValidationSearch
from momentalign.training.config import Distance, NetworkSpec, Optimizer, Task, TrainingConfig

__all__ = [
    "METHODS",
    "TASKS",
    "Method",
    "ReviewTask",
    "compute_all",
    "config_of",
    "load_task",
    "preset",
    "review_identity",
    "run",
    "sentiment_page",
    "starts",
]

LABELLED, HELD_OUT = 2000, 0.3
SHUFFLE_SEED = SELECTION_SEED = 0
CONFIG = TrainingConfig(initializer="lecun_uniform", compiled=True)
TASKS = REVIEWS.tasks
# What every method shares; a journal of another protocol is refused.
PROTOCOL = {
    "features": "counts", "hidden": CONFIG.hidden[0], "optimizer": CONFIG.optimizer.name,
    "learning_rate": CONFIG.optimizer.rate, "batch_size": CONFIG.batch_size, "max_epochs": CONFIG.max_epochs,
    "patience": CONFIG.patience, "held_out": HELD_OUT,
    "start": "lecun uniform, one epoch of SGD 0.1 in batches of 32",
    "kept": "the epoch of the best accuracy on the held-out reviews",
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """A column of Table 2. Of several weights or betas, reverse validation on one seed picks for each task."""

    title: str
    weights: tuple[float, ...] = (0.0,)
    betas: tuple[float, ...] = ()
    components: int = 0
    mu: float = 0.0
    apart: str = ""
    """What differs from the protocol that the others share."""

    @property
    def searched(self) -> bool:
        """Whether something has to be chosen."""
        return len(self.weights) * max(len(self.betas), 1) > 1


METHODS = {
    "nn": Method("NN"),
    "dann": Method("DANN", weights=(1.0,)),
    "coral": Method("CORAL", weights=(100_000.0,)),
    "tca": Method(
        "TCA", weights=(), components=100, mu=0.1, apart="columns of unit variance, linear kernel, logistic regression"
    ),
    "mmd": Method(
        "MMD", weights=tuple(np.geomspace(0.1, 500.0, 10).tolist()), betas=tuple(np.geomspace(0.01, 10.0, 10).tolist())
    ),
    "cmd": Method("CMD", weights=(1.0,)),
    "cv-cmd": Method("CV-CMD", weights=(1.0,)),
    "auto": Method("CMD, automatic weight", weights=(), apart="log(1 + count), MANNClassifier(weight='auto')"),
}
"""The methods of Table 2, CV-CMD, and ``weight="auto"`` on log(1 + count); see docs/paper.md for their settings."""


def run(
    methods: Sequence[str],
    journal: Journal,
    *,
    seeds: Sequence[int] = range(10),
    tasks: Sequence[str] = TASKS,
    n_jobs: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return accuracies of methods on tasks, ready for JSON; what the journal holds is not computed again.

    Parameters
    ----------
    methods
        Names of :data:`METHODS`.
    journal
        Where finished cells are kept.
    seeds, tasks
        Repetitions, and tasks such as ``books->dvd``.
    n_jobs, device
        Processes to compute in, on the CPU, or an accelerator.
    folder
        Where the reviews are; None takes ``MOMENTALIGN_DATA``.
    progress
        Called with the number of finished cells and of all cells.
    """
    work = partial(compute_all, journal=journal, folder=folder, device=device, n_jobs=n_jobs, progress=progress)
    pairs = list(itertools.product(methods, tasks))
    scores = work([cell for pair in pairs for cell in _search_cells(*pair)])
    cells = {pair: {**_task_cell(*pair), "seeds": list(seeds), **_choose(*pair, scores)} for pair in pairs}
    done = work(cells.values())
    columns = {}
    for method in methods:
        settings = {name: value for name, value in asdict(METHODS[method]).items() if value and name != "title"}
        accuracy = {task: done[cell_key(cells[method, task])]["accuracy"] for task in tasks}
        columns[method] = {"title": METHODS[method].title, "settings": settings, "accuracy": accuracy}
        if METHODS[method].searched:
            columns[method]["chosen"] = {
                task: {key: value for key, value in cells[method, task].items() if key in ("weight", "beta")}
                for task in tasks
            }
    return table_result("sentiment", review_identity("sentiment"), seeds, tasks, methods=columns)


def sentiment_page(result: Mapping[str, Any]) -> str:
    """Return the page of one result of ``momentalign reproduce sentiment``."""
    title, tested = "Sentiment analysis of product reviews", "Source → target; accuracy on the target's test reviews."
    return comparison_page(result, REVIEWS, title=title, pair=("nn", "cmd"), tested=tested)


def review_identity(what: str) -> dict[str, Any]:
    """Return what makes results of an experiment on reviews comparable."""
    return identity(what, PROTOCOL, {REVIEWS_FILE: FILES[REVIEWS_FILE].sha256})


def _task_cell(method: str, task: str) -> dict[str, Any]:
    return {"method": method, **split_task(task)}


def _search_cells(method: str, task: str) -> list[Cell]:
    """The cells whose scores decide about weight and beta of a method on a task."""
    settings = METHODS[method]
    if not settings.searched:
        return []
    cell = {**_task_cell(method, task), "weights": list(settings.weights)}
    return [{**cell, "beta": beta} for beta in settings.betas] or [cell]


def _choose(method: str, task: str, scores: Mapping[str, Any]) -> dict[str, float]:
    """Weight and beta with the best score by reverse validation; of equals the smallest weight."""
    settings = METHODS[method]
    if method == "tca":
        return {"components": settings.components, "mu": settings.mu}
    if not settings.searched:
        return {"weight": settings.weights[0]} if settings.weights else {}
    candidates = [
        (score, -weight, cell.get("beta"))
        for cell in _search_cells(method, task)
        for weight, score in zip(cell["weights"], scores[cell_key(cell)]["scores"], strict=True)
    ]
    _, negative, beta = max(candidates, key=lambda candidate: candidate[:2])
    return {"weight": -negative} | ({} if beta is None else {"beta": beta})


def compute_all(
    cells: Iterable[Cell],
    journal: Journal,
    *,
    folder: str | Path | None,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compute the cells that the journal does not hold and return all results by their keys.

    On the CPU each cell is a piece of work for one process; on an accelerator cells that differ in the task alone train
    side by side.

    A cell names ``method``, ``source``, ``target``, ``seeds``, and may have ``weight``, ``beta``, ``n_moments`` and
    ``hidden``. With ``grid``, a list of weights, there is one network for each; with ``weights`` the cell asks for
    their scores by reverse validation.
    """
    work = partial(compute, folder=None if folder is None else str(folder), device=device)
    if device == "cpu":
        return run_cells(cells, work, journal, n_jobs=n_jobs, progress=progress)
    return run_cells(cells, work, journal, group=partial(cells_alike, key=_without_task), progress=progress)


def _without_task(cell: Cell) -> str:
    """What cells share that differ in the task alone."""
    return cell_key({name: value for name, value in cell.items() if name not in ("source", "target")})


def compute(cells: Sequence[Cell], *, folder: str | None = None, device: str = "cpu") -> list[dict[str, Any]]:
    """Compute cells that differ in their task alone."""
    cell = cells[0]
    if cell["method"] == "auto":
        return [_with_automatic_weight(own, folder=folder, device=device) for own in cells]
    found = [load_task(own["source"], own["target"], folder=folder) for own in cells]
    if cell["method"] == "tca":
        return [_on_components(cell, task) for task in found]
    config, tasks = config_of(cell.get("hidden", 50)), [own.task for own in found]
    distance = distance_of(cell["method"], cell)
    if "weights" in cell:
        specs = [NetworkSpec(SELECTION_SEED, weight, distance) for weight in cell["weights"]]
        whole = [Task(*_whole_source(task), task.target, 2) for task in tasks]
        every = reverse_scores_of_tasks(whole, config, specs, seed=SELECTION_SEED, device=device)
        return [{"scores": [float(score) for score in scores]} for scores in every]
    weights = cell.get("grid", [cell.get("weight", 0.0)])
    started = [
        [
            NetworkSpec(seed, weight, distance, initial=start)
            for seed, start in zip(cell["seeds"], own, strict=True)
            for weight in weights
        ]
        for own in starts(tasks, config, cell["seeds"], device=device)
    ]
    trained = train_tasks(tasks, config, started, device=device)
    return [
        {
            "accuracy": [own.accuracy(network.layers) for network in networks],
            "epochs": [network.n_epochs for network in networks],
        }
        for own, networks in zip(found, trained, strict=True)
    ]


@dataclass(frozen=True)
class ReviewTask:
    """One task: what a network may see, and the target's other reviews with their labels for evaluation."""

    task: Task
    test: Any
    test_labels: NDArray[np.intp]

    def accuracy(self, layers: Sequence[Layer]) -> float:
        """Share of the test reviews that a network labels right."""
        return float((outputs(layers, self.test).argmax(axis=1) == self.test_labels).mean())


@cache
def _reviews(folder: str | None) -> Reviews:
    return load_reviews(folder)


def load_task(source: str, target: str, *, features: str = "counts", folder: str | None = None) -> ReviewTask:
    """Return one task; `features` are ``"counts"`` or ``"log"``, log(1 + count)."""
    every = _reviews(folder)
    order = np.random.default_rng(SHUFFLE_SEED).permutation(LABELLED)
    training = round((1.0 - HELD_OUT) * LABELLED)
    rows, others = (every.rows[name].log1p() if features == "log" else every.rows[name] for name in (source, target))
    rows, labels = rows[:LABELLED][order], every.labels[source][:LABELLED][order]
    # As many target rows as source rows are paired with them; the held-out part has no partner.
    task = Task(rows[:training], labels[:training], others[order[:training]], 2, rows[training:], labels[training:])
    return ReviewTask(task, others[LABELLED:], every.labels[target][LABELLED:])


def config_of(hidden: int) -> TrainingConfig:
    """Return the settings of Section 6.3 with so many hidden units."""
    return replace(CONFIG, hidden=(hidden,))


def starts(
    tasks: Sequence[Task], config: TrainingConfig, seeds: Sequence[int], *, device: str
) -> list[list[Sequence[Layer]]]:
    """Return the weights every method starts from, ``[task][seed]``: after one epoch of SGD on the source."""
    warm_up = replace(
        config, optimizer=Optimizer("sgd", 0.1, momentum=0.0), batch_size=32, max_epochs=1, patience=None, keep="last"
    )
    alone = [Task(task.source, task.labels, None, task.n_classes) for task in tasks]
    trained = train_tasks(alone, warm_up, [[NetworkSpec(seed) for seed in seeds]] * len(tasks), device=device)
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


def _whole_source(task: Task) -> tuple[Any, NDArray[np.intp]]:
    parts: list[Any] = [task.source, task.validation]
    rows = sparse.vstack(parts, format="csr")
    return rows, np.concatenate([task.labels, np.asarray(task.validation_labels)])


def _on_components(cell: Cell, found: ReviewTask) -> dict[str, Any]:
    """TCA on columns of unit variance; every seed gives the same."""
    source, labels = _whole_source(found.task)
    domains: list[Any] = [source, found.task.target]
    scaler = StandardScaler(with_mean=False).fit(sparse.vstack(domains))
    accuracy = accuracy_on_components(
        scaler.transform(source), labels, scaler.transform(found.task.target), scaler.transform(found.test),
        found.test_labels, n_components=cell["components"], mu=cell["mu"], centre=True,
    )  # fmt: skip
    return {"accuracy": [accuracy for _ in cell["seeds"]], "epochs": [0 for _ in cell["seeds"]]}


def _with_automatic_weight(cell: Cell, *, folder: str | None, device: str) -> dict[str, Any]:
    """The estimator with ``weight="auto"`` and nothing else set, on log(1 + count)."""
    every = _reviews(folder)
    source, target = (every.rows[cell[name]].log1p() for name in ("source", "target"))
    labels, test_labels = every.labels[cell["source"]], every.labels[cell["target"]][LABELLED:]
    models = [
        MANNClassifier(weight="auto", device=device, random_state=seed).fit(
            source[:LABELLED], labels[:LABELLED], X_target=target[:LABELLED]
        )
        for seed in cell["seeds"]
    ]
    return {
        "accuracy": [float(model.score(target[LABELLED:], test_labels)) for model in models],
        "epochs": [int(model.n_epochs_) for model in models],
    }


def preset(method: str, *, random_state: int | None = None) -> Any:
    """Return a method with the paper's settings as an estimator with ``fit(X, y, X_target=...)``.

    The MMD is a search over the paper's grid.

    Examples
    --------
    >>> preset("cv-cmd", random_state=0)
    MANNClassifier(discrepancy='cv-cmd', optimizer='adagrad', random_state=0)
    """
    if method not in METHODS or method == "tca":  # a transformer, to stand before a classifier
        known = [name for name in METHODS if name != "tca"]
        raise InvalidInputError(f"there is no preset {method!r}; choose among {', '.join(known)}.")
    settings = METHODS[method]
    common: dict[str, Any] = {"optimizer": "adagrad", "random_state": random_state}
    if method == "auto":
        return MANNClassifier(weight="auto", **common)
    if settings.searched:
        grid = {"weight": list(settings.weights), "discrepancy": [MMDLoss(beta=beta) for beta in settings.betas]}
        return ReverseValidationSearch(MANNClassifier(**common), grid, random_state=random_state)
    if method == "nn":
        return MANNClassifier(discrepancy=None, **common)
    return MANNClassifier(discrepancy=method, weight=settings.weights[0], **common)

"""Sentiment analysis of product reviews: twelve tasks, every method, Table 2 of Zellinger et al. (2019).

The cells of the experiments on product reviews: one task, one setting, some seeds or weights.

Sections 6.3 and 6.6 of Zellinger et al. (2019). Counts of 5,000 words and pairs of words; 2,000 labelled reviews of one
category, 2,000 unlabelled ones of another, all other reviews of that category for testing. One hidden layer of sigmoid
units, Adagrad, batches of 300. What the paper leaves open is taken from the authors' protocol: both samples are
shuffled once, the last 30 % of the source are held out to stop early, all methods start from the same weights after
one epoch of SGD.

The methods of the sentiment experiment as estimators to take elsewhere, with the paper's settings (Section 6.3).

Zellinger et al. (2019); the weights of DANN and CORAL are ours, see docs/paper.md.

The page of the sentiment experiment: every method on every task, ours beside the paper's.

Stands for Section 6.3 with Table 2 of Zellinger et al. (2019).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.coral import CORALLoss
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.errors import InvalidInputError
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.tca import TransferComponentAnalysis
from momentalign.journal import Journal, cell_key
from momentalign.networks.shallow import Layer, outputs
from momentalign.paper.catalogue import REVIEWS
from momentalign.paper.comparison_page import KEYS, Words, comparison_page, settings_words
from momentalign.paper.problems import CATEGORIES, Reviews, load_reviews
from momentalign.paper.runner import Cell, run_cells, run_groups
from momentalign.paper.tables import compare
from momentalign.report.page import read_result
from momentalign.selection.reverse import Domains, reverse_scores_of_tasks
from momentalign.selection.search import ReverseValidationSearch
from momentalign.training.config import Distance, NetworkSpec, Optimizer, Task, TrainedNetwork, TrainingConfig
from momentalign.training.stack import train_tasks
from momentalign.version import __version__

__all__ = [
    "KEYS",
    "METHODS",
    "PRESETS",
    "TASKS",
    "Method",
    "ReviewTask",
    "compute_all",
    "identity",
    "preset",
    "read_task",
    "refuse_unknown",
    "run",
    "sentiment_page",
    "settings_words",
    "task_name",
]

LABELLED, HELD_OUT = 2000, 0.3
SHUFFLE_SEED = SELECTION_SEED = 0
RECIPE = TrainingConfig(initializer="lecun_uniform", compiled=True)
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


def recipe_of(hidden: int) -> TrainingConfig:
    """Return the recipe of Section 6.3 with so many hidden units."""
    return replace(RECIPE, hidden=(hidden,))


def starts(
    tasks: Sequence[Task], recipe: TrainingConfig, seeds: Sequence[int], *, device: str
) -> list[list[Sequence[Layer]]]:
    """Return the weights every method starts from, ``[task][seed]``: after one epoch of SGD on the source."""
    warm_up = replace(
        recipe, optimizer=Optimizer("sgd", 0.1, momentum=0.0), batch_size=32, max_epochs=1, patience=None, keep="last"
    )
    alone = [Task(task.source, task.labels, None, task.n_classes) for task in tasks]
    trained = train_tasks(alone, warm_up, [NetworkSpec(seed) for seed in seeds], device=device)
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


def _members(cell: Cell, starts: Sequence[Sequence[Layer]]) -> list[NetworkSpec]:
    distance, weights = distance_of(cell["method"], cell), cell.get("grid", [cell.get("weight", 0.0)])
    return [
        NetworkSpec(seed, weight, distance, initial=start)
        for seed, start in zip(cell["seeds"], starts, strict=True)
        for weight in weights
    ]


def _figures(found: ReviewTask, networks: Sequence[TrainedNetwork]) -> dict[str, Any]:
    return {
        "accuracy": [found.accuracy(network.layers) for network in networks],
        "epochs": [network.n_epochs for network in networks],
    }


def _reverse_scores(cell: Cell, tasks: Sequence[Task], recipe: TrainingConfig, device: str) -> list[list[float]]:
    """Reverse accuracies [task][weight]."""
    distance = distance_of(cell["method"], cell)
    members = [NetworkSpec(SELECTION_SEED, weight, distance) for weight in cell["weights"]]
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


@dataclass(frozen=True)
class Method:
    """A column of Table 2. Where weights or betas are several, reverse validation on one seed picks for each task."""

    title: str
    weights: tuple[float, ...] = (0.0,)
    betas: tuple[float, ...] = ()
    components: int = 0
    mu: float = 0.0
    apart: str = ""
    """What is not as in the protocol that the others share."""

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
    tasks: Sequence[tuple[str, str]] = TASKS,
    n_jobs: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return accuracies of methods on tasks, ready for JSON; what the journal holds is not computed again.

    Parameters
    ----------
    methods
        Names of :data:`METHODS`.
    journal
        Where finished cells are kept.
    seeds, tasks
        Repetitions, and pairs of categories.
    n_jobs, device
        Processes to compute in, on the CPU, or an accelerator.
    folder
        Where the reviews are; None takes ``MOMENTALIGN_DATA``.
    progress
        Called with the number of finished cells and of all cells.
    """
    refuse_unknown(methods)
    work = partial(compute_all, journal=journal, folder=folder, device=device, n_jobs=n_jobs, progress=progress)
    questions = [cell for method in methods for task in tasks for cell in _questions(method, task)]
    scores = work(questions)
    pairs = [(method, task) for method in methods for task in tasks]
    cells = {pair: _cell(*pair, _chosen(*pair, scores), seeds) for pair in pairs}
    done = work(cells.values())
    return {
        "kind": "sentiment",
        **{name: value for name, value in identity("sentiment").items() if name != "what"},
        "seeds": list(seeds),
        "tasks": [task_name(*task) for task in tasks],
        "methods": {method: _column(method, tasks, cells, done) for method in methods},
    }


def refuse_unknown(methods: Sequence[str]) -> None:
    """Name the first method there is not."""
    for method in methods:
        if method not in METHODS:
            raise InvalidInputError(f"method {method!r} is not known; choose among {', '.join(METHODS)}.")


def _questions(method: str, task: tuple[str, str]) -> list[Cell]:
    """The cells whose scores decide about weight and beta of a method on a task."""
    settings = METHODS[method]
    if not settings.searched:
        return []
    named = {"method": method, "source": task[0], "target": task[1], "weights": list(settings.weights)}
    return [{**named, "beta": beta} for beta in settings.betas] or [named]


def _chosen(method: str, task: tuple[str, str], scores: Mapping[str, Any]) -> dict[str, float]:
    """Weight and beta with the best score by reverse validation; of equals the smallest weight."""
    settings = METHODS[method]
    if method == "tca":
        return {"components": settings.components, "mu": settings.mu}
    if not settings.searched:
        return {"weight": settings.weights[0]} if settings.weights else {}
    candidates = [
        (score, -weight, cell.get("beta"))
        for cell in _questions(method, task)
        for weight, score in zip(cell["weights"], scores[cell_key(cell)]["scores"], strict=True)
    ]
    _, negative, beta = max(candidates, key=lambda candidate: candidate[:2])
    return {"weight": -negative} | ({} if beta is None else {"beta": beta})


def _cell(method: str, task: tuple[str, str], settings: Mapping[str, float], seeds: Sequence[int]) -> Cell:
    return {"method": method, "source": task[0], "target": task[1], "seeds": list(seeds), **settings}


def _column(method: str, tasks: Any, cells: Mapping[Any, Cell], done: Mapping[str, Any]) -> dict[str, Any]:
    """One method's part of the results."""
    settings = {name: value for name, value in asdict(METHODS[method]).items() if value and name != "title"}
    own = {task_name(*task): cells[method, task] for task in tasks}
    per_task = {name: done[cell_key(cell)]["accuracy"] for name, cell in own.items()}
    chosen = {
        name: {key: cell[key] for key in ("weight", "beta") if key in cell}
        for name, cell in own.items()
        if METHODS[method].searched
    }
    return {"title": METHODS[method].title, "settings": settings, "accuracy": per_task} | (
        {"chosen": chosen} if chosen else {}
    )


PRESETS: dict[str, Callable[[int | None], Any]] = {
    "nn": lambda seed: MANNClassifier(discrepancy=None, random_state=seed),
    "cmd": lambda seed: MANNClassifier(weight=METHODS["cmd"].weights[0], random_state=seed),
    "cv-cmd": lambda seed: MANNClassifier(discrepancy="cv-cmd", weight=METHODS["cv-cmd"].weights[0], random_state=seed),
    "coral": lambda seed: MANNClassifier(discrepancy="coral", weight=METHODS["coral"].weights[0], random_state=seed),
    "dann": lambda seed: MANNClassifier(discrepancy="dann", weight=METHODS["dann"].weights[0], random_state=seed),
    "mmd": lambda seed: ReverseValidationSearch(
        MANNClassifier(random_state=seed),
        {
            "weight": list(METHODS["mmd"].weights),
            "discrepancy": [MMDLoss(beta=beta) for beta in METHODS["mmd"].betas],
        },
        random_state=seed,
    ),
    "auto": lambda seed: MANNClassifier(weight="auto", random_state=seed),
}
"""Name of a method -> what makes its estimator from a seed. MMD is a search over the paper's grid."""


def preset(method: str, *, random_state: int | None = None) -> Any:
    """Return a method as an estimator with ``fit(X, y, X_target=...)``.

    Examples
    --------
    >>> preset("cv-cmd", random_state=0)
    MANNClassifier(discrepancy='cv-cmd', random_state=0)
    """
    if method not in PRESETS:
        raise InvalidInputError(f"there is no preset {method!r}; choose among {', '.join(PRESETS)}.")
    return PRESETS[method](random_state)


WORDS = Words(
    title="Sentiment analysis of product reviews",
    before="nn",
    after="cmd",
    tested="Source → target; accuracy on the target's test reviews.",
)


def sentiment_page(result: Mapping[str, Any]) -> str:
    """Return the page of one result of ``momentalign reproduce sentiment``."""
    read_result(result, "sentiment", KEYS)
    return comparison_page(result, compare(result), WORDS)

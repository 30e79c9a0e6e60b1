"""Object recognition on Office-31: six tasks, every method, Table 4 of Zellinger et al. (2019).

The cells of the experiment on objects: one task, one method, one seed.

Section 6.4 of Zellinger et al. (2019): all pictures of one domain with labels, all of another without, accuracy on the
latter. Every method has the same frozen features, the same layer of 256 sigmoid units that is aligned, and the same
rule to stop, which looks at the source alone.

The page of the experiment on objects: every method on every task, ours beside the paper's.

Stands for Section 6.4 with Table 4 of Zellinger et al. (2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.linear_model import LogisticRegression

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.coral import CORALLoss
from momentalign.errors import InvalidInputError
from momentalign.estimators.tca import TransferComponentAnalysis
from momentalign.journal import Journal, cell_key
from momentalign.paper.comparison_page import KEYS, Words, comparison_page
from momentalign.paper.object_heads import (
    HeadRecipe,
    HeadTask,
    MMDOfSomeRows,
    ObjectFeatures,
    seconds_per_update,
    train_heads,
)
from momentalign.paper.runner import Cell, duration_words, run_cells, run_groups
from momentalign.paper.tables import OBJECT_TASKS, OBJECTS, compare
from momentalign.report.page import read_result
from momentalign.training.config import Distance, NetworkSpec, Optimizer
from momentalign.version import __version__

__all__ = [
    "METHODS",
    "TASKS",
    "Method",
    "compute_all",
    "estimate",
    "identity",
    "needs_crops",
    "objects_page",
    "refuse_unknown",
    "run",
]

FP = HeadRecipe()
FOLLOWING = HeadRecipe(follow_at=500)
MOMENTUM = HeadRecipe(optimizer=Optimizer("sgd", decay=1e-4), crops=True, max_updates=10_000)
N_CLASSES, COMPONENTS, MU = 31, 100, 1.0
# Stacks that train at the same time on an accelerator: each leaves it waiting while it asks for the next steps.
STACKS_AT_ONCE = 4
# Updates after which heads usually stop: what an estimate of the time goes by.
USUAL_UPDATES = {"adadelta": 2000, "sgd": 4000}
# What every method shares; a journal of another protocol is refused.
PROTOCOL = {
    "hidden": FP.hidden, "start": "he normal", "dropout": FP.dropout, "batches": "whole samples, classes balanced",
    "patience": FP.patience, "stopped": "so many updates after the last better accuracy on the source",
    "follow_at": FOLLOWING.follow_at,
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """A column of Table 4."""

    title: str
    weight: float = 0.0
    recipe: HeadRecipe = field(default_factory=HeadRecipe)
    apart: str = ""
    """What is not as in FP-CMD, which the others share."""


_WITH_MOMENTUM = "SGD 0.01 with momentum 0.9 and decay 1e-4, crops and mirrors"
_FOLLOWING = f"from update {FOLLOWING.follow_at} on, classes in the shares that the head finds in the target"
METHODS = {
    "nn": Method("NN"),
    "cnn": Method("CNN", recipe=MOMENTUM, apart=_WITH_MOMENTUM),
    "tca": Method("TCA", apart=f"{COMPONENTS} components, linear kernel, logistic regression"),
    "mmd": Method("MMD", weight=1.0),
    # Sun and Saenko (2016) take the weight with which both losses are alike at the end; here that is about this one.
    "coral": Method("CORAL", weight=100_000.0),
    "dann": Method("DANN", weight=1.0),
    "cmd": Method("CMD", weight=1.0, recipe=MOMENTUM, apart=_WITH_MOMENTUM),
    "fp-cmd": Method("FP-CMD", weight=1.0),
    # The more is aligned, the more it matters that classes have the same shares in both domains.
    "cv-cmd": Method("CV-CMD", weight=1.0, recipe=FOLLOWING, apart=_FOLLOWING),
}
"""The methods of Table 4, and two it does not have: NN is FP-CMD without alignment, CV-CMD has all cross-variances."""


def distance_of(method: str) -> Distance | None:
    """Return the distance a method minimises."""
    if method in ("cmd", "fp-cmd"):
        return CMDLoss()
    others: dict[str, Distance] = {
        "mmd": MMDOfSomeRows("gaussians"), "cv-cmd": CMDLoss(cross=2), "coral": CORALLoss(),
        "dann": AdversarialLoss(FP.hidden),
    }  # fmt: skip
    return others.get(method)


def compute_all(
    cells: Iterable[Cell],
    features: ObjectFeatures,
    journal: Journal,
    *,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Compute the cells that the journal does not hold and return all results by their keys.

    On the CPU each cell is a piece of work for one process; on an accelerator all heads of one task that share their
    recipe train as one stack, and a few stacks side by side in processes of their own.

    A cell names ``method``, ``source``, ``target`` and ``seed``; ``views`` tells trainings with crops apart.
    """
    if device == "cpu":
        return run_cells(cells, partial(compute, features=features), journal, n_jobs=n_jobs, progress=progress)
    work = partial(compute_together, features=features, device=device)
    at_once = min(effective_n_jobs(n_jobs), STACKS_AT_ONCE)
    return run_groups(cells, _groups, work, journal, n_jobs=at_once, progress=progress)


def _groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that can train as one stack, those that take longest first."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        key = (cell["source"], cell["target"], cell["method"] == "tca", METHODS[cell["method"]].recipe)
        groups.setdefault(key, []).append(cell)
    return sorted(groups.values(), key=lambda group: -METHODS[group[0]["method"]].recipe.max_updates)


def compute(cell: Cell, *, features: ObjectFeatures) -> dict[str, Any]:
    """Compute one cell on the CPU."""
    return compute_together([cell], features, device="cpu")[0]


def compute_together(cells: Sequence[Cell], features: ObjectFeatures, *, device: str) -> list[dict[str, Any]]:
    """Compute cells of one task that share their recipe."""
    task, truth = _task(cells[0], features)
    if cells[0]["method"] == "tca":
        result = _on_components(task, truth)
        return [result for _ in cells]
    heads = train_heads(task, [_member(cell) for cell in cells], METHODS[cells[0]["method"]].recipe, device=device)
    return [{"accuracy": float((head.predictions == truth).mean()), "updates": head.updates} for head in heads]


def estimate(cells: Sequence[Cell], features: ObjectFeatures, *, device: str = "cpu", n_jobs: int = 1) -> float:
    """Return how many seconds cells will take, from a few updates of each kind."""
    groups = _groups([cell for cell in cells if cell["method"] != "tca"])
    work = groups if device != "cpu" else [[cell] for group in groups for cell in group]
    known: dict[Any, float] = {}
    total = 0.0
    for stack in work:
        recipe = METHODS[stack[0]["method"]].recipe
        key = (stack[0]["source"], stack[0]["target"], *(cell["method"] for cell in stack))
        if key not in known:
            task, _ = _task(stack[0], features)
            known[key] = seconds_per_update(task, [_member(cell) for cell in stack], recipe, device=device)
        total += known[key] * min(USUAL_UPDATES[recipe.optimizer.name], recipe.max_updates)
    return total / max(min(n_jobs, len(work)), 1) if device == "cpu" else total


def _task(cell: Cell, features: ObjectFeatures) -> tuple[HeadTask, Any]:
    """What a head may see, and the labels of the target for evaluation."""
    source, labels = features.office.domain(cell["source"])
    target, truth = features.office.domain(cell["target"])
    return HeadTask(source, labels, target, N_CLASSES), truth


def _member(cell: Cell) -> NetworkSpec:
    method, seed = cell["method"], cell["seed"]
    return NetworkSpec(seed, METHODS[method].weight, distance_of(method))


def _on_components(task: HeadTask, truth: Any) -> dict[str, Any]:
    """Logistic regression on the transfer components of both domains; nothing in it is drawn."""
    source, target = (rows[0].astype(np.float64) for rows in (task.source, task.target))
    components = TransferComponentAnalysis(n_components=COMPONENTS, mu=MU).fit(source, X_target=target)
    rows, others = components.transform(source), components.transform(target)
    # One factor for all components, so that the penalty means the same on every task.
    size = np.sqrt(np.concatenate([rows, others]).var(axis=0).mean())
    classifier = LogisticRegression(C=0.1, max_iter=1000).fit(rows / size, task.labels)
    return {"accuracy": float(classifier.score(others / size, truth)), "updates": 0}


def identity(features: ObjectFeatures) -> dict[str, Any]:
    """Return what makes results of this experiment comparable."""
    return {
        "what": "objects",
        "protocol": {"backbone": features.backbone, **PROTOCOL},
        "versions": {"momentalign": __version__} | {name: version(name) for name in ("numpy", "scipy", "torch")},
        "data": features.data,
    }


TASKS = tuple((source, target) for source, target in (task.split("->") for task in OBJECT_TASKS))


def run(
    methods: Sequence[str],
    features: ObjectFeatures,
    journal: Journal,
    *,
    seeds: Sequence[int] = range(5),
    tasks: Sequence[tuple[str, str]] = TASKS,
    n_jobs: int = 1,
    device: str = "cpu",
    say: Callable[[str], None] = lambda _words: None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return accuracies of methods on tasks, ready for JSON; what the journal holds is not computed again.

    Parameters
    ----------
    methods
        Names of :data:`METHODS`.
    features
        What :func:`~momentalign.paper.object_heads.open_features` returns.
    journal
        Where finished cells are kept.
    seeds, tasks
        Repetitions, and pairs of domains.
    n_jobs, device
        Processes to compute in, on the CPU, or an accelerator.
    say, progress
        Called with a sentence that says how long it takes, and with the number of finished cells and of all cells.
    """
    refuse_unknown(methods)
    views = len(features.office.rows)
    cells = {(method, task): _cells(method, task, seeds, views) for method in methods for task in tasks}
    every = [cell for own in cells.values() for cell in own]
    done = journal.done()
    missing = [cell for cell in every if cell_key(cell) not in done]
    seconds = estimate(missing, features, device=device, n_jobs=effective_n_jobs(n_jobs))
    say(f"{len(missing)} of {len(every)} trainings are to be done: {duration_words(seconds)}")
    results = compute_all(every, features, journal, device=device, n_jobs=n_jobs, progress=progress)
    return {
        "kind": "objects",
        **{name: value for name, value in identity(features).items() if name != "what"},
        "seeds": list(seeds),
        "tasks": ["->".join(task) for task in tasks],
        "methods": {method: _column(method, tasks, seeds, cells, results, features) for method in methods},
    } | _note(methods, features)


def refuse_unknown(methods: Sequence[str]) -> None:
    """Name the first method there is not."""
    for method in methods:
        if method not in METHODS:
            raise InvalidInputError(f"method {method!r} is not known; choose among {', '.join(METHODS)}.")


def needs_crops(methods: Sequence[str]) -> bool:
    """Whether a method wants crops and mirrors of the pictures.

    Examples
    --------
    >>> needs_crops(["nn", "fp-cmd"]), needs_crops(["cmd"])
    (False, True)
    """
    return any(METHODS[method].recipe.crops for method in methods)


def _cells(method: str, task: tuple[str, str], seeds: Sequence[int], views: int) -> list[Cell]:
    """One cell for every seed; TCA draws nothing, so one is enough. Where views count, the cell says how many."""
    shared: dict[str, Any] = {"method": method, "source": task[0], "target": task[1]}
    if METHODS[method].recipe.crops:
        shared["views"] = views
    return [{**shared, "seed": seed} for seed in (seeds[:1] if method == "tca" else seeds)]


def _column(
    method: str,
    tasks: Sequence[tuple[str, str]],
    seeds: Sequence[int],
    cells: Mapping[tuple[str, tuple[str, str]], Sequence[Cell]],
    results: Mapping[str, Any],
    features: ObjectFeatures,
) -> dict[str, Any]:
    """One method's part of the results."""
    own = {"->".join(task): [results[cell_key(cell)] for cell in cells[method, task]] for task in tasks}
    repeated = {name: found * (len(seeds) if method == "tca" else 1) for name, found in own.items()}
    return {
        "title": METHODS[method].title,
        "settings": _settings(method, features),
        "accuracy": {name: [result["accuracy"] for result in found] for name, found in repeated.items()},
        "updates": {name: [result["updates"] for result in found] for name, found in repeated.items()},
    }


def _settings(method: str, features: ObjectFeatures) -> dict[str, Any]:
    chosen = METHODS[method]
    found: dict[str, Any] = {"weight": chosen.weight} if chosen.weight else {}
    if method != "tca":
        found |= {"optimizer": chosen.recipe.optimizer.name, "max_updates": chosen.recipe.max_updates}
    if chosen.recipe.crops:
        found["views"] = len(features.office.rows)
    return found | ({"apart": chosen.apart} if chosen.apart else {})


def _note(methods: Sequence[str], features: ObjectFeatures) -> dict[str, str]:
    """What a reader of the table has to know."""
    words = f"The paper's values are on features of AlexNet, ours on those of {features.backbone}."
    if needs_crops(methods) and not features.has_crops:
        words += " There were no crops and mirrors here, centre crops only."
    return {"note": words}


WORDS = Words(
    title="Object recognition on Office-31",
    before="nn",
    after="fp-cmd",
    tested="Source → target; accuracy on all pictures of the target, whose labels were not used.",
)


def objects_page(result: Mapping[str, Any]) -> str:
    """Return the page of one result of ``momentalign reproduce objects``."""
    read_result(result, "objects", KEYS)
    return comparison_page(result, compare(result, OBJECTS), WORDS)

"""Object recognition on Office-31 (Section 6.4): six tasks, every method, Table 4, and its page.

All pictures of one domain with labels, all of another without, accuracy on the latter. Every method has the same frozen
features, the same layer of 256 sigmoid units that is aligned, and the same rule to stop, which sees the source alone. A
cell is one task, one method and one seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.coral import CORALLoss
from momentalign.journal import Journal, cell_key
from momentalign.paper.comparison_page import KEYS, PageText, comparison_page
from momentalign.paper.experiment import (
    Cell,
    Progress,
    Say,
    accuracy_on_components,
    announce,
    check_names,
    identity,
    run_cells,
    run_groups,
    silent,
    table_result,
)
from momentalign.paper.object_heads import HeadConfig, HeadTask, MMDOfSomeRows, seconds_per_update, train_heads
from momentalign.paper.office import ObjectFeatures
from momentalign.paper.tables import OBJECTS
from momentalign.report.page import check_result
from momentalign.training.config import Distance, NetworkSpec, Optimizer

__all__ = [
    "METHODS",
    "TASKS",
    "Method",
    "compute_all",
    "estimate",
    "needs_crops",
    "object_identity",
    "objects_page",
    "run",
]

TASKS = tuple((source, target) for source, target in (task.split("->") for task in OBJECTS.tasks))
FP = HeadConfig()
FOLLOWING = HeadConfig(follow_at=500)
MOMENTUM = HeadConfig(optimizer=Optimizer("sgd", decay=1e-4), crops=True, max_updates=10_000)
N_CLASSES, COMPONENTS, MU = 31, 100, 1.0
# Stacks that train at the same time on an accelerator: each leaves it idle while it asks for the next steps.
STACKS_AT_ONCE = 4
# Updates after which heads usually stop, to estimate the time.
USUAL_UPDATES = {"adadelta": 2000, "sgd": 4000}
# What every method shares; a journal of another protocol is refused.
PROTOCOL = {
    "hidden": FP.hidden, "start": "he normal", "dropout": FP.dropout, "batches": "whole samples, classes balanced",
    "patience": FP.patience, "stopped": "so many updates after the last better accuracy on the source",
    "follow_at": FOLLOWING.follow_at,
}  # fmt: skip
PAGE = PageText(
    title="Object recognition on Office-31",
    before="nn",
    after="fp-cmd",
    tested="Source → target; accuracy on all pictures of the target, whose labels were not used.",
)


@dataclass(frozen=True)
class Method:
    """A column of Table 4; `apart` says what differs from FP-CMD, whose settings the others share."""

    title: str
    weight: float = 0.0
    config: HeadConfig = field(default_factory=HeadConfig)
    apart: str = ""


_WITH_MOMENTUM = "SGD 0.01 with momentum 0.9 and decay 1e-4, crops and mirrors"
_FOLLOWING = f"from update {FOLLOWING.follow_at} on, classes in the shares that the head finds in the target"
METHODS = {
    "nn": Method("NN"),
    "cnn": Method("CNN", config=MOMENTUM, apart=_WITH_MOMENTUM),
    "tca": Method("TCA", apart=f"{COMPONENTS} components, linear kernel, logistic regression"),
    "mmd": Method("MMD", weight=1.0),
    # Sun and Saenko (2016) take the weight with which both losses are alike at the end; here that is about this one.
    "coral": Method("CORAL", weight=100_000.0),
    "dann": Method("DANN", weight=1.0),
    "cmd": Method("CMD", weight=1.0, config=MOMENTUM, apart=_WITH_MOMENTUM),
    "fp-cmd": Method("FP-CMD", weight=1.0),
    # The more is aligned, the more it matters that classes have the same shares in both domains.
    "cv-cmd": Method("CV-CMD", weight=1.0, config=FOLLOWING, apart=_FOLLOWING),
}
"""The methods of Table 4, and two it does not have: NN is FP-CMD without alignment, CV-CMD has all cross-variances."""


def run(
    methods: Sequence[str],
    features: ObjectFeatures,
    journal: Journal,
    *,
    seeds: Sequence[int] = range(5),
    tasks: Sequence[tuple[str, str]] = TASKS,
    n_jobs: int = 1,
    device: str = "cpu",
    say: Say = silent,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return accuracies of methods on tasks, ready for JSON; what the journal holds is not computed again.

    Parameters
    ----------
    methods
        Names of :data:`METHODS`.
    features
        What :func:`~momentalign.paper.office.open_features` returns.
    journal
        Where finished cells are kept.
    seeds, tasks
        Repetitions, and pairs of domains.
    n_jobs, device
        Processes to compute in, on the CPU, or an accelerator.
    say, progress
        Called with a sentence that says how long it takes, and with the number of finished cells and of all cells.
    """
    check_names(methods, METHODS, "method")
    pairs = itertools.product(methods, tasks)
    cells = {(method, task): _cells(method, task, seeds, len(features.office.rows)) for method, task in pairs}
    every = [cell for own in cells.values() for cell in own]
    announce(every, journal, say, partial(estimate, features=features, device=device, n_jobs=effective_n_jobs(n_jobs)))
    results = compute_all(every, features, journal, device=device, n_jobs=n_jobs, progress=progress)
    columns = {method: _column(method, tasks, seeds, cells, results, features) for method in methods}
    names = ["->".join(task) for task in tasks]
    note = _note(methods, features)
    return table_result("objects", object_identity(features), seeds, names, methods=columns, note=note)


def objects_page(result: Mapping[str, Any]) -> str:
    """Return the page of one result of ``momentalign reproduce objects``."""
    check_result(result, "objects", KEYS)
    return comparison_page(result, OBJECTS, PAGE)


def object_identity(features: ObjectFeatures) -> dict[str, Any]:
    """Return what makes results of this experiment comparable."""
    return identity("objects", {"backbone": features.backbone, **PROTOCOL}, features.data)


def needs_crops(methods: Sequence[str]) -> bool:
    """Whether a method needs crops and mirrors of the pictures.

    Examples
    --------
    >>> needs_crops(["nn", "fp-cmd"]), needs_crops(["cmd"])
    (False, True)
    """
    return any(METHODS[method].config.crops for method in methods)


def _cells(method: str, task: tuple[str, str], seeds: Sequence[int], views: int) -> list[Cell]:
    """One cell for every seed; TCA draws nothing, so one is enough. Where views count, the cell says how many."""
    shared: dict[str, Any] = {"method": method, "source": task[0], "target": task[1]}
    if METHODS[method].config.crops:
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
    chosen = METHODS[method]
    settings: dict[str, Any] = {"weight": chosen.weight} if chosen.weight else {}
    if method != "tca":
        settings |= {"optimizer": chosen.config.optimizer.name, "max_updates": chosen.config.max_updates}
    if chosen.config.crops:
        settings["views"] = len(features.office.rows)
    if chosen.apart:
        settings["apart"] = chosen.apart
    own = {"->".join(task): [results[cell_key(cell)] for cell in cells[method, task]] for task in tasks}
    times = len(seeds) if method == "tca" else 1
    figures = {
        figure: {name: [result[figure] for result in found * times] for name, found in own.items()}
        for figure in ("accuracy", "updates")
    }
    return {"title": chosen.title, "settings": settings, **figures}


def _note(methods: Sequence[str], features: ObjectFeatures) -> str:
    """What a reader of the table has to know."""
    note = f"The paper's values are on features of AlexNet, those here on features of {features.backbone}."
    if needs_crops(methods) and not features.has_crops:
        note += " There were no crops and mirrors here, centre crops only."
    return note


def compute_all(
    cells: Iterable[Cell],
    features: ObjectFeatures,
    journal: Journal,
    *,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compute the cells that the journal does not hold and return all results by their keys.

    On the CPU each cell is a piece of work for one process; on an accelerator all heads of one task that share their
    settings train as one stack, and a few stacks side by side in processes of their own.

    A cell names ``method``, ``source``, ``target`` and ``seed``; ``views`` tells trainings with crops apart.
    """
    if device == "cpu":
        return run_cells(cells, partial(compute, features=features), journal, n_jobs=n_jobs, progress=progress)
    work = partial(compute_together, features=features, device=device)
    at_once = min(effective_n_jobs(n_jobs), STACKS_AT_ONCE)
    return run_groups(cells, _by_stack, work, journal, n_jobs=at_once, progress=progress)


def _by_stack(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Groups of cells that can train as one stack, those that take longest first."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        key = (cell["source"], cell["target"], cell["method"] == "tca", METHODS[cell["method"]].config)
        groups.setdefault(key, []).append(cell)
    return sorted(groups.values(), key=lambda group: -METHODS[group[0]["method"]].config.max_updates)


def compute(cell: Cell, *, features: ObjectFeatures) -> dict[str, Any]:
    """Compute one cell on the CPU."""
    return compute_together([cell], features, device="cpu")[0]


def compute_together(cells: Sequence[Cell], features: ObjectFeatures, *, device: str) -> list[dict[str, Any]]:
    """Compute cells of one task that share their settings."""
    task, truth = _task(cells[0], features)
    if cells[0]["method"] == "tca":
        source, target = (rows[0].astype(np.float64) for rows in (task.source, task.target))
        accuracy = accuracy_on_components(
            source, task.labels, target, target, truth, n_components=COMPONENTS, mu=MU, centre=False
        )
        return [{"accuracy": accuracy, "updates": 0} for _ in cells]
    config = METHODS[cells[0]["method"]].config
    heads = train_heads(task, [_spec(cell) for cell in cells], config, device=device)
    return [{"accuracy": float((head.predictions == truth).mean()), "updates": head.updates} for head in heads]


def estimate(cells: Sequence[Cell], features: ObjectFeatures, *, device: str = "cpu", n_jobs: int = 1) -> float:
    """Return how many seconds cells will take, from a few updates of each kind."""
    groups = _by_stack([cell for cell in cells if cell["method"] != "tca"])
    work = groups if device != "cpu" else [[cell] for group in groups for cell in group]
    known: dict[Any, float] = {}
    total = 0.0
    for stack in work:
        config = METHODS[stack[0]["method"]].config
        key = (stack[0]["source"], stack[0]["target"], *(cell["method"] for cell in stack))
        if key not in known:
            task, _ = _task(stack[0], features)
            known[key] = seconds_per_update(task, [_spec(cell) for cell in stack], config, device=device)
        total += known[key] * min(USUAL_UPDATES[config.optimizer.name], config.max_updates)
    return total / max(min(n_jobs, len(work)), 1) if device == "cpu" else total


def _task(cell: Cell, features: ObjectFeatures) -> tuple[HeadTask, Any]:
    """What a head may see, and the labels of the target for evaluation."""
    source, labels = features.office.domain(cell["source"])
    target, truth = features.office.domain(cell["target"])
    return HeadTask(source, labels, target, N_CLASSES), truth


def _spec(cell: Cell) -> NetworkSpec:
    method = cell["method"]
    distances: dict[str, Distance] = {
        "cmd": CMDLoss(), "fp-cmd": CMDLoss(), "cv-cmd": CMDLoss(cross=2), "mmd": MMDOfSomeRows("gaussians"),
        "coral": CORALLoss(), "dann": AdversarialLoss(FP.hidden),
    }  # fmt: skip
    return NetworkSpec(cell["seed"], METHODS[method].weight, distances.get(method))

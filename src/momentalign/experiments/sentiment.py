"""Sentiment analysis of product reviews: twelve tasks, every method, Table 2 of Zellinger et al. (2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from momentalign.errors import InvalidInputError
from momentalign.experiments.review_cells import TASKS, compute_all, identity, task_name
from momentalign.experiments.runner import Cell
from momentalign.journal import Journal, cell_key

__all__ = ["METHODS", "Method", "refuse_unknown", "run"]


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

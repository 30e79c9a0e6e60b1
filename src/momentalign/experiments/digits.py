"""Digit recognition: three tasks, every method, Table 5 of Zellinger et al. (2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from joblib import effective_n_jobs

from momentalign.errors import InvalidInputError
from momentalign.experiments.digit_cells import TASKS, compute, estimate, identity, samples
from momentalign.experiments.digit_networks import METHODS, RECIPE, Recipe
from momentalign.experiments.runner import Cell, duration_words, run_cells
from momentalign.journal import Journal, cell_key

__all__ = ["METHODS", "NOTE", "refuse_unknown", "run"]

NOTE = (
    "SynthDigits cannot be had any more: digits drawn from fonts stand in for it, so SynthDigits→SVHN compares methods "
    "with each other, not with the paper."
)
"""What a reader of the table has to know."""


def run(
    methods: Sequence[str],
    journal: Journal,
    *,
    seeds: Sequence[int] = range(5),
    tasks: Sequence[str] = tuple(TASKS),
    recipe: Recipe = RECIPE,
    n_jobs: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    say: Callable[[str], None] = lambda _words: None,
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
        Repetitions, and names of :data:`~momentalign.experiments.digit_cells.TASKS`.
    recipe
        How networks are trained.
    n_jobs, device
        Processes to compute in, also side by side on one accelerator, and where to train.
    folder
        Where the images are; None takes ``MOMENTALIGN_DATA``.
    say, progress
        Called with a sentence that says how long it takes on a CPU, and with the number of finished cells and of all.
    """
    refuse_unknown(methods, tasks)
    if not seeds:
        raise InvalidInputError("seeds is empty, so nothing would be trained; give at least one.")
    place = None if folder is None else str(folder)
    shown = {task: samples(task, recipe=recipe, folder=place) for task in tasks}  # what is missing is missed at once
    cells = {(method, task): _cells(method, task, seeds) for task in tasks for method in methods}
    work = partial(compute, recipe=recipe, folder=place, device=device)
    every = [cell for own in cells.values() for cell in own]
    finished = journal.done()
    missing = [cell for cell in every if cell_key(cell) not in finished]
    if missing and device == "cpu":
        seconds = estimate(missing, recipe=recipe, n_jobs=effective_n_jobs(n_jobs))
        say(f"{len(missing)} of {len(every)} networks are to be trained: {duration_words(seconds)} on this CPU")
    done = run_cells(every, work, journal, n_jobs=n_jobs, progress=progress)
    return {
        "kind": "digits",
        **identity("digits", recipe),
        "device": device,
        "tasks": list(tasks),
        "seeds": list(seeds),
        "methods": {method: _column(method, tasks, cells, done) for method in methods},
        "samples": shown,
    } | ({"note": NOTE} if "synth->svhn" in tasks else {})


def refuse_unknown(methods: Sequence[str], tasks: Sequence[str] = tuple(TASKS)) -> None:
    """Refuse names of methods and tasks that are not there, and none at all.

    Examples
    --------
    >>> refuse_unknown(["cnn", "cmd"], ["svhn->mnist"])
    """
    for names, known, word in ((methods, list(METHODS), "method"), (tasks, list(TASKS), "task")):
        for name in names:
            if name not in known:
                raise InvalidInputError(f"there is no {word} {name!r}; choose from {', '.join(known)}.")
        if not names:
            raise InvalidInputError(f"no {word} is named; choose from {', '.join(known)}.")


def _cells(method: str, task: str, seeds: Sequence[int]) -> list[Cell]:
    """One cell for each seed; the first is looked at more closely."""
    return [
        {"task": task, "method": method, "seed": seed} | ({"look": True} if seed == seeds[0] else {}) for seed in seeds
    ]


def _column(method: str, tasks: Sequence[str], cells: Mapping[Any, list[Cell]], done: Mapping[str, Any]) -> Any:
    """One method's part of the results."""
    own = {task: [done[cell_key(cell)] for cell in cells[method, task]] for task in tasks}
    settings = {name: value for name, value in asdict(METHODS[method]).items() if name != "title"}
    if METHODS[method].discrepancy is None:
        settings = {}
    return {
        "title": METHODS[method].title,
        "settings": settings,
        "accuracy": {task: [part["accuracy"] for part in parts] for task, parts in own.items()},
        "source_accuracy": {task: [part["source_accuracy"] for part in parts] for task, parts in own.items()},
        "scores": {task: [part["scores"] for part in parts] for task, parts in own.items()},
        "shares_away": {task: [part["shares_away"] for part in parts] for task, parts in own.items()},
        "seconds": {task: [part["seconds"] for part in parts] for task, parts in own.items()},
        "closely": {task: _closely(parts[0]) for task, parts in own.items()},
    }


def _closely(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"confusion": part["confusion"], "orders": part["orders"], **part["look"]}

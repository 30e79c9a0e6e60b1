"""Object recognition on Office-31: six tasks, every method, Table 4 of Zellinger et al. (2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblib import effective_n_jobs

from momentalign.errors import InvalidInputError
from momentalign.experiments.object_cells import METHODS, compute_all, estimate, identity
from momentalign.experiments.object_features import ObjectFeatures
from momentalign.experiments.paper_results import OBJECT_TASKS
from momentalign.experiments.runner import Cell, duration_words
from momentalign.journal import Journal, cell_key

__all__ = ["TASKS", "needs_crops", "refuse_unknown", "run"]

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
        What :func:`~momentalign.experiments.object_features.open_features` returns.
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

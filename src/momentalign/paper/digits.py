"""Digit recognition: three tasks, every method, Table 5 of Zellinger et al. (2019).

The cells of the experiments on digits: one task, one method, one seed; a network trained and looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import effective_n_jobs
from numpy.typing import NDArray
from torch import Tensor

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import mutual_information, nuclear_norm
from momentalign.journal import Journal, cell_key
from momentalign.paper.digit_networks import (
    CLASSES,
    METHODS,
    RECIPE,
    DigitCNN,
    Images,
    Recipe,
    accuracy_of,
    activations_of,
    probabilities_of,
    seconds_per_update,
    train,
)
from momentalign.paper.digits_data import Digits, load_mnist, load_mnist_m, load_svhn
from momentalign.paper.runner import Cell, duration_words, run_cells
from momentalign.paper.synthetic_digits import make_synth_digits
from momentalign.training.torch_engine import one_thread, open_device
from momentalign.version import __version__

__all__ = [
    "METHODS",
    "NOTE",
    "TASKS",
    "compute",
    "digits_on_device",
    "estimate",
    "identity",
    "load_digits",
    "refuse_unknown",
    "run",
    "samples",
]

TASKS = {"svhn->mnist": ("svhn", "mnist"), "mnist->mnist-m": ("mnist", "mnist-m"), "synth->svhn": ("synth", "svhn")}
SYNTH_SEED, SYNTH_TEST_SEED, SYNTH_TEST_SIZE = 0, 1, 5_000
SCORED = 10_000
SHOWN, PLACED = 24, 400


def identity(experiment: str, recipe: Recipe) -> dict[str, Any]:
    """Return what a journal of this experiment must agree with to be continued."""
    versions = {"momentalign": __version__, "torch": version("torch")}
    return {"experiment": experiment, "recipe": asdict(recipe), "versions": versions}


def load_digits(name: str, split: str, recipe: Recipe, folder: str | None) -> Digits:
    """Return a domain's images: read, or drawn where they can be."""
    if name == "synth":
        size, seed = (recipe.synth_size, SYNTH_SEED) if split == "train" else (SYNTH_TEST_SIZE, SYNTH_TEST_SEED)
        return make_synth_digits(size, seed=seed, n_jobs=-1)
    readers: dict[str, Callable[..., Digits]] = {"mnist": load_mnist, "svhn": load_svhn, "mnist-m": load_mnist_m}
    return readers[name](split, folder)


@cache
def digits_on_device(name: str, split: str, synth_size: int, folder: str | None, device: str) -> Images:
    """Images as bytes and labels, on the device that trains, kept for the next cell, also one of a changed recipe."""
    images, labels = load_digits(name, split, Recipe(synth_size=synth_size), folder)
    place = open_device(device)
    return torch.from_numpy(images).to(place), torch.from_numpy(labels).to(place)


def compute(cell: Cell, *, recipe: Recipe = RECIPE, folder: str | None = None, device: str = "cpu") -> dict[str, Any]:
    """Train the network of a cell and return what it does on the target's test images.

    A cell names ``task``, ``method`` and ``seed``; it may have ``change``, fields of the recipe that are not as usual,
    and ``look``, for what the page shows of one network.
    """
    recipe = _changed(recipe, cell.get("change", {}))
    source, target = TASKS[cell["task"]]
    read = partial(digits_on_device, synth_size=recipe.synth_size, folder=folder, device=device)
    started = time.perf_counter()
    network, orders, away = train(
        METHODS[cell["method"]],
        read(source, "train"),
        read(target, "train"),
        cell["seed"],
        recipe=recipe,
        device=device,
    )
    seconds = time.perf_counter() - started
    test = probabilities_of(network, read(target, "test")[0], recipe)
    right = test.argmax(1) == read(target, "test")[1]
    unlabelled = probabilities_of(network, read(target, "train")[0][:SCORED], recipe).cpu().numpy().astype(np.float64)
    unlabelled /= unlabelled.sum(axis=1, keepdims=True)
    result = {
        "accuracy": float(right.float().mean()),
        "source_accuracy": accuracy_of(network, *read(source, "test"), recipe),
        "scores": {
            "nuclear_norm": nuclear_norm(probabilities=unlabelled),
            "mutual_information": mutual_information(probabilities=unlabelled),
        },
        "confusion": _confusion(read(target, "test")[1], test.argmax(1)),
        "orders": orders,
        "shares_away": None if away is None else round(away, 4),
        "seconds": round(seconds, 1),
    }
    if cell.get("look"):
        result["look"] = _look(network, read(source, "test")[0], read(target, "test")[0], recipe)
    return result


def estimate(cells: Sequence[Cell], *, recipe: Recipe = RECIPE, n_jobs: int = 1) -> float:
    """Return how many seconds cells will take on a CPU, from a few updates of each method."""
    with one_thread():
        known = {name: seconds_per_update(METHODS[name], recipe=recipe) for name in {cell["method"] for cell in cells}}
    return sum(known[cell["method"]] for cell in cells) * recipe.steps / max(min(n_jobs, len(cells)), 1)


def _changed(recipe: Recipe, change: Mapping[str, Any]) -> Recipe:
    plain = {name: value for name, value in change.items() if name != "augmentation"}
    augmentation = replace(recipe.augmentation, **change.get("augmentation", {}))
    return replace(recipe, augmentation=augmentation, **plain)


def _confusion(labels: Tensor, predicted: Tensor) -> list[list[int]]:
    """Counts by digit (rows) and prediction (columns)."""
    counts = torch.bincount(labels * CLASSES + predicted, minlength=CLASSES**2).view(CLASSES, CLASSES)
    return [[int(count) for count in row] for row in counts.tolist()]


def _look(network: DigitCNN, source: Tensor, target: Tensor, recipe: Recipe) -> dict[str, Any]:
    """What the page shows of one network: predictions for a few images, and embeddings of more in the plane."""
    chances = probabilities_of(network, target[_spread(len(target), SHOWN)], recipe)
    both = [activations_of(network, images[_spread(len(images), PLACED)], recipe) for images in (source, target)]
    places = _in_the_plane(torch.cat(both).float().cpu().numpy())
    return {
        "predictions": chances.argmax(1).tolist(),
        "chances": [round(value, 3) for value in chances.amax(1).tolist()],
        "places": [[round(float(value), 2) for value in place] for place in places],
    }


def _in_the_plane(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Two coordinates in which near rows stay near (t-SNE; L. van der Maaten, G. Hinton, 2008)."""
    from sklearn.manifold import TSNE

    return np.asarray(TSNE(init="pca", random_state=0, perplexity=min(30, len(rows) // 4)).fit_transform(rows))


def _spread(rows: int, count: int) -> list[int]:
    """Rows at even distances, the same for every method."""
    return [int(row) for row in np.linspace(0, rows - 1, min(count, rows))]


def samples(task: str, *, recipe: Recipe = RECIPE, folder: str | None = None) -> dict[str, Any]:
    """Return the images and labels that the page shows of a task, images as bytes in hexadecimal rows."""
    source, target = (load_digits(name, "test", recipe, folder) for name in TASKS[task])
    shown_source, shown_target = (_spread(len(digits.labels), SHOWN) for digits in (source, target))
    placed = [digits.labels[_spread(len(digits.labels), PLACED)].tolist() for digits in (source, target)]
    return {
        "source_images": [source.images[row].tobytes().hex() for row in shown_source],
        "source_labels": source.labels[shown_source].tolist(),
        "target_images": [target.images[row].tobytes().hex() for row in shown_target],
        "target_labels": target.labels[shown_target].tolist(),
        "placed_labels": placed,
    }


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
        Repetitions, and names of :data:`~momentalign.paper.digits.TASKS`.
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

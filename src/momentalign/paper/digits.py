"""Digit recognition (Section 6.5): three tasks, every method, Table 5. A cell is one task, one method and one seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import effective_n_jobs
from torch import Tensor

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import mutual_information, nuclear_norm
from momentalign.journal import Journal, cell_key
from momentalign.paper.digit_networks import (
    CLASSES,
    CONFIG,
    METHODS,
    DigitCNN,
    DigitConfig,
    Images,
    accuracy_of,
    activations_of,
    probabilities_of,
    seconds_per_update,
    train,
)
from momentalign.paper.digits_data import Digits, Split, load_mnist, load_mnist_m, load_svhn
from momentalign.paper.experiment import Cell, Progress, Say, announce, check_names, run_cells, silent, table_result
from momentalign.paper.synthetic_digits import make_synth_digits
from momentalign.paper.tables import DIGITS
from momentalign.training.torch_engine import one_thread, open_device
from momentalign.version import __version__

__all__ = [
    "METHODS",
    "NOTE",
    "TASKS",
    "compute",
    "digit_identity",
    "digits_on_device",
    "estimate",
    "load_digits",
    "run",
    "samples",
]

TASKS = DIGITS.tasks
SYNTH_SEED, SYNTH_TEST_SEED, SYNTH_TEST_SIZE = 0, 1, 5_000
# Target images whose predictions are scored, and of both domains those the page shows and those it places in the plane.
SCORED, SHOWN, PLACED = 10_000, 24, 400
# Changes of images that earlier versions could make; journals name them.
OLD_CHANGES = dict.fromkeys(("inversion", "contrast", "brightness", "channel", "blur", "noise"), 0.0)
NOTE = (
    "SynthDigits is not available any more: digits drawn from fonts stand in for it, so SynthDigits→SVHN compares "
    "methods with each other, not with the paper."
)
"""What a reader of the table has to know."""


def run(
    methods: Sequence[str],
    journal: Journal,
    *,
    seeds: Sequence[int] = range(5),
    tasks: Sequence[str] = TASKS,
    config: DigitConfig = CONFIG,
    n_jobs: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    say: Say = silent,
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
        Repetitions, and names of :data:`TASKS`.
    config
        How networks are trained.
    n_jobs, device
        Processes to compute in, also side by side on one accelerator, and where to train.
    folder
        Where the images are; None takes ``MOMENTALIGN_DATA``.
    say, progress
        Called with a sentence that says how long it takes on a CPU, and with the number of finished cells and of all.
    """
    check_names(methods, METHODS, "method")
    check_names(tasks, TASKS, "task")
    if not seeds:
        raise InvalidInputError("seeds is empty, so nothing would be trained; give at least one.")
    data = None if folder is None else str(folder)
    shown = {task: samples(task, config=config, folder=data) for task in tasks}  # what is missing is missed at once
    cells = {(method, task): _cells(method, task, seeds) for task in tasks for method in methods}
    every = [cell for own in cells.values() for cell in own]

    def seconds(missing: Sequence[Cell]) -> float | None:
        if device != "cpu" or not missing:
            return None
        return estimate(missing, config=config, n_jobs=effective_n_jobs(n_jobs))

    announce(every, journal, say, seconds)
    work = partial(compute, config=config, folder=data, device=device)
    done = run_cells(every, work, journal, n_jobs=n_jobs, progress=progress)
    columns = {method: _column(method, tasks, cells, done) for method in methods}
    note = {"note": NOTE} if "synth->svhn" in tasks else {}
    described = digit_identity("digits", config)
    return table_result("digits", described, seeds, tasks, device=device, methods=columns, samples=shown, **note)


def digit_identity(experiment: str, config: DigitConfig) -> dict[str, Any]:
    """Return what a journal of this experiment must agree with to be continued."""
    recipe = asdict(config)
    versions = {"momentalign": __version__, "torch": version("torch")}
    return {
        "experiment": experiment,
        "recipe": {**recipe, "augmentation": OLD_CHANGES | recipe["augmentation"]},
        "versions": versions,
    }


def _cells(method: str, task: str, seeds: Sequence[int]) -> list[Cell]:
    """One cell for each seed; the page shows more of the first."""
    return [
        {"task": task, "method": method, "seed": seed} | ({"look": True} if seed == seeds[0] else {}) for seed in seeds
    ]


def _column(method: str, tasks: Sequence[str], cells: Mapping[Any, list[Cell]], done: Mapping[str, Any]) -> Any:
    """One method's part of the results."""
    own = {task: [done[cell_key(cell)] for cell in cells[method, task]] for task in tasks}
    settings = {name: value for name, value in asdict(METHODS[method]).items() if name != "title"}
    figures = {
        name: {task: [part[name] for part in parts] for task, parts in own.items()}
        for name in ("accuracy", "source_accuracy", "scores", "shares_away", "seconds")
    }
    return {
        "title": METHODS[method].title,
        "settings": {} if METHODS[method].discrepancy is None else settings,
        **figures,
        "closely": {
            task: {"confusion": first["confusion"], "orders": first["orders"], **first["look"]}
            for task, (first, *_) in own.items()
        },
    }


def estimate(cells: Sequence[Cell], *, config: DigitConfig = CONFIG, n_jobs: int = 1) -> float:
    """Return how many seconds cells will take on a CPU, from a few updates of each method."""
    with one_thread():
        known = {name: seconds_per_update(METHODS[name], config=config) for name in {cell["method"] for cell in cells}}
    return sum(known[cell["method"]] for cell in cells) * config.steps / max(min(n_jobs, len(cells)), 1)


def compute(
    cell: Cell, *, config: DigitConfig = CONFIG, folder: str | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Train the network of a cell and evaluate it on the target's test images.

    A cell names ``task``, ``method`` and ``seed``, and may have ``look``, for what the page shows of one network.
    """
    source, target = cell["task"].split("->")
    read = partial(digits_on_device, synth_size=config.synth_size, folder=folder, device=device)
    training = read(source, "train"), read(target, "train")
    started = time.perf_counter()
    network, orders, away = train(METHODS[cell["method"]], *training, cell["seed"], config=config, device=device)
    seconds = time.perf_counter() - started
    images, labels = read(target, "test")
    predicted = probabilities_of(network, images, config).argmax(1)
    unlabelled = probabilities_of(network, training[1][0][:SCORED], config).cpu().numpy().astype(np.float64)
    unlabelled /= unlabelled.sum(axis=1, keepdims=True)
    # Counts by digit (rows) and prediction (columns).
    confusion = torch.bincount(labels * CLASSES + predicted, minlength=CLASSES**2).view(CLASSES, CLASSES)
    result = {
        "accuracy": float((predicted == labels).float().mean()),
        "source_accuracy": accuracy_of(network, *read(source, "test"), config),
        "scores": {
            "nuclear_norm": nuclear_norm(probabilities=unlabelled),
            "mutual_information": mutual_information(probabilities=unlabelled),
        },
        "confusion": [[int(count) for count in row] for row in confusion.tolist()],
        "orders": orders,
        "shares_away": None if away is None else round(away, 4),
        "seconds": round(seconds, 1),
    }
    if cell.get("look"):
        result["look"] = _look(network, read(source, "test")[0], images, config)
    return result


def _look(network: DigitCNN, source: Tensor, target: Tensor, config: DigitConfig) -> dict[str, Any]:
    """What the page shows of one network: predictions for a few images, and embeddings of more in the plane."""
    from sklearn.manifold import TSNE

    probabilities = probabilities_of(network, target[_spread(len(target), SHOWN)], config)
    both = [activations_of(network, images[_spread(len(images), PLACED)], config) for images in (source, target)]
    embeddings = torch.cat(both).float().cpu().numpy()
    # Two coordinates in which near rows stay near (t-SNE; L. van der Maaten, G. Hinton, 2008).
    plane = TSNE(init="pca", random_state=0, perplexity=min(30, len(embeddings) // 4)).fit_transform(embeddings)
    return {
        "predictions": probabilities.argmax(1).tolist(),
        "chances": [round(value, 3) for value in probabilities.amax(1).tolist()],
        "places": [[round(float(value), 2) for value in point] for point in plane],
    }


def samples(task: str, *, config: DigitConfig = CONFIG, folder: str | None = None) -> dict[str, Any]:
    """Return the images and labels that the page shows of a task, images as bytes in hexadecimal rows."""
    source, target = (load_digits(name, "test", config.synth_size, folder) for name in task.split("->"))
    found: dict[str, Any] = {}
    for domain, digits in (("source", source), ("target", target)):
        rows = _spread(len(digits.labels), SHOWN)
        found[f"{domain}_images"] = [digits.images[row].tobytes().hex() for row in rows]
        found[f"{domain}_labels"] = digits.labels[rows].tolist()
    placed = [digits.labels[_spread(len(digits.labels), PLACED)].tolist() for digits in (source, target)]
    return {**found, "placed_labels": placed}


def _spread(rows: int, count: int) -> list[int]:
    """Rows at even distances, the same for every method."""
    return [int(row) for row in np.linspace(0, rows - 1, min(count, rows))]


@cache
def digits_on_device(name: str, split: Split, synth_size: int, folder: str | None, device: str) -> Images:
    """Return images as bytes and labels, on the device that trains, kept for the next cell."""
    images, labels = load_digits(name, split, synth_size, folder)
    torch_device = open_device(device)
    return torch.from_numpy(images).to(torch_device), torch.from_numpy(labels).to(torch_device)


def load_digits(name: str, split: Split, synth_size: int, folder: str | None) -> Digits:
    """Return a domain's images: loaded, or drawn for the stand-in of SynthDigits."""
    if name == "synth":
        size, seed = (synth_size, SYNTH_SEED) if split == "train" else (SYNTH_TEST_SIZE, SYNTH_TEST_SEED)
        return make_synth_digits(size, seed=seed, n_jobs=-1)
    loaders: dict[str, Callable[..., Digits]] = {"mnist": load_mnist, "svhn": load_svhn, "mnist-m": load_mnist_m}
    return loaders[name](split, folder)

"""The cells of the experiments on digits: one task, one method, one seed; a network trained and looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from momentalign.data.digits import Digits, load_mnist, load_mnist_m, load_svhn
from momentalign.data.synthetic_digits import make_synth_digits
from momentalign.experiments.digit_networks import (
    CLASSES,
    METHODS,
    RECIPE,
    Images,
    Recipe,
    accuracy_of,
    activations_of,
    probabilities_of,
    seconds_per_update,
    train,
)
from momentalign.experiments.runner import Cell
from momentalign.networks.digit_cnn import DigitCNN
from momentalign.scores.entropy import mutual_information
from momentalign.scores.nuclear_norm import nuclear_norm
from momentalign.training.batched import one_thread, open_device
from momentalign.version import __version__

__all__ = ["TASKS", "compute", "digits_on_device", "estimate", "identity", "load_digits", "samples"]

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

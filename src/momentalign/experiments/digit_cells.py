"""The cells of the experiments on digits: one task, one method, one seed; a network trained and looked at.

Section 6.5 of Zellinger et al. (2019): one network and one recipe for three tasks. The paper leaves the recipe open;
this one was picked by a score that sees no target label (docs/paper.md says how, and what each part of it brings).
The distance is divided by the root of the number of units, so that a weight of 1 means the same at any width.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from momentalign.data.augmentation import Augmentation, to_float
from momentalign.data.device_batches import DeviceBatches, prepared
from momentalign.data.digits import Digits, load_mnist, load_mnist_m, load_svhn
from momentalign.data.synthetic_digits import make_synth_digits
from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.experiments.runner import Cell
from momentalign.networks.digit_cnn import EMBEDDING, EMBEDDING_INTERVAL, DigitCNN
from momentalign.scores.entropy import mutual_information
from momentalign.scores.nuclear_norm import nuclear_norm
from momentalign.training.batched import open_device
from momentalign.training.deep.averaging import AveragedWeights
from momentalign.training.deep.lightning import pl, quiet
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.module import DeepAdaptation
from momentalign.training.deep.random_state import kept_random_state, seed_everything
from momentalign.version import __version__

__all__ = [
    "METHODS",
    "RECIPE",
    "TASKS",
    "Method",
    "Recipe",
    "accuracy_of",
    "compute",
    "digits_on_device",
    "identity",
    "load_digits",
    "samples",
]

TASKS = {"svhn->mnist": ("svhn", "mnist"), "mnist->mnist-m": ("mnist", "mnist-m"), "synth->svhn": ("synth", "svhn")}
SYNTH_SEED, SYNTH_TEST_SEED, SYNTH_TEST_SIZE = 0, 1, 5_000
WIDTH, CLASSES = 128, 10
CHUNK = 5_000
SCORED = 10_000
WATCHED = 2_000
SHOWN, PLACED = 24, 400


@dataclass(frozen=True)
class Recipe:
    """How every network is trained, whatever the method and the task."""

    batch_size: int = 512
    steps: int = 2_000
    epochs: int = 20
    learning_rate: float = 1e-3
    augmentation: Augmentation = field(
        default_factory=lambda: Augmentation(rotation=10.0, scale=0.1, shift=1 / 16, channel_inversion=0.5)
    )
    balanced: bool = True
    standardized: bool = True
    decay: float = 0.999
    synth_size: int = 100_000
    width_root: bool = True
    n_moments: int = 5


RECIPE = Recipe()


@dataclass(frozen=True)
class Method:
    """A column of Table 5: what is aligned and with which weight."""

    title: str
    discrepancy: str | None = None
    weight: float = 1.0
    schedule: str = "constant"


METHODS = {
    "cnn": Method("CNN"),
    "coral": Method("CORAL", "coral"),
    "mmd": Method("MMD", "mmd"),
    "dann": Method("DANN", "dann", schedule="ramp"),
    "cmd": Method("CMD", "cmd"),
    "cv-cmd": Method("CV-CMD", "cv-cmd"),
}
"""The methods of Table 5 that one network and one loss can express, lambda = 1 for each as in the paper."""


def identity(experiment: str, recipe: Recipe) -> dict[str, Any]:
    """Return what a journal of this experiment must agree with to be continued."""
    versions = {"momentalign": __version__, "torch": version("torch")}
    return {"experiment": experiment, "recipe": asdict(recipe), "versions": versions}


def load_digits(name: str, split: str, recipe: Recipe, folder: str | None) -> Digits:
    """Return a domain's images: read, or drawn where they can be."""
    if name == "synth":
        train = split == "train"
        size, seed = (recipe.synth_size, SYNTH_SEED) if train else (SYNTH_TEST_SIZE, SYNTH_TEST_SEED)
        return make_synth_digits(size, seed=seed, n_jobs=-1)
    readers: dict[str, Callable[..., Digits]] = {"mnist": load_mnist, "svhn": load_svhn, "mnist-m": load_mnist_m}
    return readers[name](split, folder)


@cache
def digits_on_device(name: str, split: str, synth_size: int, folder: str | None, device: str) -> tuple[Tensor, Tensor]:
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
    network, orders = _train(
        METHODS[cell["method"]], read(source, "train"), read(target, "train"), cell["seed"], recipe, device
    )
    seconds = time.perf_counter() - started
    test = _probabilities(network, read(target, "test")[0], recipe)
    right = test.argmax(1) == read(target, "test")[1]
    unlabelled = _probabilities(network, read(target, "train")[0][:SCORED], recipe).cpu().numpy().astype(np.float64)
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
        "seconds": round(seconds, 1),
    }
    if cell.get("look"):
        result["look"] = _look(network, read(source, "test")[0], read(target, "test")[0], recipe)
    return result


def _changed(recipe: Recipe, change: Mapping[str, Any]) -> Recipe:
    plain = {name: value for name, value in change.items() if name != "augmentation"}
    augmentation = replace(recipe.augmentation, **change.get("augmentation", {}))
    return replace(recipe, augmentation=augmentation, **plain)


def _train(
    method: Method,
    source: tuple[Tensor, Tensor],
    target: tuple[Tensor, Tensor],
    seed: int,
    recipe: Recipe,
    device: str,
) -> tuple[DigitCNN, list[list[float]]]:
    """Return the trained network and the CMD of every order over time."""
    place = open_device(device)
    with kept_random_state(), quiet():
        network = _network(device)  # before the seed: the first cell of a process makes it, which draws weights
        seed_everything(seed)
        network.load_state_dict(DigitCNN(CLASSES, WIDTH).state_dict())
        network.train()
        by_cmd = method.discrepancy in ("cmd", "cv-cmd")
        module = DeepAdaptation(
            network,
            EMBEDDING,
            discrepancy=method.discrepancy,  # type: ignore[arg-type]
            weight=method.weight / math.sqrt(WIDTH) if by_cmd and recipe.width_root else method.weight,
            schedule=method.schedule,  # type: ignore[arg-type]
            n_moments=recipe.n_moments,
            interval=EMBEDDING_INTERVAL,
            learning_rate=recipe.learning_rate,
            example=source[0][:2].float(),
        )
        watch = _Watch(source[0][:WATCHED], target[0][:WATCHED], recipe)
        trainer = pl.Trainer(
            max_epochs=recipe.epochs,
            accelerator=place.type,
            devices=1,
            precision="bf16-mixed" if place.type == "cuda" else "32-true",
            benchmark=place.type == "cuda",
            callbacks=[watch, *([AveragedWeights(recipe.decay)] if recipe.decay else [])],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, _pairs(source, target[0], recipe))
    return network.to(place).eval(), watch.orders


@cache
def _network(device: str) -> DigitCNN:
    """One network for all cells of a process: on an accelerator its convolutions are compiled, which takes a while."""
    place = open_device(device)
    network = DigitCNN(CLASSES, WIDTH).to(place)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if place.type == "cuda":
        network.features.compile(dynamic=False)
    return network


def _pairs(source: tuple[Tensor, Tensor], target: Tensor, recipe: Recipe) -> PairedLoader:
    """Changed images of the source, unchanged ones of the target."""
    settings = {"batch_size": recipe.batch_size, "standardized": recipe.standardized}
    return PairedLoader(
        DeviceBatches(*source, augmentation=recipe.augmentation, balanced=recipe.balanced, **settings),  # type: ignore[arg-type]
        DeviceBatches(target, **settings),  # type: ignore[arg-type]
        steps=max(1, recipe.steps // recipe.epochs),
    )


class _Watch(pl.Callback):
    """Notes the CMD of every order on the same images after each epoch, whatever is trained."""

    def __init__(self, source: Tensor, target: Tensor, recipe: Recipe) -> None:
        self.orders: list[list[float]] = []
        self._source, self._target, self._recipe = source, target, recipe

    def on_train_start(self, _trainer: pl.Trainer, pl_module: Any) -> None:
        """Note the distance before training."""
        self._note(pl_module)

    def on_train_epoch_end(self, _trainer: pl.Trainer, pl_module: Any) -> None:
        """Note the distance of this epoch."""
        self._note(pl_module)

    def _note(self, module: Any) -> None:
        module.model.eval()
        source, target = (_activations(module.model, x, self._recipe) for x in (self._source, self._target))
        module.model.train()
        terms = cmd_terms(source, target, n_moments=self._recipe.n_moments, interval=EMBEDDING_INTERVAL)
        self.orders.append([round(value, 6) for value in terms.tolist()])


@torch.no_grad()
def _activations(network: DigitCNN, images: Tensor, recipe: Recipe) -> Tensor:
    """The embeddings (N, width) of images given as bytes."""
    with torch.compiler.set_stance("force_eager"):  # compiled for batches of training only
        return torch.cat([network.embedding(network.features(x)) for x in _inputs(images, recipe)])


def _probabilities(network: DigitCNN, images: Tensor, recipe: Recipe) -> Tensor:
    with torch.no_grad():
        return torch.softmax(network.classifier(_activations(network, images, recipe)), dim=1)


def _inputs(images: Tensor, recipe: Recipe) -> list[Tensor]:
    return [
        prepared(to_float(part), standardized=recipe.standardized).contiguous(memory_format=torch.channels_last)
        for part in torch.split(images, CHUNK)
    ]


def accuracy_of(network: DigitCNN, images: Tensor, labels: Tensor, recipe: Recipe) -> float:
    """Return the part of images given as bytes whose digit a network knows."""
    return float((_probabilities(network, images, recipe).argmax(1) == labels).float().mean())


def _confusion(labels: Tensor, predicted: Tensor) -> list[list[int]]:
    """Counts by digit (rows) and prediction (columns)."""
    counts = torch.bincount(labels * CLASSES + predicted, minlength=CLASSES**2).view(CLASSES, CLASSES)
    return [[int(count) for count in row] for row in counts.tolist()]


def _look(network: DigitCNN, source: Tensor, target: Tensor, recipe: Recipe) -> dict[str, Any]:
    """What the page shows of one network: predictions for a few images, and embeddings of more in the plane."""
    chances = _probabilities(network, target[_spread(len(target), SHOWN)], recipe)
    both = [_activations(network, images[_spread(len(images), PLACED)], recipe) for images in (source, target)]
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

"""The networks of the experiments on digits: what one recipe and a method make of two domains of images.

Section 6.5 of Zellinger et al. (2019): one network and one recipe for three tasks. The paper leaves the recipe open;
this one was picked by a score that sees no target label (docs/paper.md says how, and what each part of it brings).
The distance is divided by the root of the number of units, so that a weight of 1 means the same at any width.

The convolutional network for digits of 32 x 32 pixels: three blocks of two convolutions, a bounded embedding on top.

Section 6.5 of Zellinger et al. (2019). Structure of P. Haeusser, T. Frerix, A. Mordvintsev, D. Cremers, Associative
domain adaptation, ICCV 2017, with the activation of the embedding changed to tanh so that moments exist on a bounded
interval.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.paper.augmentation import Augmentation, DeviceBatches, prepared, to_float
from momentalign.paper.synthetic_digits import SIDE
from momentalign.training.deep.adda import ADDA
from momentalign.training.deep.dsn import GAMMA, DomainSeparation
from momentalign.training.deep.lightning import interruptible, kept_random_state, pl, quiet, seed_everything
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.module import DeepAdaptation
from momentalign.training.deep.weights import AveragedWeights
from momentalign.training.torch_engine import open_device

__all__ = [
    "CLASSES",
    "EMBEDDING",
    "EMBEDDING_INTERVAL",
    "METHODS",
    "RECIPE",
    "WIDTH",
    "DigitCNN",
    "Images",
    "Method",
    "Recipe",
    "Trained",
    "accuracy_of",
    "activations_of",
    "probabilities_of",
    "seconds_per_update",
    "train",
]

CHANNELS = (32, 64, 128)
EMBEDDING = "embedding"
"""The name of the layer that is aligned."""
EMBEDDING_INTERVAL = (-1.0, 1.0)


class DigitCNN(nn.Module):
    """Images (N, 3, 32, 32) to outputs (N, classes); ``embedding`` is the layer to align.

    Parameters
    ----------
    classes
        The number of outputs.
    width
        The units of the embedding.

    Examples
    --------
    >>> network = DigitCNN()
    >>> network(torch.zeros(4, 3, 32, 32)).shape
    torch.Size([4, 10])
    """

    def __init__(self, classes: int = 10, width: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, channels in zip((3, *CHANNELS), CHANNELS, strict=False):
            layers += [_convolution(inputs, channels), nn.ELU(), _convolution(channels, channels)]
            # ELU rises with its input, so it may come after the maximum, where it is a quarter of the work.
            layers += [nn.MaxPool2d(2), nn.ELU()]
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.embedding = BoundedEmbedding(CHANNELS[-1] * (SIDE // 8) ** 2, width)
        self.classifier = nn.Linear(width, classes)
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(cast(Tensor, layer.bias))

    def forward(self, images: Tensor) -> Tensor:
        """Return what enters the softmax."""
        images = images.contiguous(memory_format=torch.channels_last)
        return cast(Tensor, self.classifier(self.embedding(self.features(images))))


class BoundedEmbedding(nn.Module):
    """A linear layer and tanh, the latter in single precision: near the bounds half precision has few values left."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)

    @property
    def weight(self) -> Tensor:
        """The weights (width, inputs)."""
        return self.linear.weight

    def forward(self, features: Tensor) -> Tensor:
        """Return activations (N, width) in [-1, 1]."""
        return torch.tanh(self.linear(features).float())


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


Images: TypeAlias = tuple[Tensor, Tensor]  # bytes and labels, on the device that trains

WIDTH, CLASSES = 128, 10
CHUNK = 5_000
WATCHED = 2_000
COUNTED = 5_000


@dataclass(frozen=True)
class Recipe:
    """How every network is trained, whatever the method and the task.

    Attributes
    ----------
    batch_size, aligned_times
        Rows of the source whose labels count in an update, and how many times as many rows of each domain a distance
        compares in it: moments want many.
    steps, epochs
        Updates, and the parts they are divided into.
    augmentation, standardized
        How source images are changed, and whether all images are standardised one by one.
    balanced, follow_beyond
        Whether a source batch has as many images of each class, and how far (total variation) the shares that the
        network finds in the target must be from equal ones for methods that align to take those from half of the way
        on: 0 always, 1 never.
    decay
        That of the average of the weights; 0 takes the last weights.
    synth_size
        Images drawn for the stand-in of SynthDigits.
    width_root, n_moments
        Whether the CMD is divided by the root of the number of units, and its orders.
    """

    batch_size: int = 512
    aligned_times: int = 2
    steps: int = 2_000
    epochs: int = 20
    learning_rate: float = 1e-3
    augmentation: Augmentation = field(
        default_factory=lambda: Augmentation(rotation=10.0, scale=0.1, shift=1 / 16, channel_inversion=0.5)
    )
    balanced: bool = True
    follow_beyond: float = 0.09
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
    "adda": Method("ADDA", "adda"),
    "dsn": Method("DSN", "dsn", schedule="ramp"),
    "cmd": Method("CMD", "cmd"),
    "cv-cmd": Method("CV-CMD", "cv-cmd"),
}
"""The methods of Table 5, lambda = 1 for each as in the paper.

ADDA trains twice as long, since its second stage begins with the plain network; its own settings and those of DSN, with
the adversarial similarity, are their papers'.
"""


class Trained(NamedTuple):
    """A network, the CMD of every order over time, and how far from equal the shares of classes were that it found.

    The last is None where shares were not looked for.
    """

    network: DigitCNN
    orders: list[list[float]]
    shares_away: float | None


def train(
    method: Method, source: Images, target: Images, seed: int, *, recipe: Recipe = RECIPE, device: str = "cpu"
) -> Trained:
    """Train a network; labels of the target are not looked at."""
    place = open_device(device)
    watch = _Watch(source[0][:WATCHED], target[0][:WATCHED], recipe)
    with kept_random_state(), quiet(), interruptible():
        seed_everything(seed)
        network = DigitCNN(CLASSES, WIDTH).to(place)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module = _module(network, method, source, recipe)
        away = _fit(module, source, target[0], watch, recipe, aligns=method.discrepancy not in (None, "adda"))
        if method.discrepancy == "adda":
            second = ADDA(network.to(place), EMBEDDING, example=_example(source, place))
            away = _fit(second, source, target[0], watch, recipe, aligns=True)
    return Trained(network.to(place).eval(), watch.orders, away)


def seconds_per_update(method: Method, *, recipe: Recipe = RECIPE) -> float:
    """Measure some updates on a CPU, of fewer rows: what says beforehand how long a training takes."""
    rows = max(recipe.batch_size // 8, CLASSES)
    images, labels = torch.zeros(rows, 3, SIDE, SIDE, dtype=torch.uint8), torch.arange(rows) % CLASSES
    times = []
    for steps in (1, 1, 9):  # The first warms up, the second is what does not depend on the number of updates.
        short = replace(recipe, steps=steps, epochs=1, batch_size=rows)
        started = time.perf_counter()
        train(method, (images, labels), (images, labels), 0, recipe=short)
        times.append(time.perf_counter() - started)
    return max(times[2] - times[1], 0.0) / 8 * recipe.batch_size / rows


def _fit(
    module: pl.LightningModule, source: Images, target: Tensor, watch: _Watch, recipe: Recipe, *, aligns: bool
) -> float | None:
    """Train on source images that are changed, and target images that are not; return how far shares were away."""
    size = recipe.batch_size * (recipe.aligned_times if aligns else 1)
    batches = DeviceBatches(
        *source,
        batch_size=size,
        augmentation=recipe.augmentation,
        balanced=recipe.balanced,
        standardized=recipe.standardized,
    )
    unlabelled = DeviceBatches(target, batch_size=size, standardized=recipe.standardized)
    follow = _FollowTarget(batches, target, recipe)
    follows = aligns and recipe.balanced and recipe.follow_beyond < 1
    pairs = PairedLoader(batches, unlabelled, steps=max(1, recipe.steps // recipe.epochs))
    place = next(module.parameters()).device
    _trainer(place, recipe, [watch, follow] if follows else [watch]).fit(module, pairs)
    return follow.away


def _module(network: DigitCNN, method: Method, source: Images, recipe: Recipe) -> DeepAdaptation:
    """What is trained; the first of ADDA's two stages is the plain network."""
    settings: dict[str, Any] = {"schedule": method.schedule, "learning_rate": recipe.learning_rate}
    if method.discrepancy not in (None, "adda") and recipe.aligned_times > 1:
        settings["loss"] = partial(_loss_of_first, recipe.batch_size)
    example = _example(source, next(network.parameters()).device)
    if method.discrepancy == "dsn":
        gamma, similarity = method.weight * GAMMA, _distance_of_table("dann")
        return DomainSeparation(network, EMBEDDING, example=example, similarity=similarity, gamma=gamma, **settings)
    by_cmd = method.discrepancy in ("cmd", "cv-cmd")
    return DeepAdaptation(
        network,
        EMBEDDING,
        discrepancy=_distance_of_table(method.discrepancy),
        weight=method.weight / math.sqrt(WIDTH) if by_cmd and recipe.width_root else method.weight,
        n_moments=recipe.n_moments if by_cmd else 5,
        interval=EMBEDDING_INTERVAL if by_cmd else None,
        example=example,
        **settings,
    )


def _distance_of_table(name: str | None) -> Any:
    """The distance of a method: five kernels as Long et al. (2015), a classifier as Ganin et al. (2016) for digits."""
    if name == "mmd":
        return MMDLoss("gaussians")
    if name == "dann":
        return AdversarialLoss(WIDTH, hidden=(100,))
    return None if name == "adda" else name


def _loss_of_first(rows: int, outputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(outputs[:rows], labels[:rows])


def _example(source: Images, place: torch.device) -> Tensor:
    return source[0][:2].float().to(place)


def _trainer(place: torch.device, recipe: Recipe, callbacks: Sequence[pl.Callback]) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=recipe.epochs,
        accelerator=place.type,
        devices=1,
        precision="bf16-mixed" if place.type == "cuda" else "32-true",
        benchmark=place.type == "cuda",
        callbacks=[*callbacks, *([AveragedWeights(recipe.decay)] if recipe.decay else [])],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


class _FollowTarget(pl.Callback):
    """Has every class drawn from the source as often as the network finds it in the target, from half of the way on.

    Alignment makes activations of both domains alike, classes and all; where the target has other shares of the
    classes than the source's batches, it would have to confuse some. The mean of the network's probabilities, learned
    under equal shares, is the first step of the estimate of M. Saerens, P. Latinne, C. Decaestecker, Adjusting the
    outputs of a classifier to new a priori probabilities, 2002; it needs no label of the target. Further steps would
    look at a network that has learned under shares found before: errors would feed themselves.
    """

    def __init__(self, batches: DeviceBatches, target: Tensor, recipe: Recipe) -> None:
        self._batches, self._recipe = batches, recipe
        self._target = target[:: max(1, len(target) // COUNTED)]
        self._found: list[Tensor] = []
        self.away: float | None = None

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Look in the second quarter of the epochs, and after that follow what was found on average, if it is far."""
        epoch = trainer.current_epoch + 1
        if not self._recipe.epochs // 4 < epoch <= self._recipe.epochs // 2:
            return
        pl_module.eval()
        self._found.append(probabilities_of(pl_module.model, self._target, self._recipe).float().mean(0))
        pl_module.train()
        if epoch == self._recipe.epochs // 2:
            shares = torch.stack(self._found).mean(0)
            self.away = float((shares - 1.0 / len(shares)).clamp_min(0.0).sum())
            if self.away >= self._recipe.follow_beyond:
                self._batches.follow(shares)


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
        of_source: Any = module.source if isinstance(module, ADDA) else module.model
        module.eval()
        source = activations_of(of_source, self._source, self._recipe)
        target = activations_of(module.model, self._target, self._recipe)
        module.train()
        terms = cmd_terms(source, target, n_moments=self._recipe.n_moments, interval=EMBEDDING_INTERVAL)
        self.orders.append([round(value, 6) for value in terms.tolist()])


@torch.no_grad()
def activations_of(network: DigitCNN, images: Tensor, recipe: Recipe) -> Tensor:
    """Return the embeddings (N, width) of images given as bytes."""
    return torch.cat([network.embedding(network.features(x)) for x in _inputs(images, recipe)])


def probabilities_of(network: DigitCNN, images: Tensor, recipe: Recipe) -> Tensor:
    """Return the probability of every digit (N, classes) for images given as bytes."""
    with torch.no_grad():
        return torch.softmax(network.classifier(activations_of(network, images, recipe)), dim=1)


def _inputs(images: Tensor, recipe: Recipe) -> list[Tensor]:
    return [
        prepared(to_float(part), standardized=recipe.standardized).contiguous(memory_format=torch.channels_last)
        for part in torch.split(images, CHUNK)
    ]


def accuracy_of(network: DigitCNN, images: Tensor, labels: Tensor, recipe: Recipe) -> float:
    """Return the part of images given as bytes whose digit a network knows."""
    return float((probabilities_of(network, images, recipe).argmax(1) == labels).float().mean())

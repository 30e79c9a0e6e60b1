"""The networks of the digits experiment (Section 6.5): batches of images, and what a method makes of two domains.

The paper has one network and one training protocol for three tasks and leaves the protocol open; this one was picked by
a score that sees no target label (docs/paper.md). Images live as bytes on the device that trains and are drawn, changed
and standardised there: up to 500,000 of 3 kB fit on any accelerator. The distance is divided by the root of the number
of units, so that a weight of 1 means the same at any width.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.paper.digits_data import SIDE
from momentalign.training.deep.adda import ADDA
from momentalign.training.deep.dsn import GAMMA, DomainSeparation
from momentalign.training.deep.lightning import interruptible, kept_random_state, pl, quiet, seed_everything
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.module import DeepAdaptation
from momentalign.training.deep.weights import AveragedWeights
from momentalign.training.torch_engine import open_device

__all__ = [
    "CLASSES",
    "CONFIG",
    "EMBEDDING_INTERVAL",
    "METHODS",
    "WIDTH",
    "Augmentation",
    "DeviceBatches",
    "DigitCNN",
    "DigitConfig",
    "Images",
    "Method",
    "Trained",
    "accuracy_of",
    "activations_of",
    "augment",
    "probabilities_of",
    "seconds_per_update",
    "standardize",
    "train",
]

Images: TypeAlias = tuple[Tensor, Tensor]  # bytes and labels, on the device that trains

CHANNELS, WIDTH, CLASSES, N_MOMENTS = (32, 64, 128), 128, 10, 5
EMBEDDING = "embedding"  # the layer that is aligned
EMBEDDING_INTERVAL = (-1.0, 1.0)
GREY_LEVEL = 1 / 255
# Images that pass a network at once, whose distance is recorded, and by whose predictions shares are estimated.
CHUNK, WATCHED, COUNTED = 5_000, 2_000, 5_000


@dataclass(frozen=True)
class Augmentation:
    """How far images may change; zero leaves out a change. Every range is drawn from evenly, for each image.

    Attributes
    ----------
    rotation
        Degrees, to either side.
    scale
        Enlarged or shrunk by a factor between ``1 / (1 + scale)`` and ``1 + scale``, even in its logarithm.
    shift
        Fraction of the side, in each direction.
    shear
        Fraction of its height by which an upright leans, to either side.
    channel_inversion
        Probability of the negative of one colour, for each colour by itself: what is light in red may be dark in blue.
    """

    rotation: float = 0.0
    scale: float = 0.0
    shift: float = 0.0
    shear: float = 0.0
    channel_inversion: float = 0.0


@dataclass(frozen=True)
class DigitConfig:
    """How every network is trained, whatever the method and the task; journals of another one are refused.

    Attributes
    ----------
    batch_size, aligned_times
        Rows of the source whose labels count in an update, and how many times as many rows of each domain a distance
        compares in it: moments want many.
    steps, epochs
        Updates, and the parts they are divided into.
    augmentation
        How source images are changed.
    follow_beyond
        How far (total variation) the shares that the network finds in the target must be from equal ones for methods
        that align to take those from half of the way on: 0 always, 1 never.
    decay
        That of the average of the weights.
    synth_size
        Images drawn for the stand-in of SynthDigits.
    """

    batch_size: int = 512
    aligned_times: int = 2
    steps: int = 2_000
    epochs: int = 20
    learning_rate: float = 1e-3
    augmentation: Augmentation = field(
        default_factory=lambda: Augmentation(rotation=10.0, scale=0.1, shift=1 / 16, channel_inversion=0.5)
    )
    follow_beyond: float = 0.09
    decay: float = 0.999
    synth_size: int = 100_000


CONFIG = DigitConfig()


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

ADDA trains twice as long, since its second stage begins with the plain network; its own settings and those of DSN (with
the adversarial similarity) are those of their papers.
"""


class DeviceBatches:
    """Random batches of standardised images, drawn with replacement by the generator of their device.

    Parameters
    ----------
    images
        Bytes, (N, C, H, W).
    labels
        Classes, (N,); with labels a batch is ``(images, labels)`` and every class has the same share of it, up to one
        image, until :meth:`follow` gives them others. Without labels a batch is the images.
    batch_size
        Images in a batch.
    augmentation
        How far images may change.

    Examples
    --------
    >>> images, labels = torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.tensor([0] * 9 + [1])
    >>> batches = DeviceBatches(images, labels, batch_size=4)
    >>> len(batches), next(iter(batches))[1].tolist()
    (3, [0, 1, 0, 1])
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor | None = None,
        *,
        batch_size: int,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.images, self.labels, self.batch_size = images, labels, batch_size
        self.augmentation = augmentation if augmentation is not None else Augmentation()
        self._ends: Tensor | None = None  # where the part of each class ends in a batch of length 1
        if labels is not None:  # the rows of each class, padded to the longest, and how many they are
            rows = [torch.nonzero(labels == label).squeeze(1) for label in torch.unique(labels)]
            self._sizes = torch.tensor([len(own) for own in rows], device=labels.device)
            self._rows = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    def __len__(self) -> int:
        """Batches that hold as many images as there are."""
        return -(-len(self.images) // self.batch_size)

    def follow(self, shares: Tensor) -> None:
        """Give every class its share of the next batches, up to two images; shares (classes,) are made to sum to 1.

        Classes come in random order, so that any part of a batch has about the same shares.

        Examples
        --------
        >>> images, labels = torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.tensor([0] * 9 + [1])
        >>> batches = DeviceBatches(images, labels, batch_size=100)
        >>> batches.follow(torch.tensor([0.75, 0.25]))
        >>> 74 <= 100 - int(next(iter(batches))[1].sum()) <= 76
        True
        """
        ends = shares.double().cumsum(0)
        self._ends = (ends / ends[-1]).to(self.images.device)

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        for _ in range(len(self)):
            rows = self._draw()
            images = standardize(augment(self.images[rows].float() / 255, self.augmentation))
            yield images if self.labels is None else (images, self.labels[rows])

    def _draw(self) -> Tensor:
        device = self.images.device
        if self.labels is None:
            return torch.randint(len(self.images), (self.batch_size,), device=device)
        if self._ends is None:
            label = torch.arange(self.batch_size, device=device) % len(self._rows)
        else:
            # At even distances from a random start: every share is met as nearly as whole images can.
            start = torch.rand(1, device=device, dtype=torch.float64)
            positions = (torch.randperm(self.batch_size, device=device) + start) / self.batch_size
            label = torch.searchsorted(self._ends, positions).clamp_max(len(self._rows) - 1)
        index = torch.rand(self.batch_size, device=device, dtype=torch.float64) * self._sizes[label]
        return self._rows[label, index.long()]


def standardize(images: Tensor) -> Tensor:
    r"""Give every image mean zero and standard deviation one over all its pixels and colours.

    .. math:: \hat x = (x - \mu(x)) / \max(\sigma(x), 1/255)

    A standard deviation below one grey level in 255 counts as one, so that a constant image becomes zero.

    Examples
    --------
    >>> standardize(torch.tensor([[[[0.0, 1.0]]], [[[0.3, 0.3]]]])).flatten(1)
    tensor([[-1.,  1.],
            [ 0.,  0.]])
    """
    variance, mean = torch.var_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)
    return (images - mean) / variance.sqrt().clamp(min=GREY_LEVEL)


def augment(images: Tensor, augmentation: Augmentation) -> Tensor:
    """Turn, scale, shear and move every image in one step, then take the negative of single colours.

    Parameters
    ----------
    images
        Values from 0 to 1, shape (N, C, H, W); pixels beyond the border repeat it.
    augmentation
        The ranges, from which the generator of the images' device draws.

    Examples
    --------
    >>> images = torch.rand(8, 3, 32, 32)
    >>> bool((augment(images, Augmentation(channel_inversion=1.0)) == 1 - images).all())
    True
    """
    if augmentation.rotation or augmentation.scale or augmentation.shift or augmentation.shear:
        images = _move(images, augmentation)
    if augmentation.channel_inversion:
        chosen = torch.rand(*images.shape[:2], 1, 1, device=images.device) < augmentation.channel_inversion
        images = torch.where(chosen, 1 - images, images)
    return images


def _move(images: Tensor, augmentation: Augmentation) -> Tensor:
    """Sample every image along its own affine map, which takes a pixel to where its value comes from."""

    def draw(reach: float, *shape: int) -> Tensor:
        return (2 * torch.rand(len(images), *shape, device=images.device) - 1) * reach

    ratio = images.shape[2] / images.shape[3]
    angle = torch.deg2rad(draw(augmentation.rotation))
    factor = torch.exp(draw(math.log1p(augmentation.scale)))
    shear, shift = draw(augmentation.shear), draw(2 * augmentation.shift, 2)
    cosine, sine = torch.cos(angle) / factor, torch.sin(angle) / factor
    across = torch.stack([cosine, (cosine * shear + sine) * ratio], dim=1)
    down = torch.stack([-sine / ratio, cosine - sine * shear], dim=1)
    maps = torch.cat([torch.stack([across, down], dim=1), shift[..., None]], dim=2)
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


class Trained(NamedTuple):
    """A network, the CMD of every order over time, and how far the class shares it found were from equal ones.

    The last is None where shares were not estimated.
    """

    network: DigitCNN
    orders: list[list[float]]
    shares_away: float | None


def train(
    method: Method, source: Images, target: Images, seed: int, *, config: DigitConfig = CONFIG, device: str = "cpu"
) -> Trained:
    """Train a network; labels of the target are not used."""
    torch_device = open_device(device)
    watch = _Watch(source[0][:WATCHED], target[0][:WATCHED])
    with kept_random_state(), quiet(), interruptible():
        seed_everything(seed)
        network = DigitCNN(CLASSES, WIDTH).to(torch_device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module = _module(network, method, source, config)
        away = _fit(module, source, target[0], watch, config, aligns=method.discrepancy not in (None, "adda"))
        if method.discrepancy == "adda":
            second = ADDA(network.to(torch_device), EMBEDDING, example=_example(source, torch_device))
            away = _fit(second, source, target[0], watch, config, aligns=True)
    return Trained(network.to(torch_device).eval(), watch.orders, away)


def seconds_per_update(method: Method, *, config: DigitConfig = CONFIG) -> float:
    """Measure some updates on a CPU, of fewer rows, to estimate how long a training takes."""
    rows = max(config.batch_size // 8, CLASSES)
    images, labels = torch.zeros(rows, 3, SIDE, SIDE, dtype=torch.uint8), torch.arange(rows) % CLASSES
    times = []
    for steps in (1, 1, 9):  # The first warms up, the second is what does not depend on the number of updates.
        short = replace(config, steps=steps, epochs=1, batch_size=rows)
        started = time.perf_counter()
        train(method, (images, labels), (images, labels), 0, config=short)
        times.append(time.perf_counter() - started)
    return max(times[2] - times[1], 0.0) / 8 * config.batch_size / rows


def _fit(
    module: pl.LightningModule, source: Images, target: Tensor, watch: _Watch, config: DigitConfig, *, aligns: bool
) -> float | None:
    """Train on changed source and unchanged target images; return how far the shares found were from equal."""
    size = config.batch_size * (config.aligned_times if aligns else 1)
    batches = DeviceBatches(*source, batch_size=size, augmentation=config.augmentation)
    follow = _FollowTarget(batches, target, config)
    follows = aligns and config.follow_beyond < 1
    pairs = PairedLoader(batches, DeviceBatches(target, batch_size=size), steps=max(1, config.steps // config.epochs))
    device = next(module.parameters()).device
    _trainer(device, config, [watch, follow] if follows else [watch]).fit(module, pairs)
    return follow.away


def _module(network: DigitCNN, method: Method, source: Images, config: DigitConfig) -> DeepAdaptation:
    """What is trained; the first of ADDA's two stages is the plain network."""
    settings: dict[str, Any] = {"schedule": method.schedule, "learning_rate": config.learning_rate}
    if method.discrepancy not in (None, "adda") and config.aligned_times > 1:
        settings["loss"] = partial(_loss_of_first, config.batch_size)
    example = _example(source, next(network.parameters()).device)
    if method.discrepancy == "dsn":
        similarity = {"discrepancy": _distance_of("dann"), "weight": method.weight * GAMMA}
        return DomainSeparation(network, EMBEDDING, example=example, **similarity, **settings)
    by_cmd = method.discrepancy in ("cmd", "cv-cmd")
    return DeepAdaptation(
        network,
        EMBEDDING,
        discrepancy=_distance_of(method.discrepancy),
        weight=method.weight / math.sqrt(WIDTH) if by_cmd else method.weight,
        n_moments=N_MOMENTS,
        interval=EMBEDDING_INTERVAL if by_cmd else None,
        example=example,
        **settings,
    )


def _distance_of(name: str | None) -> Any:
    """The distance of a method: five kernels as Long et al. (2015), a classifier as Ganin et al. (2016) for digits."""
    if name == "mmd":
        return MMDLoss("gaussians")
    if name == "dann":
        return AdversarialLoss(WIDTH, hidden=(100,))
    return None if name == "adda" else name


def _loss_of_first(rows: int, outputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(outputs[:rows], labels[:rows])


def _example(source: Images, device: torch.device) -> Tensor:
    return source[0][:2].float().to(device)


def _trainer(device: torch.device, config: DigitConfig, callbacks: Sequence[pl.Callback]) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=config.epochs,
        accelerator=device.type,
        devices=1,
        precision="bf16-mixed" if device.type == "cuda" else "32-true",
        benchmark=device.type == "cuda",
        callbacks=[*callbacks, AveragedWeights(config.decay)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


class _FollowTarget(pl.Callback):
    """Draws every class from the source as often as the network finds it in the target, from half of the epochs on.

    Alignment makes activations of both domains alike, classes and all; where class shares differ, it would have to
    confuse some. The mean of the network's probabilities, learned under equal shares, is the first step of the estimate
    of M. Saerens, P. Latinne, C. Decaestecker, Adjusting the outputs of a classifier to new a priori probabilities,
    2002; it needs no label of the target. Further steps would use a network that has learned under shares found
    before, which reinforces errors.
    """

    def __init__(self, batches: DeviceBatches, target: Tensor, config: DigitConfig) -> None:
        self._batches, self._config = batches, config
        self._target = target[:: max(1, len(target) // COUNTED)]
        self._found: list[Tensor] = []
        self.away: float | None = None

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Estimate shares in the second quarter of the epochs, then follow their mean where it is far from equal."""
        epoch = trainer.current_epoch + 1
        if not self._config.epochs // 4 < epoch <= self._config.epochs // 2:
            return
        pl_module.eval()
        self._found.append(probabilities_of(pl_module.model, self._target).float().mean(0))
        pl_module.train()
        if epoch == self._config.epochs // 2:
            shares = torch.stack(self._found).mean(0)
            self.away = float((shares - 1.0 / len(shares)).clamp_min(0.0).sum())
            if self.away >= self._config.follow_beyond:
                self._batches.follow(shares)


class _Watch(pl.Callback):
    """Records the CMD of every order on the same images before training and after each epoch."""

    def __init__(self, source: Tensor, target: Tensor) -> None:
        self.orders: list[list[float]] = []
        self._source, self._target = source, target

    def on_train_start(self, _trainer: pl.Trainer, pl_module: Any) -> None:
        """Record the distance before training."""
        self._record(pl_module)

    def on_train_epoch_end(self, _trainer: pl.Trainer, pl_module: Any) -> None:
        """Record the distance of this epoch."""
        self._record(pl_module)

    def _record(self, module: Any) -> None:
        of_source: Any = module.source if isinstance(module, ADDA) else module.model
        module.eval()
        source, target = activations_of(of_source, self._source), activations_of(module.model, self._target)
        module.train()
        terms = cmd_terms(source, target, n_moments=N_MOMENTS, interval=EMBEDDING_INTERVAL)
        self.orders.append([round(value, 6) for value in terms.tolist()])


@torch.no_grad()
def activations_of(network: DigitCNN, images: Tensor) -> Tensor:
    """Return the embeddings (N, width) of images given as bytes."""
    parts = [
        standardize(part.float() / 255).contiguous(memory_format=torch.channels_last)
        for part in torch.split(images, CHUNK)
    ]
    return torch.cat([network.embedding(network.features(part)) for part in parts])


def probabilities_of(network: DigitCNN, images: Tensor) -> Tensor:
    """Return the probability of every digit (N, classes) for images given as bytes."""
    with torch.no_grad():
        return torch.softmax(network.classifier(activations_of(network, images)), dim=1)


def accuracy_of(network: DigitCNN, images: Tensor, labels: Tensor) -> float:
    """Return the accuracy of a network on images given as bytes."""
    return float((probabilities_of(network, images).argmax(1) == labels).float().mean())


class DigitCNN(nn.Module):
    """Images (N, 3, 32, 32) to outputs (N, classes): three blocks of two convolutions, a bounded ``embedding`` on top.

    The structure of P. Haeusser, T. Frerix, A. Mordvintsev, D. Cremers, Associative domain adaptation, ICCV 2017, with
    tanh for the embedding, so that moments exist on a bounded interval.

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
            layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ELU()]
            layers += [nn.Conv2d(channels, channels, 3, padding=1)]
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
        """Return the outputs before the softmax."""
        images = images.contiguous(memory_format=torch.channels_last)
        return cast(Tensor, self.classifier(self.embedding(self.features(images))))


class BoundedEmbedding(nn.Module):
    """A linear layer and tanh, the latter in single precision: near the bounds half precision has few values left."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)

    def forward(self, features: Tensor) -> Tensor:
        """Return activations (N, width) in [-1, 1]."""
        return torch.tanh(self.linear(features).float())

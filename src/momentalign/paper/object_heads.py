"""Heads on frozen features: stacks of networks with dropout and whole-sample batches, as Section 6.4 trains them.

Zellinger et al. (2019) put a layer of 256 sigmoid units and a softmax on the features of a frozen network; what is
aligned is that layer, before its dropout. Classes of the source are balanced and the smaller domain is repeated: rows
that are repeated have the same activations and differ in their dropout alone, so those are computed once.

Features of the pictures of Office-31 from a frozen network, computed once and kept (Section 6.4).

A cache folder holds a folder for every combination of weights, pictures and views, and there one file for some
pictures at a time: what a stopped run has finished is not computed again.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from torch import Tensor

from momentalign.discrepancies.base import Stacked
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.errors import DataNotFoundError, DivergedError, InvalidInputError
from momentalign.files import replace_file
from momentalign.networks.shallow import initial_layers
from momentalign.paper.backbones import Backbone, find_weights, open_backbone
from momentalign.paper.catalogue import OFFICE_FEATURES
from momentalign.paper.office import CENTRE, CROPS, OfficeRows, Pictures, View, cut_views, load_features, load_pictures
from momentalign.paper.runner import duration_words
from momentalign.training.config import NetworkSpec, Optimizer, balanced_order, order_by_shares
from momentalign.training.torch_engine import (
    StackDistance,
    cross_entropy,
    make_optimizer,
    one_thread,
    open_device,
    stack_weights,
)

__all__ = [
    "HeadRecipe",
    "HeadTask",
    "MMDOfSomeRows",
    "ObjectFeatures",
    "TrainedHead",
    "open_features",
    "seconds_per_update",
    "train_heads",
]

# The accuracy on the source is looked at every so many updates.
LOOK_EVERY = 50
# The MMD compares all pairs of rows; of larger samples so many rows of each are drawn for every update.
MMD_ROWS = 500


class MMDOfSomeRows(MMDLoss):
    """The MMD of heads: of large samples some rows are drawn for every update, the same for all heads."""

    @staticmethod
    def stack(losses: Sequence[MMDLoss]) -> Stacked:
        """Return the distances of stacked samples."""
        stacked = MMDLoss.stack(losses)
        generators: dict[torch.device, torch.Generator] = {}

        def some_rows(sample: Tensor) -> Tensor:
            if sample.shape[1] <= MMD_ROWS:
                return sample
            if sample.device not in generators:
                generators[sample.device] = torch.Generator(sample.device).manual_seed(0)
            generator = generators[sample.device]
            chosen = torch.randperm(sample.shape[1], generator=generator, device=sample.device)[:MMD_ROWS]
            return sample.index_select(1, chosen)

        return lambda source, target: stacked(some_rows(source), some_rows(target))


@dataclass(frozen=True)
class HeadRecipe:
    """What all heads of a stack share.

    Attributes
    ----------
    dropout
        The part of the hidden units that is left out in an update.
    patience, max_updates
        A head stops after so many updates without a better accuracy on the source, and at most.
    crops
        Draw a view of every picture for every update; otherwise the centre crop.
    follow_at
        From this update on every class of the source has the share that the head finds in the target, instead of an
        equal one; 0 never. It is looked for once: a head that has learned under shares found before would find its
        own errors.
    """

    optimizer: Optimizer = field(default_factory=lambda: Optimizer("adadelta"))
    hidden: int = 256
    dropout: float = 0.8
    patience: int = 1000
    max_updates: int = 3000
    crops: bool = False
    follow_at: int = 0


class HeadTask(NamedTuple):
    """Features (views, pictures, width) of two domains and the labels of the first as codes."""

    source: NDArray[np.floating]
    labels: NDArray[np.intp]
    target: NDArray[np.floating]
    n_classes: int


class TrainedHead(NamedTuple):
    """What a head says of the target's centre crops, and after how many updates it stopped."""

    predictions: NDArray[np.intp]
    updates: int


def train_heads(
    task: HeadTask, members: Sequence[NetworkSpec], recipe: HeadRecipe | None = None, *, device: str = "cpu"
) -> list[TrainedHead]:
    """Train a stack of heads on one task and return what each says of the target when it stops.

    Parameters
    ----------
    task
        The data; no label of the target is among them.
    members
        Seed, weight and distance of every head. Heads of one seed start alike and have the same dropout.
    recipe
        What they share; None takes the paper's FP-CMD.
    device
        Where to train.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> labels = np.arange(40) % 2
    >>> source = (random.normal(size=(40, 3)) + 3.0 * labels[:, None])[None]
    >>> task = HeadTask(source, labels, source + 0.5, 2)
    >>> (head,) = train_heads(task, [NetworkSpec(0)], HeadRecipe(Optimizer("adam"), max_updates=200))
    >>> float((head.predictions == labels).mean()) > 0.9, head.updates
    (True, 200)
    """
    stack = _Stack(task, members, recipe or HeadRecipe(), device)
    with one_thread():
        return stack.train()


def seconds_per_update(
    task: HeadTask, members: Sequence[NetworkSpec], recipe: HeadRecipe, *, device: str = "cpu"
) -> float:
    """Measure a few updates: what says beforehand how long a training takes."""
    stack = _Stack(task, members, recipe, device)
    with one_thread():
        stack.update()
        stack.accuracy()
        start = time.perf_counter()
        for _ in range(3):
            stack.update()
        stack.accuracy()  # Waits for an accelerator's queue.
        return (time.perf_counter() - start) / 3


class _Stack:
    """Heads side by side: the first layers of all of them are one product, the others a batch of products."""

    def __init__(self, task: HeadTask, members: Sequence[NetworkSpec], recipe: HeadRecipe, device: str) -> None:
        self._device = open_device(device)
        self._recipe, self._members = recipe, list(members)
        self._source, self._target = (self._tensor(rows) for rows in (task.source, task.target))
        self._codes = task.labels
        self._labels = torch.as_tensor(task.labels, device=self._device)
        order = balanced_order(task.labels)
        # Moments of the target do not change where each of its rows is repeated as often, so it stays as it is.
        self._rows = torch.as_tensor(np.resize(order, max(len(order), task.target.shape[1])), device=self._device)
        self._seeds = sorted({member.seed for member in members})
        self._of_seed = torch.tensor([self._seeds.index(member.seed) for member in members], device=self._device)
        self._noise = [torch.Generator(self._device).manual_seed(seed) for seed in self._seeds]
        # The views are the same for all heads, so that a head's luck does not depend on its neighbours.
        self._choice = torch.Generator(self._device).manual_seed(0)
        self._start(task)

    def _start(self, task: HeadTask) -> None:
        sizes = [task.source.shape[2], self._recipe.hidden, task.n_classes]
        drawn = {seed: initial_layers(sizes, seed, initializer="he_normal") for seed in self._seeds}
        starts = [drawn[member.seed] for member in self._members]
        bottom = np.concatenate([layers[0].weight for layers in starts], axis=1)
        bias = np.concatenate([layers[0].bias for layers in starts])
        top = np.stack([layers[1].weight for layers in starts])
        top_bias = np.stack([layers[1].bias[None] for layers in starts])
        self._parameters = [self._tensor(part).requires_grad_() for part in (bottom, bias, top, top_bias)]
        trained = stack_weights(self._members, self._recipe.hidden, dtype=torch.float32, device=self._device)
        self._distance = StackDistance(self._members, trained)
        self._weights = self._tensor(np.array([member.weight for member in self._members]))
        self._optimizer = make_optimizer(
            self._recipe.optimizer, [*self._parameters, *(part for own in trained.values() for part in own)]
        )
        decay = self._recipe.optimizer.decay
        self._decay = torch.optim.lr_scheduler.LambdaLR(self._optimizer, lambda update: 1.0 / (1.0 + decay * update))

    def train(self) -> list[TrainedHead]:
        """Train until every head has stopped; one that has stopped is computed on, but not looked at any more."""
        best, best_at = np.full(len(self._members), -1.0), np.zeros(len(self._members), dtype=int)
        trained: dict[int, TrainedHead] = {}
        update = 0
        while len(trained) < len(self._members):
            self.update()
            update += 1
            if update == self._recipe.follow_at:
                self.follow()
            if update % LOOK_EVERY and update < self._recipe.max_updates:
                continue
            accuracy = self.accuracy()
            better = accuracy > best
            best, best_at = np.where(better, accuracy, best), np.where(better, update, best_at)
            stopped = (update - best_at >= self._recipe.patience) | (update == self._recipe.max_updates)
            new = [index for index in np.flatnonzero(stopped).tolist() if index not in trained]
            if new:
                said = self._predictions()
                trained |= {index: TrainedHead(said[index], update) for index in new}
        return [trained[index] for index in range(len(self._members))]

    def update(self) -> None:
        """Make one step on the whole sample."""
        hidden = self._repeated(self._hidden(self._view(self._source)))
        loss = cross_entropy(self._outputs(self._thinned(hidden)), self._labels[self._rows])
        if self._distance.needed:
            loss = loss + self._weights * self._distance(hidden, self._hidden(self._view(self._target)))
        self._optimizer.zero_grad()
        loss.sum().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._decay.step()

    def follow(self) -> None:
        """Give every class, head by head, the share of the source's rows that the head finds in the target."""
        with torch.no_grad():
            shares = torch.softmax(self._outputs(self._hidden(self._target[0])), -1).mean(1).double().cpu().numpy()
        rows = [order_by_shares(self._codes, own, self._rows.shape[-1]) for own in shares]
        self._rows = torch.as_tensor(np.stack(rows), device=self._device)

    def _repeated(self, hidden: Tensor) -> Tensor:
        """Activations of the rows in their shares, those of all heads or each head's own."""
        if self._rows.ndim == 1:
            return hidden[:, self._rows]
        return hidden.gather(1, self._rows[:, :, None].expand(-1, -1, hidden.shape[-1]))

    def accuracy(self) -> NDArray[np.float64]:
        """The part of the source's centre crops that each head gets right, without dropout."""
        with torch.no_grad():
            outputs = self._outputs(self._hidden(self._source[0]))
            accuracy = (outputs.argmax(-1) == self._labels).double().mean(-1).cpu().numpy()
            if not bool(torch.isfinite(outputs).all()):
                raise DivergedError("the weights of a head left the finite numbers; lower the learning rate or weight.")
        return np.asarray(accuracy)

    def _predictions(self) -> NDArray[np.intp]:
        with torch.no_grad():
            return np.asarray(self._outputs(self._hidden(self._target[0])).argmax(-1).cpu().numpy())

    def _view(self, rows: Tensor) -> Tensor:
        """One view of each picture, drawn anew where crops are wanted."""
        if not self._recipe.crops or len(rows) == 1:
            return rows[0]
        count = rows.shape[1]
        chosen = torch.randint(len(rows), (count,), generator=self._choice, device=self._device)
        return rows[chosen, torch.arange(count, device=self._device)]

    def _hidden(self, rows: Tensor) -> Tensor:
        """Activations (heads, rows, units)."""
        bottom, bias, top, _ = self._parameters
        together = torch.sigmoid(torch.addmm(bias, rows, bottom))
        return together.view(len(rows), *top.shape[:2]).transpose(0, 1)

    def _thinned(self, hidden: Tensor) -> Tensor:
        """Leave out units, and enlarge the others so that the sum stays what it was on average."""
        kept = 1.0 - self._recipe.dropout
        shape = hidden.shape[1:]
        masks = [torch.empty(shape, device=self._device).bernoulli_(kept, generator=noise) for noise in self._noise]
        return hidden * (torch.stack(masks) / kept)[self._of_seed]

    def _outputs(self, hidden: Tensor) -> Tensor:
        return torch.baddbmm(self._parameters[3], hidden, self._parameters[2])

    def _tensor(self, values: NDArray[np.floating]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self._device)


Features: TypeAlias = NDArray[np.float16]
Say: TypeAlias = Callable[[str], None]
Progress: TypeAlias = Callable[[int, int], None]

# Pictures in one file of the cache.
PART = 128
# Images that go through the network at once: few stay in a core's cache, many fill an accelerator.
ON_CPU, ON_ACCELERATOR = 4, 256


class ObjectFeatures(NamedTuple):
    """Features, the name of the network they are from, and what identifies them."""

    office: OfficeRows
    backbone: str
    data: dict[str, str]

    @property
    def has_crops(self) -> bool:
        """Whether there are views beside the centre crop."""
        return len(self.office.rows) > 1


def open_features(
    folder: str | Path | None = None,
    *,
    backbone: str | Path | None = None,
    cache: str | Path,
    crops: bool = False,
    device: str = "cpu",
    n_jobs: int = 1,
    say: Say = lambda _words: None,
    progress: Progress | None = None,
) -> ObjectFeatures:
    """Return features of all pictures; without a network to compute them with, those of ``office31_efflite0.npz``.

    Parameters
    ----------
    folder
        Where the pictures are; None takes ``MOMENTALIGN_DATA``.
    backbone
        A file of weights; None takes the installed EfficientNet-Lite0.
    cache
        The folder in which features are kept.
    crops
        Compute the corners and mirrors beside the centre crop, ten views in all.
    device, n_jobs
        Where to compute, and, on the CPU, processes to compute in.
    say, progress
        Called with a sentence that says how long it takes, and with the number of finished parts and of all.
    """
    try:
        weights = find_weights(backbone)
    except DataNotFoundError:
        if backbone is not None or not _has_ready_features(folder):
            raise
        say(f"{OFFICE_FEATURES.name} is taken as it is, centre crops only: no weights are installed to compute others.")
        return ObjectFeatures(
            load_features(folder), "EfficientNet-Lite0", {OFFICE_FEATURES.name: OFFICE_FEATURES.sha256}
        )
    pictures = load_pictures(folder)
    work = _Work(pictures, str(weights), Path(cache), device, n_jobs if device == "cpu" else 1)
    rows = work.features((CENTRE,), say, progress)
    if crops:
        rows = np.concatenate([rows, work.features(CROPS, say, progress)])
    office = OfficeRows(rows, pictures.labels, pictures.domains)
    data = {"pictures": pictures.sha256, "weights": work.backbone.sha256}
    return ObjectFeatures(office, work.backbone.network.title, data)


def _has_ready_features(folder: str | Path | None) -> bool:
    try:
        load_features(folder)
    except DataNotFoundError:
        return False
    return True


class _Work(NamedTuple):
    """What features are computed from, where they are kept and who computes them."""

    pictures: Pictures
    weights: str
    cache: Path
    device: str
    n_jobs: int

    @property
    def backbone(self) -> Backbone:
        return _backbone(self.weights, self.device)

    def features(self, views: Sequence[View], say: Say, progress: Progress | None) -> Features:
        """Return features (views, pictures, width) of some views, all of them kept."""
        folder = self.cache / f"office31-{self._key(views)}"
        with _speaking(folder):
            folder.mkdir(parents=True, exist_ok=True)
        starts = range(0, len(self.pictures.labels), PART)
        missing = [start for start in starts if self._kept(folder, start, views) is None]
        if missing:
            self._compute(folder, missing, views, say, progress)
        parts = [self._kept(folder, start, views) for start in starts]
        return np.concatenate([part for part in parts if part is not None], axis=1)

    def _key(self, views: Sequence[View]) -> str:
        """Sixteen digits that say which weights, pictures and views features are from."""
        parts = [self.backbone.sha256, self.pictures.sha256, [list(view) for view in views]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def _compute(
        self, folder: Path, missing: Sequence[int], views: Sequence[View], say: Say, progress: Progress | None
    ) -> None:
        workers = effective_n_jobs(self.n_jobs)
        count = sum(len(self._places(start)) for start in missing)
        seconds = count * self._seconds(views) / min(workers, len(missing))
        say(f"features of {count} pictures, views of each: {len(views)}: {duration_words(seconds)}")
        # One part at a time, and written as it arrives: a run that is stopped keeps what was finished.
        parallel = Parallel(n_jobs=self.n_jobs, batch_size=1, pre_dispatch="2*n_jobs", return_as="generator")
        jobs = (
            delayed(_features)(*self._contents(self._places(start)), views, self.weights, self.device)
            for start in missing
        )
        with closing(parallel(jobs)) as arrivals:
            for number, (start, part) in enumerate(zip(missing, arrivals, strict=True), start=1):
                content = io.BytesIO()
                np.save(content, part, allow_pickle=False)
                with _speaking(folder):
                    replace_file(folder / _part_name(start), content.getvalue())
                if progress is not None:
                    progress(number, len(missing))

    def _seconds(self, views: Sequence[View]) -> float:
        """Measure how long a picture takes."""
        few = self._contents(self._places(0)[:4])
        _features(*few, views, self.weights, self.device)
        start = time.perf_counter()
        _features(*few, views, self.weights, self.device)
        return (time.perf_counter() - start) / len(few[0])

    def _places(self, start: int) -> range:
        return range(start, min(start + PART, len(self.pictures.labels)))

    def _contents(self, places: range) -> tuple[list[bytes], list[str]]:
        return [self.pictures.read(place) for place in places], [self.pictures.name(place) for place in places]

    def _kept(self, folder: Path, start: int, views: Sequence[View]) -> Features | None:
        """A part as it was kept; None where it is missing or not what it should be, so that it is computed."""
        try:
            part: NDArray[Any] = np.load(folder / _part_name(start), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        shape = (len(views), len(self._places(start)), self.backbone.network.width)
        return part if part.shape == shape and part.dtype == np.float16 else None


def _part_name(start: int) -> str:
    return f"{start:05d}.npy"


@cache
def _backbone(weights: str, device: str) -> Backbone:
    backbone = open_backbone(weights, device=device)
    backbone.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return backbone


def _features(
    contents: Sequence[bytes], names: Sequence[str], views: Sequence[View], weights: str, device: str
) -> Features:
    """Features (views, pictures, width) of some pictures; a piece of work for one process."""
    network = _backbone(weights, device).network
    windows = np.stack([cut_views(content, name, views) for content, name in zip(contents, names, strict=True)], axis=1)
    images = torch.as_tensor(windows).flatten(0, 1)
    # Rounded products (TF32) would change features in the third digit.
    with one_thread(), torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        few = torch.split(images, ON_CPU if device == "cpu" else ON_ACCELERATOR)
        found = [network(part.to(device).float().contiguous(memory_format=torch.channels_last)).cpu() for part in few]
    return torch.cat(found).view(len(views), len(contents), -1).numpy().astype(np.float16)


@contextmanager
def _speaking(folder: Path) -> Iterator[None]:
    """Turn what the system says about the cache into a sentence."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"features cannot be kept in {folder} ({error.strerror}); give another folder as --cache DIR."
        ) from error

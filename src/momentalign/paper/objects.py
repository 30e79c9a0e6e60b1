"""Object recognition on Office-31 (Section 6.4): six tasks, every method, Table 4, and its page.

All pictures of one domain with labels, all of another without, accuracy on the latter. A head, a layer of 256 sigmoid
units and a softmax, is trained on features of a frozen network; that layer is aligned, before its dropout. Batches are
whole samples: classes of the source are balanced and the smaller domain is repeated. Repeated rows have the same
activations and differ in their dropout alone, so activations are computed once. When a head stops, its accuracy on the
source alone decides. A cell is one task, one method and one seed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import effective_n_jobs
from numpy.typing import NDArray
from torch import Tensor

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.base import Stacked
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.coral import CORALLoss
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.errors import DivergedError
from momentalign.journal import Journal
from momentalign.networks.shallow import initial_layers
from momentalign.paper.experiment import (
    Cell,
    Progress,
    Say,
    accuracy_on_components,
    announce,
    figures_of,
    identity,
    run_cells,
    silent,
    split_task,
    table_result,
)
from momentalign.paper.office import ObjectFeatures
from momentalign.paper.tables import OBJECTS, PageText, comparison_page
from momentalign.training.config import Distance, NetworkSpec, Optimizer, Rows
from momentalign.training.torch_engine import (
    StackDistance,
    cross_entropy,
    make_optimizer,
    one_thread,
    open_device,
    stack_weights,
)

__all__ = [
    "METHODS",
    "TASKS",
    "HeadConfig",
    "HeadTask",
    "Method",
    "TrainedHead",
    "balanced_order",
    "compute_all",
    "estimate",
    "needs_crops",
    "object_identity",
    "objects_page",
    "order_by_shares",
    "run",
    "seconds_per_update",
    "train_heads",
]

TASKS = OBJECTS.tasks
N_CLASSES, COMPONENTS, MU = 31, 100, 1.0
EVALUATE_EVERY = 50  # updates
# The MMD compares all pairs of rows; of larger samples so many rows of each are drawn for every update.
MMD_ROWS = 500
# Stacks that train at the same time on an accelerator: each leaves it idle while it asks for the next steps.
STACKS_AT_ONCE = 4
# Updates after which heads usually stop, to estimate the time.
USUAL_UPDATES = {"adadelta": 2000, "sgd": 4000}


@dataclass(frozen=True)
class HeadConfig:
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
        equal one; 0 never. Shares are estimated once: a head that has learned under estimated shares would reinforce
        its own errors.
    """

    optimizer: Optimizer = field(default_factory=lambda: Optimizer("adadelta"))
    hidden: int = 256
    dropout: float = 0.8
    patience: int = 1000
    max_updates: int = 3000
    crops: bool = False
    follow_at: int = 0


@dataclass(frozen=True)
class Method:
    """A column of Table 4; `apart` says what differs from FP-CMD, whose settings the others share."""

    title: str
    weight: float = 0.0
    config: HeadConfig = field(default_factory=HeadConfig)
    apart: str = ""


FP, FOLLOWING = HeadConfig(), HeadConfig(follow_at=500)
MOMENTUM = HeadConfig(optimizer=Optimizer("sgd", decay=1e-4), crops=True, max_updates=10_000)
_WITH_MOMENTUM = "SGD 0.01 with momentum 0.9 and decay 1e-4, crops and mirrors"
_FOLLOWING = f"from update {FOLLOWING.follow_at} on, classes in the shares that the head finds in the target"
METHODS = {
    "nn": Method("NN"),
    "cnn": Method("CNN", config=MOMENTUM, apart=_WITH_MOMENTUM),
    "tca": Method("TCA", apart=f"{COMPONENTS} components, linear kernel, logistic regression"),
    "mmd": Method("MMD", weight=1.0),
    # Sun and Saenko (2016) take the weight with which both losses are alike at the end; here that is about this one.
    "coral": Method("CORAL", weight=100_000.0),
    "dann": Method("DANN", weight=1.0),
    "cmd": Method("CMD", weight=1.0, config=MOMENTUM, apart=_WITH_MOMENTUM),
    "fp-cmd": Method("FP-CMD", weight=1.0),
    # The more is aligned, the more it matters that classes have the same shares in both domains.
    "cv-cmd": Method("CV-CMD", weight=1.0, config=FOLLOWING, apart=_FOLLOWING),
}
"""The methods of Table 4, and two it does not have: NN is FP-CMD without alignment, CV-CMD has all cross-variances."""
# What every method shares; a journal of another protocol is refused.
PROTOCOL = {
    "hidden": FP.hidden, "start": "he normal", "dropout": FP.dropout, "batches": "whole samples, classes balanced",
    "patience": FP.patience, "stopped": "so many updates after the last better accuracy on the source",
    "follow_at": FOLLOWING.follow_at,
}  # fmt: skip


def run(
    methods: Sequence[str],
    features: ObjectFeatures,
    journal: Journal,
    *,
    seeds: Sequence[int] = range(5),
    tasks: Sequence[str] = TASKS,
    n_jobs: int = 1,
    device: str = "cpu",
    say: Say = silent,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return accuracies of methods on tasks, ready for JSON; what the journal holds is not computed again.

    `n_jobs` are processes on the CPU. `say` is called with a sentence that says how long it takes, `progress` with the
    number of finished cells and of all cells.
    """
    cells = {method: {task: _cells(method, task, seeds, features) for task in tasks} for method in methods}
    every = [cell for column in cells.values() for own in column.values() for cell in own]
    announce(every, journal, say, partial(estimate, features=features, device=device, n_jobs=effective_n_jobs(n_jobs)))
    done = compute_all(every, features, journal, device=device, n_jobs=n_jobs, progress=progress)
    columns = {
        method: {
            "title": METHODS[method].title,
            "settings": _settings(method, features),
            **figures_of(("accuracy", "updates"), own, done),
        }
        for method, own in cells.items()
    }
    note = f"The paper's values are on features of AlexNet, those here on features of {features.backbone}."
    if needs_crops(methods) and not features.has_crops:
        note += " There were no crops and mirrors here, centre crops only."
    return table_result("objects", object_identity(features), seeds, tasks, methods=columns, note=note)


def objects_page(result: Mapping[str, Any]) -> str:
    """Return the page of one result of ``momentalign reproduce objects``."""
    tested = "Source → target; accuracy on all pictures of the target, whose labels were not used."
    return comparison_page(result, OBJECTS, PageText("Object recognition on Office-31", "nn", "fp-cmd", tested))


def object_identity(features: ObjectFeatures) -> dict[str, Any]:
    """Return what makes results of this experiment comparable."""
    return identity("objects", {"backbone": features.backbone, **PROTOCOL}, features.data)


def needs_crops(methods: Sequence[str]) -> bool:
    """Whether a method needs crops and mirrors of the pictures.

    Examples
    --------
    >>> needs_crops(["nn", "fp-cmd"]), needs_crops(["cmd"])
    (False, True)
    """
    return any(METHODS[method].config.crops for method in methods)


def _cells(method: str, task: str, seeds: Sequence[int], features: ObjectFeatures) -> list[Cell]:
    """One cell for every seed, but the same for all where nothing is drawn. Where views count, it says how many."""
    shared: dict[str, Any] = {"method": method, **split_task(task)}
    if METHODS[method].config.crops:
        shared["views"] = len(features.office.rows)
    return [{**shared, "seed": seeds[0] if method == "tca" else seed} for seed in seeds]


def _settings(method: str, features: ObjectFeatures) -> dict[str, Any]:
    chosen = METHODS[method]
    config = chosen.config
    trained = {} if method == "tca" else {"optimizer": config.optimizer.name, "max_updates": config.max_updates}
    views = {"views": len(features.office.rows)} if config.crops else {}
    apart = {"apart": chosen.apart} if chosen.apart else {}
    return ({"weight": chosen.weight} if chosen.weight else {}) | trained | views | apart


def compute_all(
    cells: Iterable[Cell],
    features: ObjectFeatures,
    journal: Journal,
    *,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compute the cells that the journal does not hold and return all results by their keys.

    On the CPU each cell is a piece of work for one process; on an accelerator all heads of one task that share their
    settings train as one stack, and a few stacks side by side in processes of their own.
    """
    work = partial(compute, features=features, device=device)
    if device == "cpu":
        return run_cells(cells, work, journal, n_jobs=n_jobs, progress=progress)
    at_once = min(effective_n_jobs(n_jobs), STACKS_AT_ONCE)
    return run_cells(cells, work, journal, group=_by_stack, n_jobs=at_once, progress=progress)


def _by_stack(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Groups of cells that can train as one stack, those that take longest first."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        key = (cell["source"], cell["target"], cell["method"] == "tca", METHODS[cell["method"]].config)
        groups.setdefault(key, []).append(cell)
    return sorted(groups.values(), key=lambda group: -METHODS[group[0]["method"]].config.max_updates)


def compute(cells: Sequence[Cell], features: ObjectFeatures, *, device: str = "cpu") -> list[dict[str, Any]]:
    """Compute cells of one task that share their settings."""
    task, truth = _task(cells[0], features)
    if cells[0]["method"] == "tca":
        source, target = (rows[0].astype(np.float64) for rows in (task.source, task.target))
        accuracy = accuracy_on_components(
            source, task.labels, target, target, truth, n_components=COMPONENTS, mu=MU, centre=False
        )
        return [{"accuracy": accuracy, "updates": 0} for _ in cells]
    config = METHODS[cells[0]["method"]].config
    heads = train_heads(task, [_spec(cell) for cell in cells], config, device=device)
    return [{"accuracy": float((head.predictions == truth).mean()), "updates": head.updates} for head in heads]


def estimate(cells: Sequence[Cell], features: ObjectFeatures, *, device: str = "cpu", n_jobs: int = 1) -> float:
    """Return how many seconds cells will take, from a few updates of each kind."""
    groups = _by_stack([cell for cell in cells if cell["method"] != "tca"])
    work = groups if device != "cpu" else [[cell] for group in groups for cell in group]
    known: dict[Any, float] = {}
    total = 0.0
    for stack in work:
        config = METHODS[stack[0]["method"]].config
        key = (stack[0]["source"], stack[0]["target"], *(cell["method"] for cell in stack))
        if key not in known:
            task, _ = _task(stack[0], features)
            known[key] = seconds_per_update(task, [_spec(cell) for cell in stack], config, device=device)
        total += known[key] * min(USUAL_UPDATES[config.optimizer.name], config.max_updates)
    return total / max(min(n_jobs, len(work)), 1) if device == "cpu" else total


def _task(cell: Cell, features: ObjectFeatures) -> tuple[HeadTask, Any]:
    """What a head may see, and the labels of the target for evaluation."""
    source, labels = features.office.domain(cell["source"])
    target, truth = features.office.domain(cell["target"])
    return HeadTask(source, labels, target, N_CLASSES), truth


def _spec(cell: Cell) -> NetworkSpec:
    method = cell["method"]
    distances: dict[str, Distance] = {
        "cmd": CMDLoss(), "fp-cmd": CMDLoss(), "cv-cmd": CMDLoss(cross=2), "mmd": MMDOfSomeRows("gaussians"),
        "coral": CORALLoss(), "dann": AdversarialLoss(FP.hidden),
    }  # fmt: skip
    return NetworkSpec(cell["seed"], METHODS[method].weight, distances.get(method))


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


class HeadTask(NamedTuple):
    """Features (views, pictures, width) of two domains and the labels of the first as codes."""

    source: NDArray[np.floating]
    labels: NDArray[np.intp]
    target: NDArray[np.floating]
    n_classes: int


class TrainedHead(NamedTuple):
    """The predictions of a head for the target's centre crops, and after how many updates it stopped."""

    predictions: NDArray[np.intp]
    updates: int


def train_heads(
    task: HeadTask, specs: Sequence[NetworkSpec], config: HeadConfig | None = None, *, device: str = "cpu"
) -> list[TrainedHead]:
    """Train a stack of heads on one task and return the predictions of each when it stops.

    Parameters
    ----------
    task
        The data; no label of the target is among them.
    specs
        Seed, weight and distance of every head. Heads of one seed start alike and have the same dropout.
    config
        What they share; None takes the paper's FP-CMD.
    device
        Where to train.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> labels = np.arange(40) % 2
    >>> source = (random.normal(size=(40, 3)) + 3.0 * labels[:, None])[None]
    >>> task = HeadTask(source, labels, source + 0.5, 2)
    >>> (head,) = train_heads(task, [NetworkSpec(0)], HeadConfig(Optimizer("adam"), max_updates=200))
    >>> float((head.predictions == labels).mean()) > 0.9, head.updates
    (True, 200)
    """
    stack = _Stack(task, specs, config or HeadConfig(), device)
    with one_thread():
        return stack.train()


def seconds_per_update(
    task: HeadTask, specs: Sequence[NetworkSpec], config: HeadConfig, *, device: str = "cpu"
) -> float:
    """Measure a few updates, to estimate how long a training takes."""
    stack = _Stack(task, specs, config, device)
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

    def __init__(self, task: HeadTask, specs: Sequence[NetworkSpec], config: HeadConfig, device: str) -> None:
        self._device = open_device(device)
        self._config, self._specs = config, list(specs)
        self._source, self._target = (self._tensor(rows) for rows in (task.source, task.target))
        self._codes = task.labels
        self._labels = torch.as_tensor(task.labels, device=self._device)
        order = balanced_order(task.labels)
        # Moments of the target do not change where each of its rows is repeated as often, so it stays as it is.
        self._rows = torch.as_tensor(np.resize(order, max(len(order), task.target.shape[1])), device=self._device)
        self._seeds = sorted({spec.seed for spec in specs})
        self._of_seed = torch.tensor([self._seeds.index(spec.seed) for spec in specs], device=self._device)
        self._noise = [torch.Generator(self._device).manual_seed(seed) for seed in self._seeds]
        # The views are the same for all heads, so that a head's luck does not depend on its neighbours.
        self._choice = torch.Generator(self._device).manual_seed(0)
        self._start(task)

    def _start(self, task: HeadTask) -> None:
        sizes = [task.source.shape[2], self._config.hidden, task.n_classes]
        drawn = {seed: initial_layers(sizes, seed, initializer="he_normal") for seed in self._seeds}
        starts = [drawn[spec.seed] for spec in self._specs]
        bottom = np.concatenate([layers[0].weight for layers in starts], axis=1)
        bias = np.concatenate([layers[0].bias for layers in starts])
        top = np.stack([layers[1].weight for layers in starts])
        top_bias = np.stack([layers[1].bias[None] for layers in starts])
        self._parameters = [self._tensor(part).requires_grad_() for part in (bottom, bias, top, top_bias)]
        trained = stack_weights(self._specs, self._config.hidden, dtype=torch.float32, device=self._device)
        self._distance = StackDistance(self._specs, trained)
        self._weights = self._tensor(np.array([spec.weight for spec in self._specs]))
        parameters = [*self._parameters, *(part for own in trained.values() for part in own)]
        self._optimizer = make_optimizer(self._config.optimizer, parameters)
        decay = self._config.optimizer.decay
        self._decay = torch.optim.lr_scheduler.LambdaLR(self._optimizer, lambda update: 1.0 / (1.0 + decay * update))

    def train(self) -> list[TrainedHead]:
        """Train until every head has stopped; one that has stopped is still computed, but its result is fixed."""
        best, best_at = np.full(len(self._specs), -1.0), np.zeros(len(self._specs), dtype=int)
        trained: dict[int, TrainedHead] = {}
        update = 0
        while len(trained) < len(self._specs):
            self.update()
            update += 1
            if update == self._config.follow_at:
                self.follow()
            if update % EVALUATE_EVERY and update < self._config.max_updates:
                continue
            accuracy = self.accuracy()
            better = accuracy > best
            best, best_at = np.where(better, accuracy, best), np.where(better, update, best_at)
            stopped = (update - best_at >= self._config.patience) | (update == self._config.max_updates)
            new = [index for index in np.flatnonzero(stopped).tolist() if index not in trained]
            if new:
                predictions = self._predictions()
                trained |= {index: TrainedHead(predictions[index], update) for index in new}
        return [trained[index] for index in range(len(self._specs))]

    def update(self) -> None:
        """Make one step on the whole sample."""
        hidden = self._repeat(self._hidden(self._view(self._source)))
        loss = cross_entropy(self._outputs(self._drop(hidden)), self._labels[self._rows])
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

    def _repeat(self, hidden: Tensor) -> Tensor:
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
        if not self._config.crops or len(rows) == 1:
            return rows[0]
        count = rows.shape[1]
        chosen = torch.randint(len(rows), (count,), generator=self._choice, device=self._device)
        return rows[chosen, torch.arange(count, device=self._device)]

    def _hidden(self, rows: Tensor) -> Tensor:
        """Activations (heads, rows, units)."""
        bottom, bias, top, _ = self._parameters
        together = torch.sigmoid(torch.addmm(bias, rows, bottom))
        return together.view(len(rows), *top.shape[:2]).transpose(0, 1)

    def _drop(self, hidden: Tensor) -> Tensor:
        """Leave out units, and enlarge the others so that the sum stays what it was on average."""
        kept = 1.0 - self._config.dropout
        shape = hidden.shape[1:]
        masks = [torch.empty(shape, device=self._device).bernoulli_(kept, generator=noise) for noise in self._noise]
        return hidden * (torch.stack(masks) / kept)[self._of_seed]

    def _outputs(self, hidden: Tensor) -> Tensor:
        return torch.baddbmm(self._parameters[3], hidden, self._parameters[2])

    def _tensor(self, values: NDArray[np.floating]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self._device)


def balanced_order(labels: NDArray[np.integer]) -> Rows:
    """Order rows so that classes alternate, smaller classes starting again until the largest ends.

    Examples
    --------
    >>> balanced_order(np.array([0, 0, 0, 1])).tolist()
    [0, 3, 1, 3, 2, 3]
    """
    specs = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    longest = max(map(len, specs))
    return np.stack([np.resize(rows, longest) for rows in specs], axis=1).ravel()


def order_by_shares(labels: NDArray[np.integer], shares: NDArray[np.floating], count: int) -> Rows:
    """Order `count` rows so that every class has its share of them, its rows in turn.

    Labels are codes from 0 on. The shares of classes that have rows are made to sum to 1, and met as nearly as whole
    rows can.

    Examples
    --------
    >>> order_by_shares(np.array([0, 0, 0, 1]), np.array([0.75, 0.25]), 8).tolist()
    [0, 1, 2, 0, 1, 2, 3, 3]
    """
    ends = np.cumsum(np.where(np.bincount(labels, minlength=len(shares)) > 0, shares, 0.0))
    drawn = np.searchsorted(ends / ends[-1], (np.arange(count) + 0.5) / count)
    return np.concatenate(
        [np.resize(np.flatnonzero(labels == label), np.sum(drawn == label)) for label in range(len(shares))]
    )

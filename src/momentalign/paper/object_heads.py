"""Heads on frozen features (Section 6.4): stacks of networks with dropout and whole-sample batches.

Zellinger et al. (2019) put a layer of 256 sigmoid units and a softmax on the features of a frozen network; that layer
is aligned, before its dropout. Classes of the source are balanced and the smaller domain is repeated: repeated rows
have the same activations and differ in their dropout alone, so activations are computed once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from momentalign.discrepancies.base import Stacked
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.errors import DivergedError
from momentalign.networks.shallow import initial_layers
from momentalign.training.config import NetworkSpec, Optimizer, balanced_order, order_by_shares
from momentalign.training.stack_distance import StackDistance, stack_weights
from momentalign.training.torch_engine import (
    cross_entropy,
    make_optimizer,
    one_thread,
    open_device,
)

__all__ = ["HeadConfig", "HeadTask", "MMDOfSomeRows", "TrainedHead", "seconds_per_update", "train_heads"]

# Updates between two evaluations on the source.
EVALUATE_EVERY = 50
# The MMD compares all pairs of rows; of larger samples so many rows of each are drawn for every update.
MMD_ROWS = 500


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

"""Many shallow networks in one call: epochs, early stopping and history of each (Algorithm 1).

A sweep is the primitive. Grids, repetitions and selection are stacks; one network is a stack of one.
A network trained in a stack is the network trained alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from joblib import Parallel, delayed
from torch import Tensor

from momentalign.errors import DivergedError, InvalidInputError
from momentalign.networks.shallow import Layer
from momentalign.progress import EpochReport
from momentalign.training.compiled_engine import CompiledEngine, CompiledTask, compile_loops, is_compilable
from momentalign.training.config import (
    Engine,
    EpochFigures,
    History,
    NetworkSpec,
    Task,
    TrainedNetwork,
    TrainingConfig,
    ValidationFigures,
)
from momentalign.training.grouped import GroupedEngine, are_alike
from momentalign.training.torch_engine import BatchedEngine, one_thread

__all__ = ["as_arrays", "compile_ahead", "run_engine", "train_stack", "train_tasks"]

# A training with a loss or a weight beyond this, or one that is NaN, has diverged.
LARGEST_LOSS = 1e12
# Few enough that a progress bar moves.
EPOCHS_AT_ONCE = 50


def train_stack(
    task: Task,
    config: TrainingConfig,
    specs: Sequence[NetworkSpec],
    *,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Callable[[EpochReport], None] | None = None,
) -> list[TrainedNetwork]:
    """Train one network per spec and return them in order.

    A network with `sharpen` has a second phase, in which the loss on unlabelled target predictions is added
    (:mod:`momentalign.training.target_loss`). It begins where early stopping ends the first one, from its best weights,
    and is as long; without early stopping at half of the epochs. Its last weights are kept.

    Parameters
    ----------
    task, config, specs
        The data, what all networks share, and what each has of its own.
    device
        Where to train: ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
    n_jobs
        Cores that compiled networks are spread over; -1 takes all. It changes no number.
    progress
        Called every few epochs, after each where rows are held out; for each network where they train side by side.
    """
    if not specs:
        raise InvalidInputError("a stack needs at least one spec; give one NetworkSpec per network.")

    def train(config: TrainingConfig, own: Sequence[NetworkSpec]) -> list[TrainedNetwork]:
        return _train_phase(task, config, own, device=device, n_jobs=n_jobs, progress=progress)

    if task.target is None or not any(spec.sharpen for spec in specs):
        return train(config, [replace(spec, sharpen=0.0) if spec.sharpen else spec for spec in specs])
    trained: dict[int, TrainedNetwork] = {}
    plain = [index for index, spec in enumerate(specs) if not spec.sharpen]
    if plain:
        trained.update(zip(plain, train(config, [specs[index] for index in plain]), strict=True))
    sharpened = [index for index, spec in enumerate(specs) if spec.sharpen]
    first = config if config.patience is not None else replace(config, max_epochs=(config.max_epochs + 1) // 2)
    started = train(first, [replace(specs[index], sharpen=0.0) for index in sharpened])
    for index, network in zip(sharpened, started, strict=True):
        length = network.n_epochs if config.patience is not None else max(1, config.max_epochs // 2)
        second = replace(config, max_epochs=length, patience=None, keep="last")
        (further,) = train(second, [replace(specs[index], initial=network.layers)])
        trained[index] = _both_phases(network, further)
    return [trained[index] for index in range(len(specs))]


def _both_phases(first: TrainedNetwork, second: TrainedNetwork) -> TrainedNetwork:
    """The network of the second phase, with the history of both."""
    history = History(**{name: [*own, *vars(second.history)[name]] for name, own in vars(first.history).items()})
    epochs = first.n_epochs + second.n_epochs
    snapshots = first.snapshots | {first.n_epochs + epoch: layers for epoch, layers in second.snapshots.items()}
    return TrainedNetwork(second.layers, epochs, epochs, history, snapshots)


def _train_phase(
    task: Task,
    config: TrainingConfig,
    specs: Sequence[NetworkSpec],
    *,
    device: str,
    n_jobs: int,
    progress: Callable[[EpochReport], None] | None,
) -> list[TrainedNetwork]:
    """Train networks that sharpen from the first update, or never."""
    if device != "cpu" or not is_compilable(task, config, specs):
        return run_engine(BatchedEngine(task, config, specs, device=device), task, config, specs, progress)
    compile_loops(task, config, specs)
    laid_out = CompiledTask(task, config)
    engines = [CompiledEngine(laid_out, task, config, [spec]) for spec in specs]
    calls = [
        delayed(run_engine)(engine, task, config, [spec], progress) for engine, spec in zip(engines, specs, strict=True)
    ]
    return [network for (network,) in Parallel(n_jobs=n_jobs, prefer="threads")(calls)]


def compile_ahead(task: Task, config: TrainingConfig, specs: Sequence[NetworkSpec], *, device: str = "cpu") -> None:
    """Compile here what :func:`train_stack` is about to run on other threads: only the main thread hears a ^C."""
    if device == "cpu" and is_compilable(task, config, specs):
        first_phases = [replace(spec, sharpen=0.0) for spec in specs if spec.sharpen]
        compile_loops(task, config, [*first_phases, *specs])


def train_tasks(
    tasks: Sequence[Task],
    config: TrainingConfig,
    specs: Sequence[NetworkSpec] | Sequence[Sequence[NetworkSpec]],
    *,
    device: str = "cpu",
    n_jobs: int = 1,
) -> list[list[TrainedNetwork]]:
    """Train one network per task and spec; ``result[task][spec]``.

    `specs` are those of every task, or one sequence for each task, all of one length. On an accelerator tasks of one
    shape train side by side; elsewhere one after the other.
    """
    each = _specs_of(tasks, specs)
    sharpens = any(spec.sharpen for own in each for spec in own)
    if device == "cpu" or sharpens or not are_alike(tasks, config):
        return [
            train_stack(task, config, own, device=device, n_jobs=n_jobs) for task, own in zip(tasks, each, strict=True)
        ]
    engine = GroupedEngine(tasks, config, each, device=device)
    trained = run_engine(engine, tasks[0], config, [spec for own in each for spec in own], None)
    return [trained[start : start + len(each[0])] for start in range(0, len(trained), len(each[0]))]


def _specs_of(
    tasks: Sequence[Task], specs: Sequence[NetworkSpec] | Sequence[Sequence[NetworkSpec]]
) -> list[list[NetworkSpec]]:
    """The specs of each task."""
    shared = [spec for spec in specs if isinstance(spec, NetworkSpec)]
    if len(shared) == len(specs):
        return [shared] * len(tasks)
    each = [list(own) for own in specs if not isinstance(own, NetworkSpec)]
    if len(each) != len(tasks) or len({len(own) for own in each}) > 1:
        raise InvalidInputError("specs must be one sequence for all tasks, or one of the same length for each task.")
    return each


def run_engine(
    engine: Engine,
    task: Task,
    config: TrainingConfig,
    specs: Sequence[NetworkSpec],
    progress: Callable[[EpochReport], None] | None,
) -> list[TrainedNetwork]:
    """Drive an engine epoch by epoch until every network has stopped."""
    runs = [_Run(spec, config, held_out=task.validation is not None) for spec in specs]
    training = list(runs)
    epoch = 0
    with one_thread():
        while training and epoch < config.max_epochs:
            figures = engine.run_epochs(_epochs_at_once(epoch, task, config))
            validation = engine.validate() if task.validation is not None else None
            for report in figures:
                epoch += 1
                for index, run in enumerate(training):
                    run.record(epoch, engine, index, report, validation)
            if progress is not None:
                progress(_report(epoch, config, figures[-1], validation))
            left = [index for index, run in enumerate(training) if not run.stopped]
            if 0 < len(left) < len(training):
                engine.retain(left)
            training = [training[index] for index in left]
        for index, run in enumerate(training):
            run.finish(engine, index)
    return [run.result() for run in runs]


def _epochs_at_once(epoch: int, task: Task, config: TrainingConfig) -> int:
    """Epochs until someone has to look at the weights: one where they may be the best, else up to a snapshot."""
    if task.validation is not None or config.patience is not None:
        return 1
    step = config.snapshot_every or EPOCHS_AT_ONCE
    return min(step - epoch % step, EPOCHS_AT_ONCE, config.max_epochs - epoch)


@dataclass
class _Run:
    """The bookkeeping of one network: history, the best epoch so far, and when to stop."""

    spec: NetworkSpec
    config: TrainingConfig
    held_out: bool
    history: History = field(default_factory=History)
    snapshots: dict[int, list[Layer]] = field(default_factory=dict)
    layers: list[Layer] | None = None
    best_epoch: int = 0
    best_score: tuple[float, float] = (-math.inf, -math.inf)
    lowest_loss: float = math.inf
    lowest_epoch: int = 0
    stopped: bool = False

    def record(
        self, epoch: int, engine: Engine, index: int, figures: EpochFigures, validation: ValidationFigures | None
    ) -> None:
        """Take in one epoch: record the figures, keep the weights if they are the best, decide whether to stop."""
        loss, distance = float(figures.source_loss[index]), float(figures.distance[index])
        held_out = 0.0 if validation is None else float(validation.loss[index])
        self._refuse_divergence(epoch, {"source loss": loss, "distance": distance, "validation loss": held_out})
        self.history.source_loss.append(loss)
        self.history.distance.append(distance)
        watched, score = loss + self.spec.weight * distance, (0.0, float(epoch))
        if validation is not None:
            watched, accuracy = held_out, float(validation.accuracy[index])
            self.history.validation_loss.append(watched)
            if math.isnan(accuracy):  # Without classes the loss alone says which epoch is the best.
                score = (0.0, -watched)
            else:
                self.history.validation_accuracy.append(accuracy)
                score = (accuracy, -watched)
        if self.config.keep == "best" and self.held_out and score > self.best_score:
            self.best_score, self.best_epoch, self.layers = score, epoch, engine.layers(index)
        if self.config.snapshot_every and epoch % self.config.snapshot_every == 0:
            self.snapshots[epoch] = engine.layers(index)
        if watched < self.lowest_loss:
            self.lowest_loss, self.lowest_epoch = watched, epoch
        patience = self.config.patience
        if patience is not None and epoch - self.lowest_epoch >= patience:
            self.stopped = True
            self.finish(engine, index)

    def finish(self, engine: Engine, index: int) -> None:
        """Keep the last weights where no better ones were kept."""
        if self.layers is None:
            self.layers, self.best_epoch = engine.layers(index), len(self.history.source_loss)

    def result(self) -> TrainedNetwork:
        assert self.layers is not None  # noqa: S101  (finish was called)
        n_epochs = len(self.history.source_loss)
        snapshots = {epoch: as_arrays(layers) for epoch, layers in self.snapshots.items()}
        layers = as_arrays(self.layers)
        # No loss has seen the last step.
        largest = max(float(np.abs(part).max(initial=0.0)) for layer in layers for part in layer)
        self._refuse_divergence(self.best_epoch, {"largest weight": largest})
        return TrainedNetwork(layers, self.best_epoch, n_epochs, self.history, snapshots)

    def _refuse_divergence(self, epoch: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            if not value < LARGEST_LOSS:
                raise DivergedError(
                    f"training diverged: the {name} of the network with seed {self.spec.seed} and weight "
                    f"{self.spec.weight:g} is {value:g} in epoch {epoch}; lower learning_rate"
                    f"{'' if self.spec.weight == 0 else ' or weight'}, or scale the features."
                )


def as_arrays(layers: Sequence[Layer]) -> list[Layer]:
    """Return weights as arrays; an engine on an accelerator leaves them there until the end."""
    return [Layer(*(part.cpu().numpy() if isinstance(part, Tensor) else part for part in layer)) for layer in layers]


def _report(
    epoch: int, config: TrainingConfig, figures: EpochFigures, validation: ValidationFigures | None
) -> EpochReport:
    accuracy = float(validation.accuracy.mean()) if validation is not None else math.nan
    return EpochReport(
        epoch,
        config.max_epochs,
        len(figures.source_loss),
        float(figures.source_loss.mean()),
        float(figures.distance.mean()),
        accuracy,
    )

"""Many shallow networks in one call: epochs, early stopping and history of each (Algorithm 1).

A sweep is the primitive. Grids, repetitions and selection are stacks; one network is a stack of one.
A network trained in a stack is the network trained alone. The task and the config choose the engine.
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
from momentalign.training.compiled_engine import CompiledEngine, CompiledTask, compile_loops, known_distance
from momentalign.training.config import (
    Engine,
    EpochFigures,
    History,
    NetworkSpec,
    Task,
    TrainedNetwork,
    TrainingConfig,
    ValidationFigures,
    count_batches,
)
from momentalign.training.torch_engine import BatchedEngine, one_thread

__all__ = ["as_arrays", "compile_ahead", "has_loops", "is_compiled", "run_engine", "train_stack"]

# A training with a loss or a weight beyond this, or one that is NaN, has diverged.
LARGEST_LOSS = 1e12
# Few enough that a progress bar moves.
EPOCHS_AT_ONCE = 50
# Compiling takes some seconds, once on a machine. What plain torch does in less than this many seconds is left to it.
WORTH_COMPILING = 0.8
SECONDS_PER_UPDATE = 1e-3
SECONDS_PER_PRODUCT = 3e-10
# A training that may stop early is expected to take so many times its patience.
EPOCHS_PER_PATIENCE = 30


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
    config = config.for_rows(task.source)

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
    if not is_compiled(task, config, specs, device):
        return run_engine(BatchedEngine(task, config, specs, device=device), task, config, specs, progress)
    laid_out = CompiledTask(task, config)
    # Their loops are compiled here: only the main thread hears a ^C.
    engines = [CompiledEngine(laid_out, task, config, spec) for spec in specs]
    calls = [
        delayed(run_engine)(engine, task, config, [spec], progress) for engine, spec in zip(engines, specs, strict=True)
    ]
    return [network for (network,) in Parallel(n_jobs=n_jobs, prefer="threads", require="sharedmem")(calls)]


def is_compiled(
    task: Task,
    config: TrainingConfig,
    specs: Sequence[NetworkSpec],
    device: str,
    *,
    domain_rows: Sequence[int] | None = None,
) -> bool:
    """Whether compiled loops train a stack: they know how, and it is long enough to be worth a first compilation.

    The answer depends on the task and the config, not on what has been compiled before nor on the number of
    networks: the same training gives the same bits on a fresh machine and in any stack. `domain_rows` are the numbers
    of rows of all domains where `task` does not hold them.
    """
    rows = task.domain_rows if domain_rows is None else domain_rows
    worth = config.compiled
    if worth is None:
        worth = _expected_seconds(config, rows, task.source.shape[1]) > WORTH_COMPILING
    return device == "cpu" and worth and all(has_loops(task, config, spec) for spec in specs)


def has_loops(task: Task, config: TrainingConfig, spec: NetworkSpec) -> bool:
    """Whether the compiled loops know how to train a network: one hidden layer, classes, and its distance."""
    return len(config.hidden) == 1 and config.loss == "cross_entropy" and known_distance(task, spec) is not None


def _expected_seconds(config: TrainingConfig, domain_rows: Sequence[int], inputs: int) -> float:
    """About how long torch would take."""
    epochs = config.max_epochs
    if config.patience is not None:
        epochs = min(epochs, EPOCHS_PER_PATIENCE * config.patience)
    updates = max(count_batches(rows, config.batch_size) for rows in domain_rows)
    products = sum(domain_rows) * inputs * config.hidden[0]
    return epochs * (updates * SECONDS_PER_UPDATE + float(products) * SECONDS_PER_PRODUCT)


def compile_ahead(task: Task, config: TrainingConfig, specs: Sequence[NetworkSpec], *, device: str = "cpu") -> None:
    """Compile here what :func:`train_stack` is about to run on other threads: only the main thread hears a ^C."""
    if is_compiled(task, config, specs, device):
        config = config.for_rows(task.source)
        first_phases = [replace(spec, sharpen=0.0) for spec in specs if spec.sharpen]
        compile_loops(task, config, [*first_phases, *specs])


def run_engine(
    engine: Engine,
    task: Task,
    config: TrainingConfig,
    specs: Sequence[NetworkSpec],
    progress: Callable[[EpochReport], None] | None,
) -> list[TrainedNetwork]:
    """Drive an engine until every network has stopped."""
    held_out = task.validation is not None
    # Epochs until someone has to look at the weights: one where they may be the best, else up to a snapshot.
    step = 1 if held_out or config.patience is not None else config.snapshot_every or EPOCHS_AT_ONCE
    runs = [_Run(spec, config) for spec in specs]
    training, epoch = list(runs), 0
    with one_thread():
        while training:
            figures = engine.run_epochs(min(step - epoch % step, EPOCHS_AT_ONCE, config.max_epochs - epoch))
            validation = engine.validate() if held_out else None
            for report in figures:
                epoch += 1
                for index, run in enumerate(training):
                    run.record(epoch, index, report, validation)
            if progress is not None:
                progress(_report(epoch, config, figures[-1], validation))
            left = [index for index, run in enumerate(training) if not run.stopped]
            remaining = [training[index] for index in left]
            for index, run in enumerate(training):
                if run.best_epoch == epoch or (run.stopped and run.layers is None):
                    run.layers = engine.layers(index)
                if config.snapshot_every and epoch % config.snapshot_every == 0:
                    run.snapshots[epoch] = engine.layers(index)
            if 0 < len(left) < len(training):
                engine.keep_only(left)
            training = remaining
    return [run.result() for run in runs]


@dataclass
class _Run:
    """The bookkeeping of one network: history, the best epoch so far, and when to stop."""

    spec: NetworkSpec
    config: TrainingConfig
    history: History = field(default_factory=History)
    snapshots: dict[int, list[Layer]] = field(default_factory=dict)
    layers: list[Layer] | None = None
    """Those of the best epoch, of the last one where none is held to be the best."""
    best_epoch: int | None = None
    best_score: tuple[float, float] = (-math.inf, -math.inf)
    lowest_loss: float = math.inf
    lowest_epoch: int = 0
    stopped: bool = False

    def record(self, epoch: int, index: int, figures: EpochFigures, validation: ValidationFigures | None) -> None:
        """Take in one epoch: record the figures, decide whether its weights are the best and whether to stop."""
        loss, distance = float(figures.source_loss[index]), float(figures.distance[index])
        held_out = 0.0 if validation is None else float(validation.loss[index])
        self._refuse_divergence(epoch, {"source loss": loss, "distance": distance, "validation loss": held_out})
        self.history.source_loss.append(loss)
        self.history.distance.append(distance)
        watched = loss + self.spec.weight * distance
        if validation is not None:
            watched, accuracy = held_out, float(validation.accuracy[index])
            self.history.validation_loss.append(watched)
            if math.isnan(accuracy):  # Without classes the loss alone says which epoch is the best.
                accuracy = 0.0
            else:
                self.history.validation_accuracy.append(accuracy)
            if self.config.keep == "best" and (accuracy, -watched) > self.best_score:
                self.best_score, self.best_epoch = (accuracy, -watched), epoch
        if watched < self.lowest_loss:
            self.lowest_loss, self.lowest_epoch = watched, epoch
        patience = self.config.patience
        self.stopped = epoch == self.config.max_epochs or (
            patience is not None and epoch - self.lowest_epoch >= patience
        )

    def result(self) -> TrainedNetwork:
        assert self.layers is not None  # noqa: S101  (it has stopped)
        n_epochs = len(self.history.source_loss)
        best_epoch = n_epochs if self.best_epoch is None else self.best_epoch
        layers = as_arrays(self.layers)
        # No loss has seen the last step.
        largest = max([float(np.abs(part).max(initial=0.0)) for layer in layers for part in layer])
        self._refuse_divergence(best_epoch, {"largest weight": largest})
        snapshots = {epoch: as_arrays(found) for epoch, found in self.snapshots.items()}
        return TrainedNetwork(layers, best_epoch, n_epochs, self.history, snapshots)

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

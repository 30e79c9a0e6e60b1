"""The compiled engine: compiled loops train one network after the other, each on one core (Algorithm 1).

For networks with one hidden layer and the distances whose gradients are known in closed form. Sparse rows stay
sparse, and dense rows that are mostly zero are treated as sparse.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba.core import event
from numpy.typing import NDArray
from scipy import sparse

from momentalign.discrepancies.base import compiled_form
from momentalign.networks.shallow import Layer, Matrix
from momentalign.training import loops, row_loops, update_loops
from momentalign.training.config import (
    EpochFigures,
    NetworkSpec,
    Task,
    TrainingConfig,
    ValidationFigures,
    domain_sizes,
)
from momentalign.training.distance_loops import Objective, cmd, coral, cv_cmd, dann, marginal_loops, no_distance
from momentalign.training.domain_loops import BETWEEN, WEIGHTINGS, cmd_of_domains
from momentalign.training.kernels import entry_point
from momentalign.training.mmd_loops import mmd
from momentalign.training.target_loss import epochs_between_shares
from momentalign.validation import refuse_other_count

__all__ = ["CompiledEngine", "CompiledTask", "compile_loops", "heard_between_passes", "is_compilable"]

Floats: TypeAlias = NDArray[np.float32]
Handler: TypeAlias = Callable[[int, FrameType | None], Any]

# The loops of each kind of :class:`~momentalign.discrepancies.base.Compiled`. They return the distance of activations
# and write its weight times its gradient.
DISTANCES = {
    None: no_distance,
    "cmd": cmd,
    "cv-cmd": cv_cmd,
    "coral": coral,
    "mmd": mmd,
    "dann": dann,
    "cmd of several domains": cmd_of_domains,
}
# Dense rows with a smaller part of non-zeros are cheaper as sparse ones.
SPARSE_BELOW = 0.2
# Units are filled up to multiples of this.
LANES = 16
# Compiling takes some seconds, once on a machine. What plain torch does in less than this many seconds is left to it.
WORTH_COMPILING = 0.8
SECONDS_PER_UPDATE = 1e-3
SECONDS_PER_PRODUCT = 3e-10
# A training that may stop early is expected to take so many times its patience.
EPOCHS_PER_PATIENCE = 30


def is_compilable(task: Task, config: TrainingConfig, specs: Sequence[NetworkSpec]) -> bool:
    """Whether this engine can train the stack, and the training is long enough to be worth a first compilation.

    The answer depends on the task and the config, not on what has been compiled before nor on the number of
    networks: the same training gives the same bits on a fresh machine and in any stack.
    """
    if len(config.hidden) != 1 or config.loss != "cross_entropy" or config.compiled is False:
        return False
    if not config.compiled and _expected_seconds(task, config) <= WORTH_COMPILING:
        return False
    return all(_objective(task, spec) is not None for spec in specs)


def _expected_seconds(task: Task, config: TrainingConfig) -> float:
    """About how long torch would take."""
    epochs = config.max_epochs
    if config.patience is not None:
        epochs = min(epochs, EPOCHS_PER_PATIENCE * config.patience)
    rows = task.source.shape[0] + (0 if task.target is None else task.target.shape[0])
    products = rows * task.source.shape[1] * config.hidden[0]
    return epochs * (len(config.epoch(task)) * SECONDS_PER_UPDATE + float(products) * SECONDS_PER_PRODUCT)


class _Objective(NamedTuple):
    """A distance: its kind, a key of ``DISTANCES``, and its numbers."""

    kind: str | None
    numbers: Objective


def _objective(task: Task, spec: NetworkSpec) -> _Objective | None:
    """Return what the loops minimise beside the loss, or None where they do not know the distance."""
    if spec.distance is None or not spec.weight:
        return _Objective(None, Objective(0.0, 1, 1.0, 1.0, 0, 0, np.zeros(0), *marginal_loops(1)))
    form = compiled_form(spec.distance)
    kind = None if form is None else form.several if task.has_several_domains else form.kind
    if form is None or kind is None:
        return None
    weighting, weights = "equal", np.zeros(0)
    if kind != form.kind:
        n_sources = 1 if task.source_domains is None else int(task.source_domains.max()) + 1
        refuse_other_count(spec.domain_weights, n_sources)
        if isinstance(spec.domain_weights, str):
            weighting = spec.domain_weights
        else:
            weighting, weights = "numbers", np.array(spec.domain_weights, dtype=np.float64)
    ways = BETWEEN[spec.between], WEIGHTINGS[weighting], weights, *marginal_loops(form.order)
    return _Objective(kind, Objective(float(spec.weight), form.order, form.scale, form.beta, *ways))


def _known_objective(task: Task, spec: NetworkSpec) -> _Objective:
    objective = _objective(task, spec)
    assert objective is not None  # noqa: S101  (is_compilable has been asked)
    return objective


class CompiledTask:
    """The rows of a task laid out batch by batch, shared by all networks of a stack."""

    def __init__(self, task: Task, config: TrainingConfig) -> None:
        is_sparse = _is_mostly_zero(task.source)
        if is_sparse:
            source, target, validation = (_as_csr(rows) for rows in (task.source, task.target, task.validation))
            task = replace(task, source=source, target=target, validation=validation)
        blocks, labels, source_sizes, bounds = [], [], [], []
        for source_rows, target_rows in config.epoch(task):
            parts, codes = [task.source[source_rows]], [task.labels[source_rows]]
            sizes = domain_sizes(task.source_domains, source_rows)
            n_sources = len(sizes)
            if target_rows is not None and task.target is not None:
                parts.append(task.target[target_rows])
                codes.append(np.full(len(target_rows), -1))
                sizes = sizes + domain_sizes(task.target_domains, target_rows)
            blocks.append(_stack_rows(parts))
            labels.append(np.concatenate(codes))
            source_sizes.append(len(source_rows))
            bounds.append(np.cumsum([0, *sizes]))
        self.is_sparse = is_sparse
        self.rows = _row_arrays(_stack_rows(blocks), blocks, is_sparse=is_sparse)
        starts = np.cumsum([0, *(block.shape[0] for block in blocks)])
        codes_of_all = np.concatenate(labels).astype(np.int32)
        self.batches = loops.Batches(starts, np.array(source_sizes), np.stack(bounds), n_sources, codes_of_all)
        self.validation: tuple[row_loops.DenseRows | row_loops.SparseRows, NDArray[np.int32]] | None = None
        if task.validation is not None and task.validation_labels is not None:
            held_out = _row_arrays(task.validation, [task.validation], is_sparse=is_sparse)
            self.validation = held_out, task.validation_labels.astype(np.int32)


class CompiledEngine:
    """Trains networks one after the other, an epoch at a time, on the calling thread."""

    def __init__(
        self, laid_out: CompiledTask, task: Task, config: TrainingConfig, specs: Sequence[NetworkSpec]
    ) -> None:
        self._task, self._config = laid_out, config
        self._networks = [_Network(task, config, spec, is_sparse=laid_out.is_sparse) for spec in specs]

    def run_epochs(self, count: int) -> list[EpochFigures]:
        """Train every network for some epochs."""
        figures = np.stack([network.run_epochs(self._task, count) for network in self._networks], axis=-1)
        return [EpochFigures(losses, distances) for losses, distances in figures]

    def validate(self) -> ValidationFigures:
        """Evaluate every network on the held-out source rows."""
        figures = [network.evaluate(self._task) for network in self._networks]
        return ValidationFigures(*np.array(figures).T)

    def layers(self, index: int) -> list[Layer]:
        """Return a copy of the weights of one network."""
        network = self._networks[index].arrays
        weights, units = network.weights, network.units
        bottom = Layer(weights.bottom[:, :units].copy(), weights.bias[:units].copy())
        return [bottom, Layer(weights.top[:, :units].T.copy(), weights.top_bias.copy())]

    def keep_only(self, indices: Sequence[int]) -> None:
        """Train these networks only."""
        self._networks = [self._networks[index] for index in indices]

    def take(self, task: Task) -> None:
        """Go on with the rows of this task; what is held out stays."""
        held_out = self._task.validation
        # What was laid out last goes before the next is.
        del self._task
        self._task = CompiledTask(task, self._config)
        self._task.validation = held_out

    def state(self) -> CompiledState:
        """Return a copy of all that is no weight of the only network."""
        return self._networks[0].state()

    def restore(self, state: CompiledState) -> None:
        """Take over a copy of what :meth:`state` returned."""
        self._networks[0].restore(state)


class CompiledState(NamedTuple):
    """What training takes along to other rows beside the weights of the network."""

    classifier: Floats
    first: Floats
    second: Floats
    updates: int


class _Network:
    """One network, the sums its optimizer keeps, and how it is trained."""

    def __init__(self, task: Task, config: TrainingConfig, spec: NetworkSpec, *, is_sparse: bool) -> None:
        bottom, top = spec.start(task, config)
        units, objective = bottom.weight.shape[1], _known_objective(task, spec)
        weights, gradient, first, second = (_flat(bottom.weight.shape[0], units, len(top.bias)) for _ in range(4))
        used = weights.flat.size if objective.kind == "dann" else _before_classifier(weights)
        sums = loops.Sums(first.flat, first.bottom), loops.Sums(second.flat, second.bottom)
        self.arrays = loops.Network(weights, gradient, *sums, units, used)
        weights.bottom[:, :units], weights.bias[:units] = bottom
        weights.top[:, :units], weights.top_bias[:] = top.weight.T, top.bias
        sums, polynomials = (part.compiled for part in objective.numbers[-2:])
        self._objective = objective.numbers._replace(sums=sums, polynomials=polynomials)
        self._compares, self._rule = objective.kind is not None, _rule(config)
        self._kernels = _kernels(objective.kind, config, is_sparse=is_sparse, sharpens=spec.sharpen > 0.0)
        self._sharpen, self._shares = float(spec.sharpen), np.ones(len(top.bias))
        self._updates = 0
        self._run: Callable[..., int] | None = None
        self._evaluate: Callable[..., tuple[float, float]] | None = None

    def run_epochs(self, task: CompiledTask, count: int) -> NDArray[np.float64]:
        """Train for some epochs and return source losses and distances, (count, 2)."""
        if not self._sharpen:
            return self._run_epochs(task, count)
        updates = len(task.batches.sources)
        every, figures = epochs_between_shares(updates), []
        while count:
            passed = self._updates // updates % every
            if passed == 0:
                self._look_up_shares(task)
            figures.append(self._run_epochs(task, min(count, every - passed)))
            count -= len(figures[-1])
        return np.concatenate(figures)

    def _look_up_shares(self, task: CompiledTask) -> None:
        """Take the class shares that the network predicts for the target rows of an epoch."""
        weights, units = self.arrays.weights, self.arrays.units
        arguments = task.rows, task.batches, weights, units, self._kernels.forward, self._shares
        entry_point(loops.target_shares, *arguments)(*arguments)

    def _run_epochs(self, task: CompiledTask, count: int) -> NDArray[np.float64]:
        figures = np.empty((count, 2))
        setting = self._objective, self._compares, self._sharpen, self._shares, self._rule, self._kernels
        arguments = task.rows, task.batches, self.arrays, *setting, self._updates, figures
        if self._run is None:
            self._run = entry_point(loops.run_epochs, *arguments)
        self._updates = self._run(*arguments)
        return figures

    def evaluate(self, task: CompiledTask) -> tuple[float, float]:
        """Return mean cross-entropy and accuracy on the held-out rows."""
        assert task.validation is not None  # noqa: S101
        arguments = *task.validation, self.arrays.weights, self.arrays.units, self._kernels.forward
        if self._evaluate is None:
            self._evaluate = entry_point(loops.evaluate, *arguments)
        loss, accuracy = self._evaluate(*arguments)
        return loss, accuracy

    def state(self) -> CompiledState:
        """Return a copy of all that is no weight of the network."""
        weights, _, first, second = self.arrays[:4]
        classifier = weights.flat[_before_classifier(weights) :]
        return CompiledState(classifier.copy(), first.flat.copy(), second.flat.copy(), self._updates)

    def restore(self, state: CompiledState) -> None:
        """Take over a copy of what :meth:`state` returned."""
        weights, _, first, second = self.arrays[:4]
        weights.flat[_before_classifier(weights) :] = state.classifier
        first.flat[:], second.flat[:], self._updates = state.first, state.second, state.updates


def _flat(inputs: int, units: int, classes: int) -> loops.Weights:
    """Zeros for all weights of a network side by side, so that one loop updates them; each part is filled up."""
    units = _filled_up(units)
    shapes = [(inputs, units), (units,), (classes, units), (classes,), (units,), (1,)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    ends = np.cumsum([_filled_up(size) for size in sizes])
    flat = np.zeros(ends[-1], np.float32)
    parts = zip(np.split(flat, ends[:-1]), sizes, shapes, strict=True)
    return loops.Weights(flat, *(part[:size].reshape(shape) for part, size, shape in parts))


def _filled_up(count: int) -> int:
    return -(-count // LANES) * LANES


def _before_classifier(weights: loops.Weights) -> int:
    """How many of the weights are not of the domain classifier."""
    return int(weights.flat.size - _filled_up(weights.classifier.size) - _filled_up(1))


def _kernels(kind: str | None, config: TrainingConfig, *, is_sparse: bool, sharpens: bool) -> loops.Kernels:
    """What the loops are given; compiled here where it is not yet."""
    if not is_sparse:
        forward, descend = row_loops.forward_dense, row_loops.descend_dense
    elif config.optimizer.name == "adagrad":
        forward, descend = row_loops.forward_sparse, row_loops.descend_adagrad_sparse
    else:
        forward, descend = row_loops.forward_sparse, row_loops.descend_sparse
    sharpen = loops.sharpening if sharpens else loops.no_sharpening
    step = update_loops.STEPS[config.optimizer.name]
    return loops.Kernels(*(part.compiled for part in (forward, DISTANCES[kind], descend, sharpen, step)))


def _is_mostly_zero(rows: Matrix) -> bool:
    if sparse.issparse(rows):
        return True
    return bool(np.count_nonzero(rows) < SPARSE_BELOW * rows.size and rows.shape[1] >= 16)


def _as_csr(rows: Matrix | None) -> Matrix | None:
    """Rows as CSR, dense ones read once."""
    if rows is None or sparse.issparse(rows):
        return rows
    return sparse.csr_matrix(row_loops.nonzeros(np.ascontiguousarray(rows, dtype=np.float32)), shape=rows.shape)


def _stack_rows(blocks: list[Matrix]) -> Matrix:
    return sparse.vstack(blocks, format="csr") if sparse.issparse(blocks[0]) else np.concatenate(blocks)


def _row_arrays(
    rows: Matrix, blocks: Sequence[Matrix], *, is_sparse: bool
) -> row_loops.DenseRows | row_loops.SparseRows:
    """Rows as the loops take them, the columns of sparse ones block by block."""
    if not is_sparse:
        # Loops would be compiled once more for arrays that are read-only.
        return row_loops.DenseRows(np.require(rows, np.float32, ["C", "W"]))
    matrix = sparse.csr_matrix(rows)
    columns = [sparse.csc_matrix(block) for block in blocks]
    offsets = np.cumsum([0, *(block.nnz for block in columns)])
    pointers = [block.indptr.astype(np.int64) + offset for block, offset in zip(columns, offsets, strict=False)]
    return row_loops.SparseRows(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float32),
        np.stack(pointers),
        np.concatenate([block.indices for block in columns]).astype(np.int32),
        np.concatenate([block.data for block in columns]).astype(np.float32),
    )


class _Loops(NamedTuple):
    """What tells which loops a network needs."""

    is_sparse: bool
    distance: str | None
    optimizer: str
    held_out: bool
    sharpens: bool


# Those that have run in this process.
_READY: set[_Loops] = set()


def compile_loops(task: Task, config: TrainingConfig, specs: Sequence[NetworkSpec]) -> None:
    """Compile here what engines are about to run on other threads, and say so: only the main thread hears a ^C."""
    is_sparse, held_out = _is_mostly_zero(task.source), task.validation is not None
    missing = {}
    for spec in specs:
        kind = _known_objective(task, spec).kind
        missing[_Loops(is_sparse, kind, config.optimizer.name, held_out, spec.sharpen > 0.0)] = spec
    missing = {needed: spec for needed, spec in missing.items() if needed not in _READY}
    if not missing:
        return
    small = _stand_in(task, is_sparse=is_sparse)
    with event.install_listener("numba:run_pass", _Announcement()), heard_between_passes(), _without_collection():
        engine = CompiledEngine(CompiledTask(small, config), small, config, list(missing.values()))
        engine.run_epochs(1)
        if held_out:
            engine.validate()
    _READY.update(missing)


def _stand_in(task: Task, *, is_sparse: bool) -> Task:
    """A task of the same kind with one row of each domain."""

    def rows(domains: Any) -> Matrix:
        ones = np.ones((1 if domains is None else domains.max() + 1, task.source.shape[1]), np.float32)
        return sparse.csr_matrix(ones) if is_sparse else ones

    def numbers(domains: Any) -> Any:
        return None if domains is None else np.arange(domains.max() + 1)

    source, validation = rows(task.source_domains), None if task.validation is None else rows(None)
    return Task(
        source,
        np.zeros(source.shape[0], np.intp),
        None if task.target is None else rows(task.target_domains),
        task.n_classes,
        validation,
        None if validation is None else np.zeros(1, np.intp),
        numbers(task.source_domains),
        numbers(task.target_domains),
    )


def _rule(config: TrainingConfig) -> update_loops.Rule:
    optimizer = config.optimizer
    kind = update_loops.RULES[optimizer.name]
    return update_loops.Rule(kind, optimizer.rate, float(optimizer.momentum), float(optimizer.decay))


class _Announcement(event.Listener):
    """Says once in a process that loops are compiled; those that are read from numba's cache are not."""

    announced = False

    def on_start(self, _event: Any) -> None:
        if not _Announcement.announced:
            _Announcement.announced = True
            logging.getLogger("momentalign").warning(
                "compiling the training loops, once on this machine (some seconds)"
            )

    def on_end(self, _event: Any) -> None:
        """Nothing is said at the end."""


class _Passes(event.Listener):
    """Calls a function before each pass of the compiler."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def on_start(self, _event: Any) -> None:
        self._function()

    def on_end(self, _event: Any) -> None:
        """Nothing: what an end raised would replace an error of the pass."""


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: looking through all objects again and again takes a tenth of a compilation."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def heard_between_passes() -> Iterator[None]:
    """Hold signals back while numba compiles, and let their usual handlers have them before its next pass.

    Amid a pass the compiler is called back by LLVM, and an exception that a signal's handler raises in such a call is
    lost: the process would go on as if nobody had asked it to stop, or fail with an error of the compiler. On another
    thread than the main one, which alone hears signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers: dict[int, Handler] = {number: handler for number, handler in usual.items() if callable(handler)}
    held: list[int] = []

    def let_go() -> None:
        while held:
            number = held.pop(0)
            handlers[number](number, None)

    try:
        for number in handlers:
            signal.signal(number, lambda number, _frame: held.append(number))
        with event.install_listener("numba:run_pass", _Passes(let_go)):
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    let_go()

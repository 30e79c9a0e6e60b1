"""The compiled engine: each network's epoch is one compiled call on one core (Algorithm 1).

For networks with one hidden layer and the distances whose gradients are known in closed form. Sparse rows stay
sparse, and dense rows that are mostly zero are treated as sparse.

Compilation that can be interrupted: ^C and SIGTERM are heard between the compiler's passes.

Amid a pass the compiler is called back by LLVM, and an exception that a signal's handler raises in such a call is lost:
the process would go on as if nobody had asked it to stop, or fail with an error of the compiler.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.discrepancies.base import compiled_form
from momentalign.discrepancies.domain_pairs import refuse_other_count
from momentalign.networks.shallow import Layer, Matrix
from momentalign.training.config import (
    EpochFigures,
    NetworkSpec,
    OptimizerName,
    Task,
    TrainingConfig,
    ValidationFigures,
    domain_sizes,
)

__all__ = ["CompiledEngine", "CompiledTask", "are_compiled", "compile_loops", "heard_between_passes", "is_compilable"]

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def heard_between_passes() -> Iterator[None]:
    """Hold signals back while numba compiles, and let their usual handlers have them before its next pass.

    On another thread than the main one, which alone hears signals, nothing is changed.
    """
    from numba.core import event

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

    class Passes(event.Listener):
        def on_start(self, _event: Any) -> None:
            let_go()

        def on_end(self, _event: Any) -> None:
            """Nothing: what an end raised would replace an error of the pass."""

    try:
        for number in handlers:
            signal.signal(number, lambda number, _frame: held.append(number))
        with event.install_listener("numba:run_pass", Passes()):
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    let_go()


# Dense rows with a smaller part of non-zeros are cheaper as sparse ones.
SPARSE_BELOW = 0.2
# Units are filled up to multiples of this.
LANES = 16
# Compiling takes up to a minute, once on a machine. What plain torch does in less than this many seconds is left to it;
# what takes longer is rarely done once.
WORTH_COMPILING = 4.0
SECONDS_PER_UPDATE = 1e-3
SECONDS_PER_PRODUCT = 3e-10


def is_compilable(task: Task, config: TrainingConfig, specs: Sequence[NetworkSpec]) -> bool:
    """Whether this engine can train the stack, and the training is long enough to be worth a first compilation.

    The answer depends on the task and the config, not on what has been compiled before nor on the number of
    networks: the same training gives the same bits on a fresh machine and in any stack.
    """
    if len(config.hidden) != 1 or config.compiled is False:
        return False
    if config.compiled:
        return all(_objective(task, spec) is not None for spec in specs)
    updates = config.max_epochs * len(config.epoch(task))
    rows = task.source.shape[0] + (0 if task.target is None else task.target.shape[0])
    products = config.max_epochs * rows * task.source.shape[1] * config.hidden[0]
    if updates * SECONDS_PER_UPDATE + products * SECONDS_PER_PRODUCT <= WORTH_COMPILING:
        return False
    return all(_objective(task, spec) is not None for spec in specs)


def are_compiled() -> bool:
    """Whether the loops have been compiled on this machine."""
    from momentalign.training import loops

    dispatcher: Any = loops.run_epochs
    return bool(dispatcher.signatures) or any(Path(dispatcher.stats.cache_path).glob("loops.run_epochs-*.nbi"))


def compile_loops(engine: CompiledEngine) -> None:
    """Compile the loops, once on a machine, and say so: by no epoch of an engine, on the thread that calls this."""
    if not are_compiled():
        logging.getLogger("momentalign").warning("compiling the training loops, once on this machine (up to a minute)")
        with heard_between_passes():
            engine.run_epochs(0)


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
        starts = np.cumsum([0, *(block.shape[0] for block in blocks)])
        self.layout = (starts, np.array(source_sizes), np.stack(bounds), n_sources)
        self.data = (
            *_row_arrays(_stack_rows(blocks), is_sparse),
            *_column_arrays(blocks, is_sparse),
            np.concatenate(labels).astype(np.int32),
        )
        self.validation = None
        if task.validation is not None and task.validation_labels is not None:
            held_out = task.validation_labels.astype(np.int32)
            self.validation = (*_row_arrays(task.validation, is_sparse), held_out)


class CompiledEngine:
    """Trains networks one after the other, an epoch at a time, on the calling thread."""

    def __init__(
        self, laid_out: CompiledTask, task: Task, config: TrainingConfig, specs: Sequence[NetworkSpec]
    ) -> None:
        self._task = laid_out
        self._networks = [_Network(task, config, spec) for spec in specs]

    def run_epochs(self, count: int) -> list[EpochFigures]:
        """Train every network for some epochs, each in one call."""
        figures = np.stack([network.run_epochs(self._task, count) for network in self._networks], axis=-1)
        return [EpochFigures(losses, distances) for losses, distances in figures]

    def run_epoch(self) -> EpochFigures:
        """Train every network for one epoch."""
        return self.run_epochs(1)[0]

    def validate(self) -> ValidationFigures:
        """Evaluate every network on the held-out source rows."""
        from momentalign.training.loops import evaluate

        figures = [evaluate(self._task.validation, network.weights) for network in self._networks]
        return ValidationFigures(np.array([loss for loss, _ in figures]), np.array([right for _, right in figures]))

    def layers(self, index: int) -> list[Layer]:
        """Return a copy of the weights of one network."""
        weight, bias, top, top_bias, *_, units = self._networks[index].weights
        return [Layer(weight[:, :units].copy(), bias[:units].copy()), Layer(top[:, :units].T.copy(), top_bias.copy())]

    def retain(self, indices: Sequence[int]) -> None:
        """Go on with these networks only."""
        self._networks = [self._networks[index] for index in indices]


class _Network:
    """The weights of one network and the state of its optimizer."""

    def __init__(self, task: Task, config: TrainingConfig, spec: NetworkSpec) -> None:
        bottom, top = spec.start(task, config)
        self.units = bottom.weight.shape[1]
        parts = [_padded(part) for part in (bottom.weight, bottom.bias, top.weight.T)]
        parts += [top.bias.astype(np.float32), np.zeros_like(parts[1]), np.zeros(1, np.float32)]
        self.weights = (*parts, self.units)
        self._state = tuple(np.zeros_like(part) for part in parts for _ in range(2))
        self._objective = _objective(task, spec)
        optimizer = config.optimizer
        self._rule = (_rules()[optimizer.name], optimizer.rate, float(optimizer.momentum), float(optimizer.decay))
        self._step = 0

    def run_epochs(self, laid_out: CompiledTask, count: int) -> NDArray[np.float64]:
        """Train for some epochs and return source losses and distances, (count, 2)."""
        from momentalign.training.loops import run_epochs

        figures = np.empty((count, 2))
        self._step = run_epochs(
            laid_out.data, laid_out.layout, self.weights, self._state, self._objective, self._rule, self._step, figures
        )
        return figures


def _padded(array: NDArray[Any]) -> NDArray[np.float32]:
    """A copy whose last dimension, the units, is filled up with zeros to whole vector registers."""
    units = array.shape[-1]
    padded = np.zeros((*array.shape[:-1], -(-units // LANES) * LANES), np.float32)
    padded[..., :units] = array
    return padded


def _rules() -> dict[OptimizerName, int]:
    from momentalign.training import loops as step_loops

    return {
        "adagrad": step_loops.ADAGRAD,
        "adadelta": step_loops.ADADELTA,
        "sgd": step_loops.SGD,
        "adam": step_loops.ADAM,
    }


def _objective(task: Task, spec: NetworkSpec) -> tuple[Any, ...] | None:
    """Return what the compiled loops call the objective, or None where they do not know the distance."""
    from momentalign.training import distance_loops

    if spec.distance is None or not spec.weight:
        return (distance_loops.NO_DISTANCE, 0.0, 1, 1.0, 1.0, 0, 0, np.zeros(0))
    form = compiled_form(spec.distance)
    kind = None if form is None else form.several if task.has_several_domains else form.kind
    if form is None or kind is None:
        return None
    ways = (0, 0, np.zeros(0))
    if kind != form.kind:
        n_sources = 1 if task.source_domains is None else int(task.source_domains.max()) + 1
        refuse_other_count(spec.domain_weights, n_sources)
        ways = _ways(spec)
    return (distance_loops.KINDS[kind], float(spec.weight), form.order, form.scale, form.beta, *ways)


def _ways(spec: NetworkSpec) -> tuple[int, int, NDArray[np.float64]]:
    """What is compared and how domains weigh, as the loops number it."""
    from momentalign.training import distance_loops as domain_loops

    compared = {"pooled": domain_loops.POOLED, "pairs": domain_loops.PAIRS, "barycentre": domain_loops.BARYCENTRE}
    known = {"equal": domain_loops.EQUAL, "size": domain_loops.SIZE, "similarity": domain_loops.SIMILARITY}
    weights = spec.domain_weights
    if isinstance(weights, str):
        return compared[spec.between], known[weights], np.zeros(0)
    return compared[spec.between], domain_loops.NUMBERS, np.array(weights, dtype=np.float64)


def _is_mostly_zero(rows: Matrix) -> bool:
    if sparse.issparse(rows):
        return True
    return bool(np.count_nonzero(rows) < SPARSE_BELOW * rows.size and rows.shape[1] >= 16)


def _as_csr(rows: Matrix | None) -> Matrix | None:
    """Rows as CSR, dense ones read once."""
    if rows is None or sparse.issparse(rows):
        return rows
    from momentalign.training.loops import nonzeros

    return sparse.csr_matrix(nonzeros(np.ascontiguousarray(rows, dtype=np.float32)), shape=rows.shape)


def _stack_rows(blocks: list[Matrix]) -> Matrix:
    return sparse.vstack(blocks, format="csr") if sparse.issparse(blocks[0]) else np.concatenate(blocks)


def _row_arrays(rows: Matrix, is_sparse: bool) -> tuple[Any, ...]:
    """(is_sparse, dense, indptr, indices, values), the unused ones empty."""
    if not is_sparse:
        dense = np.ascontiguousarray(rows, dtype=np.float32)
        return (False, dense, np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    matrix = sparse.csr_matrix(rows)
    return (
        True,
        np.zeros((0, matrix.shape[1]), np.float32),
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float32),
    )


def _column_arrays(blocks: list[Matrix], is_sparse: bool) -> tuple[Any, ...]:
    """Columns of each batch: pointers (batches, inputs + 1) into common row numbers and values."""
    if not is_sparse:
        return (np.zeros((1, 1), np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    columns = [sparse.csc_matrix(block) for block in blocks]
    offsets = np.cumsum([0, *(matrix.nnz for matrix in columns)])
    return (
        np.stack([matrix.indptr.astype(np.int64) + offset for matrix, offset in zip(columns, offsets, strict=False)]),
        np.concatenate([matrix.indices for matrix in columns]).astype(np.int32),
        np.concatenate([matrix.data for matrix in columns]).astype(np.float32),
    )

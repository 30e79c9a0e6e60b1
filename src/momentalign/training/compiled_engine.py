"""The compiled engine: compiled loops train a network, on one core (Algorithm 1).

For networks with one hidden layer and the distances whose gradients are known in closed form. Sparse rows stay
sparse, and dense rows that are mostly zero are treated as sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray
from scipy import sparse

from momentalign.discrepancies.base import Compiled, compiled_form
from momentalign.networks.shallow import Layer, Matrix
from momentalign.training import loops, row_loops, update_loops
from momentalign.training.config import (
    Engine,
    EpochFigures,
    NetworkSpec,
    Task,
    TrainingConfig,
    ValidationFigures,
    domain_sizes,
)
from momentalign.training.distance_loops import (
    OBJECTIVE,
    Objective,
    cmd,
    coral,
    cv_cmd,
    dann,
    marginal_loops,
    no_distance,
)
from momentalign.training.domain_loops import BETWEEN, WEIGHTINGS, cmd_of_domains
from momentalign.training.kernels import FLOATS, WIDE, compiling, entry_point, named_tuple
from momentalign.training.mmd_loops import mmd
from momentalign.training.target_loss import epochs_between_shares
from momentalign.training.update_loops import ADAGRAD, NETWORK, RULE, WEIGHTS
from momentalign.validation import refuse_other_count

__all__ = ["CompiledEngine", "CompiledTask", "compile_loops", "known_distance"]

Floats: TypeAlias = NDArray[np.float32]

# The loops of each kind of :class:`~momentalign.discrepancies.base.Compiled`. They return the distance of activations
# and write its weight times its gradient.
DISTANCES = {
    "none": no_distance,
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


def known_distance(task: Task, spec: NetworkSpec) -> Compiled | None:
    """Return how the loops compute the distance of a network; None where they do not know it."""
    if spec.distance is None or not spec.weight:
        return Compiled("none")
    form = compiled_form(spec.distance)
    if form is None or not task.has_several_domains:
        return form
    return None if form.several is None else form._replace(kind=form.several)


class Loops(NamedTuple):
    """The loops a training needs, as Python calls them, and the kernels they are given."""

    distance: Compiled
    kernels: loops.Kernels
    marginals: tuple[Any, Any]
    run_epochs: Any
    evaluate: Any
    target_shares: Any


def compile_loops(task: Task, config: TrainingConfig, specs: Sequence[NetworkSpec]) -> None:
    """Compile what engines are about to run on other threads: only the main thread hears a ^C."""
    is_sparse = _is_mostly_zero(task.source)
    for spec in specs:
        _loops_of(task, config, spec, is_sparse=is_sparse)


def _loops_of(task: Task, config: TrainingConfig, spec: NetworkSpec, *, is_sparse: bool) -> Loops:
    form, validates = known_distance(task, spec), task.validation is not None
    assert form is not None  # noqa: S101  (whoever chose this engine has asked)
    rule = update_loops.RULES.index(config.optimizer.name)
    return _loops(form, rule, is_sparse=is_sparse, validates=validates, sharpens=spec.sharpen > 0.0)


@cache
def _loops(distance: Compiled, rule: int, *, is_sparse: bool, validates: bool, sharpens: bool) -> Loops:
    rows, forward, descend = row_loops.DENSE, row_loops.forward_dense, row_loops.descend_dense
    if is_sparse:
        rows, forward = row_loops.SPARSE, row_loops.forward_sparse
        descend = row_loops.descend_adagrad_sparse if rule == ADAGRAD else row_loops.descend_sparse
    sharpen = loops.sharpening if sharpens else loops.no_sharpening
    parts = forward, DISTANCES[distance.kind], descend, sharpen, update_loops.STEPS[rule]
    addresses = named_tuple(loops.Kernels, *(part.kind for part in parts))
    numbers = OBJECTIVE, types.boolean, types.float64, FLOATS, RULE
    predictions = WEIGHTS, types.int64, forward.kind
    with compiling():
        sums, polynomials = marginal_loops(distance.order)
        return Loops(
            distance,
            loops.Kernels(*(part.compiled for part in parts)),
            (sums.compiled, polynomials.compiled),
            entry_point(loops.run_epochs, rows, loops.BATCHES, NETWORK, *numbers, addresses, types.int64, WIDE),
            entry_point(loops.evaluate, rows, loops.CODES, *predictions) if validates else None,
            entry_point(loops.target_shares, rows, loops.BATCHES, *predictions, FLOATS) if sharpens else None,
        )


class CompiledTask:
    """The rows of a task laid out batch by batch, shared by all networks of a stack."""

    def __init__(self, task: Task, config: TrainingConfig, *, is_sparse: bool | None = None) -> None:
        self.is_sparse = _is_mostly_zero(task.source) if is_sparse is None else is_sparse
        if self.is_sparse:
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
            bounds.append(np.cumsum([0, *sizes], dtype=np.int64))
        self.rows = _row_arrays(_stack_rows(blocks), blocks, is_sparse=self.is_sparse)
        starts = np.cumsum([0, *(block.shape[0] for block in blocks)], dtype=np.int64)
        sources, codes_of_all = np.array(source_sizes, dtype=np.int64), np.concatenate(labels).astype(np.int32)
        self.batches = loops.Batches(starts, sources, np.stack(bounds), n_sources, codes_of_all)
        self.validation: tuple[row_loops.DenseRows | row_loops.SparseRows, NDArray[np.int32]] | None = None
        if task.validation is not None and task.validation_labels is not None:
            held_out = _row_arrays(task.validation, [task.validation], is_sparse=self.is_sparse)
            self.validation = held_out, task.validation_labels.astype(np.int32)


class CompiledState(NamedTuple):
    """What training takes along to other rows beside the weights of the network."""

    classifier: Floats
    first: Floats
    second: Floats
    updates: int


class CompiledEngine(Engine):
    """Trains one network, on the calling thread."""

    def __init__(self, laid_out: CompiledTask, task: Task, config: TrainingConfig, spec: NetworkSpec) -> None:
        self._task, self._config, self._sharpen = laid_out, config, float(spec.sharpen)
        self._loops = _loops_of(task, config, spec, is_sparse=laid_out.is_sparse)
        bottom, top = spec.start(task, config)
        inputs, units, classes = *bottom.weight.shape, len(top.bias)
        weights, gradient, first, second = (_flat(inputs, units, classes) for _ in range(4))
        weights.bottom[:, :units], weights.bias[:units] = bottom
        weights.top[:, :units], weights.top_bias[:] = top.weight.T, top.bias
        used = weights.flat.size if self._loops.distance.kind == "dann" else _before_classifier(weights)
        self._network = update_loops.Network(weights, gradient, first, second, units, used)
        optimizer, self._shares, self._updates = config.optimizer, np.ones(classes), 0
        kind = update_loops.RULES.index(optimizer.name)
        rule = update_loops.Rule(kind, optimizer.rate, float(optimizer.momentum), float(optimizer.decay))
        objective, compares = _objective(task, spec, self._loops), self._loops.distance.kind != "none"
        self._setting = objective, compares, self._sharpen, self._shares, rule, self._loops.kernels

    def run_epochs(self, count: int) -> list[EpochFigures]:
        """Train the network for some epochs."""
        figures: list[EpochFigures] = []
        while len(figures) < count:
            left = count - len(figures)
            if self._sharpen:
                updates = len(self._task.batches.sources)
                every = epochs_between_shares(updates)
                passed = self._updates // updates % every
                if passed == 0:
                    self._look_up_shares()
                left = min(left, every - passed)
            found = np.empty((left, 2))
            arguments = self._task.rows, self._task.batches, self._network, *self._setting
            self._updates = self._loops.run_epochs(*arguments, self._updates, found)
            figures += [EpochFigures(*values) for values in found[:, :, None]]
        return figures

    def _look_up_shares(self) -> None:
        """Take the class shares that the network predicts for the target rows of an epoch."""
        arguments = self._task.rows, self._task.batches, self._network.weights, self._network.units
        self._loops.target_shares(*arguments, self._loops.kernels.forward, self._shares)

    def validate(self) -> ValidationFigures:
        """Evaluate the network on the held-out source rows."""
        assert self._task.validation is not None  # noqa: S101
        arguments = *self._task.validation, self._network.weights, self._network.units, self._loops.kernels.forward
        return ValidationFigures(*np.array(self._loops.evaluate(*arguments))[:, None])

    def layers(self, index: int = 0) -> list[Layer]:  # noqa: ARG002
        """Return a copy of the weights of the network."""
        weights, units = self._network.weights, self._network.units
        bottom = Layer(weights.bottom[:, :units].copy(), weights.bias[:units].copy())
        return [bottom, Layer(weights.top[:, :units].T.copy(), weights.top_bias.copy())]

    def take(self, task: Task) -> None:
        """Go on with the rows of this task; what is held out stays."""
        held_out, is_sparse = self._task.validation, self._task.is_sparse
        # What was laid out last goes before the next is.
        del self._task
        self._task = CompiledTask(task, self._config, is_sparse=is_sparse)
        self._task.validation = held_out

    def state(self) -> CompiledState:
        """Return a copy of all that is no weight of the network."""
        weights, first, second = self._network.weights, self._network.first, self._network.second
        classifier = weights.flat[_before_classifier(weights) :]
        return CompiledState(classifier.copy(), first.flat.copy(), second.flat.copy(), self._updates)

    def restore(self, state: CompiledState) -> None:
        """Take over a copy of what :meth:`state` returned."""
        weights, first, second = self._network.weights, self._network.first, self._network.second
        weights.flat[_before_classifier(weights) :] = state.classifier
        first.flat[:], second.flat[:], self._updates = state.first, state.second, state.updates


def _objective(task: Task, spec: NetworkSpec, found: Loops) -> Objective:
    """The numbers of the distance that a network minimises beside the loss."""
    kind, order, scale, beta, _ = found.distance
    weights, numbers = spec.domain_weights, np.zeros(0)
    if kind == "cmd of several domains":
        refuse_other_count(weights, len(domain_sizes(task.source_domains, np.arange(len(task.labels)))))
    if not isinstance(weights, str):
        numbers = np.array(weights, dtype=np.float64)
    weighting = WEIGHTINGS[weights if isinstance(weights, str) else "numbers"]
    compared = BETWEEN[spec.between], weighting, numbers
    weight = 0.0 if kind == "none" else float(spec.weight)
    return Objective(weight, order, float(scale), float(beta), *compared, *found.marginals)


def _flat(inputs: int, units: int, classes: int) -> update_loops.Weights:
    """Zeros for all weights of a network side by side, so that one loop updates them; each part is filled up."""
    units = _filled_up(units)
    shapes = [(inputs, units), (units,), (classes, units), (classes,), (units,), (1,)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    ends = np.cumsum([_filled_up(size) for size in sizes])
    flat = np.zeros(ends[-1], np.float32)
    parts = zip(np.split(flat, ends[:-1]), sizes, shapes, strict=True)
    return update_loops.Weights(flat, *(part[:size].reshape(shape) for part, size, shape in parts))


def _filled_up(count: int) -> int:
    return -(-count // LANES) * LANES


def _before_classifier(weights: update_loops.Weights) -> int:
    """How many of the weights are not of the domain classifier."""
    return int(weights.flat.size - _filled_up(weights.classifier.size) - _filled_up(1))


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

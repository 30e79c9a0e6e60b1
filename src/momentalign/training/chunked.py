"""Training on data larger than memory: rows arrive in chunks, in order, and leave again (Algorithm 1).

Batches are cut from the stream of rows as :func:`~momentalign.training.config.batches` cuts them from a matrix, and
paired as Section 6.3 of Zellinger et al. (2019) pairs them, whatever the chunks they came in: the size of a chunk
changes time and memory, and no bit of the network. No more rows are held than a chunk of each domain, a block of
batches and the held-out ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import Layer, Matrix
from momentalign.progress import EpochReport
from momentalign.training.compiled_engine import CompiledEngine, CompiledTask
from momentalign.training.config import (
    Engine,
    EpochFigures,
    NetworkSpec,
    Task,
    TrainedNetwork,
    TrainingConfig,
    ValidationFigures,
    count_batches,
)
from momentalign.training.stack import as_arrays, is_compiled, run_engine
from momentalign.training.torch_engine import BatchedEngine

__all__ = ["ChunkedTask", "Labelled", "TrainingState", "blocks", "resume", "stream_batches", "train_chunks"]

# Numbers of one domain that are laid out for the loops at a time: 4 MB, some hundredths of a second.
BLOCK = 2**20


@dataclass(frozen=True)
class TrainingState:
    """Where the training of one network stopped, for it to be resumed on other rows.

    Attributes
    ----------
    compiled
        Whether compiled loops train it; they are not left in between, the two engines round differently.
    layers
        Its weights as the engine has them, float64 in the batched one.
    engine
        What else the engine keeps: the optimizer's sums, the domain classifier, the number of updates.
    """

    compiled: bool
    layers: list[Layer]
    engine: Any


def resume(
    task: Task, config: TrainingConfig, spec: NetworkSpec, *, device: str = "cpu", state: TrainingState | None = None
) -> tuple[TrainingState, EpochFigures]:
    """Train one network for one epoch on the rows of a task, from the state it stopped in; return the new one.

    `state` is left as it is: whoever is interrupted can resume from it once more.

    Examples
    --------
    >>> import numpy as np
    >>> rows, labels = np.array([[0.0], [1.0], [0.1], [0.9]], np.float32), np.array([0, 1, 0, 1])
    >>> config = TrainingConfig(hidden=(2,), batch_size=2)
    >>> whole, _ = resume(Task(rows, labels, None, 2), config, NetworkSpec(seed=0))
    >>> half, _ = resume(Task(rows[:2], labels[:2], None, 2), config, NetworkSpec(seed=0))
    >>> both, _ = resume(Task(rows[2:], labels[2:], None, 2), config, NetworkSpec(seed=0), state=half)
    >>> bool((both.layers[0].weight == whole.layers[0].weight).all())
    True
    """
    config = config.for_rows(task.source)
    compiled = is_compiled(task, config, [spec], device) if state is None else state.compiled
    if state is not None:
        spec = replace(spec, initial=state.layers)
    engine = _open_engine(task, config, spec, device, compiled=compiled)
    if state is not None:
        engine.restore(state.engine)
    (figures,) = engine.run_epochs(1)
    return TrainingState(compiled, as_arrays(engine.layers(0)), engine.state()), figures


def _open_engine(
    task: Task, config: TrainingConfig, spec: NetworkSpec, device: str, *, compiled: bool
) -> BatchedEngine | CompiledEngine:
    """Return an engine with the weights the spec starts from and the rows of a task."""
    if compiled:
        return CompiledEngine(CompiledTask(task, config), task, config, spec)
    return BatchedEngine(task, config, [spec], device=device)


class Labelled(NamedTuple):
    """Rows and their labels; those of the target have none."""

    rows: Matrix
    labels: NDArray[Any] | None


Chunks: TypeAlias = Callable[[], Iterable[Labelled]]


@dataclass(frozen=True)
class ChunkedTask:
    """A :class:`~momentalign.training.config.Task` whose rows are read again in every epoch.

    Attributes
    ----------
    source, target
        Functions that return all chunks from the first on, float32 rows of one kind (dense or CSR), those of the source
        with labels as a :class:`Task` has them; no target is None.
    source_rows, target_rows
        How many rows they hold.
    empty
        A :class:`Task` without rows, of the right width and kind, with the held-out rows.
    """

    source: Chunks
    target: Chunks | None
    source_rows: int
    target_rows: int
    empty: Task


def train_chunks(
    chunked: ChunkedTask,
    config: TrainingConfig,
    spec: NetworkSpec,
    *,
    device: str = "cpu",
    progress: Callable[[EpochReport], None] | None = None,
) -> TrainedNetwork:
    """Train one network as :func:`~momentalign.training.stack.train_stack` does, without ever holding all rows.

    The weights are those of ``train_stack`` on the same rows in the same order, bit by bit; where dense rows are mostly
    zero, every block of batches is looked at by itself, and the last digits may differ.
    """
    if config.batch_size is None:
        raise InvalidInputError("batch_size=None needs the whole sample, chunks hold a part of it; try batch_size=300.")
    config, rows = config.for_rows(chunked.empty.source), (chunked.source_rows, chunked.target_rows)
    compiled = is_compiled(chunked.empty, config, [spec], device, domain_rows=rows)
    inner = _open_engine(chunked.empty, config, spec, device, compiled=compiled)
    (network,) = run_engine(_ChunkedEngine(inner, chunked, config), chunked.empty, config, [spec], progress)
    return network


class _ChunkedEngine(Engine):
    """One network; an epoch is a pass over all chunks."""

    def __init__(self, inner: BatchedEngine | CompiledEngine, chunked: ChunkedTask, config: TrainingConfig) -> None:
        self._inner, self._chunked, self._config = inner, chunked, config

    def run_epochs(self, count: int) -> list[EpochFigures]:
        return [self._run_epoch() for _ in range(count)]

    def _run_epoch(self) -> EpochFigures:
        figures, updates = [], []
        for task in blocks(self._chunked, self._config):
            updates.append(len(self._config.epoch(task)))
            self._inner.take(task)
            del task
            figures += self._inner.run_epochs(1)
        return EpochFigures(*np.average(np.array(figures), axis=0, weights=updates))

    def validate(self) -> ValidationFigures:
        return self._inner.validate()

    def layers(self, index: int) -> list[Layer]:
        return self._inner.layers(index)


def blocks(chunked: ChunkedTask, config: TrainingConfig) -> Iterator[Task]:
    """Yield the rows of one epoch as small tasks, which ``config.epoch`` cuts into the batches of the whole.

    Only the last pair of a block may have a batch of another size than the config's, or they would be cut elsewhere.
    """
    size = config.batch_size
    assert size is not None  # noqa: S101  (train_chunks has refused it)
    block: list[tuple[Labelled, ...]] = []
    for pair in _pairs(chunked, size):
        block.append(pair)
        odd = any(part.rows.shape[0] != size for part in pair)
        if odd or (len(block) + 1) * size * pair[0].rows.shape[1] > BLOCK:
            task, block = _as_task(block, chunked.empty.n_classes), []
            yield task
            # Or two blocks were held while the next one is put together.
            del task
    if block:
        yield _as_task(block, chunked.empty.n_classes)


def _pairs(chunked: ChunkedTask, size: int) -> Iterator[tuple[Labelled, ...]]:
    """Pairs of batches; the longer domain ends the epoch, the shorter one is read again."""
    domains = [chunks for chunks in (chunked.source, chunked.target) if chunks is not None]
    count = max(count_batches(rows, size) for rows in (chunked.source_rows, chunked.target_rows))
    return islice(zip(*(_again_and_again(chunks, size) for chunks in domains), strict=True), count)


def _again_and_again(chunks: Chunks, size: int) -> Iterator[Labelled]:
    while True:
        yield from stream_batches(chunks(), size)


def stream_batches(chunks: Iterable[Labelled], size: int) -> Iterator[Labelled]:
    """Yield rows that arrive in chunks of any size in the batches of :func:`~momentalign.training.config.batches`.

    Examples
    --------
    >>> chunks = [Labelled(np.zeros((rows, 2)), np.zeros(rows)) for rows in (500, 1, 899)]
    >>> [len(batch.labels) for batch in stream_batches(chunks, 300)]
    [300, 300, 300, 300, 200]
    """
    held: list[Labelled] = []
    count = 0
    for chunk in chunks:
        held.append(chunk)
        count += chunk.rows.shape[0]
        # The last batch may still grow.
        stop = size * (count_batches(count, size) - 1)
        if not stop:
            continue
        joined = _join(held)
        yield from (_cut(joined, start, start + size) for start in range(0, stop, size))
        # A copy, so that the chunk itself can go.
        held, count = [_cut(joined, stop, count, copy=True)], count - stop
    if count:
        yield _join(held)


def _join(parts: Sequence[Labelled]) -> Labelled:
    if len(parts) == 1:
        return parts[0]
    matrices = [part.rows for part in parts]
    rows = sparse.vstack(matrices, format="csr") if sparse.issparse(matrices[0]) else np.concatenate(matrices)
    labels = [part.labels for part in parts if part.labels is not None]
    return Labelled(rows, np.concatenate(labels) if labels else None)


def _cut(part: Labelled, start: int, stop: int, *, copy: bool = False) -> Labelled:
    rows = part.rows[start:stop]
    return Labelled(rows.copy() if copy else rows, None if part.labels is None else part.labels[start:stop])


def _as_task(block: Sequence[tuple[Labelled, ...]], n_classes: int) -> Task:
    source, *target = (_join(parts) for parts in zip(*block, strict=True))
    assert source.labels is not None  # noqa: S101
    return Task(source.rows, source.labels, target[0].rows if target else None, n_classes)

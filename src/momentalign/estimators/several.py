"""Several networks trained one beside the other on threads; an interrupt keeps those that are finished.

On a CPU every network is a stack of its own; on an accelerator all networks of one task and config are one stack. A
network trained in a stack is the network trained alone, so this changes no number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event, Lock

from momentalign.progress import EpochReport
from momentalign.training.config import NetworkSpec, Task, TrainedNetwork, TrainingConfig
from momentalign.training.stack import compile_ahead, train_stack

__all__ = ["Running", "Training", "train_each"]

Training = tuple[Task, TrainingConfig, NetworkSpec]
"""What one network is trained on, how, and what it has of its own."""


class _Stopped(Exception):  # noqa: N818  (it ends a thread, nothing is wrong)
    """Ends the training in a thread."""


@dataclass
class _Stack:
    """Networks that train together: which they are, and how far they have come."""

    indices: list[int]
    task: Task
    config: TrainingConfig
    specs: list[NetworkSpec]
    finished: int = 0
    most: int = 0


@dataclass(frozen=True)
class Running:
    """How several networks train; it changes no number.

    Attributes
    ----------
    device
        Where they train.
    threads
        How many stacks train at once on a CPU.
    progress
        Called with the number of finished epochs of all networks and how many there will be at most; one call at a
        time.
    keep_finished
        Whether an interrupt (^C) ends the training and keeps the networks that were finished, instead of being raised.
    """

    device: str = "cpu"
    threads: int = 1
    progress: Callable[[int, int], None] | None = None
    keep_finished: bool = False


def train_each(trainings: Sequence[Training], running: Running) -> tuple[dict[int, TrainedNetwork], bool]:
    """Return the trained networks by their index, and whether an interrupt cut the training short.

    Examples
    --------
    >>> import numpy as np
    >>> task = Task(np.eye(4, dtype=np.float32), np.array([0, 0, 1, 1]), None, 2)
    >>> networks, interrupted = train_each([(task, TrainingConfig(max_epochs=3), NetworkSpec(0))] * 2, Running())
    >>> [network.n_epochs for network in networks.values()], interrupted
    ([3, 3], False)
    """
    device, progress = running.device, running.progress
    stacks = _stacks(trainings, device)
    stop, lock, interrupted = Event(), Lock(), False

    def show() -> None:
        if progress is not None:
            with lock:
                progress(sum(stack.finished for stack in stacks), sum(stack.most for stack in stacks))

    def train(stack: _Stack) -> list[TrainedNetwork]:
        def watch(report: EpochReport) -> None:
            if stop.is_set():
                raise _Stopped
            stack.finished = report.epoch
            show()

        networks = train_stack(stack.task, stack.config, stack.specs, device=device, progress=watch)
        stack.most = stack.finished
        show()
        return networks

    futures: list[Future[list[TrainedNetwork]]] = []
    pool = ThreadPoolExecutor(running.threads if device == "cpu" else 1)
    try:
        for stack in stacks:
            compile_ahead(stack.task, stack.config, stack.specs, device=device)
        for stack in stacks:
            futures.append(pool.submit(train, stack))  # noqa: PERF401  (an interrupt keeps those before it)
        _wait(futures)
    except KeyboardInterrupt:
        if not running.keep_finished:
            raise
        interrupted = True
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    finished: dict[int, TrainedNetwork] = {}
    for stack, future in zip(stacks, futures, strict=False):
        if not future.cancelled() and not isinstance(future.exception(), _Stopped):
            finished.update(zip(stack.indices, future.result(), strict=True))
    return dict(sorted(finished.items())), interrupted


def _stacks(trainings: Sequence[Training], device: str) -> list[_Stack]:
    stacks: list[_Stack] = []
    for index, (task, config, spec) in enumerate(trainings):
        last = stacks[-1] if stacks and device != "cpu" else None
        if last is not None and last.task is task and last.config == config:
            last.indices.append(index)
            last.specs.append(spec)
        else:
            stacks.append(_Stack([index], task, config, [spec], most=config.max_epochs))
    return stacks


def _wait(futures: Sequence[Future[list[TrainedNetwork]]]) -> None:
    """Wait until all are done or one has failed, and hear an interrupt in between."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2)
        for future in done:
            future.result()

"""The networks of ``fit``: plain and adapted ones over a small grid of weights; an interrupt keeps the finished ones.

On a CPU every network is a stack of its own and stacks are spread over threads; on an accelerator all are one stack.
A network trained in a stack is the network trained alone, so this changes no number.

Work spread over threads, results in order; numpy and the compiled loops leave the interpreter to others.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Event, Lock
from typing import NamedTuple, TypeVar

import numpy as np

from momentalign.discrepancies.names import named_distance
from momentalign.estimators.combination import WEIGHTS
from momentalign.progress import EpochReport
from momentalign.training.config import NetworkSpec, Task, TrainedNetwork, TrainingConfig
from momentalign.training.stack import compile_ahead, train_stack

__all__ = ["Point", "Progress", "cores", "grid_points", "in_order", "train_again", "train_points"]

Part = TypeVar("Part")
Result = TypeVar("Result")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[Part], Result], parts: Iterable[Part], *, threads: int) -> Generator[Result]:
    """Yield the result of each part in order; no more parts are read ahead than there are threads.

    Examples
    --------
    >>> list(in_order(lambda number: number**2, range(5), threads=2))
    [0, 1, 4, 9, 16]
    """
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque()
        for part in parts:
            waiting.append(pool.submit(work, part))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


Progress = Callable[[int, int], None]
"""Takes the number of finished epochs of all networks and how many there will be at most; one call at a time."""


class Point(NamedTuple):
    """One network of the grid; the plain one has weight 0."""

    seed: int
    weight: float
    method: str | None

    def spec(self, *, width: int, n_moments: int = 5) -> NetworkSpec:
        """What training takes."""
        return NetworkSpec(self.seed, self.weight, named_distance(self.method, n_moments, width=width))


class _Stack(NamedTuple):
    """Networks that are trained together, and where they stand in the grid."""

    task: Task
    config: TrainingConfig
    points: Sequence[Point]


class _Stopped(Exception):  # noqa: N818  (it tells a thread to end, nothing is wrong)
    """Ends the training in a thread."""


def grid_points(method: str | None, *, seeds: int) -> list[Point]:
    """Return the networks to train, those first that are the best to have if training is interrupted.

    Examples
    --------
    >>> [point.weight for point in grid_points("cmd", seeds=1)]
    [1.0, 0.0, 0.5, 2.0, 4.0]
    """
    weights = [0.0] if method is None else [1.0, 0.0, *(weight for weight in WEIGHTS if weight != 1.0)]
    return [Point(seed, weight, method if weight else None) for seed in range(seeds) for weight in weights]


def train_points(
    points: Sequence[Point], task: Task, config: TrainingConfig, *, device: str, progress: Progress | None = None
) -> tuple[dict[Point, TrainedNetwork], bool]:
    """Train all networks and return the finished ones, and whether an interrupt (^C) cut the training short."""
    together = [points] if device != "cpu" else [[point] for point in points]
    return _train([_Stack(task, config, group) for group in together], device, progress)


def train_again(
    networks: dict[Point, TrainedNetwork],
    whole: Task,
    config: TrainingConfig,
    *,
    device: str,
    progress: Progress | None = None,
) -> tuple[dict[Point, TrainedNetwork], bool]:
    """Train networks on all rows for as many epochs as held-out rows said; those that an interrupt hits stay."""
    stacks = []
    for point, network in networks.items():
        epochs = int(np.argmin(network.history.validation_loss)) + 1
        # A patience of all epochs never stops a network, and has it look up after each.
        stacks.append(_Stack(whole, replace(config, max_epochs=epochs, patience=epochs, keep="last"), [point]))
    again, interrupted = _train(stacks, device, progress)
    kept = {point: replace(one, history=networks[point].history) for point, one in again.items()}
    return {**networks, **kept}, interrupted


def _train(
    stacks: Sequence[_Stack], device: str, progress: Progress | None
) -> tuple[dict[Point, TrainedNetwork], bool]:
    stop, speaking, interrupted = Event(), Lock(), False
    done, most = [0] * len(stacks), [stack.config.max_epochs for stack in stacks]

    def show() -> None:
        if progress is not None:
            with speaking:
                progress(sum(done), sum(most))

    def work(place: int) -> list[TrainedNetwork]:
        def watch(report: EpochReport) -> None:
            if stop.is_set():
                raise _Stopped
            done[place] = report.epoch
            show()

        stack = stacks[place]
        networks = train_stack(stack.task, stack.config, _members(stack), device=device, progress=watch)
        most[place] = done[place]
        show()
        return networks

    futures: list[Future[list[TrainedNetwork]]] = []
    pool = ThreadPoolExecutor(cores() if device == "cpu" else 1)
    try:
        for stack in stacks:
            compile_ahead(stack.task, stack.config, _members(stack), device=device)
        for place in range(len(stacks)):
            futures.append(pool.submit(work, place))  # noqa: PERF401  (an interrupt keeps those before it)
        _wait(futures)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    finished: dict[Point, TrainedNetwork] = {}
    for stack, future in zip(stacks, futures, strict=False):
        if not future.cancelled() and not isinstance(future.exception(), _Stopped):
            finished.update(zip(stack.points, future.result(), strict=True))
    return finished, interrupted


def _members(stack: _Stack) -> list[NetworkSpec]:
    return [point.spec(width=stack.config.hidden[-1]) for point in stack.points]


def _wait(futures: Sequence[Future[list[TrainedNetwork]]]) -> None:
    """Wait until all are done or one has failed, and hear an interrupt in between."""
    pending: set[Future[list[TrainedNetwork]]] = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2)
        for future in done:
            future.result()

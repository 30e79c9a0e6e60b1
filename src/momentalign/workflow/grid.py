"""The networks of ``fit``: plain and adapted ones over a small grid of weights; an interrupt keeps the finished ones.

On a CPU every network is a stack of its own and stacks are spread over threads; on an accelerator all are one stack.
A network trained in a stack is the network trained alone, so this changes no number.

Work spread over threads, results in order; numpy and the compiled loops leave the interpreter to others.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from momentalign.discrepancies.names import named_distance
from momentalign.estimators import combination
from momentalign.estimators.combination import WEIGHTS
from momentalign.estimators.several import Running, train_each
from momentalign.training.config import NetworkSpec, Task, TrainedNetwork, TrainingConfig

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
    trainings = [(task, config, point.spec(width=config.hidden[-1])) for point in points]
    networks, interrupted = train_each(trainings, _running(device, progress))
    return {points[index]: network for index, network in networks.items()}, interrupted


def train_again(
    networks: dict[Point, TrainedNetwork],
    whole: Task,
    config: TrainingConfig,
    *,
    device: str,
    progress: Progress | None = None,
) -> tuple[dict[Point, TrainedNetwork], bool]:
    """Train networks on all rows for as many epochs as held-out rows said; those that an interrupt hits stay."""
    members = [(config, point.spec(width=config.hidden[-1]), network) for point, network in networks.items()]
    final, interrupted = combination.train_again(members, whole, _running(device, progress))
    return dict(zip(networks, final, strict=True)), interrupted


def _running(device: str, progress: Progress | None) -> Running:
    return Running(device, threads=cores(), progress=progress, keep_finished=True)

"""Work spread over threads, results in order; numpy and the compiled loops leave the interpreter to others."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["cores", "in_order"]

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

"""Progress bars on standard error: the epochs of a training with its figures, and parts of a larger work.

A progress bar for a search: networks scored, best score so far, time left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["EpochReport", "counting_progress", "search_progress", "training_progress"]


class EpochReport(NamedTuple):
    """What a progress display may show after an epoch: means over the networks that still train."""

    epoch: int
    max_epochs: int
    training: int
    source_loss: float
    distance: float
    validation_accuracy: float


@contextmanager
def training_progress(title: str, *, verbose: int) -> Iterator[Callable[[EpochReport], None] | None]:
    """Yield a function that shows one epoch, or None where `verbose` is 0. The bar goes to standard error."""
    if not verbose:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None, figures="")

        def show(report: EpochReport) -> None:
            bar.update(task, completed=report.epoch, total=report.max_epochs, figures=describe(report))

        yield show


@contextmanager
def counting_progress(title: str, *, verbose: int) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes the number of finished parts and of all, or None where `verbose` is 0."""
    if not verbose:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda finished, every: bar.update(task, completed=finished, total=every)


def describe(report: EpochReport) -> str:
    """Return the figures of an epoch in one line."""
    parts = [f"source loss {report.source_loss:.4f}", f"distance {report.distance:.4f}"]
    if not math.isnan(report.validation_accuracy):
        parts.append(f"validation accuracy {report.validation_accuracy:.3f}")
    return ", ".join(parts)


@contextmanager
def search_progress(title: str, total: int, *, verbose: int) -> Iterator[Callable[[int, float], None]]:
    """Yield a function that shows how many are scored and the best score. The bar goes to standard error.

    Where `verbose` is 0 it shows nothing.
    """
    if not verbose:
        yield lambda finished, best: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[best]}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, best="")

        def show(finished: int, best: float) -> None:
            bar.update(task, completed=finished, best=f"best score {best:.4f}" if finished else "")

        yield show

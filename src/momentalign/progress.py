"""The progress bar on standard error: of a training, a search, or any work that can be counted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

__all__ = ["EpochReport", "ShowProgress", "epoch_bar", "progress_bar"]


SECONDS_BETWEEN_LINES = 0.2


class EpochReport(NamedTuple):
    """What a progress bar may show after an epoch: means over the networks that still train."""

    epoch: int
    max_epochs: int
    training: int
    source_loss: float
    distance: float
    validation_accuracy: float

    def figures(self) -> str:
        """Return the figures in one line.

        Examples
        --------
        >>> EpochReport(3, 10, 1, source_loss=0.5, distance=0.01, validation_accuracy=0.875).figures()
        'source loss 0.5000, distance 0.0100, validation accuracy 0.875'
        """
        parts = [f"source loss {self.source_loss:.4f}", f"distance {self.distance:.4f}"]
        if not math.isnan(self.validation_accuracy):
            parts.append(f"validation accuracy {self.validation_accuracy:.3f}")
        return ", ".join(parts)


class ShowProgress(Protocol):
    """Shows how many parts of how many are finished, and what is known of them."""

    def __call__(self, finished: int, total: int, figures: str = "", /) -> None:
        """Move the bar."""


@contextmanager
def progress_bar(title: str, *, verbose: int) -> Iterator[ShowProgress | None]:
    """Yield a function that moves the bar, or None where `verbose` is 0."""
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

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    if console.is_jupyter:  # rich would ask for widgets there
        yield _notebook_line(title)
        return
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=None, figures="")

        def show(finished: int, total: int, figures: str = "", /) -> None:
            bar.update(task, completed=finished, total=total, figures=figures)

        yield show


def _notebook_line(title: str) -> ShowProgress:
    """Show one line of text below the cell, and write it anew where it changes."""
    from IPython.display import display

    handle = display({"text/plain": title}, raw=True, display_id=True)
    shown_at = 0.0

    def show(finished: int, total: int, figures: str = "", /) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if finished >= total or now - shown_at >= SECONDS_BETWEEN_LINES:
            shown_at = now
            handle.update({"text/plain": f"{title} {finished}/{total}  {figures}".rstrip()}, raw=True)

    return show


@contextmanager
def epoch_bar(title: str, *, verbose: int) -> Iterator[Callable[[EpochReport], None] | None]:
    """Yield a function that shows one epoch of a training, or None where `verbose` is 0."""
    with progress_bar(title, verbose=verbose) as show:
        yield None if show is None else lambda report: show(report.epoch, report.max_epochs, report.figures())

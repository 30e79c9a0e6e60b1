"""A progress bar for a search: networks scored, best score so far, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["search_progress"]


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

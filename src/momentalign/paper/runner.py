"""Compute the cells of an experiment, each once: over cores and machines, and on from where a run was stopped.

The tables and figures of Section 6 are grids of independent cells. joblib spreads them, the journal keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeAlias

from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from momentalign.journal import Journal, cell_key
from momentalign.training.torch_engine import one_thread

__all__ = ["duration_words", "run_cells", "run_groups"]

Cell: TypeAlias = Mapping[str, Any]
Compute: TypeAlias = Callable[[Cell], dict[str, Any]]
ComputeTogether: TypeAlias = Callable[[Sequence[Cell]], list[dict[str, Any]]]


def run_cells(
    cells: Iterable[Cell],
    compute: Compute,
    journal: Journal,
    *,
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Compute the cells that the journal does not hold and return the results of all by their keys.

    A result is written as soon as it arrives, so a run that is interrupted or fails keeps what was finished. Every cell
    is computed with one thread, and what is returned was read back from the journal: neither `n_jobs` nor the order of
    arrival nor an interruption shows in it.

    Parameters
    ----------
    cells
        Dictionaries of plain values; a cell that stands twice is computed once.
    compute
        A function of a module, from a cell to a dictionary of plain values, that depends on nothing but the cell.
    journal
        Where results are kept.
    n_jobs
        Processes to compute in; -1 takes every core, 1 stays in this process. Inside
        ``joblib.parallel_config(backend="dask")`` the workers of the cluster are taken, whatever it says; give them
        one thread each.
    progress
        Called with the number of finished cells and of all cells, at first and after each.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> journal = Journal(Path(folder.name) / "cells.jsonl", {"what": "squares"})
    >>> run_cells([{"x": 2}, {"x": 3}], lambda cell: {"y": cell["x"] ** 2}, journal)
    {'{"x":2}': {'y': 4}, '{"x":3}': {'y': 9}}
    >>> folder.cleanup()
    """
    return run_groups(cells, _apart, partial(_each, compute), journal, n_jobs=n_jobs, progress=progress)


def run_groups(
    cells: Iterable[Cell],
    grouped: Callable[[Sequence[Cell]], Iterable[Sequence[Cell]]],
    compute_together: ComputeTogether,
    journal: Journal,
    *,
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """:func:`run_cells` where several cells are one piece of work, as for an accelerator.

    How many threads a group has is left to what computes it. `grouped` puts the cells that are missing into groups, in
    the order in which they are to be computed; `compute_together` returns the results of a group.
    """
    wanted = {cell_key(cell): cell for cell in cells}
    done = journal.done()
    missing = [cell for key, cell in wanted.items() if key not in done]
    finished = len(wanted) - len(missing)
    if progress is not None:
        progress(finished, len(wanted))
    # One group per batch: a batch of several would be written only when its last one is finished.
    parallel = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator_unordered")
    with closing(parallel(delayed(_alone)(compute_together, group) for group in grouped(missing))) as arrivals:
        for group, results in arrivals:
            for cell, result in zip(group, results, strict=True):
                journal.append(cell, result)
            finished += len(group)
            if progress is not None:
                progress(finished, len(wanted))
    done = journal.done()
    return {key: done[key] for key in wanted}


def _apart(cells: Sequence[Cell]) -> list[list[Cell]]:
    return [[cell] for cell in cells]


def _each(compute: Compute, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Compute cells with one thread and nothing spread further: both could change the last digits."""
    with one_thread(), threadpool_limits(limits=1), parallel_config(backend="sequential"):
        return [compute(cell) for cell in cells]


def _alone(compute_together: ComputeTogether, group: Sequence[Cell]) -> tuple[Sequence[Cell], list[dict[str, Any]]]:
    try:
        return group, compute_together(group)
    except Exception as error:
        error.add_note(f"This happened in the cell {' and the cell '.join(map(cell_key, group))}.")
        raise


def duration_words(seconds: float) -> str:
    """Say roughly how long something takes.

    Examples
    --------
    >>> duration_words(4.0), duration_words(70.0), duration_words(1500.0), duration_words(50_000.0)
    ('less than a minute', 'about 1 minute', 'about 25 minutes', 'about 14 hours')
    """
    if seconds < 45:
        return "less than a minute"
    if seconds >= 2 * 3600:
        return f"about {round(seconds / 3600)} hours"
    minutes = round(seconds / 60) or 1
    return f"about {minutes} minute{'s' if minutes > 1 else ''}"

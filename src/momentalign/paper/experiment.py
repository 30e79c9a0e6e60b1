"""What the experiments share: grids of independent cells, each computed once, and names that are checked.

The tables and figures of Section 6 are grids of cells (a task, a method, a seed). joblib spreads them over processes
and machines, the journal keeps them, and a run that was stopped computes what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from joblib import Parallel, delayed, parallel_config
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from momentalign.errors import InvalidInputError
from momentalign.estimators.tca import TransferComponentAnalysis
from momentalign.journal import Journal, cell_key
from momentalign.training.torch_engine import one_thread
from momentalign.version import __version__

__all__ = [
    "Cell",
    "Estimate",
    "Progress",
    "Say",
    "accuracy_on_components",
    "cells_alike",
    "check_names",
    "describe_duration",
    "figures_of",
    "identity",
    "run_cells",
    "split_task",
    "table_result",
]

Cell: TypeAlias = Mapping[str, Any]
Progress: TypeAlias = Callable[[int, int], None]
Say: TypeAlias = Callable[[str], None]
Group: TypeAlias = Callable[[Sequence[Cell]], Iterable[Sequence[Cell]]]
Compute: TypeAlias = Callable[[Sequence[Cell]], list[dict[str, Any]]]
Estimate: TypeAlias = Callable[[Sequence[Cell]], float | None]


def run_cells(
    cells: Iterable[Cell],
    compute: Compute,
    journal: Journal,
    *,
    group: Group | None = None,
    n_jobs: int = 1,
    estimate: Estimate | None = None,
    say: Say | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compute the cells that the journal does not hold and return the results of all by their keys.

    A result is written as soon as it arrives, so a run that is interrupted or fails keeps what was finished. Every cell
    is computed with one thread, and what is returned was read back from the journal: the results depend neither on
    `n_jobs` nor on the order of arrival nor on an interruption.

    Parameters
    ----------
    cells
        Dictionaries of plain values; a cell that occurs twice is computed once.
    compute
        A function of a module, from cells to as many dictionaries of plain values, that depends on nothing but the
        cells.
    journal
        Where results are kept.
    group
        Puts the cells that are missing into groups, each of which is one piece of work, as for an accelerator, in the
        order in which they are to be computed; `compute` then sets its own number of threads. None makes a piece of
        work of each cell.
    n_jobs
        Processes to compute in; -1 takes every core, 1 stays in this process. Inside
        ``joblib.parallel_config(backend="dask")`` the workers of the cluster are taken instead; give them one thread
        each.
    estimate, say
        Returns how many seconds the missing cells will take, None where that is not known, and what is called with a
        sentence that tells it before anything is computed.
    progress
        Called with the number of finished cells and of all cells, at first and after each piece of work.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> journal = Journal(Path(folder.name) / "cells.jsonl", {"what": "squares"})
    >>> run_cells([{"x": 2}, {"x": 3}], lambda cells: [{"y": cell["x"] ** 2} for cell in cells], journal)
    {'{"x":2}': {'y': 4}, '{"x":3}': {'y': 9}}
    >>> folder.cleanup()
    """
    wanted = {cell_key(cell): cell for cell in cells}
    done = journal.done()
    missing = [cell for key, cell in wanted.items() if key not in done]
    finished = len(wanted) - len(missing)
    if say is not None and estimate is not None and (seconds := estimate(missing)) is not None:
        say(f"{len(missing)} of {len(wanted)} trainings are to be done: {describe_duration(seconds)}")
    show = progress or (lambda _finished, _total: None)
    show(finished, len(wanted))
    work = [[cell] for cell in missing] if group is None else group(missing)
    # One group per batch: a batch of several would be written only when its last one is finished.
    parallel = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator_unordered")
    jobs = (delayed(_compute)(compute, own, alone=group is None) for own in work)
    with closing(parallel(jobs)) as arrivals:
        for own, results in arrivals:
            for cell, result in zip(own, results, strict=True):
                journal.append(cell, result)
            finished += len(own)
            show(finished, len(wanted))
    done = journal.done()
    return {key: done[key] for key in wanted}


def _compute(compute: Compute, cells: Sequence[Cell], *, alone: bool) -> tuple[Sequence[Cell], list[dict[str, Any]]]:
    """The cells with their results, or an error that names them."""
    try:
        if not alone:
            return cells, compute(cells)
        # More threads, or work that is spread further, could change the last digits.
        with one_thread(), threadpool_limits(limits=1), parallel_config(backend="sequential"):
            return cells, compute(cells)
    except Exception as error:
        error.add_note(f"This happened in the cell {' and the cell '.join(map(cell_key, cells))}.")
        raise


def describe_duration(seconds: float) -> str:
    """Say roughly how long something takes.

    Examples
    --------
    >>> [describe_duration(seconds) for seconds in (44.0, 46.0, 91.0, 1500.0, 7300.0)]
    ['less than a minute', 'about 1 minute', 'about 2 minutes', 'about 25 minutes', 'about 2 hours']
    """
    if seconds < 45:
        return "less than a minute"
    if seconds >= 2 * 3600:
        return f"about {round(seconds / 3600)} hours"
    minutes = round(seconds / 60) or 1
    return f"about {minutes} minute{'s' if minutes > 1 else ''}"


def check_names(text: str, known: Iterable[str], kind: str) -> list[str]:
    """Return names given with commas, each once; refuse names that are not known, and an empty list.

    Examples
    --------
    >>> check_names("nn, cmd, nn", ["nn", "cmd", "mmd"], "method")
    ['nn', 'cmd']
    """
    names, known = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())), list(known)
    for name in names:
        if name not in known:
            raise InvalidInputError(f"{kind} {name!r} is not known; choose among {', '.join(known)}.")
    if not names:
        raise InvalidInputError(f"no {kind} is named; choose among {', '.join(known)}.")
    return names


def identity(what: str, protocol: Mapping[str, Any], data: Mapping[str, str]) -> dict[str, Any]:
    """Return what makes results comparable; a journal of another identity is refused."""
    versions = {"momentalign": __version__} | {name: version(name) for name in ("numpy", "scipy", "torch")}
    return {"what": what, "protocol": dict(protocol), "versions": versions, "data": dict(data)}


def table_result(
    kind: str, described: Mapping[str, Any], seeds: Iterable[int], tasks: Iterable[str], **parts: Any
) -> dict[str, Any]:
    """Return the result of an experiment, ready for JSON, with what identifies it."""
    rest = {name: value for name, value in described.items() if name != "what"}
    return {"kind": kind, **rest, "seeds": list(seeds), "tasks": list(tasks), **parts}


def cells_alike(cells: Iterable[Cell], key: Callable[[Cell], Hashable]) -> list[list[Cell]]:
    """Return the cells with equal keys together, in the order in which keys first occur.

    Examples
    --------
    >>> cells_alike([{"x": 1}, {"x": 2}, {"x": 3}], lambda cell: cell["x"] % 2)
    [[{'x': 1}, {'x': 3}], [{'x': 2}]]
    """
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return list(groups.values())


def split_task(task: str) -> dict[str, str]:
    """Return the two domains of a task as a cell names them.

    Examples
    --------
    >>> split_task("books->dvd")
    {'source': 'books', 'target': 'dvd'}
    """
    source, target = task.split("->")
    return {"source": source, "target": target}


def figures_of(
    names: Iterable[str], cells: Mapping[str, Sequence[Cell]], done: Mapping[str, Any]
) -> dict[str, dict[str, list[Any]]]:
    """Return what was measured by name and task, a value for each of the task's cells."""
    return {name: {task: [done[cell_key(cell)][name] for cell in own] for task, own in cells.items()} for name in names}


def accuracy_on_components(
    source: Any, labels: Any, target: Any, test: Any, test_labels: Any, *, n_components: int, mu: float, centre: bool
) -> float:
    """Accuracy of logistic regression on the transfer components of both domains; nothing in it is drawn.

    The target rows of `test` are those of the evaluation.
    """
    components = TransferComponentAnalysis(n_components=n_components, mu=mu).fit(source, X_target=target)
    source, target, test = (components.transform(rows) for rows in (source, target, test))
    # One factor for all components, so that the penalty means the same on every task.
    both = np.concatenate([source, target])
    mean, scale = both.mean(axis=0) if centre else 0.0, np.sqrt(both.var(axis=0).mean())
    classifier = LogisticRegression(C=0.1, max_iter=1000).fit((source - mean) / scale, labels)
    return float(classifier.score((test - mean) / scale, test_labels))

"""Accuracies beside the paper's: what Tables 2, 4 and 5 print, and comparisons with it in Markdown and LaTeX.

Zellinger, Moser, Grubinger, Lughofer, Natschläger, Saminger-Platz: Robust unsupervised domain adaptation for neural
networks via moment alignment, Information Sciences 483 (2019), Sections 6.3 to 6.5. All values are in percent, as the
paper prints them; it prints no standard deviations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from momentalign.errors import InvalidInputError

__all__ = [
    "DIGITS",
    "OBJECTS",
    "REVIEWS",
    "Comparison",
    "Entry",
    "PaperTable",
    "average_ranks",
    "compare",
    "describe_ranks",
    "latex",
    "long_task",
    "markdown",
    "short_task",
    "signed",
]


class PaperTable(NamedTuple):
    """A table of accuracies as printed, by method and task; `name` is how captions call it."""

    name: str
    tasks: tuple[str, ...]
    columns: dict[str, dict[str, float]]
    averages: dict[str, float]
    ranks: dict[str, float]


def _table(
    name: str, tasks: tuple[str, ...], columns: Mapping[str, tuple[tuple[float, ...], float, float]]
) -> PaperTable:
    """A table whose columns are accuracies by task, their average and the average rank."""
    return PaperTable(
        name,
        tasks,
        {method: dict(zip(tasks, column, strict=False)) for method, (column, _, _) in columns.items()},
        {method: average for method, (_, average, _) in columns.items()},
        {method: rank for method, (_, _, rank) in columns.items()},
    )


REVIEWS = _table(
    "paper",
    tuple(f"{source}->{target}" for source, target in permutations(("books", "dvd", "electronics", "kitchen"), 2)),
    {
        "nn": ((78.7, 71.4, 74.5, 74.6, 72.4, 76.5, 71.1, 71.9, 84.4, 69.9, 73.4, 83.3), 75.2, 5.8),
        "dann": ((78.4, 73.3, 77.9, 72.3, 75.4, 78.3, 71.3, 73.8, 85.4, 70.9, 74.0, 84.3), 76.3, 4.5),
        "coral": ((79.2, 73.1, 75.0, 77.6, 74.9, 79.2, 71.6, 72.4, 84.5, 73.0, 75.3, 84.0), 76.7, 4.0),
        "tca": ((78.9, 74.2, 73.9, 77.5, 77.5, 79.6, 72.7, 75.7, 86.6, 71.7, 74.1, 83.5), 77.2, 3.3),
        "mmd": ((79.6, 75.8, 78.7, 78.0, 76.6, 79.6, 73.3, 74.8, 85.7, 74.0, 76.3, 84.4), 78.1, 2.3),
        "cmd": ((80.5, 78.7, 81.3, 79.5, 79.7, 83.0, 74.4, 76.3, 86.0, 75.6, 77.5, 85.4), 79.8, 1.1),
    },
)
"""Table 2. On D->K, TCA and MMD are equal: if they share ranks 2 and 3, TCA has 3.375, printed 3.3."""

OBJECTS = _table(
    "paper on AlexNet",
    ("amazon->webcam", "dslr->webcam", "webcam->dslr", "amazon->dslr", "dslr->amazon", "webcam->amazon"),
    {
        "cnn": ((52.9, 94.7, 99.0, 62.5, 50.2, 48.1), 67.9, 6.3),
        "tca": ((61.0, 95.4, 95.2, 60.8, 51.6, 50.9), 69.2, 6.0),
        "mmd": ((63.8, 94.6, 98.8, 65.8, 52.8, 51.9), 71.3, 4.7),
        "coral": ((66.4, 95.7, 99.2, 66.8, 52.8, 51.5), 72.1, 3.2),
        "dann": ((73.0, 96.4, 99.2, 72.3, 53.4, 51.2), 74.3, 2.5),
        "cmd": ((62.8, 96.7, 99.3, 66.0, 53.6, 51.9), 71.7, 2.7),
        "fp-cmd": ((64.8, 95.4, 99.4, 67.0, 55.1, 53.5), 72.5, 2.0),
    },
)
"""Table 4, on features of AlexNet. Equal methods have the better of their ranks.

CNN, CMD and FP-CMD are the authors' own runs; DANN and TCA are quoted there from Ganin et al. (2016) and Li et al.
(2017), of whom the latter searched the dimension of the TCA with target labels.
"""

DIGITS = _table(
    "paper",
    ("svhn->mnist", "mnist->mnist-m", "synth->svhn"),
    {
        "cnn": ((66.74, 70.85, 80.94), 72.84, 7.3),
        "coral": ((69.39, 77.34, 83.58), 76.77, 5.3),
        "adda": ((76.00,), 76.00, 5.0),
        "mmd": ((76.90, 71.10, 88.00), 78.67, 4.7),
        "dann": ((76.66, 73.85, 91.09), 80.53, 4.3),
        "dsn": ((83.20, 82.70, 91.20), 85.70, 2.3),
        "cmd": ((84.52, 85.04, 85.52), 85.03, 2.7),
        "cv-cmd": ((86.34, 88.03, 85.42), 86.60, 2.3),
    },
)
"""Table 5. The printed accuracies give CORAL the rank 5.7, ADDA 6.0 (over its one task), MMD 4.3 and DANN 4.0.

CNN, CORAL, CMD and CV-CMD are the authors' own runs; the others are quoted there from Tzeng et al. (2017), Bousmalis et
al. (2016) and Ganin et al. (2016), who used other networks. The source of the last task is SynthDigits; what
:func:`~momentalign.paper.synthetic_digits.make_synth_digits` draws stands in for it, so that task compares methods with
each other but not with the paper.
"""

DIGIT_SETS = {"svhn": "SVHN", "mnist": "MNIST", "mnist-m": "MNIST-M", "synth": "SynthDigits"}


class Entry(NamedTuple):
    """An accuracy in percent; `std` is None for a single seed, `paper` where the paper has no value."""

    mean: float
    std: float | None
    paper: float | None

    @property
    def difference(self) -> float | None:
        """How far it is above the paper's, in points."""
        return None if self.paper is None else self.mean - self.paper


class Comparison(NamedTuple):
    """A table beside the paper's; methods in the paper's order, those it does not have at the end."""

    tasks: tuple[str, ...]
    titles: dict[str, str]
    entries: dict[str, dict[str, Entry]]
    averages: dict[str, Entry]
    ranks: dict[str, float]
    paper_ranks: dict[str, float]
    n_seeds: int
    paper_name: str

    def best(self, task: str) -> str:
        """Return the most accurate method of a task."""
        return max(self.titles, key=lambda method: self.entries[method][task].mean)

    def rows(self) -> list[tuple[str, dict[str, Entry], str]]:
        """Return name, entries and best method of every task, and of the average."""
        every = [
            (short_task(task), {method: own[task] for method, own in self.entries.items()}, self.best(task))
            for task in self.tasks
        ]
        return [*every, ("Average", self.averages, max(self.averages, key=lambda method: self.averages[method].mean))]


def compare(result: Mapping[str, Any], paper: PaperTable = REVIEWS) -> Comparison:
    """Return means, standard deviations over seeds, averages and ranks of a result beside a table of the paper.

    The standard deviation of an average is that of the seeds' averages over all tasks.

    Examples
    --------
    >>> accuracy = {"books->dvd": [0.80, 0.81], "dvd->books": [0.78, 0.79]}
    >>> methods = {"cmd": {"title": "CMD", "settings": {}, "accuracy": accuracy}}
    >>> comparison = compare({"tasks": list(accuracy), "seeds": [0, 1], "methods": methods})
    >>> entry = comparison.averages["cmd"]
    >>> f"{entry.mean:.1f} +- {entry.std:.1f}, paper {entry.paper:.1f}"
    '79.5 +- 0.7, paper 80.0'
    """
    tasks, methods = tuple(result["tasks"]), result["methods"]
    if not tasks or not methods:
        raise InvalidInputError("result has no finished method or no task to compare; finish the run.")
    known = paper.columns
    order = [*(name for name in known if name in methods), *(name for name in methods if name not in known)]
    runs = {method: _runs(methods[method]["accuracy"], method, tasks) for method in order}
    return Comparison(
        tasks=tasks,
        titles={method: str(methods[method]["title"]) for method in order},
        entries={
            method: {task: _entry(runs[method][task], known.get(method, {}).get(task)) for task in tasks}
            for method in order
        },
        averages={method: _average(runs[method], _paper_average(paper, method, tasks)) for method in order},
        ranks=average_ranks({m: [float(np.mean(values)) for values in runs[m].values()] for m in order}),
        paper_ranks=_paper_ranks(paper, order, tasks),
        n_seeds=len(result["seeds"]),
        paper_name=paper.name,
    )


def _runs(accuracy: Mapping[str, Sequence[float]], method: str, tasks: Sequence[str]) -> dict[str, list[float]]:
    """Return a method's accuracies in percent by task, or name the one that is missing."""
    for task in tasks:
        if not accuracy.get(task):
            raise InvalidInputError(
                f"result['methods'][{method!r}]['accuracy'] has no value for {task!r}; "
                "finish that method, or leave it out."
            )
    return {task: [100 * float(value) for value in accuracy[task]] for task in tasks}


def _entry(values: Sequence[float], paper: float | None) -> Entry:
    return Entry(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, paper)


def _average(runs: Mapping[str, Sequence[float]], paper: float | None) -> Entry:
    """Average over tasks seed by seed; tasks with unequal numbers of seeds have no standard deviation."""
    if len({len(values) for values in runs.values()}) > 1:
        return _entry([float(np.mean([np.mean(values) for values in runs.values()]))], paper)
    return _entry(np.mean(list(runs.values()), axis=0).tolist(), paper)


def _paper_average(paper: PaperTable, method: str, tasks: Sequence[str]) -> float | None:
    """Return the printed average, or that of the printed accuracies where only some tasks were run."""
    if not set(tasks) <= set(paper.columns.get(method, ())):
        return None
    if set(tasks) == set(paper.tasks):
        return paper.averages[method]
    return float(np.mean([paper.columns[method][task] for task in tasks]))


def _paper_ranks(paper: PaperTable, methods: Sequence[str], tasks: Sequence[str]) -> dict[str, float]:
    """Return the printed ranks, or, where only some methods or tasks were run, those of the same methods and tasks."""
    shared = [method for method in methods if set(tasks) <= set(paper.columns.get(method, ()))]
    if not shared:
        return {}
    if len(shared) == len(paper.columns) and set(tasks) == set(paper.tasks):
        return dict(paper.ranks)
    return average_ranks({method: [paper.columns[method][task] for task in tasks] for method in shared})


def average_ranks(accuracy: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the rank of each method, averaged over tasks: 1 is the most accurate, equal methods share their ranks.

    Examples
    --------
    >>> average_ranks({"a": [0.8, 0.8], "b": [0.8, 0.7], "c": [0.7, 0.9]})
    {'a': 1.75, 'b': 2.25, 'c': 2.0}
    """
    # Rounded, because equal means of different sums may differ in their last bits.
    values = np.round(np.array(list(accuracy.values()), dtype=float), 9)
    better = (values[None] > values[:, None]).sum(axis=1)
    equal = (values[None] == values[:, None]).sum(axis=1)
    ranks = 1 + better + (equal - 1) / 2
    return dict(zip(accuracy, ranks.mean(axis=1).tolist(), strict=True))


def short_task(task: str) -> str:
    """Write a task as the paper does.

    Examples
    --------
    >>> short_task("books->dvd"), short_task("synth->svhn")
    ('B→D', 'SynthDigits→SVHN')
    """
    return "→".join(DIGIT_SETS.get(domain, domain[:1].upper()) for domain in task.split("->"))


def long_task(task: str) -> str:
    """Write a task in full.

    Examples
    --------
    >>> long_task("books->dvd"), long_task("mnist->mnist-m")
    ('books → dvd', 'MNIST → MNIST-M')
    """
    return " → ".join(DIGIT_SETS.get(domain, domain) for domain in task.split("->"))


def signed(difference: float) -> str:
    """Write a difference with its sign and one decimal; what rounds to zero has none.

    Examples
    --------
    >>> signed(0.26), signed(-1.0), signed(-0.04)
    ('+0.3', '-1.0', '0.0')
    """
    text = f"{difference:+.1f}"
    return "0.0" if float(text) == 0 else text


def describe_ranks(comparison: Comparison) -> str:
    """Say how many methods are ranked, here and in the paper."""
    paper = f", in the paper of {len(comparison.paper_ranks)}" if comparison.paper_ranks else ""
    return f"Rank 1 is the most accurate of the {len(comparison.titles)} methods here{paper}."


def markdown(comparison: Comparison) -> str:
    """Return the table in Markdown; a cell reads ``mean ± standard deviation (paper, difference)``."""
    titles = [title.replace("|", r"\|") for title in comparison.titles.values()]
    rows = [["", *titles], ["---", *("---:" for _ in titles)]]
    for name, entries, best in comparison.rows():
        rows.append([name, *(_markdown_cell(entry, method == best) for method, entry in entries.items())])
    rows.append(["Average rank", *_rank_cells(comparison)])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{_caption(comparison)} {describe_ranks(comparison)}\n\n{lines}\n"


def _markdown_cell(entry: Entry, best: bool) -> str:
    text = f"**{entry.mean:.1f}**" if best else f"{entry.mean:.1f}"
    if entry.std is not None:
        text += f" ± {entry.std:.1f}"
    return text if entry.difference is None else f"{text} ({entry.paper:.1f}, {signed(entry.difference)})"


def latex(comparison: Comparison) -> str:
    """Return the table in LaTeX: the paper's value and the difference stand below each accuracy; needs no package."""
    escapes = str.maketrans({sign: f"\\{sign}" for sign in "&%$#_{}"} | {"~": " ", "^": " ", "\\": r"\textbackslash{}"})
    titles = [title.translate(escapes) for title in comparison.titles.values()]
    lines = [r"\hline", _latex_row("", titles), r"\hline"]
    for name, entries, best in comparison.rows():
        if entries is comparison.averages:
            lines.append(r"\hline")
        accuracies = [_latex_cell(entry, method == best) for method, entry in entries.items()]
        papers = [
            "" if entry.difference is None else rf"{{\scriptsize $({entry.paper:.1f},\,{signed(entry.difference)})$}}"
            for entry in entries.values()
        ]
        lines += [_latex_row(name.replace("→", r"$\rightarrow$"), accuracies), _latex_row("", papers)]
    lines += [_latex_row("Average rank", _rank_cells(comparison)), r"\hline"]
    caption = f"{_caption(comparison)} {describe_ranks(comparison)}".replace("±", r"$\pm$")
    body = "\n".join(lines)
    return (
        "\\begin{table}\n\\centering\\footnotesize\n"
        f"\\begin{{tabular}}{{l{'r' * len(titles)}}}\n{body}\n\\end{{tabular}}\n"
        f"\\caption{{{caption}}}\n\\end{{table}}\n"
    )


def _latex_cell(entry: Entry, best: bool) -> str:
    text = rf"\mathbf{{{entry.mean:.1f}}}" if best else f"{entry.mean:.1f}"
    return f"${text}$" if entry.std is None else rf"${text} \pm {entry.std:.1f}$"


def _latex_row(name: str, cells: Sequence[str]) -> str:
    return f"{' & '.join([name, *cells])} \\\\"


def _rank_cells(comparison: Comparison) -> list[str]:
    papers = comparison.paper_ranks
    return [
        f"{rank:.1f} ({papers[method]:.1f})" if method in papers else f"{rank:.1f}"
        for method, rank in comparison.ranks.items()
    ]


def _caption(comparison: Comparison) -> str:
    seeds = "one seed" if comparison.n_seeds == 1 else f"{comparison.n_seeds} seeds"
    return (
        f"Accuracy on the target in percent, mean ± standard deviation over {seeds} "
        f"({comparison.paper_name}, difference)."
    )

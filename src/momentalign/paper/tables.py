"""Accuracies beside the paper's: Tables 2, 4 and 5 in Markdown and in LaTeX, methods x tasks.

Zellinger, Moser, Grubinger, Lughofer, Natschläger, Saminger-Platz: Robust unsupervised domain adaptation for neural
networks via moment alignment, Information Sciences 483 (2019), Sections 6.3 to 6.5. All values are in percent, as the
paper prints them; it prints no standard deviations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

__all__ = [
    "DIGITS",
    "OBJECTS",
    "REVIEWS",
    "Comparison",
    "Entry",
    "PaperTable",
    "average_ranks",
    "compare",
    "count_text",
    "latex",
    "long_task",
    "markdown",
    "short_task",
]

Result = Mapping[str, Any]

AVERAGE = "Average"
DIGIT_SETS = {"svhn": "SVHN", "mnist": "MNIST", "mnist-m": "MNIST-M", "synth": "SynthDigits"}


class PaperTable(NamedTuple):
    """A table as printed: for each method accuracies by task (perhaps of the first ones only), average and rank.

    `name` is how captions call it.
    """

    name: str
    tasks: tuple[str, ...]
    columns: dict[str, tuple[tuple[float, ...], float, float]]

    def accuracies(self, method: str) -> dict[str, float]:
        """Return the accuracies of a method by task; none for one that the paper does not have."""
        printed, _, _ = self.columns.get(method, ((), 0.0, 0.0))
        return dict(zip(self.tasks, printed, strict=False))

    def average(self, method: str, tasks: Sequence[str]) -> float | None:
        """Return the printed average, or that of the printed accuracies where only some tasks were run."""
        own = self.accuracies(method)
        if not set(tasks) <= set(own):
            return None
        return self.columns[method][1] if set(tasks) == set(self.tasks) else float(np.mean([own[t] for t in tasks]))

    def ranks(self, methods: Sequence[str], tasks: Sequence[str]) -> dict[str, float]:
        """Return the printed ranks, or those among these methods on these tasks where only some were run."""
        shared = [method for method in methods if set(tasks) <= set(self.accuracies(method))]
        if len(shared) == len(self.columns) and set(tasks) == set(self.tasks):
            return {method: rank for method, (_, _, rank) in self.columns.items()}
        return average_ranks({method: [self.accuracies(method)[task] for task in tasks] for method in shared})


REVIEWS = PaperTable(
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

OBJECTS = PaperTable(
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

DIGITS = PaperTable(
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


class Entry(NamedTuple):
    """An accuracy in percent; `std` is None for a single seed, `paper` where the paper has no value."""

    mean: float
    std: float | None
    paper: float | None

    @property
    def difference(self) -> str:
        """How far it is above the paper's, in points, with its sign and one decimal; what rounds to zero has none."""
        if self.paper is None:
            return ""
        written = f"{self.mean - self.paper:+.1f}"
        return "0.0" if float(written) == 0 else written

    @property
    def spread(self) -> str:
        """The standard deviation as it stands behind the mean; empty for a single seed."""
        return "" if self.std is None else f" ± {self.std:.1f}"

    @classmethod
    def of(cls, values: Sequence[float], paper: float | None) -> Entry:
        """Return the mean and the standard deviation of accuracies beside the paper's."""
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, paper)


class Comparison(NamedTuple):
    """A table beside the paper's; methods in the paper's order, those it does not have at the end."""

    tasks: tuple[str, ...]
    titles: dict[str, str]
    entries: dict[str, dict[str, Entry]]
    """By method and task; the average over tasks is another task."""
    ranks: dict[str, float]
    paper_ranks: dict[str, float]
    n_seeds: int
    paper_name: str

    @property
    def seeds_text(self) -> str:
        """Over how many seeds the means go."""
        return count_text(self.n_seeds, "seed")

    def best(self, task: str) -> str:
        """Return the most accurate method of a task."""
        return max(self.titles, key=lambda method: self.entries[method][task].mean)

    def best_on(self, method: str) -> int:
        """Return on how many tasks a method is the most accurate."""
        return sum(self.best(task) == method for task in self.tasks)

    def rows(self) -> list[tuple[str, dict[str, Entry], str]]:
        """Return name, entries and best method of every task, and of the average."""
        return [
            (short_task(task), {method: own[task] for method, own in self.entries.items()}, self.best(task))
            for task in (*self.tasks, AVERAGE)
        ]

    def describe_ranks(self) -> str:
        """Say how many methods are ranked, here and in the paper."""
        paper = f", in the paper of {len(self.paper_ranks)}" if self.paper_ranks else ""
        return f"Rank 1 is the most accurate of the {len(self.titles)} methods here{paper}."

    def rank_cells(self) -> list[str]:
        """Return the rank of every method, the paper's in brackets."""
        papers = {method: f" ({rank:.1f})" for method, rank in self.paper_ranks.items()}
        return [f"{rank:.1f}{papers.get(method, '')}" for method, rank in self.ranks.items()]

    def caption(self) -> str:
        """Say what the table holds."""
        return (
            f"Accuracy on the target in percent, mean ± standard deviation over {self.seeds_text} "
            f"({self.paper_name}, difference). {self.describe_ranks()}"
        )


def compare(result: Result, paper: PaperTable = REVIEWS) -> Comparison:
    """Return means, standard deviations over seeds, averages and ranks of a result beside a table of the paper.

    The standard deviation of an average is that of the seeds' averages over all tasks.

    Examples
    --------
    >>> accuracy = {"books->dvd": [0.80, 0.81], "dvd->books": [0.78, 0.79]}
    >>> methods = {"cmd": {"title": "CMD", "settings": {}, "accuracy": accuracy}}
    >>> comparison = compare({"tasks": list(accuracy), "seeds": [0, 1], "methods": methods})
    >>> entry = comparison.entries["cmd"][AVERAGE]
    >>> f"{entry.mean:.1f} +- {entry.std:.1f}, paper {entry.paper:.1f}"
    '79.5 +- 0.7, paper 80.0'
    """
    tasks, methods = tuple(result["tasks"]), result["methods"]
    known = [name for name in paper.columns if name in methods]
    order = [*known, *(name for name in methods if name not in known)]
    runs = {name: 100 * np.array([methods[name]["accuracy"][task] for task in tasks], dtype=float) for name in order}
    entries = {
        name: {task: Entry.of(own, paper.accuracies(name).get(task)) for task, own in zip(tasks, values, strict=True)}
        | {AVERAGE: Entry.of(values.mean(axis=0), paper.average(name, tasks))}
        for name, values in runs.items()
    }
    return Comparison(
        tasks=tasks,
        titles={name: str(methods[name]["title"]) for name in order},
        entries=entries,
        ranks=average_ranks({name: values.mean(axis=1).tolist() for name, values in runs.items()}),
        paper_ranks=paper.ranks(order, tasks),
        n_seeds=len(result["seeds"]),
        paper_name=paper.name,
    )


def average_ranks(accuracy: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the rank of each method, averaged over tasks: 1 is the most accurate, equal methods share their ranks.

    Examples
    --------
    >>> average_ranks({"a": [0.8, 0.8], "b": [0.8, 0.7], "c": [0.7, 0.9]})
    {'a': 1.75, 'b': 2.25, 'c': 2.0}
    """
    if not accuracy:
        return {}
    # Rounded, because equal means of different sums may differ in their last bits.
    values = np.round(np.array(list(accuracy.values()), dtype=float), 9)
    return dict(zip(accuracy, rankdata(-values, axis=0).mean(axis=1).tolist(), strict=True))


def short_task(task: str) -> str:
    """Write a task as the paper does.

    Examples
    --------
    >>> short_task("books->dvd"), short_task("synth->svhn")
    ('B→D', 'SynthDigits→SVHN')
    """
    if task == AVERAGE:
        return task
    return "→".join(DIGIT_SETS.get(domain, domain[:1].upper()) for domain in task.split("->"))


def long_task(task: str) -> str:
    """Write a task in full.

    Examples
    --------
    >>> long_task("books->dvd"), long_task("mnist->mnist-m")
    ('books → dvd', 'MNIST → MNIST-M')
    """
    return " → ".join(DIGIT_SETS.get(domain, domain) for domain in task.split("->"))


def markdown(comparison: Comparison) -> str:
    """Return the table in Markdown; a cell reads ``mean ± standard deviation (paper, difference)``."""

    def cell(entry: Entry, best: bool) -> str:
        written = f"**{entry.mean:.1f}**" if best else f"{entry.mean:.1f}"
        return written + entry.spread + (f" ({entry.paper:.1f}, {entry.difference})" if entry.difference else "")

    titles = [title.replace("|", r"\|") for title in comparison.titles.values()]
    rows = [["", *titles], ["---", *("---:" for _ in titles)]]
    for name, entries, best in comparison.rows():
        rows.append([name, *(cell(entry, method == best) for method, entry in entries.items())])
    rows.append(["Average rank", *comparison.rank_cells()])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{comparison.caption()}\n\n{lines}\n"


def latex(comparison: Comparison) -> str:
    """Return the table in LaTeX: the paper's value and the difference stand below each accuracy; needs no package."""

    def cell(entry: Entry, best: bool) -> str:
        written = rf"\mathbf{{{entry.mean:.1f}}}" if best else f"{entry.mean:.1f}"
        return f"${written}$" if entry.std is None else rf"${written} \pm {entry.std:.1f}$"

    def below(entry: Entry) -> str:
        return rf"{{\scriptsize $({entry.paper:.1f},\,{entry.difference})$}}" if entry.difference else ""

    escapes = str.maketrans({sign: f"\\{sign}" for sign in "&%$#_{}"} | {"~": " ", "^": " ", "\\": r"\textbackslash{}"})
    titles = [title.translate(escapes) for title in comparison.titles.values()]
    rows: list[list[str] | None] = [None, ["", *titles], None]  # None is a rule
    for name, entries, best in comparison.rows():
        if name == AVERAGE:
            rows.append(None)
        rows.append([name.replace("→", r"$\rightarrow$"), *(cell(entry, m == best) for m, entry in entries.items())])
        rows.append(["", *map(below, entries.values())])
    rows += [["Average rank", *comparison.rank_cells()], None]
    body = "\n".join(r"\hline" if row is None else rf"{' & '.join(row)} \\" for row in rows)
    caption = comparison.caption().replace("±", r"$\pm$")
    return (
        "\\begin{table}\n\\centering\\footnotesize\n"
        f"\\begin{{tabular}}{{l{'r' * len(titles)}}}\n{body}\n\\end{{tabular}}\n"
        f"\\caption{{{caption}}}\n\\end{{table}}\n"
    )


def count_text(number: int, thing: str) -> str:
    """Write how many things there are.

    Examples
    --------
    >>> count_text(1, "seed"), count_text(3, "task")
    ('one seed', '3 tasks')
    """
    return f"one {thing}" if number == 1 else f"{number} {thing}s"

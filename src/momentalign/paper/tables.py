"""Results of methods on tasks beside the paper's: the numbers of a table, in Markdown and in LaTeX.

Stands for Tables 2, 4 and 5, Sections 6.3 to 6.5 of Zellinger et al. (2019). All numbers are in percent, as the paper
prints them.

What the paper prints of its experiments: Tables 2, 4 and 5, and the words on Figure 5.

Zellinger, Moser, Grubinger, Lughofer, Natschläger, Saminger-Platz: Robust unsupervised domain adaptation for neural
networks via moment alignment, Information Sciences 483 (2019), Sections 6.3 to 6.6. The paper prints no
deviations. Table 4 is on features of AlexNet; of its columns CNN, CMD and FP-CMD are the authors' own runs.
Its columns DANN and TCA are quoted there from Ganin et al. (2016) and Li et al. (2017); the latter searched the
dimension of the TCA with target labels. Figure 5 prints no numbers beyond those in its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from momentalign.errors import InvalidInputError

__all__ = [
    "DIGITS",
    "DIGIT_TASKS",
    "IMPROVEMENT",
    "MOST_ACCURATE_BETA",
    "OBJECTS",
    "OBJECT_TASKS",
    "ORDERS_LIKE_FIVE",
    "ORDERS_TOLERANCE",
    "REVIEWS",
    "TABLE_2",
    "TABLE_2_AVERAGE",
    "TABLE_2_RANK",
    "TABLE_4",
    "TABLE_4_AVERAGE",
    "TABLE_4_RANK",
    "TABLE_5",
    "TABLE_5_AVERAGE",
    "TABLE_5_RANK",
    "TASKS",
    "Comparison",
    "Entry",
    "PaperTable",
    "average_ranks",
    "compare",
    "latex",
    "long_task",
    "markdown",
    "rank_words",
    "short_task",
    "signed",
]


class PaperTable(NamedTuple):
    """A table of accuracies as printed, in percent; `words` is how it is called beside ours."""

    words: str
    tasks: tuple[str, ...]
    columns: dict[str, dict[str, float]]
    averages: dict[str, float]
    ranks: dict[str, float]


TASKS = (
    "books->dvd",
    "books->electronics",
    "books->kitchen",
    "dvd->books",
    "dvd->electronics",
    "dvd->kitchen",
    "electronics->books",
    "electronics->dvd",
    "electronics->kitchen",
    "kitchen->books",
    "kitchen->dvd",
    "kitchen->electronics",
)

_COLUMNS = {
    "nn": (78.7, 71.4, 74.5, 74.6, 72.4, 76.5, 71.1, 71.9, 84.4, 69.9, 73.4, 83.3),
    "dann": (78.4, 73.3, 77.9, 72.3, 75.4, 78.3, 71.3, 73.8, 85.4, 70.9, 74.0, 84.3),
    "coral": (79.2, 73.1, 75.0, 77.6, 74.9, 79.2, 71.6, 72.4, 84.5, 73.0, 75.3, 84.0),
    "tca": (78.9, 74.2, 73.9, 77.5, 77.5, 79.6, 72.7, 75.7, 86.6, 71.7, 74.1, 83.5),
    "mmd": (79.6, 75.8, 78.7, 78.0, 76.6, 79.6, 73.3, 74.8, 85.7, 74.0, 76.3, 84.4),
    "cmd": (80.5, 78.7, 81.3, 79.5, 79.7, 83.0, 74.4, 76.3, 86.0, 75.6, 77.5, 85.4),
}

TABLE_2 = {method: dict(zip(TASKS, column, strict=True)) for method, column in _COLUMNS.items()}
"""Accuracy on the target in percent, by method and task, in the paper's order."""

TABLE_2_AVERAGE = {"nn": 75.2, "dann": 76.3, "coral": 76.7, "tca": 77.2, "mmd": 78.1, "cmd": 79.8}
"""The row "Average" of Table 2, in percent."""

TABLE_2_RANK = {"nn": 5.8, "dann": 4.5, "coral": 4.0, "tca": 3.3, "mmd": 2.3, "cmd": 1.1}
"""The row "Average rank". On D->K, TCA and MMD are equal: if they share ranks 2 and 3, TCA has 3.375, printed 3.3."""

REVIEWS = PaperTable("paper", TASKS, TABLE_2, TABLE_2_AVERAGE, TABLE_2_RANK)

OBJECT_TASKS = (
    "amazon->webcam",
    "dslr->webcam",
    "webcam->dslr",
    "amazon->dslr",
    "dslr->amazon",
    "webcam->amazon",
)

_OBJECT_COLUMNS = {
    "cnn": (52.9, 94.7, 99.0, 62.5, 50.2, 48.1),
    "tca": (61.0, 95.4, 95.2, 60.8, 51.6, 50.9),
    "mmd": (63.8, 94.6, 98.8, 65.8, 52.8, 51.9),
    "coral": (66.4, 95.7, 99.2, 66.8, 52.8, 51.5),
    "dann": (73.0, 96.4, 99.2, 72.3, 53.4, 51.2),
    "cmd": (62.8, 96.7, 99.3, 66.0, 53.6, 51.9),
    "fp-cmd": (64.8, 95.4, 99.4, 67.0, 55.1, 53.5),
}

TABLE_4 = {method: dict(zip(OBJECT_TASKS, column, strict=True)) for method, column in _OBJECT_COLUMNS.items()}
"""Accuracy on the target in percent on features of AlexNet, by method and task, in the paper's order."""

TABLE_4_AVERAGE = {
    "cnn": 67.9, "tca": 69.2, "mmd": 71.3, "coral": 72.1, "dann": 74.3, "cmd": 71.7, "fp-cmd": 72.5,
}  # fmt: skip
"""The column "Average" of Table 4, in percent."""

TABLE_4_RANK = {"cnn": 6.3, "tca": 6.0, "mmd": 4.7, "coral": 3.2, "dann": 2.5, "cmd": 2.7, "fp-cmd": 2.0}
"""The column "Average rank". Equal methods, such as TCA and FP-CMD on D->W, have the better of their ranks there."""

OBJECTS = PaperTable("paper on AlexNet", OBJECT_TASKS, TABLE_4, TABLE_4_AVERAGE, TABLE_4_RANK)

DIGIT_TASKS = ("svhn->mnist", "mnist->mnist-m", "synth->svhn")

_DIGIT_COLUMNS = {
    "cnn": (66.74, 70.85, 80.94),
    "coral": (69.39, 77.34, 83.58),
    "adda": (76.00,),
    "mmd": (76.90, 71.10, 88.00),
    "dann": (76.66, 73.85, 91.09),
    "dsn": (83.20, 82.70, 91.20),
    "cmd": (84.52, 85.04, 85.52),
    "cv-cmd": (86.34, 88.03, 85.42),
}

TABLE_5 = {method: dict(zip(DIGIT_TASKS, column, strict=False)) for method, column in _DIGIT_COLUMNS.items()}
"""Accuracy on the target in percent, by method and task, in the paper's order; ADDA has the first task only.

CNN, CORAL, CMD and CV-CMD are the authors' own runs; the others are quoted there from Tzeng et al. (2017), Bousmalis et
al. (2016) and Ganin et al. (2016), who used other networks. The source of the last task is SynthDigits; what
:func:`~momentalign.paper.synthetic_digits.make_synth_digits` draws stands in for it, so that task compares methods with
each other but not with the paper.
"""

TABLE_5_AVERAGE = {
    "cnn": 72.84, "coral": 76.77, "adda": 76.00, "mmd": 78.67, "dann": 80.53, "dsn": 85.70, "cmd": 85.03,
    "cv-cmd": 86.60,
}  # fmt: skip
"""The column "Average" of Table 5, in percent."""

TABLE_5_RANK = {
    "cnn": 7.3, "coral": 5.3, "adda": 5.0, "mmd": 4.7, "dann": 4.3, "dsn": 2.3, "cmd": 2.7, "cv-cmd": 2.3,
}  # fmt: skip
"""The column "Average rank" of Table 5, that of ADDA over its one task.

The printed accuracies give CORAL 5.7, ADDA 6.0, MMD 4.3 and DANN 4.0.
"""

DIGITS = PaperTable("paper", DIGIT_TASKS, TABLE_5, TABLE_5_AVERAGE, TABLE_5_RANK)

ORDERS_LIKE_FIVE, ORDERS_TOLERANCE = (3, 4, 6, 7), 0.005
"""Figure 5, upper left: with these k the accuracy differs from that with k = 5 by less than this share."""

MOST_ACCURATE_BETA = 1.2
"""Figure 5, upper right: the kernel parameter with the highest mean accuracy, the reference of that panel."""

IMPROVEMENT = (0.04, 0.06)
"""Figure 5, lower left: the range of the improvement by the CMD over the numbers of hidden nodes."""


DIGIT_SETS = {"svhn": "SVHN", "mnist": "MNIST", "mnist-m": "MNIST-M", "synth": "SynthDigits"}

_LATEX = str.maketrans({sign: f"\\{sign}" for sign in "&%$#_{}"} | {"~": " ", "^": " ", "\\": r"\textbackslash{}"})


class Entry(NamedTuple):
    """Ours beside the paper's, in percent; `deviation` is None for a single seed, `paper` where it has no value."""

    mean: float
    deviation: float | None
    paper: float | None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, in points."""
        return None if self.paper is None else self.mean - self.paper


class Comparison(NamedTuple):
    """A table, ours beside the paper's; methods stand in the paper's order, those it does not have at the end."""

    tasks: tuple[str, ...]
    titles: dict[str, str]
    entries: dict[str, dict[str, Entry]]
    averages: dict[str, Entry]
    ranks: dict[str, float]
    paper_ranks: dict[str, float]
    n_seeds: int
    paper_words: str = "paper"

    def best(self, task: str) -> str:
        """Return the most accurate method of a task."""
        return max(self.titles, key=lambda method: self.entries[method][task].mean)


def compare(result: Mapping[str, Any], paper: PaperTable = REVIEWS) -> Comparison:
    """Return means, deviations over seeds, averages and ranks of a result beside a table of the paper.

    The deviation is that of a sample; the deviation of an average is that of the seeds' averages over all tasks.

    Examples
    --------
    >>> accuracy = {"books->dvd": [0.80, 0.81], "dvd->books": [0.78, 0.79]}
    >>> methods = {"cmd": {"title": "CMD", "settings": {}, "accuracy": accuracy}}
    >>> comparison = compare({"tasks": list(accuracy), "seeds": [0, 1], "methods": methods})
    >>> entry = comparison.averages["cmd"]
    >>> f"{entry.mean:.1f} +- {entry.deviation:.1f}, paper {entry.paper:.1f}"
    '79.5 +- 0.7, paper 80.0'
    """
    tasks, methods = tuple(result["tasks"]), result["methods"]
    if not tasks or not methods:
        raise InvalidInputError("result has no finished method or no task to compare; finish the run.")
    known = paper.columns
    order = [*(name for name in known if name in methods), *(name for name in methods if name not in known)]
    runs = {method: _runs(methods[method]["accuracy"], method, tasks) for method in order}
    papers = {method: [known.get(method, {}).get(task) for task in tasks] for method in order}
    return Comparison(
        tasks=tasks,
        titles={method: str(methods[method]["title"]) for method in order},
        entries={
            method: {task: _entry(runs[method][task], papers[method][index]) for index, task in enumerate(tasks)}
            for method in order
        },
        averages={method: _average(runs[method], _paper_average(paper, method, tasks)) for method in order},
        ranks=average_ranks({m: [float(np.mean(values)) for values in runs[m].values()] for m in order}),
        paper_ranks=_paper_ranks(paper, order, tasks),
        n_seeds=len(result["seeds"]),
        paper_words=paper.words,
    )


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
    """Write a difference with its sign and one decimal; what rounds to nothing has none.

    Examples
    --------
    >>> signed(0.26), signed(-1.0), signed(-0.04)
    ('+0.3', '-1.0', '0.0')
    """
    words = f"{difference:+.1f}"
    return "0.0" if float(words) == 0 else words


def rank_words(comparison: Comparison) -> str:
    """Say among how many methods ours and the paper's are ranked."""
    paper = f", in the paper of {len(comparison.paper_ranks)}" if comparison.paper_ranks else ""
    return f"Rank 1 is the most accurate of the {len(comparison.titles)} methods here{paper}."


def markdown(comparison: Comparison) -> str:
    """Return the table in Markdown; a cell reads ``mean ± deviation (paper, difference)``, the best one in bold."""
    titles = [title.replace("|", r"\|") for title in comparison.titles.values()]
    rows = [["", *titles], ["---", *("---:" for _ in titles)]]
    for task in comparison.tasks:
        best = comparison.best(task)
        cells = [_markdown_cell(entries[task], name == best) for name, entries in comparison.entries.items()]
        rows.append([short_task(task), *cells])
    top = max(comparison.averages, key=lambda method: comparison.averages[method].mean)
    rows.append(["Average", *(_markdown_cell(entry, name == top) for name, entry in comparison.averages.items())])
    ranks = [_with_paper(f"{rank:.1f}", comparison.paper_ranks.get(name)) for name, rank in comparison.ranks.items()]
    rows.append(["Average rank", *ranks])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{_caption(comparison)} {rank_words(comparison)}\n\n{lines}\n"


def latex(comparison: Comparison) -> str:
    """Return the table in LaTeX: ours in one line, the paper's value and the difference below; needs no package."""
    titles = [title.translate(_LATEX) for title in comparison.titles.values()]
    lines = [r"\hline", _latex_row("", titles), r"\hline"]
    for task in comparison.tasks:
        best = comparison.best(task)
        name = short_task(task).replace("→", r"$\rightarrow$")
        lines += _latex_pair(name, {m: entries[task] for m, entries in comparison.entries.items()}, best)
    top = max(comparison.averages, key=lambda method: comparison.averages[method].mean)
    lines += [r"\hline", *_latex_pair("Average", comparison.averages, top)]
    ranks = [_with_paper(f"{rank:.1f}", comparison.paper_ranks.get(name)) for name, rank in comparison.ranks.items()]
    lines += [_latex_row("Average rank", ranks), r"\hline"]
    caption = f"{_caption(comparison)} {rank_words(comparison)}".replace("±", r"$\pm$")
    body = "\n".join(lines)
    return (
        "\\begin{table}\n\\centering\\footnotesize\n"
        f"\\begin{{tabular}}{{l{'r' * len(titles)}}}\n{body}\n\\end{{tabular}}\n"
        f"\\caption{{{caption}}}\n\\end{{table}}\n"
    )


def _runs(accuracy: Mapping[str, Sequence[float]], method: str, tasks: Sequence[str]) -> dict[str, list[float]]:
    """Return a method's accuracies in percent by task, or say which are missing."""
    for task in tasks:
        if not accuracy.get(task):
            raise InvalidInputError(
                f"result['methods'][{method!r}]['accuracy'] has no value for {task!r}; "
                "finish that method, or leave it out."
            )
    return {task: [100 * float(value) for value in accuracy[task]] for task in tasks}


def _entry(values: Sequence[float], paper: float | None) -> Entry:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Entry(float(np.mean(values)), deviation, paper)


def _average(runs: Mapping[str, Sequence[float]], paper: float | None) -> Entry:
    """Average over tasks seed by seed; where tasks have unequal numbers of seeds there is no deviation."""
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


def _caption(comparison: Comparison) -> str:
    seeds = "one seed" if comparison.n_seeds == 1 else f"{comparison.n_seeds} seeds"
    return f"Accuracy on the target in percent, mean ± deviation over {seeds} ({comparison.paper_words}, difference)."


def _with_paper(words: str, paper: float | None) -> str:
    return words if paper is None else f"{words} ({paper:.1f})"


def _markdown_cell(entry: Entry, best: bool) -> str:
    words = f"**{entry.mean:.1f}**" if best else f"{entry.mean:.1f}"
    if entry.deviation is not None:
        words += f" ± {entry.deviation:.1f}"
    if entry.paper is None:
        return words
    return f"{words} ({entry.paper:.1f}, {signed(entry.mean - entry.paper)})"


def _latex_pair(name: str, entries: Mapping[str, Entry], best: str) -> list[str]:
    ours = [_latex_cell(entry, method == best) for method, entry in entries.items()]
    papers = [
        "" if entry.paper is None else rf"{{\scriptsize $({entry.paper:.1f},\,{signed(entry.mean - entry.paper)})$}}"
        for entry in entries.values()
    ]
    return [_latex_row(name, ours), _latex_row("", papers)]


def _latex_cell(entry: Entry, best: bool) -> str:
    words = rf"\mathbf{{{entry.mean:.1f}}}" if best else f"{entry.mean:.1f}"
    return f"${words}$" if entry.deviation is None else rf"${words} \pm {entry.deviation:.1f}$"


def _latex_row(name: str, cells: Sequence[str]) -> str:
    return f"{' & '.join([name, *cells])} \\\\"

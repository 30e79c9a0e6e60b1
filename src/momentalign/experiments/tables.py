"""Results of methods on tasks beside the paper's: the numbers of a table, in Markdown and in LaTeX.

Stands for Tables 2, 4 and 5, Sections 6.3 to 6.5 of Zellinger et al. (2019). All numbers are in percent, as the paper
prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from momentalign.errors import InvalidInputError
from momentalign.experiments.paper_results import REVIEWS, PaperTable

__all__ = [
    "Comparison",
    "Entry",
    "average_ranks",
    "compare",
    "latex",
    "long_task",
    "markdown",
    "rank_words",
    "short_task",
    "signed",
]

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

"""What labels of some target rows are worth: books -> kitchen, 0 to 1,000 labelled kitchen reviews.

``python -m benchmarks.target_labels`` prints the figures, keeps every accuracy in benchmarks/results/target_labels.json
and draws docs/images/target_labels.svg from them; ``python -m benchmarks target_labels`` prints only. About 5 minutes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

import momentalign as ma
from benchmarks.__main__ import BESIDE
from benchmarks.figure import Figure
from momentalign.errors import DataNotFoundError
from momentalign.files import replace_file
from momentalign.paper.problems import load_reviews
from momentalign.report.svg import Frame, Picture, axes, label, line, marks, standalone

KEPT = Path(__file__).parent / "results" / "target_labels.json"
DRAWN = Path(__file__).parents[1] / "docs" / "images" / "target_labels.svg"
SOURCE, TARGET, ROWS = "books", "kitchen", 2000
COUNTS = (0, 20, 50, 100, 200, 500, 1000)
SEEDS = 5
METHODS = {
    "cmd": ("CMD, both domains", "ma-mann"),
    "plain": ("plain network, both domains", "ma-nn"),
    "target": ("plain network, labelled target rows alone", "ma-target"),
}
# Points of accuracy: means of 5 seeds whose deviation is up to 1.5 points are uncertain by 0.7.
SCATTER = 0.7

Results = dict[str, dict[str, list[float]]]


def figures() -> Iterator[Figure]:
    """Measure, and yield what labels and alignment bring."""
    yield from figures_of(measure())


def figures_of(results: Results) -> Iterator[Figure]:
    """Yield the gain by labels and the gain by alignment, in points, from kept accuracies."""
    cmd, plain = (_means(results[method]) for method in ("cmd", "plain"))
    for count, value in cmd.items():
        yield Figure("target_labels", f"CMD, {count} target labels, accuracy in percent", value)
    for count in COUNTS[1:]:
        least = 2.0 if count >= 500 else -SCATTER
        gain = cmd[count] - cmd[0]
        yield Figure("target_labels", f"CMD, {count} target labels minus none, points", gain, at_least=least)
    for count in COUNTS:
        gain = cmd[count] - plain[count]
        yield Figure("target_labels", f"{count} target labels, CMD minus plain, points", gain, at_least=0.0)


def measure() -> Results:
    """Return accuracies in percent, ``[method][count][seed]``, of MANNClassifier as it is, on log(1 + count)."""
    try:
        reviews = load_reviews()
    except DataNotFoundError as error:
        raise SystemExit(f"benchmarks: {error}") from None
    source, target = (reviews.rows[name].log1p() for name in (SOURCE, TARGET))
    labels, truth = reviews.labels[SOURCE], reviews.labels[TARGET]
    results: Results = {method: {} for method in METHODS}
    for count in COUNTS:
        for method in METHODS if count else ("cmd", "plain"):
            models = [_fitted(method, source, labels, target, truth, count, seed) for seed in range(SEEDS)]
            scores = [100.0 * float(model.score(target[ROWS:], truth[ROWS:])) for model in models]
            results[method][str(count)] = [round(score, 2) for score in scores]
    return results


def _fitted(
    method: str, source: Any, labels: NDArray[Any], target: Any, truth: NDArray[Any], count: int, seed: int
) -> ma.MANNClassifier:
    """Train on the source and the first 2,000 target rows, `count` of them with labels, drawn by the seed."""
    known = np.random.default_rng(seed).permutation(ROWS)[:count]
    model = ma.MANNClassifier(discrepancy="cmd" if method == "cmd" else None, device="cpu", random_state=seed)
    if method == "target":
        return model.fit(target[known], truth[known])
    some = np.full(ROWS, -1)
    some[known] = truth[known]
    return model.fit(source[:ROWS], labels[:ROWS], target[:ROWS], y_target=some)


def _means(accuracies: dict[str, list[float]]) -> dict[int, float]:
    return {int(count): float(np.mean(values)) for count, values in accuracies.items()}


def draw(results: Results) -> Picture:
    """Mean accuracy over the number of labelled target rows, every seed as a dot."""
    frame = Frame(
        x_range=(0, len(COUNTS) - 1), y_range=(48, 90), width=620, height=320, left=48, right=24, top=28, bottom=44
    )
    parts = [
        axes(
            frame,
            x_ticks=[(at, f"{count:,}") for at, count in enumerate(COUNTS)],
            y_ticks=[(at, f"{at} %") for at in range(50, 91, 10)],
            x_label="labelled target rows",
            y_label="accuracy on other kitchen reviews",
        )
    ]
    for row, (method, (name, css)) in enumerate(METHODS.items()):
        means = _means(results[method])
        x, y = frame.x([COUNTS.index(count) for count in means]), frame.y(list(means.values()))
        every = [(at, frame.y(values)) for at, values in zip(x, results[method].values(), strict=True)]
        parts.append(line(x, y, f"ma-line {css}"))
        parts += [marks(np.full(SEEDS, at), heights, "h0", f"ma-spot {css}") for at, heights in every]
        place = frame.floor - 62 + 20 * row
        parts.append(line([306, 328], [place - 4, place - 4], f"ma-line {css}"))
        parts.append(label(334, place, name, anchor="start"))
    return Picture(frame.width, frame.height, "Accuracy over the number of target labels", Markup("").join(parts))


def main() -> int:
    """Measure, keep, draw and print; 1 if a figure misses its bar."""
    if BESIDE.is_dir():
        os.environ.setdefault("MOMENTALIGN_DATA", str(BESIDE))
    results = measure()
    kept = {"task": f"{SOURCE}->{TARGET}", "rows": ROWS, "seeds": SEEDS, "accuracy": results}
    replace_file(KEPT, json.dumps(kept, indent=1).encode() + b"\n")
    replace_file(DRAWN, standalone(draw(results)).encode())
    every = list(figures_of(results))
    print("\n".join(figure.line() for figure in every))
    return int(not all(figure.passed for figure in every))


if __name__ == "__main__":
    sys.exit(main())

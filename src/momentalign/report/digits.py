"""The page of the experiment on digits: every method beside the paper's, and what alignment changes in a network.

Stands for Section 6.5 with Table 5 of Zellinger et al. (2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from momentalign.experiments.paper_results import DIGITS
from momentalign.experiments.tables import Comparison, compare, long_task
from momentalign.report.comparison import Words, comparison_page
from momentalign.report.digit_figures import CROSS, DOT, confusion_panel, embedding_panel, order_panel
from momentalign.report.page import Section, read_result
from momentalign.report.parts import (
    Answer,
    Bar,
    Cell,
    Choice,
    Sign,
    Tile,
    figure,
    heading,
    key,
    percent,
    picker,
    row,
    sheet,
    table,
    text,
    tiles,
)
from momentalign.report.sprites import sprite
from momentalign.report.svg import line, marks

__all__ = ["KEYS", "digits_page"]

Result = Mapping[str, Any]

KEYS = ("recipe", "device", "versions", "seeds", "tasks", "methods", "samples")
PLAIN = "cnn"
FIRST = ("cmd", "cv-cmd")
WORDS = Words(
    title="Digit recognition",
    before=PLAIN,
    after="cmd",
    tested="Source → target; accuracy on the target's test images.",
)


def digits_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce digits``."""
    read_result(result, "digits", KEYS)
    comparison = compare(result, DIGITS)
    whole = {**result, "protocol": _protocol(result), "data": {}}
    more = [Section(long_task(task), _task(result, comparison, task)) for task in comparison.tasks]
    return comparison_page(whole, comparison, WORDS, more=more)


def _protocol(result: Result) -> dict[str, Any]:
    """Return how networks were trained, in one list; changes of the images that were left out are left out."""
    recipe = dict(result["recipe"])
    changes = {name: value for name, value in recipe.pop("augmentation").items() if value}
    plain = {name: ("yes" if value else "no") if isinstance(value, bool) else value for name, value in recipe.items()}
    return {**plain, **changes, "device": result["device"]}


def _task(result: Result, comparison: Comparison, task: str) -> list[Markup]:
    """Return the images of both domains and what networks without and with alignment make of them."""
    samples = result["samples"][task]
    source, target = long_task(task).split(" → ")
    labelled = [Tile(words, "", [Answer(words)]) for words in map(str, samples["source_labels"])]
    choices = [_choice(result, comparison, task, shown) for shown in _shown(comparison)]
    chosen = picker(choices) if len(choices) > 1 else choices[0].panel
    words = f"Shown below are the networks of seed {result['seeds'][0]}."
    if len(choices) > 1:
        words += " The buttons choose the aligned one; their bars are the accuracies without and with alignment."
    return [
        _figures(result, comparison, task),
        heading(f"Labelled images of {source}"),
        sheet(sprite(samples["source_images"]), [tiles(f"Images of {source} with their labels", labelled)]),
        heading(f"What becomes of {target}"),
        text(words),
        sheet(sprite(samples["target_images"]), [chosen]),
    ]


def _shown(comparison: Comparison) -> list[list[str]]:
    """Return what is shown together: the plain network, if there is one, and each aligned one."""
    plain = [PLAIN] if PLAIN in comparison.titles else []
    aligned = [method for method in comparison.titles if method != PLAIN]
    aligned.sort(key=lambda method: FIRST.index(method) if method in FIRST else len(FIRST))
    return [[*plain, method] for method in aligned] or [plain]


def _choice(result: Result, comparison: Comparison, task: str, shown: Sequence[str]) -> Choice:
    """Return the picker's entry of one aligned method."""
    last = comparison.titles[shown[-1]]
    anchor = f"{Section(long_task(task), ()).anchor}-{Section(shown[-1], ()).anchor}"
    bars = [Bar(_css(method), round(comparison.entries[method][task].mean)) for method in shown]
    parts = [*_predictions(result, comparison, task, shown), *_looks(result, comparison, task, shown)]
    return Choice(anchor, last, bars, Markup("").join(parts))


def _figures(result: Result, comparison: Comparison, task: str) -> Markup:
    """Return what was measured on one task, averaged over seeds."""
    columns = ["Method", "Target", "Source", "Nuclear norm", "Mutual information", "Seconds"]
    rows = []
    for method, title in comparison.titles.items():
        column = result["methods"][method]
        accuracies = [float(np.mean(column[name][task])) for name in ("accuracy", "source_accuracy")]
        scores = [
            float(np.mean([score[name] for score in column["scores"][task]]))
            for name in ("nuclear_norm", "mutual_information")
        ]
        seconds = float(np.mean(column["seconds"][task]))
        rows.append(
            [
                Cell(title),
                *(Cell(percent(value), value) for value in accuracies),
                *(Cell(f"{value:.3f}", value) for value in scores),
                Cell(f"{seconds:.0f}", seconds),
            ]
        )
    caption = (
        f"{long_task(task)}: accuracy on test images, scores of target images without their labels, time to train; "
        "means over seeds"
    )
    return table(caption, columns, rows)


def _predictions(result: Result, comparison: Comparison, task: str, shown: Sequence[str]) -> list[Markup]:
    """Return images of the target with what each network says."""
    labels = result["samples"][task]["target_labels"]
    entries = [
        Tile(f"{digit}", f"{digit}", [_answer(result, comparison, task, method, place) for method in shown])
        for place, digit in enumerate(labels)
    ]
    right = [
        f"{comparison.titles[method]} reads {sum(entry.answers[index].right is True for entry in entries)}"
        for index, method in enumerate(shown)
    ]
    target = long_task(task).split(" → ")[1]
    words = f"Of these {len(entries)} images {' and '.join(right)} right: ✓ is right, ✗ is wrong."
    return [text(words), tiles(f"Images of {target} with what the networks say", entries)]


def _answer(result: Result, comparison: Comparison, task: str, method: str, place: int) -> Answer:
    closely = result["methods"][method]["closely"][task]
    said, sure = closely["predictions"][place], closely["chances"][place]
    title = comparison.titles[method]
    right = bool(said == result["samples"][task]["target_labels"][place])
    return Answer(f"{title} {said}", right, f"{title} says {said} with {percent(sure)}")


def _looks(result: Result, comparison: Comparison, task: str, shown: Sequence[str]) -> list[Markup]:
    """Return confusions, embeddings and distances of the shown networks."""
    closely = {method: result["methods"][method]["closely"][task] for method in shown}
    names = {method: _name(comparison, method) for method in shown}
    labels = result["samples"][task]["placed_labels"]
    confusions = [figure(confusion_panel(own["confusion"], name=names[m]), names[m]) for m, own in closely.items()]
    planes = [figure(embedding_panel(own["places"], labels, name=names[m]), names[m]) for m, own in closely.items()]
    signs = [
        Sign(marks([12], [7], DOT, "ma-spot ma-digit-0"), "source"),
        Sign(marks([12], [7], CROSS, "ma-stroke ma-digit-0"), "target"),
    ]
    return [
        heading("Which digit is taken for which"),
        text("A row for each digit, a column for each answer, in percent of the row."),
        row(confusions, least="18rem", css="pair"),
        heading("Where images lie"),
        text(
            "Embeddings of test images, brought into the plane by t-SNE; a colour for each digit, its name in the "
            "middle of the source's images."
        ),
        key(signs),
        row(planes, least="18rem", css="pair"),
        heading("Distance, order by order"),
        text(
            "Terms of the central moment discrepancy between training images of source and target, before training "
            "and after each epoch; each picture has its own height."
        ),
        key([Sign(line([2, 22], [7, 7], f"ma-line {_css(method)}"), names[method]) for method in shown]),
        row(_orders(closely, names), least="9.5rem", css="plain"),
    ]


def _orders(closely: Mapping[str, Any], names: Mapping[str, str]) -> list[Markup]:
    """Return a figure for each order."""
    lines = {_css(method): np.asarray(own["orders"], dtype=float).T.tolist() for method, own in closely.items()}
    called = {_css(method): name for method, name in names.items()}
    count = min(len(orders) for orders in lines.values())
    return [
        figure(order_panel(order + 1, {css: orders[order] for css, orders in lines.items()}, names=called))
        for order in range(count)
    ]


def _name(comparison: Comparison, method: str) -> str:
    return f"{comparison.titles[method]}, {'without' if method == PLAIN else 'with'} alignment"


def _css(method: str) -> str:
    return "ma-nn" if method == PLAIN else "ma-mann"

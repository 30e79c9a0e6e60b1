"""The page of the digits experiment (Section 6.5, Table 5): methods beside the paper's, and what alignment changes.

For every task it shows images with predictions, confusions, embeddings in the plane, and distances over time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from momentalign.paper.comparison_page import PageText, comparison_page
from momentalign.paper.sprites import sprite
from momentalign.paper.tables import DIGITS, Comparison, compare, long_task
from momentalign.report.page import (
    Answer,
    Bar,
    Cell,
    Choice,
    Section,
    Sign,
    Tile,
    check_result,
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
from momentalign.report.svg import Frame, Picture, axes, group, label, line, marks, number, ticks

__all__ = ["CROSS", "DOT", "KEYS", "confusion_panel", "digits_page", "embedding_panel", "order_panel"]

Result = Mapping[str, Any]

KEYS = ("recipe", "device", "versions", "seeds", "tasks", "methods", "samples")
PLAIN = "cnn"
FIRST = ("cmd", "cv-cmd")
PAGE = PageText(
    title="Digit recognition",
    before=PLAIN,
    after="cmd",
    tested="Source → target; accuracy on the target's test images.",
)

DOT, CROSS = "h0", "m-3-3l6 6m0-6l-6 6"
CELL, SIDE = 36.0, 34.0
DARKEST = 0.5  # so that text on it can be read
ORDERS = {1: "1, mean", 2: "2, variance"}


def digits_page(result: Result) -> str:
    """Return the page of one result of ``momentalign reproduce digits``."""
    check_result(result, "digits", KEYS)
    comparison = compare(result, DIGITS)
    whole = {**result, "protocol": _protocol(result), "data": {}}
    more = [Section(long_task(task), _task(result, comparison, task)) for task in comparison.tasks]
    return comparison_page(whole, DIGITS, PAGE, more=more)


def _protocol(result: Result) -> dict[str, Any]:
    """How networks were trained, in one list; changes of the images that were left out are left out."""
    recipe = dict(result["recipe"])
    changes = {name: value for name, value in recipe.pop("augmentation").items() if value}
    plain = {name: ("yes" if value else "no") if isinstance(value, bool) else value for name, value in recipe.items()}
    return {**plain, **changes, "device": result["device"]}


def _task(result: Result, comparison: Comparison, task: str) -> list[Markup]:
    """The images of both domains and what networks without and with alignment make of them."""
    samples = result["samples"][task]
    source, target = long_task(task).split(" → ")
    labelled = [Tile(label, "", [Answer(label)]) for label in map(str, samples["source_labels"])]
    choices = [_choice(result, comparison, task, shown) for shown in _shown(comparison)]
    chosen = picker(choices) if len(choices) > 1 else choices[0].panel
    lead = f"Shown below are the networks of seed {result['seeds'][0]}."
    if len(choices) > 1:
        lead += " The buttons choose the aligned one; their bars are the accuracies without and with alignment."
    return [
        _figures(result, comparison, task),
        heading(f"Labelled images of {source}"),
        sheet(sprite(samples["source_images"]), [tiles(f"Images of {source} with their labels", labelled)]),
        heading(f"What becomes of {target}"),
        text(lead),
        sheet(sprite(samples["target_images"]), [chosen]),
    ]


def _shown(comparison: Comparison) -> list[list[str]]:
    """What is shown together: the plain network, if there is one, and each aligned one."""
    plain = [PLAIN] if PLAIN in comparison.titles else []
    aligned = [method for method in comparison.titles if method != PLAIN]
    aligned.sort(key=lambda method: FIRST.index(method) if method in FIRST else len(FIRST))
    return [[*plain, method] for method in aligned] or [plain]


def _choice(result: Result, comparison: Comparison, task: str, shown: Sequence[str]) -> Choice:
    """The picker's entry of one aligned method."""
    last = comparison.titles[shown[-1]]
    anchor = f"{Section(long_task(task), ()).anchor}-{Section(shown[-1], ()).anchor}"
    bars = [Bar(_css(method), round(comparison.entries[method][task].mean)) for method in shown]
    parts = [*_predictions(result, comparison, task, shown), *_looks(result, comparison, task, shown)]
    return Choice(anchor, last, bars, Markup("").join(parts))


def _figures(result: Result, comparison: Comparison, task: str) -> Markup:
    """What was measured on one task, averaged over seeds."""
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
    """Images of the target with what each network says."""
    labels = result["samples"][task]["target_labels"]
    entries = [
        Tile(f"{digit}", f"{digit}", [_answer(result, comparison, task, method, index) for method in shown])
        for index, digit in enumerate(labels)
    ]
    right = [
        f"{comparison.titles[method]} reads {sum(entry.answers[index].right is True for entry in entries)}"
        for index, method in enumerate(shown)
    ]
    target = long_task(task).split(" → ")[1]
    lead = f"Of these {len(entries)} images {' and '.join(right)} right: ✓ is right, ✗ is wrong."
    return [text(lead), tiles(f"Images of {target} with what the networks predict", entries)]


def _answer(result: Result, comparison: Comparison, task: str, method: str, index: int) -> Answer:
    closely = result["methods"][method]["closely"][task]
    predicted, probability = closely["predictions"][index], closely["chances"][index]
    title = comparison.titles[method]
    right = bool(predicted == result["samples"][task]["target_labels"][index])
    return Answer(f"{title} {predicted}", right, f"{title} predicts {predicted} with {percent(probability)}")


def _looks(result: Result, comparison: Comparison, task: str, shown: Sequence[str]) -> list[Markup]:
    """Confusions, embeddings and distances of the shown networks."""
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
        text("A row for each digit, a column for each prediction, in percent of the row."),
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
    """A figure for each order."""
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


def confusion_panel(counts: Sequence[Sequence[int]], *, name: str) -> Picture:
    """Draw how often each digit (row) is taken for each digit (column), in percent of the row.

    Examples
    --------
    >>> confusion_panel([[3, 1], [0, 2]], name="CNN").title
    'Confusion of digits, CNN, percent right: 0: 75, 1: 100; most frequent mistake: 0 taken for 1, 25 %'
    """
    table = np.asarray(counts, dtype=float)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    classes = len(shares)
    parts = [label(SIDE + CELL * classes / 2, 11, "what the network predicts")]
    for digit in range(classes):
        middle = SIDE + CELL * (digit + 0.5)
        parts += [label(middle, 28, str(digit), "ma-heading"), label(16, middle + 4, str(digit), "ma-heading")]
    parts += [
        _cell(digit, predicted, float(shares[digit, predicted]))
        for digit in range(classes)
        for predicted in range(classes)
    ]
    size = SIDE + CELL * classes + 1
    return Picture(size, size, _confusion_title(shares, name), Markup("").join(parts))


def _cell(digit: int, predicted: int, share: float) -> Markup:
    """One field of a confusion matrix with its number: the darker the more frequent, mistakes in another colour."""
    x, y = SIDE + CELL * predicted, SIDE + CELL * digit
    css = "ma-mann" if digit == predicted else "ma-mistake"
    box = Markup('<path class="ma-bar {}" fill-opacity="{:.2f}" d="M{} {}h{}v{}h-{}z"/>').format(
        css, DARKEST * share + 0.03, number(x + 0.5), number(y + 0.5), *[number(CELL - 1)] * 3
    )
    if share < 0.005:
        return box
    return box + label(x + CELL / 2, y + CELL / 2 + 4, f"{100 * share:.0f}", "ma-count")


def _confusion_title(shares: NDArray[np.float64], name: str) -> str:
    right = ", ".join(f"{digit}: {100 * share:.0f}" for digit, share in enumerate(shares.diagonal()))
    mistakes = shares - np.diag(shares.diagonal())
    digit, predicted = np.unravel_index(mistakes.argmax(), mistakes.shape)
    most = f"{digit} taken for {predicted}, {100 * mistakes.max():.0f} %" if mistakes.max() > 0 else "none"
    return f"Confusion of digits, {name}, percent right: {right}; most frequent mistake: {most}"


def embedding_panel(
    points: Sequence[Sequence[float]], labels: Sequence[Sequence[int]], *, name: str, size: float = 400
) -> Picture:
    """Draw embeddings in the plane: a colour for each digit, dots for the source, crosses for the target.

    Parameters
    ----------
    points
        Two coordinates of every image, those of the source first.
    labels
        The digits of the source's images and those of the target's.
    name
        Of the network.
    size
        Of the picture.
    """
    plane = np.asarray(points, dtype=float)
    middle = (plane.min(axis=0) + plane.max(axis=0)) / 2
    half = max(float(np.abs(plane - middle).max()), 1e-9)
    frame = Frame(
        x_range=(middle[0] - half, middle[0] + half), y_range=(middle[1] - half, middle[1] + half),
        width=size, height=size, left=10, right=10, top=10, bottom=10,
    )  # fmt: skip
    x, y = frame.x(plane[:, 0]), frame.y(plane[:, 1])
    digits, source = np.concatenate([np.asarray(part, dtype=int) for part in labels]), len(labels[0])
    of_source = np.arange(len(digits)) < source
    parts = [
        group("", [marks(x[own], y[own], stroke, f"{css} ma-digit-{digit}") for digit, own in _members(digits, kind)])
        for stroke, css, kind in ((DOT, "ma-spot", of_source), (CROSS, "ma-stroke", ~of_source))
    ]
    tags = [
        label(float(np.median(x[own])), float(np.median(y[own])) + 5, str(digit), "ma-tag")
        for digit, own in _members(digits, of_source)
    ]
    title = (
        f"Embeddings of {source} source and {len(digits) - source} target images in the plane, {name}: "
        "a colour for each digit, dots for the source, crosses for the target"
    )
    return Picture(size, size, title, Markup("").join([*parts, *tags]))


def _members(digits: NDArray[np.int_], kind: NDArray[np.bool_]) -> list[tuple[int, NDArray[np.intp]]]:
    """The rows of one domain by digit."""
    return [(int(digit), np.flatnonzero(kind & (digits == digit))) for digit in np.unique(digits[kind])]


def order_panel(order: int, values: Mapping[str, Sequence[float]], *, names: Mapping[str, str]) -> Picture:
    """Draw one order's term of the CMD over epochs, a line for each network.

    Parameters
    ----------
    order
        From 1 on.
    values
        The term before training and after each epoch, by the style of the line.
    names
        Of the networks, by the same.
    """
    last = max(len(term) for term in values.values()) - 1
    top = max(1.08 * max(max(term) for term in values.values()), 1e-6)
    frame = Frame(
        x_range=(0, max(last, 1)), y_range=(0, top), width=220, height=150, left=44, right=10, top=26, bottom=22
    )
    parts = [
        label(4, 13, f"Order {ORDERS.get(order, str(order))}", "ma-heading", anchor="start"),
        axes(
            frame,
            x_ticks=[(0, "0"), (last, str(last))],
            y_ticks=[(at, f"{at:g}") for at in ticks(0, top, count=3)],
        ),
    ]
    parts += [line(frame.x(range(len(term))), frame.y(term), f"ma-line {css}") for css, term in values.items()]
    ends = ", ".join(f"{names[css]} from {term[0]:.3g} to {term[-1]:.3g}" for css, term in values.items())
    title = f"Distance of order {order} over {last} epochs: {ends}"
    return Picture(frame.width, frame.height, title, Markup("").join(parts))

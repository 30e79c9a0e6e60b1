"""What a network for digits does, drawn: its confusions, its embeddings in the plane, its distances over time.

For Section 6.5 of Zellinger et al. (2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from momentalign.report.svg import Frame, Picture, axes, group, label, line, marks, number, ticks

__all__ = ["CROSS", "DOT", "confusion_panel", "embedding_panel", "order_panel"]

DOT, CROSS = "h0", "m-3-3l6 6m0-6l-6 6"
CELL, SIDE = 36.0, 34.0
DARKEST = 0.5  # so that words on it can be read
ORDERS = {1: "1, mean", 2: "2, variance"}


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
    parts = [label(SIDE + CELL * classes / 2, 11, "what the network says")]
    for digit in range(classes):
        middle = SIDE + CELL * (digit + 0.5)
        parts += [label(middle, 28, str(digit), "ma-heading"), label(16, middle + 4, str(digit), "ma-heading")]
    parts += [_cell(digit, said, float(shares[digit, said])) for digit in range(classes) for said in range(classes)]
    size = SIDE + CELL * classes + 1
    return Picture(size, size, _confusion_title(shares, name), Markup("").join(parts))


def _cell(digit: int, said: int, share: float) -> Markup:
    """One field of a confusion matrix with its number: the darker the more frequent, mistakes in another colour."""
    x, y = SIDE + CELL * said, SIDE + CELL * digit
    css = "ma-mann" if digit == said else "ma-mistake"
    box = Markup('<path class="ma-bar {}" fill-opacity="{:.2f}" d="M{} {}h{}v{}h-{}z"/>').format(
        css, DARKEST * share + 0.03, number(x + 0.5), number(y + 0.5), *[number(CELL - 1)] * 3
    )
    if share < 0.005:
        return box
    return box + label(x + CELL / 2, y + CELL / 2 + 4, f"{100 * share:.0f}", "ma-count")


def _confusion_title(shares: NDArray[np.float64], name: str) -> str:
    right = ", ".join(f"{digit}: {100 * share:.0f}" for digit, share in enumerate(shares.diagonal()))
    mistakes = shares - np.diag(shares.diagonal())
    digit, said = np.unravel_index(mistakes.argmax(), mistakes.shape)
    most = f"{digit} taken for {said}, {100 * mistakes.max():.0f} %" if mistakes.max() > 0 else "none"
    return f"Confusion of digits, {name}, percent right: {right}; most frequent mistake: {most}"


def embedding_panel(
    places: Sequence[Sequence[float]], labels: Sequence[Sequence[int]], *, name: str, size: float = 400
) -> Picture:
    """Draw embeddings in the plane: a colour for each digit, dots for the source, crosses for the target.

    Parameters
    ----------
    places
        Two coordinates of every image, those of the source first.
    labels
        The digits of the source's images and those of the target's.
    name
        Of the network.
    size
        Of the picture.
    """
    points = np.asarray(places, dtype=float)
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    half = max(float(np.abs(points - middle).max()), 1e-9)
    frame = Frame(
        x_range=(middle[0] - half, middle[0] + half), y_range=(middle[1] - half, middle[1] + half),
        width=size, height=size, left=10, right=10, top=10, bottom=10,
    )  # fmt: skip
    x, y = frame.x(points[:, 0]), frame.y(points[:, 1])
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

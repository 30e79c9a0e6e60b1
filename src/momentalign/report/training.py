"""Pictures of a fitted network: how training went, what the hidden layer makes of both domains, and its boundaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from momentalign.report.svg import (
    DIAMOND,
    Frame,
    Picture,
    axes,
    clipped,
    label,
    line,
    marks,
    mosaic,
    path,
    rule,
    ticks,
)
from momentalign.validation import Floats

__all__ = ["boundary_picture", "embedding_picture", "training_picture"]

_DOT = "m-2.2 0a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0-4.4 0"
# Points of a domain that are drawn, epochs of a curve, points of a grid along each axis, and colours of classes.
_POINTS, _EPOCHS, _GRID, _COLOURS = 600, 400, 120, 10
_SOURCE, _TARGET = "ma-spot ma-source", "ma-spot ma-target"


def training_picture(history: Mapping[str, Sequence[float]], best_epoch: int) -> Picture:
    """Draw losses and the distance of the domains over the epochs, with a line at the epoch that was kept."""
    losses = [("source_loss", "ma-source", "source loss"), ("validation_loss", "ma-mann", "held-out loss")]
    panels = [
        _curves("Loss", [(history.get(name, ()), css, words) for name, css, words in losses], best_epoch),
        _curves("Distance of the domains", [(history["distance"], "ma-target", "distance")], best_epoch),
    ]
    last = {name: values[-1] for name, values in history.items() if len(values)}
    figures = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in last.items())
    return mosaic(f"Training of {len(history['distance'])} epochs; at the end {figures}", [panels])


def _curves(title: str, curves: Sequence[tuple[Sequence[float], str, str]], best_epoch: int) -> Picture:
    drawn = [(np.asarray(values, dtype=float), css, words) for values, css, words in curves if len(values)]
    highest = max((float(np.nanmax(values)) for values, _, _ in drawn), default=0.0)
    epochs = max((len(values) for values, _, _ in drawn), default=1)
    frame = Frame(
        x_range=(0, max(epochs, 2)),
        y_range=(0.0, 1.08 * highest or 1.0),
        width=380,
        height=240,
        left=52,
        right=18,
        top=34,
    )
    parts = [
        label(frame.left, 16, title, "ma-heading", anchor="start"),
        axes(
            frame,
            x_ticks=[(at, f"{at:g}") for at in ticks(*frame.x_range)],
            y_ticks=[(at, f"{at:.3g}") for at in ticks(*frame.y_range)],
            x_label="epoch",
        ),
    ]
    if 0 < best_epoch < epochs:
        at = float(frame.x(best_epoch))
        parts += [rule(at, frame.top, at, frame.floor, "ma-switch"), label(at, frame.top - 4, "kept")]
    for number, (values, css, words) in enumerate(drawn):
        shown = np.unique(np.linspace(0, len(values) - 1, min(len(values), _EPOCHS)).astype(int))
        parts.append(line(frame.x(shown + 1), frame.y(values[shown]), f"ma-line {css}"))
        row = 16 + 14 * number
        parts += [
            rule(frame.right_edge - 96, row - 4, frame.right_edge - 80, row - 4, f"ma-line {css}"),
            label(frame.right_edge - 74, row, words, anchor="start"),
        ]
    return Picture(frame.width, frame.height, title, Markup("").join(parts))


def embedding_picture(source: Floats, target: Floats | None) -> Picture:
    """Draw hidden activations of both domains along the two directions in which those of the source vary most."""
    centre = source.mean(axis=0)
    _, _, directions = np.linalg.svd(source - centre, full_matrices=False)
    if len(directions) < 2:
        directions = np.vstack([directions, np.zeros_like(directions)])
    samples = [(source, _SOURCE)] if target is None else [(source, _SOURCE), (target, _TARGET)]
    points = [((_some(rows) - centre) @ directions[:2].T, css) for rows, css in samples]
    frame = _square(np.concatenate([part for part, _ in points]))
    parts = [marks(frame.x(part[:, 0]), frame.y(part[:, 1]), "h0", css) for part, css in points]
    return _framed(frame, "Hidden layer", [clipped(frame, parts)], "first direction of the source", target is not None)


def boundary_picture(
    classes: Sequence[str],
    predict: Callable[[Floats], NDArray[np.intp]],
    source: Floats,
    codes: NDArray[np.intp],
    target: Floats | None,
) -> Picture:
    """Draw which class each point of the plane gets, the labelled source, and the target.

    Parameters
    ----------
    classes
        Their names.
    predict
        Returns the number of the class of rows of two features.
    source, codes, target
        Rows of two features; the number of the class of each source row.
    """
    from contourpy import FillType, contour_generator

    every = source if target is None else np.concatenate([source, target])
    frame = _square(every)
    x, y = (np.linspace(*span, _GRID) for span in (frame.x_range, frame.y_range))
    grid = np.stack([part.ravel() for part in np.meshgrid(x, y)], axis=1)
    found = predict(grid).reshape(_GRID, _GRID)
    parts = []
    for code in np.unique(found):
        regions = contour_generator(x, y, (found == code).astype(float), fill_type=FillType.OuterOffset)
        for points, offsets in zip(*regions.filled(0.5, 2.0), strict=True):
            rings = [points[start:end] for start, end in pairwise(offsets)]
            outline = "".join(_ring(frame.x(ring[:, 0]), frame.y(ring[:, 1])) for ring in rings)
            parts.append(path(outline, f"ma-region ma-digit-{code % _COLOURS}"))
    chosen = _chosen(len(source))
    for code in np.unique(codes):
        rows = source[chosen][codes[chosen] == code]
        css = f"ma-bar ma-digit-{code % _COLOURS}"
        parts.append(marks(frame.x(rows[:, 0]), frame.y(rows[:, 1]), DIAMOND, css))
    if target is not None:
        rows = _some(target)
        parts.append(marks(frame.x(rows[:, 0]), frame.y(rows[:, 1]), "h0", "ma-dot"))
    title = f"Where it says {', '.join(map(str, classes[:5]))}" + ("…" if len(classes) > 5 else "")
    return _framed(frame, title, [clipped(frame, parts)], "diamonds: source, dots: target", False)


def _ring(x: Floats, y: Floats) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True)) + "Z"


def _square(points: Floats) -> Frame:
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.06 * np.where(high > low, high - low, 1.0)
    spans = [(float(a), float(b)) for a, b in zip(low - margin, high + margin, strict=True)]
    return Frame(x_range=spans[0], y_range=spans[1], width=420, height=340, left=14, right=14, top=34, bottom=30)


def _framed(frame: Frame, title: str, parts: Sequence[Markup], note: str, key: bool) -> Picture:
    every = [label(frame.left, 16, title, "ma-heading", anchor="start"), axes(frame), *parts]
    every.append(label((frame.left + frame.right_edge) / 2, frame.floor + 18, note))
    if key:
        for number, (css, words) in enumerate(((_SOURCE, "source"), (_TARGET, "target"))):
            at = frame.right_edge - 120 + 64 * number
            every += [marks([at], [12], "h0", css), label(at + 8, 16, words, anchor="start")]
    return Picture(frame.width, frame.height, f"{title}; {note}", Markup("").join(every))


def _chosen(rows: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, rows - 1, min(rows, _POINTS)).astype(np.intp))


def _some(rows: Floats) -> Floats:
    return rows[_chosen(len(rows))]

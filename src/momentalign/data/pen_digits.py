"""Digits drawn with a pen: the plain shapes of house numbers, which the fonts at hand lack.

Most of those fonts put a foot under the one and close the four. Each digit here is a few strokes in a box of width 0.6
and height 1 about its middle, rows downwards as in an image; two alphabets differ where house numbers do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALPHABETS", "Stroke"]

Stroke = NDArray[np.float64]


def _line(*corners: tuple[float, float]) -> Stroke:
    return np.array(corners)


def _arc(x: float, y: float, width: float, height: float, start: float = 0, stop: float = 360) -> Stroke:
    """A part of an ellipse about (x, y); degrees go from the right over the bottom to the left."""
    angles = np.radians(np.linspace(start, stop, 25))
    return np.column_stack([x + width * np.cos(angles), y + height * np.sin(angles)])


def _turned(strokes: list[Stroke]) -> list[Stroke]:
    """A six as a nine."""
    return [-stroke for stroke in strokes]


_ROUND_SIX = [_arc(0, 0.19, 0.27, 0.31), np.vstack([_arc(0.02, 0, 0.29, 0.5, 315, 180), _line((-0.27, 0.19))])]
_STRAIGHT_SIX = [_arc(0, 0.2, 0.26, 0.3), _line((0.12, -0.5), (-0.2, 0.02))]
_BOWL = _arc(-0.02, 0.17, 0.28, 0.33, -130, 140)

_ROUND = [
    [_arc(0, 0, 0.28, 0.5)],
    [_line((-0.14, -0.3), (0.06, -0.5), (0.06, 0.5))],
    [np.vstack([_arc(0, -0.23, 0.26, 0.27, 190, 390), _line((-0.27, 0.5), (0.28, 0.5))])],
    [_arc(-0.02, -0.26, 0.24, 0.24, 200, 450), _arc(-0.02, 0.24, 0.28, 0.26, -90, 155)],
    [_line((0.13, 0.5), (0.13, -0.5), (-0.29, 0.2), (0.29, 0.2))],
    [np.vstack([_line((0.24, -0.5), (-0.18, -0.5)), _BOWL])],
    _ROUND_SIX,
    [_line((-0.27, -0.5), (0.27, -0.5), (-0.1, 0.5))],
    [_arc(0, -0.26, 0.23, 0.24), _arc(0, 0.24, 0.27, 0.26)],
    _turned(_ROUND_SIX),
]

_STRAIGHT = [
    [np.vstack([_arc(0, -0.24, 0.23, 0.26, 180, 360), _arc(0, 0.24, 0.23, 0.26, 0, 180), _line((-0.23, -0.24))])],
    [_line((0.0, -0.5), (0.0, 0.5))],
    [np.vstack([_arc(0, -0.25, 0.25, 0.25, 180, 370), _arc(0.1, 0.5, 0.36, 0.45, 270, 180), _line((0.27, 0.5))])],
    [np.vstack([_line((-0.25, -0.5), (0.24, -0.5), (-0.02, -0.12)), _arc(-0.02, 0.19, 0.28, 0.31, -80, 150)])],
    [_line((-0.16, -0.5), (-0.27, 0.16), (0.29, 0.16)), _line((0.12, -0.16), (0.12, 0.5))],
    [np.vstack([_line((0.25, -0.5), (-0.2, -0.5), (-0.22, -0.06)), _arc(-0.02, 0.17, 0.27, 0.33, -110, 150)])],
    _STRAIGHT_SIX,
    [np.vstack([_line((-0.26, -0.5), (0.26, -0.5)), _arc(0.4, 0.5, 0.5, 0.9, 255, 180)])],
    [_arc(0, -0.25, 0.25, 0.25), _arc(0, 0.25, 0.25, 0.25)],
    _turned(_STRAIGHT_SIX),
]

ALPHABETS = (_ROUND, _STRAIGHT)

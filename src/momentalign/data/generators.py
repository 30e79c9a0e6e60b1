"""Generated problems: seeded, natural, and hard enough to need adaptation.

Stands in for the artificial data of Section 6.2: three classes in the plane, each shifted and turned in the target.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentalign.data.benchmarks import Problem

__all__ = ["make_artificial"]

Points = NDArray[np.float64]

SIZES = (200, 221, 218)
NOISE = 0.02
# What happens to each class in the target: degrees it is turned about its mean, and the shift of its mean.
MOVES = ((10.0, (-0.12, 0.00)), (0.0, (-0.20, 0.10)), (30.0, (-0.40, 0.20)))


def make_artificial(seed: int = 0) -> Problem:
    """Draw two interlocked arcs and a wedge; in the target each class is drawn afresh, turned and shifted.

    Parameters
    ----------
    seed
        The same seed gives the same 639 + 639 points, on every machine.

    Examples
    --------
    >>> problem = make_artificial(0)
    >>> problem.source.shape, np.bincount(problem.target_labels).tolist()
    ((639, 2), [200, 221, 218])
    """
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(3), SIZES)
    source = np.concatenate(_classes(random))
    moved = [_move(points, *move) for points, move in zip(_classes(random), MOVES, strict=True)]
    return Problem(source, labels, np.concatenate(moved), labels.copy())


def _classes(random: np.random.Generator) -> list[Points]:
    upper, lower, wedge = SIZES
    return [
        _arc(random, upper, (-0.30, 0.28), -30.0, 185.0),
        _arc(random, lower, (0.05, -0.06), 130.0, 345.0),
        _wedge(random, wedge, (1.00, 0.10), (0.50, 0.90)),
    ]


def _arc(random: np.random.Generator, size: int, centre: ArrayLike, start: float, stop: float) -> Points:
    angles = random.uniform(start, stop, size)
    return np.asarray(centre) + _polar(angles, np.full(size, 0.53)) + random.normal(0.0, NOISE, (size, 2))


def _wedge(random: np.random.Generator, size: int, corner: ArrayLike, axes: ArrayLike) -> Points:
    """A quarter of an ellipse, filled evenly."""
    angles = random.uniform(90.0, 180.0, size)
    return np.asarray(corner) + np.asarray(axes) * _polar(angles, np.sqrt(random.uniform(0.0, 1.0, size)))


def _polar(degrees: Points, radius: Points) -> Points:
    angles = np.radians(degrees)
    return np.column_stack([radius * np.cos(angles), radius * np.sin(angles)])


def _move(points: Points, degrees: float, shift: ArrayLike) -> Points:
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    mean = points.mean(axis=0)
    turned: Points = (points - mean) @ np.array([[cosine, sine], [-sine, cosine]])
    return np.asarray(turned + mean + np.asarray(shift))

"""Benchmark problems of rows: the artificial example and the product reviews.

Sections 6.2 and 6.3 of Zellinger et al. (2019). The files are those of :mod:`momentalign.paper.catalogue`. A generated
problem stands in for the artificial data: three classes in the plane, each shifted and turned in the target.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from momentalign.paper.catalogue import find_file

__all__ = [
    "ARTIFICIAL_FILE",
    "CATEGORIES",
    "REVIEWS_FILE",
    "Problem",
    "Reviews",
    "load_artificial",
    "load_reviews",
    "make_artificial",
]

ARTIFICIAL_FILE, REVIEWS_FILE = "artificial.npz", "amazon_reviews.npz"
CATEGORIES = ("books", "dvd", "electronics", "kitchen")
Points: TypeAlias = NDArray[np.float64]


class Problem(NamedTuple):
    """A labelled source and a target whose labels serve for evaluation only."""

    source: NDArray[np.float64]
    source_labels: NDArray[np.intp]
    target: NDArray[np.float64]
    target_labels: NDArray[np.intp]


class Reviews(NamedTuple):
    """Counts of words (CSR, float32) and labels (0 negative, 1 positive) of each product category."""

    rows: dict[str, Any]
    labels: dict[str, NDArray[np.intp]]
    vocabulary: list[str]


def load_artificial(folder: str | Path | None = None) -> Problem:
    """Return the authors' artificial problem of Section 6.2: 639 + 639 points in the plane, three classes."""
    with np.load(find_file(ARTIFICIAL_FILE, folder), allow_pickle=False) as arrays:
        return Problem(
            arrays["x_source"].astype(np.float64),
            arrays["y_source"].argmax(axis=1),
            arrays["x_target"].astype(np.float64),
            arrays["y_target"].argmax(axis=1),
        )


def load_reviews(folder: str | Path | None = None) -> Reviews:
    """Return the reviews of Section 6.3: books, dvd, electronics, kitchen; the first 2,000 of each are labelled."""
    with np.load(find_file(REVIEWS_FILE, folder), allow_pickle=False) as arrays:
        columns = (arrays["xx_data"], arrays["xx_indices"], arrays["xx_indptr"])
        rows = sparse.csc_matrix(columns, shape=tuple(arrays["xx_shape"])).T.tocsr().astype(np.float32)
        labels = (arrays["yy"].ravel() > 0).astype(np.intp)
        offset = arrays["offset"].ravel().astype(int)
        vocabulary = arrays["vocabulary"].tolist()
    parts = {name: slice(*ends) for name, ends in zip(CATEGORIES, pairwise(offset), strict=True)}
    return Reviews(
        {name: rows[part] for name, part in parts.items()},
        {name: labels[part] for name, part in parts.items()},
        vocabulary,
    )


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

"""Benchmark problems of rows: the artificial example and the product reviews.

Sections 6.2 and 6.3 of Zellinger et al. (2019). The files are those of :mod:`momentalign.data.catalogue`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.data.catalogue import ARTIFICIAL, REVIEWS, find_file

__all__ = ["CATEGORIES", "Problem", "Reviews", "load_artificial", "load_reviews"]

CATEGORIES = ("books", "dvd", "electronics", "kitchen")
Matrix: TypeAlias = Any


class Problem(NamedTuple):
    """A labelled source and a target whose labels serve for evaluation only."""

    source: NDArray[np.float64]
    source_labels: NDArray[np.intp]
    target: NDArray[np.float64]
    target_labels: NDArray[np.intp]


class Reviews(NamedTuple):
    """Counts of words (CSR, float32) and labels (0 negative, 1 positive) of each product category."""

    rows: dict[str, Matrix]
    labels: dict[str, NDArray[np.intp]]
    vocabulary: list[str]


def load_artificial(folder: str | Path | None = None) -> Problem:
    """Return the authors' artificial problem of Section 6.2: 639 + 639 points in the plane, three classes."""
    with np.load(find_file(ARTIFICIAL, folder), allow_pickle=False) as arrays:
        return Problem(
            arrays["x_source"].astype(np.float64),
            _codes(arrays["y_source"]),
            arrays["x_target"].astype(np.float64),
            _codes(arrays["y_target"]),
        )


def load_reviews(folder: str | Path | None = None) -> Reviews:
    """Return the reviews of Section 6.3: books, dvd, electronics, kitchen; the first 2,000 of each are labelled."""
    with np.load(find_file(REVIEWS, folder), allow_pickle=False) as arrays:
        columns = (arrays["xx_data"], arrays["xx_indices"], arrays["xx_indptr"])
        rows = sparse.csc_matrix(columns, shape=tuple(arrays["xx_shape"])).T.tocsr().astype(np.float32)
        labels = (arrays["yy"].ravel() > 0).astype(np.intp)
        offset = arrays["offset"].ravel().astype(int)
        vocabulary = arrays["vocabulary"].tolist()
    places = {name: slice(offset[i], offset[i + 1]) for i, name in enumerate(CATEGORIES)}
    return Reviews(
        {name: rows[place] for name, place in places.items()},
        {name: labels[place] for name, place in places.items()},
        vocabulary,
    )


def _codes(one_hot: NDArray[Any]) -> NDArray[np.intp]:
    return np.asarray(one_hot.argmax(axis=1))

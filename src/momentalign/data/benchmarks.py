"""Benchmark files: what is known, where they are looked for, and whether they are what they should be.

Section 6.1 of Zellinger et al. (2019) lists the data sets. Nothing is downloaded here; files are found in the folder
given as
``--data DIR`` or in ``MOMENTALIGN_DATA``, and their SHA-256 is checked before they are read.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import DamagedFileError, DataNotFoundError

__all__ = [
    "ARTIFICIAL",
    "REVIEWS",
    "BenchmarkFile",
    "Problem",
    "Reviews",
    "find_file",
    "load_artificial",
    "load_reviews",
]


@dataclass(frozen=True)
class BenchmarkFile:
    """A file of numbers that some experiment needs."""

    name: str
    sha256: str
    source: str


CATEGORIES = ("books", "dvd", "electronics", "kitchen")
Matrix: TypeAlias = Any

ARTIFICIAL = BenchmarkFile(
    "artificial.npz",
    "f38ab84e2e78cdda2b1029c18fe8e6b8d41fec536488b6060d42e5ae3fff493d",
    "the four arrays of data/artificial_dataset in github.com/wzell/mann, saved with numpy.savez_compressed "
    "as x_source, x_target, y_source and y_target",
)


REVIEWS = BenchmarkFile(
    "amazon_reviews.npz",
    "ee04e9b7f8bffbddaef5558ea11ca42a3ef62495eb79eb137069c9e1796e7cca",
    "the Amazon reviews of Blitzer et al. (2007) with the preprocessing of Chen et al. (2012), counts of 5,000 "
    "unigrams and bigrams in the layout of amazon.mat (xx, yy, offset), saved as a numpy archive",
)


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


def find_file(file: BenchmarkFile, folder: str | Path | None = None) -> Path:
    """Return the path of a benchmark file whose checksum is right, or say how to get it.

    Parameters
    ----------
    file
        The file to find.
    folder
        Where to look; None takes the environment variable ``MOMENTALIGN_DATA``.
    """
    place = folder if folder is not None else os.environ.get("MOMENTALIGN_DATA")
    if place is None:
        raise DataNotFoundError(
            f"{file.name} is needed: give its folder as --data DIR or in MOMENTALIGN_DATA. It is {file.source}."
        )
    path = Path(place) / file.name
    if not path.is_file():
        raise DataNotFoundError(f"{path} is not there. {file.name} is {file.source}; --data DIR says where to look.")
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != file.sha256:
        raise DamagedFileError(
            f"{path} is not the file it should be (SHA-256 {digest[:12]}, expected {file.sha256[:12]}); "
            f"get it again: {file.source}."
        )
    return path


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

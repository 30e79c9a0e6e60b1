"""Both domains split at random into a part to train on and a part held out, each domain by itself."""

from __future__ import annotations

import numbers

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from momentalign.errors import InvalidInputError, InvalidTypeError

__all__ = ["refuse_bad_share", "split_labelled", "split_unlabelled"]

Rows = NDArray[np.intp]


def split_labelled(labels: NDArray[np.intp], *, share: float, seed: int) -> tuple[Rows, Rows]:
    """Return the rows to train on, a `share` of them, and the rows held out; classes in proportion, order random.

    Examples
    --------
    >>> training, held_out = split_labelled(np.array([0, 1] * 5), share=0.8, seed=0)
    >>> len(training), sorted(np.array([0, 1] * 5)[held_out].tolist())
    (8, [0, 1])
    """
    counts = np.bincount(labels)
    held_out = max(_held_out(len(labels), share), len(counts))
    if counts.min() < 2 or len(labels) - held_out < len(counts):
        raise InvalidInputError(
            f"y has {len(labels)} labels of {len(counts)} classes, {counts.min()} of the rarest, too few to hold out "
            "some of each class; give at least 2 rows of each class, or set share nearer to 0.5."
        )
    training, rest = train_test_split(
        np.arange(len(labels)), test_size=held_out, stratify=labels, random_state=seed % 2**32
    )
    return training, rest


def split_unlabelled(rows: int, *, share: float, seed: int) -> tuple[Rows, Rows]:
    """Return the rows to train on, a `share` of them, and the rows held out, at least one of each; order random.

    Examples
    --------
    >>> [len(part) for part in split_unlabelled(10, share=0.8, seed=0)]
    [8, 2]
    """
    held_out = min(max(_held_out(rows, share), 1), rows - 1)
    order = np.random.default_rng([seed, 2]).permutation(rows)
    return order[:-held_out], order[-held_out:]


def refuse_bad_share(share: object) -> None:
    """Raise unless this can be the part of a domain to train on."""
    if isinstance(share, bool) or not isinstance(share, numbers.Real):
        raise InvalidTypeError(f"share must be a number between 0 and 1, got {share!r}; try 0.8.")
    if not 0.0 < float(share) < 1.0:
        raise InvalidInputError(f"share must be above 0 and below 1, got {share!r}; try 0.8.")


def _held_out(rows: int, share: float) -> int:
    refuse_bad_share(share)
    return round((1.0 - float(share)) * rows)

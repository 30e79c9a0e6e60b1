"""Losses row by row, as importance-weighted and deep embedded validation weigh them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from momentalign.scores.inputs import Floats, read_labels, read_probabilities

__all__ = ["classification_errors", "cross_entropies"]

# A probability of zero for the true class costs this much and not infinity.
_SMALLEST = float(np.finfo(np.float32).tiny)


def classification_errors(*, probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    r"""Return 1 for each row whose most probable class is not its label, else 0; the first of equals is taken.

    Parameters
    ----------
    probabilities, labels
        Shape (rows, classes) and codes of shape (rows,).

    Examples
    --------
    >>> classification_errors(probabilities=[[0.75, 0.25], [0.125, 0.875]], labels=[0, 0])
    array([0., 1.])
    """
    chances = read_probabilities(probabilities, "probabilities")
    codes = read_labels(labels, "labels", rows=chances.shape[0], classes=chances.shape[1])
    return np.asarray(chances.argmax(axis=1) != codes, dtype=np.float64)


def cross_entropies(*, probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    r"""Return :math:`-\log p_y(x)` of each row.

    Parameters
    ----------
    probabilities, labels
        Shape (rows, classes) and codes of shape (rows,).

    Examples
    --------
    >>> cross_entropies(probabilities=[[0.75, 0.25], [0.5, 0.5]], labels=[1, 0]) / np.log(2)
    array([2., 1.])
    """
    chances = read_probabilities(probabilities, "probabilities")
    codes = read_labels(labels, "labels", rows=chances.shape[0], classes=chances.shape[1])
    of_label = chances[np.arange(len(codes)), codes]
    # Plus zero: a certain and right row costs 0, not -0.
    return -np.log(np.maximum(of_label, _SMALLEST)) + 0.0

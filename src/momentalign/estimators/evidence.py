r"""What can be known without target labels: whether to adapt, and how much each candidate is worth.

Two observations carry the portfolio of :mod:`momentalign.estimators.auto`.

*Plain models that agree need no help.* Different learners that were trained on the source err differently. Where the
target differs in what matters they begin to disagree, about in step with the accuracy they lose:

C. Baek, Y. Jiang, A. Raghunathan, J. Z. Kolter: Agreement-on-the-line: predicting the performance of neural networks
under distribution shift. NeurIPS 2022.

So the agreement of plain models on the target is compared with their agreement on held-out source rows. As long as it
is as good, nothing speaks for adapting.

This says nothing where the target lies outside of what the source covers: there all models extrapolate alike. Then only
candidates that standardise each domain by itself are left.

*Where adapting is needed, averaging beats choosing.* A candidate that adapted wrongly does so in its own way, those
that adapted rightly resemble each other; an average weighted by mutual agreement follows the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["agreement", "agreement_weights", "share_adapted", "share_outside", "source_weights"]

Floats: TypeAlias = NDArray[np.float64]

# Settings of the rules below, chosen on the development tasks (benchmarks/shifts.py) with their accuracies in view. The
# result hardly depends on them: powers from 4 to 32 and bounds from 0.9 to 1 are within 0.3 points of each other.
AGREEMENT_POWER = 8.0
FULLY_ADAPTED, NOT_ADAPTED = 0.92, 0.97
SOURCE_POWER = 30.0
# Parts of the values outside of the source's range; on the development tasks there are at most 0.012.
A_FEW_OUTSIDE, MANY_OUTSIDE = 0.1, 0.3


def agreement(labels: Sequence[NDArray[np.intp]]) -> Floats:
    """Return for every model the mean part of the rows on which another one predicts the same class.

    Examples
    --------
    >>> agreement([np.array([0, 1, 1, 1]), np.array([0, 1, 1, 0]), np.array([1, 1, 1, 0])]).tolist()
    [0.625, 0.75, 0.625]
    """
    together = np.stack(labels)
    if len(together) == 1:
        return np.ones(1)
    same = np.array([[(one == other).mean() for other in together] for one in together])
    return np.asarray((same.sum(axis=1) - 1.0) / (len(together) - 1))


def agreement_weights(labels: Sequence[NDArray[np.intp]]) -> Floats:
    r"""Return the weights :math:`a_i^8 / \sum_j a_j^8` of models with agreements :math:`a_i`.

    Examples
    --------
    >>> weights = agreement_weights([np.array([0, 1, 1, 1]), np.array([0, 1, 1, 0]), np.array([1, 1, 1, 0])])
    >>> weights.round(2).tolist()
    [0.16, 0.68, 0.16]
    """
    found = agreement(labels)
    relative = found / found.max() if found.max() > 0.0 else np.ones(len(found))
    weights = relative**AGREEMENT_POWER
    return np.asarray(weights / weights.sum())


def source_weights(accuracies: Sequence[float]) -> Floats:
    """Return the weights of plain models: those that are a few points less accurate on held-out source rows fade.

    Examples
    --------
    >>> source_weights([0.9, 0.9, 0.8]).round(2).tolist()
    [0.49, 0.49, 0.02]
    """
    values = np.asarray(accuracies, dtype=np.float64)
    weights = np.exp(SOURCE_POWER * (values - values.max()))
    return np.asarray(weights / weights.sum())


def share_adapted(on_target: float, on_source: float) -> float:
    """Return how much of the answer adapted models give, from 0 to 1, by the agreements of plain models.

    Examples
    --------
    >>> share_adapted(0.90, 0.91), share_adapted(0.6, 0.9)
    (0.0, 1.0)
    """
    if on_source <= 0.0:
        return 1.0
    position = (on_target / on_source - FULLY_ADAPTED) / (NOT_ADAPTED - FULLY_ADAPTED)
    return float(1.0 - np.clip(position, 0.0, 1.0))


def share_outside(source: NDArray[np.floating], target: NDArray[np.floating]) -> float:
    """Return how far the target is outside of what the source covers, from 0 (within) to 1 (outside).

    A value is outside where it is further from the source's range of its column than that range is wide.

    Examples
    --------
    >>> source = np.array([[0.0], [1.0]])
    >>> share_outside(source, np.array([[0.5], [1.5]])), share_outside(source, np.array([[90.0], [99.0]]))
    (0.0, 1.0)
    """
    low, high = source.min(axis=0), source.max(axis=0)
    width = np.where(high > low, high - low, np.inf)
    outside = float(((target < low - width) | (target > high + width)).mean())
    return float(np.clip((outside - A_FEW_OUTSIDE) / (MANY_OUTSIDE - A_FEW_OUTSIDE), 0.0, 1.0))

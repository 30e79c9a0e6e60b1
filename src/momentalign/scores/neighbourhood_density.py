r"""Soft neighbourhood density: rows of the target should sit in dense neighbourhoods of similar predictions.

K. Saito, D. Kim, P. Teterwak, S. Sclaroff, T. Darrell, K. Saenko: Tune it the right way: unsupervised validation of
domain adaptation via soft neighborhood density, ICCV 2021.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from momentalign.errors import InvalidInputError
from momentalign.scores.inputs import Floats, read_probabilities

__all__ = ["neighbourhood_density"]


def neighbourhood_density(*, probabilities: ArrayLike, temperature: float = 0.05, chunk: int = 1024) -> float:
    r"""Return the mean entropy of each target row's similarities to the others; higher is better.

    With unit vectors :math:`u_i = p(x_i) / \lVert p(x_i) \rVert_2` and temperature :math:`\tau`

    .. math:: -\frac1n \sum_i \sum_{j \ne i} P_{ij} \log P_{ij}, \qquad
        P_{ij} = \frac{\exp(\langle u_i, u_j \rangle / \tau)}{\sum_{k \ne i} \exp(\langle u_i, u_k \rangle / \tau)}

    A row with many near neighbours has a high entropy; between 0 and log(n - 1). Predictions that are the same for
    every row reach the maximum, and undecided ones are near each other too: compare models that tell classes apart with
    like confidence, and look at :func:`momentalign.scores.entropy.mutual_information` beside it.

    Parameters
    ----------
    probabilities
        Predictions for at least two target rows, (rows, classes).
    temperature
        The temperature :math:`\tau`, 0.05 in the paper.
    chunk
        Rows whose similarities are held at once: memory for (chunk, rows) numbers.

    Examples
    --------
    Three rows of each class: apart, and each with two neighbours like itself.

    >>> apart = [[1.0, 0.0], [0.8, 0.2], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8], [0.0, 1.0]]
    >>> clusters = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    >>> round(neighbourhood_density(probabilities=apart), 3), round(neighbourhood_density(probabilities=clusters), 3)
    (0.61, 0.693)
    """
    chances = read_probabilities(probabilities, "probabilities")
    if len(chances) < 2:
        raise InvalidInputError("probabilities has 1 row only; a neighbourhood needs at least 2 rows.")
    if not 0.0 < temperature < np.inf:
        raise InvalidInputError(f"temperature must be positive and finite, got {temperature}; try 0.05.")
    if chunk < 1:
        raise InvalidInputError(f"chunk must be at least 1, got {chunk}; try 1024.")
    units = chances / np.linalg.norm(chances, axis=1, keepdims=True)
    starts = range(0, len(units), chunk)
    return float(sum(_entropies(units, start, chunk, temperature).sum() for start in starts) / len(units))


def _entropies(units: Floats, start: int, chunk: int, temperature: float) -> Floats:
    """Entropy of the similarities of some rows to all others."""
    logits = units[start : start + chunk] @ units.T / temperature
    own = np.arange(len(logits))
    logits[own, start + own] = -np.inf
    logits -= logsumexp(logits, axis=1, keepdims=True)
    shares = np.exp(logits)
    logits[own, start + own] = 0.0  # 0 log 0
    return -np.asarray((shares * logits).sum(axis=1))

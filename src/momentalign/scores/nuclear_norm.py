r"""Batch nuclear norm: predictions for the target should be confident and diverse.

S. Cui, S. Wang, J. Zhuo, L. Li, Q. Huang, Q. Tian: Towards discriminability and diversity: batch nuclear-norm
maximization under label insufficient situations, CVPR 2020.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from momentalign.scores.inputs import read_probabilities

__all__ = ["nuclear_norm"]


def nuclear_norm(*, probabilities: ArrayLike) -> float:
    r"""Return the nuclear norm of the matrix of predictions as a part of its largest value; higher is better.

    .. math:: \frac{\lVert P \rVert_*}{\sqrt{n\, \min(n, c)}}, \qquad P \in [0, 1]^{n \times c}

    The nuclear norm, the sum of the singular values, is large where predictions are confident (large Frobenius norm)
    and use all classes equally (full rank). It is at most :math:`\sqrt{n \min(n, c)}`; divided by that, samples of
    different size can be compared: 1 for confident predictions that use every class equally often, 1 / c for uniform
    ones where there are at least c rows. It supposes that the classes of the target are about equally frequent.

    Parameters
    ----------
    probabilities
        Predictions for target rows, (rows, classes).

    Examples
    --------
    >>> nuclear_norm(probabilities=[[1.0, 0.0], [0.0, 1.0]]), nuclear_norm(probabilities=[[0.5, 0.5], [0.5, 0.5]])
    (1.0, 0.5)
    """
    chances = read_probabilities(probabilities, "probabilities")
    rows, classes = chances.shape
    return float(np.linalg.svd(chances, compute_uv=False).sum()) / math.sqrt(rows * min(rows, classes))

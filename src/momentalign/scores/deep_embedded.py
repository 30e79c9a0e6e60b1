r"""Deep embedded validation: importance-weighted validation with a control variate.

K. You, X. Wang, M. Long, M. I. Jordan: Towards accurate model selection in deep unsupervised domain adaptation,
ICML 2019.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from momentalign.scores.inputs import read_row_values

__all__ = ["deep_embedded_score"]


def deep_embedded_score(*, losses: ArrayLike, ratio: ArrayLike) -> float:
    r"""Return minus the weighted mean loss, corrected for the luck of the weights; higher is better.

    With :math:`L_i = w(x_i)\, \ell(f(x_i), y_i)`

    .. math:: -\big( \bar L + \eta\, (\bar w - 1) \big), \qquad
        \eta = -\frac{\widehat{\mathrm{Cov}}(L, w)}{\widehat{\mathrm{Var}}(w)}

    As :math:`\mathbb E_S[w] = 1`, the second term leaves the mean as it is, to first order, and takes away the part of
    the variance of :math:`\bar L` that goes with :math:`\bar w`. The `ratio` is the density ratio itself: weights that
    were divided by their mean leave the control variate nothing to correct, and the score is that of
    :func:`momentalign.scores.importance_weighted.importance_weighted_score`. It may leave the range of the losses.

    Parameters
    ----------
    losses
        Loss of each held-out source row, shape (rows,); see :mod:`momentalign.scores.losses`.
    ratio
        Density ratio at each of these rows, in You et al. from a classifier on hidden activations, such as
        :func:`momentalign.scores.importance.logistic_ratio`.

    Examples
    --------
    >>> deep_embedded_score(losses=[1.0, 1.0, 1.0, 1.0], ratio=[1.0, 3.0, 2.0, 2.0])
    -1.0
    """
    values = read_row_values(losses, "losses")
    weights = read_row_values(ratio, "ratio", rows=len(values))
    weighted = weights * values
    offset = weights - weights.mean()
    variance = float(offset @ offset)
    # Equal weights have no luck to correct; dividing by their rounding would invent some.
    if variance <= (np.finfo(np.float64).eps * weights.max()) ** 2 * len(weights):
        return -float(weighted.mean())
    eta = -float(offset @ weighted) / variance
    return -float(weighted.mean() + eta * (weights.mean() - 1.0))

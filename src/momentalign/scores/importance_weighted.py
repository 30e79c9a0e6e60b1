r"""Importance-weighted validation: the target error as a weighted error on held-out source rows.

M. Sugiyama, M. Krauledat, K.-R. Müller: Covariate shift adaptation by importance weighted cross validation,
JMLR 8, 2007.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from momentalign.scores.inputs import read_row_values

__all__ = ["importance_weighted_score"]


def importance_weighted_score(*, losses: ArrayLike, weights: ArrayLike) -> float:
    r"""Return minus the weighted mean loss of a model on held-out source rows; higher is better.

    .. math:: -\frac1n \sum_{i=1}^n w(x_i)\, \ell(f(x_i), y_i), \qquad w(x) = \frac{p_T(x)}{p_S(x)}

    With the true ratio this is, on average, minus the expected loss on the target, if labels depend on x in both
    domains in the same way. It varies a lot where few rows carry the weight: look at
    :func:`momentalign.scores.importance.effective_sample_size`.

    Parameters
    ----------
    losses
        Loss of each held-out source row, shape (rows,); see :mod:`momentalign.scores.losses`.
    weights
        Weight of each of these rows, from :func:`momentalign.scores.importance.importance_weights`.

    Examples
    --------
    >>> importance_weighted_score(losses=[0.0, 1.0, 1.0, 0.0], weights=[1.5, 0.5, 0.5, 1.5])
    -0.25
    """
    values = read_row_values(losses, "losses")
    importance = read_row_values(weights, "weights", rows=len(values))
    return -float((importance * values).mean())

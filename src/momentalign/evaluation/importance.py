r"""Importance of source rows: the density ratio of the target to the source, estimated without densities.

.. math:: w(x) = \frac{p_T(x)}{p_S(x)}

A mean over source rows with these weights estimates the mean over the target, as long as the target has no mass where
the source has none and labels depend on x in the same way. Take the ratio on hidden activations: a few aligned
features have a ratio that can be estimated, thousands of raw ones rarely do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from momentalign.errors import InvalidInputError
from momentalign.validation import Features, Floats, check_features, check_row_values

__all__ = ["effective_sample_size", "importance_weights", "logistic_ratio"]

# exp of more than this is no ratio of densities but a row that one domain never has.
_LARGEST_LOGIT = 30.0


def logistic_ratio(
    *, source: Features, target: Features, strength: float = 1.0, folds: int = 5, seed: int = 0
) -> Floats:
    r"""Return the density ratio at each source row from a classifier that tells the domains apart.

    With :math:`d(x)` the probability that a row is from the target, by Bayes' rule

    .. math:: w(x) = \frac{n_S}{n_T}\, \frac{d(x)}{1 - d(x)}.

    The classifier is a logistic regression on columns of unit variance with an L2 penalty. It is cross-fitted: the rows
    of each fold are judged by a classifier that was fitted to the other folds, as one that has seen a row knows
    its domain too well.

    Parameters
    ----------
    source, target
        Features (rows, width) and (other rows, width), dense or CSR.
    strength
        Inverse of the weight of the penalty, ``C`` of scikit-learn.
    folds
        Number of folds, at least 2.
    seed
        Seed of the folds.

    Returns
    -------
    NDArray
        Shape (source rows,), averages to about 1.

    References
    ----------
    S. Bickel, M. Brückner, T. Scheffer: Discriminative learning for differing training and test distributions,
    ICML 2007.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> ratio = logistic_ratio(source=random.normal(0, 1, (2000, 1)), target=random.normal(0, 1, (1000, 1)))
    >>> bool(abs(ratio - 1).max() < 0.2)
    True
    """
    source, target = check_features(source, "source"), check_features(target, "target")
    if source.shape[1] != target.shape[1]:
        raise InvalidInputError(
            f"source has {source.shape[1]} columns and target has {target.shape[1]}; give the same features."
        )
    smaller = min(source.shape[0], target.shape[0])
    if not 2 <= folds <= smaller:
        raise InvalidInputError(
            f"folds must be at least 2 and at most the rows of the smaller domain ({smaller}), got {folds}; try 5."
        )
    if not 0.0 < strength < np.inf:
        raise InvalidInputError(f"strength must be positive and finite, got {strength}; try 1.0.")
    pair_is_sparse = sparse.issparse(source) or sparse.issparse(target)
    rows = sparse.vstack([source, target], format="csr") if pair_is_sparse else np.vstack([source, target])
    domain = np.repeat([0, 1], [source.shape[0], target.shape[0]])
    # Sparse columns must not be centred; the intercept does what centring would.
    classifier = make_pipeline(StandardScaler(with_mean=False), LogisticRegression(C=strength, max_iter=1000))
    split = StratifiedKFold(folds, shuffle=True, random_state=seed)
    logits = cross_val_predict(classifier, rows, domain, cv=split, method="decision_function")[: source.shape[0]]
    ratio = source.shape[0] / target.shape[0] * np.exp(np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT))
    return np.asarray(ratio)


def importance_weights(*, ratio: ArrayLike, largest: float = 20.0) -> Floats:
    r"""Return weights of mean 1: ratios are cut at `largest` times their mean, then divided by what their mean is now.

    .. math:: w_i = \frac{v_i}{\frac1n \sum_j v_j}, \qquad v_i = \min\Big(r_i,\ c\, \frac1n \sum_j r_j\Big)

    Parameters
    ----------
    ratio
        Density ratios, shape (rows,).
    largest
        The cut c, at least 1; ``numpy.inf`` cuts nothing.

    Examples
    --------
    >>> importance_weights(ratio=[1.0, 3.0])
    array([0.5, 1.5])
    >>> importance_weights(ratio=[1.0, 1.0, 1.0, 13.0], largest=2.0).round(2)
    array([0.36, 0.36, 0.36, 2.91])
    """
    ratios = check_row_values(ratio, "ratio")
    if not largest >= 1.0:
        raise InvalidInputError(f"largest must be at least 1, got {largest}; try 20.0.")
    if not ratios.any():
        raise InvalidInputError("ratio is zero in every row: source and target share nothing; use other features.")
    cut = np.minimum(ratios, largest * ratios.mean())
    return np.asarray(cut / cut.mean())


def effective_sample_size(*, weights: ArrayLike) -> float:
    r"""Return how many equally weighted rows would be as good, between 1 and the number of rows.

    .. math:: \frac{(\sum_i w_i)^2}{\sum_i w_i^2}

    Where it is a small part of the rows, no score that uses the weights is to be trusted.

    Parameters
    ----------
    weights
        Shape (rows,), on any scale.

    References
    ----------
    L. Kish: Survey Sampling, 1965.

    Examples
    --------
    >>> effective_sample_size(weights=[1.0, 1.0, 1.0, 1.0]), effective_sample_size(weights=[0.0, 0.0, 2.0])
    (4.0, 1.0)
    """
    values = check_row_values(weights, "weights")
    if not values.any():
        raise InvalidInputError("weights are zero in every row; use other features.")
    scaled = values / values.max()
    return float(scaled.sum() ** 2 / (scaled @ scaled))

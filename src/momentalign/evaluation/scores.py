r"""Scores of a model for the target without target labels, the losses some of them weigh, and importance weights.

`probabilities` are predictions (rows, classes), of target rows where no labels go with them; `labels` are the codes of
the rows' classes, `losses` those of held-out source rows, as :func:`classification_errors` and :func:`cross_entropies`
give them. Of a score, higher is better.

The importance of a source row is the density ratio of the target to the source, estimated without densities,

.. math:: w(x) = \frac{p_T(x)}{p_S(x)}.

A mean over source rows with these weights estimates the mean over the target, as long as the target has no mass where
the source has none and labels depend on x in the same way. Take the ratio on hidden activations: a few aligned
features have a ratio that can be estimated, thousands of raw ones rarely do.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import entr, logsumexp

from momentalign.errors import InvalidInputError
from momentalign.validation import (
    Features,
    Floats,
    check_codes,
    check_features,
    check_int,
    check_number,
    check_probabilities,
    check_row_values,
    check_stack,
    positive_int,
)

__all__ = [
    "balancing_choice",
    "classification_errors",
    "cross_entropies",
    "deep_embedded_score",
    "importance_weighted_score",
    "importance_weights",
    "logistic_ratio",
    "mutual_information",
    "negative_entropy",
    "neighbourhood_density",
    "nuclear_norm",
]

# A probability of zero for the true class costs this much and not infinity.
_SMALLEST = float(np.finfo(np.float32).tiny)
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
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    source, target = check_features(source, "source"), check_features(target, "target")
    if source.shape[1] != target.shape[1]:
        raise InvalidInputError(
            f"source has {source.shape[1]} columns and target has {target.shape[1]}; give the same features."
        )
    smaller = min(source.shape[0], target.shape[0])
    check_int(folds, "folds", least=2, most=smaller, example=2)  # A fold has rows of both domains.
    check_number(strength, "strength", above=0.0, example=1.0)
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


def classification_errors(*, probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    r"""Return 1 for each row whose most probable class is not its label, else 0; the first of equals is taken.

    Examples
    --------
    >>> classification_errors(probabilities=[[0.75, 0.25], [0.125, 0.875]], labels=[0, 0])
    array([0., 1.])
    """
    predicted, codes = _labelled(probabilities, labels)
    return np.asarray(predicted.argmax(axis=1) != codes, dtype=np.float64)


def cross_entropies(*, probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    r"""Return :math:`-\log p_y(x)` of each row.

    Examples
    --------
    >>> cross_entropies(probabilities=[[0.75, 0.25], [0.5, 0.5]], labels=[1, 0]) / np.log(2)
    array([2., 1.])
    """
    predicted, codes = _labelled(probabilities, labels)
    of_label = predicted[np.arange(len(codes)), codes]
    # Plus zero: a certain and right row costs 0, not -0.
    return -np.log(np.maximum(of_label, _SMALLEST)) + 0.0


def _labelled(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    predicted = check_probabilities(probabilities, "probabilities")
    return predicted, check_codes(labels, "labels", rows=predicted.shape[0], classes=predicted.shape[1])


def negative_entropy(*, probabilities: ArrayLike) -> float:
    r"""Return minus the mean entropy of the predictions.

    .. math:: \frac1n \sum_i \sum_k p_k(x_i) \log p_k(x_i)

    Between -log c (uniform) and 0 (confident). Predictions that are all of one class reach 0 too.

    References
    ----------
    P. Morerio, J. Cavazza, V. Murino: Minimal-entropy correlation alignment for unsupervised deep domain adaptation,
    ICLR 2018.

    Examples
    --------
    >>> round(negative_entropy(probabilities=[[0.5, 0.5], [1.0, 0.0]]), 4)
    -0.3466
    """
    predicted = check_probabilities(probabilities, "probabilities")
    # Minus from zero: confident predictions give 0.0, not -0.0.
    return 0.0 - float(entr(predicted).sum(axis=1).mean())


def mutual_information(*, probabilities: ArrayLike) -> float:
    r"""Return the mutual information of row and predicted class.

    .. math:: H\Big( \frac1n \sum_i p(x_i) \Big) - \frac1n \sum_i H(p(x_i)), \qquad H(p) = -\sum_k p_k \log p_k

    Between 0 (the same prediction for every row) and log c (confident, every class equally often). It supposes that
    the classes of the target are about equally frequent.

    References
    ----------
    J. S. Bridle, A. J. R. Heading, D. J. C. MacKay: Unsupervised classifiers, mutual information and 'phantom targets',
    NIPS 1991. For domain adaptation Y. Shi, F. Sha: Information-theoretical learning of discriminative clusters for
    unsupervised domain adaptation, ICML 2012.

    Examples
    --------
    >>> balanced, constant = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]
    >>> round(mutual_information(probabilities=balanced), 4), mutual_information(probabilities=constant)
    (0.6931, 0.0)
    """
    predicted = check_probabilities(probabilities, "probabilities")
    return float(entr(predicted.mean(axis=0)).sum() - entr(predicted).sum(axis=1).mean())


def nuclear_norm(*, probabilities: ArrayLike) -> float:
    r"""Return the nuclear norm of the matrix of predictions as a part of its largest value.

    .. math:: \frac{\lVert P \rVert_*}{\sqrt{n\, \min(n, c)}}, \qquad P \in [0, 1]^{n \times c}

    The nuclear norm, the sum of the singular values, is large where predictions are confident (large Frobenius norm)
    and use all classes equally (full rank). It is at most :math:`\sqrt{n \min(n, c)}`; divided by that, samples of
    different size can be compared: 1 for confident predictions that use every class equally often, 1 / c for uniform
    ones where there are at least c rows. It supposes that the classes of the target are about equally frequent.

    References
    ----------
    S. Cui, S. Wang, J. Zhuo, L. Li, Q. Huang, Q. Tian: Towards discriminability and diversity: batch nuclear-norm
    maximization under label insufficient situations, CVPR 2020.

    Examples
    --------
    >>> nuclear_norm(probabilities=[[1.0, 0.0], [0.0, 1.0]]), nuclear_norm(probabilities=[[0.5, 0.5], [0.5, 0.5]])
    (1.0, 0.5)
    """
    predicted = check_probabilities(probabilities, "probabilities")
    rows, classes = predicted.shape
    return float(np.linalg.svd(predicted, compute_uv=False).sum()) / math.sqrt(rows * min(rows, classes))


def neighbourhood_density(*, probabilities: ArrayLike, temperature: float = 0.05, chunk: int = 1024) -> float:
    r"""Return the mean entropy of each target row's similarities to the others.

    With unit vectors :math:`u_i = p(x_i) / \lVert p(x_i) \rVert_2` and temperature :math:`\tau`

    .. math:: -\frac1n \sum_i \sum_{j \ne i} P_{ij} \log P_{ij}, \qquad
        P_{ij} = \frac{\exp(\langle u_i, u_j \rangle / \tau)}{\sum_{k \ne i} \exp(\langle u_i, u_k \rangle / \tau)}

    A row with many near neighbours has a high entropy; between 0 and log(n - 1). Predictions that are the same for
    every row reach the maximum, and undecided ones are near each other too: compare models that tell classes apart with
    like confidence, and look at :func:`mutual_information` beside it.

    Parameters
    ----------
    probabilities
        Of at least two rows.
    temperature
        The temperature :math:`\tau`, 0.05 in the paper.
    chunk
        Rows whose similarities are held at once: memory for (chunk, rows) numbers.

    References
    ----------
    K. Saito, D. Kim, P. Teterwak, S. Sclaroff, T. Darrell, K. Saenko: Tune it the right way: unsupervised validation of
    domain adaptation via soft neighborhood density, ICCV 2021.

    Examples
    --------
    Three rows of each class: apart, and each with two neighbours like itself.

    >>> apart = [[1.0, 0.0], [0.8, 0.2], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8], [0.0, 1.0]]
    >>> clusters = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    >>> round(neighbourhood_density(probabilities=apart), 3), round(neighbourhood_density(probabilities=clusters), 3)
    (0.61, 0.693)
    """
    predicted = check_probabilities(probabilities, "probabilities")
    if len(predicted) < 2:
        raise InvalidInputError("probabilities has 1 row only; a neighbourhood needs at least 2 rows.")
    temperature = check_number(temperature, "temperature", above=0.0, example=0.05)
    chunk = positive_int(chunk, "chunk", example="1024")
    units = predicted / np.linalg.norm(predicted, axis=1, keepdims=True)
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


def importance_weighted_score(*, losses: ArrayLike, weights: ArrayLike) -> float:
    r"""Return minus the weighted mean loss of a model on held-out source rows.

    .. math:: -\frac1n \sum_{i=1}^n w(x_i)\, \ell(f(x_i), y_i), \qquad w(x) = \frac{p_T(x)}{p_S(x)}

    With the true ratio this is, on average, minus the expected loss on the target, if labels depend on x in both
    domains in the same way. It varies a lot where few rows carry the weight.

    Parameters
    ----------
    losses, weights
        The loss of each row and its weight, from :func:`importance_weights`.

    References
    ----------
    M. Sugiyama, M. Krauledat, K.-R. Müller: Covariate shift adaptation by importance weighted cross validation,
    JMLR 8, 2007.

    Examples
    --------
    >>> importance_weighted_score(losses=[0.0, 1.0, 1.0, 0.0], weights=[1.5, 0.5, 0.5, 1.5])
    -0.25
    """
    values = check_row_values(losses, "losses")
    importance = check_row_values(weights, "weights", rows=len(values))
    return -float((importance * values).mean())


def deep_embedded_score(*, losses: ArrayLike, ratio: ArrayLike) -> float:
    r"""Return minus the weighted mean loss, corrected for the luck of the weights.

    With :math:`L_i = w(x_i)\, \ell(f(x_i), y_i)`

    .. math:: -\big( \bar L + \eta\, (\bar w - 1) \big), \qquad
        \eta = -\frac{\widehat{\mathrm{Cov}}(L, w)}{\widehat{\mathrm{Var}}(w)}

    As :math:`\mathbb E_S[w] = 1`, the second term leaves the mean as it is, to first order, and takes away the part of
    the variance of :math:`\bar L` that goes with :math:`\bar w`. The `ratio` is the density ratio itself: weights that
    were divided by their mean leave the control variate nothing to correct, and the score is that of
    :func:`importance_weighted_score`. It may leave the range of the losses.

    Parameters
    ----------
    losses, ratio
        The loss and the density ratio of each row; in You et al. the ratio is that of a classifier on hidden
        activations, such as :func:`logistic_ratio`.

    References
    ----------
    K. You, X. Wang, M. Long, M. I. Jordan: Towards accurate model selection in deep unsupervised domain adaptation,
    ICML 2019.

    Examples
    --------
    >>> deep_embedded_score(losses=[1.0, 1.0, 1.0, 1.0], ratio=[1.0, 3.0, 2.0, 2.0])
    -1.0
    """
    values = check_row_values(losses, "losses")
    weights = check_row_values(ratio, "ratio", rows=len(values))
    weighted = weights * values
    offset = weights - weights.mean()
    variance = float(offset @ offset)
    # Equal weights have no luck to correct; dividing by their rounding would invent some.
    if variance <= (np.finfo(np.float64).eps * weights.max()) ** 2 * len(weights):
        return -float(weighted.mean())
    eta = -float(offset @ weighted) / variance
    return -float(weighted.mean() + eta * (weights.mean() - 1.0))


def balancing_choice(*, predictions: ArrayLike, distances: ArrayLike, error_bound: float = 1.0) -> int:
    r"""Return the index of the model with the largest weight that still agrees with all models of smaller weight.

    Let :math:`f_0, f_1, \dots` be models of growing weight, :math:`D_i` the distance of the domains in the features of
    model i, and B a bound on the learning error. The choice is

    .. math:: \max\Big\{ i :\ \lVert f_i - f_j \rVert_T \le \Big(2 + \frac{2B}{D_0}\Big) D_j
        \ \text{ for all } j < i \Big\},
        \qquad \lVert f - g \rVert_T = \frac{1}{2n} \sum_x \lVert f(x) - g(x) \rVert_1,

    where the mean runs over target rows; for two classes the norm is that of Eq. (1) of Zellinger et al. (2019).

    Parameters
    ----------
    predictions
        Probabilities of the models on target rows, (models, rows, classes), smallest weight first.
    distances
        Distance of source and target in the features of each model, shape (models,), the first one positive. It
        should not grow with the weight, and be on the scale of an error, such as a proxy A-distance; larger distances
        make the rule choose larger weights.
    error_bound
        The bound B: 1 for errors in [0, 1].

    Returns
    -------
    int
        An index into `predictions`; 0 where already the second model disagrees too much.

    Notes
    -----
    Suppose the error of model i on the target is at most :math:`A_i + D_i`, where the learning error :math:`A_i \le B`
    is unknown and grows with the weight while :math:`D_i` falls. The two balance at the last index :math:`i^*` with
    :math:`A_i \le (B / D_0)\, D_i`; there is one, as the first model fulfils it. For :math:`j < i \le i^*`

    .. math:: \lVert f_i - f_j \rVert_T \le A_i + D_i + A_j + D_j \le 2 \frac{B}{D_0} D_i + 2 D_j
        \le \Big(2 + \frac{2B}{D_0}\Big) D_j,

    so the choice is never below :math:`i^*`, and by the triangle inequality through :math:`f_{i^*}` its error is at
    most :math:`3 (1 + B / D_0)\, D_{i^*}`, three times what the unknown balance guarantees. This is the principle of
    Lepskii (1990), known from inverse problems, written out here for the errors above. The constant is that of the
    authors' published experiments, which differ in two points: they compare with :math:`D_i` in place of :math:`D_j`,
    which is stricter and chooses smaller weights, and count the rows whose classes differ.

    References
    ----------
    W. Zellinger, N. Shepeleva, M.-C. Dinu, H. Eghbal-zadeh, H. D. Nguyen, B. Nessler, S. V. Pereverzyev, B. A. Moser:
    The balancing principle for parameter choice in distance-regularized domain adaptation, NeurIPS 2021.

    Examples
    --------
    Of three models the last has the distance down to nothing and predicts something else.

    >>> models = [[[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2], [0.3, 0.7]], [[0.3, 0.7], [0.9, 0.1]]]
    >>> balancing_choice(predictions=models, distances=[0.5, 0.05, 0.01])
    1
    """
    stack = check_stack(predictions, "predictions")
    far = check_row_values(distances, "distances", rows=len(stack))
    if far[0] == 0.0:
        raise InvalidInputError(
            "distances must start above 0, got 0; there is nothing to balance, take the first model."
        )
    allowed = (2.0 + 2.0 * check_number(error_bound, "error_bound", above=0.0, example=1.0) / far[0]) * far
    for index in range(len(stack) - 1, 0, -1):
        disagreement = np.abs(stack[index] - stack[:index]).sum(axis=2).mean(axis=1) / 2.0
        if (disagreement <= allowed[:index]).all():
            return index
    return 0

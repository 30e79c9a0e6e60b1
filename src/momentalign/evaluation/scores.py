"""Scores of a model for the target without target labels, and the losses of source rows that some of them weigh."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, logsumexp

from momentalign.errors import InvalidInputError
from momentalign.validation import Floats, check_codes, check_probabilities, check_row_values, check_stack

__all__ = [
    "balancing_choice",
    "classification_errors",
    "cross_entropies",
    "deep_embedded_score",
    "importance_weighted_score",
    "mutual_information",
    "negative_entropy",
    "neighbourhood_density",
    "nuclear_norm",
]

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
    predicted = check_probabilities(probabilities, "probabilities")
    codes = check_codes(labels, "labels", rows=predicted.shape[0], classes=predicted.shape[1])
    return np.asarray(predicted.argmax(axis=1) != codes, dtype=np.float64)


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
    predicted = check_probabilities(probabilities, "probabilities")
    codes = check_codes(labels, "labels", rows=predicted.shape[0], classes=predicted.shape[1])
    of_label = predicted[np.arange(len(codes)), codes]
    # Plus zero: a certain and right row costs 0, not -0.
    return -np.log(np.maximum(of_label, _SMALLEST)) + 0.0


def negative_entropy(*, probabilities: ArrayLike) -> float:
    r"""Return minus the mean entropy of the predictions; higher is better.

    .. math:: \frac1n \sum_i \sum_k p_k(x_i) \log p_k(x_i)

    Between -log c (uniform) and 0 (confident). Predictions that are all of one class reach 0 too.

    Parameters
    ----------
    probabilities
        Predictions for target rows, (rows, classes).

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
    r"""Return the mutual information of row and predicted class; higher is better.

    .. math:: H\Big( \frac1n \sum_i p(x_i) \Big) - \frac1n \sum_i H(p(x_i)), \qquad H(p) = -\sum_k p_k \log p_k

    Between 0 (the same prediction for every row) and log c (confident, every class equally often). It supposes that
    the classes of the target are about equally frequent.

    Parameters
    ----------
    probabilities
        Predictions for target rows, (rows, classes).

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
    r"""Return the mean entropy of each target row's similarities to the others; higher is better.

    With unit vectors :math:`u_i = p(x_i) / \lVert p(x_i) \rVert_2` and temperature :math:`\tau`

    .. math:: -\frac1n \sum_i \sum_{j \ne i} P_{ij} \log P_{ij}, \qquad
        P_{ij} = \frac{\exp(\langle u_i, u_j \rangle / \tau)}{\sum_{k \ne i} \exp(\langle u_i, u_k \rangle / \tau)}

    A row with many near neighbours has a high entropy; between 0 and log(n - 1). Predictions that are the same for
    every row reach the maximum, and undecided ones are near each other too: compare models that tell classes apart with
    like confidence, and look at :func:`momentalign.evaluation.scores.mutual_information` beside it.

    Parameters
    ----------
    probabilities
        Predictions for at least two target rows, (rows, classes).
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
    if not 0.0 < temperature < np.inf:
        raise InvalidInputError(f"temperature must be positive and finite, got {temperature}; try 0.05.")
    if chunk < 1:
        raise InvalidInputError(f"chunk must be at least 1, got {chunk}; try 1024.")
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
    r"""Return minus the weighted mean loss of a model on held-out source rows; higher is better.

    .. math:: -\frac1n \sum_{i=1}^n w(x_i)\, \ell(f(x_i), y_i), \qquad w(x) = \frac{p_T(x)}{p_S(x)}

    With the true ratio this is, on average, minus the expected loss on the target, if labels depend on x in both
    domains in the same way. It varies a lot where few rows carry the weight: look at
    :func:`momentalign.evaluation.importance.effective_sample_size`.

    Parameters
    ----------
    losses
        Loss of each held-out source row, shape (rows,); see :mod:`momentalign.evaluation.scores`.
    weights
        Weight of each of these rows, from :func:`momentalign.evaluation.importance.importance_weights`.

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
    r"""Return minus the weighted mean loss, corrected for the luck of the weights; higher is better.

    With :math:`L_i = w(x_i)\, \ell(f(x_i), y_i)`

    .. math:: -\big( \bar L + \eta\, (\bar w - 1) \big), \qquad
        \eta = -\frac{\widehat{\mathrm{Cov}}(L, w)}{\widehat{\mathrm{Var}}(w)}

    As :math:`\mathbb E_S[w] = 1`, the second term leaves the mean as it is, to first order, and takes away the part of
    the variance of :math:`\bar L` that goes with :math:`\bar w`. The `ratio` is the density ratio itself: weights that
    were divided by their mean leave the control variate nothing to correct, and the score is that of
    :func:`momentalign.evaluation.scores.importance_weighted_score`. It may leave the range of the losses.

    Parameters
    ----------
    losses
        Loss of each held-out source row, shape (rows,); see :mod:`momentalign.evaluation.scores`.
    ratio
        Density ratio at each of these rows, in You et al. from a classifier on hidden activations, such as
        :func:`momentalign.evaluation.importance.logistic_ratio`.

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
    if not 0.0 < error_bound < np.inf:
        raise InvalidInputError(f"error_bound must be positive and finite, got {error_bound}; try 1.0.")
    allowed = (2.0 + 2.0 * error_bound / far[0]) * far
    for index in range(len(stack) - 1, 0, -1):
        disagreement = np.abs(stack[index] - stack[:index]).sum(axis=2).mean(axis=1) / 2.0
        if (disagreement <= allowed[:index]).all():
            return index
    return 0

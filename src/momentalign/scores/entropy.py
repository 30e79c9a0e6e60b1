r"""Entropy and mutual information of predictions for the target.

Low entropy as a criterion: P. Morerio, J. Cavazza, V. Murino: Minimal-entropy correlation alignment for unsupervised
deep domain adaptation, ICLR 2018. Mutual information: J. S. Bridle, A. J. R. Heading, D. J. C. MacKay: Unsupervised
classifiers, mutual information and 'phantom targets', NIPS 1991; for domain adaptation Y. Shi, F. Sha:
Information-theoretical learning of discriminative clusters for unsupervised domain adaptation, ICML 2012.
"""

from __future__ import annotations

from numpy.typing import ArrayLike
from scipy.special import entr

from momentalign.scores.inputs import read_probabilities

__all__ = ["mutual_information", "negative_entropy"]


def negative_entropy(*, probabilities: ArrayLike) -> float:
    r"""Return minus the mean entropy of the predictions; higher is better.

    .. math:: \frac1n \sum_i \sum_k p_k(x_i) \log p_k(x_i)

    Between -log c (uniform) and 0 (confident). Predictions that are all of one class reach 0 too.

    Parameters
    ----------
    probabilities
        Predictions for target rows, (rows, classes).

    Examples
    --------
    >>> round(negative_entropy(probabilities=[[0.5, 0.5], [1.0, 0.0]]), 4)
    -0.3466
    """
    chances = read_probabilities(probabilities, "probabilities")
    # Minus from zero: confident predictions give 0.0, not -0.0.
    return 0.0 - float(entr(chances).sum(axis=1).mean())


def mutual_information(*, probabilities: ArrayLike) -> float:
    r"""Return the mutual information of row and predicted class; higher is better.

    .. math:: H\Big( \frac1n \sum_i p(x_i) \Big) - \frac1n \sum_i H(p(x_i)), \qquad H(p) = -\sum_k p_k \log p_k

    Between 0 (the same prediction for every row) and log c (confident, every class equally often). It supposes that
    the classes of the target are about equally frequent.

    Parameters
    ----------
    probabilities
        Predictions for target rows, (rows, classes).

    Examples
    --------
    >>> balanced, constant = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]
    >>> round(mutual_information(probabilities=balanced), 4), mutual_information(probabilities=constant)
    (0.6931, 0.0)
    """
    chances = read_probabilities(probabilities, "probabilities")
    return float(entr(chances.mean(axis=0)).sum() - entr(chances).sum(axis=1).mean())

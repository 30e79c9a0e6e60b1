r"""The balancing principle: how far the weight of the distance may grow, read off the models themselves.

W. Zellinger, N. Shepeleva, M.-C. Dinu, H. Eghbal-zadeh, H. D. Nguyen, B. Nessler, S. V. Pereverzyev, B. A. Moser:
The balancing principle for parameter choice in distance-regularized domain adaptation, NeurIPS 2021.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from momentalign.errors import InvalidInputError
from momentalign.scores.inputs import read_row_values, read_stack

__all__ = ["balancing_choice"]


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

    Examples
    --------
    Of three models the last has the distance down to nothing and predicts something else.

    >>> models = [[[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2], [0.3, 0.7]], [[0.3, 0.7], [0.9, 0.1]]]
    >>> balancing_choice(predictions=models, distances=[0.5, 0.05, 0.01])
    1
    """
    stack = read_stack(predictions, "predictions")
    far = read_row_values(distances, "distances", rows=len(stack))
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

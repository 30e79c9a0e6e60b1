r"""What moments bound: the size of each term of the CMD, and by the CMD the distance of characteristic functions.

Stands for Proposition 1 (Eq. 14) and Theorem 3 (Eqs. 15 and 16) of Zellinger et al. (2019). How far the mean of n rows
may be from its expectation is Hoeffding's inequality (1963), for rows drawn independently and a function that was fixed
before: rows that a model was trained on are not such rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from momentalign.errors import InvalidInputError
from momentalign.moments.sample import monomials, read_pair
from momentalign.theory.polynomial_metric import cmd_by_definition
from momentalign.validation import check_confidence, check_interval, positive_int

__all__ = [
    "characteristic_bound",
    "characteristic_distance",
    "mean_deviation",
    "moment_bound",
    "tau",
]

# Means and ranges are rounded; float32 samples keep within this of what they should be.
_ROUNDING = 1e-6


def moment_bound(order: int, width: int = 1) -> float:
    r"""Return Proposition 1's bound on one term of the CMD, Eq. (14), for marginal moments of any width (Section 7.4).

    .. math:: \frac{\lVert c_j(\mathcal D) - c_j(\mathcal D') \rVert_2}{|b-a|^j}
        \le 2 \sqrt m \left( \frac{1}{j+1} \Big(\frac{j}{j+1}\Big)^j + \frac{1}{2^{1+j}} \right)

    Parameters
    ----------
    order
        The order j of the term.
    width
        The number m of features; the norm runs over the marginal moments of all of them.

    Examples
    --------
    >>> moment_bound(1), round(moment_bound(5), 4), round(moment_bound(5, width=4), 4)
    (1.0, 0.1652, 0.3304)
    """
    j, m = positive_int(order, "order"), positive_int(width, "width")
    return 2.0 * math.sqrt(m) * ((j / (j + 1)) ** j / (j + 1) + 0.5 ** (1 + j))


def characteristic_bound(source: Any, target: Any, order: int) -> float:
    r"""Return the right side of Theorem 3, Eq. (15), for odd `order`.

    .. math:: \sup_{\lVert t \rVert_1 \le 1} |\zeta_S(t) - \zeta_T(t)| \le \sqrt m\, e\, \mathrm{cmd}_k + \tau(k)

    Parameters
    ----------
    source, target
        Zero-mean samples in [-1/2, 1/2], shapes (rows, width) and (other rows, width). The CMD takes all cross-moments.
    order
        The odd number k of moments.

    Examples
    --------
    >>> round(characteristic_bound([[-0.5], [0.5]], [[0.0]], 1), 6)
    0.125
    """
    source, target = _check_theorem_3(source, target, order)
    return math.sqrt(source.shape[1]) * math.e * cmd_by_definition(source, target, order) + tau(source, target, order)


def tau(source: Any, target: Any, order: int) -> float:
    r"""Return the error term of Theorem 3, Eq. (16): what the moments above the k-th can still hide.

    .. math:: \tau(k) = \frac{1}{(k+1)!} \max_{\lVert \alpha \rVert_1 = k+1} \big( |c_\alpha(S)| + |c_\alpha(T)| \big)

    Notes
    -----
    The proof bounds :math:`\mathbb E|x^\alpha|` by :math:`|c_\alpha|`, which fails for odd entries of :math:`\alpha`.
    The theorem holds all the same: k + 1 is even, so by the inequality of the means :math:`\mathbb E|x^\alpha|` is at
    most an average of the pure powers :math:`\mathbb E[x_i^{k+1}]`, and the maximum is attained at one of those.

    Examples
    --------
    >>> tau([[-0.5], [0.5]], [[0.0]], 1)
    0.125
    """
    source, target = _check_theorem_3(source, target, order)
    of_source, of_target = (monomials(sample, order + 1).mean(0).abs() for sample in (source, target))
    return float((of_source + of_target).max()) / math.factorial(order + 1)


def characteristic_distance(source: ArrayLike, target: ArrayLike, frequencies: ArrayLike) -> NDArray[np.float64]:
    r"""Return :math:`|\zeta_S(t) - \zeta_T(t)|` of the empirical characteristic functions, the left side of Eq. (15).

    .. math:: \zeta_S(t) = \frac{1}{|S|} \sum_{x \in S} e^{i \langle t, x \rangle}

    Parameters
    ----------
    source, target
        Shapes (rows, width) and (other rows, width).
    frequencies
        Points t with :math:`\lVert t \rVert_1 \le 1`, shape (points, width).

    Returns
    -------
    NDArray
        One distance per point, shape (points,).

    Examples
    --------
    >>> characteristic_distance([[-0.5], [0.5]], [[0.0]], [[0.0], [1.0]]).round(4).tolist()
    [0.0, 0.1224]
    """
    of_source, of_target, _ = read_pair(source, target)
    points = _check_frequencies(frequencies, of_source.shape[1])
    difference = _characteristic_function(of_source, points) - _characteristic_function(of_target, points)
    return np.abs(difference)


def _characteristic_function(sample: Tensor, points: NDArray[np.float64]) -> NDArray[np.complex128]:
    values: NDArray[np.float64] = sample.detach().cpu().double().numpy()
    phases: NDArray[np.complex128] = np.exp(1j * (points @ values.T)).mean(axis=1)
    return phases


def _check_frequencies(frequencies: ArrayLike, width: int) -> NDArray[np.float64]:
    points = np.asarray(frequencies, dtype=np.float64)
    if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] != width:
        raise InvalidInputError(
            f"frequencies must have shape (points, {width}), got {points.shape}; give one row per point."
        )
    length = float(np.abs(points).sum(axis=1).max())
    if not length <= 1.0 + _ROUNDING:
        raise InvalidInputError(
            f"frequencies must satisfy ||t||_1 <= 1, got {length:.6g}; divide the rows by their 1-norms."
        )
    return points


def _check_theorem_3(source: Any, target: Any, order: int) -> tuple[Tensor, Tensor]:
    """Return the samples in float64 if they meet the assumptions of Theorem 3, or say which one they do not."""
    if positive_int(order, "order") % 2 == 0:
        raise InvalidInputError(f"order must be odd in Theorem 3, got {order}; try order={order + 1}.")
    pair = read_pair(source, target)
    source, target = (sample.detach().cpu().double() for sample in pair[:2])
    for name, sample in (("source", source), ("target", target)):
        peak, offset = float(sample.abs().max()), float(sample.mean(0).abs().max())
        if not peak <= 0.5 + _ROUNDING:
            raise InvalidInputError(f"{name} must lie in [-1/2, 1/2], got values as large as {peak:.6g}; rescale it.")
        if not offset <= _ROUNDING:
            raise InvalidInputError(f"{name} must have zero mean, got {offset:.6g}; subtract the mean of each column.")
    return source, target


def mean_deviation(
    rows: int, *, confidence: float = 0.95, interval: tuple[float, float] = (0.0, 1.0), statements: int = 1
) -> float:
    r"""Return Hoeffding's t: the sample mean is less than t below the expectation.

    .. math:: t = |b - a| \sqrt{\frac{\ln (s / \delta)}{2 n}}, \qquad
        P\big( \mathbb E[x] - \bar x \ge t \big) \le \frac{\delta}{s}

    Parameters
    ----------
    rows
        The number n of independent rows.
    confidence
        :math:`1 - \delta`.
    interval
        The values lie in [a, b].
    statements
        The number s of one-sided statements that shall hold together with this confidence; "not more than t above" is
        another one.

    Examples
    --------
    >>> round(mean_deviation(1000), 4), round(mean_deviation(1000, statements=2), 4)
    (0.0387, 0.0429)
    """
    count, several = positive_int(rows, "rows", example="1000"), positive_int(statements, "statements", example="1")
    return check_interval(interval) * math.sqrt(
        math.log(several / (1.0 - check_confidence(confidence))) / (2.0 * count)
    )

r"""What moments bound: terms of the CMD, characteristic functions, and how far expectations of a function differ.

Stands for Proposition 1 (Eq. 14) and Theorem 3 (Eqs. 15 and 16) of Zellinger et al. (2019), and goes with Theorems 1
and 2 (Eqs. 3 and 13). How far the mean of n rows may be from its expectation is Hoeffding's inequality (1963), for rows
drawn independently and a function that was fixed before: rows that a model was trained on are not such rows.

The distance of Theorem 1 is a supremum of

.. math:: \big| \mathbb E_S[f] - \mathbb E_T[f] \big| \le
    \underbrace{\big| \mathbb E_S[p] - \mathbb E_T[p] \big|}_{\text{k moments say it}}
    + \underbrace{2 \max_{x \in [a, b]} |f(x) - p(x)|}_{\text{smoothness}}

over functions f, and this holds for every polynomial p of degree k: outside the moments f and p differ by no more than
the maximum, once in each domain. That finitely many moments need smoothness beside them is the subject of Zellinger,
Moser and Saminger-Platz (2021), *On generalization in moment-based domain adaptation*, Annals of Mathematics and
Artificial Intelligence 89, who ask it of the densities. Here it is asked of the function, and every step is in the
docstrings. All statements are about the two laws whose moments are given; two samples are such laws, with equal
probability for each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike
from torch import Tensor

from momentalign.errors import InvalidInputError
from momentalign.moments.sample import monomials, read_pair
from momentalign.theory.definitions import cmd_by_definition
from momentalign.validation import (
    Floats,
    check_confidence,
    check_interval,
    check_number,
    check_row_values,
    positive_int,
)

__all__ = [
    "GapBound",
    "characteristic_bound",
    "characteristic_distance",
    "chebyshev_moments",
    "lipschitz_factors",
    "lipschitz_gap_bound",
    "mean_deviation",
    "moment_bound",
    "polynomial_gap_bound",
    "smooth_gap_bound",
    "tau",
]

Interval = tuple[float, float]

# Means and values are rounded: they keep within this part of the interval's length of what they should be.
_ROUNDING = 1e-6
# No central moment of order 2 and up on [0, 1] is larger: that of order j is at most the variance.
_LARGEST_MOMENT = 0.25
# Angles at which the error of an approximation is looked at.
_ANGLES = 4096


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


def characteristic_distance(source: ArrayLike, target: ArrayLike, frequencies: ArrayLike) -> Floats:
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
    samples = [sample.detach().cpu().double().numpy() for sample in read_pair(source, target)[:2]]
    width = samples[0].shape[1]
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
    of_source, of_target = (np.exp(1j * (points @ sample.T)).mean(axis=1) for sample in samples)
    return np.asarray(np.abs(of_source - of_target))


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


class GapBound(NamedTuple):
    """A bound on the difference of two expectations of one function, in its two parts."""

    polynomial: float
    """What the moments say."""
    smoothness: float
    """What they cannot see: twice the distance of the function from the polynomials."""

    @property
    def total(self) -> float:
        """The bound."""
        return self.polynomial + self.smoothness


def polynomial_gap_bound(terms: Sequence[float], *, norms: Sequence[float] | None = None) -> float:
    r"""Return a bound on :math:`|\mathbb E_S[p] - \mathbb E_T[p]|` by the terms of the CMD alone.

    For sums over units of polynomials up to degree k, written about the mean of the source,

    .. math:: p(x) = \sum_{j=1}^k \Big\langle w_j, \Big( \frac{x - \mu_S}{b - a} \Big)^j \Big\rangle,
        \qquad \lVert w_j \rVert_2 \le W_j,

    with powers unit by unit and :math:`t_j` the j-th term of the marginal CMD,

    .. math:: \big| \mathbb E_S[p] - \mathbb E_T[p] \big| \le \sum_{j=2}^k W_j\, t_j
        + \sum_{j=1}^k W_j \sum_{i=0}^{j-1} \binom ji \beta_i \min\{t_1, t_1^{j-i}\},
        \qquad \beta_0 = 1,\ \beta_1 = 0,\ \beta_i = \tfrac14.

    Parameters
    ----------
    terms
        The k terms of :func:`momentalign.cmd_terms` with ``cross=1``, the interval's length divided out.
    norms
        The k numbers :math:`W_j`; all one by default.

    Notes
    -----
    *Equal means.* The second sum is zero and the first is attained: it is Theorem 2, the supremum over
    :math:`\lVert w_j \rVert_2 \le W_j` is reached by :math:`w_j` along the difference of the moments.

    *Different means.* By the binomial theorem, with :math:`\delta = (\mu_T - \mu_S) / (b - a)`, unit by unit,
    :math:`\mathbb E_T[((x - \mu_S)/(b-a))^j] = \sum_i \binom ji c_i(T)\, \delta^{j-i} / (b-a)^i`. The summand i = j
    meets :math:`c_j(S)`. In the others central moments on an interval of length 1 are at most :math:`\beta_i`, and
    :math:`\lVert \delta^m \rVert_2 \le \min\{t_1, t_1^m\}` because no entry of :math:`\delta` is larger than 1.

    Examples
    --------
    >>> polynomial_gap_bound([0.0, 0.25, 0.125])
    0.375
    >>> polynomial_gap_bound([0.5, 0.25]), polynomial_gap_bound([0.5, 0.25], norms=[1.0, 0.0])
    (1.0, 0.5)
    """
    distances = check_row_values(terms, "terms")
    weights = np.ones(len(distances)) if norms is None else check_row_values(norms, "norms", rows=len(distances))
    drifts = [_drift(order, float(distances[0])) for order in range(1, len(distances) + 1)]
    return float(weights[1:] @ distances[1:] + weights @ np.array(drifts))


def chebyshev_moments(sample: ArrayLike, degree: int, *, interval: Interval = (0.0, 1.0)) -> Floats:
    r"""Return :math:`\mathbb E[T_j(s)]` for j = 0 to k, where s is the sample mapped from [a, b] to [-1, 1].

    The same knowledge as the raw moments up to order k, in a form that rounding does not hurt.

    Parameters
    ----------
    sample
        Values of one function of the rows, shape (rows,).
    degree
        The highest order k.
    interval
        The values lie in [a, b].

    Examples
    --------
    >>> chebyshev_moments([0.0, 0.5, 1.0], 2).round(4).tolist()
    [1.0, 0.0, 0.3333]
    """
    values = _check_values(sample, interval)
    moments: Floats = chebyshev.chebvander(values, positive_int(degree, "degree")).mean(axis=0)
    return moments


def lipschitz_factors(degree: int) -> Floats:
    r"""Return :math:`\lambda_j / j` for j = 1 to k, Favard's multipliers over the order.

    .. math:: \lambda_j = \frac{j \pi}{2 (k+1)} \cot \frac{j \pi}{2 (k+1)}

    Examples
    --------
    >>> lipschitz_factors(3).round(4).tolist()
    [0.9481, 0.3927, 0.1627]
    """
    orders = np.arange(1, positive_int(degree, "degree") + 1)
    angles = orders * np.pi / (2 * (degree + 1))
    factors: Floats = angles / np.tan(angles) / orders
    return factors


def lipschitz_gap_bound(
    source: ArrayLike, target: ArrayLike, degree: int, *, lipschitz: float = 1.0, interval: Interval = (0.0, 1.0)
) -> GapBound:
    r"""Return a bound on :math:`|\mathbb E_S[f] - \mathbb E_T[f]|` for every f on [a, b] with slopes up to L.

    .. math:: \frac{L |b-a|}{2} \left( \sqrt{\sum_{j=1}^k \Big( \frac{\lambda_j \Delta_j}{j} \Big)^2}
        + \frac{\pi}{k+1} \right), \qquad \Delta_j = \mathbb E_S[T_j] - \mathbb E_T[T_j]

    Parameters
    ----------
    source, target
        Values of one function of the rows, such as the confidence of a classifier, shapes (rows,) and (other rows,).
    degree
        The number k of moments.
    lipschitz
        The largest slope L.
    interval
        The values lie in [a, b].

    Notes
    -----
    Let :math:`g(\theta) = f\big(\tfrac{a+b}2 + \tfrac{b-a}2 \cos \theta\big)` with Fourier coefficients
    :math:`\alpha_j`. Its slope is at most :math:`K |\sin \theta|`, :math:`K = L |b-a| / 2`, so by Parseval
    :math:`\sum_j j^2 \alpha_j^2 = \frac2\pi \int_0^\pi g'^2 \le K^2`. The trigonometric polynomial with coefficients
    :math:`\lambda_j \alpha_j` of Favard (1937), *Sur les meilleurs procédés d'approximation de certaines classes de
    fonctions par des polynômes trigonométriques*, Bulletin des Sciences Mathématiques 61, is within
    :math:`K \pi / (2(k+1))` of g, and no method does better for all periodic g of slope K. It is even, hence a
    polynomial of degree k in x, whose expectations differ by :math:`\sum_j \lambda_j \alpha_j \Delta_j`; Cauchy and
    Schwarz give the root. The supremum itself is L times the Wasserstein distance of the two laws.

    Examples
    --------
    >>> bound = lipschitz_gap_bound([0.25, 0.5], [0.5, 0.75], 5)
    >>> round(bound.polynomial, 4), round(bound.smoothness, 4)
    (0.2777, 0.2618)
    """
    steepness = check_number(lipschitz, "lipschitz", least=0.0, example=1.0) * check_interval(interval) / 2
    difference = _difference(source, target, degree, interval)
    part = float(np.linalg.norm(lipschitz_factors(degree) * difference[1:]))
    return GapBound(steepness * part, steepness * math.pi / (degree + 1))


def smooth_gap_bound(
    function: Callable[[Floats], Floats],
    source: ArrayLike,
    target: ArrayLike,
    degree: int,
    *,
    lipschitz: float,
    interval: Interval,
) -> GapBound:
    r"""Return a bound on :math:`|\mathbb E_S[f] - \mathbb E_T[f]|` for one known f on [a, b].

    .. math:: \big| \mathbb E_S[p] - \mathbb E_T[p] \big| + 2 \max_{x \in [a, b]} |f(x) - p(x)|

    where p is the polynomial of degree k that meets f in the Chebyshev points.

    Parameters
    ----------
    function
        f, from an array of values to an array of the same shape.
    source, target
        Arguments of f, shapes (rows,) and (other rows,).
    degree
        The number k of moments.
    lipschitz
        A number that no slope of f exceeds; 1/4 for the logistic function.
    interval
        The arguments lie in [a, b].

    Notes
    -----
    The maximum is taken over 4,097 angles, :math:`x = \tfrac{a+b}2 + \tfrac{b-a}2 \cos \theta`. Between two of them
    :math:`f - p` changes by no more than its slope in the angle, :math:`L |b-a|/2 + \sum_j j |\alpha_j|` with the
    coefficients :math:`\alpha_j` of p, times half the step; that is added, so that the result is a bound and not an
    estimate. Any other polynomial would do; the Chebyshev points come close to the best one.

    Examples
    --------
    >>> from scipy.special import expit
    >>> bound = smooth_gap_bound(expit, [-1.0, 2.0], [0.0, 1.0], 5, lipschitz=0.25, interval=(-2.0, 2.0))
    >>> round(bound.polynomial, 4), round(bound.smoothness, 4)
    (0.0407, 0.0015)
    """
    middle, half = sum(interval) / 2, check_interval(interval) / 2

    def mapped(points: Floats) -> Floats:
        values = np.asarray(function(middle + half * points), dtype=np.float64)
        if not np.isfinite(values).all():
            raise InvalidInputError("function is not finite on the whole interval; give a narrower interval.")
        return values

    nodes = chebyshev.chebpts1(positive_int(degree, "degree") + 1)
    coefficients: Floats = np.asarray(chebyshev.chebfit(nodes, mapped(nodes), degree), dtype=np.float64)
    difference = _difference(source, target, degree, interval)
    error = _largest_error(mapped, coefficients, check_number(lipschitz, "lipschitz", least=0.0, example=1.0) * half)
    return GapBound(float(abs(coefficients @ difference)), 2.0 * error)


def _drift(order: int, shift: float) -> float:
    """The part of one order that different means alone can make."""
    sizes = [1.0, 0.0, *[_LARGEST_MOMENT] * order]
    return sum(math.comb(order, i) * sizes[i] * min(shift, shift ** (order - i)) for i in range(order))


def _difference(source: ArrayLike, target: ArrayLike, degree: int, interval: Interval) -> Floats:
    of_source, of_target = (chebyshev_moments(sample, degree, interval=interval) for sample in (source, target))
    return of_source - of_target


def _largest_error(function: Callable[[Floats], Floats], coefficients: Floats, steepness: float) -> float:
    points = np.cos(np.linspace(0.0, np.pi, _ANGLES + 1))
    seen = float(np.abs(function(points) - chebyshev.chebval(points, coefficients)).max())
    slope = steepness + float(np.abs(coefficients) @ np.arange(len(coefficients)))
    return seen + slope * np.pi / _ANGLES / 2


def _check_values(sample: ArrayLike, interval: Interval) -> Floats:
    """Return a sample mapped from its interval to [-1, 1]."""
    values, length = np.asarray(sample, dtype=np.float64), check_interval(interval)
    if values.ndim != 1 or values.size == 0:
        raise InvalidInputError(f"the sample must be a list of values, got shape {values.shape}; give one per row.")
    low, high = sorted(interval)
    if not ((values >= low - _ROUNDING * length) & (values <= high + _ROUNDING * length)).all():
        raise InvalidInputError(
            f"the sample must lie in [{low:.6g}, {high:.6g}], got {values.min():.6g} to {values.max():.6g}; "
            "widen the interval."
        )
    return np.clip(2.0 * (values - low) / length - 1.0, -1.0, 1.0)

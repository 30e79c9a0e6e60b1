r"""What k moments of both domains say about the expectation of a function: a polynomial part and a smoothness term.

Goes with Theorem 1 (Eq. 3) and Theorem 2 (Eq. 13) of Zellinger et al. (2019): the distance there is a supremum of

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
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, NDArray

from momentalign.errors import InvalidInputError
from momentalign.validation import check_interval, positive_int

__all__ = [
    "GapBound",
    "chebyshev_moments",
    "lipschitz_factors",
    "lipschitz_gap_bound",
    "polynomial_gap_bound",
    "smooth_gap_bound",
]

Floats = NDArray[np.float64]
Interval = tuple[float, float]

# No central moment of order 2 and up on [0, 1] is larger: that of order j is at most the variance.
_LARGEST_MOMENT = 0.25
# Angles at which the error of an approximation is looked at.
_ANGLES = 4096
# Values may leave their interval by this part of its length: sums are rounded.
_ROUNDING = 1e-6


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
    distances = _check_numbers(terms, "terms", "the terms of cmd_terms")
    weights = np.ones(len(distances)) if norms is None else _check_numbers(norms, "norms", "one number per order")
    if len(weights) != len(distances):
        raise InvalidInputError(f"norms has {len(weights)} numbers for {len(distances)} terms; give one per order.")
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
    steepness = _check_slope(lipschitz) * check_interval(interval) / 2
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
    error = _largest_error(mapped, coefficients, _check_slope(lipschitz) * half)
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


def _check_numbers(values: Sequence[float], name: str, what: str) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or numbers.size == 0 or not (numbers >= 0.0).all():
        raise InvalidInputError(f"{name} must be a list of numbers of at least 0, got {values!r}; give {what}.")
    return numbers


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


def _check_slope(lipschitz: float) -> float:
    if not (math.isfinite(lipschitz) and lipschitz >= 0.0):
        raise InvalidInputError(f"lipschitz must be a number of at least 0, got {lipschitz!r}; try lipschitz=1.0.")
    return float(lipschitz)

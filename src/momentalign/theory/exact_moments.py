r"""Exact moments of Beta and Normal laws, and the metrics of the over-penalisation example computed from them.

Stands for Section 4.1 (Eqs. 9 and 10) and Section 7.1 of Zellinger et al. (2019), in one dimension. A law is the tuple
of its raw moments of orders 0, 1, 2, ... as fractions: the inequalities of the paper are then decided without rounding.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeAlias

__all__ = [
    "RawMoments",
    "affine_moments",
    "beta_moments",
    "central_moments_of",
    "cmd_of_moments",
    "ipm_of_moments",
    "mmd_of_moments",
    "normal_moments",
]

RawMoments: TypeAlias = tuple[Fraction, ...]


def beta_moments(alpha: Fraction, beta: Fraction, order: int) -> RawMoments:
    r"""Return the raw moments of orders 0 to `order` of the Beta law.

    .. math:: \mathbb E[Y^j] = \prod_{i=0}^{j-1} \frac{\alpha + i}{\alpha + \beta + i}

    Examples
    --------
    >>> beta_moments(Fraction(1), Fraction(1), 3)  # uniform on [0, 1]
    (Fraction(1, 1), Fraction(1, 2), Fraction(1, 3), Fraction(1, 4))
    """
    moments = [Fraction(1)]
    for i in range(order):
        moments.append(moments[-1] * (alpha + i) / (alpha + beta + i))
    return tuple(moments)


def normal_moments(mean: Fraction, variance: Fraction, order: int) -> RawMoments:
    r"""Return the raw moments of orders 0 to `order` of the Normal law.

    .. math:: \mathbb E[X^j] = \mu\, \mathbb E[X^{j-1}] + (j - 1)\, \sigma^2\, \mathbb E[X^{j-2}]

    Examples
    --------
    >>> [int(moment) for moment in normal_moments(Fraction(0), Fraction(1), 6)]
    [1, 0, 1, 0, 3, 0, 15]
    """
    moments = [Fraction(1), mean]
    for j in range(2, order + 1):
        moments.append(mean * moments[j - 1] + (j - 1) * variance * moments[j - 2])
    return tuple(moments[: order + 1])


def affine_moments(raw: RawMoments, scale: Fraction, shift: Fraction) -> RawMoments:
    r"""Return the raw moments of ``scale * Y + shift``, given those of Y; with scale 1 this is Eq. (10)'s expansion.

    .. math:: \mathbb E[(s Y + t)^j] = \sum_{i=0}^j \binom ji s^i\, t^{j-i}\, \mathbb E[Y^i]

    Examples
    --------
    >>> affine_moments((Fraction(1), Fraction(0), Fraction(1)), Fraction(2), Fraction(3))
    (Fraction(1, 1), Fraction(3, 1), Fraction(13, 1))
    """
    return tuple(
        sum((math.comb(j, i) * scale**i * shift ** (j - i) * raw[i] for i in range(j + 1)), Fraction(0))
        for j in range(len(raw))
    )


def central_moments_of(raw: RawMoments) -> RawMoments:
    r"""Return the central moments :math:`\mathbb E[(X - \mu)^j]` of orders 0, 1, 2, ...; the first is zero.

    Examples
    --------
    >>> [int(moment) for moment in central_moments_of(normal_moments(Fraction(7), Fraction(2), 4))]
    [1, 0, 2, 0, 12]
    """
    return affine_moments(raw, Fraction(1), -raw[1])


def ipm_of_moments(source: RawMoments, target: RawMoments, order: int) -> Fraction:
    r"""Return :math:`d_{\mathcal P^k} = |\mathbb E_S[x^k] - \mathbb E_T[x^k]|`, Eqs. (9) and (10).

    Orders 1 and 2 are also the mean and the covariance feature matching metrics of McGan (Mroueh et al., 2017) with the
    identity as feature, as Section 7.1 says: their covariances are not centred.

    Examples
    --------
    >>> ipm_of_moments(normal_moments(Fraction(0), Fraction(1), 2), normal_moments(Fraction(1), Fraction(1), 2), 2)
    Fraction(1, 1)
    """
    return abs(source[order] - target[order])


def mmd_of_moments(source: RawMoments, target: RawMoments, degree: int) -> Fraction:
    r"""Return the (squared) MMD with kernel :math:`(1 + x y)^d`, as Section 7.1 writes it.

    .. math:: \mathrm{MMD} = \sum_{j=1}^d \binom dj \big| \mathbb E_S[x^j] - \mathbb E_T[x^j] \big|^2

    Examples
    --------
    >>> mmd_of_moments(normal_moments(Fraction(0), Fraction(1), 2), normal_moments(Fraction(1), Fraction(1), 2), 2)
    Fraction(3, 1)
    """
    squares = (math.comb(degree, j) * (source[j] - target[j]) ** 2 for j in range(1, degree + 1))
    return sum(squares, Fraction(0))


def cmd_of_moments(source: RawMoments, target: RawMoments, order: int) -> Fraction:
    r"""Return :math:`\mathrm{cmd}_k = |\mu_S - \mu_T| + \sum_{j=2}^k |c_j(S) - c_j(T)|`, Eq. (13) with all weights 1.

    Examples
    --------
    >>> cmd_of_moments(normal_moments(Fraction(0), Fraction(1), 4), normal_moments(Fraction(1), Fraction(1), 4), 4)
    Fraction(1, 1)
    """
    of_source, of_target = central_moments_of(source), central_moments_of(target)
    higher = (abs(of_source[j] - of_target[j]) for j in range(2, order + 1))
    return sum(higher, abs(source[1] - target[1]))

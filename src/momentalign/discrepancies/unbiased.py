r"""The unbiased squared Central Moment Discrepancy: h-statistics in place of plug-in moments.

Zellinger et al. (2019) name it below Eq. (23): unbiased sample central moments and squared norms, as for the MMD.

.. math:: \sum_j \frac{1}{|b-a|^{2j}} \lVert c_j(S) - c_j(T) \rVert_2^2, \quad
          \widehat{\lVert c_j(S) - c_j(T) \rVert^2} = \widehat{c_j^2}(S) + \widehat{c_j^2}(T) - 2\, h_j(S)^\top h_j(T)

:math:`h_j` is the h-statistic (the only symmetric unbiased estimator of the j-th central moment) and
:math:`\widehat{c_j^2}` the same for its square. Both are polynomials of power sums about the sample mean, with
coefficients that depend on the number of rows alone; they are worked out here with exact fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from math import comb, perm, prod

import torch
from torch import Tensor

from momentalign.errors import InvalidInputError
from momentalign.moments.sample import mean_difference, sample_moments

__all__ = ["h_statistic_coefficients", "unbiased_terms"]


def unbiased_terms(source: Tensor, target: Tensor, n_moments: int, *, scale: float = 1.0, cross: int = 1) -> Tensor:
    """Return unbiased estimates of the squared terms, orders 1 to `n_moments`; single ones can be negative."""
    needed = 2 * n_moments
    for name, sample in (("source", source), ("target", target)):
        if sample.shape[0] < needed:
            raise InvalidInputError(
                f"unbiased=True with n_moments={n_moments} needs at least {needed} rows, {name} has {sample.shape[0]}; "
                "give more rows or lower n_moments."
            )
    of_source, of_target = sample_moments(source, 1, scale=scale), sample_moments(target, 1, scale=scale)
    sums_source = _power_means(of_source.centred, max(needed, 2))
    sums_target = _power_means(of_target.centred, max(needed, 2))
    rows_source, rows_target = source.shape[0], target.shape[0]
    mean = mean_difference(of_source, of_target).square()
    mean = mean - sums_source[2] / (rows_source - 1) - sums_target[2] / (rows_target - 1)
    terms = [mean.sum()]
    for order in range(2, n_moments + 1):
        product = _estimate(sums_source, rows_source, (order,)) * _estimate(sums_target, rows_target, (order,))
        own = _estimate(sums_source, rows_source, (order, order)) + _estimate(sums_target, rows_target, (order, order))
        terms.append((own - 2 * product).sum())
    if cross == 2:
        # (||D||_F^2 + ||diag D||^2) / 2 counts x_i x_j once; the paper's division by sqrt(2) halves the square.
        terms[1] = (_covariance_distance(of_source.centred, of_target.centred) + terms[1]) / 4
    return torch.stack(terms)


def _power_means(centred: Tensor, highest: int) -> list[Tensor]:
    """Means of the powers 0 to `highest` of a centred sample; the first is zero by construction."""
    means = [torch.ones_like(centred[0]), torch.zeros_like(centred[0])]
    power = centred
    for _ in range(2, highest + 1):
        power = power * centred
        means.append(power.mean(0))
    return means


def _estimate(means: list[Tensor], rows: int, orders: tuple[int, ...]) -> Tensor:
    """Evaluate the unbiased estimator of a product of central moments from means of powers about the mean."""
    parts = [
        coefficient * torch.stack([means[part] for part in partition]).prod(0)
        for partition, coefficient in h_statistic_coefficients(orders, rows).items()
    ]
    return torch.stack(parts).sum(0)


@cache
def h_statistic_coefficients(orders: tuple[int, ...], rows: int) -> Mapping[tuple[int, ...], float]:
    r"""Return the unbiased estimator of :math:`\prod_j c_j` as ``{partition: coefficient}`` of means of powers.

    A partition such as (3, 2) stands for the product of the means of the third and the second power of the centred
    sample. Powers of the first mean are zero and left out.

    Examples
    --------
    >>> h_statistic_coefficients((2,), 10)  # the sample variance: rows / (rows - 1) times the mean square
    {(2,): 1.1111111111111112}
    """
    total: dict[tuple[int, ...], Fraction] = {}
    for raw, weight in _raw_moment_expansion(orders).items():
        # E[x^a] E[x^b] ... is estimated by the mean of x_i^a x_j^b ... over distinct rows i, j, ...
        for partition, coefficient in _augmented(raw).items():
            share = weight * coefficient * Fraction(rows) ** len(partition) / perm(rows, len(raw))
            total[partition] = total.get(partition, Fraction(0)) + share
    return {partition: float(value) for partition, value in total.items() if value and 1 not in partition}


def _raw_moment_expansion(orders: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """Expand a product of central moments into products of raw moments, (2, 1, 1) standing for E[x^2] E[x]^2."""
    expansion: dict[tuple[int, ...], int] = {(): 1}
    for order in orders:
        grown: dict[tuple[int, ...], int] = {}
        for partition, weight in expansion.items():
            for power in range(order + 1):
                parts = (*partition, *([power] if power else []), *([1] * (order - power)))
                key = tuple(sorted(parts, reverse=True))
                grown[key] = grown.get(key, 0) + weight * comb(order, power) * (-1) ** (order - power)
        expansion = grown
    return expansion


@cache
def _augmented(parts: tuple[int, ...]) -> Mapping[tuple[int, ...], int]:
    """Write the sum of x_i^a x_j^b ... over distinct rows as a polynomial of power sums."""
    if len(parts) == 1:
        return {parts: 1}
    *rest, last = parts
    polynomial: dict[tuple[int, ...], int] = {}
    for partition, coefficient in _augmented(tuple(rest)).items():
        key = tuple(sorted((*partition, last), reverse=True))
        polynomial[key] = polynomial.get(key, 0) + coefficient
    for index, part in enumerate(rest):
        merged = tuple(sorted((*rest[:index], part + last, *rest[index + 1 :]), reverse=True))
        for partition, coefficient in _augmented(merged).items():
            polynomial[partition] = polynomial.get(partition, 0) - coefficient
    return polynomial


def _covariance_distance(source: Tensor, target: Tensor) -> Tensor:
    """Unbiased estimate of the squared Frobenius norm of the difference of two covariance matrices."""
    product = (_covariance(source) * _covariance(target)).sum()
    return _squared_covariance(source) + _squared_covariance(target) - 2 * product


def _covariance(centred: Tensor) -> Tensor:
    return centred.T @ centred / (centred.shape[0] - 1)


def _squared_covariance(centred: Tensor) -> Tensor:
    """Unbiased estimate of tr(Sigma^2) from a centred sample (Himeno and Yamada 2014)."""
    rows = centred.shape[0]
    covariance = _covariance(centred)
    fourth = centred.square().sum(1).square().sum() / (rows - 1)
    inner = (rows - 1) * (rows - 2) * covariance.square().sum() + covariance.trace().square() - rows * fourth
    return inner * (rows - 1) / prod((rows, rows - 2, rows - 3))

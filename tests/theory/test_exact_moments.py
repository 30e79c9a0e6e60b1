from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from momentalign.discrepancies.central_moment import cmd
from momentalign.theory.exact_moments import (
    affine_moments,
    beta_moments,
    central_moments_of,
    cmd_of_moments,
    ipm_of_moments,
    mmd_of_moments,
    normal_moments,
)
from momentalign.theory.polynomial_metric import polynomial_ipm

BETA = affine_moments(beta_moments(Fraction("0.4"), Fraction("0.7"), 6), Fraction("0.8"), Fraction("0.1"))
NORMAL = normal_moments(Fraction("0.5"), Fraction("0.27") ** 2, 6)
FROZEN = {"beta": (BETA, stats.beta(0.4, 0.7, loc=0.1, scale=0.8)), "normal": (NORMAL, stats.norm(0.5, 0.27))}


@pytest.mark.parametrize("name", FROZEN)
def test_raw_and_central_moments_against_scipy(name):
    raw, law = FROZEN[name]
    assert [float(moment) for moment in raw] == pytest.approx([law.moment(j) for j in range(7)], rel=1e-10)
    mean, variance, skew, kurtosis = (float(value) for value in law.stats("mvsk"))
    central = [float(moment) for moment in central_moments_of(raw)[:5]]
    third, fourth = skew * variance**1.5, (kurtosis + 3) * variance**2
    assert float(raw[1]) == pytest.approx(mean)
    assert central == pytest.approx([1.0, 0.0, variance, third, fourth], rel=1e-10, abs=1e-15)


def test_short_moment_lists():
    assert normal_moments(Fraction(3), Fraction(1), 0) == beta_moments(Fraction(1), Fraction(1), 0) == (1,)


def as_moments(values, order=6):
    exact = [Fraction(value) for value in values]
    return tuple(sum((value**j for value in exact), Fraction(0)) / len(exact) for j in range(order + 1))


def test_metrics_agree_with_those_of_samples():
    left, right = [0.0, 0.25, 0.25, 1.0], [0.5, 0.125, 0.75]
    columns = np.array(left)[:, None], np.array(right)[:, None]
    laws = as_moments(left), as_moments(right)
    for order in range(1, 7):
        assert float(ipm_of_moments(*laws, order)) == pytest.approx(polynomial_ipm(*columns, order), abs=1e-15)
        assert float(cmd_of_moments(*laws, order)) == pytest.approx(cmd(*columns, n_moments=order), abs=1e-15)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_mmd_is_the_double_integral_of_its_kernel(degree):
    # Gauss quadrature of 8 nodes is exact for these polynomials: Beta by Gauss-Jacobi, Normal by Gauss-Hermite.
    nodes, weights = special.roots_jacobi(8, 0.7 - 1, 0.4 - 1)
    beta = 0.1 + 0.8 * (nodes + 1) / 2, weights / weights.sum()
    nodes, weights = special.roots_hermitenorm(8)
    normal = 0.5 + 0.27 * nodes, weights / weights.sum()

    def expected_kernel(left, right):
        return left[1] @ (1 + np.outer(left[0], right[0])) ** degree @ right[1]

    expected = expected_kernel(beta, beta) + expected_kernel(normal, normal) - 2 * expected_kernel(beta, normal)
    assert float(mmd_of_moments(BETA, NORMAL, degree)) == pytest.approx(expected, rel=1e-9)


def test_the_cmd_of_a_shifted_law_is_the_shift():
    shifted = affine_moments(BETA, Fraction(1), Fraction("-0.02"))
    assert cmd_of_moments(BETA, shifted, 6) == Fraction("0.02")

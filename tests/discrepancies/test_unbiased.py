from fractions import Fraction

import numpy as np
import pytest
import torch

import momentalign as ma
from momentalign.discrepancies.unbiased import h_statistic_coefficients

SOURCE = [[Fraction(0), Fraction(1)], [Fraction(1), Fraction(1, 2)], [Fraction(5, 2), Fraction(-1)]]
TARGET = [[Fraction(1, 2), Fraction(0)], [Fraction(2), Fraction(3)]]


@pytest.mark.parametrize("rows", [4, 5, 10, 300])
def test_coefficients_are_the_known_h_statistics(rows):
    n = Fraction(rows)
    third = (n - 1) * (n - 2)
    fourth = third * (n - 3)
    known = {
        (2,): {(2,): n / (n - 1)},
        (3,): {(3,): n**2 / third},
        (4,): {(4,): n * (n**2 - 2 * n + 3) / fourth, (2, 2): 3 * n * (3 - 2 * n) / fourth},
        (2, 2): {(4,): -n * (n - 1) / fourth, (2, 2): n * (n**2 - 3 * n + 3) / fourth},
    }
    for orders, expected in known.items():
        assert h_statistic_coefficients(orders, rows) == pytest.approx(
            {k: float(v) for k, v in expected.items()}, rel=1e-14
        )


def test_coefficients_tend_to_the_plug_in_estimate():
    for orders in ((5,), (3, 3), (4, 4)):
        coefficients = dict(h_statistic_coefficients(orders, 10**9))
        assert coefficients.pop(orders) == pytest.approx(1.0, abs=1e-6)
        assert max(map(abs, coefficients.values())) < 1e-6


@pytest.mark.parametrize(("n_moments", "cross"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1)])
def test_averaged_over_all_samples_it_is_the_value_of_the_population(oracle, n_moments, cross):
    expected = [oracle.squared_term(SOURCE, TARGET, j, every=j <= cross) for j in range(1, n_moments + 1)]
    if cross == 2:
        expected[1] /= 2
    average = torch.zeros(n_moments, dtype=torch.float64)
    samples = [list(oracle.weighted_samples(population, 2 * n_moments)) for population in (SOURCE, TARGET)]
    for source, p in samples[0]:
        for target, q in samples[1]:
            pair = (
                torch.tensor([[float(v) for v in row] for row in rows], dtype=torch.float64)
                for rows in (source, target)
            )
            average += float(p * q) * ma.cmd_terms(*pair, n_moments=n_moments, cross=cross, unbiased=True)
    expected = [float(value) for value in expected]
    np.testing.assert_allclose(average, expected, rtol=1e-11, atol=1e-11 * max(expected))


@pytest.mark.parametrize("cross", [1, 2])
@pytest.mark.parametrize(("rows", "other_rows"), [(16, 16), (12, 40)])
def test_two_samples_of_one_distribution_average_to_zero(rng, cross, rows, other_rows):
    terms = np.array(
        [
            ma.cmd_terms(rng.random((rows, 50)), rng.random((other_rows, 50)), cross=cross, unbiased=True)
            for _ in range(400)
        ]
    )
    values = np.column_stack([terms, terms.sum(1)])
    assert np.all(np.abs(values.mean(0)) < 4 * values.std(0, ddof=1) / np.sqrt(len(values)))
    assert (values < 0).any()  # An estimate without bias of a zero has to be negative at times.


@pytest.mark.parametrize("cross", [1, 2])
def test_large_samples_give_the_squared_terms(rng, cross):
    source, target = rng.random((20_000, 3)), rng.random((20_000, 3)) ** 2
    unbiased = ma.cmd_terms(source, target, cross=cross, unbiased=True)
    np.testing.assert_allclose(unbiased, ma.cmd_terms(source, target, cross=cross) ** 2, rtol=0.05, atol=1e-6)


@pytest.mark.parametrize("cross", [1, 2])
def test_the_interval_weighs_the_squares(pair, cross):
    source, target = pair(12, 11)
    weights = 2.0 ** -(2.0 * torch.arange(1, 5))
    plain, scaled = (
        ma.cmd_terms(source, target, n_moments=4, cross=cross, unbiased=True, interval=interval)
        for interval in ((0, 1), (-1, 1))
    )
    torch.testing.assert_close(scaled, plain * weights, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("cross", [1, 2])
def test_rows_may_come_in_any_order_and_domains_in_either(pair, cross):
    source, target = pair(12, 11)
    value = ma.cmd(source, target, cross=cross, unbiased=True)
    torch.testing.assert_close(
        ma.cmd(target.flip(0), source.flip(0), cross=cross, unbiased=True), value, rtol=1e-10, atol=1e-13
    )


def test_ten_moments_of_twenty_rows_are_finite(pair):
    source, target = pair(20, 20, 2)
    assert np.isfinite(ma.cmd(source.numpy(), target.numpy(), n_moments=10, unbiased=True))

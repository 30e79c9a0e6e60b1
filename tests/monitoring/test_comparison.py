"""Differences of moments, and that their variances by chance are what repeated samples show."""

from itertools import accumulate

import numpy as np
import pytest
from scipy import stats

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.monitoring.statistics import Differences, central_moments, differences, raw_moments

ORDERS = 5


def raw(rows, centre=0.5):
    powers = accumulate([rows - centre] * (2 * ORDERS), np.multiply)
    return np.stack([power.mean(axis=-2) for power in powers], axis=-2)


def compare(reference, window):
    counts = (reference.shape[-2], window.shape[-2])
    return differences(raw(reference), raw(window), counts, np.zeros(reference.shape[-1]))


def test_central_moments_are_those_of_the_rows(rng):
    rows = rng.random((50, 3)) ** 2
    found = central_moments(raw(rows))
    np.testing.assert_allclose(found[0], rows.mean(axis=0) - 0.5, atol=1e-15)
    np.testing.assert_allclose(found[1:], stats.moment(rows, order=list(range(2, 11)), axis=0), atol=1e-15)
    np.testing.assert_allclose(raw_moments(found[0], found[1:]), raw(rows), atol=1e-15)


def test_norms_of_the_differences_are_the_terms_of_the_distance(rng):
    reference, window = rng.random((40, 4)), rng.random((30, 4)) ** 2
    found = np.linalg.norm(compare(reference, window).values, axis=-1)
    np.testing.assert_allclose(found, cmd_terms(reference, window), rtol=1e-12)


@pytest.mark.parametrize("draw", ["random", "standard_normal", "exponential"])
def test_variances_are_those_of_repeated_samples(rng, draw):
    samples = [0.1 * getattr(rng, draw)(size=(1000, rows, 1)) for rows in (300, 150)]
    found = compare(*samples)
    np.testing.assert_allclose(found.variances.mean(axis=0)[:4], found.values.var(axis=0)[:4], rtol=0.25)
    low_orders = found.ratios[:, :3, 0]
    assert np.all(np.abs(low_orders.std(axis=0) - 1.0) < 0.1)


def test_figures_are_of_all_features_together_and_of_the_one_that_moved_most():
    found = Differences(np.array([[3.0, -4.0]]), np.array([[9.0, 1.0]]))
    np.testing.assert_allclose(found.figures, [5.0 / np.sqrt(10.0), 4.0])


def test_nothing_that_varies_is_nothing_that_moved():
    constant = np.full((20, 2), 0.5)
    found = compare(constant, constant)
    assert not found.figures.any()
    apart = differences(raw(constant), raw(constant + 1e-7), (20, 20), np.full(2, 1e-6))
    assert not apart.figures.any()
    assert compare(constant, constant + 1e-3).figures.min() >= 0.0


def test_a_fair_coin_has_a_spread_in_every_order():
    coin = np.tile([0.0, 1.0], 50)[:, None]
    assert np.all(compare(coin, coin).variances > 0.0)

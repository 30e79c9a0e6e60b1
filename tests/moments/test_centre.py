import numpy as np
import pytest
from scipy import stats

from momentalign.moments.centre import central_moments, raw_moments


@pytest.mark.parametrize("centre", [0.0, 0.5])
def test_moments_about_any_point_give_the_central_ones_and_back(rng, centre):
    rows = rng.random((6, 50, 3)) ** 2
    raw = np.stack([((rows - centre) ** power).mean(axis=1) for power in range(1, 11)], axis=1)
    found = central_moments(raw)
    np.testing.assert_allclose(found[:, 0], rows.mean(axis=1) - centre, atol=1e-15)
    expected = np.moveaxis(stats.moment(rows, order=list(range(2, 11)), axis=1), 0, 1)
    np.testing.assert_allclose(found[:, 1:], expected, atol=1e-13)
    np.testing.assert_allclose(raw_moments(found[0, 0], found[0, 1:]), raw[0], atol=1e-13)

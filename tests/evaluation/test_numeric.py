import math

import numpy as np
import pytest
from scipy import stats

from momentalign.evaluation.features import compare_numbers, ks_distance, ks_p_value


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("rows", "other_rows"), [(8, 9), (40, 300), (3000, 2000)])
def test_the_statistic_is_that_of_scipy(rng, rows, other_rows, whole):
    source, target = rng.normal(size=rows) * 3, rng.normal(0.3, 1.0, size=other_rows) * 3
    if whole:
        source, target = source.round(), target.round()
    found = compare_numbers(np.sort(source), np.sort(target))
    expected = stats.ks_2samp(source, target, method="asymp")
    assert found.distance == pytest.approx(expected.statistic, abs=1e-12)
    assert found.p_value == pytest.approx(expected.pvalue, abs=0.12 if rows < 10 else 0.05)


@pytest.mark.parametrize(("rows", "other_rows"), [(8, 8), (8, 9), (12, 12), (30, 30), (10, 100), (100, 100)])
def test_the_p_value_is_close_to_the_exact_one_and_not_below(rows, other_rows):
    for step in range(1, rows):
        one, other = np.arange(rows), np.arange(other_rows) * rows / other_rows + step - 0.5 * rows / other_rows
        distance = ks_distance(one, other)
        if ks_p_value(distance, rows, other_rows) > 0.1 or distance > 0.8:
            continue
        exact = stats.ks_2samp(one, other, method="exact").pvalue
        assert 0.98 * exact < ks_p_value(distance, rows, other_rows) < 3 * exact + 1e-4


def test_mean_shift_and_deviation_ratio_follow_their_definitions(rng):
    source, target = np.sort(rng.normal(2.0, 1.0, 50)), np.sort(rng.normal(5.0, 3.0, 80))
    found = compare_numbers(source, target)
    pooled = math.sqrt((source.var(ddof=1) + target.var(ddof=1)) / 2)
    assert found.mean_shift == pytest.approx((target.mean() - source.mean()) / pooled)
    assert found.deviation_ratio == pytest.approx(target.std(ddof=1) / source.std(ddof=1))
    assert (found.mean_source, found.mean_target) == pytest.approx((source.mean(), target.mean()))


def test_the_mean_test_is_that_of_welch(rng):
    source, target = np.sort(rng.normal(0.0, 1.0, 4000)), np.sort(rng.normal(0.05, 2.0, 3000))
    expected = stats.ttest_ind(source, target, equal_var=False).pvalue
    assert compare_numbers(source, target).location_p == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("change", "aspect"),
    [
        (lambda x: x + 1.0, "location_p"),
        (lambda x: 2.0 * x, "spread_p"),
        (lambda x: np.sign(x) * 0.9 + x * math.sqrt(1 - 0.81) * 0.3, "shape_p"),
    ],
    ids=["location", "spread", "shape"],
)
def test_each_aspect_has_a_test_that_finds_it(rng, change, aspect):
    source, target = np.sort(rng.normal(size=2000)), np.sort(change(rng.normal(size=2000)))
    found = compare_numbers(source, target)
    assert getattr(found, aspect) < 1e-6
    if aspect != "shape_p":
        others = {"location_p", "spread_p", "shape_p"} - {aspect}
        assert all(getattr(found, other) > 0.01 for other in others)


def test_aspects_of_one_distribution_are_seldom_found(rng):
    pairs = [[np.sort(rng.exponential(size=300)) for _ in range(2)] for _ in range(200)]
    found = [compare_numbers(*pair) for pair in pairs]
    for aspect in ("location_p", "spread_p", "shape_p"):
        assert np.mean([getattr(change, aspect) <= 0.05 for change in found]) < 0.1


@pytest.mark.parametrize(
    ("source", "target", "shift", "ratio", "spread"),
    [
        ([0.1] * 9, [0.1] * 8, 0.0, 1.0, 1.0),
        ([0.1] * 9, [0.3] * 8, math.inf, 1.0, 1.0),
        ([0.3] * 9, [0.1] * 8, -math.inf, 1.0, 1.0),
        ([1.0] * 9, [0.0, 2.0] * 4, 0.0, math.inf, 0.0),
        ([0.0, 2.0] * 4, [1.0] * 9, 0.0, 0.0, 0.0),
    ],
)
def test_constants_are_taken_as_what_they_are(source, target, shift, ratio, spread):
    found = compare_numbers(np.sort(source), np.sort(target))
    assert (found.mean_shift, found.deviation_ratio, found.spread_p, found.shape_p) == (shift, ratio, spread, 1.0)


def test_nothing_to_compare_is_nan():
    assert all(map(math.isnan, compare_numbers([], [1.0, 2.0])))
    assert all(map(math.isnan, compare_numbers([1.0], [])))


def test_one_value_has_no_spread():
    assert compare_numbers([1.0], [2.0, 3.0]).spread_p == 0.0


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_numbers_of_any_size_give_the_same(rng, size):
    source, target = np.sort(rng.normal(size=50)), np.sort(rng.normal(1.0, 2.0, size=60))
    plain, sized = compare_numbers(source, target), compare_numbers(size * source, size * target)
    assert sized.mean_shift == pytest.approx(plain.mean_shift)
    assert sized.shape_p == pytest.approx(plain.shape_p)
    assert sized.mean_target == pytest.approx(size * plain.mean_target)


def test_variance_at_the_rounding_level_is_no_fault():
    source, target = np.array([1.0, 1.0 + 2e-16]), np.array([1.0, 1.0 + 4e-16])
    assert math.isfinite(compare_numbers(source, target).spread_p)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (lambda rng: rng.poisson(3, 2000), lambda rng: rng.poisson(4, 2000)),
        (lambda rng: rng.normal(0, 3, 2000).round(), lambda rng: rng.normal(1, 4, 2000).round()),
    ],
    ids=["counts", "rounded"],
)
def test_steps_of_whole_numbers_are_no_other_shape(rng, source, target):
    found = compare_numbers(np.sort(source(rng)), np.sort(target(rng)))
    assert found.location_p < 1e-6
    assert found.shape_p > 0.05


def test_another_shape_of_whole_numbers_is_found(rng):
    one, other = rng.normal(0, 3, 3000).round(), (rng.exponential(3, 3000) - 3).round()
    assert compare_numbers(np.sort(one), np.sort(other)).shape_p < 1e-6


def test_ties_between_samples_count_once():
    assert ks_distance(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 2.0])) == pytest.approx(1 / 3)

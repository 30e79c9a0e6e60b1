"""Single features compared: numbers, categories, missing values, and all of them as one family of tests."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from momentalign.evaluation.features import (
    BINS,
    Level,
    compare_categories,
    compare_features,
    compare_numbers,
    histogram,
    ks_distance,
    ks_p_value,
    main_levels,
    proportions_p_value,
)
from momentalign.evaluation.samples import read_samples

ROWS = 600


@pytest.fixture
def features(rng):
    def table(shifted):
        number = rng.normal(size=ROWS)
        lost = rng.random(ROWS) < (0.3 if shifted else 0.05)
        return pd.DataFrame(
            {
                "same": rng.normal(size=ROWS),
                "moved": rng.normal(2.0 * shifted, 1.0, ROWS),
                "wider": rng.normal(0.0, 1.0 + 2.0 * shifted, ROWS),
                "lost": np.where(lost, np.nan, number),
                "word": rng.choice(["a", "b", "c"], ROWS, p=[0.1, 0.1, 0.8] if shifted else [0.5, 0.3, 0.2]),
                "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.random(ROWS) + shifted, unit="D"),
            }
        )

    return {feature.name: feature for feature in compare_features(read_samples(table(False), table(True)))}


def test_each_change_is_named(features):
    assert {name: feature.changes for name, feature in features.items()} == {
        "when": ["location"],
        "moved": ["location"],
        "word": ["categories"],
        "wider": ["spread"],
        "lost": ["missing values"],
        "same": [],
    }


def test_the_most_different_come_first_and_the_unchanged_last(features):
    assert list(features) == ["when", "moved", "word", "wider", "lost", "same"]


def test_what_is_told_of_missing_values_categories_and_numbers(features):
    lost, word, moved = (features[name] for name in ("lost", "word", "moved"))
    assert (lost.missing_source, lost.missing_target) == pytest.approx((0.05, 0.3), abs=0.05)
    assert lost.missing_p_adjusted < 1e-9
    assert math.isnan(features["same"].missing_p_value)
    assert lost.distance < lost.apart == pytest.approx(0.25, abs=0.06)
    assert math.isnan(word.mean_shift)
    assert word.new == 0.0
    assert math.isnan(moved.new)
    assert moved.mean_shift == pytest.approx(2.0, abs=0.3)


def test_every_test_is_in_one_family(features):
    raw = [p for feature in features.values() for p in (feature.p_value, feature.missing_p_value) if p == p]
    mended = [p for feature in features.values() for p in (feature.p_adjusted, feature.missing_p_adjusted) if p == p]
    assert len(raw) == 7
    assert mended == pytest.approx(stats.false_discovery_control(raw).tolist())


def test_no_test_at_all_is_no_fault():
    one = pd.DataFrame({"word": ["a"] * 9})
    (feature,) = compare_features(read_samples(one, one))
    assert feature.changes == []
    assert feature.apart == 0.0


def test_a_feature_without_values_on_one_side_differs_in_missing_values():
    source = pd.DataFrame({"a": np.arange(20.0), "b": ["x"] * 20})
    target = pd.DataFrame({"a": [np.nan] * 20, "b": [None] * 20})
    found = compare_features(read_samples(source, target))
    assert [feature.changes for feature in found] == [["missing values"]] * 2
    assert [feature.apart for feature in found] == [1.0, 1.0]
    assert sorted(feature.shape is None for feature in found) == [False, True]


def test_the_likeliest_aspect_is_named_where_none_is_certain():
    """Two samples of which the whole test says p = 0.01, and that of the means 0.0197."""
    random = np.random.default_rng(8)
    (feature,) = compare_features(read_samples(random.normal(size=(100, 1)), random.normal(0.3, 1.0, (100, 1))))
    assert feature.changes == ["location"]


def test_few_are_found_where_nothing_shifted(rng):
    found = [
        any(feature.changes for feature in compare_features(read_samples(*rng.normal(size=(2, 60, 10)))))
        for _ in range(100)
    ]
    assert np.mean(found) <= 0.1


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
    assert compare_numbers(source, target).aspects["location"] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("change", "aspect"),
    [
        (lambda x: x + 1.0, "location"),
        (lambda x: 2.0 * x, "spread"),
        (lambda x: np.sign(x) * 0.9 + x * math.sqrt(1 - 0.81) * 0.3, "shape"),
    ],
    ids=["location", "spread", "shape"],
)
def test_each_aspect_has_a_test_that_finds_it(rng, change, aspect):
    source, target = np.sort(rng.normal(size=2000)), np.sort(change(rng.normal(size=2000)))
    found = dict(compare_numbers(source, target).aspects)
    assert found.pop(aspect) < 1e-6
    assert aspect == "shape" or min(found.values()) > 0.01


def test_aspects_of_one_distribution_are_seldom_found(rng):
    pairs = [[np.sort(rng.exponential(size=300)) for _ in range(2)] for _ in range(200)]
    found = [compare_numbers(*pair) for pair in pairs]
    for aspect in ("location", "spread", "shape"):
        assert np.mean([change.aspects[aspect] <= 0.05 for change in found]) < 0.1


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
    assert (found.mean_shift, found.deviation_ratio) == (shift, ratio)
    assert (found.aspects["spread"], found.aspects["shape"]) == (spread, 1.0)


def test_nothing_to_compare_is_nan():
    for found in (compare_numbers([], [1.0, 2.0]), compare_numbers([1.0], [])):
        assert all(map(math.isnan, (*found[:-1], *found.aspects.values())))


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_numbers_of_any_size_give_the_same(rng, size):
    source, target = np.sort(rng.normal(size=50)), np.sort(rng.normal(1.0, 2.0, size=60))
    plain, sized = compare_numbers(source, target), compare_numbers(size * source, size * target)
    assert sized.mean_shift == pytest.approx(plain.mean_shift)
    assert sized.aspects["shape"] == pytest.approx(plain.aspects["shape"])
    assert sized.mean_target == pytest.approx(size * plain.mean_target)


def test_variance_at_the_rounding_level_is_no_fault():
    source, target = np.array([1.0, 1.0 + 2e-16]), np.array([1.0, 1.0 + 4e-16])
    assert math.isfinite(compare_numbers(source, target).aspects["spread"])


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
    assert found.aspects["location"] < 1e-6
    assert found.aspects["shape"] > 0.05


def test_another_shape_of_whole_numbers_is_found(rng):
    one, other = rng.normal(0, 3, 3000).round(), (rng.exponential(3, 3000) - 3).round()
    assert compare_numbers(np.sort(one), np.sort(other)).aspects["shape"] < 1e-6


def repeated(*counts):
    return np.array([name for name, count in zip("abcdefgh", counts, strict=False) for _ in range(count)], dtype=object)


def test_distance_and_p_value_follow_their_definitions():
    source, target = (50, 30, 20), (20, 30, 60)
    found = compare_categories(repeated(*source), repeated(*target))
    shares = np.array([source, target]) / [[100], [110]]
    assert found.distance == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2)
    assert found.p_value == pytest.approx(stats.chi2_contingency(np.array([source, target])).pvalue)
    assert [level.name for level in found.levels] == ["c", "a", "b"]


def test_rare_categories_are_tested_as_one():
    source, target = (40, 40, 1, 1, 2), (40, 20, 3, 2, 4)
    together = [[40, 40, 4], [40, 20, 9]]
    expected = stats.chi2_contingency(np.array(together)).pvalue
    assert compare_categories(repeated(*source), repeated(*target)).p_value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("source", "target", "distance"),
    [((1, 1, 1, 1), (0, 0, 0, 0, 1, 1, 1, 1), 1.0), ((9,), (12,), 0.0), ((), (3,), math.nan)],
    ids=["all rare", "one", "no values"],
)
def test_where_there_is_nothing_to_test_there_is_no_p_value(source, target, distance):
    found = compare_categories(repeated(*source), repeated(*target))
    assert found.distance == pytest.approx(distance, nan_ok=True)
    assert math.isnan(found.p_value)


def test_new_and_lost_categories_are_counted():
    found = compare_categories(repeated(5, 0, 5), repeated(5, 15, 0))
    assert (found.new, found.gone) == (0.75, 0.5)


@pytest.mark.parametrize("hits", [(30, 100, 60, 100), (1, 20, 6, 20), (20, 20, 30, 30)])
def test_proportions_are_compared_exactly_where_hits_are_few(hits):
    one, rows, other, other_rows = hits
    table = [[one, other], [rows - one, other_rows - other]]
    few = min(one, other) < 5 or (one, other) == (rows, other_rows)
    test = stats.fisher_exact if few else partial(stats.chi2_contingency, correction=False)
    assert proportions_p_value(*hits) == pytest.approx(test(table).pvalue)


def test_shares_are_those_of_numpy(rng):
    source, target = np.sort(rng.normal(size=300)), np.sort(rng.normal(1.0, 1.0, 200))
    shape = histogram(source, target)
    for sample, shares in ((source, shape.source), (target, shape.target)):
        counts, _ = np.histogram(sample, bins=BINS, range=(shape.low, shape.high))
        assert shares == pytest.approx((counts / len(sample)).tolist(), abs=1e-4)


def test_outermost_values_are_cut_off_but_rare_ones_widen_a_range_of_one_value(rng):
    source = np.sort(np.append(rng.random(999), 1e9))
    shape = histogram(source, source)
    assert shape.high < 1.1
    assert 0.97 < sum(shape.source) < 1.0
    source = np.append(np.zeros(999), 0.5)
    assert histogram(source, np.zeros(1000)).high == 0.5


def test_whole_numbers_get_bins_around_them():
    shape = histogram(np.array([1.0, 2.0, 2.0, 5.0]), np.array([5.0]))
    assert (shape.low, shape.high) == (0.5, 5.5)
    assert shape.source == [0.25, 0.5, 0.0, 0.0, 0.25]
    many = histogram(np.arange(100.0), np.arange(100.0))
    assert len(many.source) <= BINS
    assert sum(many.source) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("value", [0.5, -3.25])
def test_a_constant_has_a_bin(value):
    shape = histogram(np.full(9, value), np.full(9, value))
    assert shape.low < value < shape.high
    assert sum(shape.source) == 1.0


def test_an_empty_side_has_no_shares():
    shape = histogram(np.array([]), np.array([0.5, 1.5]))
    assert sum(shape.source) == 0.0
    assert sum(shape.target) == 1.0
    assert histogram(np.array([]), np.array([])) is None


def test_histograms_of_huge_numbers_do_not_overflow():
    shape = histogram(np.array([-1.7e308, 0.0, 0.5]), np.array([1.7e308]))
    assert np.isfinite([shape.low, shape.high]).all()


def test_rare_categories_are_put_together():
    levels = [Level(str(place), 0.1, 0.1) for place in range(10)]
    shape = main_levels(levels)
    assert shape.names == ["0", "1", "2", "3", "4", "5 others"]
    assert shape.source[-1] == 0.5
    assert main_levels(levels[:6]).names == ["0", "1", "2", "3", "4", "5"]

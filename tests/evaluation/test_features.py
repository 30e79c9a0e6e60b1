import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from momentalign.evaluation.features import compare_features
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
    assert features["lost"].apart == pytest.approx(0.25, abs=0.06)
    assert features["lost"].apart > features["lost"].distance


def test_shares_of_missing_values_are_told(features):
    lost = features["lost"]
    assert (lost.missing_source, lost.missing_target) == pytest.approx((0.05, 0.3), abs=0.05)
    assert lost.missing_p_adjusted < 1e-9
    assert math.isnan(features["same"].missing_p_value)


def test_every_test_is_in_one_family(features):
    raw = [p for feature in features.values() for p in (feature.p_value, feature.missing_p_value) if p == p]
    mended = [p for feature in features.values() for p in (feature.p_adjusted, feature.missing_p_adjusted) if p == p]
    assert len(raw) == 7
    assert mended == pytest.approx(stats.false_discovery_control(raw).tolist())


def test_shapes_are_kept(features):
    assert features["word"].shape.names == ["c", "a", "b"]
    assert len(features["moved"].shape.source) == 32


def test_categories_have_no_mean_and_numbers_no_new_levels(features):
    assert math.isnan(features["word"].mean_shift)
    assert features["word"].new == 0.0
    assert math.isnan(features["moved"].new)
    assert features["moved"].mean_shift == pytest.approx(2.0, abs=0.3)


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


def test_every_certain_aspect_is_named(rng):
    (feature,) = compare_features(read_samples(rng.normal(size=(500, 1)), rng.normal(2.0, 3.0, (500, 1))))
    assert feature.changes == ["location", "spread"]


def test_few_are_found_where_nothing_shifted(rng):
    found = [
        any(feature.changes for feature in compare_features(read_samples(*rng.normal(size=(2, 60, 10)))))
        for _ in range(100)
    ]
    assert np.mean(found) <= 0.1

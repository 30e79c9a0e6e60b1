"""diagnose: the verdict, the result in types of JSON, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from momentalign.errors import InvalidInputError
from momentalign.evaluation.diagnose import Diagnosis, conclude, diagnose
from momentalign.evaluation.features import FeatureChange
from momentalign.evaluation.whole_samples import DomainClassifier, MomentShift


def table(rng: np.random.Generator, rows: int, *, shifted: bool) -> pd.DataFrame:
    """Numbers, counts, dates, categories and missing values; half of them shift."""
    lost = rng.random(rows) < (0.4 if shifted else 0.05)
    return pd.DataFrame(
        {
            "same": rng.normal(size=rows),
            "age": rng.normal(40 + 9 * shifted, 12, rows).round(),
            "income": np.where(lost, np.nan, rng.lognormal(10, 0.5, rows)),
            "city": rng.choice(["Linz", "Wien", "Graz"], rows, p=[0.1, 0.2, 0.7] if shifted else [0.5, 0.3, 0.2]),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.random(rows) * 300 + 90 * shifted, unit="D"),
            "wider": rng.normal(0, 1 + shifted, rows),
        }
    )


@pytest.fixture(scope="module")
def shifted() -> Diagnosis:
    rng = np.random.default_rng(7)
    source, target = table(rng, 400, shifted=False), table(rng, 350, shifted=True)
    source["old"], target["fresh"], target["empty"] = 1.0, 2.0, np.nan
    source["empty"] = np.nan
    target.loc[::2, "city"] = "Steyr"
    return diagnose(source, target, n_permutations=199)


@pytest.fixture(scope="module")
def alike() -> Diagnosis:
    rng = np.random.default_rng(8)
    return diagnose(rng.random((200, 3)), rng.random((150, 3)), n_permutations=99)


def test_the_verdict_names_what_shifted(shifted: Diagnosis):
    assert shifted.verdict == str(shifted)
    assert shifted.level == "strong"
    assert shifted.p_value < 1e-9
    assert "5 of 6 features differ, most of all city (categories), " in shifted.verdict
    assert "2 columns are in one sample only" in shifted.verdict


def test_where_nothing_shifted_nothing_is_found(alike: Diagnosis):
    assert alike.level == "none"
    assert alike.p_value > 0.05


def test_false_alarms_are_as_rare_as_alpha_says():
    rng = np.random.default_rng(0)
    found = [diagnose(*rng.normal(size=(2, 40, 4)), n_permutations=99).level != "none" for _ in range(40)]
    assert np.mean(found) <= 0.1


def test_the_result_is_what_json_knows(shifted: Diagnosis):
    result = shifted.to_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["only_source"] == ["old"]
    assert result["only_target"] == ["fresh"]
    assert result["empty"] == ["empty"]
    assert result["rows"] == {"source": 400, "target": 350}
    assert len(result["cmd"]["orders"]) == 5
    assert result["cmd"]["total"]["value"] == pytest.approx(sum(order["value"] for order in result["cmd"]["orders"]))
    assert result["cmd"]["seen"] == {"source": 400, "target": 350, "features": 5}
    assert result["classifier"]["features"][0]["drop"] > 0.01
    result["features"].clear()
    assert len(shifted.result["features"]) == 6, "the result is a copy"


def test_the_frame_has_a_line_per_feature(shifted: Diagnosis):
    frame = shifted.to_frame().set_index("feature")
    assert frame.loc["age", "mean_shift"] == pytest.approx(0.75, abs=0.2)
    assert frame.loc["city", "new"] == pytest.approx(0.5, abs=0.01)
    assert np.isnan(frame.loc["city", "mean_shift"])
    assert frame.loc["income", "changes"] == "missing values"
    assert frame.loc["same", "changes"] == ""
    assert frame["p_adjusted"].dtype == np.float64
    assert (frame["p_adjusted"] >= frame["p_value"]).all()


@pytest.mark.parametrize("seed", [0, 5])
def test_the_same_seed_gives_the_same_diagnosis(seed: int):
    pair = np.random.default_rng(3).random((2, 60, 3))
    first, again = (diagnose(*pair, n_permutations=50, random_state=seed).to_dict() for _ in range(2))
    assert first == again
    other = diagnose(*pair, n_permutations=50, random_state=np.random.default_rng(9)).to_dict()
    assert other["cmd"]["orders"] != first["cmd"]["orders"]


def test_large_samples_are_drawn_from_and_it_is_told():
    rng = np.random.default_rng(4)
    found = diagnose(rng.random((10_500, 1)), rng.random((300, 1)), n_permutations=20).to_dict()
    assert found["cmd"]["seen"] == {"source": 10_000, "target": 300, "features": 1}
    assert found["classifier"]["rows"] == 300
    assert found["rows"]["source"] == 10_500


def test_sparse_rows_give_what_dense_ones_give():
    rng = np.random.default_rng(5)
    pair = [rng.poisson(rate, (120, 4)).astype(float) for rate in (0.3, [0.3, 0.3, 1.2, 0.3])]
    dense, thin = diagnose(*pair, n_permutations=50), diagnose(*map(sparse.csr_array, pair), n_permutations=50)
    assert thin.result["features"] == dense.result["features"]
    assert thin.result["cmd"] == dense.result["cmd"]


def test_numbers_that_one_sample_lacks_have_no_moments():
    rng = np.random.default_rng(6)
    source = rng.random((30, 2))
    found = diagnose(source, np.column_stack([source[:, 0], np.full(30, np.nan)]), n_permutations=20)
    assert found.result["cmd"]["seen"]["features"] == 1
    assert found.result["features"][0]["distance"] is None
    assert "x1 (missing values)" in found.verdict


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "alpha": [1.5, True, "0.05"],
        "n_permutations": [0, 100_001, 1.5],
        "random_state": [-1],
        "X_source": [np.zeros((3, 2))],
    }.items(),
)
def test_bad_arguments_are_named(name: str, values: list[Any]):
    pair = {"X_source": np.zeros((9, 2)), "X_target": np.zeros((9, 2))}
    for value in values:
        with pytest.raises(InvalidInputError, match=f"^{name} "):
            diagnose(**(pair | {name: value}))


GUESSING = DomainClassifier("logistic regression", 100, 0.5, 0.0, 0.51, 0.4, 0.6, 0.4, [])
KNOWING = GUESSING._replace(auc=0.65, p_value=1e-4)
ALIKE = MomentShift(np.zeros(6), np.full(6, 0.5), np.ones(6))
APART = MomentShift(np.ones(6), np.full(6, 0.001), np.zeros(6))
SAME = FeatureChange(
    name="same",
    kind="number",
    distance=0.05,
    p_value=0.6,
    p_adjusted=0.7,
    missing_source=0.0,
    missing_target=0.0,
    missing_p_value=math.nan,
    missing_p_adjusted=math.nan,
    changes=[],
    shape=None,
)
MOVED = replace(SAME, name="moved", distance=0.15, p_adjusted=1e-6, changes=["location"])
WIDER = replace(SAME, name="wider", distance=0.3, p_adjusted=1e-6, changes=["spread", "shape"])
LOST = replace(SAME, name="lost", missing_target=0.5, missing_p_adjusted=1e-9, changes=["missing values"])


@pytest.mark.parametrize(
    ("features", "moments", "classifier", "level", "told"),
    [
        ([SAME, SAME], ALIKE, GUESSING, "none", ["none of 2 features differs", "cannot tell the samples apart"]),
        ([SAME], None, GUESSING, "none", ["none of 1 feature differs", "AUC 0.51"]),
        ([MOVED, SAME], ALIKE, GUESSING, "mild", ["1 of 2 features differs: moved (location)", "cannot use it"]),
        (
            [WIDER, MOVED, SAME],
            APART,
            GUESSING,
            "moderate",
            ["2 of 3 features differ: wider (spread, shape) and moved (location)", "moments", "cannot use it"],
        ),
        (
            [LOST, WIDER, MOVED, MOVED, SAME],
            APART,
            KNOWING,
            "strong",
            ["4 of 5 features differ, most of all lost (missing values), wider", "tells the samples apart (AUC 0.65)"],
        ),
        ([SAME, SAME], ALIKE, KNOWING, "moderate", ["no single feature differs", "tells the samples apart"]),
        ([replace(MOVED, p_adjusted=0.04), SAME], ALIKE, GUESSING, "none", ["moved (location) alone would pass"]),
    ],
    ids=["none", "one feature", "mild", "moments", "strong", "joint", "too many tests"],
)
def test_the_sentence_says_what_was_found(features, moments, classifier, level, told):
    found = conclude(features, moments, classifier)
    assert found.level == level
    assert found.words.startswith("No shift found: " if level == "none" else f"{level.capitalize()} shift: ")
    assert all(part in found.words for part in told)


@pytest.mark.parametrize(("unmatched", "told"), [(1, "; 1 column is in"), (3, "; 3 columns are in")])
def test_columns_of_one_sample_only_are_told(unmatched, told):
    assert told in conclude([MOVED], None, KNOWING, unmatched=unmatched).words
    assert told in conclude([SAME], None, GUESSING, unmatched=unmatched).words


@pytest.mark.parametrize(
    ("distance", "level"), [(0.19, "mild"), (0.2, "moderate"), (0.39, "moderate"), (0.4, "strong")]
)
def test_the_level_is_that_of_the_largest_distance(distance, level):
    found = conclude([replace(MOVED, distance=distance), SAME], None, GUESSING)
    assert (found.level, found.strength) == (level, distance)


def test_the_p_value_counts_the_tests():
    assert conclude([SAME], ALIKE, KNOWING).p_value == pytest.approx(3e-4)
    assert conclude([SAME], None, KNOWING).p_value == pytest.approx(2e-4)
    assert conclude([replace(SAME, p_adjusted=math.nan)], None, KNOWING).p_value == pytest.approx(1e-4)
    assert conclude([SAME], ALIKE, GUESSING).p_value == 1.0


def test_an_insignificant_distance_does_not_count():
    noisy = replace(LOST, distance=0.9, missing_target=0.1)
    assert conclude([noisy], None, GUESSING).strength == pytest.approx(0.1)

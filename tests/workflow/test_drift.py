from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from momentalign.moments.streaming import Moments
from momentalign.workflow.drift import Drift, find_drift, standardised_shift

NAMES = [f"x{place}" for place in range(20)]


def drift_of(new: np.ndarray, kept: np.ndarray) -> Drift:
    return find_drift(Moments.of(new), Moments.of(kept), NAMES[: new.shape[1]])


@pytest.mark.parametrize("rows", [1, 5, 30, 1000])
def test_samples_of_one_distribution_rarely_raise_an_alarm(rng: np.random.Generator, rows: int):
    def draw(count: int) -> np.ndarray:
        kinds = [rng.normal(size=(count, 7)), rng.exponential(size=(count, 7)), rng.random((count, 6)) < 0.02]
        return np.hstack(kinds).astype(np.float32)

    alarms = sum(drift_of(draw(rows), draw(800)).found for _ in range(100))
    assert alarms <= 3


def test_a_shift_a_stretch_and_a_new_category_are_found(rng: np.random.Generator):
    kept, new = rng.normal(size=(500, 4)), rng.normal(size=(400, 4))
    kept[:, 3] = 0.0
    new[:, 1] += 0.6
    new[:, 2] *= 2
    new[:, 3] = rng.random(400) < 0.3
    found = {one.name: one for one in drift_of(new, kept).features}
    assert set(found) == {"x1", "x2", "x3"}
    assert found["x1"].mean_shift == pytest.approx(0.6, abs=0.15)
    assert found["x2"].deviation_ratio == pytest.approx(2.0, abs=0.3)


def test_a_large_file_that_differs_by_little_is_no_drift(rng: np.random.Generator):
    drift = drift_of(rng.normal(0.03, 1, size=(100_000, 1)), rng.normal(size=(100_000, 1)))
    assert not drift.found
    assert drift.distance > 3 * drift.by_chance


def test_few_rows_say_nothing():
    assert not drift_of(np.full((29, 1), 50.0), np.random.default_rng(0).normal(size=(500, 1))).found
    assert drift_of(np.full((30, 1), 50.0), np.random.default_rng(0).normal(size=(500, 1))).found


def test_constants_that_differ_stay_finite():
    kept, new = (Moments.of(np.full((40, 1), value)) for value in (0.0, 1.0))
    assert standardised_shift(kept, new).tolist() == [1000.0]
    assert standardised_shift(kept, kept).tolist() == [0.0]
    json.dumps(find_drift(new, kept, ["x"]).to_dict(), allow_nan=False)


def test_the_warning_names_the_worst_columns(rng: np.random.Generator):
    kept, new = rng.normal(size=(500, 5)), rng.normal([0, 1, 4, 3, 2], 1, size=(500, 5))
    drift = drift_of(new, kept)
    assert [one.name for one in drift.features] == ["x2", "x3", "x4", "x1"]
    assert "'x2' by +3.9" in drift.message
    assert "and 1 more; fit a model" in drift.message
    assert drift.to_dict()["drifted"] == 4


@pytest.mark.parametrize(("moved", "words"), [(1e6, "by 1,000"), (-1e6, "by -1,000")])
def test_what_is_too_far_to_be_told_is_worded_so(rng: np.random.Generator, moved: float, words: str):
    rows = rng.normal(size=(200, 1))
    drift = find_drift(Moments.of(rows + moved), Moments.of(rows), ["a"])
    assert f"'a' {words} standard deviations or more" in drift.message


def test_a_pure_stretch_is_worded_as_one():
    values = np.tile([-1.0, 1.0], 100)[:, None]
    assert "'x0' to 3.00 times the standard deviation;" in drift_of(3 * values, values).message


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_a_constant_in_other_chunks_is_no_drift(form: Callable):
    def total(sizes: list[int]) -> Moments:
        parts = [Moments.of(form(np.full((size, 1), 0.1, np.float32))) for size in sizes]
        return functools.reduce(operator.add, parts)

    assert not find_drift(total([7] * 9 + [3]), total([41, 13]), ["x"]).found


def test_rounding_about_a_constant_is_no_spread():
    kept, new = (
        Moments.from_dict({"count": 50, "mean": [1.0], "central": [[variance], [0.0], [variance**2], [0.0]]})
        for variance in (1e-20, 1e-17)
    )
    assert not find_drift(new, kept, ["x"]).found


def test_a_few_rows_without_a_rare_category_are_no_drift(rng: np.random.Generator):
    assert not drift_of(np.zeros((40, 1)), (rng.random((800, 1)) < 0.1).astype(float)).found

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError
from momentalign.monitoring.window import Rows, Window, check_names

ORDER = 4
NAMES = ("a", "b")
VALUES = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])


@pytest.mark.parametrize(
    "form", [np.asarray, sparse.csr_matrix, torch.tensor, pd.DataFrame, lambda values: values.astype(int).tolist()]
)
def test_every_kind_of_rows_comes_dense_in_blocks(form):
    rows = Rows(form(VALUES), "batch")
    assert (rows.count, rows.width) == (3, 2)
    np.testing.assert_array_equal(np.vstack(list(rows.blocks(NAMES))), VALUES)
    sample = rows.sample(2, np.random.default_rng(0), NAMES)
    assert all(row in VALUES.tolist() for row in sample.tolist())
    assert len(sample) == 2
    np.testing.assert_array_equal(rows.sample(3, np.random.default_rng(0), NAMES), VALUES)


def test_a_long_sparse_matrix_is_dense_in_parts():
    rows = Rows(sparse.random(3000, 4, 0.1, format="csr", random_state=0), "batch")
    assert [len(block) for block in rows.blocks("abcd")] == [1024, 1024, 952]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, pd.DataFrame])
def test_a_feature_that_is_not_finite_is_named(value, form):
    spoiled = VALUES.copy()
    spoiled[1, 1] = value
    with pytest.raises(InvalidInputError, match="batch holds NaN or infinite values in feature 'b'; remove or impute"):
        list(Rows(form(spoiled), "batch").blocks(NAMES))


def test_huge_values_are_no_missing_ones():
    assert len(list(Rows(np.full((2, 2), 1e308), "batch").blocks(NAMES))) == 1


def test_names_are_given_or_those_of_the_columns_or_numbers():
    frame = Rows(pd.DataFrame(VALUES, columns=["p", 7]), "reference")
    assert check_names(None, frame) == ("p", "7")
    assert check_names(["u", "v"], frame) == ("u", "v")
    with pytest.raises(InvalidInputError, match="feature_names has 1 names for 2 columns of reference"):
        check_names(["u"], frame)
    for wrong in ("uv", [1, 2], 3, np.array("uv")):
        with pytest.raises(InvalidTypeError, match="feature_names must be a list of strings"):
            check_names(wrong, frame)


def test_other_features_are_refused():
    with pytest.raises(InvalidInputError, match="batch has 2 columns and the reference has 3; give the same"):
        Rows(VALUES, "batch").check_features("abc")
    with pytest.raises(InvalidInputError, match="batch has the column 'b' where the reference has 'a'; give both"):
        Rows(pd.DataFrame(VALUES, columns=["b", "a"]), "batch").check_features(NAMES)
    Rows(pd.DataFrame(VALUES, columns=["a", "b"]), "batch").check_features(NAMES)


def raw(rows, weights=None):
    return np.stack([np.average(rows**power, axis=0, weights=weights) for power in range(1, ORDER + 1)])


def window(forgetting=False):
    return Window(50, order=ORDER, forgetting=forgetting, centre=np.zeros(2))


@pytest.mark.parametrize("sizes", [[113], [1] * 113, [7, 60, 46], [0, 50, 0, 63]])
def test_a_sliding_window_holds_the_last_rows_however_they_come(rng, sizes):
    rows, slid, start, found = rng.random((113, 2)), window(), 0, []
    for size in sizes:
        found.extend(slid.add(rows[start : start + size]))
        start += size
    assert slid.rows == 113
    assert len(found) == 13
    for step, one in enumerate(found):
        np.testing.assert_allclose(one, raw(rows[5 * step : 5 * step + 50]), atol=1e-14)


def test_a_forgetting_window_weighs_by_age_and_remembers_as_many_rows_in_effect(rng):
    rows = rng.random((400, 2))
    found = list(window(forgetting=True).add(rows))
    assert len(found) == 80 - 29
    weights = (9 / 11) ** (np.arange(400)[::-1] // 5)
    np.testing.assert_allclose(found[-1], raw(rows, weights), atol=1e-14)
    assert weights.sum() ** 2 / (weights**2).sum() == pytest.approx(50, rel=1e-6)


@pytest.mark.parametrize("forgetting", [False, True])
def test_it_goes_on_from_plain_json(rng, forgetting):
    rows, stopped, restored = rng.random((203, 2)), window(forgetting), window(forgetting)
    list(stopped.add(rows[:178]))
    restored.restore(json.loads(json.dumps(stopped.to_dict())))
    found, expected = (list(one.add(rows[178:])) for one in (restored, stopped))
    assert len(found) == 5
    np.testing.assert_array_equal(found, expected)


def opened(count, width=1, order=ORDER):
    empty = [0.0] * width
    return {"order": order, "cross": 1, "count": count, "mean": empty, "rest": empty, "sums": [empty] * (order - 1)}


@pytest.mark.parametrize(
    "change",
    [
        {"steps": -1},
        {"steps": 3.0},
        {"steps": 20},
        {"steps": 10**400, "blocks": [[[0.5, 0.5]] * ORDER] * 10},
        {"blocks": []},
        {"blocks": [[[0.5, 0.5]]] * 3},
        {"blocks": [[[float("nan"), 0.5]] * ORDER] * 3},
        {"open": opened(0, 2, order=3)},
        {"open": opened(5)},
        {"open": opened(1)},
        {"open": opened(1.5, 2)},
    ],
)
def test_an_invalid_description_is_refused(rng, change):
    slid = window()
    list(slid.add(rng.random((17, 2))))
    with pytest.raises((ValueError, DamagedFileError)):
        window().restore({**slid.to_dict(), **change})

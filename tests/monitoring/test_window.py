import json

import numpy as np
import pytest

from momentalign.errors import DamagedFileError
from momentalign.monitoring.window import Window

ORDER = 4


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
    for place, one in enumerate(found):
        np.testing.assert_allclose(one, raw(rows[5 * place : 5 * place + 50]), atol=1e-14)


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
        {"open": {"order": 3, "cross": 1, "count": 0}},
        {"open": {"order": ORDER, "cross": 1, "count": 5, "mean": [0.1], "rest": [0.0], "sums": [[0.0]] * 3}},
        {"open": {"order": ORDER, "cross": 1, "count": 1, "mean": [0.1], "rest": [0.0], "sums": [[0.0]] * 3}},
        {
            "open": {
                "order": ORDER,
                "cross": 1,
                "count": 1.5,
                "mean": [0.1] * 2,
                "rest": [0.0] * 2,
                "sums": [[0.0] * 2] * 3,
            }
        },
    ],
)
def test_what_cannot_be_is_refused(rng, change):
    slid = window()
    list(slid.add(rng.random((17, 2))))
    with pytest.raises((ValueError, DamagedFileError)):
        window().restore({**slid.to_dict(), **change})

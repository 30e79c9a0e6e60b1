import json

import numpy as np
import pytest

import momentalign as ma
from momentalign.errors import DamagedFileError, InvalidTypeError

# As version 0.1 wrote them into the folder of a model.
EARLIER = '{"count": 3, "mean": [2.0, 0.0], "central": [[4.5, 1.0], [6.0, 0.0], [24.0, 1.0], [60.0, 0.0]]}'


def good():
    return json.loads(json.dumps(ma.Moments(3, 2).update([[0.0, 1.0], [1.0, 3.0], [5.0, 2.0]]).to_dict()))


def test_earlier_files_are_read():
    moments = ma.Moments.from_dict(json.loads(EARLIER))
    assert (moments.order, moments.cross, moments.count) == (5, 1, 3)
    assert moments.mean.tolist() == [2.0, 0.0]
    assert moments.central.tolist() == [[4.5, 1.0], [6.0, 0.0], [24.0, 1.0], [60.0, 0.0]]
    assert moments.update([[0.0, 0.0]]).count == 4


def test_moments_without_rows_are_described_too():
    assert ma.Moments.from_dict(ma.Moments(4, 2).to_dict()).to_dict() == {"order": 4, "cross": 2, "count": 0}
    empty = ma.Moments().update(np.empty((0, 3)))
    assert ma.Moments.from_dict(empty.to_dict()).to_dict() == empty.to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"order": 0},
        {"order": 11},
        {"order": 3.0},
        {"order": True},
        {"order": 4},
        {"cross": 3},
        {"cross": "1"},
        {"count": -1},
        {"count": True},
        {"count": "3"},
        {"count": float("nan")},
        {"count": float("inf")},
        {"count": 0},
        {"mean": []},
        {"mean": 1.0},
        {"mean": [1.0]},
        {"mean": [1.0, float("inf")]},
        {"mean": "x"},
        {"mean": [[1.0, 2.0]]},
        {"mean": [10**400, 0.0]},
        {"rest": [0.0]},
        {"rest": [0.0, float("nan")]},
        {"sums": [[1.0, 1.0]]},
        {"sums": [[1.0, 1.0], [1.0]]},
        {"sums": [[-1.0, 1.0], [0.0, 0.0]]},
        {"sums": None},
        {"products": [[1.0]]},
        {"products": [[1.0, 2.0], [3.0, 1.0]]},
        {"products": [[1.0, float("nan")], [3.0, 1.0]]},
    ],
)
def test_a_damaged_description_is_refused(change):
    ma.Moments.from_dict(good())
    with pytest.raises(DamagedFileError, match=r"^this does not describe moments \(.*\); compute them again\.$"):
        ma.Moments.from_dict(good() | change)


@pytest.mark.parametrize("name", ["order", "cross", "count", "mean", "rest", "sums", "products"])
def test_a_missing_value_is_named(name):
    description = good()
    del description[name]
    with pytest.raises(DamagedFileError, match=name):
        ma.Moments.from_dict(description)


@pytest.mark.parametrize(
    "change", [{"count": 0}, {"central": [[1.0, 1.0]]}, {"mean": [0.0]}, {"central": [[-1.0, 1.0]] * 4}]
)
def test_a_damaged_earlier_description_is_refused(change):
    with pytest.raises(DamagedFileError):
        ma.Moments.from_dict(json.loads(EARLIER) | change)


def test_what_is_no_dictionary_is_refused():
    with pytest.raises(InvalidTypeError, match="described by a dictionary, got list"):
        ma.Moments.from_dict([1, 2])

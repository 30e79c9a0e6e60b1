import json
from itertools import product

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
    for cross, dtype in product((1, 2), (float, int)):
        empty = ma.Moments(cross=cross).update(np.empty((0, 3), dtype))
        assert ma.Moments.from_dict(empty.to_dict()).to_dict() == empty.to_dict()


@pytest.mark.parametrize(("order", "cross"), [(1, 1), (2, 2), (3, 1), (10, 2)])
def test_all_that_is_described_comes_back(order, cross):
    moments = ma.Moments(order, cross).update([[0.0, 1.0], [1.0, 3.0], [5.0, 2.0]])
    back = ma.Moments.from_dict(json.loads(json.dumps(moments.to_dict())))
    assert (back.order, back.cross, back.to_dict()) == (order, cross, moments.to_dict())
    assert back.update([[7.0, 1.0]]).to_dict() == moments.update([[7.0, 1.0]]).to_dict()


def test_whole_numbers_are_read_as_floats():
    whole = {"count": 2, "mean": [1], "rest": [0], "sums": [[2]], "products": [[2]]}
    moments = ma.Moments.from_dict({"order": 2, "cross": 2, **whole})
    assert [array.dtype for array in (moments.mean, moments.central, moments.covariance)] == [np.float64] * 3
    assert str([moments.to_dict()[name] for name in ("rest", "sums", "products")]) == "[[0.0], [[2.0]], [[2.0]]]"


DAMAGED = [
    ({"order": 0}, "order 0"),
    ({"order": 11}, "order 11"),
    ({"order": 3.0}, "order 3.0"),
    ({"order": True}, "order True"),
    ({"order": "3" * 99}, f"order '{'3' * 39}"),
    ({"order": 4}, "sums of shape (2, 2) instead of (3, 2), or not finite"),
    ({"order": 1}, "cross 2"),
    ({"cross": 0}, "cross 0"),
    ({"cross": 3}, "cross 3"),
    ({"cross": "1"}, "cross '1'"),
    ({"count": -1}, "moments of -1 rows"),
    ({"count": True}, "moments of True rows"),
    ({"count": "3"}, "moments of '3' rows"),
    ({"count": float("nan")}, "moments of nan rows"),
    ({"count": float("inf")}, "moments of inf rows"),
    ({"count": 10**400}, f"moments of 1{'0' * 39} rows"),
    ({"count": 0}, "moments of no rows"),
    ({"count": 0, "mean": [0.0, 0.0]}, "moments of no rows"),
    ({"count": 0, "sums": [[0.0, 0.0], [0.0, 0.0]]}, "moments of no rows"),
    ({"mean": []}, "a mean of shape (0,), or one that is not finite"),
    ({"mean": 1.0}, "a mean of shape (), or one that is not finite"),
    ({"mean": [1.0]}, "rest of shape (2,) instead of (1,), or not finite"),
    ({"mean": [1.0, float("inf")]}, "a mean of shape (2,), or one that is not finite"),
    ({"mean": "x"}, "could not convert string to float: 'x'"),
    ({"mean": [[1.0, 2.0]]}, "a mean of shape (1, 2), or one that is not finite"),
    ({"mean": [10**400, 0.0]}, "int too large to convert to float"),
    ({"rest": [0.0]}, "rest of shape (1,) instead of (2,), or not finite"),
    ({"rest": [0.0, float("nan")]}, "rest of shape (2,) instead of (2,), or not finite"),
    ({"sums": [[1.0, 1.0]]}, "sums of shape (1, 2) instead of (2, 2), or not finite"),
    ({"sums": [[-1.0, 1.0], [0.0, 0.0]]}, "even central sums below zero"),
    ({"sums": None}, "sums of shape () instead of (2, 2), or not finite"),
    ({"products": [[1.0]]}, "products of shape (1, 1) instead of (2, 2), or not finite"),
    ({"products": [[1.0, 2.0], [3.0, 1.0]]}, "products that are not symmetric"),
    ({"products": [[1.0, float("nan")], [3.0, 1.0]]}, "products of shape (2, 2) instead of (2, 2), or not finite"),
]


@pytest.mark.parametrize(("change", "reason"), DAMAGED)
def test_a_damaged_description_is_refused(change, reason):
    ma.Moments.from_dict(good())
    with pytest.raises(DamagedFileError) as caught:
        ma.Moments.from_dict(good() | change)
    assert str(caught.value) == f"this does not describe moments ({reason}); compute them again."


@pytest.mark.parametrize("order", [2, 4, 6])
def test_no_even_sum_lies_below_zero(order):
    description = ma.Moments(6).update([[0.0], [1.0], [5.0]]).to_dict()
    description["sums"][order - 2] = [-1.0]
    with pytest.raises(DamagedFileError, match="even central sums below zero"):
        ma.Moments.from_dict(description)


def test_odd_sums_may_lie_below_zero():
    description = ma.Moments(5).update([[0.0], [-1.0], [-5.0]]).to_dict()
    assert ma.Moments.from_dict(description).central[1] < 0.0


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(DamagedFileError, match=r"^this does not describe moments \(.*\); compute them again\.$"):
        ma.Moments.from_dict(good() | {"sums": [[1.0, 1.0], [1.0]]})


def test_products_are_symmetric_to_nine_digits():
    """Of the largest square, which is 14, and of themselves."""
    ma.Moments.from_dict(good() | {"products": [[14.0, 1.2e-8], [0.0, 2.0]]})
    for products in ([[14.0, 2e-8], [0.0, 2.0]], [[14.0, 5.0 + 7e-8], [5.0, 2.0]]):
        with pytest.raises(DamagedFileError, match="products that are not symmetric"):
            ma.Moments.from_dict(good() | {"products": products})


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
    words = r"^moments are described by a dictionary, got list; give what to_dict\(\) returned\.$"
    with pytest.raises(InvalidTypeError, match=words):
        ma.Moments.from_dict([1, 2])

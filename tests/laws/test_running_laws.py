"""The laws of moments that are merged, orders 1 to 10, as properties of any blocks of rows.

Everything holds to 1e-12, relative, order by order, to the exact absolute central moments of all rows together: that is
the size of what is summed. The mean holds to its own last digit.
"""

import json
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import momentalign as ma

TOLERANCE = 1e-12
TINY = 1e-290  # Below, powers leave the range of float64.
VALUES = st.one_of(st.sampled_from((0.0, 0.5, 1.0)), st.floats(0, 1, width=32, allow_subnormal=False))
WEIGHTS = st.one_of(st.sampled_from((0.0, 1.0, 3.0)), st.floats(0.125, 8, width=32))


class Exact(NamedTuple):
    """Mean, central moments and absolute central moments of rows with weights, by fractions."""

    mean: np.ndarray
    central: np.ndarray
    sizes: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, rows, order, weights=None):
        heavy = [Fraction(1)] * len(rows) if weights is None else [Fraction(weight) for weight in weights]
        total = sum(heavy)
        columns = [[Fraction(value) for value in column] for column in rows.T.tolist()]
        means = [sum(w * x for w, x in zip(heavy, column, strict=True)) / total for column in columns]
        centred = [[x - mean for x in column] for column, mean in zip(columns, means, strict=True)]

        def average(values):
            return float(sum(w * z for w, z in zip(heavy, values, strict=True)) / total)

        return cls(
            np.array([float(mean) for mean in means]),
            np.array([[average([z**p for z in column]) for column in centred] for p in range(1, order + 1)])[1:],
            np.array([[average([abs(z) ** p for z in column]) for column in centred] for p in range(1, order + 1)]),
            np.array([[average(map(Fraction.__mul__, a, b)) for b in centred] for a in centred]),
        )

    def check(self, moments):
        level = TOLERANCE * self.sizes + TINY
        assert np.all(np.abs(moments.mean - self.mean) <= level[0] + np.spacing(np.abs(self.mean)))
        assert np.all(np.abs(moments.central - self.central) <= level[1:])
        if moments.cross == 2:
            spread = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
            assert np.all(np.abs(moments.covariance - self.covariance) <= TOLERANCE * np.outer(spread, spread) + TINY)


class Case(NamedTuple):
    blocks: list[np.ndarray]
    order: int
    cross: int

    @property
    def rows(self):
        return np.concatenate(self.blocks)

    def empty(self):
        return ma.Moments(self.order, self.cross)

    def parts(self):
        return [self.empty().update(block) for block in self.blocks]


@st.composite
def cases(draw, min_blocks=1, min_rows=1, max_order=10):
    width, order = draw(st.integers(1, 3)), draw(st.integers(1, max_order))
    sizes = draw(st.lists(st.integers(min_rows, 6), min_size=min_blocks, max_size=5))
    # An offset rounds the values; they are what they are afterwards.
    offset = draw(st.sampled_from((0.0, 0.0, -3.0, 1e6)))
    blocks = [draw(arrays(np.float64, (size, width), elements=VALUES)) + offset for size in sizes]
    return Case(blocks, order, draw(st.integers(1, min(order, 2))))


@given(case=cases())
def test_a_stream_has_the_moments_of_all_its_rows(case):
    moments = case.empty()
    for block in case.blocks:
        assert moments.update(block) is moments
    assert moments.count == len(case.rows)
    Exact.of(case.rows, case.order).check(moments)


@given(case=cases(), data=st.data())
def test_shards_merge_in_any_order(case, data):
    parts = data.draw(st.permutations(case.parts()))
    while len(parts) > 1:
        place = data.draw(st.integers(0, len(parts) - 2))
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    Exact.of(case.rows, case.order).check(parts[0])


@given(case=cases(min_blocks=3))
def test_merging_is_commutative_and_associative(case):
    one, two, three = case.parts()[:3]
    exact = Exact.of(np.concatenate(case.blocks[:3]), case.order)
    for moments in ((one + two) + three, one + (two + three), three + (two + one), one.copy().merge(three).merge(two)):
        exact.check(moments)


@given(case=cases(), data=st.data())
def test_a_weight_is_a_number_of_copies(case, data):
    times = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(case.rows), max_size=len(case.rows))))
    times[0] = 1
    weighted = case.empty().update(case.rows, weights=times)
    assert weighted.count == times.sum()
    Exact.of(np.repeat(case.rows, times, axis=0), case.order).check(weighted)


@given(case=cases(), data=st.data())
def test_weighted_rows_have_the_weighted_moments(case, data):
    weights = data.draw(arrays(np.float64, len(case.rows), elements=WEIGHTS))
    weights[-1] = 1.0
    moments, first = case.empty(), 0
    for block in case.blocks:
        moments.update(block, weights[first : first + len(block)])
        first += len(block)
    Exact.of(case.rows, case.order, weights).check(moments)


@given(case=cases(), factor=st.floats(0.125, 1.0, width=32))
def test_to_forget_is_to_weigh_what_came_before(case, factor):
    moments, weights = case.empty(), np.empty(0)
    for block in case.blocks:
        moments.forget(factor).update(block)
        weights = np.concatenate([weights * factor, np.ones(len(block))])
    assert abs(moments.count - weights.sum()) <= 1e-12 * weights.sum()
    Exact.of(case.rows, case.order, weights).check(moments)


@given(case=cases())
def test_what_has_no_rows_changes_nothing(case):
    moments = case.empty().update(case.rows)
    before = moments.to_dict()
    moments.merge(case.empty()).update(case.rows[:0]).update(case.rows, weights=np.zeros(len(case.rows)))
    assert moments.to_dict() == before
    assert (case.empty() + moments).to_dict() == before


@given(case=cases())
def test_a_description_is_read_back_to_the_last_bit(case):
    moments = case.empty().update(case.rows).forget(0.75)
    again = ma.Moments.from_dict(json.loads(json.dumps(moments.to_dict(), allow_nan=False)))
    assert again.to_dict() == moments.to_dict()
    assert again.update(case.rows).to_dict() == moments.update(case.rows).to_dict()


@given(case=cases(min_blocks=2))
def test_the_distance_is_that_of_the_rows(case):
    source, target = case.rows, case.blocks[0][:, ::-1].copy()
    moments = [case.empty().update(rows) for rows in (source, target)]
    terms = moments[0].cmd_terms(moments[1], interval=(0, 2))
    expected = ma.cmd_terms(source, target, n_moments=case.order, cross=case.cross, interval=(0, 2))
    np.testing.assert_allclose(terms, expected, rtol=1e-10, atol=1e-10 * 0.5)


@given(case=cases(min_blocks=2), data=st.data())
def test_equal_samples_are_at_distance_zero_however_they_came(case, data):
    parts = data.draw(st.permutations(case.parts()))
    stream, shards = case.empty().update(case.rows), case.empty()
    for part in parts:
        shards.merge(part)
    one_by_one = case.empty()
    for row in case.rows:
        one_by_one.update(row[None])
    assert stream.cmd(shards) == stream.cmd(one_by_one) == one_by_one.cmd(shards) == 0.0

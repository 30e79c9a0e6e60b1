from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

from momentalign.workflow.domain_moments import ORDER, DomainMoments


def check(moments: DomainMoments, rows: np.ndarray) -> None:
    assert moments.count == len(rows)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-10, atol=1e-12)
    for order in range(2, ORDER + 1):
        exact = stats.moment(rows, order, axis=0)
        size = np.abs(rows - rows.mean(axis=0)).max(axis=0) ** order
        np.testing.assert_allclose(moments.central[order - 2], exact, rtol=1e-9, atol=1e-11 * size.max() + 1e-300)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9000), st.floats(-1e3, 1e3))
def test_moments_are_those_of_scipy(seed: int, rows: int, offset: float):
    sample = np.random.default_rng(seed).exponential(size=(rows, 2)) + offset
    check(DomainMoments.of(sample), sample)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_parts_add_up_to_the_whole(seed: int, sizes: list[int]):
    random = np.random.default_rng(seed)
    parts = [random.gamma(2.0, size=(size, 3)) * random.uniform(0.1, 9) + random.normal() for size in sizes]
    total = DomainMoments.of(parts[0])
    for part in parts[1:]:
        total = total + DomainMoments.of(part)
    check(total, np.concatenate(parts))


def test_sparse_rows_have_the_moments_of_dense_ones(rng: np.random.Generator):
    rows = sparse.random(5000, 4, density=0.1, format="csr", random_state=rng, dtype=np.float32)
    check(DomainMoments.of(rows), rows.toarray().astype(float))


def test_a_description_is_read_back_to_the_last_bit(rng: np.random.Generator):
    moments = DomainMoments.of(rng.normal(size=(50, 3)))
    again = DomainMoments.from_description(json.loads(json.dumps(moments.to_description())), features=3)
    assert again.count == moments.count
    np.testing.assert_array_equal(again.mean, moments.mean)
    np.testing.assert_array_equal(again.central, moments.central)


@pytest.mark.parametrize(
    "change",
    [{"count": 0}, {"count": 2.0}, {"mean": [0.0]}, {"mean": [0.0, 1e999]}, {"central": [[0.0, 0.0]]}, {"mean": "x"}],
)
def test_other_descriptions_are_refused(change: dict):
    good = {"count": 2, "mean": [0.0, 0.0], "central": [[0.0, 0.0]] * 4}
    DomainMoments.from_description(good, features=2)
    with pytest.raises(ValueError, match=r"moments|string"):
        DomainMoments.from_description(good | change, features=2)

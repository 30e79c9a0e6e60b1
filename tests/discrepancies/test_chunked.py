import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignWarning


@pytest.fixture
def pair(rng):
    return rng.random((500, 3)), rng.random((300, 3)) ** 2


@pytest.fixture
def stored(tmp_path):
    def store(rows, name="rows"):
        np.save(tmp_path / f"{name}.npy", rows)
        return np.load(tmp_path / f"{name}.npy", mmap_mode="r")

    return store


def lazily(rows, stored):
    frame = pd.DataFrame(rows, columns=list("abc"))
    yield da.from_array(rows, chunks=(70, 3))
    yield dd.from_pandas(frame, npartitions=4)
    yield pa.table(frame)
    yield stored(rows)
    yield iter(np.array_split(rows, 9))


@pytest.mark.parametrize("settings", [{}, {"cross": 2}, {"n_moments": 3, "interval": (-1.0, 1.0)}, {"n_moments": 1}])
def test_the_distance_is_that_of_the_rows_in_memory(pair, stored, settings):
    source, target = pair
    expected, terms = ma.cmd(source, target, **settings), ma.cmd_terms(source, target, **settings)
    for one, other in zip(lazily(source, stored), lazily(target, lambda rows: stored(rows, "other")), strict=True):
        value = ma.cmd(one, other, **settings)
        assert type(value) is float
        assert value == pytest.approx(expected, rel=1e-12)
    for one, other in zip(lazily(source, stored), lazily(target, lambda rows: stored(rows, "other")), strict=True):
        np.testing.assert_allclose(ma.cmd_terms(source, other, **settings), terms, rtol=1e-12)
        np.testing.assert_allclose(ma.cmd_terms(one, target.tolist(), **settings), terms, rtol=1e-12)


def test_equal_domains_are_at_distance_zero(pair, stored):
    for data in lazily(pair[0], stored):
        assert ma.cmd(data, pair[0], cross=2) == 0.0


BEYOND = [
    ({"unbiased": True}, "unbiased estimate, got unbiased=True; set unbiased=False"),
    ({"cross": 3}, "moments of more than two features, got cross=3; set cross=2"),
    ({"interval": "data"}, "known range, got interval='data'; give it as interval=(a, b)"),
    ({"n_moments": 11}, "moments above order 10, got n_moments=11; lower n_moments"),
]


@pytest.mark.parametrize(("settings", "words"), BEYOND)
def test_what_moments_do_not_tell_is_refused_with_the_remedy(pair, stored, settings, words):
    for source, target in ((da.from_array(pair[0]), pair[1]), (stored(pair[0]), iter([pair[1]]))):
        with pytest.raises(InvalidInputError) as caught:
            ma.cmd(source, target, **settings)
        expected = f"data that are read in chunks have no {words}, or read both domains into memory."
        assert str(caught.value) == expected


def test_ten_moments_of_chunks_are_known(pair):
    expected = ma.cmd(*pair, n_moments=10)
    assert ma.cmd(da.from_array(pair[0]), pair[1], n_moments=10) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("settings", "_"), BEYOND)
@pytest.mark.filterwarnings(f"ignore::{MomentAlignWarning.__module__}.{MomentAlignWarning.__name__}")
def test_a_memory_map_is_an_array_where_moments_do_not_suffice(pair, stored, settings, _):
    source, target = pair
    assert ma.cmd(stored(source), target, **settings) == pytest.approx(ma.cmd(source, target, **settings), rel=1e-12)


@pytest.mark.parametrize("name", ["source", "target"])
def test_a_tensor_beside_chunks_would_lose_its_gradient(pair, name):
    given = {"source": da.from_array(pair[0]), "target": da.from_array(pair[1])}
    with pytest.raises(InvalidTypeError) as caught:
        ma.cmd(**given | {name: torch.tensor(pair[0])})
    assert str(caught.value) == (
        f"{name} is a torch tensor and the other domain is read in chunks, which gives no gradient; give an array, for "
        f"instance {name}.detach().numpy()."
    )


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (da.ones((4, 2)), np.ones((4, 3)), r"^source has 2 columns and target has 3; give both the same features\.$"),
        (da.ones((4, 2)), np.ones((0, 2)), r"^target has no rows; give at least one\.$"),
        (iter([]), np.ones((4, 2)), r"^source has no rows; give at least one\.$"),
        (da.ones((4, 2)), [[1.0, np.nan]], "target holds NaN or infinite values"),
        (da.full((4, 2), np.inf), np.ones((4, 2)), "source holds NaN or infinite values"),
        (da.ones((4, 2)), np.ones(4), "target must be a matrix"),
        (pa.table({"a": ["x"]}), np.ones((4, 1)), "column 'a' of source must hold numbers"),
    ],
)
def test_bad_data_are_named(source, target, words):
    with pytest.raises(InvalidInputError, match=words):
        ma.cmd(source, target)

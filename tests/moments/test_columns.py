import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import torch

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.moments.readers import column_names, refuse_differing_names

FORMS = {
    "frame": lambda frame: frame,
    "dask": lambda frame: dd.from_pandas(frame, npartitions=2),
    "table": pa.table,
    "batch": lambda frame: pa.table(frame).to_batches()[0],
    "reader": lambda frame: pa.table(frame).to_reader(),
    "dataset": lambda frame: ds.dataset(pa.table(frame)),
    "scanner": lambda frame: ds.dataset(pa.table(frame)).scanner(),
}


@pytest.fixture
def frame(rng):
    # A column may be called what a table of PyArrow has.
    return pd.DataFrame({"schema": rng.random(20), "b": rng.random(20) + 1.0})


@pytest.mark.parametrize("form", FORMS)
def test_frames_and_all_of_arrow_have_names(frame, form):
    assert column_names(FORMS[form](frame)) == ("schema", "b")


def test_a_scanner_has_the_names_of_the_columns_that_it_reads(frame):
    assert column_names(ds.dataset(pa.table(frame)).scanner(columns=["b", "schema"])) == ("b", "schema")


@pytest.mark.parametrize(
    "data",
    [
        np.ones((2, 2)),
        torch.ones(2, 2),
        [[1.0, 2.0]],
        iter([]),
        None,
        pd.DataFrame(np.ones((2, 2))),
        pd.DataFrame({"a": [1.0], 7: [2.0]}),
        pd.DataFrame(index=[0, 1]),
        pd.Series([1.0], index=["columns"]),
        pa.chunked_array([[1.0]]),
    ],
)
def test_all_else_has_none(data):
    assert column_names(data) is None


def test_the_first_that_has_names_is_who_the_others_are_held_against(frame):
    swapped = frame[["b", "schema"]]
    refuse_differing_names({"one": np.ones((2, 2)), "two": frame, "three": frame.to_numpy(), "four": frame})
    refuse_differing_names({"one": frame, "two": frame.assign(c=0.0)})
    with pytest.raises(InvalidInputError) as caught:
        refuse_differing_names({"one": np.ones((2, 2)), "two": frame, "three": swapped})
    assert str(caught.value) == (
        "three has the column 'b' where two has 'schema'; give both the same columns in the same order."
    )


@pytest.mark.parametrize("form", FORMS)
def test_moments_refuse_columns_in_another_order(frame, form):
    moments = ma.Moments.of(FORMS[form](frame))
    before = moments.to_dict()
    words = "where the sample of these moments has 'schema'; give both the same columns in the same order"
    swapped = frame[["b", "schema"]]
    with pytest.raises(InvalidInputError, match=f"batch has the column 'b' {words}"):
        moments.update(swapped)
    with pytest.raises(InvalidInputError, match=f"batch has the column 'b' {words}"):
        moments.copy().update(swapped)
    other = ma.Moments.of(FORMS[form](swapped))
    for act in (moments.merge, moments.cmd, lambda other: moments + other):
        with pytest.raises(InvalidInputError, match=f"other has the column 'b' {words}"):
            act(other)
    assert moments.to_dict() == before
    assert moments.update(frame).update(frame.to_numpy()).count == 60


def test_moments_learn_names_from_the_first_who_has_any(frame):
    swapped = frame[["b", "schema"]]
    moments = ma.Moments().update(frame.to_numpy()).merge(ma.Moments().update(frame))
    with pytest.raises(InvalidInputError, match="the sample of these moments has 'schema'"):
        moments.update(swapped)
    with pytest.raises(InvalidInputError, match="data has the column 'b' where the sample of these moments"):
        ma.Moments.of(iter([frame, swapped]))


def test_an_update_that_raises_leaves_no_names(frame):
    moments = ma.Moments()
    with pytest.raises(InvalidInputError, match="NaN"):
        moments.update(frame * np.nan)
    assert moments.update(frame[["b", "schema"]]).count == 20


def test_described_moments_have_no_names(frame):
    read = ma.Moments.from_dict(ma.Moments.of(frame).to_dict())
    assert read.update(frame[["b", "schema"]]).count == 40

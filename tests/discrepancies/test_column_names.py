"""Two samples with names are compared column by column of the same name, or not at all."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import momentalign as ma
from momentalign.errors import InvalidInputError

IN_MEMORY = {
    "cmd": ma.cmd,
    "cmd_terms": ma.cmd_terms,
    "cmd cross=2": lambda source, target: ma.cmd(source, target, cross=2),
    "mmd": ma.mmd,
    "coral": ma.coral,
}
CHUNKED = {
    "dask": lambda frame: dd.from_pandas(frame, npartitions=2),
    "table": pa.table,
    "reader": lambda frame: pa.table(frame).to_reader(),
    "dataset": lambda frame: ds.dataset(pa.table(frame)),
    "scanner": lambda frame: ds.dataset(pa.table(frame)).scanner(),
    "iterator": lambda frame: iter([frame[:9], frame[9:]]),
}
WORDS = "target has the column 'b' where source has 'a'; give both the same columns in the same order."


@pytest.fixture
def frame(rng):
    return pd.DataFrame({"a": rng.random(20), "b": rng.random(20) + 1.0})


def _refused(act, words=WORDS):
    with pytest.raises(InvalidInputError) as caught:
        act()
    assert str(caught.value) == words


@pytest.mark.parametrize("name", IN_MEMORY)
def test_frames_with_columns_in_another_order_are_refused(frame, name):
    distance, swapped = IN_MEMORY[name], frame[["b", "a"]]
    _refused(lambda: distance(frame, swapped))
    _refused(lambda: distance(frame, pa.table(swapped)))
    assert np.sum(distance(frame, frame.copy())) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", IN_MEMORY)
def test_columns_are_taken_by_position_where_one_sample_has_no_names(frame, name):
    distance, swapped = IN_MEMORY[name], frame[["b", "a"]]
    expected = distance(frame.to_numpy(), swapped.to_numpy())
    for unnamed in (swapped.to_numpy(), pd.DataFrame(swapped.to_numpy())):
        np.testing.assert_array_equal(distance(frame, unnamed), expected)


@pytest.mark.parametrize("form", CHUNKED)
def test_chunks_with_columns_in_another_order_are_refused(frame, form):
    read, swapped = CHUNKED[form], frame[["b", "a"]]
    _refused(lambda: ma.cmd(read(frame), read(swapped)))
    _refused(lambda: ma.cmd_terms(frame, read(swapped)))
    assert ma.cmd(read(frame), read(frame)) == 0.0
    assert ma.cmd(read(frame), swapped.to_numpy()) > 1.0


def test_chunks_are_refused_before_they_are_read(frame):
    batches = iter([])
    reader = pa.RecordBatchReader.from_batches(pa.table(frame).schema, batches)
    _refused(lambda: ma.cmd(reader, pa.table(frame[["b", "a"]])))


def test_a_column_of_another_name_is_refused(frame):
    renamed = frame.rename(columns={"b": "c"})
    words = "target has the column 'c' where source has 'b'; give both the same columns in the same order."
    _refused(lambda: ma.cmd(frame, renamed), words)


def test_several_domains_are_held_against_the_first_that_has_names(frame):
    swapped = frame[["b", "a"]]
    words = "targets[0] has the column 'b' where sources[1] has 'a'; give both the same columns in the same order."
    _refused(lambda: ma.multi_domain_cmd([frame.to_numpy(), frame], [swapped]), words)
    words = "sources[1] has the column 'b' where sources[0] has 'a'; give both the same columns in the same order."
    _refused(lambda: ma.multi_domain_cmd([frame, swapped], [frame]), words)
    assert ma.multi_domain_cmd([frame, frame.to_numpy()], [frame]) == 0.0

"""What is read in chunks and in blocks, and the names of its columns."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import torch
from scipy import sparse

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments import readers as chunks
from momentalign.moments.readers import (
    _without_reading_ahead,
    column_names,
    is_dask,
    is_lazy,
    read_blocks,
    read_chunks,
    refuse_differing_names,
)


@pytest.fixture
def table(rng):
    columns = {"a": rng.random(1000), "b": rng.integers(0, 9, 1000), "c": rng.random(1000).astype(np.float32)}
    return pa.table({**columns, "d": rng.random(1000) < 0.5})


@pytest.fixture
def folder(table, tmp_path):
    for number in range(4):
        pq.write_table(table.slice(250 * number, 250), tmp_path / f"part{number}.parquet", row_group_size=100)
    return tmp_path


@pytest.mark.parametrize("form", ["table", "batch", "reader", "dataset", "memory", "scanner"])
def test_everything_of_arrow_has_the_moments_of_its_columns(table, folder, form):
    data = {
        "table": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(max_chunksize=77),
        "dataset": ds.dataset(folder),
        "memory": ds.dataset(table),
        "scanner": ds.dataset(folder).scanner(),
    }[form]
    assert is_lazy(data)
    expected = ma.Moments.of(table.to_pandas().astype(float))
    found = ma.Moments.of(data)
    assert found.count == 1000
    assert found.cmd(expected) == 0.0


def test_no_file_is_read_ahead_of_the_work(table, folder):
    settings = {"batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
    assert _without_reading_ahead(ds.dataset(table)) == settings
    parquet = ds.ParquetFragmentScanOptions(pre_buffer=False)
    assert _without_reading_ahead(ds.dataset(folder)) == {**settings, "fragment_scan_options": parquet}
    pa_csv.write_csv(table, folder / "rows.csv")
    assert _without_reading_ahead(ds.dataset(folder / "rows.csv", format="csv")) == settings


def test_a_dataset_and_a_table_come_in_batches(monkeypatch, table, folder):
    monkeypatch.setattr(chunks, "_BATCH_ROWS", 60)
    for data in (table, ds.dataset(table), ds.dataset(folder)):
        sizes = [len(chunk) for chunk in read_chunks(data)]
        assert (max(sizes), sum(sizes)) == (60, 1000)


def test_a_column_that_cannot_be_read_is_named(table):
    words = table.append_column("e", pa.array(["x"] * 1000))
    with pytest.raises(InvalidTypeError, match="column 'e' of data must hold numbers, got string; leave it out"):
        ma.Moments.of(words)
    with pytest.raises(InvalidTypeError, match="column 'e' of source must hold numbers"):
        ma.Moments()._read(words, "source")
    gaps = table.append_column("e", pa.array([1.0, None] * 500))
    with pytest.raises(InvalidInputError, match="column 'e' of data has missing values; remove or impute"):
        ma.Moments.of(gaps)
    with pytest.raises(
        InvalidTypeError,
        match=r"^data must be a PyArrow table, dataset, scanner or record batch reader, got ChunkedArray; make a table "
        r"of it\.$",
    ):
        list(read_chunks(table["a"]))


def test_a_file_of_arrow_is_no_data_yet(folder):
    file = pq.ParquetFile(folder / "part0.parquet")
    assert is_lazy(file)
    with pytest.raises(InvalidTypeError, match=r"^data must be a PyArrow table, .* got ParquetFile; make a table"):
        ma.Moments.of(file)


class Graph:
    """Of another library that builds on Dask."""

    def __dask_graph__(self):
        return {}


def test_what_is_lazy_and_what_is_not(tmp_path):
    stored = np.memmap(tmp_path / "rows", dtype=np.float32, mode="w+", shape=(3, 2))
    assert is_lazy(stored)
    assert is_lazy(iter([]))
    for data in (np.ones((2, 2)), [[1.0]], pd.DataFrame(), sparse.csr_array((2, 2)), "path", None, Graph()):
        assert not is_lazy(data)
        assert not is_dask(data)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "float16"])
def test_a_memory_map_is_read_where_it_lies(rng, tmp_path, dtype):
    rows = (rng.random((70_000, 3)) * 100).astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    stored = np.load(tmp_path / "rows.npy", mmap_mode="r")
    blocks = [block for _, block in read_blocks(stored, "data")]
    if dtype in ("float32", "float64"):
        assert np.shares_memory(blocks[0], stored)
    else:
        assert len(blocks) > 1
        assert max(len(block) for block in blocks) * 3 <= 2**17
    assert ma.Moments.of(stored).cmd(ma.Moments.of(rows.astype(float)), interval=(0, 100)) == 0.0


@pytest.mark.parametrize(
    ("given", "read"),
    [("float16", "float32"), (">f4", "float32"), ("float32", "float32"), ("int8", "float64"), ("bool", "float64")],
)
def test_a_block_is_no_wider_than_it_must_be(given, read):
    rows = np.asfortranarray(np.ones((3, 2), given))
    ((place, block),) = read_blocks(rows, "data")
    assert (place, block.dtype, block.flags.c_contiguous) == (slice(0, 3), np.dtype(read), True)
    assert block.tolist() == [[1.0, 1.0]] * 3


def test_a_block_comes_with_the_place_of_its_rows(monkeypatch):
    monkeypatch.setattr(chunks, "_STEP", 4)
    frame = pd.DataFrame(np.arange(10.0).reshape(5, 2), index=[9.5, 8.5, 7.5, 6.5, 5.5])
    places, blocks = zip(*read_blocks(frame, "data"), strict=True)
    assert places == (slice(0, 2), slice(2, 4), slice(4, 5))
    assert np.concatenate(blocks).tolist() == frame.values.tolist()
    for whole in (np.ones((5, 2)), sparse.csr_array(np.ones((5, 2)))):
        assert [place for place, _ in read_blocks(whole, "data")] == [slice(0, 5)]


def test_blocks_of_other_widths_are_refused():
    with pytest.raises(InvalidInputError, match="data has 3 columns and the moments have 2"):
        ma.Moments.of(np.ones((4, width)) for width in (2, 3))


def test_no_blocks_are_no_rows():
    assert ma.Moments.of(iter([])).count == 0


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

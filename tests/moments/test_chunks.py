import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.chunks import is_dask, is_lazy, read_blocks


@pytest.fixture
def table(rng):
    columns = {"a": rng.random(1000), "b": rng.integers(0, 9, 1000), "c": rng.random(1000).astype(np.float32)}
    return pa.table({**columns, "d": rng.random(1000) < 0.5})


@pytest.fixture
def folder(table, tmp_path):
    for number in range(4):
        pq.write_table(table.slice(250 * number, 250), tmp_path / f"part{number}.parquet", row_group_size=100)
    return tmp_path


@pytest.mark.parametrize("form", ["table", "batch", "reader", "dataset", "memory"])
def test_everything_of_arrow_has_the_moments_of_its_columns(table, folder, form):
    data = {
        "table": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(max_chunksize=77),
        "dataset": ds.dataset(folder),
        "memory": ds.dataset(table),
    }[form]
    assert is_lazy(data)
    expected = ma.Moments.of(table.to_pandas().astype(float))
    found = ma.Moments.of(data)
    assert found.count == 1000
    assert found.cmd(expected) == 0.0


def test_a_column_that_cannot_be_read_is_named(table):
    words = table.append_column("e", pa.array(["x"] * 1000))
    with pytest.raises(InvalidTypeError, match="column 'e' of data must hold numbers, got string; leave it out"):
        ma.Moments.of(words)
    gaps = table.append_column("e", pa.array([1.0, None] * 500))
    with pytest.raises(InvalidInputError, match="column 'e' of data has missing values; remove or impute"):
        ma.Moments.of(gaps)
    with pytest.raises(
        InvalidTypeError, match="must be a PyArrow table, dataset or record batch reader, got ChunkedArr"
    ):
        ma.Moments.of(table["a"])


def test_what_is_lazy_and_what_is_not(tmp_path):
    stored = np.memmap(tmp_path / "rows", dtype=np.float32, mode="w+", shape=(3, 2))
    assert is_lazy(stored)
    assert is_lazy(iter([]))
    for data in (np.ones((2, 2)), [[1.0]], pd.DataFrame(), sparse.csr_array((2, 2)), "path", None):
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


def test_blocks_of_other_widths_are_refused():
    with pytest.raises(InvalidInputError, match="data has 3 columns and the moments have 2"):
        ma.Moments.of(np.ones((4, width)) for width in (2, 3))


def test_no_blocks_are_no_rows():
    assert ma.Moments.of(iter([])).count == 0

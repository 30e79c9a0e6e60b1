import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.tables.read import read_chunks, read_table

DAY = datetime.datetime(2020, 5, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.parquet"


def test_every_type_is_a_number_a_date_or_text(path):
    table = pa.table(
        {
            "whole": pa.array([1, None], pa.int16()),
            "half": pa.array([0.5, 1.5], pa.float32()),
            "flag": [True, False],
            "price": pa.array([decimal.Decimal("1.25"), None]),
            "nothing": pa.nulls(2),
            "day": pa.array([DAY.date(), None]),
            "moment": pa.array([DAY, None], pa.timestamp("ns", "Europe/Vienna")),
            "word": ["a", None],
            "code": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    pq.write_table(table, path)
    rows = read_table(path).rows
    np.testing.assert_array_equal(rows["whole"], [1.0, np.nan])
    assert rows["half"].dtype == np.float32
    assert rows["flag"].tolist() == [True, False]
    np.testing.assert_array_equal(rows["price"], [1.25, np.nan])
    assert rows["nothing"].dtype == np.float64
    assert rows["day"].iloc[0] == pd.Timestamp("2020-05-01")
    assert rows["moment"].iloc[0] == pd.Timestamp("2020-05-01 12:00")
    assert rows["word"].isna().tolist() == [False, True]
    assert rows["code"].tolist() == ["x", "y"]


def test_kinds_that_are_named(path):
    pq.write_table(pa.table({"n": ["1", "2.5"], "d": ["2020-01-01", None], "t": [1, 2]}), path)
    rows = read_table(path, kinds={"n": "number", "d": "date", "t": "text"}).rows
    assert rows["n"].tolist() == [1.0, 2.5]
    assert rows["d"].iloc[0] == pd.Timestamp("2020-01-01")
    assert rows["t"].tolist() == ["1", "2"]


@pytest.mark.parametrize("rows", [1, 7, 40, 1000])
def test_chunks_are_the_whole_whatever_the_row_groups(path, rng, rows):
    frame = pd.DataFrame(rng.normal(size=(103, 3)), columns=list("abc")).assign(
        y=np.arange(103) % 2, key=np.arange(103)
    )
    frame.to_parquet(path, row_group_size=25)
    whole = read_table(path, label="y", id_column="key")
    chunks = list(read_chunks(path, rows=rows, label="y", id_column="key"))
    assert [len(chunk) for chunk in chunks[:-1]] == [rows] * (len(chunks) - 1)
    pd.testing.assert_frame_equal(pd.concat([chunk.rows for chunk in chunks], ignore_index=True), whole.rows)
    pd.testing.assert_frame_equal(whole.rows, frame[list("abc")])
    np.testing.assert_array_equal(np.concatenate([chunk.labels for chunk in chunks]), whole.labels)
    assert np.concatenate([chunk.ids for chunk in chunks]).tolist() == list(range(103))
    assert whole.ids.dtype == np.int64


def test_the_index_of_pandas_is_no_column(path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    frame[frame["a"] != 2.0].to_parquet(path)
    assert read_table(path).columns == ["a"]


def test_columns_keep_the_order_that_is_asked_for(path):
    pq.write_table(pa.table({"a": [1.0], "b": [2.0], "c": [3.0]}), path)
    rows = read_table(path, columns=["c", "a"]).rows
    assert list(rows.columns) == ["c", "a"]
    assert rows.to_numpy().tolist() == [[3.0, 1.0]]


def test_a_file_without_rows_is_refused_unless_there_are_others(path):
    pq.write_table(pa.table({"a": pa.array([], pa.float64()), "y": pa.array([], pa.string())}), path)
    with pytest.raises(InvalidInputError, match=r"table\.parquet has no rows; give a file with at least one"):
        list(read_chunks(path, label="y"))
    assert list(read_chunks(path, label="y", rows_required=False)) == []
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedFileError, match="not a whole Parquet file"):
        list(read_chunks(path, label="y", rows_required=False))

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from momentalign.errors import DamagedFileError, InvalidInputError
from momentalign.tables.encoders import kind_of
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


@pytest.fixture(params=["parquet", "feather", "jsonl", "jsonl.gz"])
def typed(request, tmp_path):
    """One table in each of the formats that know types."""
    frame = pd.DataFrame(
        {"n": [1, 2, 3], "x": [0.5, None, 2.5], "word": ["a", None, "b"], "day": pd.to_datetime(["2020-01-01"] * 3)}
    ).assign(y=["007", "8", "9"])
    path = tmp_path / f"table.{request.param}"
    if request.param == "parquet":
        frame.to_parquet(path)
    elif request.param == "feather":
        frame.to_feather(path)
    else:
        frame.assign(day="2020-01-01").to_json(path, orient="records", lines=True)
    return path


def test_formats_with_types_hold_the_same_table(typed):
    table = read_table(typed, label="y")
    assert table.labels.tolist() == ["007", "8", "9"]
    assert {name: kind_of(table.rows[name]) for name in table.columns} == {
        "n": "number", "x": "number", "word": "text", "day": "date"
    }  # fmt: skip
    np.testing.assert_array_equal(table.rows["x"], [0.5, np.nan, 2.5])
    assert table.rows["day"].tolist() == [pd.Timestamp("2020-01-01")] * 3
    chunks = list(read_chunks(typed, rows=2, columns=["word", "n"]))
    assert [len(chunk) for chunk in chunks] == [2, 1]
    assert list(chunks[1].rows.columns) == ["word", "n"]


def test_keys_that_an_object_lacks_are_missing_values(tmp_path):
    (tmp_path / "t.json").write_text('{"a": 1, "b": true}\n{"a": 2.5}\n')
    rows = read_table(tmp_path / "t.json").rows
    assert rows["a"].tolist() == [1.0, 2.5]
    assert rows["b"].isna().tolist() == [False, True]


def test_a_workbook_is_a_table(tmp_path):
    pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"n": [1.5, None], "word": ["a", "b"], "y": ["u", "v"]})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    table = read_table(tmp_path / "t.xlsx", label="y")
    pd.testing.assert_frame_equal(table.rows, frame[["n", "word"]], check_dtype=False)
    assert table.labels.tolist() == ["u", "v"]
    assert [len(part) for part in read_chunks(tmp_path / "t.xlsx", rows=1)] == [1, 1]

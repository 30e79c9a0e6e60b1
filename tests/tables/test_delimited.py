import bz2
import codecs
import gc
import gzip
import lzma
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.tables import delimited
from momentalign.tables.encoders import kind_of
from momentalign.tables.read import read_chunks, read_table

NAMES = st.text("abcäöü xyz_1", min_size=1, max_size=6).map(str.strip).filter(lambda name: name[:1].isalpha())
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53) | st.none()
# Words with everything that a delimited file must quote, never one that is read as a number, a date or missing.
WORDS = st.text('ab,;|\t"\n é', min_size=0, max_size=8).map(lambda word: f"w{word}w")


@st.composite
def frames(draw):
    rows = draw(st.integers(1, 12))
    columns = {}
    for name in draw(st.lists(NAMES, min_size=2, max_size=5, unique=True)):
        cells = draw(st.sampled_from([NUMBERS, WORDS]))
        columns[name] = draw(st.lists(cells, min_size=rows, max_size=rows))
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("frames") / "frame.csv"


@settings(max_examples=50)
@given(frame=frames(), delimiter=st.sampled_from(",;\t|"), rows=st.integers(1, 13))
def test_what_pandas_writes_is_read_as_it_was(place, frame, delimiter, rows):
    frame.to_csv(place, sep=delimiter, index=False)
    whole = read_table(place).rows
    assert list(whole.columns) == list(frame.columns)
    for name in frame.columns:
        if whole[name].dtype.kind == "f":
            np.testing.assert_array_equal(whole[name], frame[name].astype(float))
        else:
            assert whole[name].tolist() == frame[name].tolist()
    kinds = {name: "number" if whole[name].dtype.kind == "f" else "text" for name in frame.columns}
    chunks = [chunk.rows for chunk in read_chunks(place, rows=rows, kinds=kinds)]
    assert [len(chunk) for chunk in chunks[:-1]] == [rows] * (len(chunks) - 1)
    pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), whole)


def _csv(folder, text, name="table.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_one_that_splits_all_rows_alike(tmp_path, delimiter):
    lines = [["name", "a", "b"], ['"x, y; z|w"', "1", "2"], ["plain", "3", "4"], ["other", "5", "6"]]
    table = read_table(_csv(tmp_path, "\n".join(delimiter.join(line) for line in lines)))
    assert table.rows["b"].tolist() == [2.0, 4.0, 6.0]
    assert table.rows["name"].iloc[0] == "x, y; z|w"


def test_a_file_of_one_column_needs_no_delimiter(tmp_path):
    assert read_table(_csv(tmp_path, "height\n1.5\n2\n")).rows["height"].tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda content: pa.compress(content, "zstd", asbytes=True)),
        ("", gzip.compress),
    ],
)
def test_compressed_files(tmp_path, suffix, pack):
    path = _csv(tmp_path, pack(b"a,b\n" + b"1,2\n" * 1000), f"table.csv{suffix}")
    assert read_table(path).rows.sum().tolist() == [1000.0, 2000.0]
    assert [len(chunk) for chunk in read_chunks(path, rows=600)] == [600, 400]


@pytest.mark.parametrize("marks", [0, 1, 2])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_marks_and_ends_of_lines(tmp_path, marks, newline):
    path = _csv(tmp_path, codecs.BOM_UTF8 * marks + f"größe,b{newline}1,2{newline}3,4".encode())
    assert read_table(path).rows.to_dict("list") == {"größe": [1.0, 3.0], "b": [2.0, 4.0]}


def test_words_for_missing_values_with_spaces_around(tmp_path):
    path = _csv(tmp_path, "a, b, c\n1, NA, red\n?, 2.5, null\n , -, blue\n")
    rows = read_table(path).rows
    np.testing.assert_array_equal(rows["a"], [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(rows["b"], [np.nan, 2.5, np.nan])
    assert rows["c"].isna().tolist() == [False, True, False]
    assert rows["c"].tolist()[::2] == ["red", "blue"]


def test_kinds(tmp_path):
    text = (
        "flag,day,moment,word,empty\nTrue,2020-02-29,2020-01-01T12:00:00Z,1x,\nfalse,,2020-01-01T13:00:00+01:00,2,NA\n"
    )
    rows = read_table(_csv(tmp_path, text)).rows
    assert rows["flag"].tolist() == [1.0, 0.0]
    assert rows["day"].tolist() == [pd.Timestamp("2020-02-29"), pd.NaT]
    assert rows["moment"].tolist() == [pd.Timestamp("2020-01-01 12:00")] * 2
    assert rows["word"].tolist() == ["1x", "2"]
    assert rows["empty"].isna().all()
    assert rows["empty"].dtype == np.float64


def test_kinds_that_are_named(tmp_path):
    path = _csv(tmp_path, "zip,day\n01067,\n80331,\n")
    rows = read_table(path, kinds={"zip": "text", "day": "date"}).rows
    assert rows["zip"].tolist() == ["01067", "80331"]
    assert rows["day"].isna().all()


def test_a_decimal_comma_is_read_and_said(tmp_path):
    path = _csv(tmp_path, "preis;menge\n1,5;2\n-0,25;3\n")
    with pytest.warns(MomentAlignWarning, match="'preis' has numbers with a decimal comma"):
        assert read_table(path).rows["preis"].tolist() == [1.5, -0.25]
    path = _csv(tmp_path, "".join(f"{row}\n" for row in ["a;b;c;d;e", *["1,5;1,5;1,5;1,5;1,5"] * 9]))
    with pytest.warns(MomentAlignWarning, match="columns 'a', 'b', 'c' and 2 more have numbers with a dec") as caught:
        assert sum(len(part) for part in read_chunks(path, rows=2)) == 9
    assert len(caught) == 1


def test_text_with_commas_is_no_number(tmp_path):
    rows = read_table(_csv(tmp_path, "name;b\nMay, June;2\nJuly;3\n")).rows
    assert rows["name"].tolist() == ["May, June", "July"]


def test_columns_without_a_name_are_left_out_and_said(tmp_path):
    with pytest.warns(MomentAlignWarning, match="column 1, 4 has no name and is left out"):
        table = read_table(_csv(tmp_path, ",a,b,\n0,1,2,\n1,3,4,\n"))
    assert table.columns == ["a", "b"]


def test_a_quote_inside_a_field_is_no_quoted_field(tmp_path):
    rows = read_table(_csv(tmp_path, 'size,b\n5" pipe,1\nplain,2\n')).rows
    assert rows["size"].tolist() == ['5" pipe', "plain"]


def test_a_text_with_many_lines_may_lie_across_blocks(tmp_path):
    review = "a line\n" * 10_000
    path = _csv(tmp_path, "review,b\n" + f'"{review}",1\n' * 200)
    rows = read_table(path).rows
    assert rows["b"].tolist() == [1.0] * 200
    assert set(rows["review"]) == {review.strip()}


def test_labels_and_ids_are_set_apart_as_they_are_written(tmp_path):
    path = _csv(tmp_path, "key,a,y\n007,1,yes\n008,2,no\n009,3,yes\n")
    table = read_table(path, label="y", id_column="key")
    assert table.columns == ["a"]
    assert table.labels.tolist() == ["yes", "no", "yes"]
    assert table.ids.tolist() == ["007", "008", "009"]
    chunks = list(read_chunks(path, rows=2, label="y", id_column="key"))
    assert [chunk.ids.tolist() for chunk in chunks] == [["007", "008"], ["009"]]
    assert [chunk.labels.tolist() for chunk in chunks] == [["yes", "no"], ["yes"]]
    assert [chunk.start for chunk in chunks] == [0, 2]


def test_only_the_columns_that_are_asked_for_are_read(tmp_path):
    path = _csv(tmp_path, "a,b,c,y\n1,2,3,0\n4,5,6,1\n")
    table = read_table(path, columns=["c", "a"], label="y")
    assert table.columns == ["c", "a"]
    assert table.labels.tolist() == [0, 1]


TYPED = {
    "zip": [f"{code:05d}x" if code == 40001 else str(code) for code in range(10001, 90001, 5000)],
    "day": ["2020-01-01", "", *["2020-02-29"] * 14],
    "moment": ["2020-01-01T12:00:00Z"] * 16,
    "not a day": [*["2020-01-01"] * 8, *["soon"] * 8],
    "flag": ["true", "false"] * 8,
    "not a flag": [*["true", "1"] * 8],
    "number": [*[""] * 9, *["1.5"] * 7],
    "price": [*["1"] * 8, *["2,5"] * 8],
}


@pytest.mark.parametrize("rows", [1, 5, 8, 15])
@pytest.mark.filterwarnings("ignore:.*decimal comma")
def test_the_kind_of_a_column_does_not_depend_on_the_chunks(tmp_path, rows):
    path = tmp_path / "typed.csv"
    pd.DataFrame(TYPED).to_csv(path, index=False, sep=";")
    whole = read_table(path).rows
    kinds = {"zip": "text", "day": "date", "moment": "date", "not a day": "text", "flag": "number"}
    assert {name: kind_of(whole[name]) for name in whole} == kinds | {
        "not a flag": "text", "number": "number", "price": "number"
    }  # fmt: skip
    chunks = pd.concat([chunk.rows for chunk in read_chunks(path, rows=rows)], ignore_index=True)
    pd.testing.assert_frame_equal(chunks, whole)


def test_a_wrong_cell_among_numbers_is_named_whatever_the_chunks(tmp_path):
    path = _csv(tmp_path, "a,b\n" + "1,2\n" * 60 + "x,2\n" + "1,2\n" * 60)
    for action in (lambda: read_table(path), lambda: list(read_chunks(path, rows=7))):
        with pytest.raises(InvalidInputError, match="column 'a', row 61 holds 'x' in a column of numbers"):
            action()


def test_names_of_more_than_a_block_of_the_scan_are_all_read(tmp_path):
    names = [f"{'c' * 600}{number}" for number in range(2_000)]
    path = _csv(tmp_path, ",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n")
    assert read_table(path).columns == names


def test_a_wide_table_is_read_in_linear_time(tmp_path):
    """Looking each name up in the list of all would take a thousand million comparisons."""
    width = 30_000
    names = [f"c{column}" for column in range(width)]
    path = _csv(tmp_path, "\n".join(",".join(row) for row in [names, ["1"] * width, ["2"] * width]))
    begun = time.process_time()
    table = read_table(path, label="c7", label_required=False)
    assert time.process_time() - begun < 6
    assert len(table.columns) == width - 1


def test_no_thread_holds_a_file_that_was_refused_or_left(tmp_path, rng):
    """A thread of Arrow that reads ahead while the interpreter shuts down would end the process with an abort."""
    refused, left = tmp_path / "refused.csv.bz2", tmp_path / "left.csv.bz2"  # slow to read, so that it is under way
    rows = "".join(f"{number},1\n" for number in rng.random(150_000))
    refused.write_bytes(bz2.compress(f"a,b\n1,2,3\n{rows}".encode()))
    left.write_bytes(bz2.compress(f"a,b\n{rows}".encode()))
    with pytest.raises(InvalidInputError, match="row 1 has 3 fields"):
        read_table(refused)
    assert not held()
    parts = read_chunks(left, rows=10)
    next(parts)
    assert held()
    parts.close()
    assert not held()


def held():
    return [one for one in gc.get_objects() if type(one) is delimited._Content]

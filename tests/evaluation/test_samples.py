import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignWarning
from momentalign.evaluation.samples import SparseColumns, missing, read_samples
from momentalign.tables.preprocess import Preprocessor

ROWS = 10


def frame(**columns):
    return pd.DataFrame(columns)


def read(column, other=None):
    """One column in both samples: its kind and the source's values."""
    samples = read_samples(frame(a=column), frame(a=column if other is None else other))
    return samples.kinds["a"], samples.pair("a")[0].tolist()


def test_arrays_are_matched_by_position(rng):
    source, target = rng.random((ROWS, 3)), rng.random((12, 3))
    samples = read_samples(source, target)
    assert samples.kinds == {"x0": "number", "x1": "number", "x2": "number"}
    assert (samples.source.rows, samples.target.rows) == (10, 12)
    assert (samples.pair("x1")[1] == target[:, 1]).all()


def test_frames_are_matched_by_name():
    source = frame(a=np.arange(ROWS), b=np.ones(ROWS), old=np.ones(ROWS))
    target = frame(new=np.ones(ROWS), b=np.zeros(ROWS), a=np.arange(ROWS) + 1)
    samples = read_samples(source, target)
    assert list(samples.kinds) == ["a", "b"]
    assert (samples.only_source, samples.only_target) == (["old"], ["new"])
    assert samples.pair("a")[1][0] == 1.0


def test_an_array_beside_a_frame_takes_its_names():
    samples = read_samples(np.zeros((ROWS, 2)), frame(a=np.ones(ROWS), b=np.ones(ROWS)))
    assert list(samples.kinds) == ["a", "b"]


def test_names_of_other_types_are_read_as_words():
    samples = read_samples(pd.DataFrame(np.zeros((ROWS, 2))), pd.DataFrame(np.zeros((ROWS, 2))))
    assert list(samples.kinds) == ["0", "1"]


DAY = datetime.date(1970, 1, 3)
NOON = datetime.datetime(1970, 1, 3, 12)


@pytest.mark.parametrize(
    ("column", "kind", "first"),
    [
        (np.arange(ROWS, dtype=np.int8), "number", 0.0),
        (np.arange(ROWS, dtype=np.float32), "number", 0.0),
        (pd.array([3, None] * 5, dtype="Int64"), "number", 3.0),
        (pd.array([2.5, None] * 5, dtype="Float64"), "number", 2.5),
        (pd.Series([4, None] * 5, dtype=pd.ArrowDtype(pa.int64())), "number", 4.0),
        (pd.Series([1, "x"] * 5, dtype=object), "category", "1"),
        (pd.Series([1, 2.5] * 5, dtype=object), "number", 1.0),
        (pd.Series([decimal.Decimal("1.5"), None] * 5, dtype=object), "number", 1.5),
        (pd.Series([True, None] * 5, dtype=object), "number", 1.0),
        ([True, False] * 5, "number", 1.0),
        (pd.array([True, None] * 5, dtype="boolean"), "number", 1.0),
        (["x", "y"] * 5, "category", "x"),
        (pd.Categorical(["x", None] * 5), "category", "x"),
        (pd.Categorical([7, 8] * 5), "category", "7"),
        (pd.to_datetime(["1970-01-03", None] * 5), "date", 2.0),
        (pd.to_datetime(["1970-01-03T12:00+02:00", None] * 5), "date", 2.0 + 10 / 24),
        (pd.Series([NOON, None] * 5, dtype=pd.ArrowDtype(pa.timestamp("us"))), "date", 2.5),
        (pd.Series([DAY, None] * 5, dtype=object), "date", 2.0),
        (pd.Series([NOON.replace(tzinfo=datetime.UTC), None] * 5, dtype=object), "date", 2.5),
        (pd.to_timedelta(["36h", None] * 5), "number", 1.5),
        (pd.period_range("1970-01", periods=5, freq="M").repeat(2), "category", "1970-01"),
        (pd.arrays.SparseArray([0.0, 1.0] * 5), "number", 0.0),
        (pd.Series([1 + 2j] * 10), "category", "(1+2j)"),
        (pd.Series([[1], [2]] * 5, dtype=object), "category", "[1]"),
    ],
    ids=lambda value: None if isinstance(value, str | float) else str(getattr(value, "dtype", "list")),
)
def test_columns_of_frames_are_numbers_dates_or_categories(column, kind, first):
    found, values = read(column)
    assert (found, values[0]) == (kind, pytest.approx(first) if kind != "category" else first)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1.0, None] * 5),
        pd.array([1, None] * 5, dtype="Int64"),
        pd.array([True, None] * 5, dtype="boolean"),
        pd.Series(["x", None] * 5),
        pd.Series(["x", float("nan")] * 5, dtype=object),
        pd.to_datetime(["1970-01-03", None] * 5),
        pd.Series([DAY, None] * 5, dtype=object),
    ],
    ids=str,
)
def test_missing_values_stay_missing(column):
    samples = read_samples(frame(a=column), frame(a=column))
    assert missing(samples.pair("a")[0]).tolist() == [False, True] * 5


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.full((ROWS, 1), "x"), "category"),
        (np.full((ROWS, 1), "x", dtype=object), "category"),
        (np.full((ROWS, 1), None), "category"),
        (np.full((ROWS, 1), True), "number"),
        (np.full((ROWS, 1), "2020-01-01", dtype="datetime64[s]"), "date"),
        (np.full((ROWS, 1), 5, dtype="timedelta64[h]"), "number"),
        ([[1.0]] * ROWS, "number"),
        (torch.ones(ROWS, 1), "number"),
        (pa.table({"x0": np.ones(ROWS)}), "number"),
    ],
    ids=["words", "objects", "nothing", "booleans", "dates", "durations", "lists", "tensor", "arrow"],
)
def test_arrays_of_any_kind_are_read(array, kind):
    other = np.full((ROWS, 1), "y") if kind == "category" else array
    assert read_samples(array, other).kinds == {"x0": kind}


def test_masked_values_are_missing():
    masked = np.ma.masked_greater(np.arange(float(ROWS))[:, None], 5.0)
    assert missing(read_samples(masked, masked).pair("x0")[0]).sum() == 4


def test_numbers_beside_text_are_read_as_text_but_an_empty_column_as_the_other_side():
    samples = read_samples(
        frame(a=[1.0, None] * 5, b=[1.5, 2.5] * 5, c=[np.nan] * 10),
        frame(a=["1", "?"] * 5, b=[None] * 10, c=[None] * 10),
    )
    assert samples.kinds == {"a": "category", "b": "number"}
    assert (samples.retyped, samples.empty) == (["a"], ["c"])
    assert samples.pair("a")[0].tolist() == ["1", None] * 5
    assert missing(samples.pair("b")[1]).all()


def test_ids_are_set_apart_as_fit_does():
    source, target = (frame(key=[f"{name}{row}" for row in range(ROWS)], a=np.ones(ROWS)) for name in "st")
    samples = read_samples(source, target)
    assert (samples.ids, list(samples.kinds)) == (["key"], ["a"])
    with pytest.warns(MomentAlignWarning, match="looks like an id"):
        assert Preprocessor().fit(source.assign(a=range(ROWS)), X_target=target).columns_ == ["a"]
    assert read_samples(source, target.assign(key="t1")).ids == []


def test_sparse_columns_are_made_dense_one_by_one():
    rows, columns = [0, 0, 3, 9], [1, 1, 0, 2]
    matrix = sparse.csr_array((np.ones(4), (rows, columns)), shape=(ROWS, 3))
    samples = read_samples(matrix, sparse.csc_matrix(np.eye(ROWS, 3)), ["a", "b", "c"])
    assert isinstance(samples.source.columns, SparseColumns)
    assert len(samples.source.columns) == 3
    assert list(samples.source.columns) == ["a", "b", "c"]
    for place, name in enumerate("abc"):
        assert (samples.pair(name)[0] == matrix.toarray()[:, place]).all()
    chosen = np.array([3, 0])
    assert (samples.source.columns.rows(chosen, ["b", "a"]).toarray() == matrix.toarray()[chosen][:, [1, 0]]).all()


def test_the_callers_sparse_matrix_is_left_alone():
    matrix = sparse.csc_array((np.ones(2), np.array([4, 4]), np.array([0, 2])), shape=(ROWS, 1))
    assert read_samples(matrix, np.zeros((ROWS, 1))).pair("x0")[0][4] == 2.0
    assert matrix.nnz == 2


ARRAY = np.zeros((ROWS, 2))
FRAME = pd.DataFrame(ARRAY, columns=["a", "b"])
IDS = pd.DataFrame({"key": [f"C{row}" for row in range(2 * ROWS)]})
WIDE = pd.DataFrame(np.zeros((ROWS, 7)), columns=list("abcdefg"))
REFUSED = {
    "rows": (ARRAY[:7], ARRAY, None, "X_source has 7 rows"),
    "dimensions": (ARRAY, ARRAY[:, 0], None, r"X_target must be a table .* got shape \(10,\)"),
    "columns": (ARRAY, ARRAY[:, :0], None, "X_target must be a table"),
    "widths": (ARRAY, ARRAY[:, :1], None, "X_source has 2 columns and X_target has 1"),
    "names": (FRAME, FRAME.add_prefix("z"), None, "'a', 'b' .* 'za', 'zb'"),
    "many names": (WIDE, FRAME.add_prefix("z"), None, "'a', 'b', 'c', 'd', 'e' and 2 more and"),
    "twice": (FRAME.set_axis(["a", "a"], axis=1), FRAME, None, "X_source has more than one column named 'a'"),
    "named": (FRAME, FRAME, ["a", "b"], "feature_names"),
    "too few": (ARRAY, ARRAY, ["a"], "feature_names must be 2 different names, .* got 1"),
    "same": (ARRAY, ARRAY, ["a", "a"], "feature_names must be 2 different names"),
    "infinite": (FRAME, FRAME + np.inf, None, "column 'a' of X_target holds infinite values"),
    "sparse": (ARRAY, sparse.csr_array(ARRAY + np.inf), None, "X_target holds infinite values"),
    "empty": (ARRAY * np.nan, ARRAY * np.nan, None, r"empty \('x0', 'x1'\)"),
    "ids": (IDS, IDS, None, r"different value in every row \('key'\)"),
}


@pytest.mark.parametrize(("source", "target", "names", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_refused_in_one_sentence(source, target, names, message):
    with pytest.raises(InvalidInputError, match=message):
        read_samples(source, target, names)


@pytest.mark.parametrize(
    "value", [[[1.0], [1.0, 2.0]], np.zeros((ROWS, 1), dtype=complex), torch.ones(9, 1, requires_grad=True)]
)
def test_what_is_no_table_is_refused(value):
    with pytest.raises(InvalidTypeError, match="X_source"):
        read_samples(value, ARRAY)

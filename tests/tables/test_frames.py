"""Frames of other libraries, where they are installed: the same model as of pandas."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.tables.read import read_table


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"spend": random.normal(size=80), "city": random.choice(["Linz", "Wien"], 80)})
    return rows.assign(churn=np.where(rows["spend"] > 0, "yes", "no"))


def polars(frame):
    return pytest.importorskip("polars").from_pandas(frame)


def lazy(frame):
    return polars(frame).lazy()


def hugging_face(frame):
    return pytest.importorskip("datasets").Dataset.from_pandas(frame)


@pytest.mark.parametrize("convert", [pa.Table.from_pandas, polars, lazy, hugging_face])
def test_the_library_of_a_frame_makes_no_difference(frame, convert):
    settings = {"label": "churn", "method": "none", "max_epochs": 5}
    model = ma.fit(convert(frame), convert(frame[["spend", "city"]]), **settings)
    expected = ma.fit(frame, frame[["spend", "city"]], **settings).predict_proba(frame)
    np.testing.assert_array_equal(model.predict_proba(convert(frame)), expected)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"train": None, "test": None}, InvalidTypeError, r"got dict; give one of its parts, the source\['train'\]"),
        ([[1.0]], InvalidTypeError, "the source must be a path or a frame, got list"),
        (pd.DataFrame({"x": [[1, 2], None], "y": [0, 1]}), InvalidInputError, "the source: column 'x' holds values of"),
        (pd.DataFrame({"x": [None, b"a"], "y": [0, 1]}), InvalidInputError, "type bytes, which are no numbers, dates"),
    ],
)
def test_what_is_no_frame_of_numbers_dates_and_text_is_refused(data, error, message):
    with pytest.raises(error, match=message):
        read_table(data, name="the source", label="y")

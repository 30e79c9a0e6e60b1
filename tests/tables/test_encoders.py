import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from momentalign.tables.encoders import (
    CategoryColumn,
    DateColumn,
    NumberColumn,
    column_numbers,
    elapsed_days,
    kind_of,
)


def _written(encoder, column):
    out = np.full((len(encoder.features), len(column)), np.nan, np.float32)
    encoder.write(encoder.read(column), out)
    assert np.isfinite(out).all()
    return out


def test_numbers_far_from_0_keep_their_digits():
    encoder = NumberColumn("a", fill=0.0, centre=1e9, scale=1.0, indicator=False)
    assert _written(encoder, pd.Series([1e9 - 1.5, 1e9 + 0.25])).tolist() == [[-1.5, 0.25]]


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "Int64", "boolean"])
def test_numbers_of_any_type(dtype):
    encoder = NumberColumn("a", fill=0.0, centre=1.0, scale=2.0, indicator=False)
    assert _written(encoder, pd.Series([0, 1, 1], dtype=dtype)).tolist() == [[-0.5, 0.0, 0.0]]


def test_a_missing_number_without_an_indicator_is_filled_in():
    encoder = NumberColumn("a", fill=3.0, centre=1.0, scale=2.0, indicator=False)
    assert _written(encoder, pd.Series([None, 1], dtype="Int64")).tolist() == [[1.0, 0.0]]


DATES = ["1970-01-01", "1969-12-31", "2020-12-31", "2020-02-29", None]


def test_dates():
    encoder = DateColumn("day", fill=10.0, centre=0.0, scale=1.0, indicator=True, hours=False)
    names = ["day:days", "day=missing", "day:year_sin", "day:year_cos", "day:week_sin", "day:week_cos"]
    assert encoder.features == names
    out = dict(zip(names, _written(encoder, pd.Series(pd.to_datetime(DATES))), strict=True))
    assert out["day:days"].tolist() == [0.0, -1.0, 18627.0, 18321.0, 10.0]
    assert out["day=missing"].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    passed = np.array([0, 364, 365, 59])
    np.testing.assert_allclose(out["day:year_sin"][:4], np.sin(2 * np.pi * passed / 366), atol=1e-6)
    np.testing.assert_allclose(out["day:year_cos"][:4], np.cos(2 * np.pi * passed / 366), atol=1e-6)
    weekdays = np.array([pd.Timestamp(date).weekday() for date in DATES[:4]])
    np.testing.assert_allclose(out["day:week_sin"][:4], np.sin(2 * np.pi * weekdays / 7), atol=1e-6)
    np.testing.assert_allclose(out["day:week_cos"][:4], np.cos(2 * np.pi * weekdays / 7), atol=1e-6)
    assert [out[name][4] for name in names[2:]] == [0.0] * 4


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_moments_of_a_day_in_any_unit_and_zone(unit):
    encoder = DateColumn("at", fill=0.0, centre=0.0, scale=1.0, indicator=False, hours=True)
    moments = pd.Series(pd.to_datetime(["1970-01-01 06:00", "1970-01-01 12:00"]).as_unit(unit))
    out = _written(encoder, moments)
    assert encoder.features[-2:] == ["at:day_sin", "at:day_cos"]
    np.testing.assert_allclose(out[-2:], [[1.0, 0.0], [0.0, -1.0]], atol=1e-6)
    assert out[0].tolist() == [0.25, 0.5]
    zoned = moments.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    np.testing.assert_array_equal(_written(encoder, zoned), out)


@pytest.mark.parametrize("dtype", [object, "str", "category"])
def test_categories(dtype):
    encoder = CategoryColumn("c", categories=("a", "b"), indicator=True)
    assert encoder.features == ["c=a", "c=b", "c=missing"]
    out = _written(encoder, pd.Series(["b", None, "z", "a"], dtype=dtype))
    assert out.T.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]


DAY, NOON = datetime.date(1970, 1, 2), datetime.datetime(1970, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        (pd.Series([True, False]), "number", [1, 0]),
        (pd.Series([None, True], dtype="boolean"), "number", [np.nan, 1]),
        (pd.Series([True, None], dtype=object), "number", [1, np.nan]),
        (pd.Series([pd.NA, 2], dtype="Int64"), "number", [np.nan, 2]),
        (pd.Series([Decimal("0.5"), None], dtype=object), "number", [0.5, np.nan]),
        (pd.Series([1, 2.5], dtype=object), "number", [1, 2.5]),
        (pd.to_timedelta(pd.Series(["12h", None])), "number", [0.5, np.nan]),
        (pd.Series([DAY, None], dtype=object), "date", [1, np.nan]),
        (pd.Series([NOON, None], dtype=object), "date", [0.5, np.nan]),
        (pd.Series([NOON, None]), "date", [0.5, np.nan]),
        (pd.Series(["1", "2"]), "text", None),
        (pd.Series([1, 2], dtype="category"), "text", None),
        (pd.Series([1, "x"], dtype=object), "text", None),
        (pd.Series([1j, 2j]), "text", None),
    ],
)
def test_what_a_column_holds(column, kind, values):
    assert kind_of(column) == kind
    if values is not None:
        np.testing.assert_array_equal((column_numbers if kind == "number" else elapsed_days)(column), values)

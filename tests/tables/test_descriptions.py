"""What is no description of ours is refused; every way to spoil one is tried."""

import copy

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momentalign.errors import DamagedFileError
from momentalign.tables.preprocess import Preprocessor

FRAME = pd.DataFrame(
    {
        "a": [1.0, 2.0, None],
        "c": ["x", "y", "x"],
        "d": pd.to_datetime(["2020-01-01", "2020-01-02", "2021-05-03"]),
        "t": ["good plot", "bad plot", "no plot"],
    }
)
COLUMNS = Preprocessor(text="t").fit(FRAME).to_description()
MATRIX = Preprocessor().fit(np.eye(3)).to_description()


def _spoiled(description, path, value):
    spoiled = copy.deepcopy(description)
    *way, last = path
    place = spoiled
    for step in way:
        place = place[step]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return spoiled


NAN = float("nan")
SPOILED = [
    (COLUMNS, ["version"], 2),
    (COLUMNS, ["version"], KeyError),
    (COLUMNS, ["more"], 1),
    (COLUMNS, ["form"], "code"),
    (COLUMNS, ["form"], "sparse"),
    (COLUMNS, ["form"], ["columns"]),
    (COLUMNS, ["width"], 3),
    (COLUMNS, ["columns"], None),
    (COLUMNS, ["columns", 0], "a"),
    (COLUMNS, ["columns", 0, "encoder"], "exec"),
    (COLUMNS, ["columns", 0, "encoder"], ["number"]),
    (COLUMNS, ["columns", 0, "name"], 7),
    (COLUMNS, ["columns", 0, "name"], "c"),
    (COLUMNS, ["columns", 0, "name"], "t"),
    (COLUMNS, ["columns", 0, "fill"], NAN),
    (COLUMNS, ["columns", 0, "fill"], "1.0"),
    (COLUMNS, ["columns", 0, "centre"], float("inf")),
    (COLUMNS, ["columns", 0, "scale"], 0.0),
    (COLUMNS, ["columns", 0, "scale"], -1.0),
    (COLUMNS, ["columns", 0, "scale"], True),
    (COLUMNS, ["columns", 0, "scale"], KeyError),
    (COLUMNS, ["columns", 0, "indicator"], 1),
    (COLUMNS, ["columns", 1, "categories"], "xy"),
    (COLUMNS, ["columns", 1, "categories"], ["x", 1]),
    (COLUMNS, ["columns", 1, "categories"], ["x", "x"]),
    (COLUMNS, ["columns", 2, "hours"], None),
    (COLUMNS, ["text"], None),
    (COLUMNS, ["text"], 5),
    (COLUMNS, ["terms"], None),
    (COLUMNS, ["terms"], []),
    (COLUMNS, ["terms"], ["good", "good"]),
    (COLUMNS, ["notes"], [1]),
    (COLUMNS, ["notes"], "note"),
    (COLUMNS, ["parameters"], None),
    (COLUMNS, ["parameters", "text"], "t"),
    (COLUMNS, ["parameters", "scale"], 1),
    (COLUMNS, ["parameters", "max_categories"], True),
    (MATRIX, ["width"], None),
    (MATRIX, ["width"], -1),
    (MATRIX, ["width"], 3.0),
    (MATRIX, ["form"], "columns"),
    (MATRIX, ["columns"], COLUMNS["columns"]),
    (MATRIX, ["terms"], ["good"]),
]


@pytest.mark.parametrize(("description", "path", "value"), SPOILED, ids=[f"{s[1]}-{s[2]!r:.20}" for s in SPOILED])
def test_a_spoiled_description(description, path, value):
    with pytest.raises(DamagedFileError, match="the description of the preprocessing is invalid"):
        Preprocessor.from_description(_spoiled(description, path, value))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_other_json(description):
    with pytest.raises(DamagedFileError):
        Preprocessor.from_description(description)


@settings(max_examples=25)
@given(st.sampled_from(sorted(COLUMNS)), JSON)
def test_any_other_json_in_any_place_gives_a_preprocessor_that_works_or_none(key, value):
    try:
        fitted = Preprocessor.from_description({**COLUMNS, key: value})
    except DamagedFileError:
        return
    assert fitted.transform(FRAME).shape == (3, len(fitted.get_feature_names_out()))

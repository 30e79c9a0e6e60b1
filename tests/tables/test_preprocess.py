import copy
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from momentalign.errors import DamagedFileError, MomentAlignWarning
from momentalign.tables.preprocess import Preprocessor
from momentalign.tables.table import Table
from momentalign.tables.text import DomainVectorizer


@pytest.fixture
def domains(rng):
    def draw(rows, shift):
        frame = pd.DataFrame({"a": rng.normal(shift, 2.0, rows), "n": rng.integers(0, 9, rows)})
        frame.loc[::7, "a"] = np.nan
        frame["city"] = rng.choice(["Linz", "Graz", "Wien"] if shift else ["Linz", "Graz"], rows)
        frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, rows), unit="D")
        return frame

    return draw(60, 0.0), draw(20_000, 3.0)


def test_columns_in_the_order_of_the_source_whatever_the_order_of_the_target(domains):
    source, target = domains
    fitted = Preprocessor().fit(source, X_target=target[target.columns[::-1]])
    names = fitted.get_feature_names_out().tolist()
    assert names[:6] == ["a", "a=missing", "n", "city=Graz", "city=Linz", "city=Wien"]
    assert fitted.columns_ == ["a", "n", "city", "day"]
    assert fitted.kinds_ == {"a": "number", "n": "number", "city": "text", "day": "date"}
    rows = fitted.transform(target)
    assert rows.shape == (20_000, len(names))
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(fitted.transform(target[target.columns[::-1]]), rows)
    np.testing.assert_array_equal(rows[:, 3:6].sum(axis=1), 1.0)


def test_both_domains_weigh_the_same_however_many_rows_they_have(domains):
    source, target = domains
    fitted = Preprocessor().fit(source, X_target=target)
    (numbers,) = [encoder for encoder in fitted.encoders_ if encoder.name == "a"]
    means = source["a"].mean(), target["a"].mean()
    assert numbers.centre == pytest.approx(np.mean(means))
    assert numbers.fill == pytest.approx((source["a"].median() + target["a"].median()) / 2)
    present = [frame["a"].notna() for frame in domains]
    scaled = [fitted.transform(frame)[here, 0] for frame, here in zip(domains, present, strict=True)]
    assert np.mean([rows.mean() for rows in scaled]) == pytest.approx(0.0, abs=1e-4)
    assert np.mean([np.square(rows).mean() for rows in scaled]) == pytest.approx(1.0, abs=1e-4)
    # The shift is kept, in the common unit.
    assert scaled[1].mean() - scaled[0].mean() == pytest.approx((means[1] - means[0]) / numbers.scale, rel=1e-4)


def test_a_column_that_one_domain_leaves_empty_has_the_kind_of_the_other():
    source = pd.DataFrame(
        {"city": ["Linz", "Graz"], "day": pd.to_datetime(["2020-01-01", "2020-01-05"]), "n": [1.0, 2.0]}
    )
    target = pd.DataFrame(
        {"city": [np.nan, np.nan], "day": [np.nan, np.nan], "n": pd.Series([None, None], dtype=object)}
    )
    fitted = Preprocessor().fit(source, X_target=target)
    assert fitted.kinds_ == {"city": "text", "day": "date", "n": "number"}
    named = dict(zip(fitted.get_feature_names_out(), fitted.transform(target)[0], strict=True))
    assert named["city=missing"] == named["day=missing"] == named["n=missing"] == 1.0
    assert named["city=Graz"] == named["city=Linz"] == named["n"] == 0.0


def test_columns_of_one_domain_are_left_out_and_said():
    source, target = pd.DataFrame({"a": [1.0, 2.0], "old": [1, 2]}), pd.DataFrame({"a": [1.0, 2.0], "new": [1, 2]})
    with pytest.warns(MomentAlignWarning, match="the source lacks 'new' and the target lacks 'old'"):
        fitted = Preprocessor().fit(source, X_target=target)
    assert fitted.columns_ == ["a"]
    assert fitted.notes_ == [
        "columns that one domain lacks are left out: the source lacks 'new' and the target lacks 'old'."
    ]


def test_rows_that_repeat_and_categories_that_only_the_target_has_are_counted():
    source = pd.DataFrame({"a": [1.0, 2.0, 1.0, 1.0, 3.0], "city": ["L", "W", "L", "W", "L"]})
    target = pd.DataFrame({"a": [1.0, 1.0, 2.0], "city": ["G", "G", "S"]})
    fitted = Preprocessor().fit(source, X_target=target)
    assert fitted.notes_[-1].startswith("1 of 5 rows of the source repeat an earlier row")
    assert fitted.unseen_ == {"city": {"G": 2, "S": 1}}
    either = pd.CategoricalDtype(["L", "W", "G", "S", "V"])
    frames = [frame.astype({"city": either}) for frame in (source, target)]
    assert Preprocessor().fit(frames[0], X_target=frames[1]).unseen_ == fitted.unseen_
    assert Preprocessor().fit(source.iloc[1:], X_target=source).notes_ == []


def test_constant_columns_are_left_out_with_a_note():
    frame = pd.DataFrame({"a": [1.0, 2.0], "same": [5, 5], "none": [None, None], "word": ["x", "x"]})
    fitted = Preprocessor().fit(frame, X_target=frame)
    assert fitted.columns_ == ["a"]
    assert len(fitted.notes_) == 3
    assert "column 'same' is the same in every row" in fitted.notes_[0]


def test_a_column_constant_in_each_domain_but_not_in_both_stays():
    fitted = Preprocessor().fit(pd.DataFrame({"a": [1.0, 1.0]}), X_target=pd.DataFrame({"a": [3.0, 3.0]}))
    assert fitted.transform(pd.DataFrame({"a": [1.0, 2.0, 3.0]})).tolist() == [[-1.0], [0.0], [1.0]]


@pytest.mark.parametrize("cells", [[1.0, None, 1.0], ["x", None, "x"], [None, "x", "x"]])
def test_a_constant_that_is_missing_somewhere_stays(cells):
    assert Preprocessor().fit(pd.DataFrame({"a": cells})).columns_ == ["a"]


def test_text_that_differs_in_every_row_is_left_out_and_said():
    frame = pd.DataFrame({"key": [f"k{row}" for row in range(20)], "a": range(20)})
    with pytest.warns(MomentAlignWarning, match="'key' has a different value in every row"):
        assert Preprocessor().fit(frame).columns_ == ["a"]
    assert Preprocessor().fit(frame[:19]).columns_ == ["key", "a"]
    reviews = frame.assign(key=[f"the plot of page {row} is good" for row in range(20)])
    with pytest.warns(MomentAlignWarning, match=r"if it is free text, give text='key' \(--text\)"):
        Preprocessor().fit(reviews)


def test_the_most_frequent_categories_of_both_are_kept_and_said():
    source = pd.DataFrame({"c": ["a"] * 4 + ["b"] * 5 + ["c"]})
    target = pd.DataFrame({"c": ["d"] * 400 + ["a"] * 200 + ["e"] * 400})
    with pytest.warns(MomentAlignWarning, match="'c' has 5 categories; the 3 most frequent are kept"):
        fitted = Preprocessor(max_categories=3).fit(source, X_target=target)
    # By shares a is 0.6, b 0.5, d and e 0.4; in one heap of rows b would be among the last.
    assert fitted.get_feature_names_out().tolist() == ["c=a", "c=b", "c=d"]
    assert fitted.transform(source)[-1].tolist() == [0.0, 0.0, 0.0]


def test_a_text_column_gives_sparse_rows(domains):
    source, target = (frame.assign(review=[f"good plot {row % 5}9"] * len(frame)) for row, frame in enumerate(domains))
    target.loc[0, "review"] = None
    fitted = Preprocessor(text="review", max_terms=3).fit(source, X_target=target)
    rows = fitted.transform(target[:50])
    assert sparse.issparse(rows)
    assert rows.dtype == np.float32
    expected = DomainVectorizer(3).fit([*source["review"], *target["review"].fillna("")])
    terms = [f"review:{term}" for term in expected.get_feature_names_out()]
    assert fitted.get_feature_names_out()[-3:].tolist() == terms
    assert fitted.columns_[-1] == "review"
    assert fitted.kinds_["review"] == "text"
    np.testing.assert_array_equal(
        rows[:, -3:].toarray(), expected.transform(target["review"][:50].fillna("")).toarray()
    )
    without = Preprocessor().fit(source.drop(columns="review"), X_target=target.drop(columns="review"))
    np.testing.assert_array_equal(rows[:, :-3].toarray(), without.transform(target[:50].drop(columns="review")))


def test_a_text_column_may_be_alone():
    frame = pd.DataFrame({"review": ["good plot", "bad plot"]})
    assert Preprocessor(text="review", max_terms=2).fit(frame).transform(frame).shape == (2, 2)


def test_sparse_rows_pass_and_have_the_width_of_the_wider_domain():
    source, target = sparse.csr_matrix(np.eye(3, dtype=np.float32)), sparse.csr_matrix(np.eye(5))
    fitted = Preprocessor().fit(Table(source), X_target=Table(target))
    rows = fitted.transform(source)
    assert rows.shape == (3, 5)
    assert rows.dtype == np.float32
    assert source.shape == (3, 3)
    assert fitted.transform(sparse.csr_matrix(np.eye(9))).toarray()[:, :5].sum() == 5.0
    assert fitted.get_feature_names_out().tolist() == ["0", "1", "2", "3", "4"]
    assert fitted.columns_ == []


def test_arrays_pass():
    rows = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    assert Preprocessor().fit(rows, X_target=rows).transform(rows) is rows


def test_names_that_are_numbers(rng):
    frame = pd.DataFrame(rng.normal(size=(5, 2)))
    fitted = Preprocessor().fit(frame)
    assert fitted.columns_ == ["0", "1"]
    assert fitted.transform(frame).shape == (5, 2)
    assert list(frame.columns) == [0, 1]


def test_before_fit():
    for action in (lambda p: p.transform(np.ones((1, 1))), lambda p: p.to_description(), lambda p: p.columns_):
        with pytest.raises(NotFittedError):
            action(Preprocessor())


def test_parameters_are_those_of_scikit_learn():
    first = Preprocessor(scale=False, max_categories=7, text="t", max_terms=9, strict=True)
    assert clone(first).get_params() == first.get_params()


def test_the_description_gives_back_the_same_rows(domains):
    source, target = (frame.assign(review="good plot") for frame in domains)
    fitted = Preprocessor(text="review", max_categories=2)
    with pytest.warns(MomentAlignWarning, match="3 categories"):
        fitted.fit(source, X_target=target)
    description = json.loads(json.dumps(fitted.to_description(), allow_nan=False))
    again = Preprocessor.from_description(description)
    assert (again.transform(target) != fitted.transform(target)).nnz == 0
    assert again.get_feature_names_out().tolist() == fitted.get_feature_names_out().tolist()
    assert again.notes_ == fitted.notes_
    assert again.get_params() == fitted.get_params()
    assert again.to_description() == description


@pytest.mark.parametrize("rows", [sparse.csr_matrix(np.eye(3)), np.eye(3, dtype=np.float32)])
def test_the_description_of_a_matrix(rows):
    fitted = Preprocessor().fit(rows)
    again = Preprocessor.from_description(json.loads(json.dumps(fitted.to_description())))
    assert abs(again.transform(rows) - rows).sum() == 0.0


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "string", "category", object, "datetime64[us]"])
def test_a_column_may_begin_with_a_gap(dtype):
    cells = ["2020-01-01", "2020-01-02"] if dtype == "datetime64[us]" else [0, 1]
    frame = pd.DataFrame({"a": pd.Series([None, *cells], dtype=dtype)})
    assert Preprocessor().fit(frame).columns_ == ["a"]
    assert Preprocessor().fit(frame, X_target=frame[::-1]).transform(frame).shape[0] == 3


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": ["missing", None, "x"]}),
        pd.DataFrame({"a": [1.0, None, 2.0], "a=missing": [1.0, 2.0, 3.0], "a=missing (2)": [1.0, 2.0, 4.0]}),
        pd.DataFrame({"a": pd.to_datetime(["2020-01-01", "2020-01-02", None]), "a:days": [1.0, 2.0, 3.0]}),
        pd.DataFrame({"a": ["b=c", "d", "d"], "a=b": ["c", "d", "d"]}),
    ],
)
def test_no_two_features_have_one_name(frame):
    fitted = Preprocessor().fit(frame)
    names = fitted.get_feature_names_out().tolist()
    assert len(set(names)) == len(names) == fitted.transform(frame).shape[1]


def test_objects_of_several_types_are_categories_in_any_part_of_them():
    frame = pd.DataFrame({"a": pd.Series([1, "x", 2], dtype=object)})
    fitted = Preprocessor().fit(frame)
    assert fitted.transform(frame[2:]).tolist() == [[0.0, 1.0, 0.0]]


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

"""Real tables, written as users have them: what is read is what was written, and a classifier learns from it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file, load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression

from momentalign import cmd
from momentalign.paper.problems import load_reviews
from momentalign.tables.opening import find_format
from momentalign.tables.preprocess import Preprocessor
from momentalign.tables.read import (
    check_labels,
    convert_labels,
    joint_label_type,
    label_type,
    read_chunks,
    read_table,
)


@pytest.fixture(scope="module")
def reviews():
    return load_reviews()


@pytest.mark.data
def test_reviews_as_svmlight(tmp_path, reviews):
    for name in ("books", "kitchen"):
        rows, labels = reviews.rows[name][:2000], reviews.labels[name][:2000]
        dump_svmlight_file(rows, labels, str(tmp_path / f"{name}.svmlight"))
    source = read_table(tmp_path / "books.svmlight", label="label")
    target = read_table(tmp_path / "kitchen.svmlight", label="label")
    np.testing.assert_array_equal(source.labels, reviews.labels["books"][:2000])
    fitted = Preprocessor().fit(source, X_target=target)
    rows = fitted.transform(target)
    assert (rows != reviews.rows["kitchen"][:2000, : rows.shape[1]]).nnz == 0
    chunks = [fitted.transform(chunk) for chunk in read_chunks(tmp_path / "kitchen.svmlight", rows=300)]
    assert [chunk.shape for chunk in chunks] == [(300, rows.shape[1])] * 6 + [(200, rows.shape[1])]
    model = LogisticRegression(C=0.01).fit(fitted.transform(source), source.labels)
    assert model.score(rows, target.labels) > 0.7


@pytest.mark.data
def test_the_most_frequent_words_of_reviews_as_csv(tmp_path, reviews):
    order = np.argsort(-np.asarray(reviews.rows["books"].sum(axis=0)).ravel(), kind="stable")[:200]
    words = [reviews.vocabulary[column] for column in order]
    for name in ("books", "kitchen"):
        frame = pd.DataFrame(reviews.rows[name][:2000][:, order].toarray(), columns=words)
        frame.assign(**{"the label": np.where(reviews.labels[name][:2000], "good", "bad")}).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    source = read_table(tmp_path / "books.csv", label="the label")
    target = read_table(tmp_path / "kitchen.csv", label="the label")
    assert source.columns == words
    np.testing.assert_array_equal(target.rows, reviews.rows["kitchen"][:2000][:, order].toarray())
    fitted = Preprocessor().fit(source, X_target=target)
    model = LogisticRegression(max_iter=300).fit(fitted.transform(source), source.labels)
    assert model.score(fitted.transform(target), target.labels) > 0.65


@pytest.mark.parametrize(("load", "by"), [(load_wine, "magnesium"), (load_breast_cancer, "mean smoothness")])
def test_two_domains_split_by_a_measurement(tmp_path, load, by):
    frame = load(as_frame=True).frame
    low = frame[by] < frame[by].median()
    frame[low].to_csv(tmp_path / "source.csv.gz", index=False)
    frame[~low].to_parquet(tmp_path / "target.parquet")
    source = read_table(tmp_path / "source.csv.gz", label="target")
    target = read_table(tmp_path / "target.parquet", label="target")
    np.testing.assert_array_equal(source.rows, frame[low].drop(columns="target"))
    np.testing.assert_array_equal(target.rows, frame[~low].drop(columns="target"))
    fitted = Preprocessor().fit(source, X_target=target)
    rows, others = fitted.transform(source), fitted.transform(target)
    streamed = [
        fitted.transform(chunk)
        for chunk in read_chunks(tmp_path / "target.parquet", rows=50, columns=fitted.columns_, kinds=fitted.kinds_)
    ]
    np.testing.assert_array_equal(np.vstack(streamed), others)
    # The common scale keeps the shift: the domains differ more than the halves of one.
    interval = float(min(rows.min(), others.min())), float(max(rows.max(), others.max()))
    assert cmd(rows, others, interval=interval) > 1.5 * cmd(rows[::2], rows[1::2], interval=interval)
    model = LogisticRegression(max_iter=1000).fit(rows, source.labels)
    assert model.score(others, target.labels) > 0.85


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "-2", "0"], [1, -2, 0]),
        (["1.5", "2", "1e3"], [1.5, 2.0, 1000.0]),
        (["0.5", "1"], [0.5, 1.0]),
        (["007", "008"], ["007", "008"]),
        (["1", "one"], ["1", "one"]),
        (["cat", "dog"], ["cat", "dog"]),
        (["9" * 30, "1"], ["9" * 30, "1"]),
        (["1_0", "10"], ["1_0", "10"]),
        (["1e999", "2e999"], ["1e999", "2e999"]),
        (["0.1", "0.10000000000000000001"], ["0.1", "0.10000000000000000001"]),
        (["0.1", "0.10"], [0.1, 0.1]),
    ],
)
def test_classes_stay_what_is_written(cells, expected):
    cells = np.array(cells, dtype=object)
    labels = convert_labels(cells, label_type(cells))
    assert labels.tolist() == expected
    assert [type(label) for label in labels.tolist()] == [type(label) for label in expected]


@pytest.mark.parametrize(("first", "second"), [(["1", "2"], ["01"]), (["1"], ["x"]), (["1"], ["2.5"]), (["1"], ["2"])])
def test_the_type_of_a_column_is_that_of_its_parts_together(first, second):
    parts = [np.array(cells, dtype=object) for cells in (first, second, first + second)]
    types = [label_type(part) for part in parts]
    assert joint_label_type(types[:2]) == types[2]


@pytest.mark.parametrize("labels", [np.array([True, False]), np.array([3, 4]), np.array([0.5, 1.0])])
def test_numbers_of_a_file_with_types_stay_as_they_are(labels):
    assert check_labels(convert_labels(labels, label_type(labels)), "y", "table.csv") is labels


@pytest.mark.parametrize("labels", [np.array(["1", "2.5"], dtype=object), np.array([1, 2]), np.array([True, False])])
def test_numbers_to_predict_are_float64(labels):
    numbers = check_labels(labels, "y", "table.csv", regression=True)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [float(label) for label in labels]


def test_a_label_that_is_not_required(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n1,0\n2,\n")
    table = read_table(tmp_path / "a.csv", label="y", label_required=False)
    assert table.labels.tolist()[0] == "0"
    assert table.columns == ["a"]
    assert read_table(tmp_path / "a.csv", label="z", label_required=False).labels is None


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        ("a,b\n1,2\n", "table.txt", "csv"),
        ("when\nMon 12:30\n", "table.txt", "csv"),
        ("1\n0 3:1\n", "table.txt", "svmlight"),
        ("1\n2\n", "table.txt", "csv"),
        ("time,b\n12:30,2\n", "table.txt", "csv"),
        ("time\n12:30\n", "table.csv", "csv"),
        ("# made by hand\n1 1:2\n-1 3:4 7:1e-3\n", "table.txt", "svmlight"),
        ("1\n", "table.svmlight", "svmlight"),
        ("1 1:2\n", "table.LIBSVM", "svmlight"),
    ],
)
def test_text(tmp_path, content, name, expected):
    (tmp_path / name).write_text(content)
    assert find_format(tmp_path / name) == expected


def test_a_folder_holds_images(tmp_path):
    assert find_format(tmp_path) == "images"

from pathlib import Path

import numpy as np
import pytest

from momentalign.tables.labels import check_labels, convert_labels, joint_label_type, label_type
from momentalign.tables.read import read_table

PLACE = Path("table.csv")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "-2", "0"], [1, -2, 0]),
        (["1.5", "2", "1e3"], [1.5, 2.0, 1000.0]),
        (["0.5", "1"], [0.5, 1.0]),
        (["007", "008"], ["007", "008"]),
        (["1", "one"], ["1", "one"]),
        (["cat", "dog"], ["cat", "dog"]),
        (["9" * 30, "1"], [1e30, 1.0]),
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
    assert check_labels(convert_labels(labels, label_type(labels)), "y", PLACE) is labels


@pytest.mark.parametrize("labels", [np.array(["1", "2.5"], dtype=object), np.array([1, 2]), np.array([True, False])])
def test_numbers_to_predict_are_float64(labels):
    numbers = check_labels(labels, "y", PLACE, regression=True)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [float(label) for label in labels]


def test_a_label_that_is_not_required(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n1,0\n2,\n")
    table = read_table(tmp_path / "a.csv", label="y", label_required=False)
    assert table.labels.tolist()[0] == "0"
    assert table.columns == ["a"]
    assert read_table(tmp_path / "a.csv", label="z", label_required=False).labels is None

"""Labels: classes and numbers, read, coded, held out and turned back, whole or in chunks."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.labels import (
    BLOCK,
    ClassLabels,
    ContinuousLabels,
    fitted_scale,
    read_values,
    refuse_missing,
)

KINDS = {
    "list": [1, 2.5],
    "float32": np.array([1.0, 2.5], np.float32),
    "series": pd.Series([1.0, 2.5], index=[7, 3]),
    "nullable series": pd.Series([1.0, 2.5], dtype="Float64"),
    "objects": np.array([Decimal(1), 2.5], dtype=object),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_any_kind_are_numbers(kind):
    values = read_values(KINDS[kind], "y")
    assert values.dtype == np.float64
    assert values.tolist() == [1.0, 2.5]


def test_rows_of_several_numbers_stay_rows():
    for values in ([[1, 2], [3, 4], [5, 6]], pd.DataFrame({"a": [1, 3, 5], "b": [2, 4, 6]})):
        assert read_values(values, "y").tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_none_is_an_unknown_number():
    np.testing.assert_array_equal(read_values([1.5, None, np.nan], "y_target"), [1.5, np.nan, np.nan])


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["left", "right"], "'left'"),
        (["1.5", "2.5"], "'1.5'"),
        ([b"a", b"b"], "b'a'"),
        (np.array([1.0, "two"], dtype=object), "'two'"),
        (np.array([datetime.date(2020, 1, 2), None], dtype=object), r"datetime.date\(2020, 1, 2\)"),
        (np.array(["2020-01-02"], dtype="M8[D]"), r"datetime.date\(2020, 1, 2\)"),
        (np.array([1.0, pd.NA], dtype=object), "<NA>"),
        (np.array([10**400], dtype=object), "10000"),
        ([["word " * 100]], r"'word word .*\.\.\..*'"),
    ],
)
def test_what_is_no_number_is_shown_in_one_line(values, shown):
    with pytest.raises(
        InvalidTypeError, match=rf"^y holds {shown}.*, a regressor learns numbers; use MANNClassifier"
    ) as e:
        read_values(values, "y")
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 120


@pytest.mark.parametrize(
    "values", [3.0, [], np.zeros((3, 0)), np.zeros((2, 2, 2)), "text", sparse.eye(3, format="csr")]
)
def test_shapes_that_are_no_rows_are_named(values):
    with pytest.raises(InvalidInputError, match=r"y must hold one or several numbers per row, .* got shape \("):
        read_values(values, "y")


def test_rows_of_different_lengths_are_named():
    with pytest.raises(InvalidInputError, match=r"^y_target: .*inhomogeneous"):
        read_values([[1.0, 2.0], [3.0]], "y_target")


def test_complex_numbers_are_refused():
    with pytest.raises(InvalidInputError, match=r"^y: Complex data not supported; give real and imaginary parts"):
        read_values([1 + 2j, 3.0], "y")


@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3)])
def test_standardised_values_have_mean_zero_and_deviation_one_and_come_back(shape):
    values = np.random.default_rng(0).normal(5.0, 3.0, size=shape)
    scale = fitted_scale(values)
    standard = scale.standardise(values)
    assert scale.mean.shape == scale.standard_deviation.shape == shape[1:]
    assert standard.shape == (50, values.size // 50)
    np.testing.assert_allclose(standard.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(standard.std(axis=0), 1.0, rtol=1e-12)
    back = scale.restore(standard)
    assert back.shape == shape
    np.testing.assert_allclose(back, values, rtol=1e-12)


def test_a_constant_comes_back_to_the_last_digit_whatever_the_outputs_are():
    values = np.full((3, 2), 0.1)  # the mean of three is 0.10000000000000002
    values[:, 1] = [1.0, 2.0, 3.0]
    scale = fitted_scale(values)
    assert scale.standardise(values)[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert scale.restore(np.full((3, 2), 9.0))[:, 0].tolist() == [0.1, 0.1, 0.1]


def test_values_whose_deviation_leaves_float64_are_refused():
    with pytest.raises(
        InvalidInputError, match=r"y holds 1e\+300, too large to take a standard deviation of; scale y first"
    ):
        fitted_scale(np.array([1e300, -1e300]))


def _noted(parts):
    labels = ContinuousLabels()
    for part in parts:
        labels.note(labels.read(part))
    labels.finish()
    return labels


@pytest.mark.parametrize("shape", [(1000,), (1000, 3), (2 * BLOCK + 999,)])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_scales_of_chunks_are_merged_to_that_of_all(shape, offset):
    values = np.random.default_rng(0).normal(size=shape) * 3.0 + offset
    labels = _noted(np.split(values, [1, 20, 700]))
    expected = fitted_scale(values)
    np.testing.assert_allclose(labels.scale.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(labels.scale.standard_deviation, expected.standard_deviation, rtol=1e-9)
    assert labels.coded(values).dtype == np.float32
    assert labels.coded(values).shape == (shape[0], values.size // shape[0])


@pytest.mark.parametrize("columns", [1, 3])
def test_the_size_of_chunks_changes_no_bit_of_a_scale(columns):
    values = np.random.default_rng(0).normal(size=(3 * BLOCK - 7, columns)) + 5.0
    expected = _noted([values]).scale
    for cuts in ([BLOCK], [1, 20, 700, BLOCK + 1], range(0, len(values), 999)):
        for part in (values, np.asfortranarray(values)):
            scale = _noted(chunk for chunk in np.split(part, cuts) if len(chunk)).scale
            np.testing.assert_array_equal(scale.mean, expected.mean)
            np.testing.assert_array_equal(scale.standard_deviation, expected.standard_deviation)


def test_a_constant_stays_one_to_the_last_bit():
    labels = _noted(np.full(rows, 0.1) for rows in (7, 11, BLOCK))
    assert (labels.scale.mean, labels.scale.standard_deviation) == (0.1, 0.0)


@pytest.mark.parametrize(
    "chunks",
    [
        [[3, 1], [2]],
        [[True, False], [True]],
        [[1.0, 2.0], [3, 1]],
        [["b", "a"], np.array(["long name", "a"], dtype=object)],
    ],
)
def test_classes_are_those_of_all_chunks_together(chunks):
    labels = ClassLabels()
    for chunk in chunks:
        labels.note(labels.read(chunk))
    labels.finish()
    every = [label for chunk in chunks for label in chunk]
    assert labels.classes.tolist() == sorted(set(every))
    for chunk in chunks:
        assert [labels.classes[code] for code in labels.coded(labels.read(chunk))] == list(chunk)


@pytest.mark.parametrize(
    ("labels", "row", "shown"),
    [
        ([0.0, 1.0, np.nan, np.nan], 3, r"missing \(nan\)"),
        ([0.0, np.inf], 2, r"not finite \(inf\)"),
        (["a", "b", None], 3, r"missing \(None\)"),
        (np.array(["a", np.nan], dtype=object), 2, r"missing \(nan\)"),
        (pd.Series(["a", "b", None], dtype="string"), 3, r"missing \(<NA>\)"),
        (pd.Series([None, "a"], dtype="category"), 1, r"missing \(nan\)"),
        (pd.Series([1, None], dtype="Int64"), 2, r"missing \(nan\)"),
    ],
)
def test_a_label_that_is_missing_is_named_by_its_row(labels, row, shown):
    with pytest.raises(InvalidInputError, match=rf"^the label of row {row} is {shown}; fill it in or leave the row"):
        refuse_missing(ClassLabels().read(labels))


@pytest.mark.parametrize(
    ("values", "row", "shown"),
    [
        ([0.0, None, np.nan], 2, "missing"),
        ([[1.0, 2.0], [3.0, 4.0], [5.0, np.nan]], 3, "missing"),
        (np.asfortranarray([[1.0, 2.0], [-np.inf, 4.0]]), 2, "not finite"),
    ],
)
def test_a_number_that_is_missing_is_named_by_its_row(values, row, shown):
    with pytest.raises(InvalidInputError, match=rf"^the label of row {row} is {shown} \(.*; fill it in"):
        refuse_missing(ContinuousLabels().read(values))


@pytest.mark.parametrize(("rows", "fraction", "held_out"), [(10, 0.3, 3), (4, 0.3, 2), (3, 0.3, 0), (10, 0.0, 0)])
def test_numbers_are_held_out_where_both_parts_have_two(rows, fraction, held_out):
    training, validation = ContinuousLabels().hold_out(np.zeros((rows, 1)), fraction, 0)
    assert (0 if validation is None else len(validation)) == held_out
    every = np.concatenate([training, [] if validation is None else validation])
    assert sorted(every.tolist()) == list(range(rows)) != training.tolist()

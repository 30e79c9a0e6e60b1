import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.labels import fitted_scale, read_values

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
    assert scale.mean.shape == scale.deviation.shape == shape[1:]
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
    with pytest.raises(InvalidInputError, match=r"y holds 1e\+300, too large to take a deviation of; scale y first"):
        fitted_scale(np.array([1e300, -1e300]))

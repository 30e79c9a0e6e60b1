import numpy as np
import pandas as pd
import pytest

from momentalign.errors import InvalidInputError
from momentalign.estimators.labels import BLOCK, ClassLabels, NumberLabels, fitted_scale


def _noted(parts):
    labels = NumberLabels()
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
    np.testing.assert_allclose(labels.scale.deviation, expected.deviation, rtol=1e-9)
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
            np.testing.assert_array_equal(scale.deviation, expected.deviation)


def test_a_constant_stays_one_to_the_last_bit():
    labels = _noted(np.full(rows, 0.1) for rows in (7, 11, BLOCK))
    assert (labels.scale.mean, labels.scale.deviation) == (0.1, 0.0)


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
        ClassLabels().read(labels)


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
        NumberLabels().read(values)

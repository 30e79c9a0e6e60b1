import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.monitoring.window import read_names, read_rows
from momentalign.validation import check_generator

NAMES = ("a", "b")
VALUES = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])


@pytest.mark.parametrize(
    "form", [np.asarray, sparse.csr_matrix, torch.tensor, pd.DataFrame, lambda values: values.astype(int).tolist()]
)
def test_every_kind_of_rows_comes_dense_in_blocks(form):
    rows = read_rows(form(VALUES), "batch")
    assert (rows.count, rows.width) == (3, 2)
    np.testing.assert_array_equal(np.vstack(list(rows.blocks(NAMES))), VALUES)
    some = rows.some(2, np.random.default_rng(0), NAMES)
    assert some.dtype == np.float64
    assert all(row in VALUES.tolist() for row in some.tolist())
    assert len(some) == 2
    np.testing.assert_array_equal(rows.some(3, np.random.default_rng(0), NAMES), VALUES)


def test_a_long_sparse_matrix_is_dense_in_parts():
    rows = read_rows(sparse.random(3000, 4, 0.1, format="csr", random_state=0), "batch")
    assert [len(block) for block in rows.blocks("abcd")] == [1024, 1024, 952]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, pd.DataFrame])
def test_a_spoiled_feature_is_named(value, form):
    spoiled = VALUES.copy()
    spoiled[1, 1] = value
    with pytest.raises(InvalidInputError, match="batch holds NaN or infinite values in feature 'b'; remove or impute"):
        list(read_rows(form(spoiled), "batch").blocks(NAMES))


def test_huge_values_are_no_missing_ones():
    assert len(list(read_rows(np.full((2, 2), 1e308), "batch").blocks(NAMES))) == 1


def test_names_are_given_or_those_of_the_columns_or_numbers():
    frame = read_rows(pd.DataFrame(VALUES, columns=["p", 7]), "reference")
    assert read_names(None, frame) == ("p", "7")
    assert read_names(["u", "v"], frame) == ("u", "v")
    with pytest.raises(InvalidInputError, match="feature_names has 1 names for 2 columns of reference"):
        read_names(["u"], frame)
    for wrong in ("uv", [1, 2]):
        with pytest.raises(InvalidTypeError, match="feature_names must be a list of strings"):
            read_names(wrong, frame)


def test_other_features_are_refused():
    with pytest.raises(InvalidInputError, match="batch has 2 columns and the reference has 3; give the same"):
        read_rows(VALUES, "batch").check_features("abc")
    swapped = read_rows(pd.DataFrame(VALUES, columns=["b", "a"]), "batch")
    with pytest.raises(InvalidInputError, match="batch has the column 'b' where the reference has 'a'; give both"):
        swapped.check_features(NAMES)
    read_rows(pd.DataFrame(VALUES, columns=["a", "b"]), "batch").check_features(NAMES)


@pytest.mark.parametrize("wrong", ["x", -1, 1.5, True])
def test_what_cannot_be_drawn_with_is_refused(wrong):
    with pytest.raises(InvalidTypeError) as caught:
        check_generator(wrong)
    assert str(caught.value) == (
        f"random_state must be a whole number of at least 0, a Generator or None, got {wrong!r}; try random_state=0."
    )


def test_a_generator_is_drawn_with_as_it_is():
    random = np.random.default_rng(3)
    assert check_generator(random) is random
    assert check_generator(np.int64(3)).random() == random.random()
    assert check_generator(None).random() != check_generator(None).random()

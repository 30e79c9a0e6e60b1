"""Bad chunks: the error names the domain, the chunk and the row."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError

X = np.random.default_rng(0).normal(size=(30, 4))
Y = np.arange(30) % 2


def _bad(row, column, value, kind=np.asarray):
    rows = X.copy()
    rows[row, column] = value
    return kind(rows)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, pd.DataFrame])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(quick, value, kind):
    message = rf"chunk 2: row 6 \(row 36 of all\) holds {value} in column 3; fill it in"
    with pytest.raises(InvalidInputError, match=rf"^source, {message}"):
        quick().fit_chunks([(kind(X), Y), (_bad(5, 2, value, kind), Y)])
    with pytest.raises(InvalidInputError, match=rf"^target, {message}"):
        quick().fit_chunks([(X, Y)], [X, _bad(5, 2, value)])


def test_values_that_float32_cannot_hold(quick):
    with pytest.raises(InvalidInputError, match=r"^source, chunk 2: X holds values too large for float32"):
        quick().fit_chunks([(X, Y), (_bad(5, 2, 1e39), Y)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ((X[:, :3], Y), r"X has 3 features, but MANNClassifier is expecting 4"),
        ((X[0], Y), r"Expected 2D array"),
        ((X, Y[:29]), r"inconsistent numbers of samples: \[30, 29\]"),
        ((X, None), r"y"),
        ((X, np.where(Y, np.nan, 1.0)), r"the label of row 2 is missing \(nan\); fill it in or leave the row out"),
        ((X, np.where(Y, None, "a")), r"the label of row 2 is missing \(None\)"),
        ((X, X[:, 0]), r"y: Unknown label type"),
        ((X, Y.astype(str)), r"labels such as '0' of <U21, the classes \(0, 1\) are of int64"),
        (([["a"] * 4], [0]), r"could not convert string to float"),
    ],
)
def test_chunks_that_do_not_belong_to_the_others(quick, content, message):
    with pytest.raises(InvalidInputError, match=rf"^source, chunk 2: .*{message}"):
        quick().fit_chunks([(X, Y), content])


@pytest.mark.parametrize("content", [X, (X,), (X, Y, Y), "Xy"])
def test_a_source_chunk_is_a_pair(quick, content):
    with pytest.raises(InvalidTypeError, match=r"^source, chunk 2 must be a pair \(X, y\), got "):
        quick().fit_chunks([(X, Y), content])


def test_a_target_chunk_is_none(quick):
    with pytest.raises(InvalidTypeError, match=r"^target, chunk 1: X must be an array.*got a tuple"):
        quick().fit_chunks([(X, Y)], [(X, Y)])
    with pytest.raises(InvalidInputError, match=r"^target, chunk 2: X has 3 features"):
        quick().fit_chunks([(X, Y)], [X, X[:, :3]])


def test_what_can_be_read_once_only(quick):
    for once in (((X, Y) for _ in range(3)), iter([(X, Y)])):
        with pytest.raises(InvalidTypeError, match=r"^source is a .*iterator|^source is a generator.*__iter__"):
            quick().fit_chunks(once)
    with pytest.raises(InvalidTypeError, match=r"target is a generator, which can be read once only.*list of X"):
        quick().fit_chunks([(X, Y)], (X for _ in range(3)))
    for wrong in (5, "rows.npy", {"X": X}):
        with pytest.raises(InvalidTypeError, match=r"^source must yield chunks \(X, y\), got "):
            quick().fit_chunks(wrong)


class Shrinking:
    """Yields fewer chunks whenever it is read again."""

    def __init__(self, *chunks):
        self._chunks = list(chunks)

    def __iter__(self):
        yield from self._chunks
        self._chunks = self._chunks[:-1]


def test_chunks_that_change_between_readings(quick):
    with pytest.raises(InvalidInputError, match=r"source had 60 rows when it was first read and has 30 now"):
        quick().fit_chunks(Shrinking((X, Y), (X, Y)))
    with pytest.raises(InvalidInputError, match=r"target has 0 rows; a distribution needs at least 2"):
        quick().fit_chunks([(X, Y)], Shrinking(X))


class Changing:
    """Yields the chunks of another list whenever it is read again; the last one is for good."""

    def __init__(self, *readings):
        self._readings = list(readings)

    def __iter__(self):
        yield from self._readings[0]
        self._readings = self._readings[1:] or self._readings


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, pd.DataFrame])
def test_other_rows_in_a_later_reading(quick, kind):
    others = r"had 30 rows when it was first read and has others now, or the same in another order; give chunks"
    same, other = (kind(X), Y), (kind(_bad(29, 3, 7.0)), Y)
    for wrong in (other, (kind(X[::-1]), Y), (kind(X), 1 - Y), (kind(X), np.where(np.arange(30) == 29, 1 - Y, Y))):
        for readings in (([same], [wrong]), ([same], [same], [wrong])):
            with pytest.raises(InvalidInputError, match=rf"^source {others}"):
                quick().fit_chunks(Changing(*readings))
    with pytest.raises(InvalidInputError, match=rf"^target {others}"):
        quick().fit_chunks([same], Changing([same[0]], [other[0]]))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, pd.DataFrame])
def test_the_same_rows_in_other_chunks_are_fine(quick, kind, assert_same_weights):
    names = np.where(Y, "longer", "a")
    whole, cut = [(kind(X), names)], [(kind(X[:1]), names[:1].tolist()), (kind(X[1:]), names[1:].astype(object))]
    model = quick().fit_chunks(Changing(whole, cut, whole), Changing([kind(X)], [kind(X[:9]), kind(X[9:])]))
    assert_same_weights(model, quick().fit_chunks(whole, [kind(X)]))


def test_too_few_rows_or_classes(quick):
    for source in ([], [(X[:0], Y[:0])], [(X[:1], Y[:1])]):
        with pytest.raises(InvalidInputError, match=r"source has [01] rows; a distribution needs at least 2"):
            quick().fit_chunks(source)
    with pytest.raises(InvalidInputError, match=r"^source: y has one class only \(1\); a classifier needs"):
        quick().fit_chunks([(X, np.ones(30, int))])


def test_empty_chunks_and_lists_are_fine(quick, assert_same_weights):
    chunks = [[X[:0], Y[:0]], [X[:20].tolist(), Y[:20].tolist()], [X[:0], []], [X[20:], Y[20:]]]
    assert_same_weights(quick().fit_chunks(chunks, [X[:0], X]), quick().fit_chunks([(X, Y)], [X]))


def test_numbers(quick):
    model = ma.MANNRegressor(hidden=(5,), max_epochs=2, batch_size=10, random_state=0)
    y = X.sum(axis=1)
    for wrong, message in [
        (np.where(Y, np.nan, y), r"the label of row 2 is missing \(nan\)"),
        (y[:, None], r"y has the shape \(30, 1\), 1 numbers per row came before"),
        (y.astype(str), "a regressor learns numbers"),
    ]:
        with pytest.raises(InvalidInputError, match=rf"^source, chunk 2: .*{message}"):
            model.fit_chunks([(X, y), (X, wrong)])
    with pytest.raises(InvalidInputError, match=r"^source: y holds 1e\+300, too large to take a standard deviation of"):
        model.fit_chunks([(X, y), (X, np.full(30, 1e300))])
    assert not [name for name in vars(model) if name.endswith("_")]

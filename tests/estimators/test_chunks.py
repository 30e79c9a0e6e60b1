"""Chunks as an estimator reads them: what is refused, the checksum of a reading, and rows held out by lot."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.chunks import HeldOut, checksums, lots

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


class Changing:
    """Yields the chunks of another list whenever it is read again; the last one is for good."""

    def __init__(self, *readings):
        self._readings = list(readings)

    def __iter__(self):
        yield from self._readings[0]
        self._readings = self._readings[1:] or self._readings


def test_chunks_that_change_between_readings(quick):
    with pytest.raises(InvalidInputError, match=r"source had 60 rows when it was first read and has 30 now"):
        quick().fit_chunks(Changing([(X, Y), (X, Y)], [(X, Y)]))
    with pytest.raises(InvalidInputError, match=r"target has 0 rows; a distribution needs at least 2"):
        quick().fit_chunks([(X, Y)], Changing([X], []))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, pd.DataFrame])
def test_other_rows_in_a_later_reading(quick, kind):
    others = r"had 30 rows when it was first read and has others now, or the same in another order; give chunks"
    same, other = (kind(X), Y), (kind(_bad(29, 3, 7.0)), Y)
    for wrong in (other, (kind(X[::-1]), Y), (kind(X), np.where(np.arange(30) == 29, 1 - Y, Y))):
        with pytest.raises(InvalidInputError, match=rf"^source {others}"):
            quick().fit_chunks(Changing([same], [wrong]))
    with pytest.raises(InvalidInputError, match=rf"^source {others}"):
        quick().fit_chunks(Changing([same], [same], [other]))
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


RNG = np.random.default_rng(0)
ROWS = (RNG.normal(size=(40, 6)) * (RNG.random(size=(40, 6)) < 0.4)).astype(np.float32)
CODES = np.arange(40) % 3
NAMES = np.array(["a", "é", "\ud800"])
LAYOUTS = [np.asarray, np.asfortranarray, sparse.csr_matrix, sparse.csr_array]


def _checksum(rows, labels, cuts=()):
    found = {}
    for start, stop in zip([0, *cuts], [*cuts, 40], strict=True):
        found = checksums(rows[start:stop], None if labels is None else labels[start:stop], found)
    return found


@pytest.mark.parametrize("labels", [None, CODES, CODES / 2.0, NAMES[CODES], np.stack([CODES, -CODES], axis=1)])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_cuts_do_not_matter(kind, labels):
    for cuts in ([3, 4, 39], range(1, 40)):
        assert _checksum(kind(ROWS), labels, cuts) == _checksum(kind(ROWS), labels)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_other_rows_and_labels_do(kind):
    known = _checksum(kind(ROWS), CODES)
    value, place = ROWS.copy(), ROWS.copy()
    value[39, 5] += 1.0
    place[7] = np.roll(place[7], 1)
    moved = np.roll(ROWS, 1).reshape(ROWS.shape)  # the same numbers in the same order, in other places
    for rows in (value, place, moved, ROWS[::-1]):
        assert _checksum(kind(rows), CODES) != known
    for labels in (np.roll(CODES, 1), np.where(np.arange(40) == 39, 5, CODES), CODES.astype(str)):
        assert _checksum(kind(ROWS), labels) != known


def test_types_of_labels_do_not_matter():
    names = np.array(["a", "bb", "ccc"])[CODES]
    assert _checksum(ROWS, names) == _checksum(ROWS, names.astype(object)) == _checksum(ROWS, names.astype("U99"))
    assert _checksum(ROWS, names[:1].repeat(40)) != _checksum(ROWS, names)
    assert (
        _checksum(ROWS, CODES) == _checksum(ROWS, CODES.astype(np.float32)) == _checksum(ROWS, CODES.astype(np.uint8))
    )
    # Only where each name ends tells these apart.
    assert _checksum(ROWS, np.array(["ab", "c"] * 20)) != _checksum(ROWS, np.array(["a", "bc"] * 20))


def test_where_a_sparse_row_ends_matters():
    parts = np.ones(40, np.float32), np.arange(40) % 6
    lengths = np.ones(40, int)
    other = np.concatenate([[2, 0], lengths[2:]])
    one, two = (
        sparse.csr_matrix((*parts, np.concatenate([[0], np.cumsum(count)])), (40, 6)) for count in (lengths, other)
    )
    assert _checksum(one, CODES) != _checksum(two, CODES)


def test_spare_room_and_gaps_in_memory_do_not_matter():
    tight = sparse.csr_matrix(ROWS)
    roomy = sparse.csr_matrix(ROWS)
    roomy.data = np.repeat(np.append(tight.data, [5.0, 6.0]).astype(np.float32), 2)[::2]
    roomy.indices = np.append(tight.indices, [0, 1]).astype(np.int64)
    assert checksums(roomy, np.repeat(CODES, 2)[::2], {}) == checksums(tight, CODES, {})


def test_lots_are_even_and_have_nothing_to_do_with_neighbours_or_seeds():
    drawn = lots(0, 200_000, seed=3)
    assert ((drawn >= 0.0) & (drawn < 1.0)).all()
    counts, _ = np.histogram(drawn, bins=20, range=(0.0, 1.0))
    assert np.abs(counts - 10_000).max() < 500  # five deviations
    for lag in (1, 2, 3, 300):
        assert abs(np.corrcoef(drawn[lag:], drawn[:-lag])[0, 1]) < 0.012
    assert abs(np.corrcoef(drawn, lots(0, 200_000, seed=4))[0, 1]) < 0.012
    for period in (2, 3, 8):  # no part of a periodic file is held out more often
        shares = [(drawn[start::period] < 0.1).mean() for start in range(period)]
        assert np.ptp(shares) < 0.02


def test_a_lot_belongs_to_the_number_of_a_row():
    whole = lots(0, 1000, seed=1)
    parts = [lots(start, 77, seed=1) for start in range(0, 1000, 77)]
    np.testing.assert_array_equal(np.concatenate(parts)[:1000], whole)
    assert lots(10**12, 5, seed=2**40).shape == (5,)


@pytest.mark.parametrize("size", [1, 10, 333])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_rows_in_order_with_their_labels_whatever_the_chunks(size, kind):
    rows = np.arange(1000.0)[:, None] + 1
    held = HeldOut(0.3, seed=0, most=60)
    for start in range(0, 1000, size):
        held.add(start, kind(rows[start : start + size]), np.arange(start, min(start + size, 1000)))
    found, labels = held.rows()
    assert held.share == 0.3 / 8
    chosen = held.mask(0, 1000)
    assert len(held) == chosen.sum() == len(labels)
    np.testing.assert_array_equal(labels, np.flatnonzero(chosen))
    np.testing.assert_array_equal(sparse.csr_matrix(found).toarray()[:, 0], labels + 1)


def test_a_share_that_is_not_too_much_stays():
    held = HeldOut(0.3, seed=0, most=1000)
    held.add(0, np.zeros((1000, 1)), np.zeros(1000))
    assert held.share == 0.3
    assert 260 < len(held) < 340
    held.lower(0.0)
    assert (held.share, len(held), held.mask(0, 1000).sum()) == (0.0, 0, 0)
    assert held.rows()[0].shape == (0, 1)

import numpy as np
import pytest
from scipy import sparse

from momentalign.estimators.chunks import Checksum

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(40, 6)) * (RNG.random(size=(40, 6)) < 0.4)).astype(np.float32)
Y = np.arange(40) % 3
KINDS = [np.asarray, np.asfortranarray, sparse.csr_matrix, sparse.csr_array]


def _checksum(rows, labels, cuts=()):
    checksum = Checksum()
    for start, stop in zip([0, *cuts], [*cuts, 40], strict=True):
        checksum.add(rows[start:stop], None if labels is None else labels[start:stop])
    return checksum


@pytest.mark.parametrize("labels", [None, Y, Y / 2.0, np.array(["a", "é", "\ud800"])[Y], np.stack([Y, -Y], axis=1)])
@pytest.mark.parametrize("kind", KINDS)
def test_cuts_do_not_matter(kind, labels):
    for cuts in ([1], [20], [3, 4, 39], range(1, 40)):
        assert _checksum(kind(X), labels, cuts) == _checksum(kind(X), labels)


@pytest.mark.parametrize("kind", KINDS)
def test_other_rows_and_labels_do(kind):
    known = _checksum(kind(X), Y)
    value, place = X.copy(), X.copy()
    value[39, 5] += 1.0
    place[7] = np.roll(place[7], 1)
    moved = np.roll(X, 1).reshape(X.shape)  # the same numbers in the same order, in other places
    for rows in (value, place, moved, X[::-1]):
        assert _checksum(kind(rows), Y) != known
    for labels in (np.roll(Y, 1), np.where(np.arange(40) == 39, 5, Y), Y.astype(str)):
        assert _checksum(kind(X), labels) != known
    assert known != 5


def test_types_of_labels_do_not_matter():
    names = np.array(["a", "bb", "ccc"])[Y]
    assert _checksum(X, names) == _checksum(X, names.astype(object)) == _checksum(X, names.astype("U99"))
    assert _checksum(X, names[:1].repeat(40)) != _checksum(X, names)
    assert _checksum(X, Y) == _checksum(X, Y.astype(np.float32)) == _checksum(X, Y.astype(np.uint8))
    # Only where each name ends tells these apart.
    assert _checksum(X, np.array(["ab", "c"] * 20)) != _checksum(X, np.array(["a", "bc"] * 20))


def test_where_a_sparse_row_ends_matters():
    parts = np.ones(40, np.float32), np.arange(40) % 6
    lengths = np.ones(40, int)
    other = np.concatenate([[2, 0], lengths[2:]])
    one, two = (
        sparse.csr_matrix((*parts, np.concatenate([[0], np.cumsum(count)])), (40, 6)) for count in (lengths, other)
    )
    assert _checksum(one, Y) != _checksum(two, Y)


def test_spare_room_and_gaps_in_memory_do_not_matter():
    tight = sparse.csr_matrix(X)
    roomy = sparse.csr_matrix(X)
    roomy.data = np.repeat(np.append(tight.data, [5.0, 6.0]).astype(np.float32), 2)[::2]
    roomy.indices = np.append(tight.indices, [0, 1]).astype(np.int64)
    found, expected = Checksum(), Checksum()
    found.add(roomy, np.repeat(Y, 2)[::2])
    expected.add(tight, Y)
    assert found == expected

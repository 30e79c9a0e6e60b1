import numpy as np
import pytest
from scipy import sparse

from momentalign.estimators.chunks import HeldOut, lots


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
    held.drop()
    assert (held.share, len(held), held.mask(0, 1000).sum()) == (0.0, 0, 0)
    assert held.rows()[0].shape == (0, 1)

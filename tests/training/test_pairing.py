import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from momentalign.errors import InvalidInputError
from momentalign.training.config import balanced_order, batches, order_by_shares, paired_batches

sizes = st.integers(1, 200)


@pytest.mark.parametrize(
    ("rows", "batch_size", "lengths"),
    [
        (10, 5, [5, 5]),
        (12, 5, [5, 7]),  # a rest of 2 is less than half a batch
        (13, 5, [5, 5, 3]),  # a rest of 3 is more
        (12, 8, [8, 4]),  # a rest of exactly half stands alone
        (5, 5, [5]),
        (3, 5, [3]),
        (7, None, [7]),
        (4, 1, [1, 1, 1, 1]),
    ],
)
def test_batches_and_the_rule_for_the_rest(rows, batch_size, lengths):
    cut = batches(np.arange(rows) * 2, batch_size)
    assert [len(batch) for batch in cut] == lengths
    np.testing.assert_array_equal(np.concatenate(cut), np.arange(rows) * 2)


@given(sizes, sizes)
def test_every_row_is_in_one_batch_and_no_batch_is_small(rows, batch_size):
    cut = batches(np.arange(rows), batch_size)
    np.testing.assert_array_equal(np.concatenate(cut), np.arange(rows))
    assert all(len(batch) == batch_size for batch in cut[:-1])
    assert batch_size / 2 <= len(cut[-1]) < 1.5 * batch_size or len(cut) == 1


@pytest.mark.parametrize("batch_size", [0, -3])
def test_a_batch_holds_at_least_one_row(batch_size):
    with pytest.raises(InvalidInputError, match=f"batch_size must be at least 1, got {batch_size}"):
        batches(np.arange(4), batch_size)


@given(sizes, sizes, st.integers(1, 60))
def test_the_longer_domain_ends_the_epoch_and_the_shorter_one_starts_again(rows, other_rows, batch_size):
    source, target = batches(np.arange(rows), batch_size), batches(np.arange(other_rows), batch_size)
    pairs = paired_batches(source, target)
    assert len(pairs) == max(len(source), len(target))
    for index, (of_source, of_target) in enumerate(pairs):
        assert of_source is source[index % len(source)]
        assert of_target is target[index % len(target)]


def test_pairs_of_unequal_domains_by_hand():
    long, short = batches(np.arange(6), 2), batches(np.arange(10, 14), 2)
    expected = [([0, 1], [10, 11]), ([2, 3], [12, 13]), ([4, 5], [10, 11])]
    assert [(s.tolist(), t.tolist()) for s, t in paired_batches(long, short)] == expected
    assert [(t.tolist(), s.tolist()) for s, t in paired_batches(short, long)] == expected


@given(arrays.arrays(np.int64, st.integers(1, 60), elements=st.integers(0, 4)))
def test_balanced_rows_alternate_between_the_classes(labels):
    order, classes = balanced_order(labels), np.unique(labels)
    largest = np.bincount(labels).max()
    drawn = labels[order].reshape(largest, len(classes))
    np.testing.assert_array_equal(drawn, np.tile(classes, (largest, 1)))
    for position, label in enumerate(classes):
        members = np.flatnonzero(labels == label)
        np.testing.assert_array_equal(order[position :: len(classes)], members[np.arange(largest) % len(members)])


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5),
    st.integers(1, 200),
)
def test_every_class_has_its_share_and_its_rows_take_turns(sizes, shares, count):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    # The last class has no rows, so it gets none.
    wanted = np.array([*shares[: len(sizes)], 0.5])
    rows = order_by_shares(labels, wanted, count)
    assert len(rows) == count
    drawn = np.bincount(labels[rows], minlength=len(sizes))
    np.testing.assert_allclose(drawn, count * wanted[:-1] / wanted[:-1].sum(), atol=1.0 + 1e-9)
    times = np.bincount(rows, minlength=len(labels))
    assert all(np.ptp(times[labels == label]) <= 1 for label in range(len(sizes)))

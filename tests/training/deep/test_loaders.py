import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from momentalign.errors import DamagedFileError, InvalidInputError, InvalidTypeError
from momentalign.training.deep.lightning import random_state, restore_random_state
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.ranks import BalancedSampler


def drawn(shape=3):
    """A number of every generator of the process."""
    return random.random(), np.random.rand(), torch.rand(shape)  # noqa: NPY002, S311


class Noisy(Dataset):
    """Rows whose values depend on every generator, as with augmentation."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return index + sum(0.1 * float(value) for value in drawn(()))


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(5)


def rows_of(pairs):
    values = ([part[0] if isinstance(part, list) else part for part in pair] for pair in pairs)
    return [[torch.as_tensor(part).flatten().tolist() for part in pair] for pair in values]


def test_the_longer_ends_the_epoch_and_the_shorter_cycles():
    assert list(PairedLoader([1, 2, 3, 4, 5], ["a", "b"])) == [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a")]
    assert list(PairedLoader([1, 2], ["a", "b", "c"])) == [(1, "a"), (2, "b"), (1, "c")]
    assert len(PairedLoader([1, 2], ["a", "b", "c"])) == 3


def test_every_epoch_and_every_round_is_shuffled_anew():
    target = DataLoader(torch.arange(40), batch_size=20, shuffle=True)
    pairs = PairedLoader(list(range(4)), target)
    rounds = [rows_of(pairs) for _ in range(2)]
    orders = [tuple(pair[1]) for epoch in rounds for pair in epoch]
    assert len(set(orders)) == 8
    for epoch in rounds:
        assert sorted(epoch[0][1] + epoch[1][1]) == sorted(epoch[2][1] + epoch[3][1]) == list(range(40))


def test_steps_cut_or_prolong_an_epoch_and_stand_in_for_a_length():
    assert list(PairedLoader([1, 2], "abc", steps=4)) == [(1, "a"), (2, "b"), (1, "c"), (2, "a")]
    assert list(PairedLoader([1, 2], "abc", steps=1)) == [(1, "a")]
    stream = DataLoader(Stream(), batch_size=2)
    with pytest.raises(InvalidInputError, match=r"target_loader does not know its length; .* steps="):
        len(PairedLoader([1], stream))
    assert rows_of(PairedLoader([1], stream, steps=4))[3] == [[1], [0, 1]]


@pytest.mark.parametrize(
    ("loader", "message"),
    [(3, "source_loader must give batches when iterated over, got 3"), (iter([1]), "source_loader is an iterator")],
)
def test_what_cannot_be_gone_through_again_is_refused(loader, message):
    with pytest.raises(InvalidTypeError, match=message):
        PairedLoader(loader, [1])


def test_an_empty_loader_is_refused_by_name():
    empty = DataLoader(torch.arange(3), batch_size=4, drop_last=True)
    with pytest.raises(InvalidInputError, match="target_loader gives no batch"):
        list(PairedLoader([1, 2], empty))
    with pytest.raises(InvalidInputError, match="source_loader gives no batch"):
        PairedLoader(empty, [1, 2]).peek()


def loaders():
    labels = torch.arange(30) % 3
    own = torch.Generator().manual_seed(4)
    target = DataLoader(TensorDataset(torch.arange(12)), batch_size=5, shuffle=True, generator=own)
    return PairedLoader(DataLoader(Noisy(30), batch_size=4, sampler=BalancedSampler(labels)), target)


def shuffled(workers=0):
    source = DataLoader(Noisy(30), batch_size=4, shuffle=True, num_workers=workers)
    return PairedLoader(source, DataLoader(Noisy(12), batch_size=5, shuffle=True))


def seed():
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)


def go(pairs, steps):
    found = []
    while len(found) < steps:
        for pair in pairs:
            found.append(rows_of([pair])[0])
            drawn()
            if len(found) == steps:
                break
    return found


@pytest.mark.parametrize("make", [loaders, shuffled])
@pytest.mark.parametrize("stop", [1, 5, 8, 13, 16])
def test_a_resumed_loader_goes_on_with_the_same_batches(make, stop):
    """Epochs of 8 pairs; stops after the first, midway, at the end, in the second epoch and at its end."""
    seed()
    undisturbed = go(make(), 20)
    seed()
    first = make()
    head = go(first, stop)
    state, now = first.state_dict(), random_state()
    second = make()
    seed()
    drawn()
    restore_random_state(now)
    second.load_state_dict(state)
    tail = go(second, 20 - stop)
    assert head + tail == undisturbed


def test_resuming_leaves_the_generators_alone():
    pairs = shuffled()
    go(pairs, 3)
    state = pairs.state_dict()
    seed()
    expected = drawn()
    other = PairedLoader(DataLoader(torch.arange(30), batch_size=4, shuffle=True), [0])
    state["ranks"][0]["sides"][1]["consumed"] = 1
    other.load_state_dict(state)
    seed()
    next(iter(other))  # sequential reading draws nothing once the sampler has drawn
    found = drawn()
    assert found[:2] == expected[:2]
    assert found[2].tolist() == expected[2].tolist()


def test_workers_resume_to_the_same_batches():
    seed()
    undisturbed = go(shuffled(workers=1), 7)
    seed()
    first = shuffled(workers=1)
    go(first, 4)
    state, now = first.state_dict(), random_state()
    seed()
    second = shuffled(workers=1)
    restore_random_state(now)
    second.load_state_dict(state)
    assert go(second, 3) == undisturbed[4:]


def test_a_loader_that_keeps_its_own_state_is_asked_for_it():
    class Counting:
        at = 0

        def __len__(self):
            return 6

        def __iter__(self):
            while self.at < 6:
                self.at += 1
                yield self.at
            self.at = 0

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    pairs = PairedLoader(Counting(), [0])
    iterator = iter(pairs)
    assert [next(iterator)[0] for _ in range(4)] == [1, 2, 3, 4]
    other = PairedLoader(Counting(), [0])
    other.load_state_dict(pairs.state_dict())
    assert list(other) == [(5, 0), (6, 0)]


def test_the_state_of_another_loader_is_refused():
    pairs = loaders()
    go(pairs, 2)
    other = shuffled()
    other.load_state_dict(pairs.state_dict())
    with pytest.raises(DamagedFileError, match="not of this target_loader: it has 0 generators of its own"):
        next(iter(other))
    state = pairs.state_dict()
    with pytest.raises(InvalidInputError, match="written by 2 processes and is read by 1"):
        pairs.load_state_dict({"ranks": state["ranks"] * 2})


def test_peeking_changes_nothing():
    pairs, same = loaders(), loaders()
    seed()
    expected = go(same, 10)
    seed()
    pairs.peek()
    assert go(pairs, 10) == expected


def test_balanced_orders():
    labels = np.repeat([0, 1, 2], [50, 7, 3])
    sampler = BalancedSampler(torch.tensor(labels), seed=1)
    order = list(sampler)
    assert len(order) == len(sampler) == 150
    assert all(sorted(labels[order[start : start + 3]]) == [0, 1, 2] for start in range(0, 150, 3))
    assert [np.unique(np.array(order)[labels[order] == label]).size for label in range(3)] == [50, 7, 3]
    assert list(sampler) == order
    sampler.set_epoch(1)
    assert list(sampler) != order
    ranks = [list(BalancedSampler(labels, seed=1).of_rank(rank, 2)) for rank in range(2)]
    assert [row for pair in zip(*ranks, strict=True) for row in pair] == order
    with pytest.raises(InvalidInputError, match=r"labels must be one class for every row, got shape \(0,\)"):
        BalancedSampler([])

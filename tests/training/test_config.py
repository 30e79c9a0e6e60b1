"""Tasks and how networks are trained on them: settings, batches, pairs of batches, and where training starts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.networks.shallow import initial_layers
from momentalign.training.config import (
    NetworkSpec,
    Optimizer,
    Task,
    TrainingConfig,
    batches,
    domain_batches,
    domain_sizes,
    paired_batches,
)

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


@given(sizes, sizes, st.integers(1, 60))
def test_the_longer_domain_ends_the_epoch_and_the_shorter_one_starts_again(rows, other_rows, batch_size):
    source, target = batches(np.arange(rows), batch_size), batches(np.arange(other_rows), batch_size)
    pairs = paired_batches(source, target)
    assert len(pairs) == max(len(source), len(target))
    for index, (of_source, of_target) in enumerate(pairs):
        assert of_source is source[index % len(source)]
        assert of_target is target[index % len(target)]


def test_a_small_domain_is_whole_in_every_batch():
    domains = np.repeat([0, 1], [100, 7])
    parts = domain_batches(domains, np.arange(107), 30)
    assert [domain_sizes(domains, rows) for rows in parts] == [[30, 7], [30, 7], [40, 7]]
    parts = domain_batches(np.repeat([0, 1], [6, 4]), np.arange(10), 2)
    assert [rows[-2:].tolist() for rows in parts] == [[6, 7], [8, 9], [6, 7]]  # the shorter domain starts again
    assert [rows.tolist() for rows in domain_batches(None, np.arange(4), 2)] == [[0, 1], [2, 3]]


def test_learning_rates_are_the_papers_unless_given():
    rates = {name: Optimizer(name).rate for name in ("adagrad", "adadelta", "sgd", "adam")}
    assert rates == {"adagrad": 0.01, "adadelta": 1.0, "sgd": 0.01, "adam": 0.001}
    assert Optimizer("adadelta", 0.3).rate == 0.3


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Optimizer, {"name": "rmsprop"}, r"optimizer must be one of adagrad, adadelta, sgd, adam, got 'rmsprop'"),
        (Optimizer, {"learning_rate": 0.0}, r"learning_rate must be a positive number.* got 0.0"),
        (Optimizer, {"learning_rate": float("inf")}, r"learning_rate must be a positive number.* got inf"),
        (Optimizer, {"learning_rate": "1"}, r"learning_rate must be a positive number or None, got '1'"),
        (TrainingConfig, {"hidden": "50"}, r"hidden must be a sequence of whole numbers, got '50'"),
        (TrainingConfig, {"hidden": ()}, "hidden is empty"),
        (TrainingConfig, {"hidden": (5, 0)}, "hidden must be at least 1, got 0"),
        (TrainingConfig, {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (TrainingConfig, {"max_epochs": 0}, "max_epochs must be at least 1, got 0"),
        (TrainingConfig, {"max_epochs": None}, "max_epochs must be a whole number, got None"),
        (TrainingConfig, {"patience": -1}, "patience must be at least 1, got -1"),
        (
            TrainingConfig,
            {"loss": "hinge"},
            "loss must be one of cross_entropy, squared, absolute, huber",
        ),
    ],
)
def test_what_cannot_work_is_refused(kind, settings, message):
    with pytest.raises((InvalidInputError, InvalidTypeError), match=message):
        kind(**settings)


def _task(labels, target_rows):
    target = None if target_rows is None else np.zeros((target_rows, 2))
    return Task(np.zeros((len(labels), 2)), np.array(labels), target, 2)


def _lists(epoch):
    return [(source.tolist(), None if target is None else target.tolist()) for source, target in epoch]


@pytest.mark.parametrize(
    ("labels", "target_rows", "settings", "expected"),
    [
        ([0, 1, 0, 1], None, {"batch_size": 2}, [([0, 1], None), ([2, 3], None)]),
        ([0, 1, 0, 1], 2, {"batch_size": 2}, [([0, 1], [0, 1]), ([2, 3], [0, 1])]),
        ([0, 1], 4, {"batch_size": 2}, [([0, 1], [0, 1]), ([0, 1], [2, 3])]),
        ([0, 1, 1], 5, {"batch_size": None}, [([0, 1, 2], [0, 1, 2, 3, 4])]),
    ],
)
def test_the_rows_of_an_epoch(labels, target_rows, settings, expected):
    assert _lists(TrainingConfig(**settings).epoch(_task(labels, target_rows))) == expected


def test_a_member_starts_from_its_seed_or_from_what_it_was_given():
    task, config = _task([0, 1], 2), TrainingConfig(hidden=(4, 3), initializer="he_normal")
    drawn = initial_layers([2, 4, 3, 2], 9, initializer="he_normal")
    for layer, expected in zip(NetworkSpec(9).start(task, config), drawn, strict=True):
        np.testing.assert_array_equal(layer.weight, expected.weight)
    given = initial_layers([2, 4, 3, 2], 1)
    assert NetworkSpec(9, initial=given).start(task, config) is given

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import initial_layers
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        (Optimizer("adagrad"), 0.01),
        (Optimizer("adadelta"), 1.0),
        (Optimizer("sgd"), 0.01),
        (Optimizer("adam"), 0.001),
        (Optimizer("adadelta", 0.3), 0.3),
    ],
)
def test_learning_rates_are_the_papers_unless_given(optimizer, rate):
    assert optimizer.rate == rate


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "rmsprop"}, r"optimizer must be one of adagrad, adadelta, sgd, adam, got 'rmsprop'"),
        ({"learning_rate": 0.0}, r"learning_rate must be a positive number.* got 0.0"),
        ({"learning_rate": float("inf")}, r"learning_rate must be a positive number.* got inf"),
    ],
)
def test_optimizers_that_cannot_work_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        Optimizer(**settings)


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
        ([0, 1, 1], None, {"batch_size": 2, "balanced": True}, [([0, 1], None), ([0, 2], None)]),
    ],
)
def test_the_rows_of_an_epoch(labels, target_rows, settings, expected):
    assert _lists(TrainingConfig(**settings).epoch(_task(labels, target_rows))) == expected


def test_a_member_starts_from_its_seed_or_from_what_it_was_given():
    task, config = _task([0, 1], 2), TrainingConfig(hidden=(4, 3), initializer="he_normal", gain=0.5)
    drawn = initial_layers([2, 4, 3, 2], 9, initializer="he_normal", gain=0.5)
    for layer, expected in zip(NetworkSpec(9).start(task, config), drawn, strict=True):
        np.testing.assert_array_equal(layer.weight, expected.weight)
    given = initial_layers([2, 4, 3, 2], 1)
    assert NetworkSpec(9, initial=given).start(task, config) is given

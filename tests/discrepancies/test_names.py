"""A new distance is one class and one line in the table of names: the distance of medians of docs/architecture.md."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import momentalign as ma
from momentalign.discrepancies.base import DistanceLoss
from momentalign.discrepancies.names import DISTANCES
from momentalign.training.config import NetworkSpec, Task, TrainingConfig
from momentalign.training.stack import train_stack


def stacked_medians(source, target):
    return (source.median(-2).values - target.median(-2).values).norm(dim=-1)


class MedianLoss(DistanceLoss):
    """The Euclidean distance of the medians of the units."""

    name = stack_key = "median"

    def forward(self, source, target):
        return stacked_medians(source, target)

    @staticmethod
    def stack(losses):
        return stacked_medians


@pytest.fixture(autouse=True)
def named(monkeypatch):
    monkeypatch.setitem(DISTANCES, "median", MedianLoss)


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    return random.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 2


def test_estimators_know_it_by_its_name(rows):
    X, y = rows
    by_name, given, plain = (
        ma.MANNClassifier(discrepancy=distance, max_epochs=5, random_state=0).fit(X, y, X + 1.0).coefs_[0]
        for distance in ("median", MedianLoss(), None)
    )
    np.testing.assert_array_equal(by_name, given)
    assert not np.array_equal(by_name, plain)


def test_deep_training_knows_it_by_its_name(rows):
    X, y = (torch.tensor(part) for part in rows)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 2))
    source, target = DataLoader(TensorDataset(X, y), 30), DataLoader(X + 1.0, 30)
    by_name, given, plain = (
        ma.adapt(model, "1", source, target, discrepancy=distance, max_epochs=2, device="cpu", random_state=0)[0].weight
        for distance in ("median", MedianLoss(), None)
    )
    assert torch.equal(by_name, given)
    assert not torch.equal(by_name, plain)


def test_networks_of_a_stack_share_one_call_and_are_the_networks_alone(rows, monkeypatch):
    calls = []
    monkeypatch.setattr(MedianLoss, "stack", staticmethod(lambda losses: calls.append(len(losses)) or stacked_medians))
    X, y = rows
    task, config = Task(X, y, X + np.float32(1.0), 2), TrainingConfig(hidden=(4,), max_epochs=3)
    specs = [NetworkSpec(seed, 1.0, MedianLoss()) for seed in range(3)]
    together = train_stack(task, config, specs)
    assert 3 in calls
    for spec, network in zip(specs, together, strict=True):
        (alone,) = train_stack(task, config, [spec])
        np.testing.assert_array_equal(network.layers[0].weight, alone.layers[0].weight)

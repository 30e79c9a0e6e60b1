"""Averaged weights, and batch-norm statistics of each domain."""

import copy

import pytest
import torch
from torch import nn

from momentalign.errors import InvalidInputError
from momentalign.training.deep.lightning import pl
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.module import DeepAdaptation
from momentalign.training.deep.weights import AveragedWeights, SourceStatistics


class Noted(pl.Callback):
    """Keeps the weights after every step."""

    def __init__(self):
        self.steps = []

    def on_train_batch_end(self, _trainer, pl_module, *_):
        self.steps.append([weight.detach().double().clone() for weight in pl_module.model.parameters()])


@pytest.fixture
def train(task, small, fit):
    """Train a copy of a network; the callbacks come first, and its weights after every step are returned too."""

    def run(averaged, *, epochs=2, folder=None, discrepancy="cmd"):
        torch.manual_seed(0)
        model, noted = copy.deepcopy(small), Noted()
        module = DeepAdaptation(model, "1", discrepancy=discrepancy, learning_rate=0.05, example=task.rows)
        pairs = PairedLoader(task.source_loader(shuffle=True), task.target_loader(shuffle=True))
        fit(module, pairs, epochs, folder=folder, callbacks=[noted, averaged])
        return model, noted.steps

    return run


def by_hand(steps, decay):
    average = steps[0]
    for step, weights in enumerate(steps):
        share = max(1 - decay, 9 / (10 + step))
        average = [old + share * (new - old) for old, new in zip(average, weights, strict=True)]
    return average


@pytest.mark.parametrize("decay", [0.0, 0.4, 0.999])
def test_the_end_weights_are_the_averages_of_the_formula(train, decay):
    model, steps = train(AveragedWeights(decay))
    assert len(steps) == 8
    for weight, expected in zip(model.parameters(), by_hand(steps, decay), strict=True):
        torch.testing.assert_close(weight.detach().double(), expected, atol=1e-6, rtol=1e-5)
        assert weight.requires_grad
    differs = any(not torch.equal(a.double(), b) for a, b in zip(model.parameters(), steps[-1], strict=True))
    assert differs == (decay > 0)


def test_the_weights_of_a_domain_classifier_are_left_alone(train):
    averaged = AveragedWeights()
    model, steps = train(averaged, discrepancy="dann")
    shapes = [average.shape for average in averaged.state_dict()["average"]]
    assert shapes == [weight.shape for weight in model.parameters()]
    assert len(steps[0]) == len(shapes)


def test_training_itself_is_not_changed_and_another_fit_begins_anew(train):
    averaged = AveragedWeights(0.9)
    first, steps = train(averaged)
    again, same_steps = train(averaged)
    alone, plain_steps = train(Noted())
    for one, other, third in zip(steps, same_steps, plain_steps, strict=True):
        assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(one, other, third, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first[0].weight, alone[0].weight)


def test_a_state_is_a_copy_and_comes_back(train):
    averaged = AveragedWeights(0.9)
    model, _ = train(averaged)
    state = averaged.state_dict()
    assert state["steps"] == 8
    other = AveragedWeights(0.9)
    other.load_state_dict(state)
    state["average"][0].zero_()
    for callback in (averaged, other):
        for average, weight in zip(callback.state_dict()["average"], model.parameters(), strict=True):
            assert torch.equal(average, weight)


def test_a_run_that_goes_on_ends_with_the_same_averages(train, tmp_path):
    whole, _ = train(AveragedWeights(0.9), epochs=3, folder=tmp_path / "whole")
    train(AveragedWeights(0.9), epochs=1, folder=tmp_path / "parts")
    resumed, steps = train(AveragedWeights(0.9), epochs=3, folder=tmp_path / "parts")
    assert len(steps) == 8
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_a_decay_that_is_none_is_refused(decay):
    with pytest.raises(InvalidInputError, match="decay must be a finite number of at least 0 and below 1, got"):
        AveragedWeights(decay)


def test_each_domain_has_statistics_of_its_own_and_the_weights_are_shared():
    """By hand: each domain alone through a copy of the network."""
    network = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3), nn.BatchNorm1d(3))
    alone = {"source": copy.deepcopy(network), "target": copy.deepcopy(network)}
    statistics = SourceStatistics(network)
    for step in range(3):
        source, target = torch.randn(5, 2, 2, 2) + step, 3 * torch.randn(6, 2, 2, 2)
        with statistics.lent_to(network):
            network(source)
        network(target)
        alone["source"](source)
        alone["target"](target)
    own = dict(network.named_buffers())
    assert {name: value.tolist() for name, value in own.items()} == {
        name: value.tolist() for name, value in alone["target"].named_buffers()
    }
    kept = [value.tolist() for value in statistics.buffers()]
    assert kept == [value.tolist() for value in alone["source"].buffers()]


def test_statistics_are_given_back_after_an_error():
    network = nn.Sequential(nn.BatchNorm1d(2))
    statistics, before = SourceStatistics(network), network[0].running_mean
    with pytest.raises(ValueError, match="expected"), statistics.lent_to(network):
        network(torch.zeros(2, 2, 2, 2))
    assert network[0].running_mean is before


@pytest.mark.parametrize("network", [nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)])
def test_a_network_without_running_statistics_is_refused(network):
    with pytest.raises(
        InvalidInputError, match=r"domain_norm=True asks for batch-norm layers .* leave domain_norm out"
    ):
        SourceStatistics(network)

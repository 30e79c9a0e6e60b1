import copy

import pytest
import torch
from torch import nn

from momentalign.errors import InvalidInputError
from momentalign.training.deep.weights import SourceStatistics


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

import copy

import pytest
import torch
from torch import nn

from momentalign.errors import InvalidInputError
from momentalign.training.deep.adda import find_encoder, fresh_weights, read_one_layer


class Branches(nn.Module):
    """Two ways that meet in a head; ``scale`` belongs to no layer and is used below ``right``."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.left = nn.Linear(3, 4)
        self.right = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5))
        self.head = nn.Sequential(nn.BatchNorm1d(9), nn.Linear(9, 2))
        self.unused = nn.Linear(1, 1)

    def forward(self, rows):
        return self.head(torch.cat([self.left(rows), self.right(rows * self.scale)], 1))


def test_the_encoder_is_what_the_layer_depends_on():
    network = Branches()
    network.head[0].eval()
    before = copy.deepcopy(network.state_dict())
    weights, above, width = find_encoder(network, "right", torch.randn(4, 3))
    assert weights == ["scale", "right.0.weight", "right.0.bias"]
    assert above == ["head", "head.0", "head.1", "unused"]
    assert width == 5
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [name for name, part in network.named_modules() if not part.training] == ["head.0"]
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())


def test_frozen_weights_are_left_out():
    network = Branches()
    network.right[0].weight.requires_grad_(False)
    assert find_encoder(network, "right", torch.randn(4, 3)).weights == ["scale", "right.0.bias"]


def test_layers_that_cut_nothing_are_refused():
    network = Branches()
    with pytest.raises(InvalidInputError, match="layer 'unused' has no part in the model's forward pass"):
        find_encoder(network, "unused", torch.randn(4, 3))
    network.requires_grad_(False)
    with pytest.raises(InvalidInputError, match="layer 'left' has nothing to train below it"):
        find_encoder(network, "left", torch.randn(4, 3))
    assert network.training


def test_one_layer_is_asked_for():
    assert read_one_layer(Branches(), ["left"], "DSN") == "left"
    with pytest.raises(InvalidInputError, match=r"DSN cuts the network at one layer, got layer=\['left', 'right'\]"):
        read_one_layer(Branches(), ["left", "right"], "DSN")


def test_fresh_weights_have_forgotten_everything():
    network = Branches()
    with torch.no_grad():
        network.scale.copy_(torch.tensor([1.0, 2.0, 3.0]))
    network.head(torch.randn(50, 9))
    old = copy.deepcopy(network.state_dict())
    orders = set()
    for _ in range(20):
        fresh_weights(network)
        orders.add(tuple(network.scale.tolist()))
    assert len(orders) > 1
    assert all(sorted(order) == [1.0, 2.0, 3.0] for order in orders)
    assert not (network.left.weight == old["left.weight"]).any()
    assert network.head[0].running_mean.tolist() == [0.0] * 9
    assert old["head.0.running_mean"].abs().min() > 0

import pytest
import torch
from torch import nn

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.networks.layers import activation_interval, find_layer, recorded


class Boxed(nn.Module):
    def forward(self, rows):
        return {"rows": rows}


class Listed(nn.Module):
    def forward(self, rows):
        return [rows]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
        self.lstm = nn.LSTM(8, 4, batch_first=True)
        self.fc_hidden = nn.Linear(4, 5)
        self.boxed, self.listed, self.total = Boxed(), Listed(), nn.Identity()

    def forward(self, images):
        _, (hidden, _) = self.lstm(self.features(images).flatten(1)[:, None])
        boxed = self.boxed(self.fc_hidden(hidden[0]))
        return self.total(self.listed(boxed["rows"])[0].sum(1))


def test_layers_are_found_by_dotted_name():
    network = Network()
    assert find_layer(network, "features.0") is network.features[0]
    assert find_layer(network, "fc_hidden") is network.fc_hidden


@pytest.mark.parametrize(
    ("name", "known"),
    [("fc_hiden", "it has: 'fc_hidden'"), ("zzz", "'features', 'features.0'"), ("", "'features', 'features.0'")],
)
def test_an_unknown_name_lists_the_nearest(name, known):
    with pytest.raises(InvalidInputError, match=rf"layer '{name}' is not in Network; .*{known}"):
        find_layer(Network(), name)


def test_a_network_without_layers_has_no_names():
    with pytest.raises(InvalidInputError, match="it has: none"):
        find_layer(nn.ReLU(), "fc")
    with pytest.raises(InvalidTypeError, match="layer must be the name of a submodule, got 3; try layer='fc'"):
        find_layer(Network(), 3)


def test_outputs_are_recorded_as_matrices_with_gradients_and_hooks_are_gone():
    network, images = Network(), torch.randn(3, 1, 4, 4)
    with recorded(network, ["features", "lstm", "fc_hidden", "boxed"]) as activations:
        network(images)
    shapes = {name: tuple(value.shape) for name, value in activations.items()}
    assert shapes == {"features": (3, 8), "lstm": (3, 4), "fc_hidden": (3, 5), "boxed": (3, 5)}
    torch.testing.assert_close(activations["features"], network.features(images).flatten(1))
    assert activations["fc_hidden"].requires_grad
    before = dict(activations)
    network(images + 1)
    assert activations == before
    assert not network.fc_hidden._forward_hooks


def test_layers_above_that_work_in_place_change_nothing():
    layers = [nn.Linear(4, 3), nn.ReLU(inplace=True), nn.Flatten()]
    network, rows = nn.Sequential(*layers), torch.randn(20, 4)
    with recorded(network, ["0", "1"]) as activations:
        network(rows)
    assert activations["0"].min() < 0
    torch.testing.assert_close(activations["0"], layers[0](rows))
    torch.testing.assert_close(activations["1"], layers[0](rows).relu())
    activations["0"].square().sum().backward()
    assert layers[0].weight.grad.abs().min() > 0


def test_a_layer_called_twice_is_kept_as_of_its_last_call():
    layer = nn.Tanh()
    with recorded(nn.Sequential(layer, layer), ["0"]) as activations:
        layer(layer(torch.ones(2, 1)))
    torch.testing.assert_close(activations["0"], torch.ones(2, 1).tanh().tanh())


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("listed", InvalidTypeError, "layer 'listed' gives list, not a tensor"),
        ("total", InvalidInputError, r"layer 'total' gives shape \(3,\)"),
    ],
)
def test_what_is_no_matrix_is_refused_by_name_and_hooks_are_gone(name, error, message):
    network = Network()
    with pytest.raises(error, match=message), recorded(network, [name]):
        network(torch.randn(3, 1, 4, 4))
    assert not find_layer(network, name)._forward_hooks


@pytest.mark.parametrize(
    ("layer", "interval"),
    [
        (nn.Sigmoid(), (0.0, 1.0)),
        (nn.Hardsigmoid(), (0.0, 1.0)),
        (nn.Softmax(1), (0.0, 1.0)),
        (nn.Tanh(), (-1.0, 1.0)),
        (nn.Softsign(), (-1.0, 1.0)),
        (nn.Hardtanh(-2, 3), (-2.0, 3.0)),
        (nn.ReLU6(), (0.0, 6.0)),
        (nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(nn.Tanh(), nn.MaxPool2d(2)), nn.Flatten()), (-1.0, 1.0)),
        (nn.Sequential(nn.Sigmoid(), nn.Linear(2, 2)), None),
        (nn.Sequential(nn.Sigmoid(), nn.Dropout()), None),
        (nn.Sequential(nn.Flatten()), None),
        (nn.ReLU(), None),
        (nn.Linear(2, 2), None),
    ],
)
def test_the_interval_of_an_activation(layer, interval):
    assert activation_interval(layer) == interval
    if interval is not None:
        values = layer(100 * torch.randn(50, 1, 4, 4))
        assert interval[0] <= values.min()
        assert values.max() <= interval[1]

"""The network for digits: its shapes, bounds and size, and that what was moved for speed changed nothing."""

import pytest
import torch
from torch import nn

from momentalign.paper.digit_networks import EMBEDDING, EMBEDDING_INTERVAL, DigitCNN


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return DigitCNN().eval()


@pytest.fixture
def images():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_shapes_and_size():
    network = DigitCNN(classes=7, width=16)
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [32, 32, 64, 64, 128, 128]
    assert {(layer.kernel_size, layer.padding) for layer in convolutions} == {((3, 3), (1, 1))}
    assert network.embedding.weight.shape == (16, 128 * 4 * 4)


def test_weights_start_as_glorot_says_and_biases_at_zero(network):
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            assert not layer.bias.any()
            inputs, outputs = layer.weight[0].numel(), layer.weight[:, 0].numel()
            bound = (6 / (inputs + outputs)) ** 0.5
            assert 0.95 * bound < layer.weight.abs().max() <= bound


def test_the_embedding_is_bounded_and_named(network, images):
    layer = dict(network.named_modules())[EMBEDDING]
    seen = []
    layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    network(1000 * images)
    low, high = EMBEDDING_INTERVAL
    assert seen[0].shape == (3, 128)
    assert low <= seen[0].min() < -0.9
    assert 0.9 < seen[0].max() <= high


def test_the_embedding_is_in_single_precision_under_half(network, images):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert network.features(images).dtype == torch.bfloat16
        assert network.embedding(network.features(images)).dtype == torch.float32


def test_elu_after_the_maximum_is_elu_before_it(network, images):
    layers = list(network.features)
    swapped = []
    for layer in layers:
        if isinstance(layer, nn.ELU) and swapped and isinstance(swapped[-1], nn.MaxPool2d):
            swapped.insert(-1, layer)
        else:
            swapped.append(layer)
    assert [type(layer) for layer in swapped] != [type(layer) for layer in layers]
    torch.testing.assert_close(nn.Sequential(*swapped)(images), network.features(images))


def test_the_memory_format_of_images_changes_nothing(network, images):
    torch.testing.assert_close(network(images.contiguous(memory_format=torch.channels_last)), network(images))


def test_every_weight_learns(network, images):
    network(images).square().sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in network.parameters())

"""EfficientNet-Lite0: its shape, its names, its padding."""

import pytest
import torch

from momentalign.paper import backbones as efficientnet
from momentalign.paper.backbones import EfficientNetLite0


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return EfficientNetLite0().eval()


def their_names(state):
    """The names of the package, from ours."""
    parts = {ours: theirs for theirs, ours in efficientnet._PARTS.items()}
    block_parts = {ours: theirs for theirs, ours in efficientnet._BLOCK_PARTS.items()}
    names = {}
    for name in state:
        *place, value = name.split(".")
        if place[0] == "blocks":
            names[name] = f"_blocks.{place[1]}.{block_parts['.'.join(place[2:])]}.{value}"
        else:
            names[name] = f"{parts['.'.join(place)]}.{value}"
    return names


def test_it_has_the_published_number_of_weights_and_blocks(network):
    classifier = 1281 * 1000
    assert sum(weight.numel() for weight in network.parameters()) == 4_652_008 - classifier
    assert len(network.blocks) == 16
    assert len(network.state_dict()) == 294


def test_names_of_the_package_become_ours_and_ours_stay(network):
    state = network.state_dict()
    theirs = their_names(state)
    assert theirs["blocks.3.depthwise.norm.running_var"] == "_blocks.3._bn1.running_var"
    assert theirs["blocks.0.project.conv.weight"] == "_blocks.0._project_conv.weight"
    assert (theirs["head.norm.bias"], theirs["stem.norm.bias"]) == ("_bn1.bias", "_bn0.bias")
    every = [*theirs.values(), "_fc.weight", "_fc.bias"]
    assert EfficientNetLite0.names(dict.fromkeys(every)) == {name: ours for ours, name in theirs.items()}
    assert EfficientNetLite0.names(state) == {name: name for name in state}


def test_pictures_are_padded_as_in_tensorflow(network):
    """With stride 2 an even side is padded by one pixel (kernel 3) at the end, or by 1 and 2 (kernel 5)."""
    first, fifth = network.stem, network.blocks[3].depthwise
    assert (first._padding(224), first._padding(225)) == ((0, 1), (1, 1))
    assert (fifth.conv.kernel_size[0], fifth.conv.stride[0]) == (5, 2)
    assert fifth._padding(56) == (1, 2)
    images = torch.rand(1, 3, 8, 8)
    shifted = torch.nn.functional.conv2d(torch.nn.functional.pad(images, (0, 1, 0, 1)), first.conv.weight, stride=2)
    with torch.no_grad():
        torch.testing.assert_close(first(images), first.norm(shifted).clamp(0, 6))


def test_where_shape_stays_the_same_what_came_in_is_added(network):
    assert [index for index, block in enumerate(network.blocks) if block.shortcut] == [2, 4, 6, 7, 9, 10, 12, 13, 14]
    block, images = network.blocks[2], torch.rand(1, 24, 6, 6)
    with torch.no_grad():
        narrow = block.project(block.depthwise(block.expand(images)))
        torch.testing.assert_close(block(images), narrow + images)


def test_grey_pixels_of_127_are_zero(network):
    seen = []
    hook = network.stem.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        network(torch.full((1, 3, 32, 32), 127.0))
        network(torch.full((1, 3, 32, 32), 255.0))
    hook.remove()
    assert (seen[0] == 0).all()
    assert (seen[1] == 1).all()

"""The network for digits, the batches it sees, and that what was moved for speed changed nothing."""

import math

import pytest
import torch
from torch import nn

from momentalign.paper.digit_networks import (
    EMBEDDING,
    EMBEDDING_INTERVAL,
    Augmentation,
    DeviceBatches,
    DigitCNN,
    augment,
    standardize,
)

EVERYTHING = Augmentation(rotation=20.0, scale=0.2, shift=0.1, shear=0.1, channel_inversion=0.5)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return DigitCNN().eval()


@pytest.fixture
def inputs():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_weights_start_as_glorot_says_and_biases_at_zero(network):
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            assert not layer.bias.any()
            inputs, outputs = layer.weight[0].numel(), layer.weight[:, 0].numel()
            bound = (6 / (inputs + outputs)) ** 0.5
            assert 0.95 * bound < layer.weight.abs().max() <= bound


def test_the_embedding_is_bounded_and_named(network, inputs):
    layer = dict(network.named_modules())[EMBEDDING]
    seen = []
    layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    network(1000 * inputs)
    low, high = EMBEDDING_INTERVAL
    assert seen[0].shape == (3, 128)
    assert low <= seen[0].min() < -0.9
    assert 0.9 < seen[0].max() <= high


def test_the_embedding_is_in_single_precision_under_half(network, inputs):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert network.features(inputs).dtype == torch.bfloat16
        assert network.embedding(network.features(inputs)).dtype == torch.float32


def test_elu_after_the_maximum_is_elu_before_it(network, inputs):
    layers = list(network.features)
    swapped = []
    for layer in layers:
        if isinstance(layer, nn.ELU) and swapped and isinstance(swapped[-1], nn.MaxPool2d):
            swapped.insert(-1, layer)
        else:
            swapped.append(layer)
    assert [type(layer) for layer in swapped] != [type(layer) for layer in layers]
    torch.testing.assert_close(nn.Sequential(*swapped)(inputs), network.features(inputs))


# Batches


@pytest.fixture
def images():
    """Twelve images whose top half is brighter the later they come, so that they can be told apart."""
    values = torch.full((12, 3, 4, 4), 10, dtype=torch.uint8)
    values[:, :, 0, 0] = 20 * torch.arange(12, dtype=torch.uint8)[:, None] + 30
    values[:, :, 0, 1] = 255
    return values


@pytest.fixture
def labels():
    return torch.tensor([3] * 8 + [5] * 3 + [9])


def rows_of(batch):
    """Which images are in a batch, whose pixels were standardised."""
    low, high = batch[:, 0, 1, 1], batch[:, 0, 0, 1]
    return (((batch[:, 0, 0, 0] - low) / (high - low) * 245 - 20) / 20).round().long()


def test_every_class_has_its_exact_share(images, labels):
    batches = DeviceBatches(images, labels, batch_size=9)
    assert len(batches) == 2
    for batch, classes in batches:
        assert classes.tolist() == [3, 5, 9] * 3
        assert torch.equal(labels[rows_of(batch)], classes)
    uneven = DeviceBatches(images, labels, batch_size=7)
    assert sorted(next(iter(uneven))[1].tolist()) == [3, 3, 3, 5, 5, 9, 9]


def test_shares_are_followed_to_the_image(images, labels):
    batches = DeviceBatches(images, labels, batch_size=100)
    for shares in ([0.5, 0.3, 0.2], [2.0, 0.0, 6.0], [0.0, 0.0, 1.0]):
        batches.follow(torch.tensor(shares))
        wanted = 100 * torch.tensor(shares) / sum(shares)
        counts = []
        for _ in range(20):
            batch, classes = next(iter(batches))
            assert torch.equal(labels[rows_of(batch)], classes)
            counts.append(torch.stack([(classes == label).sum() for label in (3, 5, 9)]).float())
            assert (counts[-1] - wanted).abs().max() < 2
        torch.testing.assert_close(torch.stack(counts).mean(0), wanted, atol=0.7, rtol=0)


@pytest.mark.parametrize("labelled", [True, False])
def test_every_image_is_drawn_equally_often_within_its_group(images, labels, labelled):
    batch = next(iter(DeviceBatches(images, labels if labelled else None, batch_size=12_000)))
    share = torch.bincount(rows_of(batch[0] if labelled else batch), minlength=12) / 12_000
    sizes = torch.tensor([8] * 8 + [3] * 3 + [1])
    expected = 1 / (3 * sizes) if labelled else torch.full((12,), 1 / 12)
    torch.testing.assert_close(share, expected, atol=0.01, rtol=0)


def test_batches_are_standardised_changed_as_they_are_told_and_drawn_by_the_generator(images, labels):
    (batch,) = DeviceBatches(images, batch_size=12)
    torch.testing.assert_close(batch.mean((1, 2, 3)), torch.zeros(12), atol=1e-5, rtol=0)
    torch.testing.assert_close(batch.square().mean((1, 2, 3)), torch.ones(12))
    inverted = DeviceBatches(images, batch_size=4, augmentation=Augmentation(channel_inversion=1.0))
    assert (next(iter(inverted))[:, :, 1, 1] > 0).all()
    batches = DeviceBatches(images, labels, batch_size=6, augmentation=Augmentation(rotation=90.0))

    def drawn(seed):
        torch.manual_seed(seed)
        return torch.cat([batch for batch, _ in batches])

    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(4))


# Changes of images


@pytest.fixture
def floats():
    return torch.rand(6, 3, 20, 24, generator=torch.Generator().manual_seed(7))


def blob(count, side=33, x=0.0, y=0.0):
    """A bright spot at (x, y) from the middle, in pixels."""
    place = torch.arange(side) - side // 2
    spot = torch.exp(-((place - x) ** 2 + (place[:, None] - y) ** 2) / 8)
    return spot.expand(count, 1, side, side).contiguous()


def centres(images):
    """Centre of mass of each image in pixels from its middle: across, down."""
    down, across = ((torch.arange(size) - size // 2).float() for size in images.shape[2:])
    mass = images.sum((1, 2, 3))
    return (images.sum((1, 2)) @ across) / mass, (images.sum((1, 3)) @ down) / mass


def test_colours_are_inverted_one_by_one_with_their_probability(floats):
    assert torch.equal(augment(floats, Augmentation(channel_inversion=1.0)), 1 - floats)
    many = augment(torch.zeros(4000, 3, 2, 2), Augmentation(channel_inversion=0.3))
    assert many.mean().item() == pytest.approx(0.3, abs=0.02)
    assert (many[:, 0] != many[:, 1]).any()


def test_rotation_is_even_between_its_bounds():
    turned = augment(blob(3000, x=9.0), Augmentation(rotation=40.0))
    across, down = centres(turned)
    angles = torch.rad2deg(torch.atan2(down, across))
    assert torch.hypot(across, down).sub(9).abs().max() < 0.1
    assert 38 < angles.max() < 40.5
    assert -40.5 < angles.min() < -38
    quarters = torch.histc(angles, 4, -40, 40) / len(angles)
    assert (quarters - 0.25).abs().max() < 0.03


def test_shift_moves_both_ways_by_at_most_its_share_of_the_side():
    for moved in centres(augment(blob(3000), Augmentation(shift=0.2))):
        assert moved.mean().abs() < 0.2
        assert 0.95 * 6.6 < moved.abs().max() < 6.7
        assert moved.std() == pytest.approx(6.6 / math.sqrt(3), rel=0.05)


def test_scale_moves_away_and_towards_the_middle_by_the_same_factor():
    across, down = centres(augment(blob(3000, x=6.0), Augmentation(scale=0.5)))
    assert across.max() == pytest.approx(9, rel=0.03)
    assert across.min() == pytest.approx(4, rel=0.03)
    assert across.log().mean() == pytest.approx(math.log(6), abs=0.02)
    assert down.abs().max() < 0.1


def test_shear_moves_only_along_rows():
    across, down = centres(augment(blob(1000, y=8.0), Augmentation(shear=0.5)))
    assert (down - 8).abs().max() < 0.1
    assert across.abs().max() == pytest.approx(4, rel=0.05)


def test_rotation_and_shear_together_keep_areas():
    spots = blob(300)
    mass = augment(spots, Augmentation(rotation=60.0, shear=0.5)).sum((1, 2, 3))
    torch.testing.assert_close(mass, spots.sum((1, 2, 3)), rtol=0.02, atol=0)


def test_standardized_images_have_mean_zero_and_std_one_but_nearly_constant_ones_stay_so(floats):
    floats[0] = 0.4 + 1e-5 * floats[0]
    result = standardize(floats)
    assert result[0].abs().max() < 0.01
    torch.testing.assert_close(result.mean((1, 2, 3)), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(result[1:].std((1, 2, 3), correction=0), torch.ones(5))


@pytest.mark.gpu
def test_the_gpu_changes_images_without_waiting_for_the_host(floats):
    there = floats.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = standardize(augment(there, EVERYTHING))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.isfinite().all()

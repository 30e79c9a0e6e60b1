"""Batches drawn where the images are: what is in them, how they are drawn, and what is refused."""

import pytest
import torch

from momentalign.errors import InvalidInputError
from momentalign.paper.augmentation import Augmentation, DeviceBatches, prepared


@pytest.fixture
def images():
    """Twelve images, each of one grey of its own but for one white pixel."""
    values = 20 * torch.arange(12, dtype=torch.uint8)[:, None, None, None].expand(12, 3, 4, 4).clone()
    values[:, :, 0, 0] = 255
    return values


@pytest.fixture
def labels():
    return torch.tensor([3] * 8 + [5] * 3 + [9])


def rows_of(batch):
    """Which images are in a batch that was not standardised."""
    return ((batch[:, 0, 1, 1] + 1) / 2 * 255 / 20).round().long()


def test_every_class_has_its_exact_share(images, labels):
    batches = DeviceBatches(images, labels, batch_size=9, balanced=True, standardized=False)
    assert len(batches) == 2
    for batch, classes in batches:
        assert classes.tolist() == [3, 5, 9] * 3
        assert torch.equal(labels[rows_of(batch)], classes)
    uneven = DeviceBatches(images, labels, batch_size=7, balanced=True)
    assert sorted(next(iter(uneven))[1].tolist()) == [3, 3, 3, 5, 5, 9, 9]


def test_shares_are_followed_to_the_image(images, labels):
    batches = DeviceBatches(images, labels, batch_size=100, balanced=True, standardized=False)
    for shares in ([0.5, 0.3, 0.2], [2.0, 0.0, 6.0], [0.0, 0.0, 1.0]):
        batches.follow(torch.tensor(shares))
        wanted = 100 * torch.tensor(shares) / sum(shares)
        counts = []
        for _ in range(50):
            batch, classes = next(iter(batches))
            assert torch.equal(labels[rows_of(batch)], classes)
            counts.append(torch.stack([(classes == label).sum() for label in (3, 5, 9)]).float())
            assert (counts[-1] - wanted).abs().max() < 2
        torch.testing.assert_close(torch.stack(counts).mean(0), wanted, atol=0.5, rtol=0)


def test_part_of_a_batch_has_about_the_shares_that_are_followed(images, labels):
    torch.manual_seed(0)
    batches = DeviceBatches(images, labels, batch_size=1000, balanced=True)
    batches.follow(torch.tensor([0.5, 0.3, 0.2]))
    first = next(iter(batches))[1][:500]
    found = torch.stack([(first == label).float().mean() for label in (3, 5, 9)])
    torch.testing.assert_close(found, torch.tensor([0.5, 0.3, 0.2]), atol=0.05, rtol=0)


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.2] * 5, [[0.2, 0.3, 0.5]]])
def test_shares_of_other_classes_are_refused(images, labels, shares):
    batches = DeviceBatches(images, labels, batch_size=9, balanced=True)
    with pytest.raises(InvalidInputError, match="of classes there are 3; make balanced batches and give one share"):
        batches.follow(torch.tensor(shares))
    with pytest.raises(InvalidInputError, match="of classes none are told apart"):
        DeviceBatches(images, labels, batch_size=9).follow(torch.tensor([0.2, 0.3, 0.5]))


@pytest.mark.parametrize("balanced", [True, False])
def test_every_image_is_drawn_equally_often_within_its_group(images, labels, balanced):
    torch.manual_seed(0)
    batches = DeviceBatches(images, labels, batch_size=12_000, balanced=balanced, standardized=False)
    batch, classes = next(iter(batches))
    rows = rows_of(batch)
    assert torch.equal(labels[rows], classes)
    share = torch.bincount(rows, minlength=12) / 12_000
    sizes = torch.tensor([8] * 8 + [3] * 3 + [1])
    expected = 1 / (3 * sizes) if balanced else torch.full((12,), 1 / 12)
    torch.testing.assert_close(share, expected, atol=0.01, rtol=0)


def test_without_labels_a_batch_is_the_images(images):
    batches = DeviceBatches(images, batch_size=5)
    drawn = list(batches)
    assert len(drawn) == len(batches) == 3
    assert all(isinstance(batch, torch.Tensor) and batch.shape == (5, 3, 4, 4) for batch in drawn)


def test_images_are_standardised_or_from_minus_one_to_one(images):
    (batch,) = DeviceBatches(images, batch_size=12)
    torch.testing.assert_close(batch.mean((1, 2, 3)), torch.zeros(12), atol=1e-5, rtol=0)
    torch.testing.assert_close(batch.square().mean((1, 2, 3)), torch.ones(12))
    (batch,) = DeviceBatches(images, batch_size=12, standardized=False)
    assert torch.equal(batch[:, :, 0, 0], torch.ones(12, 3))
    assert prepared(torch.tensor([0.0, 0.25, 1.0]), standardized=False).tolist() == [-1.0, -0.5, 1.0]


def test_images_change_as_far_as_they_are_told(images):
    inverted = DeviceBatches(images, batch_size=4, augmentation=Augmentation(inversion=1.0), standardized=False)
    assert torch.equal(next(iter(inverted))[:, :, 0, 0], -torch.ones(4, 3))


def test_the_generator_of_the_device_decides(images, labels):
    batches = DeviceBatches(images, labels, batch_size=6, augmentation=Augmentation(rotation=90.0), balanced=True)

    def drawn(seed):
        torch.manual_seed(seed)
        return torch.cat([batch for batch, _ in batches])

    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(4))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 of 12 images gives no batch"),
        ({"batch_size": 4, "balanced": True}, "balanced=True needs to know the classes; give labels"),
        ({"batch_size": 4, "labels": torch.arange(3)}, "labels has 3 entries for 12 images; give one for each"),
        (
            {"batch_size": 2, "balanced": True, "labels": torch.arange(12) % 3},
            "batch_size=2 is less than the 3 classes, so balanced batches would leave some out; raise it",
        ),
    ],
)
def test_what_gives_no_batch_is_refused(images, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        DeviceBatches(images, settings.pop("labels", None), **settings)
    if "batch_size=0" in message:
        with pytest.raises(InvalidInputError, match="batch_size=4 of 0 images"):
            DeviceBatches(images[:0], batch_size=4)

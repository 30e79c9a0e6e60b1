"""Image batches: what is in them, how far images change, and the same for the same generator."""

import math

import pytest
import torch

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.paper.augmentation import Augmentation, DeviceBatches, augment, prepared, standardize, to_float

EVERYTHING = Augmentation(rotation=20.0, scale=0.2, shift=0.1, shear=0.1, channel_inversion=0.5)


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
        for _ in range(20):
            batch, classes = next(iter(batches))
            assert torch.equal(labels[rows_of(batch)], classes)
            counts.append(torch.stack([(classes == label).sum() for label in (3, 5, 9)]).float())
            assert (counts[-1] - wanted).abs().max() < 2
        torch.testing.assert_close(torch.stack(counts).mean(0), wanted, atol=0.7, rtol=0)


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
    with pytest.raises(
        InvalidInputError, match="these batches have 3 classes; make balanced batches and give one share"
    ):
        batches.follow(torch.tensor(shares))
    with pytest.raises(InvalidInputError, match="these batches are not balanced"):
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
    inverted = DeviceBatches(images, batch_size=4, augmentation=Augmentation(channel_inversion=1.0), standardized=False)
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


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


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


def test_nothing_changes_when_all_ranges_are_zero(floats):
    assert torch.equal(augment(floats, Augmentation()), floats)


def test_each_image_and_each_call_has_its_own_random_numbers():
    same = torch.rand(1, 3, 16, 16).expand(5, -1, -1, -1)
    one, other = augment(same, EVERYTHING), augment(same, EVERYTHING)
    assert not torch.isclose(one, other).all()
    assert not torch.isclose(one[0], one[1]).all()
    assert one.shape == same.shape
    assert one.isfinite().all()


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


def test_rotation_keeps_lengths_on_images_that_are_not_square():
    wide = blob(200, x=9.0)[:, :, 4:-4]
    across, down = centres(augment(wide, Augmentation(rotation=30.0)))
    assert torch.hypot(across, down).sub(9).abs().max() < 0.1


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


@pytest.mark.parametrize(
    ("field", "value"), [("rotation", -1.0), ("shear", math.inf), ("scale", math.nan), ("channel_inversion", 1.5)]
)
def test_ranges_that_make_no_sense_are_refused(field, value):
    with pytest.raises(InvalidInputError, match=f"{field} .*{value}"):
        Augmentation(**{field: value})


def test_images_that_cannot_be_augmented_are_refused(floats):
    with pytest.raises(InvalidInputError, match=r"shape \(N, C, H, W\), got \(20, 24\)"):
        augment(floats[0, 0], EVERYTHING)
    with pytest.raises(InvalidTypeError, match=r"got torch.uint8; use to_float"):
        augment((floats * 255).byte(), EVERYTHING)
    with pytest.raises(InvalidTypeError, match=r"got torch.float32"):
        to_float(floats)


@pytest.mark.gpu
def test_the_gpu_changes_images_without_waiting_for_the_host(floats):
    there = floats.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = standardize(augment(there, EVERYTHING))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.isfinite().all()

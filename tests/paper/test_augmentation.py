"""Augmentation of image batches: each range does what it says, nothing more, and the same for the same generator."""

import math
import warnings

import pytest
import torch

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.paper.augmentation import Augmentation, augment, blur, crop_and_mirror, standardize, to_float

EVERYTHING = Augmentation(
    rotation=20.0,
    scale=0.2,
    shift=0.1,
    shear=0.1,
    inversion=0.5,
    contrast=0.3,
    brightness=0.2,
    channel=0.1,
    blur=1.0,
    noise=0.05,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images():
    return torch.rand(6, 3, 20, 24, generator=seeded(7))


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


def test_nothing_changes_when_all_ranges_are_zero(images):
    assert torch.equal(augment(images, Augmentation()), images)


def test_same_generator_same_images_and_images_of_a_batch_differ():
    same = torch.rand(1, 3, 16, 16, generator=seeded()).expand(5, -1, -1, -1)
    one, again, other = (augment(same, EVERYTHING, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.isclose(one, other).all()
    assert not torch.isclose(one[0], one[1]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_shape_type_and_memory_format_stay(images, dtype, memory):
    given = images.to(dtype).contiguous(memory_format=memory)
    for result in (augment(given, EVERYTHING), standardize(given), crop_and_mirror(given, 16)):
        assert result.dtype == dtype
        assert result.is_contiguous(memory_format=memory)
        assert result.isfinite().all()
    assert augment(given, EVERYTHING).shape == images.shape


def test_inversion_is_the_negative_with_its_probability(images):
    assert torch.equal(augment(images, Augmentation(inversion=1.0)), 1 - images)
    many = torch.zeros(4000, 1, 2, 2)
    share = augment(many, Augmentation(inversion=0.3), generator=seeded()).mean().item()
    assert share == pytest.approx(0.3, abs=0.03)


def test_rotation_is_even_between_its_bounds():
    turned = augment(blob(3000, x=9.0), Augmentation(rotation=40.0), generator=seeded())
    across, down = centres(turned)
    angles = torch.rad2deg(torch.atan2(down, across))
    assert torch.hypot(across, down).sub(9).abs().max() < 0.1
    assert 38 < angles.max() < 40.5
    assert -40.5 < angles.min() < -38
    quarters = torch.histc(angles, 4, -40, 40) / len(angles)
    assert (quarters - 0.25).abs().max() < 0.03


def test_rotation_keeps_lengths_on_images_that_are_not_square():
    wide = blob(200, x=9.0)[:, :, 4:-4]
    across, down = centres(augment(wide, Augmentation(rotation=30.0), generator=seeded()))
    assert torch.hypot(across, down).sub(9).abs().max() < 0.1


def test_shift_moves_both_ways_by_at_most_its_share_of_the_side():
    for moved in centres(augment(blob(3000), Augmentation(shift=0.2), generator=seeded())):
        assert moved.mean().abs() < 0.2
        assert 0.95 * 6.6 < moved.abs().max() < 6.7
        assert moved.std() == pytest.approx(6.6 / math.sqrt(3), rel=0.05)


def test_scale_moves_away_and_towards_the_middle_by_the_same_factor():
    across, down = centres(augment(blob(3000, x=6.0), Augmentation(scale=0.5), generator=seeded()))
    assert across.max() == pytest.approx(9, rel=0.03)
    assert across.min() == pytest.approx(4, rel=0.03)
    assert across.log().mean() == pytest.approx(math.log(6), abs=0.02)
    assert down.abs().max() < 0.1


def test_shear_moves_only_along_rows():
    across, down = centres(augment(blob(1000, y=8.0), Augmentation(shear=0.5), generator=seeded()))
    assert (down - 8).abs().max() < 0.1
    assert across.abs().max() == pytest.approx(4, rel=0.05)


def test_rotation_and_shear_together_keep_areas():
    spots = blob(300)
    mass = augment(spots, Augmentation(rotation=60.0, shear=0.5), generator=seeded()).sum((1, 2, 3))
    torch.testing.assert_close(mass, spots.sum((1, 2, 3)), rtol=0.02, atol=0)


def test_contrast_keeps_means_and_brightness_keeps_deviations(images):
    flatter = augment(images, Augmentation(contrast=0.5), generator=seeded())
    torch.testing.assert_close(flatter.mean((1, 2, 3)), images.mean((1, 2, 3)))
    factors = flatter.std((1, 2, 3)) / images.std((1, 2, 3))
    assert ((factors >= 0.5) & (factors <= 1.5)).all()
    assert factors.std() > 0.1
    lighter = augment(images, Augmentation(brightness=0.4), generator=seeded()) - images
    torch.testing.assert_close(lighter, lighter[:, :1, :1, :1].expand_as(lighter))
    assert 0.1 < lighter.abs().max() <= 0.4


def test_channel_moves_each_colour_by_itself(images):
    moved = augment(images, Augmentation(channel=0.4), generator=seeded()) - images
    torch.testing.assert_close(moved, moved[:, :, :1, :1].expand_as(moved))
    assert moved[:, :, 0, 0].std(dim=1).min() > 0.01
    assert moved.abs().max() <= 0.4 + 1e-6


def test_noise_has_deviations_up_to_its_bound():
    noise = augment(torch.zeros(400, 1, 32, 32), Augmentation(noise=0.2), generator=seeded())
    deviations = noise.std((1, 2, 3))
    assert deviations.max() == pytest.approx(0.2, rel=0.08)
    assert deviations.mean() == pytest.approx(0.1, rel=0.1)


def test_augmented_blur_is_drawn_for_each_image():
    sharp = torch.zeros(500, 1, 33, 33)
    sharp[:, :, 16, 16] = 1
    blurred = augment(sharp, Augmentation(blur=2.0), generator=seeded())
    torch.testing.assert_close(blurred.sum((1, 2, 3)), torch.ones(500), atol=1e-3, rtol=0)
    peaks = blurred[:, 0, 16, 16]
    assert peaks.max() > 0.9
    assert peaks.min() == pytest.approx(1 / (2 * math.pi * 4), rel=0.05)


def test_blur_has_the_stated_deviations_down_and_across():
    sharp = torch.zeros(1, 1, 31, 31)
    sharp[..., 15, 15] = 1
    blurred = blur(sharp, torch.tensor([[1.5, 3.0]]))[0, 0]
    square = (torch.arange(31.0) - 15) ** 2
    assert (blurred.sum(1) @ square).sqrt() == pytest.approx(1.5, rel=1e-2)
    assert (blurred.sum(0) @ square).sqrt() == pytest.approx(3.0, rel=1e-2)


def test_blur_keeps_a_constant_image_up_to_its_border():
    flat = torch.full((2, 3, 9, 12), 0.7)
    torch.testing.assert_close(blur(flat, torch.tensor([[0.0, 2.0], [5.0, 0.0]])), flat)


def test_standardized_images_have_mean_zero_and_deviation_one_but_nearly_constant_ones_stay_so(images):
    images[0] = 0.4 + 1e-5 * images[0]
    result = standardize(images)
    assert result[0].abs().max() < 0.01
    torch.testing.assert_close(result.mean((1, 2, 3)), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(result[1:].std((1, 2, 3), correction=0), torch.ones(5))


def test_bytes_become_numbers_from_zero_to_one():
    values = to_float(torch.tensor([0, 128, 255], dtype=torch.uint8), dtype=torch.float64)
    assert values.tolist() == [0.0, 128 / 255, 1.0]


def test_crops_are_parts_of_the_image_at_every_place_mirrored_or_not():
    image = torch.arange(5 * 6, dtype=torch.uint8).view(1, 1, 5, 6)
    crops = crop_and_mirror(image.expand(2000, 3, -1, -1), 4, generator=seeded())
    assert crops.dtype == torch.uint8
    assert torch.equal(crops[:, 0], crops[:, 2])
    windows = [image[0, 0, top : top + 4, left : left + 4] for top in range(2) for left in range(3)]
    forms = {tuple(form.flatten().tolist()) for window in windows for form in (window, window.flip(1))}
    drawn = [tuple(crop.flatten().tolist()) for crop in crops[:, 0]]
    assert set(drawn) == forms
    assert all(drawn.count(form) == pytest.approx(2000 / 12, rel=0.35) for form in forms)


def test_a_crop_of_the_whole_side_is_the_image_or_its_mirror(images):
    square = images[..., :20]
    crops = crop_and_mirror(square, 20, generator=seeded())
    same = [torch.equal(crop, image) for crop, image in zip(crops, square, strict=True)]
    mirrored = [torch.equal(crop, image.flip(2)) for crop, image in zip(crops, square, strict=True)]
    assert all(one != other for one, other in zip(same, mirrored, strict=True))


@pytest.mark.parametrize(
    ("field", "value"), [("rotation", -1.0), ("noise", math.inf), ("scale", math.nan), ("inversion", 1.5)]
)
def test_ranges_that_make_no_sense_are_refused(field, value):
    with pytest.raises(InvalidInputError, match=f"{field} .*{value}"):
        Augmentation(**{field: value})


def test_images_that_cannot_be_augmented_are_refused(images):
    with pytest.raises(InvalidInputError, match=r"shape \(N, C, H, W\), got \(20, 24\)"):
        augment(images[0, 0], EVERYTHING)
    with pytest.raises(InvalidTypeError, match=r"got torch.uint8; use to_float"):
        augment((images * 255).byte(), EVERYTHING)
    with pytest.raises(InvalidTypeError, match=r"got torch.float32"):
        to_float(images)


@pytest.mark.parametrize("size", [0, 21])
def test_crops_that_do_not_fit_are_refused(images, size):
    with pytest.raises(InvalidInputError, match=f"20 x 24, got {size}"):
        crop_and_mirror(images, size)


def test_a_generator_of_another_device_is_refused(images):
    with pytest.raises(InvalidInputError, match="generator is on cpu but images are on meta"):
        augment(images.to("meta"), EVERYTHING, generator=seeded())


@pytest.mark.gpu
def test_the_gpu_changes_images_without_waiting_for_the_host(images):
    there = images.cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    with warnings.catch_warnings(action="ignore"):  # that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        result = standardize(crop_and_mirror(augment(there, EVERYTHING, generator=generator), 16, generator=generator))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.isfinite().all()

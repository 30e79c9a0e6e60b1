"""Generated digits: true shapes, the same images for the same seed, and near enough to house numbers to learn from."""

import sys

import numpy as np
import pytest
import torch
from scipy.ndimage import label
from torch import nn

from momentalign.paper import synthetic_digits
from momentalign.paper.digit_networks import standardize
from momentalign.paper.digits_data import SIDE, load_svhn
from momentalign.paper.synthetic_digits import (
    BLOCK,
    CELL,
    FONTS,
    PENS,
    REACH,
    GlyphBank,
    glyph_bank,
    make_synth_digits,
)

SQUARE = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 20.0], [0.0, 20.0]])


def points():
    centres = REACH * ((2 * np.arange(CELL) + 1) / CELL - 1)
    return np.meshgrid(centres, centres)


def holes(cell):
    """Pieces of the ground that a digit encloses."""
    return label(cell > 0)[1] - 1


def test_distances_to_a_box_are_exact_and_negative_inside():
    distance, width = synthetic_digits._printed([SQUARE])
    x, y = points()
    beyond_x, beyond_y = np.abs(x) - 0.25, np.abs(y) - 0.5
    outside = np.hypot(np.maximum(beyond_x, 0), np.maximum(beyond_y, 0))
    np.testing.assert_allclose(distance, outside + np.minimum(np.maximum(beyond_x, beyond_y), 0), atol=1e-12)
    assert width == 0.5


@pytest.mark.parametrize("turn", [1, -1])
def test_a_contour_the_other_way_round_is_a_hole_whatever_the_first_one_does(turn):
    hole = SQUARE[::-1] / 2 + [2.5, 5.0]
    distance, _ = synthetic_digits._printed([SQUARE[::turn], hole[::turn]])
    assert distance[CELL // 2, CELL // 2] > 0
    assert holes(distance) == 1


def test_strokes_of_a_pen_have_its_width_and_reach_height_one():
    distance, width = synthetic_digits._drawn([np.array([[0.0, -0.5], [0.0, 0.5]])], 0.1)
    x, y = points()
    np.testing.assert_allclose(distance, np.hypot(x, np.maximum(np.abs(y) - 0.4, 0)) - 0.1, atol=1e-12)
    assert width == pytest.approx(0.2)


def test_every_digit_fills_its_height_and_its_width():
    bank = glyph_bank()
    assert len(bank.widths) == len(FONTS) + len(PENS) * 2
    assert bank.distances.dtype == bank.widths.dtype == np.float32
    x, y = points()
    edge = 2 * REACH / CELL + 0.01
    for cell, width in zip(bank.distances.reshape(-1, CELL, CELL), bank.widths.ravel(), strict=True):
        assert np.abs(y[cell < 0]).max() == pytest.approx(0.5, abs=edge)
        assert np.abs(x[cell < 0]).max() == pytest.approx(width / 2, abs=edge)


def test_digits_have_the_holes_they_should_have():
    found = np.array([[holes(cell) for cell in font] for font in glyph_bank().distances])
    # Not in every font: there are open fours, and hairlines fall between the points of a cell.
    assert ((found == [1, 0, 0, 0, 1, 0, 1, 0, 2, 1]).mean(axis=0) > 0.7).all()


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    glyph_bank.cache_clear()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[deep\]"):
        glyph_bank()


def test_blur_has_the_stated_width_and_keeps_a_constant_image_up_to_its_border():
    sharp = torch.zeros(2, 1, 31, 31)
    sharp[..., 15, 15] = 1
    blurred = synthetic_digits._blur(sharp, torch.tensor([1.5, 3.0]))[:, 0]
    square = (torch.arange(31.0) - 15) ** 2
    for image, width in zip(blurred, (1.5, 3.0), strict=True):
        assert (image.sum(1) @ square).sqrt() == pytest.approx(width, rel=1e-2)
        assert (image.sum(0) @ square).sqrt() == pytest.approx(width, rel=1e-2)
    flat = torch.full((2, 3, 12, 12), 0.7)
    torch.testing.assert_close(synthetic_digits._blur(flat, torch.tensor([0.0, 5.0])), flat)


# What the first block of seed 0 began with when the generator was written.
LABELS = [6, 3, 0, 6, 6, 6, 9, 6, 8, 7, 1, 0]
MEANS = [125.31, 177.47, 131.13, 108.83, 133.58, 181.61]


@pytest.fixture(scope="module")
def digits():
    return make_synth_digits(1000, seed=3)


def test_images_are_bytes_in_three_colours_with_their_digits(digits):
    assert digits.images.shape == (1000, 3, SIDE, SIDE)
    assert digits.images.dtype == np.uint8
    assert digits.labels.dtype == np.int64
    assert np.bincount(digits.labels, minlength=10).tolist() == pytest.approx([100] * 10, rel=0.35)
    assert digits.images.std(axis=(1, 2, 3)).min() > 1


def test_a_smaller_set_is_the_beginning_of_a_larger_one_whatever_the_threads(digits):
    size = BLOCK + 7
    smaller = make_synth_digits(size, seed=3, n_jobs=2)
    np.testing.assert_array_equal(smaller.images, digits.images[:size])
    np.testing.assert_array_equal(smaller.labels, digits.labels[:size])


def test_the_same_seed_gives_the_images_it_gave_before():
    block = make_synth_digits(BLOCK)
    assert block.labels[:12].tolist() == LABELS
    assert block.images[:6].mean(axis=(1, 2, 3)).tolist() == pytest.approx(MEANS, abs=0.5)


def only_seven():
    """A font whose seven is a black box and whose other digits are invisible."""
    points = REACH * ((2 * np.arange(CELL) + 1) / CELL - 1)
    distances = np.full((1, 10, CELL, CELL), 1.0, np.float32)
    distances[0, 7] = np.maximum(np.abs(points) - 0.3, np.abs(points[:, None]) - 0.5)
    return GlyphBank(distances, np.full((1, 10), 0.6, np.float32))


def photograph(count, bank):
    return synthetic_digits._photograph(synthetic_digits._Draws(np.random.default_rng(0), count), bank)


def contrast(part, ground):
    return np.abs(part.mean(axis=(1, 2, 3)) - ground.mean(axis=(1, 2, 3))).mean()


def test_the_label_is_the_digit_in_the_middle_and_neighbours_stand_on_both_sides():
    images, labels = photograph(3000, only_seven())
    images, seven = images.numpy(), labels.numpy() == 7
    middle, ground = images[..., 13:19, 13:19], images[..., :2, 13:19]
    assert contrast(middle[seven], ground[seven]) > 2 * contrast(middle[~seven], ground[~seven])
    # Another digit has a seven beside it with probability 0.4 / 10, as often on either side.
    others = images[~seven]
    left, right = (
        np.abs(side.mean(axis=(2, 3)) - middle[~seven].mean(axis=(2, 3))).max(axis=1) > 0.1
        for side in (others[..., 13:19, :3], others[..., 13:19, 29:])
    )
    assert left.mean() == pytest.approx(0.04, abs=0.012)
    assert right.mean() == pytest.approx(left.mean(), rel=0.3)


def test_grounds_have_all_colours_and_digits_can_be_told_from_them():
    images, _ = photograph(2000, only_seven())
    corner = images[..., :2, :2].mean(dim=(2, 3))
    assert corner.quantile(0.1, dim=0).max() < 0.2
    assert corner.quantile(0.9, dim=0).min() > 0.8
    digits = photograph(2000, glyph_bank())[0]
    apart = (digits.amax(dim=(2, 3)) - digits.amin(dim=(2, 3))).amax(dim=1)
    assert (apart > 0.25).float().mean() > 0.99


@pytest.mark.long
@pytest.mark.data
def test_a_plain_network_trained_on_it_reads_most_house_numbers():
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(48, 96, 3, padding=1), nn.BatchNorm2d(96), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(96 * 16, 10)),
    )
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    images, labels = make_synth_digits(80 * BLOCK, seed=1)
    for rows in (slice(start, start + BLOCK) for start in range(0, len(labels), BLOCK)):
        loss = nn.functional.cross_entropy(network(_grey(images[rows])), torch.from_numpy(labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    svhn = load_svhn("test")
    with torch.no_grad():
        found = network(_grey(svhn.images[:3000])).argmax(1).numpy()
    assert 0.55 < (found == svhn.labels[:3000]).mean() < 0.9


def _grey(images):
    return standardize((torch.from_numpy(images).float() / 255).mean(1, keepdim=True))

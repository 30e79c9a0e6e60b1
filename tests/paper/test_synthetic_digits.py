"""Generated digits: the same for the same seed, of the stated kind, and near enough to house numbers to learn from."""

import itertools
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from torch import nn

from momentalign.errors import InvalidInputError
from momentalign.paper.augmentation import standardize, to_float
from momentalign.paper.digits_data import load_svhn
from momentalign.paper.synthetic_digits import (
    BLOCK,
    CELL,
    SIDE,
    Dice,
    GlyphBank,
    glyph_bank,
    make_synth_digits,
    photograph_digits,
    synth_block,
    synth_blocks,
)

# What the first block of seed 0 began with when the generator was written.
LABELS = [6, 3, 0, 6, 6, 6, 9, 6, 8, 7, 1, 0]
MEANS = [125.31, 177.47, 131.13, 108.83, 133.58, 181.61]


@pytest.fixture(scope="module")
def digits():
    return make_synth_digits(2000, seed=3)


def test_images_are_bytes_in_three_colours_with_their_digits(digits):
    assert digits.images.shape == (2000, 3, SIDE, SIDE)
    assert digits.images.dtype == np.uint8
    assert digits.labels.dtype == np.int64
    assert np.bincount(digits.labels, minlength=10).tolist() == pytest.approx([200] * 10, rel=0.25)
    assert digits.images.std(axis=(1, 2, 3)).min() > 1


def test_a_smaller_set_is_the_beginning_of_a_larger_one(digits):
    size = BLOCK + 7
    smaller = make_synth_digits(size, seed=3)
    np.testing.assert_array_equal(smaller.images, digits.images[:size])
    np.testing.assert_array_equal(smaller.labels, digits.labels[:size])


def test_threads_change_nothing(digits):
    parallel = make_synth_digits(len(digits.labels), seed=3, n_jobs=2)
    np.testing.assert_array_equal(parallel.images, digits.images)
    np.testing.assert_array_equal(parallel.labels, digits.labels)


def test_blocks_are_the_parts_of_the_set_and_begin_anywhere(digits):
    blocks = list(itertools.islice(synth_blocks(seed=3, start=2), 2))
    for number, block in enumerate(blocks, start=2):
        place = slice(number * BLOCK, (number + 1) * BLOCK)
        np.testing.assert_array_equal(block.images, digits.images[place])
        np.testing.assert_array_equal(block.labels, digits.labels[place])


def test_other_seeds_and_other_blocks_give_other_images():
    drawn = [synth_block(0, seed=0), synth_block(1, seed=0), synth_block(0, seed=1)]
    for one, other in itertools.combinations(drawn, 2):
        assert (one.images == other.images).mean() < 0.05
        assert (one.labels == other.labels).mean() < 0.2


def test_the_same_seed_gives_the_images_it_gave_before():
    block = synth_block(0)
    assert block.labels[:12].tolist() == LABELS
    assert block.images[:6].mean(axis=(1, 2, 3)).tolist() == pytest.approx(MEANS, abs=0.5)


def test_more_fonts_change_the_images_but_not_the_digits():
    font = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"
    plain, more = synth_block(0), synth_block(0, fonts=[font])
    np.testing.assert_array_equal(plain.labels, more.labels)
    assert not (plain.images == more.images).all()


def only_seven():
    """A font whose seven is a black box and whose other digits are invisible."""
    place = 0.8 * ((2 * np.arange(CELL) + 1) / CELL - 1)
    distances = np.full((1, 10, CELL, CELL), 1.0, np.float32)
    distances[0, 7] = np.maximum(np.abs(place) - 0.3, np.abs(place[:, None]) - 0.5)
    return GlyphBank(distances, np.full((1, 10), 0.6, np.float32))


def contrast(part, ground):
    return np.abs(part.mean(axis=(1, 2, 3)) - ground.mean(axis=(1, 2, 3))).mean()


def test_the_label_is_the_digit_in_the_middle_and_neighbours_stand_on_both_sides():
    images, labels = photograph_digits(Dice(np.random.default_rng(0), 6000, torch.device("cpu")), only_seven())
    images, seven = images.numpy(), labels.numpy() == 7
    middle, ground = images[..., 13:19, 13:19], images[..., :2, 13:19]
    assert contrast(middle[seven], ground[seven]) > 2 * contrast(middle[~seven], ground[~seven])
    # Another digit has a seven beside it with probability 0.4 / 10, as often on either side.
    others = images[~seven]
    left, right = (
        np.abs(side.mean(axis=(2, 3)) - middle[~seven].mean(axis=(2, 3))).max(axis=1) > 0.1
        for side in (others[..., 13:19, :3], others[..., 13:19, 29:])
    )
    assert left.mean() == pytest.approx(0.04, abs=0.008)
    assert right.mean() == pytest.approx(left.mean(), rel=0.2)


@pytest.mark.parametrize("size", [0, -5])
def test_an_empty_set_is_refused(size):
    with pytest.raises(InvalidInputError, match=f"size must be at least 1, got {size}"):
        make_synth_digits(size)


@pytest.mark.parametrize(("block", "seed"), [(-1, 0), (0, -1)])
def test_negative_seeds_and_blocks_are_refused(block, seed):
    with pytest.raises(InvalidInputError, match=f"got seed={seed} and block={block}"):
        synth_block(block, seed=seed)


@pytest.mark.gpu
def test_the_gpu_draws_the_same_images():
    there, here = synth_block(4, seed=2, device="cuda"), synth_block(4, seed=2)
    np.testing.assert_array_equal(there.labels, here.labels)
    apart = np.abs(there.images.astype(int) - here.images)
    # A pixel exactly between two digits may fall to either.
    assert (apart > 1).mean() < 1e-5


def test_grounds_have_all_colours_and_digits_can_be_told_from_them():
    images, _ = photograph_digits(Dice(np.random.default_rng(0), 2000, torch.device("cpu")), only_seven())
    corner = images[..., :2, :2].mean(dim=(2, 3))
    assert corner.quantile(0.1, dim=0).max() < 0.2
    assert corner.quantile(0.9, dim=0).min() > 0.8
    digits = photograph_digits(Dice(np.random.default_rng(0), 2000, torch.device("cpu")), glyph_bank())[0]
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
    for block in itertools.islice(synth_blocks(seed=1), 80):
        loss = nn.functional.cross_entropy(network(_grey(block.images)), torch.from_numpy(block.labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    svhn = load_svhn("test")
    with torch.no_grad():
        found = network(_grey(svhn.images[:3000])).argmax(1).numpy()
    assert 0.55 < (found == svhn.labels[:3000]).mean() < 0.9


def _grey(images):
    return standardize(to_float(torch.from_numpy(images)).mean(1, keepdim=True))

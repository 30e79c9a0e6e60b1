import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.paper.digits_data import blend, load_mnist, load_mnist_m, load_photographs, make_mnist_m


@pytest.fixture
def digits(rng):
    """Digits of ink and none, half of each."""
    return np.repeat(rng.integers(1, 256, (40, 1, 6, 5)) * rng.integers(0, 2, (40, 1, 6, 5)), 3, axis=1).astype(
        np.uint8
    )


@pytest.fixture
def photographs(rng):
    return [rng.integers(0, 256, (height, width, 3), np.uint8) for height, width in ((9, 7), (6, 5), (8, 20))]


def test_ink_of_any_strength_inverts_the_patch_and_nothing_else_does():
    patches = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(blend(np.zeros(256, np.uint8), patches), patches)
    for ink in (1, 128, 255):
        np.testing.assert_array_equal(blend(np.full(256, ink, np.uint8), patches), np.arange(256)[::-1])


def _places(image, photographs):
    """Where a patch was cut: every (photograph, row, column) that has it."""
    height, width = image.shape[1:]
    return [
        (index, row, column)
        for index, photograph in enumerate(photographs)
        for row in range(photograph.shape[0] - height + 1)
        for column in range(photograph.shape[1] - width + 1)
        if (photograph[row : row + height, column : column + width].transpose(2, 0, 1) == image).all()
    ]


def test_every_patch_is_a_cut_of_a_photograph_and_every_cut_is_drawn_evenly(photographs):
    made = make_mnist_m(np.zeros((3000, 3, 6, 5), np.uint8), photographs, 1)
    places = [_places(image, photographs) for image in made]
    assert all(len(place) == 1 for place in places)
    counts = {place: places.count([place]) for (place,) in places}
    # 4 x 3, 1 and 3 x 16 places in the three photographs, each photograph a third of the draws.
    assert len(counts) == 12 + 1 + 48
    assert abs(counts[1, 0, 0] - 1000) < 120
    assert abs(np.mean([counts[0, row, column] for row in range(4) for column in range(3)]) - 1000 / 12) < 10
    assert max(count for place, count in counts.items() if place[0] == 0) < 125


def test_digits_invert_the_patches_they_would_have_without_ink(digits, photographs):
    patches = make_mnist_m(np.zeros_like(digits), photographs, 3)
    np.testing.assert_array_equal(make_mnist_m(digits, photographs, 3), blend(digits, patches))


def test_same_seed_same_images_and_other_seed_others(digits, photographs):
    one = make_mnist_m(digits, photographs, 3)
    assert one.dtype == np.uint8
    np.testing.assert_array_equal(one, make_mnist_m(digits, photographs, 3))
    assert (one != make_mnist_m(digits, photographs, 4)).any(axis=(1, 2, 3)).mean() > 0.5


@pytest.mark.parametrize("block", [1, 7, 39, 40])
def test_blocks_give_the_images_of_one_call(digits, photographs, block):
    starts = range(0, len(digits), block)
    parts = [make_mnist_m(digits[start : start + block], photographs, 5, first=start) for start in starts]
    np.testing.assert_array_equal(np.concatenate(parts), make_mnist_m(digits, photographs, 5))


def test_what_cannot_be_blended_is_named(digits, photographs):
    for images in (digits[0], digits[:, :1], digits.astype(float)):
        with pytest.raises(InvalidInputError, match=r"images must be bytes of shape \(N, 3, height, width\), got"):
            make_mnist_m(images, photographs)
    with pytest.raises(InvalidInputError, match="photographs holds 0 pictures"):
        make_mnist_m(digits, [])
    good = photographs[0]
    for bad in (good[:5], good[:, :4], good[:, :, 0], good[:, :, :2], good.astype(float)):
        with pytest.raises(InvalidInputError, match=r"photographs: number 1 has shape .* of at least \(6, 5\)"):
            make_mnist_m(digits, [good, bad])
    with pytest.raises(InvalidInputError, match="first must be at least 0, got -1"):
        make_mnist_m(digits, photographs, first=-1)


# Photograph, row and column of the patches under the first published test digits, found by comparing every place.
PUBLISHED = [(137, 269, 152), (13, 332, 84), (44, 108, 30), (199, 228, 239)]


@pytest.mark.data
def test_the_published_set_is_this_recipe():
    ours, theirs, photographs = load_mnist("test").images[:9001], load_mnist_m("test").images, load_photographs()
    assert len(photographs) == 200
    assert {photograph.shape for photograph in photographs} == {(321, 481, 3), (481, 321, 3)}
    patches = [photographs[p][row : row + 32, column : column + 32] for p, row, column in PUBLISHED]
    np.testing.assert_array_equal(blend(ours[:4], np.stack(patches).transpose(0, 3, 1, 2)), theirs[:4])
    made = make_mnist_m(ours[::3], photographs)
    for moment in (np.mean, np.std):
        np.testing.assert_allclose(moment(made, axis=(0, 2, 3)), moment(theirs[::3], axis=(0, 2, 3)), atol=0.01 * 255)

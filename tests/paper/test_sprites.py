"""Small images become one PNG that any reader of PNG files reads back to the same bytes."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from momentalign.errors import InvalidInputError
from momentalign.paper.sprites import png, sprite


def read(content):
    with Image.open(io.BytesIO(content)) as picture:
        picture.verify()
    with Image.open(io.BytesIO(content)) as picture:
        assert (picture.format, picture.mode) == ("PNG", "RGB")
        return np.asarray(picture)


def shapes():
    """Pixels that are smallest as they are, as differences to the left, and as differences to above."""
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (9, 7, 3), np.uint8)
    across = np.cumsum(random.integers(0, 2, (40, 300, 3)), axis=1).astype(np.uint8)
    down = np.cumsum(random.integers(0, 2, (300, 40, 3)), axis=0).astype(np.uint8)
    return {"noise": noise, "across": across, "down": down}


@pytest.mark.parametrize("name", ["noise", "across", "down"])
def test_pixels_come_back(name):
    pixels = shapes()[name]
    np.testing.assert_array_equal(read(png(pixels)), pixels)


def test_smooth_pixels_take_little_room():
    for name in ("across", "down"):
        assert len(png(shapes()[name])) < 0.25 * shapes()[name].size


def test_images_stand_in_a_row():
    images = np.random.default_rng(1).integers(0, 256, (3, 3, 32, 32), np.uint8)
    address = sprite([image.tobytes().hex() for image in images])
    head, content = address.split(",")
    assert head == "data:image/png;base64"
    pixels = read(base64.b64decode(content, validate=True))
    assert pixels.shape == (32, 96, 3)
    for place, image in enumerate(images):
        np.testing.assert_array_equal(pixels[:, 32 * place : 32 * (place + 1)], image.transpose(1, 2, 0))


@pytest.mark.parametrize("image", ["", "00" * 3071, "zz" * 3072])
def test_what_is_no_image_is_refused(image):
    with pytest.raises(InvalidInputError, match="image 1 is not 3 x 32 x 32 bytes in hexadecimal"):
        sprite(["00" * 3072, image])

"""Files of digits as their authors published them, but small: real handwriting of 8 x 8 pixels, enlarged."""

import hashlib
import runpy
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from sklearn.datasets import load_digits

from momentalign.paper.digits_data import DIGESTS, grey_to_colour

ROWS = 60

_report = runpy.run_path(str(Path(__file__).parents[1] / "report" / "conftest.py"))
artificial_result, overpenalization_result, digits_result = (
    _report[f"{name}_result"] for name in ("artificial", "overpenalization", "digits")
)


def grey_digits(start):
    """60 digits of 28 x 28 pixels, two rows and columns of zeros on each side, and their labels."""
    pixels, labels = load_digits(return_X_y=True)
    small = (pixels[start : start + ROWS] * 15).astype(np.uint8).reshape(-1, 8, 8)
    return np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2))), labels[start : start + ROWS]


@pytest.fixture(scope="session")
def digit_folder(tmp_path_factory):
    """A folder with MNIST as idx files, SVHN as .mat files and MNIST-M as pictures, 60 digits in every part.

    The digests of its files stand in place of the official ones, in this process.
    """
    folder = tmp_path_factory.mktemp("digits")
    random = np.random.default_rng(0)
    for part, (split, idx) in enumerate((("train", "train"), ("test", "t10k"))):
        grey, labels = grey_digits(ROWS * part)
        for name, array in (("images-idx3-ubyte", grey), ("labels-idx1-ubyte", labels.astype(np.uint8))):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (folder / f"{idx}-{name}").write_bytes(header + array.tobytes())
        images = grey_to_colour(grey)
        ground = random.integers(0, 256, images.shape, np.uint8)
        (folder / f"mnist_m_{split}").mkdir()
        for row, image in enumerate(np.where(images > 0, ~ground, ground)):
            Image.fromarray(image.transpose(1, 2, 0)).save(folder / f"mnist_m_{split}" / f"{row:08}.png")
        lines = [f"{row:08}.png {label}" for row, label in enumerate(labels)]
        (folder / f"mnist_m_{split}_labels.txt").write_text("\n".join(lines))
        walls = random.integers(0, 60, (ROWS, 3, 1, 1), np.uint8) + images // 2
        tens = np.where(labels == 0, 10, labels)
        savemat(folder / f"{split}_32x32.mat", {"X": walls.transpose(2, 3, 1, 0), "y": tens[:, None]})
    official = pytest.MonkeyPatch()
    for path in filter(Path.is_file, folder.iterdir()):
        official.setitem(DIGESTS, path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    yield folder
    official.undo()


@pytest.fixture
def few_images(monkeypatch):
    """A test set of SynthDigits that is drawn, and distances that are watched, in no time."""
    monkeypatch.setattr("momentalign.paper.digits.SYNTH_TEST_SIZE", 50)
    monkeypatch.setattr("momentalign.paper.digit_networks.WATCHED", 20)


@pytest.fixture
def site(monkeypatch):
    """A server on this machine with one file, to which more can be added."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    serve = runpy.run_path(str(Path(__file__).parents[1] / "local_server.py"))["serve"]
    with serve() as site:
        site.files["/some.bin"] = bytes(range(256)) * 3000
        yield site

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

from momentalign.paper.catalogue import SVHN_ORIGINALS, Original
from momentalign.paper.digits_data import grey_to_colour, make_mnist_m

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


def write_idx(path, array):
    path.write_bytes(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


@pytest.fixture(scope="session")
def digit_folder(tmp_path_factory):
    """A folder with MNIST as idx files, SVHN as .mat files and MNIST-M as pictures, 60 digits in every part.

    The digests of its .mat files stand in place of the official ones, in this process.
    """
    folder = tmp_path_factory.mktemp("digits")
    random = np.random.default_rng(0)
    official = pytest.MonkeyPatch()
    photographs = list(random.integers(0, 256, (3, 40, 40, 3), np.uint8))
    for part, (split, idx) in enumerate((("train", "train"), ("test", "t10k"))):
        grey, labels = grey_digits(ROWS * part)
        write_idx(folder / f"{idx}-images-idx3-ubyte", grey)
        write_idx(folder / f"{idx}-labels-idx1-ubyte", labels.astype(np.uint8))
        coloured = make_mnist_m(grey_to_colour(grey), photographs, seed=part)
        (folder / f"mnist_m_{split}").mkdir()
        for row, image in enumerate(coloured):
            Image.fromarray(image.transpose(1, 2, 0)).save(folder / f"mnist_m_{split}" / f"{row:08}.png")
        lines = [f"{row:08}.png {label}" for row, label in enumerate(labels)]
        (folder / f"mnist_m_{split}_labels.txt").write_text("\n".join(lines))
        walls = random.integers(0, 60, (ROWS, 3, 1, 1), np.uint8) + grey_to_colour(grey) // 2
        tens = np.where(labels == 0, 10, labels)
        path = folder / f"{split}_32x32.mat"
        savemat(path, {"X": walls.transpose(2, 3, 1, 0), "y": tens[:, None]})
        known = Original(path.name, hashlib.sha256(path.read_bytes()).hexdigest())
        official.setitem(SVHN_ORIGINALS, split, known)
    yield folder
    official.undo()


@pytest.fixture
def few_images(monkeypatch):
    """A test set of SynthDigits that is drawn, and distances that are watched, in no time."""
    monkeypatch.setattr("momentalign.paper.digits.SYNTH_TEST_SIZE", 50)
    monkeypatch.setattr("momentalign.paper.digit_networks.WATCHED", 20)

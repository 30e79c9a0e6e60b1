"""Sets of digits as their authors published them, but small; results for pages; a server on this machine."""

import gzip
import hashlib
import runpy
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from sklearn.datasets import load_digits

from momentalign.paper.catalogue import FILES
from momentalign.paper.digits_data import DIGESTS, FORMS, IDX, grey_to_colour

ROWS = 60

_report = runpy.run_path(str(Path(__file__).parents[1] / "report" / "conftest.py"))
artificial_result, overpenalization_result, digits_result = (
    _report[f"{name}_result"] for name in ("artificial", "overpenalization", "digits")
)


class DigitFiles:
    """Writes sets of digits into a folder; the digests of its files stand in place of the official ones."""

    def __init__(self, folder, monkeypatch):
        self.folder, self._patch = folder, monkeypatch

    def _write(self, name, content):
        (self.folder / name).write_bytes(content)
        self._know(name)

    def _know(self, name):
        self._patch.setitem(DIGESTS, name, hashlib.sha256((self.folder / name).read_bytes()).hexdigest())

    def packed(self, name, split, *contents):
        """The files of the benchmarks."""
        for file, content in zip(FORMS[name, split][0], contents, strict=True):
            np.savez_compressed(self.folder / file, **content)
            digest = hashlib.sha256((self.folder / file).read_bytes()).hexdigest()
            self._patch.setitem(FILES, file, replace(FILES[file], sha256=digest))

    def idx(self, split, grey, labels, end=""):
        """MNIST."""
        for name, array in (("images-idx3-ubyte", grey), ("labels-idx1-ubyte", np.uint8(labels))):
            content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
            self._write(f"{IDX[split]}-{name}{end}", gzip.compress(content) if end else content)

    def mat(self, split, images, labels):
        """SVHN."""
        name = f"{split}_32x32.mat"
        savemat(self.folder / name, {"X": images.transpose(2, 3, 1, 0), "y": labels}, do_compression=True)
        self._know(name)

    def pictures(self, split, images, lines, inside=""):
        """MNIST-M."""
        folder = self.folder / inside / f"mnist_m_{split}"
        folder.mkdir(parents=True)
        for row, image in enumerate(images):
            Image.fromarray(image.transpose(1, 2, 0)).save(folder / f"{row:08}.png")
        folder.with_name(f"{folder.name}_labels.txt").write_text("\n".join(lines), encoding="latin-1")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a set of digits: ``write.mat("test", images, labels)``."""
    return DigitFiles(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def digit_folder(tmp_path_factory):
    """A folder with all three sets as published, 60 digits of real handwriting in every part."""
    pixels, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        write = DigitFiles(tmp_path_factory.mktemp("digits"), patch)
        for part, split in enumerate(("train", "test")):
            rows = slice(ROWS * part, ROWS * (part + 1))
            small = (pixels[rows] * 15).astype(np.uint8).reshape(-1, 8, 8)
            grey = np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
            write.idx(split, grey, labels[rows])
            images = grey_to_colour(grey)
            ground = random.integers(0, 256, images.shape, np.uint8)
            lines = [f"{row:08}.png {label}" for row, label in enumerate(labels[rows])]
            write.pictures(split, np.where(images > 0, ~ground, ground), lines)
            walls = random.integers(0, 60, (ROWS, 3, 1, 1), np.uint8) + images // 2
            write.mat(split, walls, np.where(labels[rows] == 0, 10, labels[rows])[:, None])
        yield write.folder


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

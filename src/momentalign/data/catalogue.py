"""Catalogue of benchmark files: what each is, its licence, where it is looked for, and whether it is what it should be.

Section 6.1 of Zellinger et al. (2019) lists the data sets. Nothing is downloaded here; files are found in the folder
given as ``--data DIR`` or in ``MOMENTALIGN_DATA``, and their SHA-256 is checked before they are read.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from momentalign.errors import DamagedFileError, DataNotFoundError

__all__ = [
    "ARTIFICIAL",
    "CATALOGUE",
    "MNIST",
    "MNIST_M_TEST",
    "MNIST_M_TRAIN_A",
    "OFFICE_FEATURES",
    "OFFICE_IMAGES",
    "PHOTOGRAPHS",
    "REVIEWS",
    "SVHN_TEST",
    "SVHN_TRAIN_A",
    "SVHN_TRAIN_B",
    "BenchmarkFile",
    "data_folder",
    "find_file",
]


@dataclass(frozen=True)
class BenchmarkFile:
    """A file of numbers that some experiment needs."""

    name: str
    sha256: str
    what: str
    origin: str
    licence: str


ARTIFICIAL = BenchmarkFile(
    "artificial.npz",
    "f38ab84e2e78cdda2b1029c18fe8e6b8d41fec536488b6060d42e5ae3fff493d",
    "the authors' artificial problem, 639 + 639 points of three classes",
    "the four arrays of data/artificial_dataset in github.com/wzell/mann, saved with numpy.savez_compressed "
    "as x_source, x_target, y_source and y_target",
    "GPL-3.0",
)

REVIEWS = BenchmarkFile(
    "amazon_reviews.npz",
    "ee04e9b7f8bffbddaef5558ea11ca42a3ef62495eb79eb137069c9e1796e7cca",
    "the Amazon reviews of Blitzer et al. (2007) with the preprocessing of Chen et al. (2012), 27,677 rows",
    "counts of 5,000 unigrams and bigrams in the layout of amazon.mat (xx, yy, offset), saved as a numpy archive; "
    "the rows are those of github.com/GRAAL-Research/domain_adversarial_neural_network",
    "not stated for the reviews; the repository is BSD-2-Clause",
)

MNIST = BenchmarkFile(
    "mnist.npz",
    "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64",
    "MNIST of LeCun (1998), 60,000 + 10,000 handwritten digits of 28 x 28",
    "the four idx files saved as x_train, y_train, x_test and y_test",
    "CC BY-SA 3.0 by common account",
)

SVHN_LICENCE = "non-commercial use only"
SVHN_ORIGIN = (
    "cut from the full-number images as the data set's description says, 32 x 32 RGB; official order and labels, "
    "pixels differ a little from the official cropped files"
)
SVHN_TRAIN_A = BenchmarkFile(
    "svhn_train_a.npz",
    "43c036ebb81efcdf0fd174a75e0a47635c85fc1f277e0f19db24a3e41cdad927",
    "house numbers of Netzer et al. (2011), the first 25,000 of 73,257 training digits",
    SVHN_ORIGIN,
    SVHN_LICENCE,
)
SVHN_TRAIN_B = BenchmarkFile(
    "svhn_train_b.npz",
    "71439f334e892386b51026d28eaed0d61348318b1933ebc7e9fbefc8ea4489b7",
    "house numbers of Netzer et al. (2011), the next 25,000 of 73,257 training digits",
    SVHN_ORIGIN,
    SVHN_LICENCE,
)
SVHN_TEST = BenchmarkFile(
    "svhn_test.npz",
    "63d42840fde60844faf1b53e33c8023739681ba2bb7a041482c5adba0fa12c55",
    "house numbers of Netzer et al. (2011), all 26,032 test digits",
    SVHN_ORIGIN,
    SVHN_LICENCE,
)

MNIST_M_LICENCE = "not stated; made from MNIST and BSDS500"
MNIST_M_ORIGIN = "the published PNG files, 32 x 32 RGB, in the order of their label files"
MNIST_M_TRAIN_A = BenchmarkFile(
    "mnistm_train_a.npz",
    "9926f4c872005b6d6df1792322b60ee226d3b96264b3ff11e4032d8cf0ad934b",
    "MNIST-M of Ganin et al. (2016), the first 30,000 of 59,001 training digits",
    MNIST_M_ORIGIN,
    MNIST_M_LICENCE,
)
MNIST_M_TEST = BenchmarkFile(
    "mnistm_test.npz",
    "6a1712931312d31adadd7e17162f48084846aec5d1aff1f9e51e1ebf4a4e8304",
    "MNIST-M of Ganin et al. (2016), all 9,001 test digits",
    MNIST_M_ORIGIN,
    MNIST_M_LICENCE,
)

PHOTOGRAPHS = BenchmarkFile(
    "bsds500_train_jpeg.npz",
    "3775825c5fa8d57cd2feba662202425c27c175d14587dfebebf2b839e086b142",
    "the 200 training photographs of BSDS500 (Arbelaez et al. 2011), backgrounds of MNIST-M",
    "BSDS500/data/images/train of github.com/BIDS/BSDS500, JPEG files end to end",
    "research use",
)

OFFICE_ORIGIN = "all 4,110 pictures of amazon, dslr and webcam, 31 classes"
OFFICE_IMAGES = BenchmarkFile(
    "office31_jpeg.npz",
    "a49e665645fc9979986845dd0030bd273ea36a9ae77c220a6f48c68c6a8d40f9",
    "Office-31 of Saenko et al. (2010) as pictures of 300 x 300",
    f"{OFFICE_ORIGIN}, JPEG files end to end",
    "not stated; published for research",
)
OFFICE_FEATURES = BenchmarkFile(
    "office31_efflite0.npz",
    "6329f1236c425d3afd6bce67cc87f5d05364217280a5ddd958425f73e43fbd75",
    "Office-31 of Saenko et al. (2010) as 1,280 features of EfficientNet-Lite0 each",
    f"{OFFICE_ORIGIN}, centre crop of 224, mean over the last feature map, float16",
    "not stated for the pictures; the network is Apache-2.0",
)

CATALOGUE = (
    ARTIFICIAL,
    REVIEWS,
    MNIST,
    SVHN_TRAIN_A,
    SVHN_TRAIN_B,
    SVHN_TEST,
    MNIST_M_TRAIN_A,
    MNIST_M_TEST,
    PHOTOGRAPHS,
    OFFICE_IMAGES,
    OFFICE_FEATURES,
)
"""Every known file, in the order of the paper's sections."""


def data_folder(folder: str | Path | None, *, name: str, explanation: str) -> Path:
    """Return the folder of benchmark files; where none is said, name what is needed and explain it.

    Parameters
    ----------
    folder
        Where to look; None takes the environment variable ``MOMENTALIGN_DATA``.
    name, explanation
        What is looked for, and a sentence about it for the error.
    """
    place = folder if folder is not None else os.environ.get("MOMENTALIGN_DATA")
    if place is None:
        raise DataNotFoundError(
            f"{name} is needed: give its folder as --data DIR or in MOMENTALIGN_DATA. {explanation}"
        )
    return Path(place)


def find_file(file: BenchmarkFile, folder: str | Path | None = None) -> Path:
    """Return the path of a benchmark file whose checksum is right, or say how to get it.

    Parameters
    ----------
    file
        The file to find.
    folder
        Where to look; None takes the environment variable ``MOMENTALIGN_DATA``.
    """
    description = f"{file.what}: {file.origin}"
    path = data_folder(folder, name=file.name, explanation=f"It is {description}.") / file.name
    if not path.is_file():
        raise DataNotFoundError(f"{path} is not there. {file.name} is {description}; --data DIR says where to look.")
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != file.sha256:
        raise DamagedFileError(
            f"{path} is not the file it should be (SHA-256 {digest[:12]}, expected {file.sha256[:12]}); "
            f"get it again: {description}."
        )
    return path

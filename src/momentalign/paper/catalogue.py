"""The data sets of the paper (Section 6.1): what each file is, its licence, its digest, and where it is found.

Files are looked for in the folder given as ``--data DIR`` or in ``MOMENTALIGN_DATA``, and their SHA-256 is checked
before they are read. :mod:`momentalign.paper.originals` downloads the public originals.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError

__all__ = [
    "ARTIFICIAL",
    "CATALOGUE",
    "DATA_SETS",
    "MNIST",
    "MNIST_M_TEST",
    "MNIST_M_TRAIN_A",
    "OFFICE_FEATURES",
    "OFFICE_IMAGES",
    "PHOTOGRAPHS",
    "REVIEWS",
    "SVHN_ORIGINALS",
    "SVHN_TEST",
    "SVHN_TRAIN_A",
    "SVHN_TRAIN_B",
    "BenchmarkFile",
    "DataSet",
    "Original",
    "check_sha256",
    "data_folder",
    "file_sha256",
    "find_data_set",
    "find_file",
]


@dataclass(frozen=True)
class BenchmarkFile:
    """A file that an experiment reads; `rebuilt_sha256` is the digest of the one rebuilt from the public originals."""

    name: str
    sha256: str
    what: str
    origin: str
    licence: str
    rebuilt_sha256: str | None = None


@dataclass(frozen=True)
class Original:
    """A public file, and its SHA-256 where one was published."""

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return urlsplit(self.url).path.rpartition("/")[2]


@dataclass(frozen=True)
class DataSet:
    """What ``momentalign datasets`` knows under one name.

    A folder holds either `files` or `kept`, the originals as published. Of originals without a known digest, `counts`
    says how many paths a pattern must match, and `labels` the SHA-256 of the digits in a list of labels, one byte each.
    """

    name: str
    what: str
    licence: str
    files: tuple[BenchmarkFile, ...]
    originals: tuple[Original, ...]
    kept: tuple[str, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    note: str = ""


ARTIFICIAL = BenchmarkFile(
    "artificial.npz",
    "f38ab84e2e78cdda2b1029c18fe8e6b8d41fec536488b6060d42e5ae3fff493d",
    "the authors' artificial problem, 639 + 639 points of three classes",
    "the four arrays of data/artificial_dataset in github.com/wzell/mann, saved with numpy.savez_compressed "
    "as x_source, x_target, y_source and y_target",
    "GPL-3.0",
    "6c5288c3e75a4f691f5af0dcf85dbe4464ad2a97998c7173bbc81810c14ef0a8",
)

REVIEWS = BenchmarkFile(
    "amazon_reviews.npz",
    "ee04e9b7f8bffbddaef5558ea11ca42a3ef62495eb79eb137069c9e1796e7cca",
    "the Amazon reviews of Blitzer et al. (2007) with the preprocessing of Chen et al. (2012), 27,677 rows",
    "counts of 5,000 unigrams and bigrams in the layout of amazon.mat (xx, yy, offset), saved as a numpy archive; "
    "the rows are those of github.com/GRAAL-Research/domain_adversarial_neural_network",
    "not stated for the reviews; the repository is BSD-2-Clause",
    "5a457e3979ee9373b90c22f09b182f558f0ae9fe6c20350cf12bee6e1edfd677",
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
    "ed60bac6c2709051737d5c071a97b932462bc80e2ac4aa016cb5a05d9918fcaa",
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


def _raw(folder: str, *names: str) -> tuple[Original, ...]:
    return tuple(Original(f"https://raw.githubusercontent.com/{folder}/{name}") for name in names)


def _archive(repository: str, commit: str) -> tuple[Original, ...]:
    return (Original(f"https://codeload.github.com/{repository}/tar.gz/{commit}"),)


# The digests that TensorFlow Datasets and others publish.
_MNIST_ORIGINALS = tuple(
    Original(f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}-ubyte.gz", sha256)
    for name, sha256 in (
        ("train-images-idx3", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
)
SVHN_ORIGINALS = {
    split: Original(f"http://ufldl.stanford.edu/housenumbers/{split}_32x32.mat", sha256)
    for split, sha256 in (
        ("train", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
        ("test", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
    )
}

DATA_SETS = (
    DataSet(
        "artificial",
        ARTIFICIAL.what,
        ARTIFICIAL.licence,
        (ARTIFICIAL,),
        _raw(
            "wzell/mann/7864c3b6fb511e5e1278770fdf94b58b1835a063/data/artificial_dataset",
            *("x_s.npy", "x_t.npy", "y_s.npy", "y_t.npy"),
        ),
    ),
    DataSet(
        "reviews",
        REVIEWS.what,
        REVIEWS.licence,
        (REVIEWS,),
        _raw(
            "GRAAL-Research/domain_adversarial_neural_network/74eec5e0ae06bd6614bce048abba492c16a633e3/data",
            *("books_train.svmlight", "books_test.svmlight", "dvd_train.svmlight", "dvd_test.svmlight"),
            *("electronics_train.svmlight", "electronics_test.svmlight"),
            *("kitchen_train.svmlight", "kitchen_test.svmlight"),
        ),
        note="rebuilt with the same numbers but without its words, which the originals do not name",
    ),
    DataSet(
        "mnist",
        MNIST.what,
        MNIST.licence,
        (MNIST,),
        _MNIST_ORIGINALS,
        kept=tuple(original.name for original in _MNIST_ORIGINALS),
    ),
    DataSet(
        "svhn",
        "house numbers of Netzer et al. (2011), cropped digits of 32 x 32; the packed files hold 50,000 for training",
        SVHN_LICENCE,
        (SVHN_TRAIN_A, SVHN_TRAIN_B, SVHN_TEST),
        tuple(SVHN_ORIGINALS.values()),
        kept=tuple(original.name for original in SVHN_ORIGINALS.values()),
    ),
    DataSet(
        "mnist-m",
        "MNIST-M of Ganin et al. (2016), digits over photographs; the packed files hold 30,000 for training",
        MNIST_M_LICENCE,
        (MNIST_M_TRAIN_A, MNIST_M_TEST),
        _archive(
            "ShichengChen/Domain-Adversarial-Training-of-Neural-Networks", "dae4e088b27b9e0d6c8d586fa9972f86c97cb503"
        ),
        kept=("mnist_m",),
        counts=(("mnist_m/mnist_m_train/*.png", 59001), ("mnist_m/mnist_m_test/*.png", 9001)),
        # Those of MNIST, digit by digit.
        labels=(
            (
                "mnist_m/mnist_m_train_labels.txt",
                "3270ced1a201191cc8822212bf0969cb73d940b21842e1c8c09413d70ca57d76",
            ),
            (
                "mnist_m/mnist_m_test_labels.txt",
                "5584c5dac3ac6e4752351bfcdc1e040f4009fd6a566ba538de5eb6c6029a8055",
            ),
        ),
    ),
    DataSet(
        "photographs",
        PHOTOGRAPHS.what,
        PHOTOGRAPHS.licence,
        (PHOTOGRAPHS,),
        _archive("BIDS/BSDS500", "a04b7c6c3a9f0ace74bf205c72a43d32e1c72722"),
    ),
    DataSet(
        "office-31",
        "Office-31 of Saenko et al. (2010), 4,110 pictures of 31 kinds of objects; in 300 x 300 in the packed file",
        OFFICE_IMAGES.licence,
        (OFFICE_IMAGES,),
        _archive("syorami/DDC-transfer-learning", "9090f7fdd7c149c6158c5145b516abee97bb0944"),
        kept=("amazon", "dslr", "webcam"),
        counts=(
            *(("amazon/images/*/*.jpg", 2817), ("dslr/images/*/*.jpg", 498), ("webcam/images/*/*.jpg", 795)),
            *(("amazon/images/*", 31), ("dslr/images/*", 31), ("webcam/images/*", 31)),
        ),
    ),
    DataSet(
        "office-31-features",
        OFFICE_FEATURES.what,
        OFFICE_FEATURES.licence,
        (OFFICE_FEATURES,),
        (),
        note="computed, not published: get office-31 and compute features from its pictures with a network",
    ),
)
"""What can be asked for by name; every known file belongs to one."""


def find_data_set(name: str) -> DataSet:
    """Return what is known under a name.

    Examples
    --------
    >>> find_data_set("mnist").kept[0]
    'train-images-idx3-ubyte.gz'
    """
    for data_set in DATA_SETS:
        if data_set.name == name:
            return data_set
    raise InvalidInputError(f"name must be one of {', '.join(known.name for known in DATA_SETS)}, got {name!r}.")


def data_folder(folder: str | Path | None, *, name: str, explanation: str) -> Path:
    """Return the folder of the data sets: `folder`, or the one in ``MOMENTALIGN_DATA``.

    `name` and `explanation` (a sentence) say in the error what is needed.
    """
    found = folder if folder is not None else os.environ.get("MOMENTALIGN_DATA")
    if found is None:
        raise DataNotFoundError(
            f"{name} is needed: give its folder as --data DIR or in MOMENTALIGN_DATA. {explanation}"
        )
    return Path(found)


def find_file(file: BenchmarkFile, folder: str | Path | None = None) -> Path:
    """Return the path of a benchmark file whose checksum is right, or say how to get it."""
    description = f"{file.what}: {file.origin}"
    path = data_folder(folder, name=file.name, explanation=f"It is {description}.") / file.name
    if not path.is_file():
        raise DataNotFoundError(
            f"{path} is not there. {file.name} is {description}; --data DIR says where to look, "
            "momentalign datasets list what can be downloaded."
        )
    check_sha256(path, file.sha256, file.rebuilt_sha256, remedy=f"get it again: {description}")
    return path


def check_sha256(path: Path, *known: str | None, remedy: str) -> None:
    """Refuse a file whose SHA-256 is none of the known ones."""
    digest = file_sha256(path)
    if digest not in known:
        raise DamagedFileError(
            f"{path} is not the file it should be (SHA-256 {digest[:12]}, expected {str(known[0])[:12]}); {remedy}."
        )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()

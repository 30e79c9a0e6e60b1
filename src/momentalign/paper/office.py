"""Office-31: its pictures, and their features from a frozen network, computed once and kept (Sections 6.1 and 6.4).

31 kinds of objects from a shop's pages, a webcam and a digital camera (K. Saenko, B. Kulis, M. Fritz, T. Darrell,
Adapting visual category models to new domains, 2010), read from one archive of JPEG files or from the usual folders
``amazon/images/<class>/*.jpg``. Pictures are resized to 256 x 256 and windows of 224 x 224 are cut out, as Zellinger et
al. (2019) crop and mirror them. The cache holds a folder for every combination of weights, pictures and views, and
there one file for some pictures at a time: what a stopped run has finished is not computed again.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from momentalign.errors import DataNotFoundError, InvalidInputError
from momentalign.files import replace_file
from momentalign.paper.backbones import Backbone, EfficientNetLite0, find_weights, open_backbone
from momentalign.paper.catalogue import FILES, data_folder, find_file
from momentalign.paper.digits_data import decode_picture
from momentalign.paper.experiment import Progress, Say, describe_duration
from momentalign.training.torch_engine import one_thread

__all__ = [
    "CENTRE",
    "CROPS",
    "DOMAINS",
    "ObjectFeatures",
    "OfficeRows",
    "Pictures",
    "View",
    "cut_views",
    "load_features",
    "load_pictures",
    "open_features",
]

IMAGES_FILE, FEATURES_FILE = "office31_jpeg.npz", "office31_efflite0.npz"
DOMAINS = ("amazon", "dslr", "webcam")
SIDE, WINDOW = 256, 224


class View(NamedTuple):
    """A window of 224 x 224 pixels of a picture of 256 x 256, mirrored or not."""

    top: int
    left: int
    mirrored: bool


CENTRE = View(16, 16, mirrored=False)
CROPS = (
    View(16, 16, mirrored=True),
    *(View(top, left, mirrored) for top, left in itertools.product((0, 32), (0, 32)) for mirrored in (False, True)),
)
"""The windows at the corners, and the mirrors of all five."""


class Pictures(NamedTuple):
    """The files of all pictures, read one by one, with the codes of their classes and domains."""

    read: Callable[[int], bytes]
    name: Callable[[int], str]
    labels: NDArray[np.intp]
    domains: NDArray[np.intp]
    class_names: tuple[str, ...]
    sha256: str


class OfficeRows(NamedTuple):
    """Features (views, pictures, width), the first view the centre crop, and codes of classes and domains."""

    rows: NDArray[np.floating[Any]]
    labels: NDArray[np.intp]
    domains: NDArray[np.intp]

    def domain(self, name: str) -> tuple[NDArray[np.floating[Any]], NDArray[np.intp]]:
        """Return features and labels of one domain."""
        chosen = self.domains == DOMAINS.index(name)
        return self.rows[:, chosen], self.labels[chosen]


def load_pictures(folder: str | Path | None = None) -> Pictures:
    """Return all pictures, from the folders of the three domains where they are there, or else from the archive."""
    root = data_folder(folder, name=IMAGES_FILE, explanation=f"It is {FILES[IMAGES_FILE].what}.")
    if (root / DOMAINS[0] / "images").is_dir():
        return _from_folders(root)
    path = find_file(IMAGES_FILE, folder)
    with np.load(path, allow_pickle=False) as arrays:
        content, offset = arrays["jpeg"], arrays["jpeg_offset"]
        return Pictures(
            lambda index: content[offset[index] : offset[index + 1]].tobytes(),
            lambda index: f"{path}, picture {index}",
            arrays["y"].astype(np.intp),
            arrays["domain"].astype(np.intp),
            tuple(arrays["class_names"].tolist()),
            FILES[IMAGES_FILE].sha256,
        )


def load_features(folder: str | Path | None = None) -> OfficeRows:
    """Return the ready features of the centre crops."""
    with np.load(find_file(FEATURES_FILE, folder), allow_pickle=False) as arrays:
        return OfficeRows(arrays["x"][None], arrays["y"].astype(np.intp), arrays["domain"].astype(np.intp))


def cut_views(content: bytes, name: str, views: Sequence[View]) -> NDArray[np.uint8]:
    """Return windows (views, 3, 224, 224) of one JPEG file, which errors call by `name`.

    Examples
    --------
    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (300, 300), (255, 0, 0)).save(file, "JPEG")
    >>> cut_views(file.getvalue(), "red", [CENTRE, *CROPS]).shape
    (10, 3, 224, 224)
    """
    pixels = decode_picture(content, name, kind="JPEG")
    from PIL import Image

    whole = np.asarray(Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    return np.stack([_window(whole, view) for view in views])


def _window(whole: NDArray[np.uint8], view: View) -> NDArray[np.uint8]:
    window = whole[view.top : view.top + WINDOW, view.left : view.left + WINDOW]
    return (window[:, ::-1] if view.mirrored else window).transpose(2, 0, 1)


def _from_folders(root: Path) -> Pictures:
    """The pictures of ``<domain>/images/<class>/``, in the order of domains, classes and names."""
    classes = {domain: _names(root / domain / "images") for domain in DOMAINS}
    for domain in DOMAINS:
        if classes[domain] != classes[DOMAINS[0]]:
            raise DataNotFoundError(
                f"{root / domain / 'images'} has other classes than {DOMAINS[0]}/images; "
                "give a folder with all three domains of Office-31."
            )
    names = classes[DOMAINS[0]]
    found = [
        (path, names.index(name), code)
        for code, domain in enumerate(DOMAINS)
        for name in names
        for path in sorted((root / domain / "images" / name).iterdir())
        if path.suffix.lower() in (".jpg", ".jpeg")
    ]
    if not found:
        raise DataNotFoundError(f"{root} has no picture in its folders; give the folder of Office-31.")
    paths, labels, domains = zip(*found, strict=True)
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return Pictures(
        lambda index: Path(paths[index]).read_bytes(),
        lambda index: str(paths[index]),
        np.array(labels, dtype=np.intp),
        np.array(domains, dtype=np.intp),
        names,
        digest.hexdigest(),
    )


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else ()


Features: TypeAlias = NDArray[np.float16]

# Pictures in one file of the cache.
PART = 128
# Images that go through the network at once: few stay in a core's cache, many fill an accelerator.
ON_CPU, ON_ACCELERATOR = 4, 256


class ObjectFeatures(NamedTuple):
    """Features, the name of the network they are from, and what identifies them."""

    office: OfficeRows
    backbone: str
    data: dict[str, str]

    @property
    def has_crops(self) -> bool:
        """Whether there are views beside the centre crop."""
        return len(self.office.rows) > 1


def open_features(
    folder: str | Path | None = None,
    *,
    backbone: str | Path | None = None,
    cache: str | Path,
    crops: bool = False,
    device: str = "cpu",
    n_jobs: int = 1,
    say: Say = lambda _text: None,
    progress: Progress | None = None,
) -> ObjectFeatures:
    """Return features of all pictures; without a network to compute them with, those of ``office31_efflite0.npz``.

    Parameters
    ----------
    folder
        Where the pictures are; None takes ``MOMENTALIGN_DATA``.
    backbone
        A file of weights; None takes the installed EfficientNet-Lite0.
    cache
        The folder in which features are kept.
    crops
        Compute the corners and mirrors beside the centre crop, ten views in all.
    device, n_jobs
        Where to compute, and, on the CPU, processes to compute in.
    say, progress
        Called with a sentence that says how long it takes, and with the number of finished parts and of all.
    """
    try:
        weights = find_weights(backbone)
    except DataNotFoundError as missing:
        if backbone is not None:
            raise
        try:
            ready = load_features(folder)
        except DataNotFoundError:
            raise missing from None
        say(f"{FEATURES_FILE} is taken as it is, centre crops only: no weights are installed to compute others.")
        return ObjectFeatures(ready, EfficientNetLite0.title, {FEATURES_FILE: FILES[FEATURES_FILE].sha256})
    pictures = load_pictures(folder)
    kept = _Cache(pictures, str(weights), Path(cache), device, n_jobs if device == "cpu" else 1)
    rows = kept.features((CENTRE,), say, progress)
    if crops:
        rows = np.concatenate([rows, kept.features(CROPS, say, progress)])
    office = OfficeRows(rows, pictures.labels, pictures.domains)
    return ObjectFeatures(
        office, kept.backbone.network.title, {"pictures": pictures.sha256, "weights": kept.backbone.sha256}
    )


class _Cache(NamedTuple):
    """Features kept in a folder, and what they are computed from and with."""

    pictures: Pictures
    weights: str
    folder: Path
    device: str
    n_jobs: int

    @property
    def backbone(self) -> Backbone:
        return _backbone(self.weights, self.device)

    def features(self, views: Sequence[View], say: Say, progress: Progress | None) -> Features:
        """Return features (views, pictures, width) of some views, all of them kept."""
        # Sixteen digits of the digest of weights, pictures and views name the folder.
        identity = [self.backbone.sha256, self.pictures.sha256, [list(view) for view in views]]
        digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
        folder = self.folder / f"office31-{digest}"
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        count = len(self.pictures.labels)
        rows = {folder / f"{i:05d}.npy": range(i, min(i + PART, count)) for i in range(0, count, PART)}
        missing = [path for path, own in rows.items() if self._load(path, len(own), views) is None]
        if missing:
            self._compute({path: rows[path] for path in missing}, views, say, progress)
        parts = [self._load(path, len(own), views) for path, own in rows.items()]
        return np.concatenate([part for part in parts if part is not None], axis=1)

    def _load(self, path: Path, count: int, views: Sequence[View]) -> Features | None:
        """A part as it was kept; None where it is missing or damaged, so that it is computed."""
        try:
            part: NDArray[Any] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        whole = part.shape == (len(views), count, self.backbone.network.width) and part.dtype == np.float16
        return part if whole else None

    def _compute(
        self, missing: Mapping[Path, range], views: Sequence[View], say: Say, progress: Progress | None
    ) -> None:
        def jpegs(rows: range) -> list[tuple[bytes, str]]:
            return [(self.pictures.read(row), self.pictures.name(row)) for row in rows]

        few = jpegs(range(min(4, len(self.pictures.labels))))
        _features(few, views, self.weights, self.device)  # warms up
        start = time.perf_counter()
        _features(few, views, self.weights, self.device)
        each = (time.perf_counter() - start) / len(few)
        count = sum(map(len, missing.values()))
        duration = describe_duration(each * count / min(effective_n_jobs(self.n_jobs), len(missing)))
        say(f"features of {count} pictures, views of each: {len(views)}: {duration}")
        # One part at a time, and written as it arrives: a run that is stopped keeps what was finished.
        parallel = Parallel(n_jobs=self.n_jobs, batch_size=1, pre_dispatch="2*n_jobs", return_as="generator")
        jobs = (delayed(_features)(jpegs(rows), views, self.weights, self.device) for rows in missing.values())
        with closing(parallel(jobs)) as arrivals:
            for number, (path, part) in enumerate(zip(missing, arrivals, strict=True), start=1):
                content = io.BytesIO()
                np.save(content, part, allow_pickle=False)
                with _explained(path.parent):
                    replace_file(path, content.getvalue())
                if progress is not None:
                    progress(number, len(missing))


@cache
def _backbone(weights: str, device: str) -> Backbone:
    backbone = open_backbone(weights, device=device)
    backbone.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return backbone


def _features(files: Sequence[tuple[bytes, str]], views: Sequence[View], weights: str, device: str) -> Features:
    """Features (views, pictures, width) of some JPEG files, computed in one process."""
    network = _backbone(weights, device).network
    images = torch.as_tensor(np.stack([cut_views(*file, views) for file in files], axis=1)).flatten(0, 1)
    # Rounded products (TF32) would change features in the third digit.
    with one_thread(), torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        few = torch.split(images, ON_CPU if device == "cpu" else ON_ACCELERATOR)
        found = [network(part.to(device).float().contiguous(memory_format=torch.channels_last)).cpu() for part in few]
    return torch.cat(found).view(len(views), len(files), -1).numpy().astype(np.float16)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn an error of the system about the cache into a sentence."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"features cannot be kept in {folder} ({error.strerror}); give another folder as --cache DIR."
        ) from error

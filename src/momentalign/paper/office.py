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
from collections.abc import Callable, Iterator, Sequence
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
from momentalign.paper.backbones import Backbone, find_weights, open_backbone
from momentalign.paper.catalogue import OFFICE_FEATURES, OFFICE_IMAGES, data_folder, find_file
from momentalign.paper.experiment import Progress, Say, describe_duration, silent
from momentalign.paper.image_files import decode_picture
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
    root = data_folder(folder, name=OFFICE_IMAGES.name, explanation=f"It is {OFFICE_IMAGES.what}.")
    if (root / DOMAINS[0] / "images").is_dir():
        return _from_folders(root)
    path = find_file(OFFICE_IMAGES, folder)
    with np.load(path, allow_pickle=False) as arrays:
        content, offset = arrays["jpeg"], arrays["jpeg_offset"]
        return Pictures(
            lambda index: content[offset[index] : offset[index + 1]].tobytes(),
            lambda index: f"{path}, picture {index}",
            arrays["y"].astype(np.intp),
            arrays["domain"].astype(np.intp),
            tuple(arrays["class_names"].tolist()),
            OFFICE_IMAGES.sha256,
        )


def load_features(folder: str | Path | None = None) -> OfficeRows:
    """Return the ready features of the centre crops."""
    with np.load(find_file(OFFICE_FEATURES, folder), allow_pickle=False) as arrays:
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
    say: Say = silent,
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
    except DataNotFoundError:
        if backbone is not None or not _has_ready_features(folder):
            raise
        say(f"{OFFICE_FEATURES.name} is taken as it is, centre crops only: no weights are installed to compute others.")
        return ObjectFeatures(
            load_features(folder), "EfficientNet-Lite0", {OFFICE_FEATURES.name: OFFICE_FEATURES.sha256}
        )
    pictures = load_pictures(folder)
    cache_of_features = _Cache(pictures, str(weights), Path(cache), device, n_jobs if device == "cpu" else 1)
    rows = cache_of_features.features((CENTRE,), say, progress)
    if crops:
        rows = np.concatenate([rows, cache_of_features.features(CROPS, say, progress)])
    office = OfficeRows(rows, pictures.labels, pictures.domains)
    data = {"pictures": pictures.sha256, "weights": cache_of_features.backbone.sha256}
    return ObjectFeatures(office, cache_of_features.backbone.network.title, data)


def _has_ready_features(folder: str | Path | None) -> bool:
    try:
        load_features(folder)
    except DataNotFoundError:
        return False
    return True


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
        folder = self.folder / f"office31-{self._key(views)}"
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        starts = range(0, len(self.pictures.labels), PART)
        missing = [start for start in starts if self._kept(folder, start, views) is None]
        if missing:
            self._compute(folder, missing, views, say, progress)
        parts = [self._kept(folder, start, views) for start in starts]
        return np.concatenate([part for part in parts if part is not None], axis=1)

    def _key(self, views: Sequence[View]) -> str:
        """Sixteen digits of the digest of weights, pictures and views."""
        parts = [self.backbone.sha256, self.pictures.sha256, [list(view) for view in views]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def _compute(
        self, folder: Path, missing: Sequence[int], views: Sequence[View], say: Say, progress: Progress | None
    ) -> None:
        workers = effective_n_jobs(self.n_jobs)
        count = sum(len(self._indices(start)) for start in missing)
        seconds = count * self._seconds(views) / min(workers, len(missing))
        say(f"features of {count} pictures, views of each: {len(views)}: {describe_duration(seconds)}")
        # One part at a time, and written as it arrives: a run that is stopped keeps what was finished.
        parallel = Parallel(n_jobs=self.n_jobs, batch_size=1, pre_dispatch="2*n_jobs", return_as="generator")
        jobs = (
            delayed(_features)(*self._contents(self._indices(start)), views, self.weights, self.device)
            for start in missing
        )
        with closing(parallel(jobs)) as arrivals:
            for number, (start, part) in enumerate(zip(missing, arrivals, strict=True), start=1):
                content = io.BytesIO()
                np.save(content, part, allow_pickle=False)
                with _explained(folder):
                    replace_file(folder / _part_name(start), content.getvalue())
                if progress is not None:
                    progress(number, len(missing))

    def _seconds(self, views: Sequence[View]) -> float:
        """Measure how long a picture takes."""
        few = self._contents(self._indices(0)[:4])
        _features(*few, views, self.weights, self.device)
        start = time.perf_counter()
        _features(*few, views, self.weights, self.device)
        return (time.perf_counter() - start) / len(few[0])

    def _indices(self, start: int) -> range:
        return range(start, min(start + PART, len(self.pictures.labels)))

    def _contents(self, indices: range) -> tuple[list[bytes], list[str]]:
        return [self.pictures.read(index) for index in indices], [self.pictures.name(index) for index in indices]

    def _kept(self, folder: Path, start: int, views: Sequence[View]) -> Features | None:
        """A part as it was kept; None where it is missing or damaged, so that it is computed."""
        try:
            part: NDArray[Any] = np.load(folder / _part_name(start), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        shape = (len(views), len(self._indices(start)), self.backbone.network.width)
        return part if part.shape == shape and part.dtype == np.float16 else None


def _part_name(start: int) -> str:
    return f"{start:05d}.npy"


@cache
def _backbone(weights: str, device: str) -> Backbone:
    backbone = open_backbone(weights, device=device)
    backbone.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return backbone


def _features(
    contents: Sequence[bytes], names: Sequence[str], views: Sequence[View], weights: str, device: str
) -> Features:
    """Features (views, pictures, width) of some pictures, computed in one process."""
    network = _backbone(weights, device).network
    windows = np.stack([cut_views(content, name, views) for content, name in zip(contents, names, strict=True)], axis=1)
    images = torch.as_tensor(windows).flatten(0, 1)
    # Rounded products (TF32) would change features in the third digit.
    with one_thread(), torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        few = torch.split(images, ON_CPU if device == "cpu" else ON_ACCELERATOR)
        found = [network(part.to(device).float().contiguous(memory_format=torch.channels_last)).cpu() for part in few]
    return torch.cat(found).view(len(views), len(contents), -1).numpy().astype(np.float16)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn an error of the system about the cache into a sentence."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"features cannot be kept in {folder} ({error.strerror}); give another folder as --cache DIR."
        ) from error

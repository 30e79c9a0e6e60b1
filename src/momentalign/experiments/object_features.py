"""Features of the pictures of Office-31 from a frozen network, computed once and kept (Section 6.4).

A cache folder holds a folder for every combination of weights, pictures and views, and there one file for some
pictures at a time: what a stopped run has finished is not computed again.
"""

from __future__ import annotations

import hashlib
import io
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

from momentalign.data.catalogue import OFFICE_FEATURES
from momentalign.data.office import CENTRE, CROPS, OfficeRows, Pictures, View, cut_views, load_features, load_pictures
from momentalign.errors import DataNotFoundError, InvalidInputError
from momentalign.experiments.runner import duration_words
from momentalign.files import replace_file
from momentalign.networks.backbones import Backbone, find_weights, open_backbone
from momentalign.training.batched import one_thread

__all__ = ["ObjectFeatures", "open_features"]

Features: TypeAlias = NDArray[np.float16]
Say: TypeAlias = Callable[[str], None]
Progress: TypeAlias = Callable[[int, int], None]

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
    say: Say = lambda _words: None,
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
    work = _Work(pictures, str(weights), Path(cache), device, n_jobs if device == "cpu" else 1)
    rows = work.features((CENTRE,), say, progress)
    if crops:
        rows = np.concatenate([rows, work.features(CROPS, say, progress)])
    office = OfficeRows(rows, pictures.labels, pictures.domains)
    data = {"pictures": pictures.sha256, "weights": work.backbone.sha256}
    return ObjectFeatures(office, work.backbone.network.title, data)


def _has_ready_features(folder: str | Path | None) -> bool:
    try:
        load_features(folder)
    except DataNotFoundError:
        return False
    return True


class _Work(NamedTuple):
    """What features are computed from, where they are kept and who computes them."""

    pictures: Pictures
    weights: str
    cache: Path
    device: str
    n_jobs: int

    @property
    def backbone(self) -> Backbone:
        return _backbone(self.weights, self.device)

    def features(self, views: Sequence[View], say: Say, progress: Progress | None) -> Features:
        """Return features (views, pictures, width) of some views, all of them kept."""
        folder = self.cache / f"office31-{self._key(views)}"
        with _speaking(folder):
            folder.mkdir(parents=True, exist_ok=True)
        starts = range(0, len(self.pictures.labels), PART)
        missing = [start for start in starts if self._kept(folder, start, views) is None]
        if missing:
            self._compute(folder, missing, views, say, progress)
        parts = [self._kept(folder, start, views) for start in starts]
        return np.concatenate([part for part in parts if part is not None], axis=1)

    def _key(self, views: Sequence[View]) -> str:
        """Sixteen digits that say which weights, pictures and views features are from."""
        parts = [self.backbone.sha256, self.pictures.sha256, [list(view) for view in views]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def _compute(
        self, folder: Path, missing: Sequence[int], views: Sequence[View], say: Say, progress: Progress | None
    ) -> None:
        workers = effective_n_jobs(self.n_jobs)
        count = sum(len(self._places(start)) for start in missing)
        seconds = count * self._seconds(views) / min(workers, len(missing))
        say(f"features of {count} pictures, views of each: {len(views)}: {duration_words(seconds)}")
        # One part at a time, and written as it arrives: a run that is stopped keeps what was finished.
        parallel = Parallel(n_jobs=self.n_jobs, batch_size=1, pre_dispatch="2*n_jobs", return_as="generator")
        jobs = (
            delayed(_features)(*self._contents(self._places(start)), views, self.weights, self.device)
            for start in missing
        )
        with closing(parallel(jobs)) as arrivals:
            for number, (start, part) in enumerate(zip(missing, arrivals, strict=True), start=1):
                content = io.BytesIO()
                np.save(content, part, allow_pickle=False)
                with _speaking(folder):
                    replace_file(folder / _part_name(start), content.getvalue())
                if progress is not None:
                    progress(number, len(missing))

    def _seconds(self, views: Sequence[View]) -> float:
        """Measure how long a picture takes."""
        few = self._contents(self._places(0)[:4])
        _features(*few, views, self.weights, self.device)
        start = time.perf_counter()
        _features(*few, views, self.weights, self.device)
        return (time.perf_counter() - start) / len(few[0])

    def _places(self, start: int) -> range:
        return range(start, min(start + PART, len(self.pictures.labels)))

    def _contents(self, places: range) -> tuple[list[bytes], list[str]]:
        return [self.pictures.read(place) for place in places], [self.pictures.name(place) for place in places]

    def _kept(self, folder: Path, start: int, views: Sequence[View]) -> Features | None:
        """A part as it was kept; None where it is missing or not what it should be, so that it is computed."""
        try:
            part: NDArray[Any] = np.load(folder / _part_name(start), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        shape = (len(views), len(self._places(start)), self.backbone.network.width)
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
    """Features (views, pictures, width) of some pictures; a piece of work for one process."""
    network = _backbone(weights, device).network
    windows = np.stack([cut_views(content, name, views) for content, name in zip(contents, names, strict=True)], axis=1)
    images = torch.as_tensor(windows).flatten(0, 1)
    # Rounded products (TF32) would change features in the third digit.
    with one_thread(), torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        few = torch.split(images, ON_CPU if device == "cpu" else ON_ACCELERATOR)
        found = [network(part.to(device).float().contiguous(memory_format=torch.channels_last)).cpu() for part in few]
    return torch.cat(found).view(len(views), len(contents), -1).numpy().astype(np.float16)


@contextmanager
def _speaking(folder: Path) -> Iterator[None]:
    """Turn what the system says about the cache into a sentence."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"features cannot be kept in {folder} ({error.strerror}); give another folder as --cache DIR."
        ) from error

"""Office-31: pictures of 31 kinds of objects from a shop's pages, a webcam and a digital camera (Section 6.1).

Reference: K. Saenko, B. Kulis, M. Fritz, T. Darrell, Adapting visual category models to new domains, 2010. Read from
one archive of JPEG files or from the usual folders ``amazon/images/<class>/*.jpg``. Pictures are resized to 256 x 256
and windows of 224 x 224 are cut out, as Section 6.4 of Zellinger et al. (2019) does to crop and mirror them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DataNotFoundError
from momentalign.paper.catalogue import OFFICE_FEATURES, OFFICE_IMAGES, data_folder, find_file
from momentalign.paper.image_files import decode_picture

__all__ = [
    "CENTRE",
    "CROPS",
    "DOMAINS",
    "OfficeRows",
    "Pictures",
    "View",
    "cut_views",
    "load_features",
    "load_pictures",
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
    """Return all pictures, from the folders of the three domains where they are there, or from the archive.

    Parameters
    ----------
    folder
        Where to look; None takes the environment variable ``MOMENTALIGN_DATA``.
    """
    place = data_folder(folder, name=OFFICE_IMAGES.name, explanation=f"It is {OFFICE_IMAGES.what}.")
    if (place / DOMAINS[0] / "images").is_dir():
        return _from_folders(place)
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


def _from_folders(place: Path) -> Pictures:
    """The pictures of ``<domain>/images/<class>/``, in the order of domains, classes and names."""
    classes = {domain: _names(place / domain / "images") for domain in DOMAINS}
    for domain in DOMAINS:
        if classes[domain] != classes[DOMAINS[0]]:
            raise DataNotFoundError(
                f"{place / domain / 'images'} has other classes than {DOMAINS[0]}/images; "
                "give a folder with all three domains of Office-31."
            )
    names = classes[DOMAINS[0]]
    found = [
        (path, names.index(name), code)
        for code, domain in enumerate(DOMAINS)
        for name in names
        for path in sorted((place / domain / "images" / name).iterdir())
        if path.suffix.lower() in (".jpg", ".jpeg")
    ]
    if not found:
        raise DataNotFoundError(f"{place} has no picture in its folders; give the folder of Office-31.")
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

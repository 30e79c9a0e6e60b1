"""The development tasks: 47 classification and 23 regression problems with a real shift between source and target.

Where each data set comes from stands in ``PROVENANCE.md`` beside the files. Target labels measure; they train nothing.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.datasets import load_diabetes

FAMILIES = ("gas", "surf", "heart", "census", "reviews", "objects")
BESIDE = Path(__file__).parents[2] / "shared" / "data"

_GAS_BATCHES = (2, 3, 4, 5, 6, 8, 9)
_HOSPITAL_PAIRS = ("ch", "cs", "cv", "hc", "hv", "vc")
_CENSUS_ROWS = 6000
_REVIEW_ROWS = 2000
_FEWEST_GAS_ROWS = 50
_OBJECT_DOMAINS = {2817: "a", 795: "w", 498: "d"}  # Rows of amazon, webcam and DSLR.


@dataclass(frozen=True)
class ShiftTask:
    """A labelled source and a target of the same features.

    Attributes
    ----------
    family, name
        Data set, and the pair of domains in it.
    source, y, target, y_target
        Rows and labels; the target's labels are for measuring alone.
    m
        The first m target rows are there for training, without labels, and the others measure; None: all rows are
        both.
    kind
        ``"classification"`` or ``"regression"``.
    """

    family: str
    name: str
    source: Any
    y: Any
    target: Any
    y_target: Any
    m: int | None = None
    kind: str = "classification"

    @property
    def unlabelled(self) -> Any:
        """Target rows for training."""
        return self.target[: self.m]

    @property
    def evaluation(self) -> slice:
        """Target rows that measure."""
        return slice(self.m, None)


def data_folder(given: str | Path | None = None) -> Path:
    """Return the folder of the data: the given one, else ``MOMENTALIGN_DATA``, else the one beside the repository."""
    return Path(given or os.environ.get("MOMENTALIGN_DATA") or BESIDE)


def tasks(data: Path, *, families: tuple[str, ...] = FAMILIES, kind: str = "classification") -> Iterator[ShiftTask]:
    """Yield the tasks of a kind, one after another: the memory of one task at a time.

    Families of regression: gas, census, heart and diabetes.
    """
    generators = {
        "classification": {
            "gas": _gas,
            "surf": _surf,
            "heart": _heart,
            "census": _census,
            "reviews": _reviews,
            "objects": _objects,
        },
        "regression": {
            "gas": _gas_concentrations,
            "heart": _heart_rates,
            "census": _census_hours,
            "diabetes": lambda _: _diabetes(),
        },
    }[kind]
    chosen = generators if families == FAMILIES else {name: generators[name] for name in families}
    for family in chosen.values():
        yield from family(data)


@functools.cache
def _shifts(data: Path) -> dict[str, Any]:
    with np.load(data / "shifts.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _gas(data: Path) -> Iterator[ShiftTask]:
    """Six gases, months of sensor drift: batch 1 to each other one."""
    arrays = _shifts(data)
    X, y, batch = arrays["gas_X"].astype(np.float32), arrays["gas_y"], arrays["gas_batch"]
    for other in _GAS_BATCHES:
        source, target = batch == 1, batch == other
        yield ShiftTask("gas", f"gas 1-{other}", X[source], y[source], X[target], y[target])


def _gas_concentrations(data: Path) -> Iterator[ShiftTask]:
    """Parts per million of one gas, from batch 1 to each other one with enough rows of it."""
    arrays = _shifts(data)
    X, ppm, batch = arrays["gas_X"].astype(np.float32), arrays["gas_ppm"].astype(np.float64), arrays["gas_batch"]
    for gas in ("Ethanol", "Acetone"):
        of_gas = arrays["gas_y"] == gas
        for other in _GAS_BATCHES:
            source, target = of_gas & (batch == 1), of_gas & (batch == other)
            if target.sum() >= _FEWEST_GAS_ROWS:
                name = f"{gas.lower()} 1-{other}"
                yield ShiftTask("gas", name, X[source], ppm[source], X[target], ppm[target], kind="regression")


def _surf(data: Path) -> Iterator[ShiftTask]:
    """Ten classes of objects in four collections, histograms of visual words."""
    arrays = _shifts(data)
    X, y, domain = arrays["surf_X"].astype(np.float32), arrays["surf_y"], arrays["surf_domain"]
    X /= X.sum(axis=1, keepdims=True)
    letters = [str(name)[0] for name in arrays["surf_domain_names"]]
    for s, t in _pairs(len(letters)):
        source, target = domain == s, domain == t
        yield ShiftTask("surf", f"surf {letters[s]}-{letters[t]}", X[source], y[source], X[target], y[target])


def _heart(data: Path) -> Iterator[ShiftTask]:
    """Who is sick, in four hospitals."""
    arrays = _shifts(data)
    for name, source, target in _hospital_pairs(arrays):
        X, y = arrays["heart_X"], arrays["heart_y"]
        filled = _filled(X[source], X[target], X)
        yield ShiftTask("heart", f"heart {name}", filled[0], y[source], filled[1], y[target])


def _heart_rates(data: Path) -> Iterator[ShiftTask]:
    """The highest heart rate reached, from the other measurements."""
    arrays = _shifts(data)
    column = [str(name) for name in arrays["heart_columns"]].index("thalach")
    rates = arrays["heart_X"][:, column].astype(np.float64)
    X = np.delete(arrays["heart_X"], column, axis=1)
    for name, in_source, in_target in _hospital_pairs(arrays):
        source, target = in_source & ~np.isnan(rates), in_target & ~np.isnan(rates)
        filled = _filled(X[source], X[target], X)
        yield ShiftTask(
            "heart", f"heart rate {name}", filled[0], rates[source], filled[1], rates[target], kind="regression"
        )


def _hospital_pairs(arrays: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    hospital, letters = arrays["heart_hospital"], [str(name)[0].lower() for name in arrays["heart_hospital_names"]]
    for pair in _HOSPITAL_PAIRS:
        yield pair, hospital == letters.index(pair[0]), hospital == letters.index(pair[1])


def _filled(source: Any, target: Any, everyone: Any) -> tuple[Any, Any]:
    """Gaps filled by the source's medians, with a column of zeros and ones that says where there were any."""
    empty = np.isnan(source).all(axis=0)
    medians = np.nanmedian(everyone, axis=0)
    medians[~empty] = np.nanmedian(source[:, ~empty], axis=0)
    gaps = np.isnan(everyone).any(axis=0)

    def fill(X: Any) -> Any:
        missing = np.isnan(X)
        return np.hstack([np.where(missing, medians, X), missing[:, gaps]]).astype(np.float32)

    return fill(source), fill(target)


def _census(data: Path) -> Iterator[ShiftTask]:
    """Who earns more than 50,000 dollars a year."""
    for name, X, frame, target, other in _census_pairs(data, drop=["income"]):
        labels = [part["income"].astype(str).str.contains(">50").to_numpy().astype(int) for part in (frame, other)]
        yield ShiftTask("census", f"census {name}", X, labels[0], target, labels[1])


def _census_hours(data: Path) -> Iterator[ShiftTask]:
    """Hours of work a week."""
    for name, X, frame, target, other in _census_pairs(data, drop=["income", "hours"]):
        hours = [part["hours"].to_numpy(dtype=np.float64) for part in (frame, other)]
        yield ShiftTask("census", f"hours {name}", X, hours[0], target, hours[1], kind="regression")


def _census_pairs(data: Path, *, drop: list[str]) -> Iterator[tuple[str, Any, pd.DataFrame, Any, pd.DataFrame]]:
    """Yield the four pairs: name, features and frame of the source, features and frame of the target."""
    frame = pd.read_csv(data / "adult.csv.gz").drop(columns="fnlwgt")
    american = frame.country == "United-States"
    public = frame.workclass.isin(["State-gov", "Local-gov", "Federal-gov"])
    pairs = {
        "abroad": (american, ~american & frame.country.notna(), ["country"]),
        "female": (frame.sex == "Male", frame.sex == "Female", ["sex", "relationship"]),
        "old": (frame.age < 35, frame.age >= 50, ["age"]),
        "public": (frame.workclass == "Private", public, ["workclass"]),
    }
    for name, (in_source, in_target, known) in pairs.items():
        source, target = (_sampled(frame[rows], _CENSUS_ROWS) for rows in (in_source, in_target))
        features = pd.concat([source, target]).drop(columns=[*known, *drop])
        texts = [column for column in features if not pd.api.types.is_numeric_dtype(features[column])]
        X = pd.get_dummies(features, columns=texts).to_numpy(dtype=np.float32)
        yield name, X[: len(source)], source, X[len(source) :], target


def _sampled(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    return frame.iloc[np.random.default_rng(0).permutation(len(frame))[:rows]]


def _reviews(data: Path) -> Iterator[ShiftTask]:
    """Good or bad reviews of four kinds of products; log(1 + count) of words and pairs of words."""
    with np.load(data / "amazon_reviews.npz", allow_pickle=False) as arrays:
        parts = arrays["xx_data"].astype(np.float32), arrays["xx_indices"].astype(np.int32), arrays["xx_indptr"]
        X = sparse.csc_matrix(parts, shape=arrays["xx_shape"]).T.tocsr()
        y, offset = (arrays["yy"].ravel() > 0).astype(int), arrays["offset"].ravel()
        letters = [str(name)[0] for name in arrays["domain_names"]]
    X.data = np.log1p(X.data)
    for s, t in _pairs(len(letters)):
        source, target = slice(offset[s], offset[s] + _REVIEW_ROWS), slice(offset[t], offset[t + 1])
        name = f"reviews {letters[s]}-{letters[t]}"
        yield ShiftTask("reviews", name, X[source], y[source], X[target], y[target], m=_REVIEW_ROWS)


def _objects(data: Path) -> Iterator[ShiftTask]:
    """31 classes of objects in three collections; features of a network trained on photographs."""
    with np.load(data / "office31_efflite0.npz", allow_pickle=False) as arrays:
        X, y, domain = arrays["x"].astype(np.float32), arrays["y"], arrays["domain"]
    letters = [_OBJECT_DOMAINS[int(np.sum(domain == d))] for d in range(3)]
    for s, t in _pairs(3):
        source, target = domain == s, domain == t
        yield ShiftTask("objects", f"objects {letters[s]}-{letters[t]}", X[source], y[source], X[target], y[target])


def _diabetes() -> Iterator[ShiftTask]:
    """Progress of diabetes: from the younger half to the older one, and from the lighter to the heavier."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    for column, name in (("age", "age"), ("bmi", "body mass")):
        upper = (X[column] > X[column].median()).to_numpy()
        rows = X.drop(columns=column).to_numpy()
        yield ShiftTask(
            "diabetes", f"diabetes {name}", rows[~upper], y[~upper].to_numpy(), rows[upper], y[upper].to_numpy(),
            kind="regression",
        )  # fmt: skip


def _pairs(domains: int) -> Iterator[tuple[int, int]]:
    return ((s, t) for s in range(domains) for t in range(domains) if s != t)

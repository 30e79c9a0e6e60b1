"""Labels that arrive in chunks: looked at in a first reading, turned into what a network learns in all later ones.

What a regressor learns: one or several numbers per row, read, joined with those of the target, and standardised.
"""

from __future__ import annotations

import math
import reprlib
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import assert_all_finite, column_or_1d

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.domains import Domains, encode_labels, naming, read_domains
from momentalign.tables.table import quoted, shown

__all__ = ["ChunkLabels", "ClassLabels", "NumberLabels", "Scale", "fitted_scale", "read_valued_domains", "read_values"]

Floats: TypeAlias = NDArray[np.float64]


class Scale(NamedTuple):
    """Mean and deviation of each output: single numbers for values (rows,), arrays for values (rows, outputs)."""

    mean: Floats
    deviation: Floats

    def standardise(self, values: Floats) -> Floats:
        """Return values of mean 0 and deviation 1, always (rows, outputs); a constant output becomes zeros."""
        divisor = np.where(self.deviation > 0.0, self.deviation, 1.0)
        return ((values - self.mean) / divisor).reshape(len(values), -1)

    def restore(self, outputs: Floats) -> Floats:
        """Return values of the shape that was learned; a constant output comes back to the last digit."""
        return self.mean + self.deviation * outputs.reshape(len(outputs), *self.mean.shape)


def fitted_scale(values: Floats) -> Scale:
    """Return mean and deviation of the rows, or say that they leave float64.

    Examples
    --------
    >>> scale = fitted_scale(np.array([1.0, 3.0]))
    >>> scale.mean, scale.deviation
    (array(2.), array(1.))
    >>> scale.standardise(np.array([1.0, 3.0])).tolist()
    [[-1.0], [1.0]]
    """
    constant = values.min(axis=0) == values.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        # Sums of equal numbers are rounded: a constant is its own mean.
        mean = np.where(constant, values[0], values.mean(axis=0))
        deviation = np.where(constant, 0.0, values.std(axis=0))
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
        raise InvalidInputError(f"y holds {np.abs(values).max():g}, too large to take a deviation of; scale y first.")
    return Scale(mean, deviation)


def read_valued_domains(
    estimator: BaseEstimator, X: Any, y: Any, X_target: Any, *, sample_domain: Any = None, y_target: Any = None
) -> Domains:
    """Return the domains of one call of ``fit`` with numbers (rows,) or (rows, outputs) for labels, checked.

    As :func:`~momentalign.estimators.domains.read_domains`, but -1 in `y_target` is a number like any other.
    """
    values = None if y is None else read_values(y, "y")
    # Domains are told apart by row; which numbers belong to a row is looked up afterwards.
    numbers = None if values is None else np.arange(len(values))
    domains = read_domains(estimator, X, numbers, X_target, sample_domain=sample_domain)
    assert values is not None  # noqa: S101  (read_domains has refused None)
    domains = domains._replace(labels=values[domains.labels])
    with naming("y"):
        assert_all_finite(domains.labels, input_name="y")
    return domains if y_target is None else _with_known_target(domains, read_values(y_target, "y_target"))


def read_values(values: Any, name: str) -> Floats:
    """Return numbers (rows,) or (rows, outputs) as float64, None as NaN, or say why they are none."""
    with naming(name):
        array = np.asarray(values)
    if array.ndim not in (1, 2) or array.size == 0:
        raise InvalidInputError(
            f"{name} must hold one or several numbers per row, shape (n,) or (n, outputs), got shape {array.shape}."
        )
    if array.dtype.kind == "c":
        raise InvalidInputError(f"{name}: Complex data not supported; give real and imaginary parts as two outputs.")
    return array.astype(np.float64) if array.dtype.kind in "biuf" else _from_objects(array, name)


def _from_objects(array: NDArray[Any], name: str) -> Floats:
    """Numbers that stand among None as objects; a string is no number, even where it could be read as one."""
    entries = array.ravel().tolist()
    strange = [entry for entry in entries if isinstance(entry, (str, bytes))]
    try:
        if array.dtype.kind == "O" and not strange:
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        strange = [entry for entry in entries if not isinstance(entry, (bool, int, float, type(None)))]
    shown = " ".join(reprlib.repr((strange or entries)[0]).split())
    raise InvalidTypeError(f"{name} holds {shown}, a regressor learns numbers; use MANNClassifier for classes.")


def _with_known_target(domains: Domains, values: Floats) -> Domains:
    """Target rows whose numbers are all known join the source."""
    rows = 0 if domains.target is None else domains.target.shape[0]
    expected = (rows, *domains.labels.shape[1:])
    if domains.target is None or values.shape != expected:
        raise InvalidInputError(
            f"y_target must hold the numbers of every target row, shape {expected}, got shape {values.shape}; mark "
            "missing ones with NaN or None."
        )
    known = ~np.isnan(values.reshape(rows, -1)).any(axis=1)
    with naming("y_target"):
        assert_all_finite(values[known], input_name="y_target")
    parts: list[Any] = [domains.source, domains.target[known]]
    joined = sparse.vstack(parts, format="csr") if sparse.issparse(domains.source) else np.concatenate(parts)
    return domains._replace(source=joined, labels=np.concatenate([domains.labels, values[known]]))


# Rows whose mean and deviation are taken at once: 0.5 MB of numbers.
BLOCK = 2**16


class ChunkLabels(Protocol):
    """What is to be done with labels, whichever they are; errors leave it to the caller to name the chunk."""

    def read(self, y: Any) -> NDArray[Any]:
        """Return the labels of a chunk as an array, checked by themselves."""
        ...

    def note(self, labels: NDArray[Any]) -> None:
        """Take in a chunk of the first reading."""
        ...

    def finish(self) -> None:
        """End the first reading."""
        ...

    def coded(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return labels as a :class:`~momentalign.training.config.Task` has them."""
        ...

    @property
    def fewest(self) -> int:
        """Rows below which a part of the data says nothing."""
        ...


class ClassLabels:
    """Classes, found in the first reading or given.

    Examples
    --------
    >>> labels = ClassLabels()
    >>> for chunk in (["pear", "fig"], ["plum", "fig"]):
    ...     labels.note(labels.read(chunk))
    >>> labels.finish()
    >>> labels.classes.tolist(), labels.coded(np.array(["plum", "fig"])).tolist()
    (['fig', 'pear', 'plum'], [2, 0])
    """

    def __init__(self, classes: Any = None) -> None:
        self.classes: NDArray[Any] = np.zeros(0)
        self._given = classes is not None
        if self._given:
            with naming("classes"):
                self.classes, _ = encode_labels(column_or_1d(classes))
            self.finish()

    @property
    def fewest(self) -> int:
        """One row of each class."""
        return len(self.classes)

    def read(self, y: Any) -> NDArray[Any]:
        """Return the labels of a chunk, none of them missing."""
        with naming("y"):
            labels = np.asarray(column_or_1d(y, warn=True))
        _refuse_gaps(labels)
        return labels

    def note(self, labels: NDArray[Any]) -> None:
        """Add the classes of a chunk to those found so far; refuse others than those given."""
        if self._given:
            self.coded(labels)
            return
        found, _ = encode_labels(labels)
        if len(self.classes):
            self._refuse_other_kind(found)
            found = np.unique(np.concatenate([self.classes, found]))
        self.classes = found

    def finish(self) -> None:
        """Refuse what has one class only."""
        if len(self.classes) < 2:
            raise InvalidInputError(
                f"there is one class only ({self._listed()}); a classifier needs the labels of at least two."
            )

    def coded(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        """Return the number of each label's class, or name the row whose label is none."""
        self._refuse_other_kind(labels)
        places = np.searchsorted(self.classes, labels).clip(max=len(self.classes) - 1)
        unknown = self.classes[places] != labels
        if unknown.any():
            row = int(unknown.argmax())
            raise InvalidInputError(
                f"row {row + 1} has the label {shown(labels[row])}, the classes are {self._listed()}; name all "
                "classes before the first row is learned from."
            )
        return places

    def _listed(self) -> str:
        return quoted(self.classes.tolist())

    def _refuse_other_kind(self, labels: NDArray[Any]) -> None:
        """Numbers and text compare as text in numpy, and 1 would be '1'."""
        if (labels.dtype.kind in "biuf") != (self.classes.dtype.kind in "biuf"):
            raise InvalidInputError(
                f"labels such as {shown(labels[0])} are of {labels.dtype}, the classes ({self._listed()}) of "
                f"{self.classes.dtype}; make all of them numbers or all strings."
            )


class NumberLabels:
    """Numbers, one or several per row, learned with the mean 0 and the deviation 1 they have in the first reading.

    Means and deviations of chunks are merged as in Chan, Golub and LeVeque (Algorithms for computing the sample
    variance, The American Statistician 37, 1983): no difference of large sums is taken. What is merged are blocks of
    a size of their own, so that the size of the chunks changes no digit.

    Examples
    --------
    >>> labels = NumberLabels()
    >>> for chunk in ([1.0, 3.0], [5.0, 7.0]):
    ...     labels.note(labels.read(chunk))
    >>> labels.finish()
    >>> labels.scale.mean, labels.coded(np.array([4.0])).tolist()
    (array(4.), [[0.0]])
    """

    fewest = 2

    def __init__(self, scale: Scale | None = None) -> None:
        self.scale = scale
        self._shape = None if scale is None else scale.mean.shape
        self._rows = 0
        self._waiting: list[NDArray[np.float64]] = []
        self._n_waiting = 0

    def read(self, y: Any) -> NDArray[np.float64]:
        """Return the numbers of a chunk, all finite and as many per row as before."""
        values = read_values(y, "y")
        _refuse_gaps(values)
        if self._shape is not None and values.shape[1:] != self._shape:
            raise InvalidInputError(
                f"y has the shape {values.shape}, {math.prod(self._shape)} numbers per row came before; give as many."
            )
        return values

    def note(self, labels: NDArray[np.float64]) -> None:
        """Take in a chunk; mean and deviation are those of all rows once the reading has ended."""
        self._shape = labels.shape[1:]
        self._waiting.append(labels)
        self._n_waiting += len(labels)
        if self._n_waiting >= BLOCK:
            self._merge_waiting(self._n_waiting - self._n_waiting % BLOCK)

    def finish(self) -> None:
        """Merge the last rows; there is nothing to refuse, a number that never changes can be learned."""
        if self._n_waiting:
            self._merge_waiting(self._n_waiting)

    def _merge_waiting(self, count: int) -> None:
        """Merge as many rows, block by block; the others wait for more."""
        # Columns one after the other would be summed in another order.
        joined = np.ascontiguousarray(np.concatenate(self._waiting))
        for start in range(0, count, BLOCK):
            self._merge(joined[start : min(start + BLOCK, count)])
        self._waiting, self._n_waiting = [joined[count:].copy()], len(joined) - count

    def _merge(self, labels: NDArray[np.float64]) -> None:
        """Merge mean and deviation of a block with those of the rows before."""
        part, rows = fitted_scale(labels), len(labels)
        if self.scale is None:
            self.scale, self._rows = part, rows
            return
        share = rows / (self._rows + rows)
        distance = part.mean - self.scale.mean
        with np.errstate(over="ignore"):
            variance = (1.0 - share) * self.scale.deviation**2 + share * part.deviation**2
            variance += share * (1.0 - share) * distance**2
        if not np.isfinite(variance).all():
            raise InvalidInputError(
                f"y holds {np.abs(labels).max():g}, too large to take a deviation of; scale y first."
            )
        self.scale = Scale(np.asarray(self.scale.mean + share * distance), np.asarray(np.sqrt(variance)))
        self._rows += rows

    def coded(self, labels: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return standardised numbers, (rows, outputs)."""
        assert self.scale is not None  # noqa: S101  (finish was called, or the scale was given)
        if not len(labels):
            return np.zeros((0, self.scale.mean.size), np.float32)
        return self.scale.standardise(labels).astype(np.float32)


def _refuse_gaps(labels: NDArray[Any]) -> None:
    """Name the first row whose label is missing or not finite."""
    cells = labels.ravel()
    if labels.dtype.kind == "f":
        gaps = ~np.isfinite(cells)
    elif labels.dtype.kind == "O":
        gaps = np.array([not isinstance(cell, str) and _is_missing(cell) for cell in cells.tolist()])
    else:
        return
    if gaps.any():
        place = int(gaps.argmax())
        row, kind = place * len(labels) // len(cells), "missing" if _is_missing(cells[place]) else "not finite"
        raise InvalidInputError(
            f"the label of row {row + 1} is {kind} ({shown(cells[place])}); fill it in or leave the row out."
        )


def _is_missing(label: Any) -> bool:
    """None, NaN, and the NA of pandas, which answers no comparison with yes or no."""
    return label is None or type(label).__name__ == "NAType" or bool(label != label)

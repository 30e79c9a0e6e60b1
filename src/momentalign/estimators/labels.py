"""What a network learns: labels read, checked, turned into codes or standardised values, and held out.

:class:`ClassLabels` are those of a classifier, :class:`ContinuousLabels` those of a regressor. Both serve whole
samples and samples that arrive in chunks: every part goes through ``read`` and ``note``, ``finish`` ends the first
reading, and ``coded`` turns any part into what a :class:`~momentalign.training.config.Task` holds.
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.tables.table import quoted, shown
from momentalign.validation import naming

__all__ = [
    "ClassLabels",
    "ContinuousLabels",
    "Labels",
    "Scale",
    "encode_labels",
    "fitted_scale",
    "read_values",
    "refuse_missing",
]

Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.intp]

# Rows whose mean and standard deviation are taken at once: 0.5 MB of numbers.
BLOCK = 2**16
# Whole numbers are exact in float64 below this.
WHOLE_BELOW = 2.0**53


class Labels(ABC):
    """What is done with labels, whichever they are; the caller gives errors the name of the chunk or argument."""

    @property
    @abstractmethod
    def fewest(self) -> int:
        """Rows below which a part of the data says nothing."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Units of the last layer of the network that learns them."""

    @abstractmethod
    def read(self, y: Any) -> NDArray[Any]:
        """Return labels as an array with one entry, or one row of entries, per row of the sample."""

    @abstractmethod
    def known_of_target(self, y_target: Any, labels: NDArray[Any], rows: int) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Return which of `rows` target rows have a label, and these labels, of the kind of those of the source."""

    @abstractmethod
    def note(self, labels: NDArray[Any]) -> None:
        """Take in a part of the first reading."""

    @abstractmethod
    def finish(self) -> None:
        """End the first reading."""

    @abstractmethod
    def coded(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return labels as a :class:`~momentalign.training.config.Task` has them."""

    @abstractmethod
    def hold_out(self, codes: NDArray[Any], fraction: float, seed: int) -> tuple[Rows, Rows | None]:
        """Split rows at random into those to train on and those held out, None where a part would be too small."""

    def learn(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Take in labels that are all there are, and return them coded."""
        self.note(labels)
        self.finish()
        return self.coded(labels)


class ClassLabels(Labels):
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
    def n_outputs(self) -> int:
        """One unit per class."""
        return len(self.classes)

    @property
    def fewest(self) -> int:
        """One row of each class."""
        return len(self.classes)

    def read(self, y: Any) -> NDArray[Any]:
        """Return one label per row."""
        with naming("y"):
            return np.asarray(column_or_1d(y, warn=True))

    def known_of_target(self, y_target: Any, labels: NDArray[Any], rows: int) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Return the labels that are not NaN, None, the NA of pandas or, unless it is a class of the source, -1."""
        # A list of names and numbers would become an array of names.
        given = np.array(y_target, dtype=object) if isinstance(y_target, (list, tuple)) else np.asarray(y_target)
        if given.shape != (rows,):
            raise InvalidInputError(
                f"y_target must hold one entry per target row ({rows}), got shape {given.shape}; mark missing ones "
                "with NaN, None or -1."
            )
        unknown = [] if (labels == -1).any() else [-1]
        known = np.array([not (_is_missing(label) or label in unknown) for label in given.tolist()], dtype=bool)
        return known, _as_kind_of(given[known], labels) if known.any() else labels[:0]

    def note(self, labels: NDArray[Any]) -> None:
        """Add the classes of a part to those found so far; refuse others than those given."""
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
                f"y has one class only ({self._listed()}); a classifier needs the labels of at least 2 classes."
            )

    def coded(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        """Return the number of each label's class, or name the row whose label is none."""
        self._refuse_other_kind(labels)
        codes = np.searchsorted(self.classes, labels).clip(max=len(self.classes) - 1)
        unknown = self.classes[codes] != labels
        if unknown.any():
            row = int(unknown.argmax())
            raise InvalidInputError(
                f"y has the label {shown(labels[row])} in row {row + 1}, the classes are {self._listed()}; name all "
                "classes before the first row is learned from."
            )
        return codes

    def hold_out(self, codes: NDArray[Any], fraction: float, seed: int) -> tuple[Rows, Rows | None]:
        """Classes in proportion in both parts."""
        order = np.random.default_rng([seed, 0]).permutation(len(codes))
        counts = np.bincount(codes)
        present, held_out = np.count_nonzero(counts), math.ceil(fraction * len(codes))
        if fraction == 0.0 or counts.min() < 2 or min(held_out, len(codes) - held_out) < present:
            return order, None
        training, validation = train_test_split(
            order, test_size=held_out, stratify=codes[order], shuffle=True, random_state=seed % 2**32
        )
        return training, validation

    def _listed(self) -> str:
        return quoted(self.classes.tolist())

    def _refuse_other_kind(self, labels: NDArray[Any]) -> None:
        """Numbers and text compare as text in numpy, and 1 would be '1'."""
        if (labels.dtype.kind in "biuf") != (self.classes.dtype.kind in "biuf"):
            raise InvalidInputError(
                f"y has labels such as {shown(labels[0])} of {labels.dtype}, the classes ({self._listed()}) are of "
                f"{self.classes.dtype}; make all of them numbers or all strings."
            )


def encode_labels(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the classes in order and each label as the number of its class."""
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        raise InvalidTypeError("y holds labels of different types; make all of them numbers or all strings.") from None
    # Labels beyond the whole numbers of 64 bits are asked whether they are whole.
    with naming("y"), np.errstate(invalid="ignore"):
        check_classification_targets(labels)
    return classes, codes


def _as_kind_of(labels: NDArray[Any], source_labels: NDArray[Any]) -> NDArray[Any]:
    """Labels of the source's kind: an array that also holds missing ones is of floats or of objects."""
    plain = np.array(labels.tolist())
    if plain.dtype.kind == "f" and not np.isfinite(plain).all():
        raise InvalidInputError("y_target holds an infinite label; mark missing ones with NaN, None or -1.")
    if source_labels.dtype.kind in "iu" and plain.dtype.kind == "f" and (np.abs(plain) < WHOLE_BELOW).all():
        whole = plain.astype(np.int64)
        plain = whole if (whole == plain).all() else plain
    if source_labels.dtype.kind == "O" and plain.dtype.kind in "UO":
        return plain.astype(object)
    kinds = {plain.dtype.kind, source_labels.dtype.kind}
    if len(kinds) > 1 and not kinds <= set("iuf"):
        raise InvalidInputError(
            f"y_target holds labels such as {plain.tolist()[0]!r}, y is of {source_labels.dtype}; "
            "give labels of one kind."
        )
    return plain


class Scale(NamedTuple):
    """Mean and standard deviation of each output: single numbers for values (rows,), arrays for (rows, outputs)."""

    mean: Floats
    standard_deviation: Floats

    def standardise(self, values: Floats) -> Floats:
        """Return values of mean 0 and standard deviation 1, always (rows, outputs); a constant output is all zeros."""
        divisor = np.where(self.standard_deviation > 0.0, self.standard_deviation, 1.0)
        return ((values - self.mean) / divisor).reshape(len(values), -1)

    def restore(self, outputs: Floats) -> Floats:
        """Return values of the shape that was learned; a constant output comes back to the last digit."""
        return self.mean + self.standard_deviation * outputs.reshape(len(outputs), *self.mean.shape)


def fitted_scale(values: Floats) -> Scale:
    """Return mean and standard deviation of the rows, or say that they leave float64.

    Examples
    --------
    >>> scale = fitted_scale(np.array([1.0, 3.0]))
    >>> scale.mean, scale.standard_deviation
    (array(2.), array(1.))
    >>> scale.standardise(np.array([1.0, 3.0])).tolist()
    [[-1.0], [1.0]]
    """
    constant = values.min(axis=0) == values.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        # Sums of equal numbers are rounded: a constant is its own mean.
        mean = np.where(constant, values[0], values.mean(axis=0))
        standard_deviation = np.where(constant, 0.0, values.std(axis=0))
    if not (np.isfinite(mean).all() and np.isfinite(standard_deviation).all()):
        raise _too_large(values)
    return Scale(mean, standard_deviation)


class ContinuousLabels(Labels):
    """Numbers, one or several per row, learned with the mean 0 and standard deviation 1 of the first reading.

    Means and standard deviations of parts are merged as in Chan, Golub and LeVeque (Algorithms for computing the sample
    variance, The American Statistician 37, 1983): no difference of large sums is taken. What is merged are blocks of
    a size of their own, so that the size of the chunks changes no digit.

    Examples
    --------
    >>> labels = ContinuousLabels()
    >>> for chunk in ([1.0, 3.0], [5.0, 7.0]):
    ...     labels.note(labels.read(chunk))
    >>> labels.finish()
    >>> labels.scale.mean, labels.coded(np.array([4.0])).tolist()
    (array(4.), [[0.0]])
    """

    def __init__(self, scale: Scale | None = None) -> None:
        self.scale, self._given = scale, scale is not None
        self._shape = None if scale is None else scale.mean.shape
        self._rows = 0
        self._waiting: list[Floats] = []
        self._n_waiting = 0

    @property
    def n_outputs(self) -> int:
        """One unit per number of a row."""
        assert self.scale is not None  # noqa: S101  (finish was called, or the scale was given)
        return int(self.scale.mean.size)

    @property
    def fewest(self) -> int:
        """Fewer have no standard deviation."""
        return 2

    def read(self, y: Any) -> Floats:
        """Return as many numbers per row as before; a missing one is NaN."""
        values = read_values(y, "y")
        if self._shape is not None and values.shape[1:] != self._shape:
            raise InvalidInputError(
                f"y has the shape {values.shape}, {math.prod(self._shape)} numbers per row came before; give as many."
            )
        return values

    def known_of_target(self, y_target: Any, labels: NDArray[Any], rows: int) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Return the rows all of whose numbers are known; -1 is a number like any other."""
        values, expected = read_values(y_target, "y_target"), (rows, *labels.shape[1:])
        if values.shape != expected:
            raise InvalidInputError(
                f"y_target must hold the numbers of every target row, shape {expected}, got shape {values.shape}; mark "
                "missing ones with NaN or None."
            )
        known = np.asarray(~np.isnan(values.reshape(rows, -1)).any(axis=1))
        with naming("y_target"):
            assert_all_finite(values[known], input_name="y_target")
        return known, values[known]

    def note(self, labels: Floats) -> None:
        """Take in a part; mean and standard deviation are those of all rows once the reading has ended, or as given."""
        if self._given:
            return
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

    def _merge(self, values: Floats) -> None:
        """Merge mean and standard deviation of a block with those of the rows before."""
        part, rows = fitted_scale(values), len(values)
        if self.scale is None:
            self.scale, self._rows = part, rows
            return
        share = rows / (self._rows + rows)
        difference = part.mean - self.scale.mean
        with np.errstate(over="ignore"):
            variance = (1.0 - share) * self.scale.standard_deviation**2 + share * part.standard_deviation**2
            variance += share * (1.0 - share) * difference**2
        if not np.isfinite(variance).all():
            raise _too_large(values)
        self.scale = Scale(np.asarray(self.scale.mean + share * difference), np.asarray(np.sqrt(variance)))
        self._rows += rows

    def coded(self, labels: Floats) -> NDArray[np.float32]:
        """Return standardised numbers, (rows, outputs)."""
        assert self.scale is not None  # noqa: S101  (finish was called, or the scale was given)
        if not len(labels):
            return np.zeros((0, self.scale.mean.size), np.float32)
        return self.scale.standardise(labels).astype(np.float32)

    def hold_out(self, codes: NDArray[Any], fraction: float, seed: int) -> tuple[Rows, Rows | None]:
        """Any rows, at least two in each part."""
        order = np.random.default_rng([seed, 0]).permutation(len(codes))
        held_out = math.ceil(fraction * len(codes))
        if min(held_out, len(codes) - held_out) < self.fewest:
            return order, None
        return order[held_out:], order[:held_out]


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
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    # Numbers may stand among None as objects; a string is no number, even where it could be read as one.
    entries = array.ravel().tolist()
    strange = [entry for entry in entries if isinstance(entry, (str, bytes))]
    try:
        if array.dtype.kind == "O" and not strange:
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        strange = [entry for entry in entries if not isinstance(entry, (bool, int, float, type(None)))]
    found = " ".join(reprlib.repr((strange or entries)[0]).split())
    raise InvalidTypeError(f"{name} holds {found}, a regressor learns numbers; use MANNClassifier for classes.")


def _too_large(values: Floats) -> InvalidInputError:
    largest = np.abs(values).max()
    return InvalidInputError(f"y holds {largest:g}, too large to take a standard deviation of; scale y first.")


def refuse_missing(labels: NDArray[Any]) -> None:
    """Name the first row whose label is missing or not finite."""
    cells = labels.ravel()
    if labels.dtype.kind == "f":
        missing = ~np.isfinite(cells)
    elif labels.dtype.kind == "O":
        missing = np.array([not isinstance(cell, str) and _is_missing(cell) for cell in cells.tolist()])
    else:
        return
    if missing.any():
        index = int(missing.argmax())
        row, kind = index * len(labels) // len(cells), "missing" if _is_missing(cells[index]) else "not finite"
        raise InvalidInputError(
            f"the label of row {row + 1} is {kind} ({shown(cells[index])}); fill it in or leave the row out."
        )


def _is_missing(label: Any) -> bool:
    """None, NaN, and the NA and NaT of pandas, of which NA answers no comparison with yes or no."""
    return label is None or type(label).__name__ in ("NAType", "NaTType") or bool(label != label)

"""What scores are computed from, read once: probabilities, labels, one number per row, features."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError

__all__ = ["Features", "Floats", "read_features", "read_labels", "read_probabilities", "read_row_values", "read_stack"]

Floats: TypeAlias = NDArray[np.float64]
# A dense array or a scipy CSR matrix.
Features: TypeAlias = Any

# Rows of probabilities computed in half precision sum to 1 within this.
_ROUNDING = 1e-3


def read_probabilities(values: ArrayLike, name: str) -> Floats:
    """Return class probabilities (rows, classes) whose rows sum to 1, or say what is wrong with them.

    Examples
    --------
    >>> read_probabilities([[0.25, 0.75]], "probabilities")
    array([[0.25, 0.75]])
    """
    array = _as_floats(values, name)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise InvalidInputError(
            f"{name} must have shape (rows, classes) with at least 2 classes, got {array.shape}; "
            "give one column per class."
        )
    return _normalised(array, name)


def read_stack(values: ArrayLike, name: str) -> Floats:
    """Return the probabilities of several models on the same rows, (models, rows, classes).

    Examples
    --------
    >>> read_stack([[[0.25, 0.75]], [[0.5, 0.5]]], "predictions").shape
    (2, 1, 2)
    """
    array = _as_floats(values, name)
    if array.ndim != 3 or min(array.shape[:2]) < 1 or array.shape[2] < 2:
        raise InvalidInputError(
            f"{name} must have shape (models, rows, classes) with at least 2 classes, got {array.shape}; "
            "stack one matrix of probabilities per model."
        )
    return _normalised(array, name)


def read_labels(values: ArrayLike, name: str, *, rows: int, classes: int) -> NDArray[np.intp]:
    """Return labels (rows,) as codes 0 to classes - 1.

    Examples
    --------
    >>> read_labels([0, 1, 1], "labels", rows=3, classes=2)
    array([0, 1, 1])
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise InvalidTypeError(f"{name} must be whole numbers, got {array.dtype}; give the code of each row's class.")
    if array.shape != (rows,):
        raise InvalidInputError(f"{name} must have shape ({rows},), got {array.shape}; give one label per row.")
    if array.min() < 0 or array.max() >= classes:
        raise InvalidInputError(
            f"{name} must be codes from 0 to {classes - 1}, got {array.min()} to {array.max()}; "
            "number the classes like the columns of the probabilities."
        )
    return array.astype(np.intp)


def read_row_values(values: ArrayLike, name: str, *, rows: int | None = None) -> Floats:
    """Return one finite number of at least 0 per row, such as a loss or a weight.

    Examples
    --------
    >>> read_row_values([0.5, 2], "weights", rows=2)
    array([0.5, 2. ])
    """
    array = _as_floats(values, name)
    if array.ndim != 1 or array.size == 0 or array.size != (rows or array.size):
        raise InvalidInputError(
            f"{name} must have shape ({rows or 'rows'},), got {array.shape}; give one number per row."
        )
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise InvalidInputError(
            f"{name} must be finite and at least 0, got {array.min():.6g} to {array.max():.6g}; look at those rows."
        )
    return array


def read_features(values: Features, name: str) -> Features:
    """Return finite features (rows, width) in float64, a CSR matrix where they were sparse.

    Examples
    --------
    >>> read_features([[0, 1], [2, 3]], "source")
    array([[0., 1.],
           [2., 3.]])
    """
    is_sparse = sparse.issparse(values)
    array: Features = sparse.csr_array(values, dtype=np.float64) if is_sparse else _as_floats(values, name)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(
            f"{name} must have shape (rows, width), got {array.shape}; give the features of one row each."
        )
    if not np.isfinite(array.data if is_sparse else array).all():
        raise InvalidInputError(f"{name} holds NaN or infinity; fill in or drop those rows.")
    return array


def _as_floats(values: ArrayLike, name: str) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidTypeError(f"{name} must be an array of numbers, got {type(values).__name__}.") from None


def _normalised(array: Floats, name: str) -> Floats:
    """The same probabilities without their rounding."""
    low, high = array.min(), array.max()
    if not (low >= -_ROUNDING and high <= 1.0 + _ROUNDING):
        raise InvalidInputError(f"{name} must lie in [0, 1], got {low:.6g} to {high:.6g}; give class probabilities.")
    positive = np.maximum(array, 0.0)
    totals = positive.sum(axis=-1, keepdims=True)
    worst = totals.flat[np.abs(totals - 1.0).argmax()]
    if abs(worst - 1.0) > _ROUNDING:
        raise InvalidInputError(f"{name} must sum to 1 in each row, got {worst:.6g}; divide the rows by their sums.")
    return np.asarray(positive / totals)

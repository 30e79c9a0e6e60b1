"""Every check of an argument, once: a value comes back in the type the code works with, or an error names it."""

from __future__ import annotations

import math
import numbers
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError

__all__ = [
    "Features",
    "Floats",
    "check_confidence",
    "check_device",
    "check_features",
    "check_generator",
    "check_interval",
    "check_number",
    "check_probabilities",
    "check_row_values",
    "check_seed",
    "check_stack",
    "positive_int",
    "read_labels",
]

Floats: TypeAlias = NDArray[np.float64]
# A dense array or a scipy CSR matrix.
Features: TypeAlias = Any

# Rows of probabilities computed in half precision sum to 1 within this.
_ROUNDING = 1e-3


def positive_int(value: object, name: str, *, example: str = "5") -> int:
    """Return `value` as a whole number of at least 1, or say what is wrong with it and give an example."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidTypeError(f"{name} must be a whole number, got {value!r}; try {name}={example}.")
    if value < 1:
        raise InvalidInputError(f"{name} must be at least 1, got {value}; try {name}={example}.")
    return int(value)


def check_interval(interval: object) -> float:
    """Return |b - a| of an interval given as a pair, or say what is wrong with it."""
    try:
        if isinstance(interval, str):
            raise TypeError
        a, b = (float(bound) for bound in interval)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f'interval must be a pair (a, b) or "data", got {interval!r}; try interval=(0.0, 1.0).'
        ) from None
    if not math.isfinite(b - a) or a == b:
        raise InvalidInputError(f"interval must be finite and not empty, got {interval!r}; try interval=(0.0, 1.0).")
    return abs(b - a)


def check_number(value: object, name: str, *, least: float, most: float = math.inf) -> float:
    """Return a parameter as a finite number within limits, or say what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidTypeError(f"{name} must be a number, got {value!r}.")
    number = float(value)
    if not (math.isfinite(number) and least <= number <= most):
        limit = f" and at most {most:g}" if math.isfinite(most) else ""
        raise InvalidInputError(f"{name} must be a finite number of at least {least:g}{limit}, got {value!r}.")
    return number


def check_seed(random_state: int | np.random.RandomState | np.random.Generator | None) -> int:
    """Return a seed; drawing one for None leaves the global random state alone."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, bool) or not isinstance(random_state, numbers.Integral) or random_state < 0:
        raise InvalidInputError(
            f"random_state must be a whole number of at least 0, a RandomState or None, got {random_state!r}."
        )
    return int(random_state)


def check_generator(random_state: object) -> np.random.Generator:
    """Return the generator that numbers are drawn with, or say what is wrong with it; a generator is used as it is.

    Examples
    --------
    >>> check_generator(0).integers(10, size=3).tolist()
    [8, 6, 5]
    """
    try:
        if isinstance(random_state, bool):
            raise TypeError
        return np.random.default_rng(random_state)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidTypeError(
            f"random_state must be a whole number of at least 0, a Generator or None, got {random_state!r}; try "
            "random_state=0."
        ) from None


def check_device(device: str) -> str:
    """Return the device a name stands for: ``"auto"`` is a GPU if there is one."""
    if device != "auto":
        return str(device)
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def check_confidence(confidence: float) -> float:
    """Return a confidence between 0 and 1, or say what is wrong with it."""
    if isinstance(confidence, (int, float)) and 0.0 < confidence < 1.0:
        return float(confidence)
    raise InvalidInputError(f"confidence must be between 0 and 1, got {confidence!r}; try confidence=0.95.")


def check_probabilities(values: ArrayLike, name: str) -> Floats:
    """Return class probabilities (rows, classes) whose rows sum to 1, or say what is wrong with them.

    Examples
    --------
    >>> check_probabilities([[0.25, 0.75]], "probabilities")
    array([[0.25, 0.75]])
    """
    array = _as_floats(values, name)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise InvalidInputError(
            f"{name} must have shape (rows, classes) with at least 2 classes, got {array.shape}; "
            "give one column per class."
        )
    return _normalised(array, name)


def check_stack(values: ArrayLike, name: str) -> Floats:
    """Return the probabilities of several models on the same rows, (models, rows, classes).

    Examples
    --------
    >>> check_stack([[[0.25, 0.75]], [[0.5, 0.5]]], "predictions").shape
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


def check_row_values(values: ArrayLike, name: str, *, rows: int | None = None) -> Floats:
    """Return one finite number of at least 0 per row, such as a loss or a weight.

    Examples
    --------
    >>> check_row_values([0.5, 2], "weights", rows=2)
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


def check_features(values: Features, name: str) -> Features:
    """Return finite features (rows, width) in float64, a CSR matrix where they were sparse.

    Examples
    --------
    >>> check_features([[0, 1], [2, 3]], "source")
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

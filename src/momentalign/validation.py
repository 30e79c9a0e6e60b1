"""Every check of an argument, once: a value comes back in the type the code works with, or an error names it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignError

__all__ = [
    "Features",
    "Floats",
    "check_bool",
    "check_choice",
    "check_codes",
    "check_confidence",
    "check_device",
    "check_domain_weights",
    "check_features",
    "check_generator",
    "check_int",
    "check_interval",
    "check_number",
    "check_probabilities",
    "check_row_values",
    "check_seed",
    "check_stack",
    "naming",
    "positive_int",
    "refuse_other_count",
]

Floats: TypeAlias = NDArray[np.float64]
# A dense array or a scipy CSR matrix.
Features: TypeAlias = Any

# Rows of probabilities computed in half precision sum to 1 within this.
_ROUNDING = 1e-3


def positive_int(value: object, name: str, *, example: str = "5") -> int:
    """Return `value` as a whole number of at least 1, or say what is wrong with it and give an example."""
    return check_int(value, name, least=1, example=example)


def check_int(
    value: object, name: str, *, least: float = -math.inf, most: float = math.inf, example: object = None
) -> int:
    """Return a parameter as a whole number within limits.

    Examples
    --------
    >>> check_int(np.int8(3), "order", least=1, most=5)
    3
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidTypeError(f"{name} must be a whole number, got {value!r:.80}{_remedy(name, example)}")
    if not least <= int(value) <= most:
        bounds = [f"at least {least:g}"] if math.isfinite(least) else []
        bounds += [f"at most {most:g}"] if math.isfinite(most) else []
        raise InvalidInputError(f"{name} must be {' and '.join(bounds)}, got {value!r:.80}{_remedy(name, example)}")
    return int(value)


def check_number(
    value: object,
    name: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    example: object = None,
) -> float:
    """Return a parameter as a finite number within limits; `least` and `most` are allowed, `above` and `below` are not.

    Examples
    --------
    >>> check_number(1, "share", above=0.0, most=1.0)
    1.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidTypeError(f"{name} must be a number, got {value!r:.80}{_remedy(name, example)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and least <= number <= most and above < number < below):
        limits = (("of at least", least), ("above", above), ("at most", most), ("below", below))
        bounds = " and ".join(f"{words} {limit:g}" for words, limit in limits if math.isfinite(limit))
        raise InvalidInputError(
            f"{name} must be a finite number {bounds}".rstrip() + f", got {value!r:.80}{_remedy(name, example)}"
        )
    return number


def _remedy(name: str, example: object) -> str:
    return "." if example is None else f"; try {name}={example}."


def check_bool(value: object, name: str) -> bool:
    """Return a parameter that is True or False."""
    if not isinstance(value, bool):
        raise InvalidTypeError(f"{name} must be True or False, got {value!r:.80}.")
    return value


Choice = TypeVar("Choice", bound=str | None)


def check_choice(value: object, name: str, choices: Iterable[Choice]) -> Choice:
    """Return a parameter that is one of some names.

    Examples
    --------
    >>> check_choice("rbf", "kernel", ("linear", "rbf"))
    'rbf'
    """
    known = list(choices)
    for choice in known:
        # Arrays are compared cell by cell.
        if value is choice or (isinstance(value, str) and value == choice):
            return choice
    raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r:.80}.")


def check_domain_weights(value: object) -> Literal["equal", "size", "similarity"] | tuple[float, ...]:
    """Return the weights of the domains as a name or as numbers, or say what is wrong with them."""
    for known in ("equal", "size", "similarity"):
        if isinstance(value, str) and value == known:
            return known
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise InvalidInputError(
            f'domain_weights must be "equal", "size", "similarity" or one number per source, got {value!r}.'
        )
    weights = tuple(value)
    if not all(isinstance(weight, numbers.Real) and not isinstance(weight, bool) for weight in weights):
        raise InvalidTypeError(f"domain_weights must hold numbers, got {value!r}; try [1.0, 2.0] for two sources.")
    found = tuple(float(weight) for weight in weights)
    if not all(math.isfinite(weight) and weight >= 0.0 for weight in found) or sum(found) <= 0.0:
        raise InvalidInputError(
            f"domain_weights must be finite, none negative and one positive at least, got {value!r}."
        )
    return found


def refuse_other_count(domain_weights: str | Sequence[float], n_sources: int) -> None:
    """Raise where weights of domains are numbers, but not one per source."""
    if not isinstance(domain_weights, str) and len(domain_weights) != n_sources:
        raise InvalidInputError(
            f"domain_weights has {len(domain_weights)} numbers for {n_sources} sources; give one number per source."
        )


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


def check_confidence(confidence: object) -> float:
    """Return a confidence between 0 and 1."""
    return check_number(confidence, "confidence", above=0.0, below=1.0, example=0.95)


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


def check_codes(values: ArrayLike, name: str, *, rows: int, classes: int) -> NDArray[np.intp]:
    """Return the codes of classes (rows,), each from 0 to classes - 1.

    Examples
    --------
    >>> check_codes([0, 1, 1], "labels", rows=3, classes=2)
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
    from scipy import sparse  # Its import takes longer than that of all distances.

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


@contextmanager
def naming(argument: str, *, ours: bool = False) -> Iterator[None]:
    """Give the errors of scikit-learn the name of the argument, in one line and without a print of the data.

    With `ours` the errors of this library too, which name the argument themselves, but not the chunk it came in.
    """
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:  # The last is what torch raises where numpy may not read.
        if isinstance(error, MomentAlignError) and not ours:
            raise
        lines = [line for line in str(error).splitlines() if not line.lstrip().startswith(("array=", "["))]
        message = " ".join(" ".join(lines).split())
        kind = InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
        raise kind(f"{argument}: {message}") from None

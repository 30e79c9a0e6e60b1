"""What a regressor learns: one or several numbers per row, read, joined with those of the target, and standardised."""

from __future__ import annotations

import reprlib
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import assert_all_finite

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.domains import Domains, naming, read_domains

__all__ = ["Scale", "fitted_scale", "read_valued_domains", "read_values"]

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

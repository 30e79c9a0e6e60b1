"""Warnings where a network cannot learn from columns as they are scaled.

Either domain may have gone through a transformer that the other has not seen, as it happens in a pipeline whose last
step is given the target; or no column was scaled at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from momentalign.errors import MomentAlignWarning
from momentalign.estimators.domains import stacked_rows
from momentalign.networks.shallow import Matrix
from momentalign.training.chunked import Labelled

__all__ = ["first_rows", "warn_of_scales"]

# Limits of the warnings on scales. On the 70 development tasks, standardised by the source, no median of the target is
# further from the source's values than 0.8 of their range; of targets that were not transformed it is 4 to 70,000.
FAR_OUTSIDE = 3.0
# Or nearly all columns are wider, or narrower, than those of the source by this factor.
OTHER_WIDTH, NEARLY_ALL = 10.0, 0.9
# The root mean square of what the units of a fresh network sum up: 1.4 at most where columns are standardised.
SATURATED, ASLEEP = 20.0, 0.02
# Rows that are looked at; fewer have no range to speak of.
MOST_LOOKED_AT, FEWEST_LOOKED_AT = 10_000, 20


def warn_of_scales(estimator: BaseEstimator, X: Matrix, X_target: Matrix | None, units: int) -> None:
    """Warn where a network of so many hidden units cannot learn from these columns, once for the worst reason."""
    message = None
    if X_target is not None and not sparse.issparse(X) and min(X.shape[0], X_target.shape[0]) >= FEWEST_LOOKED_AT:
        message = _of_other_scale(estimator, _some_rows(X), _some_rows(X_target))
    message = message or _unscaled(estimator, _some_rows(X), units)
    if message is not None:
        warnings.warn(message, MomentAlignWarning, stacklevel=5)


def first_rows(chunks: Iterable[Labelled]) -> Matrix:
    """Return the rows of the first chunks, as many as :func:`warn_of_scales` looks at."""
    parts: list[Matrix] = []
    for chunk in chunks:
        parts.append(chunk.rows)
        if sum(part.shape[0] for part in parts) >= MOST_LOOKED_AT:
            break
    return stacked_rows(parts)


def _some_rows(rows: Matrix) -> Matrix:
    return rows[:: -(-rows.shape[0] // MOST_LOOKED_AT)].astype(np.float64)


def _of_other_scale(estimator: BaseEstimator, X: Matrix, X_target: Matrix) -> str | None:
    low, high, middle = X.min(axis=0), X.max(axis=0), np.median(X_target, axis=0)
    width, width_of_target = high - low, np.ptp(X_target, axis=0)
    varies = width > np.finfo(np.float32).eps * np.maximum(np.abs(low), np.abs(high))
    outside = np.where(varies, np.maximum(low - middle, middle - high), 0.0) / np.where(varies, width, 1.0)
    remedy = (
        "if X was scaled, the target was not, or the other way round: transform both alike; in a Pipeline give "
        'transform_input=["X_target"], or both domains as one X with sample_domain.'
    )
    column = int(outside.argmax())
    if outside[column] > FAR_OUTSIDE:
        return (
            f"the target lies far outside of the source: {_column(estimator, column)} has values from "
            f"{low[column]:.4g} to {high[column]:.4g} in the source and the median {middle[column]:.4g} in the target; "
            f"{remedy}"
        )
    both = varies & (width_of_target > 0.0)
    ratio = width_of_target[both] / width[both]
    for other, word in ((ratio > OTHER_WIDTH, "wider"), (ratio < 1.0 / OTHER_WIDTH, "narrower")):
        if ratio.size and other.mean() > NEARLY_ALL:
            return (
                f"{other.sum()} of {ratio.size} columns are {word} in the target than in the source by more than "
                f"{OTHER_WIDTH:g} times; {remedy}"
            )
    return None


def _unscaled(estimator: BaseEstimator, X: Matrix, units: int) -> str | None:
    """What stands in the way of a sigmoid unit, whose first weights have the variance 2 / (columns + units)."""
    squared = X.power(2) if hasattr(X, "indptr") else np.square(X)
    squares = np.asarray(squared.mean(axis=0)).ravel()
    summed = float(np.sqrt(squares.sum() * 2.0 / (X.shape[1] + units)))
    kind, remedy = type(estimator).__name__, "standardise them first, for instance with StandardScaler in a pipeline"
    if summed > SATURATED:
        column = int(squares.argmax())
        return (
            f"columns of X are too large for the hidden units of {kind}, which answer 0 or 1 to all rows alike: the "
            f"root mean square of {_column(estimator, column)} is {np.sqrt(squares[column]):.4g}; {remedy}."
        )
    # Text and the like is mostly zero, and rare words are meant to be small.
    if 0.0 < summed < ASLEEP and not sparse.issparse(X) and np.count_nonzero(X) > X.size / 2:
        return (
            f"columns of X are too small for the hidden units of {kind}, which answer 0.5 to all rows alike: their "
            f"root mean square is {np.sqrt(squares.mean()):.4g}; {remedy}."
        )
    return None


def _column(estimator: BaseEstimator, index: int) -> str:
    names = getattr(estimator, "feature_names_in_", None)
    return f"column {index + 1}" if names is None else f"column {names[index]!s:.80}"

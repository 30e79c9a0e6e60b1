"""What can be said about the target error of a fitted classifier: the parts of Theorem 1, each with its kind.

Section 3 of Zellinger et al. (2019); the statements are derived in :mod:`momentalign.evaluation.bounds` and
:mod:`momentalign.theory.moment_bounds`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.classifier import MANNClassifier
from momentalign.evaluation.bounds import BoundReport, Rows, target_error_terms
from momentalign.theory.moment_bounds import GapBound, smooth_gap_bound

__all__ = ["error_bound"]

Floats = NDArray[np.float64]

# The logistic function is nowhere steeper.
STEEPEST = 0.25
# Sums of weights are rounded, and an interval has to have a length.
ROOM = 1e-6


def error_bound(
    model: MANNClassifier, X_source: Any, y_source: Any, X_target: Any, *, confidence: float = 0.95, rows: Rows = "seen"
) -> BoundReport:
    """Return what can be said about the error of a fitted classifier on the target, without target labels.

    Parameters
    ----------
    model
        A fitted classifier.
    X_source, y_source
        Labelled source rows, best such that the model was not trained on.
    X_target
        Target rows, with the same columns.
    confidence
        The probability with which all bounds that speak of whole domains hold together.
    rows
        ``"fresh"`` if nothing about the model was trained or chosen with any of these rows, source or target: only then
        Hoeffding's inequality applies. Otherwise ``"seen"``: what needs fresh rows is called a heuristic.

    Returns
    -------
    BoundReport
        Rows with ``name``, ``value``, ``kind`` (measured, bound, heuristic or unknown) and ``words``; print it, or take
        ``.to_frame()``.

    Notes
    -----
    The sum of what Theorem 1 lets be known is often larger than 1, and then says nothing. Even where it is smaller, the
    labelling disagreement is not in it, and no method can know that without target labels.

    Of several networks that predict together, errors, confidences and shifts are those of their combination; the CMD is
    that of the network with the largest coefficient, as ``transform`` returns its activations.

    Examples
    --------
    >>> import numpy as np, momentalign as ma
    >>> random = np.random.default_rng(0)
    >>> X, y = random.normal(size=(400, 2)), np.repeat(["left", "right"], 200)
    >>> X[y == "right"] += 3
    >>> model = ma.MANNClassifier(hidden=(8,), max_epochs=100, learning_rate=0.1, random_state=0)
    >>> model = model.fit(X[::2], y[::2], X_target=X[::2] + [0.0, 1.0])
    >>> report = ma.error_bound(model, X[1::2], y[1::2], X[1::2] + [0.0, 1.0], rows="fresh")
    >>> report["source error at most"].kind, report["labelling disagreement"].kind
    ('bound', 'unknown')
    """
    if not isinstance(model, MANNClassifier):
        raise InvalidTypeError(
            f"model must be a MANNClassifier, got {type(model).__name__}; the bound needs its hidden layer and classes."
        )
    source, target = (np.asarray(model.predict_proba(part), dtype=np.float64) for part in (X_source, X_target))
    hidden = [np.asarray(model.transform(part), dtype=np.float64) for part in (X_source, X_target)]
    bound = None
    if len(model.networks_) == 1:
        bound = _output_bound(hidden, model.coefs_[-1], model.intercepts_[-1], degree=model.n_moments)
    return target_error_terms(
        source,
        _codes(model, y_source, rows=len(source)),
        target,
        cmd_terms=[float(term) for term in cmd_terms(*hidden, n_moments=model.n_moments)],
        output_bound=bound,
        confidence=confidence,
        rows=rows,
    )


def _codes(model: MANNClassifier, labels: Any, *, rows: int) -> NDArray[np.intp]:
    """Return each label as the number of its class."""
    values = np.asarray(labels)
    if values.shape != (rows,):
        raise InvalidInputError(f"y_source must have one label for each of {rows} rows, got shape {values.shape}.")
    known = np.isin(values, model.classes_)
    if not known.all():
        raise InvalidInputError(
            f"y_source holds {values[~known][0]!r}, which is not among the classes of the model; leave such rows out."
        )
    return np.searchsorted(model.classes_, values)


def _output_bound(hidden: list[NDArray[Any]], weights: NDArray[Any], biases: NDArray[Any], *, degree: int) -> GapBound:
    """Bound the largest shift of a mean probability of a network by moments of what enters the softmax."""
    weights, biases = weights.astype(np.float64), biases.astype(np.float64)
    entering = [part @ weights + biases for part in hidden]
    margins = [np.stack([_margin(part, index) for index in range(len(biases))], axis=1) for part in entering]
    shifts = np.abs(expit(margins[0]).mean(axis=0) - expit(margins[1]).mean(axis=0))
    index = int(shifts.argmax())
    return smooth_gap_bound(
        expit,
        margins[0][:, index],
        margins[1][:, index],
        degree,
        lipschitz=STEEPEST,
        interval=_margin_interval(weights, biases, index),
    )


def _margin(entering: Floats, index: int) -> Floats:
    """What the probability of one class is the logistic function of."""
    others = np.delete(entering, index, axis=1)
    return np.asarray(entering[:, index] - logsumexp(others, axis=1))


def _margin_interval(weights: Floats, biases: Floats, index: int) -> tuple[float, float]:
    """Where that lies for activations in [0, 1]: a sum of exponentials is between its largest and so many of it."""
    against = weights[:, [index]] - np.delete(weights, index, axis=1)
    offset = biases[index] - np.delete(biases, index)
    low = offset + np.minimum(against, 0.0).sum(axis=0)
    high = offset + np.maximum(against, 0.0).sum(axis=0)
    return float(low.min()) - math.log(len(offset)) - ROOM, float(high.min()) + ROOM

r"""Shares of the classes in an unlabelled target, and probabilities corrected for them.

Where only the shares of the classes change, :math:`p_T(x \mid y) = p_S(x \mid y)`, two estimates need no target label.
*Maximum likelihood* by expectation maximisation repeats, from the source's shares on,

.. math:: \pi_c \leftarrow \frac1m \sum_i \frac{p_c(x_i)\, \pi_c / \sigma_c}{\sum_k p_k(x_i)\, \pi_k / \sigma_k}

with :math:`\sigma` the source's shares and p calibrated probabilities (M. Saerens, P. Latinne, C. Decaestecker:
Adjusting the outputs of a classifier to new a priori probabilities, Neural Computation 14, 2002). *Black-box
estimation* solves :math:`C \pi = \mu`, with :math:`C_{jc}` the part of the source rows of class c that is predicted
as j and :math:`\mu_j` the part of the target rows that is (Z. Lipton, Y.-X. Wang, A. Smola: Detecting and correcting
for label shift with black box predictors, ICML 2018).

Both go wrong where more than the shares changed. They are believed where the confusion matrix is well conditioned, they
agree within their sampling error, and source rows weighted to these shares get probabilities like the target's. On the
development tasks (benchmarks/shift_tasks.py) that is 7 of 87 times; believed everywhere, maximum likelihood costs 5.5
points of accuracy there, and like this 1.1.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignWarning
from momentalign.evaluation.features import ks_distance
from momentalign.validation import Floats, check_probabilities, naming

__all__ = [
    "Predictions",
    "calibrated",
    "class_shares_interval",
    "correct_class_shares",
    "estimate_class_shares",
    "predictions_of",
    "shares_and_doubt",
    "temperature",
]

Codes = NDArray[np.intp]

_SMALLEST = 1e-3  # A forest's probability of zero is no certainty.
_FEWEST_ROWS = 5  # A class with fewer labelled rows has no column in the confusion matrix worth the name.
_WORST_CONDITION = 20.0
_RESAMPLES = 50
# Two estimates agree when they are hardly further apart than resampling moves them, and never past the second figure.
_SAME = 0.06
_LARGEST_DIFFERENCE = 0.15


class Predictions(NamedTuple):
    """Probabilities of one classifier on labelled source rows and on target rows."""

    source: Floats
    codes: Codes
    target: Floats


class _Estimates(NamedTuple):
    likelihood: Floats
    black_box: Floats


def estimate_class_shares(model: Any, X: Any, y: ArrayLike, X_target: Any) -> Floats:
    """Return the estimated shares of the classes in the target.

    The mean of maximum likelihood on calibrated probabilities and black-box estimation, where they agree within their
    sampling error and nothing else speaks against them. Otherwise a
    :class:`~momentalign.errors.MomentAlignWarning` says why not, and the shares are the mean of the calibrated
    predicted probabilities, drawn half-way to the source's shares.

    Parameters
    ----------
    model
        A fitted classifier with ``predict_proba`` and ``classes_``.
    X, y
        Labelled source rows that the model was not trained on.
    X_target
        Rows of the target.

    Returns
    -------
    NDArray
        Shape (classes,), in the order of ``model.classes_``; sums to 1.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> random = np.random.default_rng(0)
    >>> y, y_target = np.repeat([0, 1], 1000), np.repeat([0, 1], [200, 1800])
    >>> X, X_target = (random.normal(2 * labels[:, None], 1, (2000, 2)) for labels in (y, y_target))
    >>> model = LogisticRegression().fit(X[::2], y[::2])
    >>> estimate_class_shares(model, X[1::2], y[1::2], X_target).round(1)
    array([0.1, 0.9])
    """
    predictions = predictions_of(model, X, y, X_target)
    shares, doubt = shares_and_doubt(predictions)
    if doubt is not None:
        warnings.warn(
            f"The shares of the classes in the target are uncertain: {doubt}. Used the mean of the predicted "
            "probabilities and the source's shares.",
            MomentAlignWarning,
            stacklevel=2,
        )
    return shares


def correct_class_shares(probabilities: ArrayLike, source_shares: ArrayLike, target_shares: ArrayLike) -> Floats:
    r"""Return probabilities as they are where the classes have other shares, by Bayes' rule.

    .. math:: p'_c(x) \propto p_c(x)\, \pi_c / \sigma_c

    A class without source rows keeps its probability as it is.

    Parameters
    ----------
    probabilities
        Shape (rows, classes), calibrated on the source.
    source_shares, target_shares
        Shape (classes,), each at least 0; only their ratios count.

    Examples
    --------
    >>> correct_class_shares([[0.5, 0.5]], [0.5, 0.5], [0.1, 0.9])
    array([[0.1, 0.9]])
    """
    rows = check_probabilities(probabilities, "probabilities")
    source = _checked_shares(source_shares, "source_shares", rows.shape[1])
    target = _checked_shares(target_shares, "target_shares", rows.shape[1])
    return _reweighted(rows, _ratio(target, source))


def class_shares_interval(predictions: Predictions, *, resamples: int = 200, random_state: int = 0) -> Floats:
    """Return the 5 % and 95 % quantiles (2, classes) of the shares over bootstrap samples of both domains.

    Where they are uncertain for another reason than sampling, the interval reaches from one estimate to the other.
    """
    random, even = np.random.default_rng(random_state), _calibrated(predictions)
    draws = []
    for _ in range(resamples):
        estimates = _estimates(_resampled(even, random))
        draws.append((estimates.likelihood + estimates.black_box) / 2.0)
    bounds = np.quantile(draws, [0.05, 0.95], axis=0)
    shares, doubt = shares_and_doubt(predictions)
    if doubt is not None:
        every = np.vstack([bounds, *_estimates(even), shares, _counted(even.codes, len(shares))])
        bounds = np.stack([every.min(axis=0), every.max(axis=0)])
    return np.asarray(bounds)


def shares_and_doubt(predictions: Predictions) -> tuple[Floats, str | None]:
    """Return the estimated shares, and why they are uncertain, if they are, as :func:`estimate_class_shares` does."""
    even = _calibrated(predictions)
    doubt = _poor_confusion(even)
    if doubt is None:
        estimates = _estimates(even)
        doubt = _disagreement(even, estimates) or _inconsistency(even, estimates.likelihood)
        if doubt is None:
            return np.asarray((estimates.likelihood + estimates.black_box) / 2.0), None
    prior = _counted(even.codes, even.source.shape[1])
    return np.asarray((even.target.mean(axis=0) + prior) / 2.0), doubt


def predictions_of(model: Any, X: Any, y: ArrayLike, X_target: Any, *, labels: str = "y") -> Predictions:
    """Return what a classifier predicts, with the labels as codes of its classes, or say what does not fit.

    `labels` is what the caller's argument `y` is called.
    """
    if not hasattr(model, "predict_proba") or not hasattr(model, "classes_"):
        raise InvalidTypeError(
            f"model must be a fitted classifier with predict_proba and classes_, got {type(model).__name__}."
        )
    with naming("X"):
        source = check_probabilities(model.predict_proba(X), "model.predict_proba(X)")
    with naming("X_target"):
        target = check_probabilities(model.predict_proba(X_target), "model.predict_proba(X_target)")
    classes, truth = np.asarray(model.classes_), np.asarray(y)
    if truth.shape != (len(source),):
        raise InvalidInputError(
            f"{labels} must have shape ({len(source)},), got {truth.shape}; give one label per row."
        )
    known = np.isin(truth, classes)
    if not known.all():
        raise InvalidInputError(
            f"{labels} holds the label {truth[~known][0]!r:.80}, which the model does not know; leave those rows out."
        )
    order = np.argsort(classes)
    return Predictions(source, order[np.searchsorted(classes, truth, sorter=order)], target)


def temperature(probabilities: Floats, codes: Codes) -> float:
    """Return the temperature that makes probabilities fit labels best, drawn to 1 where there are few labels.

    Examples
    --------
    >>> certain = np.array([[0.99, 0.01]] * 10)
    >>> temperature(certain, np.array([0] * 7 + [1] * 3)) > 2.0
    True
    """
    logits, rows = np.log(np.maximum(probabilities, _SMALLEST)), np.arange(len(codes))

    def loss(log_temperature: float) -> float:
        log_probabilities = special.log_softmax(logits / np.exp(log_temperature), axis=1)
        return float(2.0 * log_temperature**2 - log_probabilities[rows, codes].sum())

    return float(np.exp(optimize.minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x))


def calibrated(probabilities: Floats, temper: float) -> Floats:
    """Return probabilities at another temperature.

    Examples
    --------
    >>> calibrated(np.array([[0.2, 0.8]]), 1.0)
    array([[0.2, 0.8]])
    """
    return np.asarray(special.softmax(np.log(np.maximum(probabilities, _SMALLEST)) / temper, axis=1))


def _calibrated(predictions: Predictions) -> Predictions:
    temper = temperature(predictions.source, predictions.codes)
    return Predictions(
        calibrated(predictions.source, temper), predictions.codes, calibrated(predictions.target, temper)
    )


def _estimates(predictions: Predictions) -> _Estimates:
    prior = _counted(predictions.codes, predictions.source.shape[1])
    return _Estimates(_maximum_likelihood(predictions.target, prior), _black_box(predictions))


def _maximum_likelihood(probabilities: Floats, prior: Floats, *, steps: int = 300) -> Floats:
    shares = prior
    for _ in range(steps):
        updated = _reweighted(probabilities, _ratio(shares, prior)).mean(axis=0)
        if abs(updated - shares).max() < 1e-6:
            break
        shares = updated
    return np.asarray(shares)


def _black_box(predictions: Predictions) -> Floats:
    """The shares, at least 0 and of sum 1, that explain best how often each class is predicted."""
    confusion = _confusion(predictions)
    predicted = _counted(predictions.target.argmax(axis=1), len(confusion))
    heavy = 1e3  # The last row says that shares sum to 1.
    design = np.vstack([confusion, np.full(len(confusion), heavy)])
    shares = optimize.nnls(design, np.append(predicted, heavy))[0]
    return np.asarray(shares / shares.sum())


def _confusion(predictions: Predictions) -> Floats:
    """Column c: how often the rows of class c are predicted as each class."""
    classes = predictions.source.shape[1]
    counts = np.zeros((classes, classes))
    np.add.at(counts, (predictions.source.argmax(axis=1), predictions.codes), 1.0)
    return np.asarray(counts / np.maximum(counts.sum(axis=0), 1.0))


def _poor_confusion(predictions: Predictions) -> str | None:
    fewest = int(np.bincount(predictions.codes, minlength=predictions.source.shape[1]).min())
    if fewest < _FEWEST_ROWS:
        return f"a class has {fewest} labelled rows, fewer than {_FEWEST_ROWS}"
    if len(np.unique(predictions.source.argmax(axis=1))) < predictions.source.shape[1]:
        return "there is a class that the model never predicts"
    condition = float(np.linalg.cond(_confusion(predictions)))
    if condition > _WORST_CONDITION:
        return f"the model confuses classes too often (condition number {condition:.3g} of the confusion matrix)"
    return None


def _disagreement(predictions: Predictions, estimates: _Estimates) -> str | None:
    """Why the estimates are not believed; their sampling error is that of their difference."""
    apart = _total_variation(estimates.likelihood, estimates.black_box)
    random, moved = np.random.default_rng(0), [0.0]
    difference = estimates.likelihood - estimates.black_box
    for _ in range(_RESAMPLES):
        drawn = _estimates(_resampled(predictions, random))
        moved.append(float(abs(drawn.likelihood - drawn.black_box - difference).sum() / 2.0))
    allowed = min(max(_SAME, 1.5 * float(np.quantile(moved, 0.95))), _LARGEST_DIFFERENCE)
    if apart > allowed:
        return f"maximum likelihood and black-box estimation differ by {100 * apart:.0f} %, more than by chance"
    return None


def _inconsistency(predictions: Predictions, shares: Floats) -> str | None:
    """Why more than the shares must have changed: source rows weighted to the shares are to look like the target.

    A weighted Kolmogorov-Smirnov test of the highest probability of each row.
    """
    prior = _counted(predictions.codes, len(shares))
    weights = (shares / np.maximum(prior, 1e-12))[predictions.codes]
    confidence, other = predictions.source.max(axis=1), np.sort(predictions.target.max(axis=1))
    order = np.argsort(confidence)
    distance = ks_distance(confidence[order], other, weights[order])
    rows = weights.sum() ** 2 / (weights @ weights)
    if distance > max(1.36 * np.sqrt(1.0 / rows + 1.0 / len(other)), 0.03):
        return f"the model's confidence changed by more than shares explain (distance {distance:.2f})"
    return None


def _resampled(predictions: Predictions, random: np.random.Generator) -> Predictions:
    """Rows drawn with replacement, the source's within each class, so that none vanishes."""
    codes = predictions.codes
    members = (np.flatnonzero(codes == code) for code in np.unique(codes))
    rows = np.concatenate([random.choice(group, len(group)) for group in members])
    target = random.integers(len(predictions.target), size=len(predictions.target))
    return Predictions(predictions.source[rows], codes[rows], predictions.target[target])


def _reweighted(probabilities: Floats, weights: Floats) -> Floats:
    weighted = np.maximum(probabilities, 1e-12) * weights
    return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))


def _ratio(target: Floats, source: Floats) -> Floats:
    return np.asarray(np.divide(target, source, out=np.ones_like(target), where=source > 0.0))


def _counted(codes: Codes, classes: int) -> Floats:
    return np.bincount(codes, minlength=classes) / len(codes)


def _total_variation(shares: Floats, others: Floats) -> float:
    return float(abs(shares - others).sum() / 2.0)


def _checked_shares(shares: ArrayLike, name: str, classes: int) -> Floats:
    try:
        values = np.asarray(shares, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidTypeError(f"{name} must be numbers, got {type(shares).__name__}; give one per class.") from None
    good = values.shape == (classes,) and np.isfinite(values).all() and (values >= 0.0).all() and values.any()
    if not good:
        raise InvalidInputError(
            f"{name} must be {classes} finite numbers of at least 0, not all 0, got {shares!r:.80}; give one per class."
        )
    return np.asarray(values / values.sum())

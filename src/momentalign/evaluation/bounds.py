r"""The parts of Theorem 1 for a classifier, as far as they can be known without target labels.

Section 3, Theorem 1 (Eq. 3) of Zellinger et al. (2019). The error of a classifier is the part of rows it gets wrong.
With its confidence :math:`v(x) = \max_c p_c(x)` as the one activation that is looked at, and
:math:`\eta_S(v), \eta_T(v)` the errors of source and target at confidence v,

.. math:: \epsilon_T = \mathbb E_T[\eta_T(v)] \le \epsilon_S
    + \big| \mathbb E_T[\eta_S(v)] - \mathbb E_S[\eta_S(v)] \big| + \mathbb E_T\big[ |\eta_S(v) - \eta_T(v)| \big].

The first part is measured. The second is bounded by moments of v if :math:`\eta_S` has slopes up to 1, as that of a
calibrated classifier has, :math:`\eta_S(v) = 1 - v` (:func:`~momentalign.theory.bounds.lipschitz_gap_bound`).
The third cannot be known without target labels. :func:`error_bound` tabulates what is measured, bounded, guessed or
unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logsumexp
from sklearn.utils.validation import check_is_fitted

from momentalign.discrepancies.central_moment import cmd_terms
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.evaluation.class_shares import Predictions, predictions_of
from momentalign.theory.bounds import (
    GapBound,
    lipschitz_factors,
    lipschitz_gap_bound,
    mean_deviation,
    polynomial_gap_bound,
    smooth_gap_bound,
)
from momentalign.validation import Floats, check_choice, check_confidence

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["KNOWN_PART", "BoundReport", "BoundRow", "Kind", "Rows", "error_bound", "target_error_terms"]

Kind: TypeAlias = Literal["measured", "bound", "heuristic", "unknown"]
Rows: TypeAlias = Literal["fresh", "seen"]

# The logistic function is nowhere steeper.
_STEEPEST = 0.25
# Sums of weights are rounded, and an interval has to have a length.
_ROOM = 1e-6

KNOWN_PART = "known part of Theorem 1"
"""Name of the row with the sum of what Theorem 1 lets be known."""


class BoundRow(NamedTuple):
    """One quantity: its value, None where it is unknown, and what kind of statement that is."""

    name: str
    symbol: str
    value: float | None
    kind: Kind
    words: str


@dataclass(frozen=True)
class BoundReport:
    """What can be said about the target error, row by row.

    Attributes
    ----------
    rows
        Each with ``name``, ``symbol``, ``value``, ``kind`` and ``words``. A value is *measured* on the given rows, a
        *bound* that holds for what its words name, a *heuristic* that rests on an assumption which may fail, or
        *unknown*.
    confidence
        With this probability all bounds that speak of whole domains hold together.
    """

    rows: tuple[BoundRow, ...]
    confidence: float

    def __iter__(self) -> Iterator[BoundRow]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> BoundRow:
        """Return the row of this name."""
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise InvalidInputError(f"there is no row {name!r}; the rows are {names}.")

    @property
    def conclusion(self) -> str:
        """One sentence: what Theorem 1 gives here, and what is missing."""
        value = self[KNOWN_PART].value or 0.0
        worth = ", not below 1 and so vacuous" if value >= 1.0 else ""
        return (
            f"The known part of Theorem 1 is {value:.2f}{worth}; it is no bound on the target error, since the "
            "labelling disagreement is missing, which cannot be known without target labels."
        )

    def __str__(self) -> str:
        figures = ["?" if row.value is None else f"{row.value:.3f}" for row in self.rows]
        cells = [(row.name, figure, row.kind, row.words) for row, figure in zip(self.rows, figures, strict=True)]
        widths = [max(len(row[column]) for row in cells) for column in range(3)]
        lines = [
            f"{name:<{widths[0]}}  {value:>{widths[1]}}  {kind:<{widths[2]}}  {words}"
            for name, value, kind, words in cells
        ]
        return "\n".join([*lines, self.conclusion])

    def _repr_html_(self) -> str:
        from momentalign.report.notebook import card
        from momentalign.report.page import Columns, number_cell, records_table

        columns: Columns = {
            "Quantity": lambda row: row.name,
            "Value": lambda row: number_cell(row.value, "{:.3f}".format),
            "Kind": lambda row: row.kind,
            "What it is": lambda row: row.words,
        }
        caption = f"Bounds hold together with probability {self.confidence:g}"
        listed = records_table(caption, self.rows, columns, sortable=False)
        return card("Target error, row by row", self.conclusion, parts=[listed])

    def to_frame(self) -> DataFrame:
        """Return the rows as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(list(self.rows), columns=list(BoundRow._fields))

    def to_dict(self) -> dict[str, Any]:
        """Return everything in types that JSON knows; None is what is unknown."""
        return {
            "confidence": self.confidence,
            "conclusion": self.conclusion,
            "rows": [row._asdict() for row in self.rows],
        }


def error_bound(
    model: Any, X_source: Any, y_source: ArrayLike, X_target: Any, *, confidence: float = 0.95, rows: Rows = "seen"
) -> BoundReport:
    """Return what can be said about the error of a fitted classifier on the target, without target labels.

    Parameters
    ----------
    model
        A fitted :class:`~momentalign.MANNClassifier`.
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
    if not (hasattr(model, "predict_proba") and hasattr(model, "n_moments")):
        raise InvalidTypeError(
            f"model must be a MANNClassifier, got {type(model).__name__}; the bound needs its hidden layer and classes."
        )
    check_is_fitted(model)
    predictions = predictions_of(model, X_source, y_source, X_target, labels="y_source")
    hidden = [np.asarray(model.transform(part), dtype=np.float64) for part in (X_source, X_target)]
    bound = None
    if len(model.networks_) == 1:
        bound = _output_bound(hidden, model.coefs_[-1], model.intercepts_[-1], degree=model.n_moments)
    terms = [float(term) for term in cmd_terms(*hidden, n_moments=model.n_moments)]
    return target_error_terms(predictions, cmd_terms=terms, output_bound=bound, confidence=confidence, rows=rows)


def target_error_terms(
    predictions: Predictions,
    *,
    cmd_terms: Sequence[float],
    output_bound: GapBound | None = None,
    confidence: float = 0.95,
    rows: Rows = "seen",
) -> BoundReport:
    r"""Return the parts of Theorem 1 for a classifier, with what else is known about the target error.

    Parameters
    ----------
    predictions
        Probabilities on both domains and the codes of the source labels.
    cmd_terms
        The k terms of the CMD between the hidden activations.
    output_bound
        For a single network: the bound, by k moments of what enters the softmax, on the shift of the class whose mean
        probability differs most (:func:`~momentalign.theory.bounds.smooth_gap_bound`). None where several
        networks predict together, of whose probabilities no moments are known.
    confidence, rows
        As in :func:`error_bound`.

    Notes
    -----
    There are 4k + 3 one-sided statements of Hoeffding: k Chebyshev moments of the confidence on two sides in two
    domains, the source error, and two about the soft error :math:`\mathbb E_T[1 - p_y]`. That one is Eq. (1) for two
    classes with :math:`h = p_1`, and lies between :math:`\mathbb E_T[1 - \max_c p_c]` and
    :math:`\mathbb E_T[1 - \min_c p_c]` whatever the labels are. The error is at most twice as large: a class that is
    not predicted has at most probability 1/2.

    Examples
    --------
    >>> source, target = np.array([[0.9, 0.1], [0.2, 0.8]] * 500), np.array([[0.8, 0.2], [0.3, 0.7]] * 500)
    >>> predictions = Predictions(source, np.array([0, 1] * 500), target)
    >>> report = target_error_terms(predictions, cmd_terms=[0.1, 0.01], rows="fresh")
    >>> for row in list(report)[:2]:
    ...     print(row.name, row.kind, round(row.value, 3))
    source error measured 0.0
    source error at most bound 0.052
    """
    check_choice(rows, "rows", get_args(Rows))
    degree = len(cmd_terms)
    sampling = _Sampling(check_confidence(confidence), rows == "fresh", statements=4 * degree + 3)
    table = [
        *_theorem_rows(predictions, sampling, degree=degree),
        *_probability_rows(predictions, sampling),
        *_moment_rows(predictions, cmd_terms, output_bound),
    ]
    return BoundReport(tuple(table), sampling.confidence)


class _Sampling(NamedTuple):
    """How far means of rows may be from expectations: Hoeffding's inequality for so many statements together."""

    confidence: float
    fresh: bool
    statements: int

    def deviation(self, count: int, length: float) -> float:
        return mean_deviation(count, confidence=self.confidence, interval=(0.0, length), statements=self.statements)

    @property
    def kind(self) -> Kind:
        return "bound" if self.fresh else "heuristic"

    @property
    def holds(self) -> str:
        seen = "" if self.fresh else " on fresh rows, but these were trained or chosen on"
        return f"with probability {self.confidence:g}{seen}"


def _theorem_rows(predictions: Predictions, sampling: _Sampling, *, degree: int) -> list[BoundRow]:
    """The parts of Theorem 1 and the sum of those that are known."""
    source, codes, target = predictions
    kind, holds = sampling.kind, sampling.holds
    error = float((source.argmax(axis=1) != codes).mean())
    at_most = min(1.0, error + sampling.deviation(len(codes), 1.0))
    # The distance over functions of the confidence with slopes up to 1; Chebyshev polynomials have values in [-1, 1].
    part = 1.0 / source.shape[1]
    distance = lipschitz_gap_bound(source.max(axis=1), target.max(axis=1), degree, interval=(part, 1.0))
    factor = (1.0 - part) / 2 * float(np.linalg.norm(lipschitz_factors(degree)))
    apart = factor * (sampling.deviation(len(source), 2.0) + sampling.deviation(len(target), 2.0))
    known = at_most + distance.polynomial + apart + distance.smoothness
    theorem = (
        "source error at most, plus the distance, as if rows of equal confidence were wrong equally often in both "
        "domains, and that error changed with the confidence no faster than a calibrated one"
    ) + ("; vacuous" if known >= 1.0 else "")
    moments = f"from {degree} moments of the confidence on these rows, for functions of it with slopes up to 1"
    unseen = f"what {degree} moments cannot see of such a function, by Favard's theorem"
    labelling = (
        "how often rows of equal confidence are wrong in the target but not in the source, or the reverse; it "
        "cannot be known without target labels"
    )
    return [
        BoundRow("source error", "ε_S", error, "measured", f"part of {len(codes):,} source rows predicted wrong"),
        BoundRow("source error at most", "ε_S", at_most, kind, f"Hoeffding, {holds}"),
        BoundRow("distance by moments", "d_F", distance.polynomial, "measured", moments),
        BoundRow("deviation of moments", "d_F", apart, kind, f"Hoeffding, {holds}"),
        BoundRow("smoothness", "d_F", distance.smoothness, "bound", unseen),
        BoundRow("labelling disagreement", "E_T|η_S - η_T|", None, "unknown", labelling),
        BoundRow(KNOWN_PART, "ε_T", known, "heuristic", theorem),
    ]


def _probability_rows(predictions: Predictions, sampling: _Sampling) -> list[BoundRow]:
    """What the probabilities themselves say about the error on the target."""
    source, codes, target = predictions
    kind, classes = sampling.kind, source.shape[1]
    unsure, rest = float(1.0 - target.max(axis=1).mean()), float(1.0 - target.min(axis=1).mean())
    least = max(0.0, unsure - sampling.deviation(len(target), 1.0 - 1.0 / classes))
    most = min(1.0, rest + sampling.deviation(len(target), 1.0 / classes))
    soft = f"mean of 1 - the probability of the true class in the target, whatever the labels are; {sampling.holds}"
    calibrated = f"target error if the probabilities for {len(target):,} target rows were right"
    named = codes, target.argmax(axis=1)
    shares = [np.bincount(found, minlength=classes) / len(found) for found in named]
    shift = float(np.abs(shares[0] - shares[1]).sum() / 2)
    shifted = "between source labels and predictions for the target; a large one means other shares or a wrong model"
    return [
        BoundRow("soft error at least", "E_T[1 - p_y]", least, kind, soft),
        BoundRow("soft error at most", "E_T[1 - p_y]", most, kind, soft),
        BoundRow("error if calibrated", "E_T[1 - max p]", unsure, "heuristic", calibrated),
        BoundRow("shift of class shares", "½ Σ|π_S - π_T|", shift, "heuristic", shifted),
    ]


def _moment_rows(predictions: Predictions, cmd_terms: Sequence[float], output_bound: GapBound | None) -> list[BoundRow]:
    """What k moments of the hidden activations say about functions of them, on these rows."""
    degree, polynomials = len(cmd_terms), polynomial_gap_bound(cmd_terms)
    shift = float(np.abs(predictions.source.mean(axis=0) - predictions.target.mean(axis=0)).max())
    coefficients = (
        f"for these rows, by the CMD alone: polynomials up to degree {degree}, unit coefficients for each order"
    )
    largest = "of the class whose mean probability differs most between source and target"
    name, symbol = "shift of an output by moments", "|E_S h - E_T h|"
    if output_bound is None:
        several = "several networks predict together; moments bound single ones"
        by_moments = BoundRow(name, symbol, None, "unknown", several)
    else:
        both = (
            f"the same for these rows from {degree} moments of what enters the softmax: {output_bound.polynomial:.3f} "
            f"by the moments and {output_bound.smoothness:.3f} for the smoothness"
        )
        by_moments = BoundRow(name, symbol, output_bound.total, "bound", both)
    return [
        BoundRow("CMD", "cmd", float(sum(cmd_terms)), "measured", f"of the hidden activations, {degree} moments"),
        BoundRow("polynomials of the activations", "sup |E_S p - E_T p|", polynomials, "bound", coefficients),
        BoundRow("shift of an output", "|E_S h - E_T h|", shift, "measured", largest),
        by_moments,
    ]


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
        lipschitz=_STEEPEST,
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
    return float(low.min()) - math.log(len(offset)) - _ROOM, float(high.min()) + _ROOM

r"""The parts of Theorem 1 for a classifier, as far as they can be known without target labels.

Section 3, Theorem 1 (Eq. 3) of Zellinger et al. (2019). The error of a classifier is the part of rows it gets wrong.
With its confidence :math:`v(x) = \max_c p_c(x)` as the one activation that is looked at, and
:math:`\eta_S(v), \eta_T(v)` the errors of source and target at confidence v,

.. math:: \epsilon_T = \mathbb E_T[\eta_T(v)] \le \epsilon_S
    + \big| \mathbb E_T[\eta_S(v)] - \mathbb E_S[\eta_S(v)] \big| + \mathbb E_T\big[ |\eta_S(v) - \eta_T(v)| \big].

The first part is measured. The second is bounded by moments of v if :math:`\eta_S` has slopes up to 1, as that of a
calibrated classifier has, :math:`\eta_S(v) = 1 - v` (:func:`~momentalign.theory.moment_bounds.lipschitz_gap_bound`).
The third cannot be known without target labels.

A table of what is measured, bounded, guessed or unknown about the error on a target without labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentalign.errors import InvalidInputError
from momentalign.theory.bounds import mean_deviation
from momentalign.theory.moment_bounds import GapBound, lipschitz_factors, lipschitz_gap_bound, polynomial_gap_bound
from momentalign.validation import check_confidence

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["KNOWN_PART", "BoundReport", "BoundRow", "Kind", "Rows", "target_error_terms"]

Kind: TypeAlias = Literal["measured", "bound", "heuristic", "unknown"]

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
        cells = [(row.name, _figure(row.value), row.kind, row.words) for row in self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(3)]
        lines = [
            f"{name:<{widths[0]}}  {value:>{widths[1]}}  {kind:<{widths[2]}}  {words}"
            for name, value, kind, words in cells
        ]
        return "\n".join([*lines, self.conclusion])

    def to_frame(self) -> DataFrame:
        """Return the rows as a pandas DataFrame."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("to_frame() needs pandas: pip install pandas") from error
        return pandas.DataFrame(list(self.rows), columns=list(BoundRow._fields))

    def to_dict(self) -> dict[str, Any]:
        """Return everything in types that JSON knows; None is what is unknown."""
        return {
            "confidence": self.confidence,
            "conclusion": self.conclusion,
            "rows": [row._asdict() for row in self.rows],
        }


def _figure(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"


Floats = NDArray[np.float64]
Rows: TypeAlias = Literal["fresh", "seen"]

# float32 probabilities sum to 1 within this.
_ROUNDING = 1e-4


def target_error_terms(
    source_probabilities: ArrayLike,
    source_codes: ArrayLike,
    target_probabilities: ArrayLike,
    *,
    cmd_terms: Sequence[float],
    output_bound: GapBound | None = None,
    confidence: float = 0.95,
    rows: Rows = "seen",
) -> BoundReport:
    r"""Return the parts of Theorem 1 for a classifier, with what else is known about the target error.

    Parameters
    ----------
    source_probabilities, target_probabilities
        Shapes (rows, classes) and (other rows, classes).
    source_codes
        The number of the true class of each source row.
    cmd_terms
        The k terms of the CMD between the hidden activations.
    output_bound
        For a single network: the bound, by k moments of what enters the softmax, on the shift of the class whose mean
        probability differs most (:func:`~momentalign.theory.moment_bounds.smooth_gap_bound`). None where several
        networks predict together, of whose probabilities no moments are known.
    confidence
        The probability with which all bounds on whole domains hold together.
    rows
        ``"fresh"`` if the classifier was fixed before any of these rows, source or target, was looked at; rows that
        were trained or chosen on are ``"seen"``, and what needs fresh ones is then a heuristic.

    Notes
    -----
    There are 4k + 3 one-sided statements of Hoeffding: k Chebyshev moments of the confidence on two sides in two
    domains, the source error, and two about the soft error :math:`\mathbb E_T[1 - p_y]`. That one is Eq. (1) for two
    classes with :math:`h = p_1`, and lies between :math:`\mathbb E_T[1 - \max_c p_c]` and
    :math:`\mathbb E_T[1 - \min_c p_c]` whatever the labels are. The error is at most twice as large: a class that is
    not predicted has at most probability 1/2.

    Examples
    --------
    >>> report = target_error_terms(
    ...     [[0.9, 0.1], [0.2, 0.8]] * 500, [0, 1] * 500, [[0.8, 0.2], [0.3, 0.7]] * 500,
    ...     cmd_terms=[0.1, 0.01], rows="fresh")
    >>> for row in list(report)[:2]:
    ...     print(row.name, row.kind, round(row.value, 3))
    source error measured 0.0
    source error at most bound 0.052
    """
    ours, codes, theirs = _read(source_probabilities, source_codes, target_probabilities)
    if rows not in get_args(Rows):
        raise InvalidInputError(f'rows must be "fresh" or "seen", got {rows!r}.')
    certain = _Certain(len(cmd_terms), check_confidence(confidence), rows)
    source, at_most = _source_rows(ours, codes, certain)
    distance = _distance_rows(ours, theirs, certain)
    return BoundReport(
        (
            source,
            at_most,
            *distance,
            BoundRow(
                "labelling disagreement",
                "E_T|η_S - η_T|",
                None,
                "unknown",
                "how often rows of equal confidence are wrong in the target but not in the source, or the reverse; it "
                "cannot be known without target labels",
            ),
            _theorem_row(at_most, distance),
            *_soft_rows(theirs, certain),
            _shares_row(ours.shape[1], codes, theirs),
            *_moment_rows(cmd_terms, float(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)).max()), output_bound),
        ),
        certain.confidence,
    )


class _Certain(NamedTuple):
    """How sure statements about whole domains are."""

    degree: int
    confidence: float
    rows: Rows

    @property
    def kind(self) -> Kind:
        return "bound" if self.rows == "fresh" else "heuristic"

    @property
    def words(self) -> str:
        holds = f"with probability {self.confidence:g}"
        return holds if self.rows == "fresh" else f"{holds} on fresh rows, but these were trained or chosen on"

    def deviation(self, rows: int, length: float) -> float:
        statements = 4 * self.degree + 3
        return mean_deviation(rows, confidence=self.confidence, interval=(0.0, length), statements=statements)


def _source_rows(chances: Floats, codes: NDArray[np.intp], certain: _Certain) -> tuple[BoundRow, BoundRow]:
    error = float((chances.argmax(axis=1) != codes).mean())
    limit = min(1.0, error + certain.deviation(len(codes), 1.0))
    return (
        BoundRow("source error", "ε_S", error, "measured", f"part of {len(codes):,} source rows predicted wrong"),
        BoundRow("source error at most", "ε_S", limit, certain.kind, f"Hoeffding, {certain.words}"),
    )


def _distance_rows(ours: Floats, theirs: Floats, certain: _Certain) -> list[BoundRow]:
    """The distance over functions of the confidence with slopes up to 1: moments, their deviation, smoothness."""
    degree, interval = certain.degree, (1.0 / ours.shape[1], 1.0)
    bound = lipschitz_gap_bound(ours.max(axis=1), theirs.max(axis=1), degree, interval=interval)
    # Chebyshev polynomials have values in [-1, 1].
    apart = certain.deviation(len(ours), 2.0) + certain.deviation(len(theirs), 2.0)
    factor = (interval[1] - interval[0]) / 2 * float(np.linalg.norm(lipschitz_factors(degree)))
    return [
        BoundRow(
            "distance by moments",
            "d_F",
            bound.polynomial,
            "measured",
            f"from {degree} moments of the confidence on these rows, for functions of it with slopes up to 1",
        ),
        BoundRow("deviation of moments", "d_F", factor * apart, certain.kind, f"Hoeffding, {certain.words}"),
        BoundRow(
            "smoothness",
            "d_F",
            bound.smoothness,
            "bound",
            f"what {degree} moments cannot see of such a function, by Favard's theorem",
        ),
    ]


def _theorem_row(at_most: BoundRow, distance: Sequence[BoundRow]) -> BoundRow:
    total = sum(row.value or 0.0 for row in (at_most, *distance))
    words = (
        "source error at most, plus the distance, as if rows of equal confidence were wrong equally often in both "
        "domains, and that error changed with the confidence no faster than a calibrated one"
    )
    return BoundRow(KNOWN_PART, "ε_T", total, "heuristic", f"{words}; vacuous" if total >= 1.0 else words)


def _soft_rows(theirs: Floats, certain: _Certain) -> list[BoundRow]:
    """What the probabilities themselves say about the error on the target."""
    unsure, rest = float(1.0 - theirs.max(axis=1).mean()), float(1.0 - theirs.min(axis=1).mean())
    part = 1.0 / theirs.shape[1]
    least = max(0.0, unsure - certain.deviation(len(theirs), 1.0 - part))
    most = min(1.0, rest + certain.deviation(len(theirs), part))
    soft = "mean of 1 - the probability of the true class in the target, whatever the labels are"
    return [
        BoundRow("soft error at least", "E_T[1 - p_y]", least, certain.kind, f"{soft}; {certain.words}"),
        BoundRow("soft error at most", "E_T[1 - p_y]", most, certain.kind, f"{soft}; {certain.words}"),
        BoundRow(
            "error if calibrated",
            "E_T[1 - max p]",
            unsure,
            "heuristic",
            f"target error if the probabilities for {len(theirs):,} target rows were right",
        ),
    ]


def _shares_row(classes: int, codes: NDArray[np.intp], theirs: Floats) -> BoundRow:
    shares = [np.bincount(part, minlength=classes) / len(part) for part in (codes, theirs.argmax(axis=1))]
    return BoundRow(
        "shift of class shares",
        "½ Σ|π_S - π_T|",
        float(np.abs(shares[0] - shares[1]).sum() / 2),
        "heuristic",
        "between source labels and predictions for the target; a large one means other shares or a wrong model",
    )


def _moment_rows(cmd_terms: Sequence[float], shift: float, bound: GapBound | None) -> list[BoundRow]:
    """What k moments of the hidden activations say about functions of them, on these rows."""
    degree = len(cmd_terms)
    return [
        BoundRow("CMD", "cmd", float(sum(cmd_terms)), "measured", f"of the hidden activations, {degree} moments"),
        BoundRow(
            "polynomials of the activations",
            "sup |E_S p - E_T p|",
            polynomial_gap_bound(cmd_terms),
            "bound",
            f"for these rows, by the CMD alone: polynomials up to degree {degree}, unit coefficients for each order",
        ),
        BoundRow(
            "shift of an output",
            "|E_S h - E_T h|",
            shift,
            "measured",
            "of the class whose mean probability differs most between source and target",
        ),
        _output_bound_row(bound, degree),
    ]


def _output_bound_row(bound: GapBound | None, degree: int) -> BoundRow:
    name, symbol = "shift of an output by moments", "|E_S h - E_T h|"
    if bound is None:
        return BoundRow(name, symbol, None, "unknown", "several networks predict together; moments bound single ones")
    return BoundRow(
        name,
        symbol,
        bound.total,
        "bound",
        f"the same for these rows from {degree} moments of what enters the softmax: {bound.polynomial:.3f} by the "
        f"moments and {bound.smoothness:.3f} for the smoothness",
    )


def _read(source: ArrayLike, codes: ArrayLike, target: ArrayLike) -> tuple[Floats, NDArray[np.intp], Floats]:
    ours, theirs = (
        _read_probabilities(chances, name)
        for chances, name in ((source, "source_probabilities"), (target, "target_probabilities"))
    )
    if ours.shape[1] != theirs.shape[1]:
        raise InvalidInputError(
            f"source_probabilities has {ours.shape[1]} classes and target_probabilities {theirs.shape[1]}; "
            "give those of one classifier."
        )
    numbers = np.asarray(codes)
    if numbers.shape != (len(ours),) or numbers.dtype.kind not in "iu":
        raise InvalidInputError(
            f"source_codes must be {len(ours)} whole numbers, got shape {numbers.shape} of {numbers.dtype}; give the "
            "class number of each row."
        )
    if not ((numbers >= 0) & (numbers < ours.shape[1])).all():
        raise InvalidInputError(
            f"source_codes must be class numbers from 0 to {ours.shape[1] - 1}, got {numbers.min()} to "
            f"{numbers.max()}; number the classes by the columns of source_probabilities."
        )
    return ours, numbers.astype(np.intp), theirs


def _read_probabilities(chances: ArrayLike, name: str) -> Floats:
    array = np.asarray(chances, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] < 2:
        raise InvalidInputError(
            f"{name} must have shape (rows, classes) with at least 2 classes, got {array.shape}; take predict_proba."
        )
    if not ((array >= 0.0).all() and (np.abs(array.sum(axis=1) - 1.0) <= _ROUNDING).all()):
        raise InvalidInputError(f"{name} must be at least 0 and sum to 1 in each row; take predict_proba.")
    return array

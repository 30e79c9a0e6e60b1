"""Risky rows: how confident a model is, how far its candidates agree, and how far a row is from the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.moments.streaming import Moments
from momentalign.validation import Floats
from momentalign.workflow.threshold import Threshold

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RISK_COLUMNS", "Answers", "ask", "distances", "risk_cut", "risk_scores", "risk_table"]

RISK_COLUMNS = ("confidence", "agreement", "spread", "distance", "risky")
"""The columns of :func:`risk_table`, of classes and of values."""
# The part of the target that is flagged.
_FLAGGED = 0.2


class Answers(NamedTuple):
    """What a fitted estimator says of rows."""

    predicted: NDArray[Any]
    """The label, or the value, of each row."""
    values: NDArray[Any]
    """Probabilities (rows, classes), or the values again."""
    votes: list[NDArray[Any]]
    """Of a portfolio, the code of the class, or the value, that each member predicts."""
    weights: list[float]
    """How much each member counts."""

    @property
    def agreement(self) -> Floats:
        """The weight of the members that predict the same class as all together; of values, their standard deviation.

        NaN where a single model answers.
        """
        if not self.votes:
            return np.full(len(self.predicted), np.nan)
        if self.values.ndim == 1:
            squares = [
                weight * (vote - self.values) ** 2 for weight, vote in zip(self.weights, self.votes, strict=True)
            ]
            return np.asarray(np.sqrt(np.sum(squares, axis=0)))
        codes = self.values.argmax(axis=1)
        same = [weight * (vote == codes) for weight, vote in zip(self.weights, self.votes, strict=True)]
        return np.asarray(np.sum(same, axis=0))


def ask(estimator: Any, rows: Any, threshold: Threshold | None = None) -> Answers:
    """Return what an estimator predicts for preprocessed rows, and of a portfolio what each member does."""
    found = _ask(estimator, rows)
    if threshold is None:
        return found
    return found._replace(predicted=estimator.classes_[threshold.decide(found.values)])


def _ask(estimator: Any, rows: Any) -> Answers:
    classes = getattr(estimator, "classes_", None)
    if not hasattr(estimator, "members_"):
        predicted = estimator.predict(rows)
        return Answers(predicted, predicted if classes is None else estimator.predict_proba(rows), [], [])
    weights = [member.weight for member in estimator.members_]
    values, votes = [], []
    for parts in estimator.member_predictions(rows):
        values.append(sum(weight * part for weight, part in zip(weights, parts, strict=True)))
        votes.append([part[:, 0] if classes is None else part.argmax(axis=1).astype(np.int32) for part in parts])
    together = np.concatenate(values)
    each = [np.concatenate(parts) for parts in zip(*votes, strict=True)]
    if classes is None:
        return Answers(together[:, 0], together[:, 0], each, weights)
    return Answers(classes[together.argmax(axis=1)], together, each, weights)


def distances(rows: Any, source: Moments, target: Moments) -> Floats:
    """Return how far rows are from the source's mean: the root mean square over features, in standard deviations.

    Where a feature is constant in the source, the standard deviation of the target is taken; one that is constant in
    both is left out.
    """
    scale = np.where(source.deviation > 0.0, source.deviation, target.deviation)
    varies = scale > 0.0
    if not varies.any():
        return np.zeros(rows.shape[0])
    mean, inverse = source.mean, np.where(varies, 1.0 / np.where(varies, scale, 1.0), 0.0)
    if hasattr(rows, "indices"):
        # Of zeros the sum is the same in every row; only what differs from it is added.
        each: Any = rows.copy()
        each.data = each.data.astype(np.float64)
        columns = each.indices
        each.data = ((each.data - mean[columns]) ** 2 - mean[columns] ** 2) * inverse[columns] ** 2
        squares = np.asarray(each.sum(axis=1)).ravel() + ((mean * inverse) ** 2).sum()
    else:
        squares = (((rows - mean) * inverse) ** 2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0) / varies.sum()))


def risk_scores(answers: Answers, distance: Floats) -> Floats:
    """Return the risk of each row, the larger the riskier: what is missing to full confidence, or the spread of values.

    A single network of values has neither; the distance to the source has to do.

    The confidence of an average is low where its members disagree. On the development tasks neither the agreement nor
    the distance to the source told wrong rows better than that (benchmarks/risky_rows.py).
    """
    if answers.values.ndim == 2:
        return np.asarray(1.0 - answers.values.max(axis=1))
    return answers.agreement if answers.votes else distance


def risk_cut(scores: Floats) -> float:
    """Return the risk that the riskiest fifth of these rows is above."""
    return float(np.quantile(scores, 1.0 - _FLAGGED))


def risk_table(answers: Answers, distance: Floats, cut: float) -> pd.DataFrame:
    """Return one row for each row: what makes it risky, and whether its risk is above `cut`."""
    import pandas as pd

    columns: dict[str, Any]
    if answers.values.ndim == 1:
        columns = {"spread": answers.agreement}
    else:
        columns = {"confidence": answers.values.max(axis=1), "agreement": answers.agreement}
    return pd.DataFrame({**columns, "distance": distance, "risky": risk_scores(answers, distance) > cut})

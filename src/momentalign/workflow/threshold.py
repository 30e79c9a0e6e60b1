"""From which probability on a row is given the rarer of two classes: a number, or chosen on held-out source rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError
from momentalign.validation import Floats

__all__ = ["Threshold", "choose_threshold", "parse_threshold", "rarer_class"]


class Threshold(NamedTuple):
    """A row is given the code `positive` where its probability is at least `value`, the other code where not."""

    value: float
    positive: int
    rule: str = "given"

    def decide(self, probabilities: NDArray[Any]) -> NDArray[np.intp]:
        """Return the code of the class of each row, (rows, 2) probabilities given.

        Examples
        --------
        >>> Threshold(0.2, positive=1).decide(np.array([[0.7, 0.3], [0.9, 0.1]])).tolist()
        [1, 0]
        """
        # In float32 the rounding of products, which depends on the number of rows predicted together, is not seen.
        reached = probabilities[:, self.positive].astype(np.float32) >= np.float32(self.value)
        return np.where(reached, self.positive, 1 - self.positive)


class _Rule(NamedTuple):
    """A rule as it was given, and the costs of a false positive and a false negative, or a number."""

    text: str
    value: float | None = None
    costs: tuple[float, float] | None = None


def parse_threshold(threshold: float | str) -> _Rule:
    """Return what a threshold means: a number in (0, 1), ``"f1"`` or ``"cost:FP,FN"``.

    Examples
    --------
    >>> parse_threshold("cost:1,20").costs, parse_threshold(0.3).value
    ((1.0, 20.0), 0.3)
    """
    text = str(threshold).strip().lower()
    refused = InvalidInputError(
        f"threshold must be a number between 0 and 1, 'f1' or 'cost:FP,FN', got {threshold!r:.80}; try 'f1'."
    )
    if text == "f1":
        return _Rule(text)
    try:
        if text.startswith("cost:"):
            false_positive, false_negative = (float(part) for part in text.removeprefix("cost:").split(","))
            if not all(math.isfinite(cost) and cost > 0.0 for cost in (false_positive, false_negative)):
                raise refused
            return _Rule(text, costs=(false_positive, false_negative))
        value = float(text)
    except ValueError as error:
        raise refused from error
    if not 0.0 < value < 1.0:
        raise refused
    return _Rule("given", value)


def rarer_class(labels: NDArray[Any], classes: NDArray[Any]) -> int | None:
    """Return the code of the rarer of two classes, the later one of two equally frequent; None of more classes."""
    if len(classes) != 2:
        return None
    counts = [int((labels == name).sum()) for name in classes]
    return int(counts[1] <= counts[0])


def choose_threshold(rule: _Rule, positive: int, estimator: Any) -> Threshold:
    """Return the threshold of a rule; where it is no number, the best one on held-out source rows of a portfolio.

    Parameters
    ----------
    rule
        What :func:`parse_threshold` returned.
    positive
        The code of the class that the probability is of.
    estimator
        The fitted classifier.
    """
    if rule.value is not None:
        return Threshold(rule.value, positive)
    held_out = estimator.held_out_
    value = _best(held_out.answer[:, positive], held_out.labels == positive, held_out.counts, rule.costs)
    return Threshold(value, positive, rule.text)


def _best(scores: Floats, truth: NDArray[np.bool_], counts: Floats, costs: tuple[float, float] | None) -> float:
    """Half-way between the score from which on rows are best called positive, and the next one below."""
    order = np.argsort(-scores, kind="stable")
    scores, truth, counts = scores[order], truth[order], counts[order]
    right, wrong = np.cumsum(counts * truth), np.cumsum(counts * ~truth)
    missed = right[-1] - right
    if costs is None:
        worth = 2.0 * right / np.maximum(2.0 * right + wrong + missed, 1e-300)
    else:
        worth = -(costs[0] * wrong + costs[1] * missed)
    # A threshold falls between two scores, not between equal ones.
    last = np.append(scores[1:] < scores[:-1], True)
    best = int(np.flatnonzero(last)[worth[last].argmax()])
    following = scores[best + 1] if best + 1 < len(scores) else 0.0
    return float(np.clip((scores[best] + following) / 2.0, 1e-6, 1.0 - 1e-6))

r"""What can be known without target labels: whether to adapt, and how much each candidate is worth.

These observations carry the portfolio of :mod:`momentalign.estimators.auto`.

*Plain models that agree need no help.* Different learners that were trained on the source err differently. Where the
target differs in what matters they begin to disagree, about in step with the accuracy they lose:

C. Baek, Y. Jiang, A. Raghunathan, J. Z. Kolter: Agreement-on-the-line: predicting the performance of neural networks
under distribution shift. NeurIPS 2022.

So the agreement of plain models on the target is compared with their agreement on held-out source rows. As long as it
is as good, nothing speaks for adapting.

*Other class shares are no reason to adapt.* Where the target has more of one class, its means move towards the means
of that class, and standardising each domain by itself would undo just that. So the shift of the means is compared with
the shift that the predicted class shares explain: the means of the source's classes, mixed in these shares.

*Another population is no reason to adapt either.* Its rows differ in the ways in which rows of the source differ from
each other already, and what plain models learned of these ways holds. Instruments that drift move features without
regard to each other, so the shift leaves the directions in which the source varies.

*Adapting must not cost accuracy on the source.* Where adapted candidates are clearly less accurate on held-out source
rows than the best plain one, the classes cannot be told apart by what adapting leaves.

*A moved copy must be moved back.* Where instruments changed, all plain models may agree and be wrong. Where the
features moved far, but have the same distributions as the source once each domain is standardised by itself, the
target is a moved copy of the source. Then features are moved back, and held-out source rows say which models are right.
Where the target merely lies outside of what the source covers, or is measured in other units, all models extrapolate
alike too, and only candidates that standardise each domain by itself are left.

*Where adapting is needed, averaging beats choosing.* A candidate that adapted wrongly does so in its own way, those
that adapted rightly resemble each other; an average weighted by mutual agreement follows the latter.

*Compact classes can be found again.* Where the nearest class mean is nearly as accurate on held-out source rows as
the other candidates, classes are compact, and the means of the clusters in the target say more than a boundary that was
learned in the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from momentalign.evaluation.kind_of_shift import (
    EXPLAINED,
    EXPLAINED_IN_TEXT,
    UNEXPLAINED,
    UNEXPLAINED_IN_TEXT,
    ramp,
)
from momentalign.evaluation.target_accuracy import TargetEstimate

__all__ = [
    "ERRORS_BEHIND",
    "Evidence",
    "agreement",
    "agreement_weights",
    "share_of_class_means",
    "source_weights",
]

Floats: TypeAlias = NDArray[np.float64]

# Settings of the rules below, chosen on the development tasks (benchmarks/shifts.py) with their accuracies in view. The
# result hardly depends on them: powers from 4 to 16 and bounds from 0.85 to 1 are within 0.3 points of each other.
AGREEMENT_POWER = 8.0
FULLY_ADAPTED, NOT_ADAPTED = 0.92, 0.97
# Shift across the directions of the source, relative to along them, and how much is adapted where it stays within them.
WITHIN_DIRECTIONS, ACROSS_DIRECTIONS, ADAPTED_WITHIN = 0.7, 1.0, 0.4
# How far adapted candidates are behind plain ones on held-out source rows, beyond so many standard errors.
HARDLY_BEHIND, FAR_BEHIND, ERRORS_BEHIND = 0.03, 0.06, 1.5
SOURCE_POWER = 30.0
# The part of the answer that class means give, and how it fades where on held-out source rows they are further behind
# the median of the other candidates than so much.
OF_CLASS_MEANS, BEHIND, MEANS_POWER = 0.5, 0.05, 30.0
# The expected accuracy and its interval, found on the development tasks and on tasks of scikit-learn's data, with their
# accuracies in view; ``python -m benchmarks.shifts`` prints how far off they are.
AGREEMENT_FALLS, CONFIDENCE_FALLS, LOST = 1.5, 1.8, 0.4
LEAST_BEYOND, BY_AGREEMENT, BY_CANDIDATES, Z90 = 0.06, 0.2, 0.25, 1.6449
FURTHER_DOWN = 1.5  # Expected accuracies that are wrong are too high more often than too low.
WITHIN = 0.02, 0.985
# What adapting gains on the predictions that it changes: expected, and a 90 % interval. Where the directions in which
# the source varies are known, as in tables with few columns, it gained little on average, and helped or harmed.
GAIN, GAIN_IN_SMALL_TABLES = (0.45, -0.05, 0.95), (0.1, -0.5, 0.8)


class Evidence(NamedTuple):
    """What decides how much of the answer adapted models give.

    Examples
    --------
    >>> agreeing = Evidence(0.90, 0.91, unexplained=1.0, outside=0.0, moved_copy=False)
    >>> drifting = Evidence(0.60, 0.95, unexplained=1.0, outside=0.0, moved_copy=False)
    >>> other_shares = Evidence(0.85, 0.95, unexplained=0.4, outside=0.0, moved_copy=False)
    >>> [one.share_adapted for one in (agreeing, drifting, other_shares)]
    [0.0, 1.0, 0.0]
    """

    on_target: float
    """Agreement of plain models on the target,"""
    on_source: float
    """and on held-out source rows."""
    unexplained: float = 1.0
    """The part of the shift of the means that class shares do not explain."""
    across: float = np.inf
    """How far the means move across the directions in which the source varies, relative to along them."""
    behind: float = 0.0
    """How far adapted candidates are behind the best plain one on held-out source rows, beyond what may be chance."""
    outside: float = 0.0
    """How far the target is outside of what the source covers, from 0 to 1."""
    moved_copy: bool = False
    """Whether the target is the source, moved."""
    is_sparse: bool = False
    """Whether rows are sparse, as text is: alignment helped on every pair of reviews, also where plain models agree."""

    @property
    def disagreement(self) -> float:
        """How much the agreement of plain models speaks for adapting, from 0 to 1."""
        if self.on_source <= 0.0:
            return 1.0
        return 1.0 - ramp(self.on_target / self.on_source, FULLY_ADAPTED, NOT_ADAPTED)

    @property
    def share_adapted(self) -> float:
        """How much of the answer the average of all candidates gives, and not the plain models alone."""
        if self.moved_copy:
            return 1.0
        if self.is_sparse:
            return self._beyond_shares * self._keeps_accuracy
        leaves = ADAPTED_WITHIN + (1.0 - ADAPTED_WITHIN) * ramp(self.across, WITHIN_DIRECTIONS, ACROSS_DIRECTIONS)
        return max(self.outside, self.disagreement * self._beyond_shares * leaves * self._keeps_accuracy)

    @property
    def _beyond_shares(self) -> float:
        """From 0, where class shares explain the shift, to 1, where they do not."""
        bounds = (EXPLAINED_IN_TEXT, UNEXPLAINED_IN_TEXT) if self.is_sparse else (EXPLAINED, UNEXPLAINED)
        return ramp(self.unexplained, *bounds)

    @property
    def _keeps_accuracy(self) -> float:
        """From 1, where adapted models are as accurate on held-out source rows as plain ones, to 0."""
        return 1.0 - ramp(self.behind, HARDLY_BEHIND, FAR_BEHIND)

    @property
    def done(self) -> str:
        """What follows: adapted, adapted in part, or not adapted."""
        share = self.share_adapted
        return "Not adapted" if share == 0.0 else "Adapted" if share == 1.0 else "Adapted in part"

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        if self.is_sparse and self.share_adapted == 1.0:
            return (
                "On sparse rows such as text aligned networks are averaged whatever plain models say, weighted by "
                "their agreement."
            )
        if self.moved_copy:
            return (
                "The features moved, and once each domain is standardised by itself their distributions are the same; "
                "the answer is an average of models for features moved back."
            )
        if self.outside == 1.0:
            return (
                "The target lies outside of what the source covers, or is measured in other units, where plain models "
                "can only guess; the answer is an average of models that standardise each domain by itself."
            )
        agree = (
            f"Plain models agree on {self.on_target:.0%} of the target rows and on {self.on_source:.0%} of held-out "
            "source rows"
        )
        share = self.share_adapted
        if share == 0.0 and (self.is_sparse or self.disagreement > 0.0):
            return f"{agree}, but {self._objection}; the answer is an average of plain models."
        if share == 0.0:
            return f"{agree}, so nothing speaks for adapting; the answer is an average of plain models."
        if share == 1.0:
            return f"{agree}; the answer is an average of adapted and plain models, weighted by their agreement."
        but = f", but {self._objection}" if self._objection else ""
        return f"{agree}{but}; adapted models give {share:.0%} of the answer and plain ones the rest."

    @property
    def _objection(self) -> str:
        """What speaks most against adapting where plain models disagree, if anything does."""
        allowed = {
            "other class shares explain much of the shift, and adapting would undo them": self._beyond_shares,
            "adapted models are less accurate on held-out source rows": self._keeps_accuracy,
        }
        if not self.is_sparse:
            across = ramp(self.across, WITHIN_DIRECTIONS, ACROSS_DIRECTIONS)
            allowed["the target differs in the ways in which source rows differ from each other already"] = across
        objection = min(allowed, key=lambda one: allowed[one])
        return objection if allowed[objection] < 1.0 else ""

    def expected_accuracy(
        self,
        accuracy: float,
        *,
        confidence: tuple[float, float],
        agreeing: float,
        rows: tuple[int, int],
    ) -> TargetEstimate:
        r"""Return what accuracy to expect on the target of an answer that is as accurate on held-out source rows.

        With the accuracy :math:`a`, the share s of adapted models, the agreement A of plain models and the mean
        confidence C of the answer, on the target T and on the source S,

        .. math:: \Phi^{-1}(\hat a_T) = \Phi^{-1}(a)
            + 1.5 (1 - s) \min(0, \Phi^{-1}(A_T) - \Phi^{-1}(A_S))
            + 1.8 s \min(0, \Phi^{-1}(C_T) - \Phi^{-1}(C_S)) - 0.4 s (1 - a).

        Parameters
        ----------
        accuracy
            Of the answer on held-out source rows.
        confidence
            Mean probability of the predicted class, on the target and on held-out source rows.
        agreeing
            Mean part of the target rows on which a candidate predicts what the answer does.
        rows
            Of the source, held out, and of the target.

        Examples
        --------
        >>> agreeing = Evidence(0.90, 0.90)
        >>> agreeing.expected_accuracy(0.9, confidence=(0.9, 0.9), agreeing=0.95, rows=(400, 400))
        90 % (78 to 98)
        """
        share = self.share_adapted
        by_agreement = min(0.0, _probit(self.on_target) - _probit(self.on_source))
        by_confidence = min(0.0, _probit(confidence[0]) - _probit(confidence[1]))
        moved = AGREEMENT_FALLS * (1.0 - share) * by_agreement + CONFIDENCE_FALLS * share * by_confidence
        value = float(ndtr(_probit(accuracy) + moved - LOST * share * (1.0 - accuracy)))
        spreads = [max(one * (1.0 - one), 0.01) / count for one, count in zip((accuracy, value), rows, strict=True)]
        lost = 1.0 - min(1.0, self.on_target / self.on_source) if self.on_source > 0.0 else 1.0
        beyond = LEAST_BEYOND + share * (BY_AGREEMENT * lost + BY_CANDIDATES * (1.0 - agreeing))
        beyond += Z90 / 2.0 * float(np.sqrt(sum(spreads)))
        return TargetEstimate(value, max(0.0, value - FURTHER_DOWN * beyond), min(1.0, value + beyond))

    def expected_gain(self, changed: float) -> TargetEstimate:
        """Return what the answer gains in accuracy over the plain one, where it predicts otherwise on such a part.

        Examples
        --------
        >>> Evidence(0.6, 0.9).expected_gain(0.2), Evidence(0.6, 0.9, across=2.0).expected_gain(0.2)
        (9 % (-1 to 19), 2 % (-10 to 16))
        """
        few_columns = np.isfinite(self.across) and not (self.outside or self.moved_copy)
        value, low, high = (float(share * changed) for share in (GAIN_IN_SMALL_TABLES if few_columns else GAIN))
        return TargetEstimate(value, low, high)


def agreement(labels: Sequence[NDArray[np.intp]]) -> Floats:
    """Return for every model the mean part of the rows on which another one predicts the same class.

    Examples
    --------
    >>> agreement([np.array([0, 1, 1, 1]), np.array([0, 1, 1, 0]), np.array([1, 1, 1, 0])]).tolist()
    [0.625, 0.75, 0.625]
    """
    together = np.stack(labels)
    if len(together) == 1:
        return np.ones(1)
    same = np.array([[(one == other).mean() for other in together] for one in together])
    return np.asarray((same.sum(axis=1) - 1.0) / (len(together) - 1))


def agreement_weights(labels: Sequence[NDArray[np.intp]]) -> Floats:
    r"""Return the weights :math:`a_i^8 / \sum_j a_j^8` of models with agreements :math:`a_i`.

    Examples
    --------
    >>> weights = agreement_weights([np.array([0, 1, 1, 1]), np.array([0, 1, 1, 0]), np.array([1, 1, 1, 0])])
    >>> weights.round(2).tolist()
    [0.16, 0.68, 0.16]
    """
    found = agreement(labels)
    relative = found / found.max() if found.max() > 0.0 else np.ones(len(found))
    weights = relative**AGREEMENT_POWER
    return np.asarray(weights / weights.sum())


def source_weights(accuracies: Sequence[float]) -> Floats:
    """Return the weights of plain models: those that are a few points less accurate on held-out source rows fade.

    Examples
    --------
    >>> source_weights([0.9, 0.9, 0.8]).round(2).tolist()
    [0.49, 0.49, 0.02]
    """
    values = np.asarray(accuracies, dtype=np.float64)
    weights = np.exp(SOURCE_POWER * (values - values.max()))
    return np.asarray(weights / weights.sum())


def share_of_class_means(accuracy: float, others: Sequence[float] | Floats) -> float:
    """Return the part of an adapted answer that class means found in the target give, by accuracies on the source.

    Examples
    --------
    >>> [round(share_of_class_means(accuracy, [0.9, 0.9, 0.8]), 2) for accuracy in (0.9, 0.85, 0.8)]
    [0.5, 0.5, 0.11]
    """
    behind = max(0.0, float(np.median(others)) - accuracy - BEHIND)
    return OF_CLASS_MEANS * float(np.exp(-MEANS_POWER * behind))


def _probit(share: float) -> float:
    return float(ndtri(np.clip(share, *WITHIN)))

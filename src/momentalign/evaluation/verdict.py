r"""The verdict: whether anything shifted, how strongly, and in what, in one sentence.

Three tests ask whether anything differs at all: the smallest adjusted p-value of the features, the permutation test of
the CMD, and the classifier of domains. The overall p-value is the smallest of them times their number (Bonferroni).

The strength lies between 0 and 1: the largest of :math:`2\,\mathrm{AUC} - 1` of the classifier and of the distances of
the features that differ significantly. Below 0.2 a shift is called mild, below 0.4 moderate, else strong; the areas of
one normal feature moved by 0.36 and 0.74 of its deviation lie at these limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from momentalign.evaluation.domain_classifier import DomainClassifier
from momentalign.evaluation.features import FeatureChange
from momentalign.evaluation.moment_test import MomentShift

__all__ = ["Verdict", "conclude"]

MODERATE, STRONG = 0.2, 0.4
NAMED = 3


class Verdict(NamedTuple):
    """What the tests say together."""

    level: Literal["none", "mild", "moderate", "strong"]
    p_value: float
    strength: float
    words: str


def conclude(
    features: Sequence[FeatureChange],
    moments: MomentShift | None,
    classifier: DomainClassifier,
    *,
    alpha: float = 0.05,
    unmatched: int = 0,
) -> Verdict:
    """Put the findings together; `unmatched` columns are in one sample only.

    Examples
    --------
    >>> from momentalign.evaluation.features import compare_features
    >>> from momentalign.evaluation.domain_classifier import tell_apart
    >>> from momentalign.evaluation.samples import read_samples
    >>> samples = read_samples([[0.0], [1.0]] * 50, [[3.0], [4.0]] * 50, ["height"])
    >>> verdict = conclude(compare_features(samples), None, tell_apart(samples))
    >>> print(verdict.words)
    Strong shift: the one feature, height (location), differs; a classifier tells the samples apart (AUC 1.00).
    """
    p_value = _overall_p(features, moments, classifier)
    changed = [feature for feature in features if feature.changes]
    strength = max([0.0, 2.0 * classifier.auc - 1.0, *(feature.apart for feature in changed)])
    tail = f"; {_count(unmatched, 'column is', 'columns are')} in one sample only" if unmatched else ""
    if p_value > alpha:
        return Verdict("none", p_value, strength, f"No shift found: {_nothing(features, changed, classifier)}{tail}.")
    level: Literal["mild", "moderate", "strong"] = "mild"
    if strength >= MODERATE:
        level = "strong" if strength >= STRONG else "moderate"
    words = f"{level.capitalize()} shift: {_features(features, changed)}; {_others(moments, classifier, alpha)}{tail}."
    return Verdict(level, p_value, strength, words)


def _overall_p(features: Sequence[FeatureChange], moments: MomentShift | None, classifier: DomainClassifier) -> float:
    of_features = [p for feature in features for p in (feature.p_adjusted, feature.missing_p_adjusted) if p == p]
    tests = [classifier.p_value]
    if of_features:
        tests.append(min(of_features))
    if moments is not None:
        tests.append(float(moments.p_values[-1]))
    return min(1.0, len(tests) * min(tests))


def _nothing(features: Sequence[FeatureChange], changed: Sequence[FeatureChange], classifier: DomainClassifier) -> str:
    """Say that nothing was found, and what came closest."""
    guessing = f"a classifier cannot tell the samples apart (AUC {classifier.auc:.2f})"
    if not changed:
        return f"none of {_count(len(features), 'feature', 'features')} differs significantly, and {guessing}"
    return f"{_list(changed)} alone would pass, but not all tests together, and {guessing}"


def _features(features: Sequence[FeatureChange], changed: Sequence[FeatureChange]) -> str:
    """Say how many features differ, and which most of all."""
    if not changed:
        return "no single feature differs significantly"
    if len(features) == 1:
        return f"the one feature, {_list(changed)}, differs"
    most = ", most of all" if len(changed) > NAMED else ":"
    verb = "differs" if len(changed) == 1 else "differ"
    return f"{len(changed)} of {len(features)} features {verb}{most} {_list(changed[:NAMED])}"


def _others(moments: MomentShift | None, classifier: DomainClassifier, alpha: float) -> str:
    """Say what the classifier finds and, where it finds nothing, what the moments say."""
    area = f"(AUC {classifier.auc:.2f})"
    if classifier.p_value <= alpha:
        return f"a classifier tells the samples apart {area}"
    if moments is not None and moments.p_values[-1] <= alpha:
        return f"the central moments of all features together differ, but a classifier cannot use it {area}"
    return f"a classifier of all features together cannot use it {area}"


def _list(changed: Sequence[FeatureChange]) -> str:
    named = [f"{feature.name} ({', '.join(feature.changes)})" for feature in changed]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"

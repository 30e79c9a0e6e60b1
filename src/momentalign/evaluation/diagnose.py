r"""What shifted between two samples, how much, and whether it is significant: one call, one object, one sentence.

Three tests ask whether anything differs at all: the smallest adjusted p-value of the features, the permutation test of
the CMD, and the classifier of domains. The overall p-value is the smallest of them times their number (Bonferroni).

The strength lies between 0 and 1: the largest of :math:`2\,\mathrm{AUC} - 1` of the classifier and of the distances of
the features that differ significantly. Below 0.2 a shift is called mild, below 0.4 moderate, else strong; the areas of
one normal feature moved by 0.36 and 0.74 of its standard deviation lie at these limits.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import scipy
import sklearn
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from momentalign.evaluation.features import FeatureChange, compare_features
from momentalign.evaluation.samples import FEWEST_ROWS, Sample, Samples, read_samples
from momentalign.evaluation.whole_samples import DomainClassifier, MomentShift, compare_moments, tell_apart
from momentalign.report.diagnosis import diagnosis_card, diagnosis_figure, diagnosis_page
from momentalign.report.page import write_page
from momentalign.validation import check_generator, check_int, check_number
from momentalign.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["Diagnosis", "Verdict", "conclude", "diagnose"]

_MOST_ROWS, _FEWEST_ROWS = 10_000, 2_000
# Rows times features that a sample may have in the permutation test and in the classifier.
_MOST_CELLS = 2_000_000
MOST_PERMUTATIONS = 100_000
_MODERATE, _STRONG = 0.2, 0.4
# Features that the verdict lists by name.
_LISTED = 3


def diagnose(
    X_source: Any,
    X_target: Any,
    *,
    feature_names: Sequence[str] | None = None,
    alpha: float = 0.05,
    n_permutations: int = 1000,
    random_state: int | np.random.Generator | None = 0,
) -> Diagnosis:
    r"""Find out what differs between two samples: which features, in what, how much, and whether it is significant.

    Each feature is compared by itself (Kolmogorov-Smirnov test of numbers and dates, chi-square test of categories and
    of missing values, all p-values adjusted by Benjamini and Hochberg), all numbers together by the Central Moment
    Discrepancy with a permutation test per order, and everything together by a cross-validated classifier of domains
    (proxy-A-distance). The verdict is one sentence. That a shift was found does not say that aligning moments will
    help: no labels of the target were seen.

    Parameters
    ----------
    X_source, X_target
        Arrays (rows, features), data frames with numbers, dates and categories, or scipy sparse matrices, with at least
        8 rows; NaN, None and NaT are missing values. Frames are matched by the names of their columns.
    feature_names
        Names of the columns of arrays.
    alpha
        What counts as significant, between 0 and 1.
    n_permutations
        How many relabellings the CMD is compared with.
    random_state
        Seed of relabellings, folds and subsamples; the same seed gives the same diagnosis.

    Notes
    -----
    The permutation test and the classifier see at most 10,000 rows of each sample, drawn at random, and fewer where
    there are more than 200 features (2,000 at 1,000 features); the other tests see all rows. The result says how many
    rows were seen.

    Examples
    --------
    >>> import momentalign as ma
    >>> random = np.random.default_rng(0)
    >>> source, target = random.normal(0, 1, (300, 3)), random.normal([0, 0, 1], [1, 2, 1], (300, 3))
    >>> found = ma.diagnose(source, target, feature_names=["same", "wider", "moved"], n_permutations=99)
    >>> print(found.verdict[:73])
    Strong shift: 2 of 3 features differ: moved (location) and wider (spread)
    >>> found.to_frame()[["feature", "mean_shift", "deviation_ratio"]].round(1)
      feature  mean_shift  deviation_ratio
    0   moved         0.9              1.1
    1   wider         0.2              2.0
    2    same        -0.0              1.0
    """
    check_number(alpha, "alpha", above=0.0, below=1.0, example=0.05)
    n_permutations = check_int(n_permutations, "n_permutations", least=1, most=MOST_PERMUTATIONS, example=1000)
    random = check_generator(random_state)
    samples = read_samples(X_source, X_target, feature_names)
    # Threads of one product or tree would only wait for each other where other work is running.
    with threadpool_limits(limits=1):
        features = compare_features(samples, alpha=float(alpha))
        moments, seen = _compare_all_numbers(samples, n_permutations, random)
        most_rows = _most_rows(len(samples.kinds), least=_FEWEST_ROWS)
        classifier = tell_apart(samples, most_rows=most_rows, random_state=int(random.integers(2**31)))
    unmatched = len(samples.only_source) + len(samples.only_target)
    verdict = conclude(features, moments, classifier, alpha=float(alpha), unmatched=unmatched)
    return Diagnosis(
        {
            "kind": "diagnosis",
            "rows": {"source": samples.source.rows, "target": samples.target.rows},
            "alpha": float(alpha),
            "verdict": verdict._asdict(),
            "features": [_described_feature(feature) for feature in features],
            "cmd": None if moments is None else _described_moments(moments, seen, n_permutations),
            "classifier": _described_classifier(classifier),
            "only_source": samples.only_source,
            "only_target": samples.only_target,
            "empty": samples.empty,
            "ids": samples.ids,
            "retyped": samples.retyped,
            "versions": {
                "momentalign": __version__,
                "numpy": np.__version__,
                "scipy": scipy.__version__,
                "scikit-learn": sklearn.__version__,
            },
        }
    )


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`diagnose` found; all of it is in `result`, in types that JSON knows."""

    result: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        return str(self.result["verdict"]["words"])

    @property
    def level(self) -> str:
        """How strong the shift is: none, mild, moderate or strong."""
        return str(self.result["verdict"]["level"])

    @property
    def p_value(self) -> float:
        """How likely so clear a result of the clearest of all tests would be without any shift."""
        return float(self.result["verdict"]["p_value"])

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        return f"<Diagnosis: {self.verdict}>"

    def _repr_html_(self) -> str:
        return diagnosis_card(self.result)

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of everything in types that JSON knows; None is what could not be computed."""
        return copy.deepcopy(dict(self.result))

    def to_frame(self) -> DataFrame:
        """Return one line per feature, the ones that differ most first."""
        import pandas

        frame = pandas.DataFrame(self.result["features"]).drop(columns=["missing_p_value", "shape"])
        frame["changes"] = [", ".join(changes) for changes in frame["changes"]]
        text = ("name", "kind", "changes")
        return frame.astype({name: float for name in frame if name not in text}).rename(columns={"name": "feature"})

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the page that shows everything; with a `path` write it there too, whole or not at all."""
        page = diagnosis_page(self.result)
        if path is not None:
            write_page(page, path)
        return page

    def plot(self) -> Figure:
        """Return a figure of matplotlib: distances, moments order by order, and the most different features."""
        return diagnosis_figure(self.result)


def _compare_all_numbers(
    samples: Samples, n_permutations: int, random: np.random.Generator
) -> tuple[MomentShift | None, dict[str, int]]:
    """Return the permutation test of all numbers together, and how many rows and features it saw."""
    names = samples.names("number", "date")
    most_rows = _most_rows(len(names), least=min(_FEWEST_ROWS, 10 * _MOST_CELLS // max(len(names), 1)))
    source, target = (_drawn_rows(sample, names, most_rows, random) for sample in (samples.source, samples.target))
    known = ~(np.isnan(source).all(axis=0) | np.isnan(target).all(axis=0))
    seen = {"source": len(source), "target": len(target), "features": int(known.sum())}
    if not known.any():
        return None, seen
    test = compare_moments(source[:, known], target[:, known], n_permutations=n_permutations, random_state=random)
    return test, seen


def _most_rows(width: int, *, least: int) -> int:
    return min(max(_MOST_CELLS // max(width, 1), least, FEWEST_ROWS), _MOST_ROWS)


def _drawn_rows(
    sample: Sample, names: Sequence[str], most_rows: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Return these columns of at most so many rows, as one matrix."""
    chosen = random.permutation(sample.rows)[:most_rows]
    drawn = np.empty((len(chosen), len(names)), order="F")
    for index, name in enumerate(names):
        drawn[:, index] = sample.columns[name][chosen]
    return drawn


def _described_feature(feature: FeatureChange) -> dict[str, Any]:
    """Return a feature in types of JSON; what is not finite becomes None."""
    entries = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in vars(feature).items()
    }
    return entries | {"shape": None if feature.shape is None else feature.shape._asdict()}


def _described_moments(moments: MomentShift, seen: Mapping[str, int], n_permutations: int) -> dict[str, Any]:
    columns = zip(moments.values.tolist(), moments.p_values.tolist(), moments.by_chance.tolist(), strict=True)
    *orders, total = [{"value": value, "p_value": p, "by_chance": chance} for value, p, chance in columns]
    return {"orders": orders, "total": total, "seen": dict(seen), "n_permutations": n_permutations}


def _described_classifier(classifier: DomainClassifier) -> dict[str, Any]:
    features = [{"name": name, "drop": drop} for name, drop in classifier.features]
    return classifier._asdict() | {"features": features}


class Verdict(NamedTuple):
    """What the tests say together; `words` is the sentence."""

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
    if strength >= _MODERATE:
        level = "strong" if strength >= _STRONG else "moderate"
    findings = f"{_features(features, changed)}; {_all_together(moments, classifier, alpha)}"
    return Verdict(level, p_value, strength, f"{level.capitalize()} shift: {findings}{tail}.")


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
    most = ", most of all" if len(changed) > _LISTED else ":"
    verb = "differs" if len(changed) == 1 else "differ"
    return f"{len(changed)} of {len(features)} features {verb}{most} {_list(changed[:_LISTED])}"


def _all_together(moments: MomentShift | None, classifier: DomainClassifier, alpha: float) -> str:
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

r"""How good a fitted model will be on a target without labels, with a 90 % interval.

Confidence is far too optimistic under a shift. *Agreement* is less so: two other learners, a linear one and a forest,
are trained on the labelled source rows. As much less often as they agree with the model on the target than on held-out
source rows, it is right less often there (C. Baek et al.: Agreement-on-the-line, NeurIPS 2022). They see the target
twice, standardised by the source's means and by its own, and the lower agreement counts; it counts for a quarter where
other class shares explain the shift, which standardising would undo. *Average thresholded
confidence* (S. Garg et al.: Leveraging unlabeled data to predict out-of-distribution performance, ICLR 2022) counts a
little. From the accuracy :math:`a_S` on the labelled rows, the mean agreements :math:`A` and the thresholded
confidence C the estimate is

.. math:: \hat a_T = a_S \Big( \min_k \frac{A_T^k}{A_S} \Big)^{1.1} \Big( \frac{C_T}{a_S} \Big)^{0.2}.

The interval is the sampling error, and further down 0.4 of the change of the predicted shares of the classes (total
variation) and 0.15 of the source error where a domain classifier tells the domains apart; further up 0.45 of the
change.

These figures were found on the 47 development tasks of ``benchmarks/shift_tasks.py``, with their accuracies in view,
for a logistic regression, a forest and boosting. Found on five families of tasks and measured on the sixth, the mean
absolute error is 6.7 points, the bias 0.5, and 86 % of the intervals are right, 25 points wide on average. Differences
of confidence, optimal transport of confidences, importance weights and distances to the nearest source rows added
nothing to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse, special

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.evaluation.class_shares import Predictions, calibrated, predictions_of, temperature
from momentalign.evaluation.kind_of_shift import EXPLAINED, UNEXPLAINED, ramp, unexplained_shift
from momentalign.evaluation.whole_samples import area_under_curve
from momentalign.validation import Features, Floats, check_choice, check_features, check_probabilities

__all__ = ["TargetEstimate", "estimate_accuracy"]

Codes: TypeAlias = NDArray[np.intp]

_AGREEMENT, _CONFIDENCE = 1.1, 0.2
_ALWAYS_COUNTS = 0.25  # How much the lower agreement counts even where class shares explain the shift.
_DOWN_SHARES, _DOWN_ERROR, _UP_SHARES = 0.4, 0.15, 0.45
_Z90 = 1.6448536269514722

_MOST_ROWS = 1500  # Of each domain, for the learners and the domain classifier.
_FEWEST_ROWS = 20
_WIDEST = 50
_FOLDS = 4
_CLASSIFICATION = ("accuracy", "balanced_accuracy", "roc_auc", "log_loss", "brier")
_REGRESSION = ("r2", "mae")


@dataclass(frozen=True)
class TargetEstimate:
    """An expected figure on the target and its 90 % interval.

    Examples
    --------
    >>> TargetEstimate(0.84, 0.8, 0.88)
    84 % (80 to 88)
    >>> TargetEstimate(0.84, 0.8, 0.88, "log_loss")
    0.84 (0.80 to 0.88)
    """

    value: float
    low: float
    high: float
    metric: str = "accuracy"

    def __repr__(self) -> str:
        if self.metric in ("accuracy", "balanced_accuracy"):
            return f"{self.value:.0%} ({100 * self.low:.0f} to {100 * self.high:.0f})".replace("%", " %")
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    def _repr_html_(self) -> str:
        from momentalign.report.notebook import estimate_card

        return estimate_card(self.value, self.low, self.high, self.metric)


def estimate_accuracy(
    model: Any,
    X: Any,
    y: ArrayLike,
    X_target: Any,
    metric: str = "accuracy",
    *,
    predictions: Sequence[tuple[ArrayLike, ArrayLike]] | None = None,
) -> TargetEstimate:
    """Return how good a fitted model is to be expected on unlabelled target rows, with a 90 % interval.

    Parameters
    ----------
    model
        Any fitted classifier with ``predict_proba`` and ``classes_``; for r2 and mae a regressor.
    X, y
        Labelled source rows that the model was not trained on.
    X_target
        Rows of the target.
    metric
        ``"accuracy"``, ``"balanced_accuracy"``, ``"roc_auc"`` (macro average, one class against the rest),
        ``"log_loss"`` or ``"brier"``; for regressors ``"r2"`` or ``"mae"``. For regressors the interval is rough.
    predictions
        What other models say, as pairs of predictions on `X` (not trained on either) and on `X_target`: probabilities
        with the columns of ``model.classes_``, or values of a regression. Agreement of several different learners is
        the strongest evidence there is.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> random = np.random.default_rng(0)
    >>> y = random.integers(2, size=2000)
    >>> X = random.normal(2 * y[:, None], 1, (2000, 2))
    >>> model = LogisticRegression().fit(X[:500], y[:500])
    >>> estimate = estimate_accuracy(model, X[500:1000], y[500:1000], X[1000:])
    >>> bool(estimate.low < model.score(X[1000:], y[1000:]) < estimate.high)
    True
    """
    check_choice(metric, "metric", (*_CLASSIFICATION, *_REGRESSION))
    if metric in _REGRESSION:
        return _regression(model, X, y, X_target, metric, list(predictions or []))
    own = predictions_of(model, X, y, X_target)
    others = [
        (_like(source, own.source, "on X"), _like(target, own.target, "on X_target"))
        for source, target in predictions or []
    ]
    rows = _drawn(len(own.codes)), _drawn(len(own.target))
    domains = _domains(X, X_target, rows)
    accuracy = _accuracy(own, _classifiers_agreement(own, others, domains, rows), _separability(domains))
    if metric == "accuracy":
        return accuracy
    return _other_metric(own, accuracy, metric)


class _Agreement(NamedTuple):
    """How often the model agrees with other learners, on average."""

    source: float
    target: float
    """The lower one of the ways in which the target is standardised, where class shares do not explain the shift."""


class _Domains(NamedTuple):
    """Drawn rows of both domains as the learners take them."""

    source: Floats
    target: Floats
    """Standardised by the source."""
    centred: Floats
    """Standardised by itself."""


def _accuracy(own: Predictions, agreement: _Agreement, separability: float) -> TargetEstimate:
    """The rule of this file's first lines."""
    temper = temperature(own.source, own.codes)
    source, target = calibrated(own.source, temper), calibrated(own.target, temper)
    n, m = len(source), len(target)
    accuracy = float((own.source.argmax(axis=1) == own.codes).mean())
    threshold = np.quantile(source.max(axis=1), 1.0 - accuracy)
    above = [float((part.max(axis=1) >= threshold).mean()) for part in (source, target)]
    ratio = max(agreement.target, 0.02) / max(agreement.source, 0.02)
    confidence = max(accuracy + above[1] - above[0], 0.02) / max(accuracy, 0.02)
    value = float(np.clip(accuracy * ratio**_AGREEMENT * confidence**_CONFIDENCE, 0.0, 1.0))
    spread = [max(share * (1.0 - share), 0.01) for share in (accuracy, value)]
    sampling = _Z90 * np.sqrt(spread[0] / n + spread[1] / m)
    change = float(abs(source.mean(axis=0) - target.mean(axis=0)).sum() / 2.0)
    down = sampling + _DOWN_SHARES * change + _DOWN_ERROR * (1.0 - accuracy) * separability
    return TargetEstimate(value, max(0.0, value - down), min(1.0, value + sampling + _UP_SHARES * change))


def _classifiers_agreement(
    own: Predictions, others: list[tuple[Floats, Floats]], domains: _Domains, rows: tuple[Codes, Codes]
) -> _Agreement:
    codes = own.codes[rows[0]]
    source, target = own.source.argmax(axis=1), own.target.argmax(axis=1)
    held_out, plain, centred = [], [], []
    for learner in _learners(codes, domains):
        held_out.append(float((learner[0] == source[rows[0]]).mean()))
        plain.append(float((learner[1] == target[rows[1]]).mean()))
        centred.append(float((learner[2] == target[rows[1]]).mean()))
    for predicted in others:
        held_out.append(float((predicted[0].argmax(axis=1) == source).mean()))
        same = float((predicted[1].argmax(axis=1) == target).mean())
        plain.append(same)
        centred.append(same)
    if not held_out:  # Nobody to ask: confidence alone.
        return _Agreement(1.0, 1.0)
    on_target, below = float(np.mean(plain)), max(0.0, float(np.mean(plain)) - float(np.mean(centred)))
    shares = np.bincount(target, minlength=own.target.shape[1]) / len(target)
    unexplained = unexplained_shift(domains.source, codes, np.ones(len(codes)), domains.target, shares)
    counts = max(_ALWAYS_COUNTS, ramp(unexplained, EXPLAINED, UNEXPLAINED))
    return _Agreement(float(np.mean(held_out)), on_target - below * counts)


def _learners(codes: Codes, domains: _Domains) -> list[tuple[Codes, Codes, Codes]]:
    """What learners trained on the source rows say: of those rows, held out, and of the target in both scalings."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    if len(codes) < _FEWEST_ROWS or len(np.unique(codes)) < 2:
        return []
    fold = _fold_of_rows(codes)
    strength = 0.1 if domains.source.shape[1] >= _WIDEST else 1.0
    predicted = []
    for learner in (
        LogisticRegression(C=strength, max_iter=200),
        RandomForestClassifier(50, random_state=0),
    ):
        held_out = np.empty_like(codes)
        for part in range(_FOLDS):
            kept = fold != part
            if not kept.all() and len(np.unique(codes[kept])) > 1:
                held_out[~kept] = learner.fit(domains.source[kept], codes[kept]).predict(domains.source[~kept])
        learner.fit(domains.source, codes)
        predicted.append((held_out, learner.predict(domains.target), learner.predict(domains.centred)))
    return predicted


def _fold_of_rows(codes: Codes) -> Codes:
    """The fold of each row, the rows of each class spread over all of them."""
    random, fold = np.random.default_rng(0), np.empty_like(codes)
    for code in np.unique(codes):
        members = random.permutation(np.flatnonzero(codes == code))
        fold[members] = np.arange(len(members)) % _FOLDS
    return fold


def _separability(domains: _Domains) -> float:
    """0 where a linear domain classifier guesses, 1 from an area under its curve of 0.75 on."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    domain = np.repeat([0, 1], [len(domains.source), len(domains.target)])
    folds = min(_FOLDS, len(domains.source), len(domains.target))
    if folds < 2:
        return 1.0
    rows = np.vstack([domains.source, domains.target])
    rows = rows / np.maximum(rows.std(axis=0), 1e-9)
    split = StratifiedKFold(folds, shuffle=True, random_state=0)
    classifier = LogisticRegression(C=0.1, max_iter=200)
    scores = cross_val_predict(classifier, rows, domain, cv=split, method="decision_function")
    # Nothing to tell apart gives areas about 0.5 with this standard deviation.
    chance = np.sqrt((len(domain) + 1.0) / (12.0 * len(domains.source) * len(domains.target)))
    return float(np.clip((area_under_curve(scores, domain) - 0.5 - chance) / 0.25, 0.0, 1.0))


def _drawn(rows: int) -> Codes:
    """At most `_MOST_ROWS` rows, in order."""
    if rows <= _MOST_ROWS:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, _MOST_ROWS, replace=False))


def _domains(X: Any, X_target: Any, rows: tuple[Codes, Codes]) -> _Domains:
    """Drawn rows of unit variance, brought to few columns by principal components where they are many."""
    from sklearn.decomposition import PCA, TruncatedSVD

    source, target = _numeric(X, X_target, rows)
    if source.shape[1] != target.shape[1]:
        raise InvalidInputError(
            f"X has {source.shape[1]} columns and X_target has {target.shape[1]}; give the same features."
        )
    is_sparse = sparse.issparse(source)
    if is_sparse:  # Centring would make it dense.
        scaled = [part.multiply(1.0 / _scale(part)) for part in (source, target)]
        plain = target.multiply(1.0 / _scale(source))
        width = min(_WIDEST, source.shape[1] - 1)
        reduction = TruncatedSVD(width, random_state=0).fit(sparse.vstack(scaled).tocsr())
        parts = [reduction.transform(part.tocsr()) for part in (scaled[0], plain, scaled[1])]
    else:
        scale, centre = _scale(source), source.mean(axis=0)
        own_scale, own_centre = _scale(target), target.mean(axis=0)
        parts = [
            (source - centre) / scale,
            np.clip((target - centre) / scale, -20.0, 20.0),
            (target - own_centre) / own_scale,
        ]
        if source.shape[1] > _WIDEST:
            both = np.vstack([parts[0], parts[2]])
            width = min(_WIDEST, *both.shape)
            reduction = PCA(width, svd_solver="randomized", random_state=0).fit(both)
            parts = [reduction.transform(part) for part in parts]
    size = float(parts[0].std()) or 1.0
    return _Domains(*(np.asarray(part / size) for part in parts))


def _numeric(X: Any, X_target: Any, rows: tuple[Codes, Codes]) -> tuple[Features, Features]:
    """Drawn rows as numbers: categories one-hot, gaps filled by the median."""
    is_sparse = sparse.issparse(X)
    if is_sparse:
        return sparse.csr_array(X)[rows[0]].astype(np.float64), sparse.csr_array(X_target)[rows[1]].astype(np.float64)
    parts = [pd.DataFrame(part).iloc[chosen] for part, chosen in zip((X, X_target), rows, strict=True)]
    if list(parts[0].columns) != list(parts[1].columns):
        raise InvalidInputError("X and X_target have different columns; give the same features.")
    both = pd.concat(parts, ignore_index=True)
    texts: Any = [name for name in both if not pd.api.types.is_numeric_dtype(both[name])]
    if texts:
        both[texts] = both[texts].astype(str)
        common = {name: both[name].value_counts().index[:_WIDEST] for name in texts}
        both[texts] = both[texts].apply(lambda column: column.where(column.isin(common[str(column.name)]), "other"))
        both = pd.get_dummies(both, columns=texts)
    values = both.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isnan(values).any():
        empty = np.isnan(values).all(axis=0)
        values[:, empty] = 0.0
        values = np.where(np.isnan(values), np.nanmedian(values, axis=0), values)
    values = check_features(values, "X")
    return values[: len(rows[0])], values[len(rows[0]) :]


def _scale(rows: Features) -> Floats:
    is_sparse = sparse.issparse(rows)
    scale = np.sqrt(np.asarray(rows.power(2).mean(axis=0)).ravel()) if is_sparse else rows.std(axis=0)
    return np.where(scale > 1e-8, scale, 1.0)


def _like(probabilities: ArrayLike, own: Floats, where: str) -> Floats:
    rows = check_probabilities(probabilities, f"predictions {where}")
    if rows.shape != own.shape:
        raise InvalidInputError(
            f"predictions {where} must have the shape {own.shape} of the model's, got {rows.shape}; give one row of "
            "probabilities per row."
        )
    return rows


def _other_metric(own: Predictions, accuracy: TargetEstimate, metric: str) -> TargetEstimate:
    """Another metric, expected where the odds of each prediction are changed so that the accuracy is the estimate.

    What the same expectation is wrong by on the source is taken off.
    """
    score = _METRICS[metric]
    classes = own.source.shape[1]
    labels = np.eye(classes)[own.codes]
    temper = temperature(own.source, own.codes)
    known = float((own.source.argmax(axis=1) == own.codes).mean())
    wrong = score(own.source, labels) - score(own.source, _believed(own.source, temper, known))
    bounds = (accuracy.value, accuracy.low, accuracy.high)
    value, *ends = (score(own.target, _believed(own.target, temper, level)) + wrong for level in bounds)
    most = np.inf if metric == "log_loss" else 2.0 if metric == "brier" else 1.0
    value, *ends = (float(np.clip(figure, 0.0, most)) for figure in (value, *ends))
    return TargetEstimate(value, min(*ends, value), max(*ends, value), metric)


def _believed(probabilities: Floats, temper: float, accuracy: float) -> Floats:
    """Calibrated probabilities in which the predicted class has this mean probability."""
    even = np.clip(calibrated(probabilities, temper), 1e-9, None)
    predicted = np.eye(even.shape[1])[probabilities.argmax(axis=1)] > 0.0
    first = np.clip(even[predicted], 1e-6, 1.0 - 1e-6)
    odds = special.logit(first)
    level = float(np.clip(accuracy, 1e-4, 1.0 - 1e-4))
    shift = optimize.brentq(lambda by: special.expit(odds + by).mean() - level, -40.0, 40.0)
    sure = special.expit(odds + shift)[:, None]
    rest = np.where(predicted, 0.0, even)
    return np.asarray(np.where(predicted, sure, rest / rest.sum(axis=1, keepdims=True) * (1.0 - sure)))


def _balanced_accuracy(probabilities: Floats, labels: Floats) -> float:
    predicted = np.eye(labels.shape[1])[probabilities.argmax(axis=1)]
    seen = labels.sum(axis=0) > 0.0
    return float(((predicted * labels).sum(axis=0)[seen] / labels.sum(axis=0)[seen]).mean())


def _roc_auc(probabilities: Floats, labels: Floats) -> float:
    """Each row counts as positive and as negative, with the probabilities of its label."""
    from sklearn.metrics import roc_auc_score

    areas = []
    for scores, share in zip(probabilities.T, labels.T, strict=True):
        if 0.0 < share.sum() < len(share):
            truth, weights = np.repeat([1, 0], len(share)), np.concatenate([share, 1.0 - share])
            kept = weights > 0.0
            areas.append(roc_auc_score(truth[kept], np.tile(scores, 2)[kept], sample_weight=weights[kept]))
    return float(np.mean(areas)) if areas else 0.5


def _log_loss(probabilities: Floats, labels: Floats) -> float:
    return float(-(labels * np.log(np.clip(probabilities, np.finfo(np.float64).eps, None))).sum(axis=1).mean())


def _brier(probabilities: Floats, labels: Floats) -> float:
    """Half of the sum over classes for two classes, as scikit-learn has it."""
    squares = (probabilities**2 - 2.0 * probabilities * labels + labels).sum(axis=1)
    return float(squares.mean() / (2.0 if labels.shape[1] == 2 else 1.0))


_METRICS: dict[str, Callable[[Floats, Floats], float]] = {
    "balanced_accuracy": _balanced_accuracy,
    "roc_auc": _roc_auc,
    "log_loss": _log_loss,
    "brier": _brier,
}


def _regression(
    model: Any, X: Any, y: ArrayLike, X_target: Any, metric: str, others: list[tuple[ArrayLike, ArrayLike]]
) -> TargetEstimate:
    """The error grows as the disagreement with other learners does, and at most like its square."""
    if not hasattr(model, "predict"):
        raise InvalidTypeError(f"model must be a fitted regressor with predict, got {type(model).__name__}.")
    source, target, truth = (
        np.asarray(values, dtype=np.float64).ravel() for values in (model.predict(X), model.predict(X_target), y)
    )
    if len(truth) != len(source) or len(truth) < 2:
        raise InvalidInputError(f"y must have shape ({len(source)},), got {np.shape(y)}; give one value per row of X.")
    rows = _drawn(len(source)), _drawn(len(target))
    growth = _disagreement_growth(source, target, truth, others, _domains(X, X_target, rows), rows)
    errors = abs(source - truth)
    spread = _Z90 * np.sqrt(1.0 / len(truth) + 1.0 / len(target))
    if metric == "mae":
        sampling = 1.0 + spread * _variation(errors)
        low, high = min(1.0, np.sqrt(growth)) / sampling, max(1.0, growth**2) * sampling
        value, low, high = (float(errors.mean() * ratio) for ratio in (growth, low, high))
        return TargetEstimate(value, low, high, metric)
    unexplained = float((errors**2).mean()) / max(float(truth.var()), 1e-12)
    # Labels spread more where errors are larger: the ratio of the squared error to their variance grows like the error.
    sampling = 1.0 + spread * float(np.hypot(_variation(errors**2), _variation((truth - truth.mean()) ** 2)))
    ratios = growth, max(1.0, growth**2) * sampling, min(1.0, growth) / sampling
    value, low, high = (1.0 - unexplained * ratio for ratio in ratios)
    return TargetEstimate(value, low, high, metric)


def _variation(values: Floats) -> float:
    """Standard deviation over the mean."""
    return float(values.std() / max(float(values.mean()), 1e-12))


def _disagreement_growth(
    source: Floats, target: Floats, truth: Floats, others: list[Any], domains: _Domains, rows: tuple[Codes, Codes]
) -> float:
    """How many times as far from other learners' predictions the model's are on the target as on the source."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import Ridge

    apart = [(abs(np.asarray(one[0]) - source).mean(), abs(np.asarray(one[1]) - target).mean()) for one in others]
    if len(truth) >= _FEWEST_ROWS:
        apart += [
            _apart(learner, source[rows[0]], target[rows[1]], truth[rows[0]], domains)
            for learner in (Ridge(1.0), RandomForestRegressor(50, random_state=0))
        ]
    if not apart:
        return 1.0
    means = np.mean(apart, axis=0)
    # What the learners miss by anyway: two models that agree about the source entirely say little.
    return float((means[1] + 0.1 * truth.std()) / (means[0] + 0.1 * truth.std()))


def _apart(learner: Any, source: Floats, target: Floats, truth: Floats, domains: _Domains) -> tuple[float, float]:
    """How far a learner is from the model on held-out source rows, and on the target by the worse scaling."""
    from sklearn.model_selection import KFold

    distances = []
    for train, test in KFold(_FOLDS, shuffle=True, random_state=0).split(truth):
        learner.fit(domains.source[train], truth[train])
        held_out = abs(learner.predict(domains.source[test]) - source[test]).mean()
        beyond = [abs(learner.predict(part) - target).mean() for part in (domains.target, domains.centred)]
        distances.append((held_out, *beyond))
    held_out, *beyond = np.mean(distances, axis=0)
    return float(held_out), float(max(beyond))

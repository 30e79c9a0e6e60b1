r"""AutoClassifier: a portfolio of models, and of it what the evidence without target labels supports.

The robust default. Whether alignment helps depends on the shift, and no single method is right for all: where
instruments drift, standardising each domain by itself is worth twenty points, between two populations it costs ten. So
the candidates of :mod:`momentalign.estimators.portfolio` are trained side by side in seconds, and the rules of
:mod:`momentalign.estimators.evidence` say how much each counts:

1. Where plain models agree on the target as well as on held-out source rows, or other class shares explain the shift,
   the answer is theirs.
2. Where the target is the source, moved, features are moved back.
3. Otherwise the answer is an average of plain and adapted candidates, weighted by their mutual agreement; compact
   classes are found again in the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted, validate_data

from momentalign.errors import InvalidInputError
from momentalign.estimators.classifier import ClassLabels
from momentalign.estimators.domains import Labels, all_or_nothing, as_float32, read_domains
from momentalign.estimators.evidence import (
    ERRORS_BEHIND,
    Z90,
    Evidence,
    agreement,
    agreement_weights,
    share_of_class_means,
    source_weights,
)
from momentalign.estimators.learners import Learner, means_found_in
from momentalign.estimators.moment_map import Scale
from momentalign.estimators.portfolio import (
    Candidate,
    Portfolio,
    Problem,
    View,
    candidates_for,
    folds_of,
    merged,
    scales,
    sparse_if_text,
    train,
)
from momentalign.evaluation.kind_of_shift import (
    is_moved_copy,
    share_outside,
    shift_across_directions,
    shift_in_text,
    unexplained_shift,
)
from momentalign.evaluation.target_accuracy import TargetEstimate
from momentalign.networks.shallow import Matrix
from momentalign.validation import check_row_values, check_seed, naming

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AutoClassifier", "AutoEstimator", "HeldOut", "Member"]

Floats: TypeAlias = NDArray[np.float64]

# A weight below this is not worth a model in the file.
LEAST_WEIGHT = 0.01
# An expected accuracy that is so much below the one on held-out source rows is warned of.
FAR_BELOW = 0.2
# A class is rare where it has less than this part of an equal share, as 0.2 of two classes.
RARE = 0.4
# Points below which an expected gain is called none.
LEAST_GAIN = 2
# Rows that are predicted at once.
CHUNK = 16_384


class HeldOut(NamedTuple):
    """What classifiers that were trained without some source rows predict for them, and plain ones for the target."""

    labels: NDArray[np.intp]
    """The code of the true class of each held-out row."""
    counts: Floats
    """How often each row was given."""
    answer: Floats
    """Probabilities of the average that predicts, (rows, classes)."""
    plain: Floats
    """Those of the average of plain models."""
    plain_target: Floats
    """Those of the average of plain models on rows of the target, at most 10,000; none without a target."""


class Member(NamedTuple):
    """A fitted candidate that takes part in the answer."""

    learner: Learner
    view: View
    weight: float


class _Judgement(NamedTuple):
    """What the evidence says."""

    weights: Floats
    """How much each candidate counts in the answer."""
    of_plain: Floats
    """How much it would count if nothing were adapted."""
    scores: list[float]
    """Its accuracy on held-out source rows."""
    evidence: Evidence | None = None
    """None without a target."""


class AutoEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """What both have in common: the portfolio is trained, weighed and kept."""

    # What metadata routing hands on without being asked, as pipelines and scorers of skada expect it.
    __metadata_request__fit: ClassVar = {"sample_domain": True}
    __metadata_request__predict: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__score: ClassVar = {"sample_domain": True, "allow_source": True}

    random_state: int | np.random.RandomState | None
    n_jobs: int | None
    verbose: int

    def _problem(
        self, X: Any, y: Any, X_target: Any, labels: Labels, sample_domain: Any, sample_weight: Any
    ) -> Problem:
        """Check the arguments of ``fit`` and bring them into the form that candidates are trained on."""
        seed = check_seed(self.random_state)
        domains = read_domains(self, X, y, X_target, labels=labels, sample_domain=sample_domain)
        count = domains.source.shape[0]
        codes = np.asarray(domains.labels).reshape(count, -1)[:, 0]
        weights = np.ones(count)
        if sample_weight is not None:
            given = check_row_values(sample_weight, "sample_weight", rows=count if sample_domain is None else len(y))
            weights = given if sample_domain is None else given[np.asarray(sample_domain) > 0]
        rows = sum(one.shape[0] for one in (domains.source, domains.target) if one is not None)
        source, codes, weights = merged(sparse_if_text(domains.source, rows), codes, weights)
        if not len(codes):
            raise InvalidInputError("Sample weights must contain at least one non-zero number: all weights are zero.")
        self.sparse_ = bool(sparse.issparse(source))
        target = domains.target
        if target is not None and self.sparse_ != sparse.issparse(target):
            target = sparse.csr_matrix(target) if self.sparse_ else target.toarray()
        self.source_scale_, self.target_scale_ = scales(source, weights, target)
        classes = labels.n_outputs if isinstance(labels, ClassLabels) else 0
        rows = as_float32(self.source_scale_.apply(source), "X")
        problem = Problem(rows, codes, weights, weights, classes=classes, seed=seed)
        problem.folds = folds_of(codes if classes else np.zeros(len(codes), np.intp), seed)
        if target is not None:
            for view in ("source", "target"):
                problem.targets[view] = as_float32(self._scale(view).apply(target), "X_target")
        return problem

    def _train(self, problem: Problem) -> Portfolio:
        """Train what is worth training on these rows."""
        features, has_target = problem.source.shape[1], bool(problem.targets)
        chosen = candidates_for(features, problem.classes, is_sparse=self.sparse_, has_target=has_target)
        return train(problem, chosen, n_jobs=self.n_jobs, verbose=self.verbose)

    def _scale(self, view: View) -> Scale:
        return self.source_scale_ if view == "source" else self.target_scale_

    def _keep(self, portfolio: Portfolio, weights: Floats) -> Floats:
        """Keep the candidates that count as the members that predict, and return their weights."""
        weights = np.where(weights >= LEAST_WEIGHT, weights, 0.0)
        weights = weights / weights.sum()
        self.members_ = [
            Member(portfolio.learner(candidate), candidate.view, float(weight))
            for candidate, weight in zip(portfolio.candidates, weights, strict=True)
            if weight > 0.0
        ]
        return weights

    def _combined(self, X: Any) -> Floats:
        """The average of the members' predictions."""
        parts = [
            sum(one.weight * part for one, part in zip(self.members_, parts, strict=True))
            for parts in self.member_predictions(X)
        ]
        return np.concatenate(parts)

    def member_predictions(self, X: Any) -> Iterator[list[Floats]]:
        """Yield what each of ``members_`` predicts, (rows, outputs), some rows of `X` at a time."""
        check_is_fitted(self, "members_")
        with naming("X"):
            rows = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        if sparse.issparse(rows) != self.sparse_:
            rows = sparse.csr_matrix(rows) if self.sparse_ else rows.toarray()
        for start in range(0, rows.shape[0], CHUNK):
            chunk = rows[start : start + CHUNK]
            used = dict.fromkeys(one.view for one in self.members_)
            views = {view: as_float32(self._scale(view).apply(chunk), "X") for view in used}
            yield [self._of(one.learner, views[one.view]) for one in self.members_]

    @abstractmethod
    def _of(self, learner: Learner, rows: Matrix) -> Floats:
        """Return the predictions of one learner."""

    def _html_repr(self) -> str:
        """What a notebook shows: parameters as scikit-learn shows them, and below them what was found."""
        from momentalign.report.notebook import portfolio_card

        shown = str(estimator_html_repr(self))
        if not hasattr(self, "portfolio_"):
            return shown
        found = self.estimate_
        estimate = found.value, found.low, found.high, found.metric
        return shown + portfolio_card(type(self).__name__, self.decision_, estimate, self.portfolio_.to_dict("records"))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a folder: safetensors and a JSON manifest; read it back with ``ma.load(path)``."""
        from momentalign.estimators.persistence import save

        save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class AutoClassifier(ClassifierMixin, AutoEstimator):  # type: ignore[misc]
    """The robust default: trains a portfolio of plain and adapted classifiers and averages what the evidence supports.

    No label of the target is used, and nothing has to be chosen. Where plain models agree on the target as well as on
    held-out rows of the source, the answer is theirs; otherwise it is an average of plain and adapted candidates,
    weighted by mutual agreement. Without target data it is an average of plain models.

    Parameters
    ----------
    class_weight
        None, ``"balanced"``, or a dictionary of weights by class, as in scikit-learn.
    random_state
        Seed of all candidates; the same seed gives the same bits, whatever the number of threads.
    n_jobs
        Candidates trained at once, by joblib: None is one, unless inside ``joblib.parallel_config``; -1 takes all
        cores.
    verbose
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : ndarray
        The class labels.
    portfolio_ : DataFrame
        One row a candidate: ``name``, ``source_score`` (accuracy on held-out source rows), ``estimated_target_score``
        (expected accuracy on the target, NaN without one) and ``weight`` in the answer.
    decision_ : str
        What was done and why, and what to expect.
    estimate_ : TargetEstimate
        Expected accuracy on the target with a 90 % interval; without a target, that on held-out source rows.
    gain_ : TargetEstimate or None
        Expected gain over not adapting, with a 90 % interval; None where nothing was adapted.
    agreement_ : tuple of float
        The agreement of plain models on the target and on held-out source rows.
    held_out_ : HeldOut
        Predictions for held-out source rows, what thresholds and the shares of classes are found from; not saved.

    Examples
    --------
    >>> import numpy as np, momentalign as ma
    >>> random = np.random.default_rng(0)
    >>> X, y = random.normal(size=(200, 2)), np.repeat(["left", "right"], 100)
    >>> X[y == "right"] += 3
    >>> drifted = 5 * X + 100
    >>> model = ma.AutoClassifier(random_state=0).fit(X, y, X_target=drifted)
    >>> bool(model.score(drifted, y) > 0.9)
    True
    """

    def __init__(
        self,
        *,
        class_weight: Any = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @all_or_nothing
    def fit(
        self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on labelled source rows and, where given, unlabelled target rows.

        Parameters
        ----------
        X, y
            Source rows (array, DataFrame or CSR matrix) and their labels; with `sample_domain` the rows of all domains.
        X_target
            Target rows, with the same columns.
        sample_domain
            One id per row of `X`: positive for sources, negative for targets, whose entries in `y` are not looked at.
        sample_weight
            One weight per row of `X`; those of target rows are not looked at.
        """
        labels = ClassLabels()
        class_weight = self.class_weight
        problem = self._problem(X, y, X_target, labels, sample_domain, sample_weight)
        if class_weight is not None:
            by_code = class_weight
            if isinstance(class_weight, dict):
                by_code = {code: class_weight.get(label, 1.0) for code, label in enumerate(labels.classes.tolist())}
            problem.weights = problem.weights * compute_sample_weight(by_code, problem.labels)
        self.classes_ = labels.classes
        portfolio = self._train(problem)
        judged = self._judge(portfolio)
        weights = self._keep(portfolio, judged.weights)
        self.held_out_ = _held_out(portfolio, judged, weights)
        self.portfolio_ = self._table(portfolio, judged.scores, weights)
        self._expect(portfolio, judged, weights)
        return self

    def _judge(self, portfolio: Portfolio) -> _Judgement:
        """Find what the evidence says of every candidate."""
        problem, candidates = portfolio.problem, portfolio.candidates
        plain = [index for index, one in enumerate(candidates) if not one.adapted]
        scores, guesses = [], []
        for candidate in candidates:
            rows, probabilities = portfolio.held_out(candidate)
            guesses.append(probabilities.argmax(axis=1))
            scores.append(float(np.average(guesses[-1] == problem.labels[rows], weights=problem.counts[rows])))
        of_plain = np.zeros(len(candidates))
        # Where a class is rare, naming it for no row is accurate, and says nothing of how good a model is.
        shares = np.bincount(problem.labels, problem.counts, minlength=problem.classes) / problem.counts.sum()
        is_rare = shares.min() < RARE / problem.classes
        precise = [_precision(portfolio, candidates[index]) if is_rare else scores[index] for index in plain]
        of_plain[plain] = source_weights(precise)
        self.agreement_ = (np.nan, np.nan)
        if not problem.targets:
            return _Judgement(of_plain, of_plain, scores)
        labels = [portfolio.on_target(candidate).argmax(axis=1) for candidate in candidates]
        self.agreement_ = _mean_agreement(labels, plain), _mean_agreement(guesses, plain)
        # On sparse rows plain models count for nothing.
        asked = [number for number, one in enumerate(candidates) if one.asked and (one.adapted or not self.sparse_)]
        by_agreement = np.zeros(len(candidates))
        by_agreement[asked] = agreement_weights([labels[index] for index in asked])
        evidence = self._evidence(portfolio, of_plain, _behind(portfolio, scores, by_agreement))
        share, weights = evidence.share_adapted, np.zeros(len(candidates))
        if evidence.moved_copy:  # What is right on the source is right on its copy.
            moved = [number for number, one in enumerate(candidates) if one.view == "target"]
            weights[moved] = source_weights([scores[number] for number in moved])
            return _Judgement(weights, of_plain, scores, evidence)
        weights = by_agreement
        if not self.sparse_:
            own = np.array([one.view == "target" for one in candidates])
            weights = weights * np.where(own, 1.0, 1.0 - evidence.outside)
        weights = share * weights / weights.sum() + (1.0 - share) * of_plain
        return _Judgement(_with_class_means(portfolio, scores, weights, share), of_plain, scores, evidence)

    def _evidence(self, portfolio: Portfolio, of_plain: Floats, behind: float) -> Evidence:
        """Return what speaks for adapting and against it."""
        problem = portfolio.problem
        predicted = portfolio.answer_on_target(of_plain).argmax(axis=1)
        shares = np.bincount(predicted, minlength=problem.classes) / len(predicted)
        if self.sparse_:
            words = problem.shown("source")
            unexplained = shift_in_text(problem.source, problem.labels, problem.counts, words, shares)
            return Evidence(*self.agreement_, unexplained=unexplained, behind=behind, is_sparse=True)
        source, counts = np.asarray(problem.source), problem.counts
        target, standardised = (np.asarray(problem.shown(view)) for view in ("source", "target"))
        unexplained = unexplained_shift(source, problem.labels, counts, target, shares)
        return Evidence(
            *self.agreement_,
            unexplained=unexplained,
            across=shift_across_directions(source, counts, target),
            behind=behind,
            outside=share_outside(source, target),
            moved_copy=is_moved_copy(source, counts, target, standardised, unexplained),
        )

    def _expect(self, portfolio: Portfolio, judged: _Judgement, weights: Floats) -> None:
        """Say how accurate the answer is to be expected on the target, and what was decided."""
        problem, evidence = portfolio.problem, judged.evidence
        # Class means of the source say nothing of those found in the target; on a moved copy they are the same.
        moved_copy = evidence is not None and evidence.moved_copy
        known = np.array([moved_copy or one.kind != "class means" for one in portfolio.candidates])
        rows, answer = portfolio.answer_held_out(np.where(known, weights, 0.0) / weights[known].sum())
        right = answer.argmax(axis=1) == problem.labels[rows]
        accuracy = float(np.average(right, weights=problem.counts[rows]))
        self.gain_ = None
        if evidence is None:
            spread = Z90 * np.sqrt(max(accuracy * (1.0 - accuracy), 0.01) / len(rows))
            self.estimate_ = TargetEstimate(accuracy, max(0.0, accuracy - spread), min(1.0, accuracy + spread))
            self.decision_ = "Not adapted: no target rows were given; the answer is an average of plain models."
            return
        on_target = portfolio.answer_on_target(weights)
        predicted = on_target.argmax(axis=1)
        asked = [one for one in portfolio.candidates if one.asked]
        agreeing = [(portfolio.on_target(one).argmax(axis=1) == predicted).mean() for one in asked]
        self.estimate_ = evidence.expected_accuracy(
            accuracy,
            confidence=(float(on_target.max(axis=1).mean()), float(answer.max(axis=1).mean())),
            agreeing=float(np.mean(agreeing)),
            rows=(len(rows), problem.targets["source"].shape[0]),
        )
        self.decision_ = f"{evidence.done}. Expected accuracy on the target {self.estimate_!r}"
        if evidence.share_adapted > 0.0:
            plain = portfolio.answer_on_target(judged.of_plain).argmax(axis=1)
            self.gain_ = evidence.expected_gain(float((plain != predicted).mean()))
            self.decision_ += f", {_above(self.gain_)}"
        self.decision_ += f". {evidence.reason}"
        if self.estimate_.value < max(judged.scores) - FAR_BELOW:
            self.decision_ += " That is far below held-out source rows: label some target rows before you rely on it."

    def _table(self, portfolio: Portfolio, scores: list[float], weights: Floats) -> pd.DataFrame:
        import pandas as pd

        expected = [np.nan] * len(scores)
        if portfolio.problem.targets:
            answer = portfolio.answer_on_target(weights)
            guesses = [portfolio.on_target(candidate).argmax(axis=1) for candidate in portfolio.candidates]
            expected = [float(np.take_along_axis(answer, one[:, None], 1).mean()) for one in guesses]
        return pd.DataFrame(
            {
                "name": [candidate.name for candidate in portfolio.candidates],
                "source_score": scores,
                "estimated_target_score": expected,
                "weight": weights,
            }
        )

    def _of(self, learner: Learner, rows: Matrix) -> Floats:
        return learner.predict(rows, classes=len(self.classes_))

    def predict_proba(self, X: Any, *, sample_domain: Any = None, allow_source: bool = True) -> Floats:  # noqa: ARG002
        """Return the probability of each class, (rows, classes), for rows of the target."""
        return self._combined(X)

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: bool = True) -> NDArray[Any]:  # noqa: ARG002
        """Return the class of each row of the target."""
        found = self._combined(X)
        return np.asarray(self.classes_[found.argmax(axis=1)])

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sample_domain: Any = None,  # noqa: ARG002
        allow_source: bool = True,  # noqa: ARG002
    ) -> float:
        """Return the accuracy on rows of the target."""
        return float(super().score(X, y, sample_weight))


def _mean_agreement(labels: list[NDArray[np.intp]], of: list[int]) -> float:
    return float(agreement([labels[index] for index in of]).mean())


def _precision(portfolio: Portfolio, candidate: Candidate) -> float:
    """Return the mean average precision of the classes on held-out source rows."""
    from sklearn.metrics import average_precision_score

    rows, probabilities = portfolio.held_out(candidate)
    labels, counts = portfolio.problem.labels[rows], portfolio.problem.counts[rows]
    return float(
        np.mean(
            [
                average_precision_score(labels == code, probabilities[:, code], sample_weight=counts)
                for code in np.unique(labels)
            ]
        )
    )


def _behind(portfolio: Portfolio, scores: list[float], by_agreement: Floats) -> float:
    """How far adapted candidates are behind the best plain one on held-out source rows, less what may be chance."""
    candidates, problem = portfolio.candidates, portfolio.problem
    best = max((index for index, one in enumerate(candidates) if not one.adapted), key=lambda index: scores[index])
    asked = [index for index, one in enumerate(candidates) if one.adapted and by_agreement[index]]
    found = [portfolio.held_out(candidates[index]) for index in (best, *asked)]
    rows = min((held_out for held_out, _ in found), key=len)  # Some were trained without the first part only.
    right = np.stack([predicted[: len(rows)].argmax(axis=1) for _, predicted in found]) == problem.labels[rows]
    apart = right[0] - np.average(right[1:], axis=0, weights=by_agreement[asked])
    mean = float(np.average(apart, weights=problem.counts[rows]))
    variance = float(np.average((apart - mean) ** 2, weights=problem.counts[rows]))
    return mean - ERRORS_BEHIND * float(np.sqrt(variance / problem.counts[rows].sum()))


def _with_class_means(portfolio: Portfolio, scores: list[float], weights: Floats, share: float) -> Floats:
    """Find the means of the classes in the target by the answer so far, and give them their part of the answer."""
    candidates = portfolio.candidates
    index = next((number for number, one in enumerate(candidates) if one.kind == "class means"), None)
    others = [score for score, one in zip(scores, candidates, strict=True) if one.asked]
    part = 0.0 if index is None else share * share_of_class_means(scores[index], others)
    if index is None or part < LEAST_WEIGHT:
        return weights
    answer = portfolio.answer_on_target(weights)
    portfolio.replace(candidates[index], means_found_in(portfolio.problem.shown("target"), answer))
    weights = (1.0 - part) * weights
    weights[index] = part
    return weights


def _above(gain: TargetEstimate) -> str:
    """The difference to not adapting, in points."""
    points = [round(100.0 * part) for part in (gain.value, gain.low, gain.high)]
    if points[0] < LEAST_GAIN:
        return "about as without adapting"
    return f"{points[0]} points ({points[1]} to {points[2]}) above not adapting"


def _held_out(portfolio: Portfolio, judged: _Judgement, weights: Floats) -> HeldOut:
    problem = portfolio.problem
    answered, answer = portfolio.answer_held_out(weights)
    rows, predicted = portfolio.answer_held_out(judged.of_plain)
    rows, predicted = rows[: len(answered)], predicted[: len(answered)]
    on_target = portfolio.answer_on_target(judged.of_plain) if problem.targets else np.empty((0, problem.classes))
    return HeldOut(problem.labels[rows], problem.counts[rows], answer[: len(rows)], predicted, on_target)

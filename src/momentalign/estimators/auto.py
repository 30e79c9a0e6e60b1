r"""AutoClassifier and AutoRegressor: a portfolio of models, and of it what the evidence without target labels supports.

The robust default. Whether alignment helps depends on the shift, and no single method is right for all: where
instruments drift, standardising each domain by itself is worth twenty points, between two populations it costs ten. So
plain learners, networks on inputs of both kinds, and aligned and sharpened networks of small weights are trained side
by side in seconds, and the rules of :mod:`momentalign.estimators.evidence` say how much each counts:

1. Plain models that agree on the target as well as on held-out source rows need no help: the answer is theirs.
2. Otherwise the answer is an average of plain and adapted candidates, weighted by their mutual agreement.

Regression is more conservative: an aligned network joins the average of plain learners only where it costs nothing on
held-out source rows and agrees with them on the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.errors import InvalidInputError
from momentalign.estimators.domains import all_or_nothing, as_float32, read_domains
from momentalign.estimators.evidence import agreement, agreement_weights, share_adapted, share_outside, source_weights
from momentalign.estimators.labels import ClassLabels, ContinuousLabels, Labels
from momentalign.estimators.learners import Learner, Network, boosting, forest, linear
from momentalign.estimators.moment_map import Scale, column_scale
from momentalign.evaluation.target_accuracy import TargetEstimate, estimate_accuracy
from momentalign.networks.shallow import Layer, Matrix
from momentalign.progress import progress_bar
from momentalign.training.config import NetworkSpec, Optimizer, OptimizerName, Task, TrainingConfig
from momentalign.training.stack import compile_ahead, train_stack
from momentalign.validation import check_row_values, check_seed, naming

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AutoClassifier", "AutoRegressor"]

Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.intp]
View: TypeAlias = Literal["source", "target"]
"""What rows of the target are standardised by: the moments of the source, or their own."""

UNITS, BATCH, UPDATES = 64, 300, 800
# Rows beyond what so many updates see are not needed by a network.
MOST_TRAINED = BATCH * UPDATES // 2
# Rows of the source up to which all are held out once, in turn; above, a quarter of them is.
FEW_ROWS, FOLDS = 2_000, 4
# Networks of a candidate where the source has so few rows: alone they scatter by several points.
SEEDS = 3
# Rows of the target, and of the held-out source, that the evidence is taken from.
MOST_ROWS = 10_000
# A weight below this is not worth a model in the file.
LEAST_WEIGHT = 0.01
SPARSE_DECISION = (
    "Adapted: on sparse rows such as text aligned networks are averaged whatever plain models say; their weights are "
    "those of their agreement."
)
# An expected accuracy that is so much below the one on held-out source rows is warned of where nothing was adapted.
FAR_BELOW = 0.2
# Sparse rows are multiplied by one number, so that their mean square length is that of text as log(1 + counts).
SPARSE_LENGTH = 7.0
# An aligned regression network joins where its held-out R2 is at most so far below the plain one's, and its R2 with the
# average of plain models as the truth is at least so high.
COST_IN_R2, AGREEMENT_IN_R2 = 0.02, 0.8
# An R2 of so much counts as an accuracy of 1 where plain models are weighed by it.
R2_SCALE = 0.3
# Values are not extrapolated further than this part of their range in the source.
BEYOND = 0.1
# Rows of the source from which on some can be held out; rows that are predicted at once.
FEWEST_ROWS, CHUNK = 20, 16_384
ROUNDING = 1e-10
# Nothing is cut from probabilities; the half width of a 90 % interval in standard deviations.
BOUNDS, Z90 = (0.0, 1.0), 1.6449


@dataclass(frozen=True)
class Candidate:
    """One model of the portfolio: how it learns, and what it sees of the target."""

    name: str
    kind: Literal["linear", "boosting", "forest", "network"]
    view: View = "source"
    adapted: bool = False
    """Whether it has anything of the target: its moments, or in training its rows."""
    averaged: bool = True
    """Whether it takes part in the average where adapting is needed."""
    weight: float = 0.0
    sharpen: float = 0.0
    optimizer: OptimizerName = "adam"
    rate: float = 1e-3

    @property
    def sees_target(self) -> bool:
        """Whether rows of the target take part in its training."""
        return bool(self.weight or self.sharpen)


OWN = ", domains standardised"
# The weight of the CMD is divided by the root of the width: it is a sum over units.
SMALL, SMALLER = 1.0 / np.sqrt(UNITS), 0.4 / np.sqrt(UNITS)
DENSE = (
    Candidate("linear", "linear", averaged=False),
    Candidate("boosting", "boosting"),
    Candidate("forest", "forest", averaged=False),
    Candidate("network", "network"),
    Candidate(f"linear{OWN}", "linear", "target", adapted=True),
    Candidate("network, sharpened", "network", adapted=True, sharpen=0.3),
    Candidate("CMD, sharpened", "network", adapted=True, weight=SMALL, sharpen=0.3),
    Candidate("smaller CMD, sharpened", "network", adapted=True, weight=SMALLER, sharpen=0.3),
    Candidate(f"network, sharpened{OWN}", "network", "target", adapted=True, sharpen=0.3),
    Candidate(f"CMD, sharpened{OWN}", "network", "target", adapted=True, weight=SMALL, sharpen=0.3),
    Candidate(f"smaller CMD, sharpened{OWN}", "network", "target", adapted=True, weight=SMALLER, sharpen=0.3),
)
# Text and the like: the paper's optimizer and weight. On all twelve pairs of reviews these adapted networks were ahead
# of the plain learners, which their average therefore leaves out; chosen with these accuracies in view.
SPARSE = (
    Candidate("linear", "linear", averaged=False),
    Candidate("forest", "forest", averaged=False),
    Candidate("network", "network", averaged=False, optimizer="adagrad", rate=0.01),
    Candidate("CMD", "network", adapted=True, weight=1.0, optimizer="adagrad", rate=0.01),
    Candidate("CMD, sharpened", "network", adapted=True, weight=1.0, sharpen=1.0, optimizer="adagrad", rate=0.01),
    Candidate(
        "smaller CMD, sharpened", "network", adapted=True, weight=0.3, sharpen=1.0, optimizer="adagrad", rate=0.01
    ),
    Candidate("slow CMD, sharpened", "network", adapted=True, weight=0.3, sharpen=1.0, rate=3e-4),
)
VALUES = (
    Candidate("linear", "linear"),
    Candidate("boosting", "boosting"),
    Candidate("forest", "forest"),
    Candidate("network", "network"),
    Candidate("smaller CMD", "network", adapted=True, weight=SMALLER),
)


class Member(NamedTuple):
    """A fitted candidate that takes part in the answer."""

    learner: Learner
    view: View
    weight: float


@dataclass
class Problem:
    """What every candidate is trained on: rows of the source, standardised, and what is known of the target."""

    source: Matrix
    labels: NDArray[Any]
    weights: Floats
    targets: dict[View, Matrix] = field(default_factory=dict)
    """Rows of the target in each view; empty without a target."""
    classes: int = 0
    """0 for regression."""
    seed: int = 0
    folds: list[Rows] = field(default_factory=list)
    """Rows of the source that are held out together."""
    cancelled: bool = False
    """Whether nobody waits for what is not trained yet."""

    def fit(self, candidate: Candidate, without: Rows | None = None) -> Learner:
        """Train a candidate on the source rows but those held out."""
        rows = np.arange(len(self.labels)) if without is None else np.setdiff1d(np.arange(len(self.labels)), without)
        if candidate.kind == "network":
            return self._fit_network(candidate, rows)
        source, labels, weights = self.source[rows], self.labels[rows], self.weights[rows]
        if candidate.kind == "linear":
            return linear(source, labels, weights, classes=self.classes)
        if candidate.kind == "boosting":
            return boosting(source, labels, weights, classes=self.classes, seed=self.seed)
        return forest(source, labels, weights, classes=self.classes, seed=self.seed)

    def compile(self, candidates: Sequence[Candidate]) -> None:
        """Compile on this thread what networks are about to run on others: only the main thread hears a ^C."""
        rows = np.arange(len(self.labels))
        for candidate in candidates:
            if candidate.kind == "network":
                task, config, spec, _ = self._network(candidate, rows)
                compile_ahead(task, config, [spec])

    def _fit_network(self, candidate: Candidate, rows: Rows) -> Network:
        task, config, spec, scale = self._network(candidate, rows)
        # Scores on held-out rows need no average.
        count = SEEDS if len(rows) == len(self.labels) <= FEW_ROWS else 1
        networks = train_stack(task, config, [replace(spec, seed=spec.seed + more) for more in range(count)])
        layers = zip(*(network.layers for network in networks), strict=True)
        together = [Layer(*(np.stack(part) for part in zip(*layer, strict=True))) for layer in layers]
        return Network(together, *scale)

    def _network(
        self, candidate: Candidate, rows: Rows
    ) -> tuple[Task, TrainingConfig, NetworkSpec, tuple[float, float]]:
        """What a network is trained on and how, and mean and standard deviation of continuous targets."""
        source, labels, weights = self.source[rows], self.labels[rows], self.weights[rows]
        order = _drawn(weights, np.random.default_rng([self.seed, 0]))
        target = self.targets[candidate.view] if candidate.sees_target else None
        if target is not None:
            target = target[np.random.default_rng([self.seed, 1]).permutation(target.shape[0])[:MOST_TRAINED]]
        mean, std = 0.0, 1.0
        codes, outputs = labels[order], self.classes
        if not self.classes:
            mean, std = float(codes.mean()), float(codes.std()) or 1.0
            codes, outputs = ((codes - mean) / std).astype(np.float32)[:, None], 1
        task = Task(source[order], codes, target, outputs)
        config = TrainingConfig(
            hidden=(UNITS,),
            optimizer=Optimizer(candidate.optimizer, candidate.rate),
            batch_size=BATCH,
            patience=None,
            keep="last",
            loss="cross_entropy" if self.classes else "squared",
        )
        config = replace(config, max_epochs=max(1, round(UPDATES / len(config.epoch(task)))), compiled=True)
        distance = CMDLoss(5) if candidate.weight else None
        spec = NetworkSpec(self.seed, candidate.weight, distance, sharpen=candidate.sharpen)
        return task, config, spec, (mean, std)


def _drawn(weights: Floats, random: np.random.Generator) -> Rows:
    """Return rows in random order, each as often as its weight says: all once where the weights are equal."""
    rows = len(weights)
    count = int(np.clip(round(weights.sum()), rows, 10 * rows))
    ends = np.cumsum(weights) / weights.sum()
    drawn = np.searchsorted(ends, (np.arange(count) + 0.5) / count).clip(max=rows - 1)
    return np.asarray(random.permutation(drawn)[:MOST_TRAINED])


# How many candidates train in this process right now; the interpreter must not end under them.
_BUSY = [0]
_CHANGED = Condition()


def _fit(problem: Problem, candidate: Candidate, without: Rows | None) -> Learner:
    """Train a candidate, unless nobody waits for it any more."""
    with _CHANGED:
        _BUSY[0] += 1
    try:
        if problem.cancelled:
            raise KeyboardInterrupt
        return problem.fit(candidate, without)
    finally:
        with _CHANGED:
            _BUSY[0] -= 1
            _CHANGED.notify_all()


def _wait_for_threads() -> None:
    """Wait until no candidate trains in this process."""
    with _CHANGED:
        _CHANGED.wait_for(lambda: _BUSY[0] == 0, timeout=60.0)


class _Answer(NamedTuple):
    """The weighted answer for held-out source rows, by what never saw them, and for rows of the target.

    It looks like a fitted model to :func:`~momentalign.evaluation.target_accuracy.estimate_accuracy`.
    """

    source: Matrix
    of_source: Floats
    of_target: Floats
    classes_: NDArray[np.intp]

    def predict_proba(self, X: Matrix) -> Floats:
        return self.of_source if X is self.source else self.of_target

    def predict(self, X: Matrix) -> Floats:
        return self.predict_proba(X)[:, 0]


class Portfolio(NamedTuple):
    """All trained candidates."""

    problem: Problem
    candidates: Sequence[Candidate]
    learners: dict[tuple[Any, ...], Learner]

    def learner(self, candidate: Candidate, fold: int = -1) -> Learner:
        """Return what was learned from all rows, or without a fold of them."""
        return self.learners[*_learns_like(candidate), fold]

    def on_target(self, candidate: Candidate, rows: Rows) -> Floats:
        """Return predictions for rows of the target."""
        target = self.problem.targets[candidate.view][rows]
        return self.learner(candidate).predict(target, classes=self.problem.classes)

    def held_out(self, candidate: Candidate) -> tuple[Rows, Floats]:
        """Return held-out source rows and the predictions for them of what was trained without them."""
        folds = [fold for fold in range(len(self.problem.folds)) if (*_learns_like(candidate), fold) in self.learners]
        rows = [self.problem.folds[fold] for fold in folds]
        predicted = [
            self.learner(candidate, fold).predict(self.problem.source[own], classes=self.problem.classes)
            for fold, own in zip(folds, rows, strict=True)
        ]
        if not rows:  # Too few rows to hold any out: those it was trained on have to do.
            every = np.arange(len(self.problem.labels))
            return every, self.learner(candidate).predict(self.problem.source, classes=self.problem.classes)
        return np.concatenate(rows), np.concatenate(predicted)


def _estimate(portfolio: Portfolio, weights: Floats, bounds: tuple[float, float]) -> TargetEstimate:
    """Return what accuracy, or R2, the weighted answer is expected to have on the target."""
    problem, metric = portfolio.problem, "accuracy" if portfolio.problem.classes else "r2"
    members = [(candidate, weight) for candidate, weight in zip(portfolio.candidates, weights, strict=True) if weight]
    held_out = [portfolio.held_out(candidate) for candidate, _ in members]
    # Some were trained without the first part of the rows only.
    rows = min((found for found, _ in held_out), key=len)[:MOST_ROWS]

    def answer(parts: list[Floats]) -> Floats:
        return np.asarray(sum(weight * part.clip(*bounds) for part, (_, weight) in zip(parts, members, strict=True)))

    source = problem.source[rows]
    of_source = answer([found[: len(rows)] for _, found in held_out])
    if not problem.targets:
        return _on_source(of_source, problem.labels[rows], problem.weights[rows], metric)
    shown = _some_rows(problem.targets["source"].shape[0], problem.seed)
    of_target = answer([portfolio.on_target(one, shown) for one, _ in members])
    model = _Answer(source, of_source, of_target, np.arange(problem.classes))
    target = problem.targets["source"][shown]
    return estimate_accuracy(model, source, problem.labels[rows], target, metric=metric)


def _on_source(found: Floats, labels: NDArray[Any], weights: Floats, metric: str) -> TargetEstimate:
    """The score on held-out source rows: without a target the rows to come are taken to be like them."""
    if metric == "accuracy":
        value = float(np.average(found.argmax(axis=1) == labels, weights=weights))
        spread = Z90 * np.sqrt(max(value * (1.0 - value), 0.01) / len(labels))
        return TargetEstimate(value, max(0.0, value - spread), min(1.0, value + spread))
    value = _r2(labels, found[:, 0], weights)
    spread = Z90 * 2.0 * np.sqrt(max(1.0 - value, 0.01) / len(labels))
    return TargetEstimate(value, value - spread, min(1.0, value + spread), metric)


def _learns_like(candidate: Candidate) -> tuple[Any, ...]:
    """What a candidate learns depends on; plain learners see nothing of the target, whatever they predict for."""
    if not candidate.sees_target:
        return (candidate.kind, candidate.optimizer, candidate.rate)
    return (candidate.view, candidate.weight, candidate.sharpen, candidate.optimizer, candidate.rate)


class _Auto(BaseEstimator, ABC):  # type: ignore[misc]
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
        source, codes, weights = _merged(domains.source, codes, weights)
        if not len(codes):
            raise InvalidInputError("Sample weights must contain at least one non-zero number: all weights are zero.")
        self.sparse_ = bool(sparse.issparse(source))
        self.source_scale_, self.target_scale_ = _scales(source, weights, domains.target)
        classes = labels.n_outputs if isinstance(labels, ClassLabels) else 0
        problem = Problem(as_float32(self.source_scale_.apply(source), "X"), codes, weights, classes=classes, seed=seed)
        problem.folds = _folds(codes if classes else np.zeros(len(codes), np.intp), seed)
        if domains.target is not None:
            for view in ("source", "target"):
                problem.targets[view] = as_float32(self._scale(view).apply(domains.target), "X_target")
        return problem

    def _scale(self, view: View) -> Scale:
        return self.source_scale_ if view == "source" else self.target_scale_

    def _train(self, problem: Problem, candidates: Sequence[Candidate]) -> Portfolio:
        """Train every candidate on all rows, and again without held-out rows."""
        jobs: dict[tuple[Any, ...], tuple[Candidate, Rows | None]] = {}
        for candidate in candidates:
            key = _learns_like(candidate)
            jobs[*key, -1] = (candidate, None)
            # The agreement of plain models is taken from all held-out rows, the score of the others from the first.
            # Regression networks are not compiled, so the first has to do for them too.
            once = candidate.sees_target or (candidate.kind == "network" and not problem.classes)
            for number, rows in enumerate(problem.folds[:1] if once else problem.folds):
                jobs[*key, number] = (candidate, rows)
        problem.compile(candidates)
        learners: dict[tuple[Any, ...], Learner] = {}
        with progress_bar(type(self).__name__, verbose=self.verbose) as show:
            running = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")
            fitted = running(delayed(_fit)(problem, candidate, rows) for candidate, rows in jobs.values())
            try:
                for key, learner in zip(jobs, fitted, strict=True):
                    learners[key] = learner
                    if show is not None:
                        show(len(learners), len(jobs))
            except BaseException:
                problem.cancelled = True
                _wait_for_threads()
                raise
        return Portfolio(problem, candidates, learners)

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
        """The average of the members' predictions, in chunks of rows."""
        check_is_fitted(self, "members_")
        with naming("X"):
            rows = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        if sparse.issparse(rows) != self.sparse_:
            rows = sparse.csr_matrix(rows) if self.sparse_ else rows.toarray()
        parts = []
        for start in range(0, rows.shape[0], CHUNK):
            chunk = rows[start : start + CHUNK]
            views = {one.view: as_float32(self._scale(one.view).apply(chunk), "X") for one in self.members_}
            parts.append(sum(one.weight * self._of(one.learner, views[one.view]) for one in self.members_))
        return np.concatenate(parts)

    @abstractmethod
    def _of(self, learner: Learner, rows: Matrix) -> Floats:
        """Return the predictions of one learner."""

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a folder: safetensors and a JSON manifest; read it back with ``ma.load(path)``."""
        from momentalign.estimators.persistence import save

        save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class AutoClassifier(ClassifierMixin, _Auto):  # type: ignore[misc]
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
    agreement_ : tuple of float
        The agreement of plain models on the target and on held-out source rows.

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
        every = SPARSE if self.sparse_ else DENSE
        candidates = [one for one in every if problem.targets or not one.adapted]
        portfolio = self._train(problem, candidates)
        weights, scores = self._weigh(portfolio)
        weights = self._keep(portfolio, weights)
        self.portfolio_ = self._table(portfolio, scores, weights)
        self.estimate_ = _estimate(portfolio, weights, BOUNDS)
        self.decision_ += f" Expected accuracy on the target: {self.estimate_!r}." if problem.targets else ""
        if self.decision_.startswith("Not adapted") and self.estimate_.value < max(scores) - FAR_BELOW:
            self.decision_ += " That is far below held-out source rows: label some target rows before you rely on it."
        return self

    def _weigh(self, portfolio: Portfolio) -> tuple[Floats, list[float]]:
        """Return the weight of every candidate and its accuracy on held-out source rows; say what was decided."""
        problem, candidates = portfolio.problem, portfolio.candidates
        plain = [index for index, one in enumerate(candidates) if not one.adapted]
        scores, guesses = [], []
        for candidate in candidates:
            rows, probabilities = portfolio.held_out(candidate)
            guesses.append(probabilities.argmax(axis=1))
            scores.append(float(np.average(guesses[-1] == problem.labels[rows], weights=problem.weights[rows])))
        of_plain = np.zeros(len(candidates))
        of_plain[plain] = source_weights([scores[index] for index in plain])
        if not problem.targets:
            self.agreement_ = (np.nan, np.nan)
            self.decision_ = "Not adapted: no target rows were given; the answer is an average of plain models."
            return of_plain, scores
        shown = _some_rows(problem.targets["source"].shape[0], problem.seed)
        labels = [portfolio.on_target(candidate, shown).argmax(axis=1) for candidate in candidates]
        on_target = float(agreement([labels[index] for index in plain]).mean())
        on_source = float(agreement([guesses[index] for index in plain]).mean())
        self.agreement_ = (on_target, on_source)
        # Text and the like: alignment helped on every pair of reviews, also where plain models agree.
        outside = 0.0 if self.sparse_ else share_outside(problem.source, problem.targets["source"][shown])
        share = 1.0 if self.sparse_ else max(outside, share_adapted(on_target, on_source))
        averaged = [index for index, one in enumerate(candidates) if one.averaged]
        of_adapted = np.zeros(len(candidates))
        of_adapted[averaged] = agreement_weights([labels[index] for index in averaged])
        own = np.array([self.sparse_ or one.view == "target" for one in candidates])
        of_adapted = np.where(own, of_adapted, (1.0 - outside) * of_adapted)
        self.decision_ = SPARSE_DECISION if self.sparse_ else _decision(share, on_target, on_source, outside)
        return share * of_adapted / of_adapted.sum() + (1.0 - share) * of_plain, scores

    def _table(self, portfolio: Portfolio, scores: list[float], weights: Floats) -> pd.DataFrame:
        import pandas as pd

        expected = [np.nan] * len(scores)
        if portfolio.problem.targets:
            shown = _some_rows(portfolio.problem.targets["source"].shape[0], portfolio.problem.seed)
            each = [portfolio.on_target(candidate, shown) for candidate in portfolio.candidates]
            answer = sum(weight * one for weight, one in zip(weights, each, strict=True))
            expected = [float(np.take_along_axis(answer, one.argmax(1)[:, None], 1).mean()) for one in each]
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


class _Values(ContinuousLabels):
    """Continuous targets as they are: what standardises them knows the weights of rows."""

    def learn(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Check the values and return them."""
        super().learn(labels)
        return labels


class AutoRegressor(RegressorMixin, _Auto):  # type: ignore[misc]
    """The robust default for continuous targets: plain regressors averaged, with an aligned network where it is safe.

    Of shifted features a regression learns little that can be trusted, so adapting bears the burden of proof: an
    aligned network joins the average only where it costs nothing on held-out source rows and agrees with the plain
    models on the target. Predictions stay near the range of the source's values.

    Parameters
    ----------
    random_state, n_jobs, verbose
        As in :class:`AutoClassifier`.

    Attributes
    ----------
    portfolio_ : DataFrame
        One row a candidate: ``name``, ``source_score`` (R2 on held-out source rows), ``estimated_target_score`` (R2
        with the answer as the truth, NaN without a target) and ``weight`` in the answer.
    decision_ : str
        What was done and why, in one sentence.
    estimate_ : TargetEstimate
        Expected R2 on the target with a rough 90 % interval; without a target, that on held-out source rows.

    Examples
    --------
    >>> import numpy as np, momentalign as ma
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(200, 3))
    >>> y = X.sum(axis=1)
    >>> model = ma.AutoRegressor(random_state=0).fit(X, y, X_target=X + 0.1)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self, *, random_state: int | np.random.RandomState | None = None, n_jobs: int | None = None, verbose: int = 0
    ) -> None:
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @all_or_nothing
    def fit(
        self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on labelled source rows and, where given, unlabelled target rows; arguments as in `AutoClassifier`."""
        if len(getattr(y, "shape", ())) > 1:
            with naming("y"):
                y = column_or_1d(y, warn=True)
        problem = self._problem(X, y, X_target, _Values(), sample_domain, sample_weight)
        span = float(np.ptp(problem.labels))
        self.bounds_ = (float(problem.labels.min()) - BEYOND * span, float(problem.labels.max()) + BEYOND * span)
        every = [one for one in VALUES if not (self.sparse_ and one.kind == "boosting")]
        portfolio = self._train(problem, [one for one in every if problem.targets or not one.adapted])
        weights, scores = self._weigh(portfolio)
        weights = self._keep(portfolio, weights)
        self.portfolio_ = self._table(portfolio, scores, weights)
        self.estimate_ = _estimate(portfolio, weights, self.bounds_)
        return self

    def _weigh(self, portfolio: Portfolio) -> tuple[Floats, list[float]]:
        problem, candidates = portfolio.problem, portfolio.candidates
        scores = []
        for candidate in candidates:
            rows, values = portfolio.held_out(candidate)
            scores.append(_r2(problem.labels[rows], np.clip(values[:, 0], *self.bounds_), problem.weights[rows]))
        plain = [index for index, one in enumerate(candidates) if not one.adapted]
        weights = np.zeros(len(candidates))
        weights[plain] = source_weights([R2_SCALE * float(np.clip(scores[index], 0.0, 1.0)) for index in plain])
        if not problem.targets:
            self.decision_ = "Not adapted: no target rows were given; the answer is an average of plain models."
            return weights, scores
        (adapted,) = [index for index, one in enumerate(candidates) if one.adapted]
        network = next(index for index in plain if candidates[index].kind == "network")
        shown = _some_rows(problem.targets["source"].shape[0], problem.seed)
        found = [np.clip(portfolio.on_target(one, shown)[:, 0], *self.bounds_) for one in candidates]
        answer = sum(weight * one for weight, one in zip(weights, found, strict=True))
        cost, agreeing = scores[network] - scores[adapted], _r2(np.asarray(answer), found[adapted])
        if cost <= COST_IN_R2 and agreeing >= AGREEMENT_IN_R2:
            weights = weights * len(plain) / (len(plain) + 1)
            weights[adapted] = 1.0 / (len(plain) + 1)
            self.decision_ = (
                "Adapted in part: an aligned network costs nothing on held-out source rows, agrees with the plain "
                f"models on the target (R2 {agreeing:.2f}), and has a weight of {weights[adapted]:.2f} beside them."
            )
        else:
            reason = (
                f"an aligned network loses {cost:.2f} R2 on held-out source rows"
                if cost > COST_IN_R2
                else f"an aligned network does not agree with the plain models on the target (R2 {agreeing:.2f})"
            )
            self.decision_ = f"Not adapted: {reason}; the answer is an average of plain models."
        return weights, scores

    def _table(self, portfolio: Portfolio, scores: list[float], weights: Floats) -> pd.DataFrame:
        import pandas as pd

        expected = [np.nan] * len(scores)
        if portfolio.problem.targets:
            shown = _some_rows(portfolio.problem.targets["source"].shape[0], portfolio.problem.seed)
            each = [np.clip(portfolio.on_target(one, shown)[:, 0], *self.bounds_) for one in portfolio.candidates]
            answer = np.asarray(sum(weight * one for weight, one in zip(weights, each, strict=True)))
            expected = [_r2(answer, one) for one in each]
        names = [candidate.name for candidate in portfolio.candidates]
        return pd.DataFrame(
            {"name": names, "source_score": scores, "estimated_target_score": expected, "weight": weights}
        )

    def _of(self, learner: Learner, rows: Matrix) -> Floats:
        return np.clip(learner.predict(rows, classes=0), *self.bounds_)

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: bool = True) -> Floats:  # noqa: ARG002
        """Return the value of each row of the target."""
        return np.asarray(self._combined(X)[:, 0])

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sample_domain: Any = None,  # noqa: ARG002
        allow_source: bool = True,  # noqa: ARG002
    ) -> float:
        """Return R2 on rows of the target."""
        return float(super().score(X, y, sample_weight))


def _decision(share: float, on_target: float, on_source: float, outside: float) -> str:
    if outside == 1.0:
        return (
            "Adapted: the target lies outside of what the source covers, where plain models can only guess; the answer "
            "is an average of models that standardise each domain by itself."
        )
    agree = f"plain models agree on {on_target:.0%} of the target rows and on {on_source:.0%} of held-out source rows"
    if share == 0.0:
        return f"Not adapted: {agree}, so nothing speaks for adapting; the answer is an average of plain models."
    if share == 1.0:
        return f"Adapted: {agree}; the answer is an average of adapted and plain models, weighted by their agreement."
    return f"Adapted in part: {agree}; adapted models give {share:.0%} of the answer and plain ones the rest."


def _merged(rows: Any, labels: NDArray[Any], weights: Floats) -> tuple[Matrix, NDArray[Any], Floats]:
    """Return different rows in an order of their own, with the weights of equal ones added up.

    So a row of weight two is the row given twice, and the order of the rows changes nothing.
    """
    counts = weights > 0.0
    rows, labels, weights = rows[counts], labels[counts], weights[counts]
    if hasattr(rows, "indptr"):
        rows.sort_indices()
        labels = np.ascontiguousarray(labels)
        keys = np.empty(rows.shape[0], "u8")
        for index, (start, end) in enumerate(pairwise(rows.indptr)):
            # Not hash(), which another process begins with another seed: the order of rows would not be the same.
            key = b"".join(part.tobytes() for part in (labels[index], rows.indices[start:end], rows.data[start:end]))
            keys[index] = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
    else:
        table = np.ascontiguousarray(np.column_stack([rows, labels.astype(np.float64)]))
        keys = table.view([("", table.dtype)] * table.shape[1]).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], labels[first], np.bincount(inverse.ravel(), weights).astype(np.float64)


def _scales(source: Any, weights: Floats, target: Matrix | None) -> tuple[Scale, Scale]:
    """Return what rows are standardised by: as those of the source, and as those of the target.

    Columns that are constant in the source teach nothing and are multiplied by zero.
    """
    if hasattr(source, "indptr"):
        squares = np.asarray(source.multiply(source).sum(axis=1)).ravel()
        length = np.sqrt(np.average(squares, weights=weights)) or 1.0
        one = Scale(np.zeros(source.shape[1]), np.full(source.shape[1], length / SPARSE_LENGTH))
        return one, one
    wide = source.astype(np.float64)
    mean = np.average(wide, axis=0, weights=weights)
    std = np.sqrt(np.average((wide - mean) ** 2, axis=0, weights=weights))
    constant = std <= ROUNDING * np.abs(mean)
    of_source = Scale(mean, np.where(constant, np.inf, std))
    if target is None:
        return of_source, of_source
    own = column_scale(target)
    return of_source, Scale(own.mean, np.where(constant, np.inf, own.std))


def _folds(codes: NDArray[np.intp], seed: int) -> list[Rows]:
    """Return the rows to hold out together, classes in proportion; none where there are too few rows."""
    fold = np.zeros(len(codes), np.intp)
    random = np.random.default_rng([seed, 2])
    for code in np.unique(codes):
        own = random.permutation(np.flatnonzero(codes == code))
        fold[own] = np.arange(len(own)) % FOLDS
    folds = [np.flatnonzero(fold == number) for number in range(FOLDS)]
    enough = [rows for rows in folds if len(rows) and len(np.unique(np.delete(codes, rows))) == len(np.unique(codes))]
    if len(enough) < FOLDS or len(codes) < FEWEST_ROWS:
        return []
    return folds if len(codes) <= FEW_ROWS else folds[:1]


def _some_rows(count: int, seed: int) -> Rows:
    """Return the rows of the target that the evidence is taken from."""
    if count <= MOST_ROWS:
        return np.arange(count)
    return np.sort(np.random.default_rng([seed, 3]).permutation(count)[:MOST_ROWS])


def _r2(truth: Floats, values: Floats, weights: Floats | None = None) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(truth, values, sample_weight=weights)) if len(truth) > 1 else 0.0

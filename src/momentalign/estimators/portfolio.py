r"""The portfolio of the robust default: its candidates, and how all of them are trained side by side.

Plain learners a user would pick see the source alone. Adapted ones see the target too: through its moments, where each
domain is standardised by itself, or in training, where networks are aligned with small weights and sharpened on their
own predictions. The means of the source's classes are a candidate too: found again in the target, by the answer of all
others, they follow its own clusters. What the candidates count for is decided in :mod:`momentalign.estimators.auto`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Condition
from typing import Any, Literal, TypeAlias

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import ThreadpoolController

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.estimators.learners import Learner, Network, boosting, boosting_rounds, class_means, forest, linear
from momentalign.estimators.moment_map import Scale, column_scale
from momentalign.estimators.row_weights import draw_by_weight, row_keys
from momentalign.networks.shallow import Layer, Matrix
from momentalign.progress import progress_bar
from momentalign.training.config import NetworkSpec, Optimizer, OptimizerName, Task, TrainingConfig
from momentalign.training.stack import compile_ahead, train_stack

__all__ = [
    "Candidate",
    "Portfolio",
    "Problem",
    "View",
    "candidates_for",
    "folds_of",
    "merged",
    "scales",
    "sparse_if_text",
    "train",
]

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
# Rows of the source from which on some can be held out.
FEWEST_ROWS = 20
# Columns, and the part of them that is not zero at most, where dense rows are trained on as sparse ones: word counts.
MANY_COLUMNS, FEW_VALUES, MOST_DENSE_VALUES = 1_000, 0.1, 50_000_000
# Sparse rows are multiplied by one number, so that their mean square length is that of text as log(1 + counts).
SPARSE_LENGTH = 7.0
ROUNDING = 1e-10


@dataclass(frozen=True)
class Candidate:
    """One model of the portfolio: how it learns, and what it sees of the target."""

    name: str
    kind: Literal["linear", "boosting", "forest", "network", "class means"]
    view: View = "source"
    adapted: bool = False
    """Whether it has anything of the target: its moments, or in training its rows."""
    weight: float = 0.0
    sharpen: float = 0.0
    optimizer: OptimizerName = "adam"
    rate: float = 1e-3
    asked: bool = True
    """Whether its agreement with the others is asked for; if not, it counts only where the evidence calls for it."""

    @property
    def sees_target(self) -> bool:
        """Whether rows of the target take part in its training."""
        return bool(self.weight or self.sharpen)


OWN = ", domains standardised"
# The weight of the CMD is divided by the root of the width: it is a sum over units.
SMALL, SMALLER = 1.0 / np.sqrt(UNITS), 0.4 / np.sqrt(UNITS)
DENSE = (
    Candidate("linear", "linear"),
    Candidate("boosting", "boosting"),
    Candidate("forest", "forest"),
    Candidate("network", "network"),
    Candidate(f"linear{OWN}", "linear", "target", adapted=True),
    # Plain models for a target that is the source, moved; they learn nothing else than those above.
    Candidate(f"boosting{OWN}", "boosting", "target", adapted=True, asked=False),
    Candidate(f"forest{OWN}", "forest", "target", adapted=True, asked=False),
    Candidate(f"network{OWN}", "network", "target", adapted=True, asked=False),
    # A start only, to be found again in the target.
    Candidate("class means of the target", "class means", "target", adapted=True, asked=False),
    Candidate("network, sharpened", "network", adapted=True, sharpen=0.3),
    Candidate("CMD, sharpened", "network", adapted=True, weight=SMALL, sharpen=0.3),
    Candidate("smaller CMD, sharpened", "network", adapted=True, weight=SMALLER, sharpen=0.3),
    Candidate(f"network, sharpened{OWN}", "network", "target", adapted=True, sharpen=0.3),
    Candidate(f"CMD, sharpened{OWN}", "network", "target", adapted=True, weight=SMALL, sharpen=0.3),
    Candidate(f"smaller CMD, sharpened{OWN}", "network", "target", adapted=True, weight=SMALLER, sharpen=0.3),
)
# Text and the like: the paper's optimizer and weight.
SPARSE = (
    Candidate("linear", "linear"),
    Candidate("forest", "forest"),
    Candidate("network", "network", optimizer="adagrad", rate=0.01),
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


def candidates_for(features: int, classes: int, *, is_sparse: bool, has_target: bool) -> list[Candidate]:
    """Return what is worth training on rows of so many features; `classes` is 0 for regression.

    Boosting is left out where it would take longer than all others together.

    Examples
    --------
    >>> [one.name for one in candidates_for(20, 2, is_sparse=False, has_target=False)]
    ['linear', 'boosting', 'forest', 'network']
    """
    every = VALUES if not classes else SPARSE if is_sparse else DENSE
    boosts = not is_sparse and boosting_rounds(features, classes) > 0
    return [one for one in every if (has_target or not one.adapted) and (boosts or one.kind != "boosting")]


@dataclass
class Problem:
    """What every candidate is trained on: rows of the source, standardised, and what is known of the target."""

    source: Matrix
    labels: NDArray[Any]
    counts: Floats
    """How often each row was given: ``sample_weight`` in sum."""
    weights: Floats
    """The same, times the weight of the class."""
    targets: dict[View, Matrix] = field(default_factory=dict)
    """Rows of the target in each view; empty without a target."""
    classes: int = 0
    """0 for regression."""
    seed: int = 0
    folds: list[Rows] = field(default_factory=list)
    """Rows of the source that are held out together."""
    cancelled: bool = False
    """Whether nobody waits for what is not trained yet."""

    def shown(self, view: View) -> Matrix:
        """Return the rows of the target that the evidence is taken from."""
        target = self.targets[view]
        if target.shape[0] <= MOST_ROWS:
            return target
        return target[np.sort(np.random.default_rng([self.seed, 3]).permutation(target.shape[0])[:MOST_ROWS])]

    def fit(self, candidate: Candidate, without: Rows | None = None) -> Learner:
        """Train a candidate on the source rows but those held out."""
        rows = np.arange(len(self.labels)) if without is None else np.setdiff1d(np.arange(len(self.labels)), without)
        if candidate.kind == "network":
            return self._fit_network(candidate, rows)
        source, labels, weights = self.source[rows], self.labels[rows], self.weights[rows]
        if candidate.kind == "class means":
            return class_means(source, labels, weights, classes=self.classes)
        if candidate.kind == "linear":
            return linear(source, labels, weights, classes=self.classes)
        if candidate.kind == "boosting":
            return boosting(source, labels, weights, classes=self.classes, seed=self.seed)
        return forest(source, labels, weights, classes=self.classes, seed=self.seed)

    def compile(self, candidates: Sequence[Candidate]) -> None:
        """Compile on this thread what networks are about to run on others: only the main thread hears a ^C."""
        rows, networks = np.arange(len(self.labels)), [one for one in candidates if one.kind == "network"]
        # Networks that differ in numbers alone run the same loops.
        for candidate in {(one.optimizer, one.weight > 0.0, one.sharpen > 0.0): one for one in networks}.values():
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
    drawn = draw_by_weight(weights, int(np.clip(round(weights.sum()), rows, 10 * rows)))
    return np.asarray(random.permutation(drawn)[:MOST_TRAINED])


def _learns_like(candidate: Candidate) -> tuple[Any, ...]:
    """What a candidate learns depends on; plain learners see nothing of the target, whatever they predict for."""
    if not candidate.sees_target:
        return (candidate.kind, candidate.optimizer, candidate.rate)
    return (candidate.view, candidate.weight, candidate.sharpen, candidate.optimizer, candidate.rate)


# How many candidates train in this process right now; the interpreter must not end under them.
_BUSY = [0]
_CHANGED = Condition()


@functools.cache
def _threads() -> ThreadpoolController:
    """What sets the threads of the libraries in this process."""
    import sklearn.ensemble  # noqa: F401  (libraries that are not loaded yet would not be found)

    return ThreadpoolController()


def _fit(problem: Problem, candidate: Candidate, without: Rows | None) -> Learner:
    """Train a candidate, unless nobody waits for it any more."""
    with _CHANGED:
        _BUSY[0] += 1
    try:
        if problem.cancelled:
            raise KeyboardInterrupt
        # Candidates are what runs in parallel. Threads of OpenMP are counted for each thread of the interpreter.
        with _threads().limit(limits=1, user_api="openmp"):
            return problem.fit(candidate, without)
    finally:
        with _CHANGED:
            _BUSY[0] -= 1
            _CHANGED.notify_all()


def _wait_for_threads() -> None:
    """Wait until no candidate trains in this process."""
    with _CHANGED:
        _CHANGED.wait_for(lambda: _BUSY[0] == 0, timeout=60.0)


@dataclass
class Portfolio:
    """All trained candidates, and what they predict."""

    problem: Problem
    candidates: Sequence[Candidate]
    learners: dict[tuple[Any, ...], Learner]
    predicted: dict[str, Floats] = field(default_factory=dict)
    """Predictions for rows of the target, by name of the candidate,"""
    kept_out: dict[tuple[Any, ...], tuple[Rows, Floats]] = field(default_factory=dict)
    """and for held-out rows of the source, which do not depend on the view."""

    def learner(self, candidate: Candidate, fold: int = -1) -> Learner:
        """Return what was learned from all rows, or without a fold of them."""
        return self.learners[*_learns_like(candidate), fold]

    def replace(self, candidate: Candidate, learner: Learner) -> None:
        """Put another learner in the place of what was learned from all rows."""
        self.learners[*_learns_like(candidate), -1] = learner
        self.predicted.pop(candidate.name, None)
        self.kept_out.pop(_learns_like(candidate), None)

    def on_target(self, candidate: Candidate) -> Floats:
        """Return predictions for the rows of the target that the evidence is taken from."""
        if candidate.name not in self.predicted:
            target = self.problem.shown(candidate.view)
            self.predicted[candidate.name] = self.learner(candidate).predict(target, classes=self.problem.classes)
        return self.predicted[candidate.name]

    def held_out(self, candidate: Candidate) -> tuple[Rows, Floats]:
        """Return held-out source rows and the predictions for them of what was trained without them."""
        key = _learns_like(candidate)
        if key not in self.kept_out:
            self.kept_out[key] = self._predict_held_out(candidate)
        return self.kept_out[key]

    def _predict_held_out(self, candidate: Candidate) -> tuple[Rows, Floats]:
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

    def answer_on_target(self, weights: Floats, bounds: tuple[float, float] = (0.0, 1.0)) -> Floats:
        """Return the weighted average of all candidates for rows of the target, each within the bounds."""
        return _average([self.on_target(one) for one in self.candidates], weights, bounds)

    def answer_held_out(self, weights: Floats, bounds: tuple[float, float] = (0.0, 1.0)) -> tuple[Rows, Floats]:
        """Return held-out source rows and the weighted average for them of what was trained without them."""
        found = [self.held_out(candidate) for candidate in self.candidates]
        # Some were trained without the first part of the rows only.
        rows = min((rows for (rows, _), weight in zip(found, weights, strict=True) if weight), key=len)
        return rows, _average([predicted[: len(rows)] for _, predicted in found], weights, bounds)


def _average(parts: list[Floats], weights: Floats, bounds: tuple[float, float]) -> Floats:
    return np.asarray(sum(weight * part.clip(*bounds) for weight, part in zip(weights, parts, strict=True) if weight))


def train(problem: Problem, candidates: Sequence[Candidate], *, n_jobs: int | None, verbose: int) -> Portfolio:
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
    with progress_bar("portfolio", verbose=verbose) as show, _threads().limit(limits=1, user_api="blas"):
        running = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
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


def sparse_if_text(source: Any, rows: int) -> Matrix:
    """Return word counts and the like, wide rows of zeros mostly, as sparse rows; all others as dense ones.

    Columns of categories are often sparse too, but no text. They stay sparse only where all `rows` of both domains
    would take too much memory.
    """
    columns = source.shape[1]
    if hasattr(source, "indptr"):
        is_text = columns >= MANY_COLUMNS or rows * columns > MOST_DENSE_VALUES
        return source if is_text else source.toarray()
    if columns < MANY_COLUMNS or np.count_nonzero(source) > FEW_VALUES * source.size:
        return source
    return sparse.csr_matrix(source)


def merged(rows: Any, labels: NDArray[Any], weights: Floats) -> tuple[Matrix, NDArray[Any], Floats]:
    """Return different rows in an order of their own, with the weights of equal ones added up.

    So a row of weight two is the row given twice, and the order of the rows changes nothing.
    """
    counts = weights > 0.0
    rows, labels, weights = rows[counts], labels[counts], weights[counts]
    _, first, inverse = np.unique(row_keys(rows, labels), return_index=True, return_inverse=True)
    return rows[first], labels[first], np.bincount(inverse.ravel(), weights).astype(np.float64)


def scales(source: Any, weights: Floats, target: Matrix | None) -> tuple[Scale, Scale]:
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


def folds_of(codes: NDArray[np.intp], seed: int) -> list[Rows]:
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

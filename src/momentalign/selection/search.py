"""The searches over parameters that read no target label: by reverse validation, and by scores of the networks.

Both train the whole grid as stacks, keep scores in a journal where they are asked to, and fit the best model to all
data. Reverse validation is that of Zhong et al. (2010) and Ganin et al. (2016), see
:mod:`momentalign.selection.reverse`; the other rules are :mod:`momentalign.selection.rules`, their combination
:mod:`momentalign.estimators.combination`.
"""

from __future__ import annotations

import hashlib
import numbers
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Self, TypeAlias, get_args

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import TransformerTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from momentalign.errors import InvalidInputError
from momentalign.estimators.classifier import ClassLabels, MANNClassifier
from momentalign.estimators.combination import Members, combine, train_again
from momentalign.estimators.domains import DomainEstimator, all_or_nothing, joined_task, read_domains
from momentalign.journal import Journal, cell_key
from momentalign.networks.shallow import Matrix
from momentalign.progress import progress_bar
from momentalign.selection.grid import Point, read_points, results_table, stacks
from momentalign.selection.reverse import reverse_scores, split_labelled
from momentalign.selection.rules import Rule, balanced_weight, network_score
from momentalign.training.config import Task, TrainedNetwork
from momentalign.training.stack import train_stack
from momentalign.validation import check_choice, check_number, check_seed

__all__ = ["LabelFreeSearch", "ReverseValidationSearch", "StackedSearch"]

Networks: TypeAlias = Mapping[int, TrainedNetwork]


def _ends_with_a_model(search: StackedSearch) -> bool:
    if not search._fits_a_model():
        raise AttributeError(
            f"this {type(search).__name__} has refit=False: it chooses parameters and fits no model; set refit=True."
        )
    return True


class StackedSearch(MetaEstimatorMixin, ClassifierMixin, DomainEstimator, ABC):  # type: ignore[misc]
    """A search over the parameters of a :class:`MANNClassifier` that reads no target label; see its subclasses."""

    estimator: MANNClassifier
    param_grid: Any
    share: float
    refit: bool
    n_jobs: int
    random_state: int | np.random.RandomState | None
    resume: str | os.PathLike[str] | None
    verbose: int

    @all_or_nothing
    def fit(self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None) -> Self:
        """Score every point of the grid on labelled source rows and unlabelled target rows, and choose the best.

        Parameters
        ----------
        X, y
            Source rows (array, DataFrame or CSR matrix) and their labels; with `sample_domain` the rows of all domains.
        X_target
            Target rows, with the same columns.
        sample_domain
            One id per row of `X`: positive for sources, negative for targets, whose entries in `y` are not looked at.
            Networks compare several of either as the `between` and `domain_weights` of their models say; scores look at
            all sources as one and all targets as one.
        """
        seed = check_seed(self.random_state)
        check_number(self.share, "share", above=0.0, below=1.0, example=0.8)
        points = read_points(self.estimator, self.param_grid, seed=seed)
        self._refuse_bad_parameters(points)
        task = self._read_task(X, y, X_target, sample_domain)
        scores = self._all_scores(points, task, seed)
        self.cv_results_ = results_table([point.parameters for point in points], scores)
        self.best_index_ = int(np.argmax(scores))
        self.best_score_ = float(scores[self.best_index_])
        self.best_params_ = dict(points[self.best_index_].parameters)
        if self._fits_a_model():
            self.best_estimator_ = points[self.best_index_].model
            self._fit_best(X, y, X_target, sample_domain)
        return self

    def _read_task(self, X: Any, y: Any, X_target: Any, sample_domain: Any) -> Task:
        labels = ClassLabels()
        domains = read_domains(self, X, y, X_target, labels=labels, sample_domain=sample_domain)
        self.classes_ = labels.classes
        if domains.target is None:
            raise InvalidInputError(
                f"{type(self).__name__} has no target rows, there is no domain to choose for; give X_target, or "
                "negative ids in sample_domain."
            )
        return domains.task()

    def _all_scores(self, points: Sequence[Point], task: Task, seed: int) -> list[float]:
        """Score the points that no journal holds yet, and write each down when it is finished."""
        # A point without a name is refused before a journal is begun.
        keys = {} if self.resume is None else {point.index: cell_key(point.cell()) for point in points}
        journal = self._open_journal(task, seed)
        done = {} if journal is None else journal.done()
        scores = {index: float(done[key]["score"]) for index, key in keys.items() if key in done}
        with progress_bar(type(self).__name__, verbose=self.verbose) as show:

            def report() -> None:
                if show is not None:
                    show(len(scores), len(points), f"best score {max(scores.values()):.4f}" if scores else "")

            report()
            left = [point for point in points if point.index not in scores]
            with closing(self._scores(left, task, seed)) as arrivals:
                for point, score in arrivals:
                    scores[point.index] = score
                    if journal is not None:
                        journal.append(point.cell(), {"score": score})
                    report()
        return [scores[point.index] for point in points]

    def _open_journal(self, task: Task, seed: int) -> Journal | None:
        if self.resume is None:
            return None
        if not isinstance(self.random_state, numbers.Integral):
            raise InvalidInputError(
                f"resume needs the same splits in every run, but random_state is {self.random_state!r}; give a whole "
                "number, such as random_state=0."
            )
        identity = {"search": type(self).__name__, **self._identity(), "seed": seed, "data": _digest(task)}
        return Journal(self.resume, identity)

    def _identity(self) -> dict[str, Any]:
        """What scores depend on beside the points, the data and the seed."""
        return {"share": float(self.share)}

    def _refuse_bad_parameters(self, points: Sequence[Point]) -> None:
        """Raise before anything is trained; a subclass says for what."""

    @abstractmethod
    def _scores(self, points: Sequence[Point], task: Task, seed: int) -> Generator[tuple[Point, float], None, None]:
        """Train the points and yield each with its score as soon as it is known; higher is better."""

    def _fits_a_model(self) -> bool:
        return self.refit

    def _fit_best(self, X: Any, y: Any, X_target: Any, sample_domain: Any) -> None:
        """Give the best model its weights."""
        self.best_estimator_.fit(X, y, X_target, sample_domain=sample_domain)

    @available_if(_ends_with_a_model)  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row, in order."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_ends_with_a_model)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the probability of each class, (rows, classes), in the order of ``classes_``."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(_ends_with_a_model)  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> Any:
        """Return the hidden activations of the best model, (rows, width), values in [0, 1]."""
        check_is_fitted(self)
        return self.best_estimator_.transform(X)

    @available_if(_ends_with_a_model)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None) -> Any:
        """Fit, and return the hidden activations of the rows of `X`."""
        return self.fit(X, y, X_target, sample_domain=sample_domain).transform(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags() if self._fits_a_model() else None
        return tags


class ReverseValidationSearch(StackedSearch):
    r"""Choose parameters of a :class:`MANNClassifier` by reverse validation.

    Both domains are split here, never by their caller. For every point of the grid a forward network learns from a part
    of the source and a part of the target, labels that part of the target, and a reverse network, started from its
    weights, learns from these labels; its accuracy on held-out source labels is the score. Labels of the target are
    never looked at.

    Parameters
    ----------
    estimator
        The model whose parameters are chosen. Held-out rows stop its networks early, whatever its
        ``validation_fraction``.
    param_grid
        As for ``GridSearchCV``: names of parameters with lists of values, or a list of such dictionaries. Points
        with the same hidden layers, optimizer, learning rate, batch size, epochs and patience train as one stack.
    share
        Part of each domain to train on.
    refit
        Fit the best model to all data.
    n_jobs
        Cores that networks are spread over; -1 takes all. It changes no number.
    random_state
        Seed of the splits, and of the initial weights where the estimator has none.
    resume
        A file that keeps the score of each finished point, so that a stopped search goes on where it stopped. Needs
        a whole number as `random_state`; a file of another data set or split is refused.
    verbose
        1 shows a progress bar.

    Attributes
    ----------
    cv_results_ : dict
        Per point: ``params``, ``param_<name>``, ``mean_test_score`` (the reverse accuracy) and ``rank_test_score``.
    best_index_, best_score_, best_params_
        The point with the best score, of equals the first.
    best_estimator_ : MANNClassifier
        With these parameters, fitted to all data.
    classes_ : ndarray
        The class labels.

    Examples
    --------
    >>> import numpy as np
    >>> from momentalign.estimators.classifier import MANNClassifier
    >>> random = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> X = random.normal(size=(200, 2)) + 3.0 * y[:, None]
    >>> model = MANNClassifier(hidden=(5,), learning_rate=0.1, max_epochs=50)
    >>> search = ReverseValidationSearch(model, {"weight": [0.0, 1.0]}, random_state=0)
    >>> search = search.fit(X, y, X_target=X + [1.0, 0.0])
    >>> [round(float(score), 2) for score in search.cv_results_["mean_test_score"]]
    [0.93, 0.97]
    >>> bool(search.score(X + [1.0, 0.0], y) > 0.9)
    True
    """

    def __init__(
        self,
        estimator: MANNClassifier,
        param_grid: Any,
        *,
        share: float = 0.8,
        refit: bool = True,
        n_jobs: int = 1,
        random_state: int | np.random.RandomState | None = None,
        resume: str | os.PathLike[str] | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.share = share
        self.refit = refit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.resume = resume
        self.verbose = verbose

    def _scores(self, points: Sequence[Point], task: Task, seed: int) -> Generator[tuple[Point, float], None, None]:
        for stack in stacks(points, task):
            found = reverse_scores(
                task,
                stack[0].config,
                [point.spec for point in stack],
                seed=seed,
                share=self.share,
                device=stack[0].device,
                n_jobs=self.n_jobs,
            )
            yield from zip(stack, found, strict=True)


class LabelFreeSearch(StackedSearch):
    r"""Choose parameters of a :class:`MANNClassifier`, or combine its networks, by a score that needs no target label.

    Every point of the grid trains one network on a part of the source and the whole target. The rest of the source
    stops the networks early and is where the rules that need labels look.

    Parameters
    ----------
    estimator
        The model whose parameters are chosen. Held-out rows stop its networks early, whatever its
        ``validation_fraction``.
    param_grid
        As for ``GridSearchCV``: names of parameters with lists of values, or a list of such dictionaries. Points
        with the same hidden layers, optimizer, learning rate, batch size, epochs and patience train as one stack.
    rule
        ``"importance-weighted"``: minus the cross-entropy on held-out source rows, weighted by the density ratio of the
        domains in the network's hidden activations. ``"deep-embedded"``: the same with a control variate.
        ``"neighbourhood-density"``, ``"nuclear-norm"``, ``"entropy"`` (minus it) and ``"mutual-information"`` of the
        predictions for the target. ``"balancing"``: the balancing principle, for grids of ``weight`` alone; its choice
        has score 1, the others 0. ``"source"``: the accuracy on held-out source rows.
    aggregate
        Predict with the combination of all networks in place of the best one, or with a plain network where that is
        safer, as ``weight="auto"`` does (:mod:`momentalign.estimators.combination`); a plain network is trained too
        where the grid has none.
    share
        Part of the source to train on.
    refit
        Fit the best model to all data; with `aggregate` the networks that are combined.
    n_jobs
        Cores that networks are spread over; -1 takes all. It changes no number.
    random_state
        Seed of the split, and of the initial weights where the estimator has none.
    resume
        A file that keeps the score of each finished point, so that a stopped search goes on where it stopped. Needs
        a whole number as `random_state`; a file of another data set or split is refused. Not with ``"balancing"`` and
        `aggregate`, which need all networks at once.
    verbose
        1 shows a progress bar.

    Attributes
    ----------
    cv_results_ : dict
        Per point: ``params``, ``param_<name>``, ``mean_test_score`` (higher is better) and ``rank_test_score``.
    best_index_, best_score_, best_params_
        The point with the best score, of equals the first.
    best_estimator_ : MANNClassifier
        With these parameters, fitted to all data; with `aggregate` it predicts with the combination.
    networks_, coefficients_ : list of TrainedNetwork, ndarray
        With `aggregate`: the networks that are combined, and their coefficients.
    classes_ : ndarray
        The class labels.

    Examples
    --------
    >>> import numpy as np
    >>> from momentalign.estimators.classifier import MANNClassifier
    >>> random = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> X = random.normal(size=(200, 2)) + 3.0 * y[:, None]
    >>> model = MANNClassifier(hidden=(5,), learning_rate=0.1, max_epochs=50)
    >>> search = LabelFreeSearch(model, {"weight": [0.0, 1.0]}, rule="mutual-information", random_state=0)
    >>> bool(search.fit(X, y, X_target=X + [1.0, 0.0]).score(X + [1.0, 0.0], y) > 0.9)
    True
    """

    def __init__(
        self,
        estimator: MANNClassifier,
        param_grid: Any,
        *,
        rule: Rule = "importance-weighted",
        aggregate: bool = False,
        share: float = 0.8,
        refit: bool = True,
        n_jobs: int = 1,
        random_state: int | np.random.RandomState | None = None,
        resume: str | os.PathLike[str] | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.rule = rule
        self.aggregate = aggregate
        self.share = share
        self.refit = refit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.resume = resume
        self.verbose = verbose

    def _fits_a_model(self) -> bool:
        return self.refit or self.aggregate

    def _fit_best(self, X: Any, y: Any, X_target: Any, sample_domain: Any) -> None:
        if self.aggregate:
            self._predict_by_all()
        else:
            super()._fit_best(X, y, X_target, sample_domain)

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "rule": self.rule}

    def _refuse_bad_parameters(self, points: Sequence[Point]) -> None:
        rule = check_choice(self.rule, "rule", get_args(Rule))
        others = sorted({name for point in points for name in point.parameters} - {"weight"})
        if rule == "balancing" and others:
            raise InvalidInputError(
                f"rule='balancing' compares networks by their weight alone, but param_grid has {', '.join(others)}; "
                "give values of weight only, or another rule."
            )
        if self.resume is not None and (self.aggregate or rule == "balancing"):
            word = "aggregate=True" if self.aggregate else "rule='balancing'"
            raise InvalidInputError(
                f"{word} needs all networks at once, and resume keeps scores only; give resume=None."
            )

    def _scores(self, points: Sequence[Point], task: Task, seed: int) -> Generator[tuple[Point, float], None, None]:
        task = _hold_out(task, self.share, seed)
        networks: dict[int, TrainedNetwork] = {}
        for stack in stacks(points, task):
            specs = [point.spec for point in stack]
            trained = train_stack(task, stack[0].config, specs, device=stack[0].device, n_jobs=self.n_jobs)
            if self.rule == "balancing" or self.aggregate:
                networks.update({point.index: network for point, network in zip(stack, trained, strict=True)})
            if self.rule != "balancing":
                calls = (delayed(network_score)(self.rule, network.layers, task) for network in trained)
                parallel = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")
                with closing(parallel(calls)) as arrivals:
                    yield from zip(stack, arrivals, strict=True)
        if self.rule == "balancing":
            growing = sorted(points, key=lambda point: point.spec.weight)
            chosen = growing[balanced_weight([networks[point.index].layers for point in growing], task)]
            yield from ((point, float(point is chosen)) for point in points)
        if self.aggregate:
            self._combine(points, networks, task)

    def _combine(self, points: Sequence[Point], networks: Networks, task: Task) -> None:
        """Choose how the networks predict together, and train those that do on all rows."""
        specs, trained = [point.spec for point in points], [networks[point.index] for point in points]
        configs, devices = [point.config for point in points], [point.device for point in points]
        if all(spec.weight and spec.distance is not None for spec in specs):
            # What the combination has to be better than.
            plain = replace(specs[0], weight=0.0)
            trained += train_stack(task, configs[0], [plain], device=devices[0], n_jobs=self.n_jobs)
            specs, configs, devices = [*specs, plain], [*configs, configs[0]], [*devices, devices[0]]
        members = combine(specs, [network.layers for network in trained], task)
        if self.refit:
            whole = joined_task(task)
            for index in members.indices:
                member = (configs[index], specs[index], trained[index])
                (trained[index],) = train_again([member], whole, device=devices[index])
        self.networks_ = [trained[index] for index in members.indices]
        self.coefficients_ = members.coefficients

    def _predict_by_all(self) -> None:
        """Make the best model predict with the combination; its activations are those of the largest coefficient."""
        model = self.best_estimator_
        model.classes_, model.n_features_in_ = self.classes_, self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        members = Members(list(range(len(self.networks_))), self.coefficients_)
        model._keep_members(self.networks_, members)


def _hold_out(task: Task, share: float, seed: int) -> Task:
    """Split the source and shuffle the target: batches are cut in order."""
    assert task.target is not None  # noqa: S101  (a search has refused it)
    training, held_out = split_labelled(task.labels, share=share, seed=seed)
    return task.split(training, held_out, np.random.default_rng([seed, 1]).permutation(task.target.shape[0]))


def _digest(task: Task) -> str:
    """Return a digest of all rows and labels, and of the domains where there are several."""
    digest = hashlib.sha256()
    several = [numbers for numbers in (task.source_domains, task.target_domains) if numbers is not None]
    for part in (task.source, task.labels, task.target, *several):
        for array in _arrays(part):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _arrays(part: Matrix) -> Sequence[NDArray[Any]]:
    if isinstance(part, np.ndarray):
        return (part,)
    return (np.array(part.shape), part.indptr.astype(np.int64), part.indices.astype(np.int64), part.data)

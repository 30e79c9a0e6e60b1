"""The searches over parameters that read no target label: by reverse validation, and by scores of the networks.

Reverse validation is that of Zhong et al. (2010) and Ganin et al. (2016), see :mod:`momentalign.selection.reverse`; the
other rules are :mod:`momentalign.selection.rules`, their combination :mod:`momentalign.estimators.combination`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from joblib import Parallel, delayed

from momentalign.errors import InvalidInputError
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.combination import Members, combine, train_again
from momentalign.estimators.domains import joined_task, with_rows_of_every_domain
from momentalign.estimators.several import Running
from momentalign.selection.base import Finished, Sample, StackedSearch
from momentalign.selection.grid import Point, split_labelled, stacks
from momentalign.selection.reverse import reverse_scores
from momentalign.selection.rules import Rule, balanced_weight, network_score
from momentalign.training.config import Task, TrainedNetwork
from momentalign.training.stack import train_stack
from momentalign.validation import check_choice

__all__ = ["LabelFreeSearch", "ReverseValidationSearch"]


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
    [0.9, 0.95]
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

    def _score(self, points: Sequence[Point], sample: Sample, finished: Finished) -> None:
        source, labels, target, n_classes, seed, numbers, others = sample
        task = Task(source, labels, target, n_classes, source_domains=numbers, target_domains=others)
        for stack in stacks(points, task):
            reverse_scores(
                source,
                labels,
                target,
                n_classes,
                stack[0].config,
                [point.spec for point in stack],
                seed=seed,
                share=self.share,
                device=stack[0].device,
                n_jobs=self.n_jobs,
                source_domains=numbers,
                target_domains=others,
                finished=lambda position, score, stack=stack: finished(stack[position], score),  # type: ignore[misc]
            )


Networks = Mapping[int, TrainedNetwork]


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

    def _score(self, points: Sequence[Point], sample: Sample, finished: Finished) -> None:
        task = _hold_out(sample, self.share)
        networks: dict[int, TrainedNetwork] = {}
        for stack in stacks(points, task):
            specs = [point.spec for point in stack]
            trained = train_stack(task, stack[0].config, specs, device=stack[0].device, n_jobs=self.n_jobs)
            if self.rule != "balancing":
                self._judge(stack, trained, task, finished)
            if self.rule == "balancing" or self.aggregate:
                networks.update({point.index: network for point, network in zip(stack, trained, strict=True)})
        if self.rule == "balancing":
            _balance(points, networks, task, finished)
        if self.aggregate:
            self._combine(points, networks, task)

    def _judge(self, stack: Sequence[Point], trained: Sequence[TrainedNetwork], task: Task, finished: Finished) -> None:
        calls = (delayed(network_score)(self.rule, network.layers, task) for network in trained)
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")
        with closing(parallel(calls)) as arrivals:
            for point, score in zip(stack, arrivals, strict=True):
                finished(point, score)

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
                (trained[index],), _ = train_again([member], whole, Running(devices[index]))
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


def _hold_out(sample: Sample, share: float) -> Task:
    """Split the source and shuffle the target: batches are cut in order."""
    source, labels, target, n_classes, seed, numbers, others = sample
    training, held_out = split_labelled(labels, share=share, seed=seed)
    training, held_out = with_rows_of_every_domain(training, held_out, numbers)
    order = np.random.default_rng([seed, 1]).permutation(target.shape[0])
    return Task(
        source[training],
        labels[training],
        target[order],
        n_classes,
        source[held_out],
        labels[held_out],
        source_domains=None if numbers is None else numbers[training],
        target_domains=None if others is None else others[order],
    )


def _balance(points: Sequence[Point], networks: Networks, task: Task, finished: Finished) -> None:
    growing = sorted(points, key=lambda point: point.spec.weight)
    chosen = growing[balanced_weight([networks[point.index].layers for point in growing], task)]
    for point in points:
        finished(point, float(point is chosen))

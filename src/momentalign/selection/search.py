r"""ReverseValidationSearch: the parameters whose networks find the way back to the source, no target label needed.

Zhong et al. (2010) and Ganin et al. (2016), see :mod:`momentalign.selection.reverse`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from momentalign.estimators.classifier import MANNClassifier
from momentalign.selection.base import Finished, Sample, StackedSearch
from momentalign.selection.grid import Point, stacks
from momentalign.selection.reverse import reverse_scores
from momentalign.selection.splits import refuse_bad_share
from momentalign.training.recipe import Task

__all__ = ["ReverseValidationSearch"]


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

    def _refuse_bad_parameters(self, points: Sequence[Point]) -> None:  # noqa: ARG002
        refuse_bad_share(self.share)

    def _score(self, points: Sequence[Point], sample: Sample, finished: Finished) -> None:
        source, labels, target, n_classes, seed, numbers, others = sample
        task = Task(source, labels, target, n_classes, source_domains=numbers, target_domains=others)
        for stack in stacks(points, task):
            reverse_scores(
                source,
                labels,
                target,
                n_classes,
                stack[0].recipe,
                [point.member for point in stack],
                seed=seed,
                share=self.share,
                device=stack[0].device,
                n_jobs=self.n_jobs,
                source_domains=numbers,
                target_domains=others,
                finished=lambda position, score, stack=stack: finished(stack[position], score),  # type: ignore[misc]
            )

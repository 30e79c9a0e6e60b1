"""What all searches share: the grid trained as stacks, scores kept in a journal, the best model fitted to all data."""

from __future__ import annotations

import hashlib
import numbers
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import TransformerTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from momentalign.errors import InvalidInputError
from momentalign.estimators.classifier import MANNClassifier
from momentalign.estimators.domains import DomainEstimator, all_or_nothing, as_float32, read_domains
from momentalign.estimators.labels import ClassLabels
from momentalign.journal import Journal, cell_key
from momentalign.networks.shallow import Matrix
from momentalign.progress import progress_bar
from momentalign.selection.grid import Point, read_points, results_table
from momentalign.validation import check_number, check_seed

__all__ = ["Finished", "Sample", "StackedSearch"]

Finished = Callable[[Point, float], None]


class Sample(NamedTuple):
    """All a search may look at: labelled source rows, unlabelled target rows, and the seed of the splits."""

    source: Matrix
    labels: NDArray[np.intp]
    target: Matrix
    n_classes: int
    seed: int
    source_domains: NDArray[np.intp] | None = None
    target_domains: NDArray[np.intp] | None = None


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
        sample = self._read_sample(X, y, X_target, sample_domain, seed)
        scores = self._all_scores(points, sample)
        self.cv_results_ = results_table([point.parameters for point in points], scores)
        self.best_index_ = int(np.argmax(scores))
        self.best_score_ = float(scores[self.best_index_])
        self.best_params_ = dict(points[self.best_index_].parameters)
        if self._fits_a_model():
            self.best_estimator_ = points[self.best_index_].model
            self._fit_best(X, y, X_target, sample_domain)
        return self

    def _read_sample(self, X: Any, y: Any, X_target: Any, sample_domain: Any, seed: int) -> Sample:
        labels = ClassLabels()
        domains = read_domains(self, X, y, X_target, labels=labels, sample_domain=sample_domain)
        self.classes_ = labels.classes
        if domains.target is None:
            raise InvalidInputError(
                f"{type(self).__name__} has no target rows, there is no domain to choose for; give X_target, or "
                "negative ids in sample_domain."
            )
        source, target = as_float32(domains.source, "X"), as_float32(domains.target, "X_target")
        numbers = domains.source_numbers, domains.target_numbers
        return Sample(source, domains.labels, target, len(self.classes_), seed, *numbers)

    def _all_scores(self, points: Sequence[Point], sample: Sample) -> list[float]:
        """Score the points that no journal holds yet, and write each down when it is finished."""
        # A point without a name is refused before a journal is begun.
        keys = {} if self.resume is None else {point.index: cell_key(point.cell()) for point in points}
        journal = self._open_journal(sample)
        done = {} if journal is None else journal.done()
        scores = {index: float(done[key]["score"]) for index, key in keys.items() if key in done}
        with progress_bar(type(self).__name__, verbose=self.verbose) as show:

            def report() -> None:
                if show is not None:
                    show(len(scores), len(points), f"best score {max(scores.values()):.4f}" if scores else "")

            def finished(point: Point, score: float) -> None:
                scores[point.index] = score
                if journal is not None:
                    journal.append(point.cell(), {"score": score})
                report()

            report()
            self._score([point for point in points if point.index not in scores], sample, finished)
        return [scores[point.index] for point in points]

    def _open_journal(self, sample: Sample) -> Journal | None:
        if self.resume is None:
            return None
        if not isinstance(self.random_state, numbers.Integral):
            raise InvalidInputError(
                f"resume needs the same splits in every run, but random_state is {self.random_state!r}; give a whole "
                "number, such as random_state=0."
            )
        identity = {"search": type(self).__name__, **self._identity(), "seed": sample.seed, "data": _digest(sample)}
        return Journal(self.resume, identity)

    def _identity(self) -> dict[str, Any]:
        """What scores depend on beside the points, the data and the seed."""
        return {"share": float(self.share)}

    def _refuse_bad_parameters(self, points: Sequence[Point]) -> None:
        """Raise before anything is trained; a subclass says for what."""

    @abstractmethod
    def _score(self, points: Sequence[Point], sample: Sample, finished: Finished) -> None:
        """Train the points and call `finished` with the score of each, higher is better."""

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


def _digest(sample: Sample) -> str:
    """Return a digest of all rows and labels, and of the domains where there are several."""
    digest = hashlib.sha256()
    several = [numbers for numbers in (sample.source_domains, sample.target_domains) if numbers is not None]
    for part in (sample.source, sample.labels, sample.target, *several):
        for array in _arrays(part):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _arrays(part: Matrix) -> Sequence[NDArray[Any]]:
    if isinstance(part, np.ndarray):
        return (part,)
    return (np.array(part.shape), part.indptr.astype(np.int64), part.indices.astype(np.int64), part.data)

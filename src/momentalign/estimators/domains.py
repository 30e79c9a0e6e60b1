"""Domains as they reach an estimator: split, checked, and never mixed up.

Section 3 of Zellinger et al. (2019): a labelled source sample and an unlabelled target sample; or several of each.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import assert_all_finite, check_consistent_length, validate_data

from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.estimators.labels import Labels
from momentalign.networks.shallow import Matrix
from momentalign.training.config import Task
from momentalign.validation import naming

__all__ = [
    "DomainEstimator",
    "Domains",
    "all_or_nothing",
    "as_float32",
    "domain_ids",
    "domain_numbers",
    "joined_task",
    "read_domains",
    "stacked_rows",
    "with_rows_of_every_domain",
]

Ids = NDArray[np.integer[Any]]
Method = TypeVar("Method", bound=Callable[..., Any])

# The ids of skada for one source and one target.
SOURCE_ID, TARGET_ID = 1, -2
# A part with fewer rows has no distribution.
FEWEST_ROWS = 2


def all_or_nothing(method: Method) -> Method:
    """Make a method that changes its estimator leave it as it was where it raises, also at ^C."""

    @functools.wraps(method)
    def guarded(self: Any, *arguments: Any, **options: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *arguments, **options)
        except BaseException:
            self.__dict__ = before
            raise

    return cast("Method", guarded)


class DomainEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator of several domains, sparse rows among them; its clones know that they are clones."""

    _is_clone = False

    # What metadata routing hands on without being asked, as pipelines and scorers of skada expect it.
    __metadata_request__fit: ClassVar = {"sample_domain": True}

    def __sklearn_clone__(self) -> Self:
        copy: Self = super().__sklearn_clone__()
        copy._is_clone = True
        return copy

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class Domains(NamedTuple):
    """Labelled rows and unlabelled target rows, and the ids of the domains they belong to.

    Labelled rows beyond those that have an id are target rows with known labels.
    """

    source: Matrix
    labels: NDArray[Any]
    target: Matrix | None
    source_ids: Ids
    target_ids: Ids | None

    @property
    def source_numbers(self) -> NDArray[np.intp] | None:
        """The number of the source each labelled row belongs to, or None for one source.

        Labelled target rows are shared out among the sources in turn.
        """
        own = domain_numbers(self.source_ids)
        if own is None:
            return None
        more = np.arange(self.source.shape[0] - len(own)) % (own.max() + 1)
        return np.concatenate([own, more])

    @property
    def target_numbers(self) -> NDArray[np.intp] | None:
        """The number of the target each target row belongs to, or None for one target."""
        return None if self.target_ids is None else domain_numbers(self.target_ids)


def domain_ids(ids: Ids) -> list[int]:
    """Return the different ids of one kind, 1 before 2 and -1 before -2.

    Examples
    --------
    >>> domain_ids(np.array([2, 1, 2])), domain_ids(np.array([-2, -1, -7]))
    ([1, 2], [-1, -2, -7])
    """
    return sorted(np.unique(ids).tolist(), key=abs)


def domain_numbers(ids: Ids) -> NDArray[np.intp] | None:
    """Return the position of each id among the different ones, None where there is one only.

    Examples
    --------
    >>> domain_numbers(np.array([-3, -1, -3])).tolist()
    [1, 0, 1]
    """
    known = np.abs(domain_ids(ids))
    return None if len(known) < 2 else np.searchsorted(known, np.abs(ids))


def with_rows_of_every_domain(
    training: NDArray[np.intp], held_out: NDArray[np.intp], numbers: NDArray[np.intp] | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Take back the held-out rows of domains that would have too few to train on.

    Examples
    --------
    >>> with_rows_of_every_domain(np.array([0, 1, 2]), np.array([3, 4]), np.array([0, 0, 1, 1, 0]))
    (array([0, 1, 2, 3]), array([4]))
    """
    if numbers is None:
        return training, held_out
    few = np.bincount(numbers[training], minlength=numbers.max() + 1) < FEWEST_ROWS
    back = few[numbers[held_out]]
    return np.concatenate([training, held_out[back]]), held_out[~back]


def read_domains(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    X_target: Any,
    *,
    labels: Labels | None,
    sample_domain: Any = None,
    y_target: Any = None,
) -> Domains:
    """Return the domains of one call of ``fit``, checked, or say what is wrong with them.

    `X` and `y` are the source, `X_target` the target; or `X` holds both and `sample_domain` says which rows are which:
    positive ids are sources, negative ids are targets, whose labels in `y` are not looked at. Target rows with a
    label in `y_target` join the labelled rows. Without ids the source is 1 and the target -2, as in skada.

    `labels` learns what `y` holds, and codes it; without it there are no labels, and `y` is not looked at.
    """
    if labels is not None and y is None:
        raise InvalidInputError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None; give the source labels."
        )
    if sample_domain is not None and X_target is not None:
        raise InvalidInputError("give either X_target or sample_domain, not both: each names the target rows.")
    with naming("X"):
        X = validate_data(estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32])
    y = np.zeros(X.shape[0]) if labels is None else labels.read(y)
    with naming("y"):
        check_consistent_length(X, y)
    ids = _read_ids(sample_domain, X.shape[0])
    if sample_domain is not None:
        X, y, X_target = X[ids > 0], y[ids > 0], None if (ids > 0).all() else X[ids < 0]
    elif X_target is not None:
        with naming("X_target"):
            X_target = validate_data(
                estimator, X_target, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32]
            )
        _warn_of_cut_target(estimator, X, X_target)
        X, X_target = _of_one_kind(X, X_target)
    if y.dtype.kind == "f":
        with naming("y"):
            assert_all_finite(y, input_name="y")
    _refuse_single_rows(X, X_target)
    _refuse_single_rows_of(ids)
    target_ids = None
    if X_target is not None:
        target_ids = np.full(X_target.shape[0], TARGET_ID) if sample_domain is None else ids[ids < 0]
    if labels is not None and y_target is not None:
        known, more = labels.known_of_target(y_target, y, 0 if X_target is None else X_target.shape[0])
        if known.any():
            X, y = stacked_rows([X, cast("Matrix", X_target)[known]]), np.concatenate([y, more])
    codes = y if labels is None else labels.learn(y)
    return Domains(X, codes, X_target, ids[ids > 0], target_ids)


def stacked_rows(parts: Sequence[Matrix]) -> Matrix:
    """Return the rows of all parts, of one kind, one below the other."""
    return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.concatenate(parts)


def _of_one_kind(X: Matrix, X_target: Matrix) -> tuple[Matrix, Matrix]:
    """Where one domain is sparse the other is made so: nothing is made dense as a whole."""
    if sparse.issparse(X) == sparse.issparse(X_target):
        return X, X_target
    return sparse.csr_matrix(X), sparse.csr_matrix(X_target)


def _read_ids(sample_domain: Any, rows: int) -> Ids:
    """One id per row of X; without any all rows are those of the source."""
    if sample_domain is None:
        return np.full(rows, SOURCE_ID)
    domain = np.asarray(sample_domain)
    if domain.shape != (rows,) or domain.dtype.kind not in "iu":
        raise InvalidInputError(
            f"sample_domain must be one whole number per row of X ({rows}), got {domain.dtype} of shape {domain.shape}."
        )
    if domain.max(initial=0) > np.iinfo(np.int64).max:
        raise InvalidInputError(f"sample_domain holds {domain.max()}; use ids below 2^63.")
    if (domain == 0).any():
        raise InvalidInputError("sample_domain holds 0; use positive ids for sources and negative ids for targets.")
    if not (domain > 0).any():
        raise InvalidInputError("sample_domain has no positive id: there is no source row to learn from.")
    return domain


def _refuse_single_rows(X: Matrix, X_target: Matrix | None) -> None:
    for name, rows in (("the source", X), ("the target", X_target)):
        if rows is not None and rows.shape[0] < 2:
            raise InvalidInputError(f"{name} has 1 sample only (n_samples=1); a distribution needs at least 2 rows.")


def _refuse_single_rows_of(ids: Ids) -> None:
    known, counts = np.unique(ids, return_counts=True)
    if counts.min() < FEWEST_ROWS:
        raise InvalidInputError(
            f"domain {known[counts.argmin()]} of sample_domain has 1 sample only and a distribution needs at least 2 "
            "rows; leave it out or give it the id of another domain."
        )


def _warn_of_cut_target(estimator: BaseEstimator, X: Matrix, X_target: Matrix) -> None:
    """Warn where a cross-validation of scikit-learn may have cut X_target along with X.

    Its search and validation tools take any argument as long as X for row-aligned and cut it without a word: the model
    would be adapted to a part of the target only. Nothing in the arrays tells, but what they fit is a clone. So may be
    an estimator whose target is whole, which is why this is no error.
    """
    if X_target.shape[0] == X.shape[0] and getattr(estimator, "_is_clone", False):
        warnings.warn(
            f"X_target has as many rows as X, and this {type(estimator).__name__} is a clone: the validation tools of "
            "scikit-learn clone, and cut such arguments like rows of X. If one of them fits it, hand over both domains "
            "as one X with sample_domain instead.",
            MomentAlignWarning,
            stacklevel=5,
        )


def as_float32(rows: Matrix, name: str) -> Matrix:
    """Return rows in float32, or name the argument whose values do not fit."""
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float32, copy=False)
    if not np.isfinite(narrow.data if hasattr(narrow, "tocsr") else narrow).all():
        raise InvalidInputError(f"{name} holds values too large for float32; scale its columns first.")
    return narrow


def joined_task(task: Task) -> Task:
    """The task with the held-out rows among the others, in an order that does not depend on which were held out."""
    if task.validation is None or task.validation_labels is None:
        return task
    rows = stacked_rows([task.source, task.validation])
    labels = np.concatenate([task.labels, task.validation_labels])
    order = np.random.default_rng(len(labels)).permutation(len(labels))
    joined = Task(rows[order], labels[order], task.target, task.n_classes)
    if task.source_domains is not None and task.validation_domains is not None:
        domains = np.concatenate([task.source_domains, task.validation_domains])[order]
        joined = replace(joined, source_domains=domains)
    return replace(joined, target_domains=task.target_domains)

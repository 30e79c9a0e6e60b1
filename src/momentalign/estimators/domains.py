"""Domains as they reach an estimator: split, checked, and never mixed up; and what an estimator does with labels.

Section 3 of Zellinger et al. (2019): a labelled source sample and an unlabelled target sample; or several of each.
"""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import assert_all_finite, check_consistent_length, validate_data

from momentalign.errors import InvalidInputError, MomentAlignWarning
from momentalign.estimators.row_weights import RowWeights
from momentalign.networks.shallow import Matrix
from momentalign.tables.table import shown
from momentalign.training.config import FEWEST_ROWS, Rows, Task
from momentalign.validation import naming

__all__ = [
    "DomainEstimator",
    "Domains",
    "Labels",
    "all_or_nothing",
    "as_float32",
    "is_missing",
    "joined_task",
    "read_domains",
    "read_rows",
    "refuse_missing",
    "stacked_rows",
]

Ids = NDArray[np.integer[Any]]
Method = TypeVar("Method", bound=Callable[..., Any])

# The ids of skada for one source and one target.
SOURCE_ID, TARGET_ID = 1, -2


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


class Labels(ABC):
    """What is done with labels: read, checked, turned into codes or standardised values, and held out.

    They may be whole or arrive in chunks: every part goes through ``read`` and ``note``, ``finish`` ends the first
    reading, and ``coded`` turns any part into what a :class:`~momentalign.training.config.Task` holds. The caller gives
    errors the name of the chunk or argument.
    """

    @property
    def fewest(self) -> int:
        """Rows below which a part of the data says nothing."""
        return FEWEST_ROWS

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Units of the last layer of the network that learns them."""

    @abstractmethod
    def read(self, y: Any) -> NDArray[Any]:
        """Return labels as an array with one entry, or one row of entries, per row of the sample."""

    @abstractmethod
    def known_of_target(self, y_target: Any, labels: NDArray[Any], rows: int) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Return which of `rows` target rows have a label, and these labels, of the kind of those of the source."""

    @abstractmethod
    def note(self, labels: NDArray[Any]) -> None:
        """Take in a part of the first reading."""

    @abstractmethod
    def finish(self) -> None:
        """End the first reading."""

    @abstractmethod
    def coded(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return labels as a :class:`~momentalign.training.config.Task` has them."""

    @abstractmethod
    def hold_out(self, codes: NDArray[Any], fraction: float, seed: int) -> tuple[Rows, Rows | None]:
        """Split rows at random into those to train on and those held out, None where a part would be too small."""

    def learn(self, labels: NDArray[Any], rows: Rows | None = None) -> NDArray[Any]:
        """Take in labels that are all there are, and return them, or those of some rows, coded."""
        self.note(labels)
        self.finish()
        return self.coded(labels if rows is None else labels[rows])


class Domains(NamedTuple):
    """Labelled rows and unlabelled target rows, and the ids of the domains they belong to.

    Labelled rows beyond those that have an id are target rows with known labels.
    """

    source: Matrix
    labels: NDArray[Any]
    target: Matrix | None
    source_ids: Ids
    target_ids: Ids | None
    n_outputs: int = 0
    """Classes, or numbers a row is labelled with."""
    groups: Rows | None = None
    """A number for each labelled row, the same for equal ones, where some are repeated."""

    @property
    def n_sources(self) -> int:
        """How many sources there are."""
        return len(np.unique(self.source_ids))

    def task(self) -> Task:
        """Return all rows in float32; labelled target rows are shared out among the sources in turn.

        Without a target nothing is compared, and several sources are as one.
        """
        source = as_float32(self.source, "X")
        if self.target is None or self.target_ids is None:
            return Task(source, self.labels, None, self.n_outputs)
        own = _numbered(self.source_ids)
        if own is not None:
            own = np.concatenate([own, np.arange(source.shape[0] - len(own)) % self.n_sources])
        target, others = as_float32(self.target, "X_target"), _numbered(self.target_ids)
        return Task(source, self.labels, target, self.n_outputs, source_domains=own, target_domains=others)


def _numbered(ids: Ids) -> NDArray[np.intp] | None:
    """Number the domain of each row from 0 on, 1 before 2 and -1 before -2; None where there is one domain only."""
    known, numbers = np.unique(np.abs(ids), return_inverse=True)
    return None if len(known) < 2 else numbers


def read_domains(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    X_target: Any,
    *,
    labels: Labels | None,
    sample_domain: Any = None,
    y_target: Any = None,
    weights: RowWeights | None = None,
    reset: bool = True,
) -> Domains:
    """Return the domains of one call of ``fit``, checked, or say what is wrong with them.

    `X` and `y` are the source, `X_target` the target; or `X` holds both and `sample_domain` says which rows are which:
    positive ids are sources, negative ids are targets, whose labels in `y` are not looked at. Target rows with a
    label in `y_target` join the labelled rows. Without ids the source is 1 and the target -2, as in skada.

    With `weights` labelled rows are repeated as they say, and few rows that are equal stand beside each other.

    `labels` learns what `y` holds, and codes it; without it there are no labels, and `y` is not looked at. Without
    `reset` the columns have to be those the estimator has learned from.
    """
    if labels is not None and y is None:
        raise InvalidInputError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None; give the source labels."
        )
    if sample_domain is not None and X_target is not None:
        raise InvalidInputError("give either X_target or sample_domain, not both: each names the target rows.")
    X = read_rows(estimator, X, reset=reset)
    if X_target is not None:
        X_target = read_rows(estimator, X_target, "X_target")
        _warn_of_cut_target(estimator, X, X_target)
    y = np.zeros(X.shape[0]) if labels is None else labels.read(y)
    with naming("y"):
        check_consistent_length(X, y)
    ids = _read_ids(sample_domain, X.shape[0])
    target_ids = None
    if sample_domain is not None:
        X, y, X_target = X[ids > 0], y[ids > 0], None if (ids > 0).all() else X[ids < 0]
        target_ids = None if X_target is None else ids[ids < 0]
    elif X_target is not None:
        X, X_target = _of_one_kind(X, X_target)
        target_ids = np.full(X_target.shape[0], TARGET_ID)
    if y.dtype.kind == "f":
        with naming("y"):
            assert_all_finite(y, input_name="y")
    _refuse_single_rows(X, X_target, ids)
    if labels is None:
        return Domains(X, y, X_target, ids[ids > 0], target_ids)
    if y_target is not None:
        known, more = labels.known_of_target(y_target, y, 0 if X_target is None else X_target.shape[0])
        if known.any():
            X, y = stacked_rows([X, cast("Matrix", X_target)[known]]), np.concatenate([y, more])
    own, drawn = ids[ids > 0], None if weights is None else weights.draw(X, y, ids)
    if drawn is None:
        return Domains(X, labels.learn(y), X_target, own, target_ids, labels.n_outputs)
    codes, own = labels.learn(y, drawn.rows), own[drawn.rows[drawn.rows < len(own)]]
    return Domains(X[drawn.rows], codes, X_target, own, target_ids, labels.n_outputs, drawn.groups)


def read_rows(estimator: BaseEstimator, X: Any, name: str = "X", *, reset: bool = False) -> Matrix:
    """Return rows as scikit-learn checks them, dense or CSR, in float64 or float32."""
    with naming(name):
        return validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])


def stacked_rows(parts: Sequence[Matrix]) -> Matrix:
    """Return the rows of all parts one below the other, as CSR where any of them is sparse."""
    return sparse.vstack(parts, format="csr") if any(map(sparse.issparse, parts)) else np.concatenate(parts)


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


def _refuse_single_rows(X: Matrix, X_target: Matrix | None, ids: Ids) -> None:
    for name, rows in (("the source", X), ("the target", X_target)):
        if rows is not None and rows.shape[0] < FEWEST_ROWS:
            raise InvalidInputError(f"{name} has 1 sample only (n_samples=1); a distribution needs at least 2 rows.")
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
    rows, domains = stacked_rows([task.source, task.validation]), None
    labels = np.concatenate([task.labels, task.validation_labels])
    if task.source_domains is not None and task.validation_domains is not None:
        domains = np.concatenate([task.source_domains, task.validation_domains])
    whole = Task(rows, labels, task.target, task.n_classes, source_domains=domains, target_domains=task.target_domains)
    return whole.split(np.random.default_rng(len(labels)).permutation(len(labels)), None)


def refuse_missing(labels: NDArray[Any]) -> None:
    """Name the first row whose label is missing or not finite."""
    cells = labels.ravel()
    if labels.dtype.kind == "f":
        missing = ~np.isfinite(cells)
    elif labels.dtype.kind == "O":
        missing = np.array([not isinstance(cell, str) and is_missing(cell) for cell in cells.tolist()])
    else:
        return
    if missing.any():
        index = int(missing.argmax())
        row, kind = index * len(labels) // len(cells), "missing" if is_missing(cells[index]) else "not finite"
        raise InvalidInputError(
            f"the label of row {row + 1} is {kind} ({shown(cells[index])}); fill it in or leave the row out."
        )


def is_missing(label: Any) -> bool:
    """None, NaN, and the NA and NaT of pandas, of which NA answers no comparison with yes or no."""
    return label is None or type(label).__name__ in ("NAType", "NaTType") or bool(label != label)

"""Two domains as they reach an estimator: split, checked, and never mixed up.

Section 3 of Zellinger et al. (2019): a labelled source sample and an unlabelled target sample.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d, validate_data

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.networks.shallow import Matrix

__all__ = ["Domains", "naming", "read_domains"]

Labels = NDArray[Any]


class Domains(NamedTuple):
    """Labelled rows and unlabelled target rows."""

    source: Matrix
    labels: Labels
    target: Matrix | None


def read_domains(
    estimator: BaseEstimator, X: Any, y: Any, X_target: Any, *, sample_domain: Any = None, y_target: Any = None
) -> Domains:
    """Return the domains of one call of ``fit``, checked, or say what is wrong with them.

    `X` and `y` are the source, `X_target` the target; or `X` holds both and `sample_domain` says which rows are which:
    positive ids are sources, negative ids are targets, whose labels in `y` are not looked at. Target rows with a
    label in `y_target` join the labelled rows.
    """
    if y is None:
        raise InvalidInputError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None; give the source labels."
        )
    if sample_domain is not None and X_target is not None:
        raise InvalidInputError("give either X_target or sample_domain, not both: each names the target rows.")
    with naming("X"):
        X = validate_data(estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32])
    with naming("y"):
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
    if sample_domain is not None:
        X, y, X_target = _split_by_sign(X, y, sample_domain)
    elif X_target is not None:
        with naming("X_target"):
            X_target = validate_data(
                estimator, X_target, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32]
            )
        _refuse_cut_target(X, X_target)
        X, X_target = _of_one_kind(X, X_target)
    if y.dtype.kind == "f":
        with naming("y"):
            assert_all_finite(y, input_name="y")
    _refuse_single_rows(X, X_target)
    if y_target is not None:
        X, y = _add_labelled_target(X, y, X_target, y_target)
    return Domains(X, y, X_target)


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """Give the errors of scikit-learn the name of the argument, in one line and without a print of the data."""
    try:
        yield
    except (TypeError, ValueError) as error:
        lines = [line for line in str(error).splitlines() if not line.lstrip().startswith(("array=", "["))]
        message = " ".join(" ".join(lines).split())
        kind = InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
        raise kind(f"{argument}: {message}") from None


def _of_one_kind(X: Matrix, X_target: Matrix) -> tuple[Matrix, Matrix]:
    """Where one domain is sparse the other is made so: nothing is made dense as a whole."""
    if sparse.issparse(X) == sparse.issparse(X_target):
        return X, X_target
    return sparse.csr_matrix(X), sparse.csr_matrix(X_target)


def _split_by_sign(X: Matrix, y: Labels, sample_domain: Any) -> tuple[Matrix, Labels, Matrix | None]:
    domain = np.asarray(sample_domain)
    if domain.shape != y.shape or domain.dtype.kind not in "iu":
        raise InvalidInputError(
            f"sample_domain must be one whole number per row of X ({y.shape[0]}), got {domain.dtype} of shape "
            f"{domain.shape}."
        )
    if (domain == 0).any():
        raise InvalidInputError("sample_domain holds 0; use positive ids for sources and negative ids for targets.")
    source = domain > 0
    if not source.any():
        raise InvalidInputError("sample_domain has no positive id: there is no source row to learn from.")
    return X[source], y[source], None if source.all() else X[~source]


def _refuse_single_rows(X: Matrix, X_target: Matrix | None) -> None:
    for name, rows in (("the source", X), ("the target", X_target)):
        if rows is not None and rows.shape[0] < 2:
            raise InvalidInputError(f"{name} has 1 sample only (n_samples=1); a distribution needs at least 2 rows.")


def _add_labelled_target(X: Matrix, y: Labels, X_target: Matrix | None, y_target: Any) -> tuple[Matrix, Labels]:
    labels = np.asarray(y_target)
    if X_target is None or labels.shape != (X_target.shape[0],):
        rows = 0 if X_target is None else X_target.shape[0]
        raise InvalidInputError(
            f"y_target must hold one entry per target row ({rows}), got shape {labels.shape}; mark missing ones with "
            "NaN, None or -1."
        )
    known = ~_missing(labels, y)
    if not known.any():
        return X, y
    rows = X_target[known]
    stack: Any = (lambda blocks: sparse.vstack(blocks, format="csr")) if sparse.issparse(X) else np.concatenate
    joined = stack([X, rows])
    return joined, np.concatenate([y, _as_labels(labels[known], y)])


def _as_labels(labels: Labels, source_labels: Labels) -> Labels:
    """Labels of the source's kind: an array that also holds missing ones is of floats or of objects."""
    plain = np.array(labels.tolist())
    if source_labels.dtype.kind in "iu" and plain.dtype.kind == "f" and (plain == np.floor(plain)).all():
        plain = plain.astype(np.int64)
    if source_labels.dtype.kind == "O" and plain.dtype.kind in "UO":
        return plain.astype(object)
    kinds = {plain.dtype.kind, source_labels.dtype.kind}
    if len(kinds) > 1 and not kinds <= set("iuf"):
        raise InvalidInputError(
            f"y_target holds labels such as {plain.tolist()[0]!r}, y is of {source_labels.dtype}; "
            "give labels of one kind."
        )
    return plain


def _missing(labels: Labels, source_labels: Labels) -> NDArray[np.bool_]:
    """NaN, None and, unless it is a class of the source, -1 mark a missing label."""
    missing = np.array([label is None or label != label for label in labels.tolist()])
    if labels.dtype.kind in "iuf" and not (source_labels == -1).any():
        missing |= labels == -1
    return missing


def _refuse_cut_target(X: Matrix, X_target: Matrix) -> None:
    """Raise where a cross-validation of scikit-learn may have cut X_target along with X.

    Its search and validation tools take any argument as long as X for row-aligned and cut it, without a word: the model
    would be adapted to a part of the target only. Nothing in the arrays tells, so the callers are looked at.
    """
    if X_target.shape[0] != X.shape[0]:
        return
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(("sklearn.model_selection.", "sklearn.calibration", "sklearn.ensemble.")):
            raise InvalidInputError(
                f"X_target has as many rows as X inside {module}, which cuts such arguments like rows of X; hand over "
                "both domains as one X with sample_domain instead."
            )

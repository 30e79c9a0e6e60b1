r"""MomentMap: the moments of the inputs of two domains brought together, in closed form, for any model behind it.

Where a domain differs from another in the location and scale of its features (instruments, sensors, people), taking
each domain about its own mean in its own standard deviations is often the best that can be done, and costs nothing.
With the covariances as well this is correlation alignment of the inputs:

B. Sun, J. Feng, K. Saenko: Return of frustratingly easy domain adaptation. AAAI 2016.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import _num_samples, check_is_fitted

from momentalign.errors import InvalidInputError
from momentalign.estimators.domains import DomainEstimator, all_or_nothing, read_domains, read_rows, stacked_rows
from momentalign.networks.shallow import Matrix
from momentalign.validation import check_choice, check_number

__all__ = ["MomentMap", "Scale", "column_scale"]

Floats: TypeAlias = NDArray[np.float64]
Level: TypeAlias = Literal["scale", "covariance"]

# Standard deviations below this part of a column's size are rounding: the column is constant.
ROUNDING = 1e-10


class Scale(NamedTuple):
    """Mean and standard deviation of every column; a constant column has the standard deviation 1."""

    mean: Floats
    std: Floats

    def apply(self, rows: Matrix) -> Matrix:
        """Return rows about the mean in standard deviations; sparse rows are only divided, so that they stay sparse."""
        if hasattr(rows, "indptr"):
            return rows.multiply(1.0 / self.std).tocsr()
        return (rows - self.mean) / self.std


def column_scale(rows: Matrix) -> Scale:
    """Return mean and standard deviation of every column of dense or sparse rows.

    Examples
    --------
    >>> column_scale(np.array([[0.0, 5.0], [2.0, 5.0]]))
    Scale(mean=array([1., 5.]), std=array([1., 1.]))
    """
    if hasattr(rows, "indptr"):
        wide = rows.astype(np.float64)
        mean = np.asarray(wide.mean(axis=0)).ravel()
        variance = np.asarray(wide.multiply(wide).mean(axis=0)).ravel() - mean**2
    else:
        wide = np.asarray(rows, dtype=np.float64)
        mean, variance = wide.mean(axis=0), wide.var(axis=0)
    std = np.sqrt(np.maximum(variance, 0.0))
    return Scale(mean, np.where(std > ROUNDING * np.abs(mean), std, 1.0))


class MomentMap(OneToOneFeatureMixin, TransformerMixin, DomainEstimator):  # type: ignore[misc]
    r"""Standardise each domain by itself, or bring the source to the covariance of the target as well.

    ``fit_transform`` returns the source rows to train on, ``transform`` the rows of the target, as a model meets them
    when it predicts. Without target data it is a ``StandardScaler``.

    Parameters
    ----------
    moments
        ``"scale"``: every column of each domain about its own mean, in its own standard deviations. ``"covariance"``:
        then the source rows :math:`z` become :math:`C_S^{-1/2}\, C_T^{1/2}\, z`, with the correlation matrices of both
        domains. Sparse rows are only divided by standard deviations.
    shrinkage
        For ``"covariance"``: the part of the identity in each correlation matrix, above 0 and at most 1.

    Attributes
    ----------
    source_mean_, source_std_, target_mean_, target_std_ : ndarray of shape (features,)
        What each domain is standardised by; both are those of all rows where there is no target.
    map_ : ndarray of shape (features, features) or None
        What standardised source rows are multiplied by.

    Notes
    -----
    It removes every difference in mean and scale, also one that means something: between a population of 30-year-olds
    and one of 50-year-olds the column *age* should not be standardised away. :class:`momentalign.AutoClassifier` weighs
    both views.

    Examples
    --------
    >>> import numpy as np, momentalign as ma
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> random = np.random.default_rng(0)
    >>> X, y = random.normal(size=(200, 2)), np.repeat([0, 1], 100)
    >>> X[y == 1] += 3
    >>> drifted = 5 * X + 100
    >>> model = make_pipeline(ma.MomentMap(), LogisticRegression()).fit(X, y, momentmap__X_target=drifted)
    >>> bool(model.score(drifted, y) > 0.9)
    True
    """

    __metadata_request__transform: ClassVar = {"sample_domain": True, "allow_source": True}

    def __init__(self, moments: Level = "scale", shrinkage: float = 0.1) -> None:
        self.moments = moments
        self.shrinkage = shrinkage

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, X_target: Any = None, *, sample_domain: Any = None) -> Self:  # noqa: ARG002
        """Learn the moments of source rows and, where given, of target rows.

        Parameters
        ----------
        X
            Source rows (array, DataFrame or CSR matrix); with `sample_domain` the rows of all domains.
        y
            Not looked at.
        X_target
            Target rows, with the same columns.
        sample_domain
            One id per row of `X`: positive for sources, negative for targets.
        """
        moments = check_choice(self.moments, "moments", get_args(Level))
        shrinkage = check_number(self.shrinkage, "shrinkage", least=0.0, most=1.0)
        if moments == "covariance" and shrinkage == 0.0:
            raise InvalidInputError("shrinkage is 0 and a covariance may be singular; give more, try shrinkage=0.1.")
        domains = read_domains(self, X, None, X_target, labels=None, sample_domain=sample_domain)
        source, target = domains.source, domains.source if domains.target is None else domains.target
        self.source_mean_, self.source_std_ = of_source = column_scale(source)
        self.target_mean_, self.target_std_ = of_target = column_scale(target)
        self.map_ = None
        if moments == "covariance" and domains.target is not None:
            if sparse.issparse(source):
                raise InvalidInputError('moments="covariance" needs dense rows; try moments="scale".')
            whiten = _root(_correlation(of_source.apply(source), shrinkage), -0.5)
            self.map_ = whiten @ _root(_correlation(of_target.apply(target), shrinkage), 0.5)
        return self

    def fit_transform(self, X: Any, y: Any = None, X_target: Any = None, *, sample_domain: Any = None) -> Matrix:
        """Learn the moments and return the rows of `X` brought together: source rows unless `sample_domain` says."""
        self.fit(X, y, X_target, sample_domain=sample_domain)
        return self.transform(X, sample_domain=np.ones(_num_samples(X)) if sample_domain is None else sample_domain)

    def transform(self, X: Any, *, sample_domain: Any = None, allow_source: bool = True) -> Matrix:  # noqa: ARG002
        """Return rows of the target, or where `sample_domain` is positive of the source, brought together."""
        check_is_fitted(self)
        rows = read_rows(self, X)
        of_target = Scale(self.target_mean_, self.target_std_)
        if sample_domain is None:
            return of_target.apply(rows).astype(rows.dtype)
        from_source = np.asarray(sample_domain) > 0
        if from_source.shape != (rows.shape[0],):
            raise InvalidInputError(f"sample_domain must hold one id per row of X ({rows.shape[0]}).")
        own, others = np.flatnonzero(from_source), np.flatnonzero(~from_source)
        moved = Scale(self.source_mean_, self.source_std_).apply(rows[own])
        moved = moved if self.map_ is None else moved @ self.map_
        together = stacked_rows([moved, of_target.apply(rows[others])])
        return together[np.argsort(np.concatenate([own, others]))].astype(rows.dtype)


def _correlation(rows: Floats, shrinkage: float) -> Floats:
    correlation = rows.T @ rows / len(rows)
    return np.asarray((1.0 - shrinkage) * correlation + shrinkage * np.eye(len(correlation)))


def _root(matrix: Floats, power: float) -> Floats:
    """A power of a positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * values**power) @ vectors.T)

r"""Transfer component analysis: directions of a kernel's feature space along which two domains are alike.

The kernel method that Tables 2 and 3 of Zellinger et al. (2019) compare with. Reference: S. J. Pan, I. W. Tsang,
J. T. Kwok, Q. Yang, Domain adaptation via transfer component analysis, IEEE Transactions on Neural Networks 22(2),
2011.

With the kernel matrix K of all training rows, the centring matrix H and the contrast e (1/n of the source for its rows,
-1/n of the target for its rows) the weights W solve

.. math:: \max_W \operatorname{tr}\bigl((W^T (K L K + \mu I) W)^{-1}\, W^T K H K W\bigr), \quad L = e e^T:

the variance of the components :math:`K W` against the squared distance of their domain means.

:math:`B = K L K + \mu I` is the identity and one rank more, so its inverse root is known in closed form, and the
columns of W are :math:`B^{-1/2}` times the leading eigenvectors of the symmetric :math:`B^{-1/2} K H K B^{-1/2}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.linalg.blas import dsymv
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, aslinearoperator, eigsh
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.utils.validation import check_is_fitted

from momentalign.errors import InvalidInputError
from momentalign.estimators.domains import DomainEstimator, all_or_nothing, read_domains, read_rows, stacked_rows
from momentalign.networks.shallow import Matrix
from momentalign.validation import check_choice, check_number, positive_int

__all__ = ["TransferComponentAnalysis"]

Kernel: TypeAlias = Literal["linear", "rbf"]
Floats: TypeAlias = NDArray[np.float64]
# A symmetric operator and the number of eigenpairs -> the largest eigenvalues, rising, and their eigenvectors.
Solver: TypeAlias = Callable[[LinearOperator, int], tuple[Floats, Floats]]

# Rows that are transformed at once: bounds the kernel matrix between new and training rows.
CHUNK = 4096
# For so few rows, or for more components than this part of them, Lanczos steps are not faster than a dense solver.
FEW_ROWS = 500
LARGE_PART = 0.125
# Restarts after which the Lanczos method gives way to the dense solver; data that are not degenerate take below ten.
RESTARTS = 40
# Beyond this, fourth powers of many features leave float64.
LARGEST = 1e60
# A part of the kernel matrix below this is rounding.
ROUNDING = 1e-13


class TransferComponentAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DomainEstimator):  # type: ignore[misc]
    r"""Components that vary much over all rows and whose means differ little between a source and a target domain.

    A row x becomes :math:`k(x, X)\,W` with the training rows X of both domains and the weights W of Pan et al. (2011).
    Without target data nothing is to be aligned (L = 0) and the components are those of a principal component analysis
    with a kernel. Labels are never looked at.

    Parameters
    ----------
    n_components
        The number of components. Where there are fewer, as many as there are: at most one less than the rows and, with
        a linear kernel, one per feature; directions without variance are left out.
    kernel
        ``"linear"``: :math:`x^T z`, or ``"rbf"``: :math:`\exp(-\gamma \lVert x - z \rVert^2)`.
    gamma
        For ``"rbf"``; None takes 1 / number of features.
    mu
        The weight :math:`\mu > 0` of :math:`\lVert W \rVert^2`: small values hold the domain means together, large ones
        allow them to differ where that gives more variance.

    Attributes
    ----------
    weights_ : ndarray of shape (rows, components)
        W, one row per training row, those of the source first. Each component is a unit vector of the kernel's feature
        space, :math:`w^T K w = 1`, as in kernel PCA: with a linear kernel the projection of a row on a unit vector. Its
        sign is such that the largest of its weights in absolute value is positive.
    eigenvalues_ : ndarray of shape (components,)
        Variance against distance of the components, falling.
    n_components_ : int
        The number of components found.
    X_fit_ : ndarray or CSR matrix
        The training rows.
    gamma_ : float
        The gamma in force.

    Notes
    -----
    Pan et al. scale the weights to :math:`W^T K H K W = I`: all components have the same variance. A ``StandardScaler``
    behind this transformer does that where it is wanted; one before it keeps features of large numbers from deciding
    alone.

    With a linear kernel no kernel matrix is built and the time grows with the number of entries that are not zero; with
    ``"rbf"`` one dense matrix of all pairs of training rows is held.

    Examples
    --------
    >>> import numpy as np
    >>> from momentalign.estimators.tca import TransferComponentAnalysis
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(100, 3)) * [3.0, 2.0, 1.0]
    >>> X_target = random.normal(size=(80, 3)) * [3.0, 2.0, 1.0] + [5.0, 0.0, 0.0]
    >>> model = TransferComponentAnalysis(n_components=1).fit(X, X_target=X_target)
    >>> apart = model.transform(X_target).mean() - model.transform(X).mean()
    >>> bool(abs(apart) < 0.1 * model.transform(X).std())
    True
    """

    def __init__(
        self, n_components: int = 50, kernel: Kernel = "linear", gamma: float | None = None, mu: float = 1.0
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.mu = mu

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, X_target: Any = None, *, sample_domain: Any = None) -> Self:  # noqa: ARG002
        """Find the components of source rows and, where given, target rows.

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
        count = positive_int(self.n_components, "n_components", example="50")
        check_choice(self.kernel, "kernel", get_args(Kernel))
        check_number(self.mu, "mu", above=0.0, example=1.0)
        if self.gamma is not None:
            check_number(self.gamma, "gamma", above=0.0, example=None)
        source, _, target, *_ = read_domains(self, X, None, X_target, labels=None, sample_domain=sample_domain)
        self.X_fit_ = stacked_rows([source] if target is None else [source, target]).astype(np.float64)
        if (largest := abs(self.X_fit_).max()) > LARGEST:
            raise InvalidInputError(
                f"X or X_target holds {largest:g}, too large for a kernel; scale its columns first."
            )
        self.gamma_ = 1.0 / self.n_features_in_ if self.gamma is None else float(self.gamma)
        # The product of this with a component is the difference of its domain means.
        contrast = np.zeros(source.shape[0])
        if target is not None:
            counts = [source.shape[0], target.shape[0]]
            contrast = np.repeat([1.0 / counts[0], -1.0 / counts[1]], counts)
        count = min(count, *self.X_fit_.shape) if self.kernel == "linear" else min(count, len(contrast))
        self.weights_, self.eigenvalues_ = self._find(contrast, count)
        self.n_components_ = len(self.eigenvalues_)
        return self

    def _find(self, contrast: Floats, count: int) -> tuple[Floats, Floats]:
        if len(contrast) > FEW_ROWS and count < LARGE_PART * len(contrast):
            rows = aslinearoperator(self.X_fit_)  # A linear kernel needs no matrix.
            is_linear = self.kernel == "linear"
            kernel = rows @ rows.T if is_linear else _symmetric_operator(self._kernel_matrix(self.X_fit_))
            try:
                return _components(kernel, contrast, mu=self.mu, count=count, solver=_lanczos)
            except ArpackNoConvergence:
                pass
        kernel = _symmetric_operator(self._kernel_matrix(self.X_fit_))
        return _components(kernel, contrast, mu=self.mu, count=count, solver=_dense_solver)

    def _kernel_matrix(self, rows: Matrix) -> Floats:
        """The kernel of rows with the training rows."""
        if self.kernel == "linear":
            return np.asarray(linear_kernel(rows, self.X_fit_))
        return np.asarray(rbf_kernel(rows, self.X_fit_, gamma=self.gamma_))

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return the components of each row, ``(rows, n_components_)``: its kernel with the training rows times W."""
        check_is_fitted(self)
        X = read_rows(self, X)
        directions = self.X_fit_.T @ self.weights_ if self.kernel == "linear" else None
        found = []
        for start in range(0, X.shape[0], CHUNK):
            rows = X[start : start + CHUNK].astype(np.float64)
            found.append(self._kernel_matrix(rows) @ self.weights_ if directions is None else rows @ directions)
        return np.concatenate(found).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _symmetric_operator(matrix: Floats) -> LinearOperator:
    """Products with vectors that read half of a symmetric matrix: its way through memory is what they wait for."""
    columns = np.asfortranarray(matrix.T)
    return LinearOperator(
        matrix.shape, matvec=lambda vector: dsymv(1.0, columns, vector), matmat=columns.__matmul__, dtype=np.float64
    )


def _components(
    kernel: LinearOperator, contrast: Floats, *, mu: float, count: int, solver: Solver
) -> tuple[Floats, Floats]:
    """Return the weights W, one column per component, and the eigenvalues, falling."""
    size = _size(kernel)
    unit, mu = kernel * (1.0 / size), mu / size**2  # The same problem, of a size that solvers are made for.
    root = _inverse_root(unit @ contrast, mu)

    def apply(vectors: Floats) -> Floats:
        images = unit @ root(vectors)
        return root(unit @ (images - images.mean(axis=0)))

    values, vectors = solver(LinearOperator(kernel.shape, matvec=apply, matmat=apply, dtype=np.float64), count)
    kept = np.flatnonzero(values > len(contrast) * np.finfo(float).eps * values.max())[::-1]
    weights = root(vectors[:, kept])
    weights /= np.sqrt((weights * (kernel @ weights)).sum(axis=0))
    largest = np.abs(weights).argmax(axis=0)
    return weights * np.sign(weights[largest, np.arange(len(kept))]), values[kept] / mu


def _size(kernel: LinearOperator) -> float:
    """Return roughly how large K is, or say that it has nothing to find."""
    image = kernel @ np.random.default_rng(0).standard_normal(kernel.shape[0])
    size = float(np.linalg.norm(image))
    if np.linalg.norm(image - image.mean()) <= ROUNDING * size:
        raise InvalidInputError(
            "X has rows that are all the same to the kernel, there is no component to find; give rows that differ or, "
            'with kernel="rbf", a larger gamma.'
        )
    return size


def _inverse_root(difference: Floats, mu: float) -> Callable[[Floats], Floats]:
    r"""Return the product with :math:`(I + u u^T / \mu)^{-1/2}`, where u is the difference of the domain means."""
    length = np.linalg.norm(difference)
    unit = difference / length if length > 0 else difference
    shrinkage = 1.0 - 1.0 / math.hypot(1.0, length / math.sqrt(mu))

    def root(vectors: Floats) -> Floats:
        return vectors - shrinkage * np.multiply.outer(unit, unit @ vectors)

    return root


def _lanczos(operator: LinearOperator, count: int) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues of a symmetric operator, rising, and their eigenvectors as columns."""
    values, vectors = eigsh(operator, k=count, maxiter=RESTARTS, rng=0)
    return values, vectors


def _dense_solver(operator: LinearOperator, count: int) -> tuple[Floats, Floats]:
    """Return the same as `_lanczos`, by way of the whole matrix."""
    size = operator.shape[0]
    values, vectors = eigh(operator @ np.eye(size), subset_by_index=[size - count, size - 1])
    return values, vectors

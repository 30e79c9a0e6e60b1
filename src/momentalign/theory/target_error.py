r"""The bound on the target error that alignment makes small, on a finite space or a sample.

Stands for Section 3: Eqs. (1) and (2) and Theorem 1 (Eq. 3) of Zellinger et al. (2019). A function is the vector of its
values at the points of the space, a distribution the vector of their probabilities.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentalign.errors import InvalidInputError

__all__ = ["expected_disagreement", "finite_ipm", "target_error_bound"]

# Probabilities are rounded; float32 ones sum to 1 within this.
_ROUNDING = 1e-6


def expected_disagreement(h: ArrayLike, g: ArrayLike, *, probabilities: ArrayLike | None = None) -> float:
    r"""Return how far a classifier and a labelling function are apart on average, Eq. (1).

    .. math:: \epsilon(h, g) = \mathbb E_{\mathcal D}\big[ |h - g| \big]

    Parameters
    ----------
    h, g
        Values in [0, 1] at the same points, shape (points,).
    probabilities
        The distribution on these points, shape (points,); by default they are a sample and count alike.

    Examples
    --------
    >>> expected_disagreement([1.0, 0.0, 0.5], [1.0, 1.0, 0.0])
    0.5
    >>> expected_disagreement([1.0, 0.0], [1.0, 1.0], probabilities=[0.75, 0.25])
    0.25
    """
    left, right = _check_values(h, "h"), _check_values(g, "g")
    if left.shape != right.shape:
        raise InvalidInputError(f"h has {left.size} values and g has {right.size}; give both at the same points.")
    uniform = np.full(left.size, 1.0 / left.size)
    masses = uniform if probabilities is None else _check_probabilities(probabilities, "probabilities", left.size)
    return float(np.abs(left - right) @ masses)


def finite_ipm(functions: ArrayLike, source: ArrayLike, target: ArrayLike) -> float:
    r"""Return the integral probability metric, Eq. (2), of a finite function class on a finite space.

    .. math:: d_{\mathcal F} = \max_{f \in \mathcal F} \big| \mathbb E_S[f] - \mathbb E_T[f] \big|

    Parameters
    ----------
    functions
        One function per row by its values, shape (functions, points).
    source, target
        Probabilities of the points, shape (points,).

    Examples
    --------
    >>> finite_ipm([[0.0, 1.0], [1.0, 0.5]], source=[1.0, 0.0], target=[0.25, 0.75])
    0.75
    """
    values = np.asarray(functions, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape or not np.isfinite(values).all():
        raise InvalidInputError(
            f"functions must be a matrix of finite values, got shape {values.shape}; give one row per function."
        )
    points = values.shape[1]
    shift = _check_probabilities(source, "source", points) - _check_probabilities(target, "target", points)
    return float(np.abs(values @ shift).max())


def target_error_bound(source_error: float, distance: float, labelling_disagreement: tuple[float, float]) -> float:
    r"""Return the bound of Theorem 1, Eq. (3), on the target error.

    .. math:: \epsilon_T(h, g_T) \le \epsilon_S(h, g_S) + d_{\mathcal F}(\mathcal D_S, \mathcal D_T)
        + \min\big\{ \mathbb E_S[|g_S - g_T|],\ \mathbb E_T[|g_S - g_T|] \big\}

    Parameters
    ----------
    source_error
        :math:`\epsilon_S(h, g_S)` of :func:`expected_disagreement`.
    distance
        :math:`d_{\mathcal F}` for a class that contains :math:`|h - g_S|` and :math:`|h - g_T|`; both are needed, since
        the proof takes one of them for each side of the minimum.
    labelling_disagreement
        The disagreement of the two labelling functions under the source and under the target distribution.

    Examples
    --------
    >>> target_error_bound(0.125, 0.25, (0.5, 0.0625))
    0.4375
    """
    of_source, of_target = labelling_disagreement
    parts = {"source_error": source_error, "distance": distance, "labelling_disagreement": min(of_source, of_target)}
    for name, value in parts.items():
        if not value >= 0.0:
            raise InvalidInputError(f"{name} must be at least 0, got {value}; give an expectation of absolute values.")
    return sum(parts.values())


def _check_values(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInputError(f"{name} must be a list of values, got shape {array.shape}; give one value per point.")
    if not ((array >= 0.0) & (array <= 1.0)).all():
        raise InvalidInputError(f"{name} must lie in [0, 1], got {array.min():.6g} to {array.max():.6g}; rescale it.")
    return array


def _check_probabilities(values: ArrayLike, name: str, points: int) -> NDArray[np.float64]:
    array = _check_values(values, name)
    if array.size != points:
        raise InvalidInputError(f"{name} has {array.size} entries for {points} points; give one probability per point.")
    if abs(array.sum() - 1.0) > _ROUNDING:
        raise InvalidInputError(f"{name} must sum to 1, got {array.sum():.6g}; divide it by its sum.")
    return array

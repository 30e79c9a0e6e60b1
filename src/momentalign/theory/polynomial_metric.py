r"""Integral probability metrics on homogeneous polynomials, and the CMD as the paper defines it.

Stands for Eqs. (2), (7), (11) and (12) of Zellinger et al. (2019); Theorem 2 says that the sum equals
:func:`momentalign.cmd` with all cross-moments, ``cross=k`` (but ``cross=2`` is CV-CMD, its second term over sqrt(2)).

.. math:: \mathcal P^k = \{ x \mapsto \langle w, \boldsymbol\nu^{(k)}(x) \rangle : \lVert w \rVert_2 \le 1 \}

Samples have shape (rows, width), arrays or tensors; results are floats and float64 arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from momentalign.errors import InvalidInputError
from momentalign.moments.sample import monomials, read_pair, refuse_non_finite
from momentalign.validation import positive_int

__all__ = ["cmd_by_definition", "expectation_difference", "polynomial_ipm", "witness"]

# A coefficient vector may exceed the unit ball by this much: normalising rounds.
_ROUNDING = 1e-9


def polynomial_ipm(source: Any, target: Any, order: int, *, centralised: bool = False) -> float:
    r"""Return :math:`d_{\mathcal P^k}` of two samples, Eqs. (2) and (7), or its centralised form, Eq. (11).

    .. math:: d_{\mathcal P^k} = \sup_{\lVert w \rVert_2 \le 1} | \langle w, \Delta \rangle | = \lVert \Delta \rVert_2,
        \qquad \Delta = \mathbb E_S[\boldsymbol\nu^{(k)}(x)] - \mathbb E_T[\boldsymbol\nu^{(k)}(x)]

    Parameters
    ----------
    source, target
        Shapes (rows, width) and (other rows, width).
    order
        The degree k of the polynomials, at least 1.
    centralised
        Subtract each sample's own mean first; order 1 then gives zero.

    Examples
    --------
    >>> polynomial_ipm([[0.0], [1.0]], [[1.0], [2.0]], 2)
    2.0
    >>> polynomial_ipm([[0.0], [1.0]], [[1.0], [2.0]], 2, centralised=True)
    0.0
    """
    return float(torch.linalg.vector_norm(_moment_difference(source, target, order, centralised=centralised)))


def witness(source: Any, target: Any, order: int, *, centralised: bool = False) -> NDArray[np.float64]:
    r"""Return the unit coefficients :math:`\Delta / \lVert \Delta \rVert_2` that attain :func:`polynomial_ipm`.

    They follow the order of :func:`~momentalign.moments.sample.exponents`, shape (C(order + width - 1, order),). Where
    all moments agree every polynomial attains the distance zero, and the first monomial is returned.

    Examples
    --------
    >>> witness([[0.0, 0.0]], [[3.0, 4.0]], 1).tolist()
    [-0.6, -0.8]
    """
    difference = _moment_difference(source, target, order, centralised=centralised)
    if not bool(difference.any()):
        difference[0] = 1.0
    coefficients: NDArray[np.float64] = (difference / torch.linalg.vector_norm(difference)).numpy()
    return coefficients


def expectation_difference(
    coefficients: ArrayLike, source: Any, target: Any, order: int, *, centralised: bool = False
) -> float:
    r"""Return :math:`\mathbb E_S[p] - \mathbb E_T[p]` for the polynomial p of Eq. (7) with these coefficients.

    Parameters
    ----------
    coefficients
        The vector w, shape (C(order + width - 1, order),), inside the unit ball.
    source, target, order, centralised
        As in :func:`polynomial_ipm`, which no member of the class exceeds.

    Examples
    --------
    >>> expectation_difference([0.0, 1.0, 0.0], [[1.0, 2.0]], [[1.0, 5.0]], 2)
    -3.0
    """
    of_source, of_target = _monomial_pair(source, target, order, centralised=centralised)
    weights = _check_coefficients(coefficients, of_source.shape[1])
    return float((of_source @ weights).mean() - (of_target @ weights).mean())


def cmd_by_definition(source: Any, target: Any, order: int, *, weights: Sequence[float] | None = None) -> float:
    r"""Return the Central Moment Discrepancy with all cross-moments by its definition, Eq. (12).

    .. math:: \mathrm{cmd}_k = a_1\, d_{\mathcal P^1} + \sum_{j=2}^k a_j\, d^c_{\mathcal P^j}

    Parameters
    ----------
    source, target
        Shapes (rows, width) and (other rows, width).
    order
        The number k of moments.
    weights
        The k factors :math:`a_j \ge 0`; all one by default. For values in [a, b] take 1/\|b - a\|^j (Proposition 1).

    Examples
    --------
    >>> cmd_by_definition([[0.0], [1.0]], [[1.0], [1.0]], 2)
    0.75
    >>> cmd_by_definition([[0.0], [1.0]], [[1.0], [1.0]], 2, weights=[0.5, 0.25])
    0.3125
    """
    order = positive_int(order, "order")
    factors = [1.0] * order if weights is None else [float(weight) for weight in weights]
    if len(factors) != order or not all(factor >= 0.0 for factor in factors):
        raise InvalidInputError(f"weights must be {order} numbers of at least 0, got {weights!r}; give one per order.")
    return sum(
        factor * polynomial_ipm(source, target, j, centralised=j > 1) for j, factor in enumerate(factors, start=1)
    )


def _moment_difference(source: Any, target: Any, order: int, *, centralised: bool) -> Tensor:
    of_source, of_target = _monomial_pair(source, target, order, centralised=centralised)
    return of_source.mean(0) - of_target.mean(0)


def _monomial_pair(source: Any, target: Any, order: int, *, centralised: bool) -> tuple[Tensor, Tensor]:
    """Return the monomials of every row of both samples, (rows, monomials), in float64."""
    order = positive_int(order, "order")
    source, target, _ = read_pair(source, target)
    source, target = source.detach().cpu().double(), target.detach().cpu().double()
    if centralised:
        source, target = source - source.mean(0), target - target.mean(0)
    pair = monomials(source, order), monomials(target, order)
    refuse_non_finite(pair[0].sum() + pair[1].sum(), source, target)
    return pair


def _check_coefficients(coefficients: ArrayLike, count: int) -> Tensor:
    weights = np.asarray(coefficients, dtype=np.float64)
    if weights.shape != (count,):
        raise InvalidInputError(
            f"coefficients must have shape ({count},), one per monomial, got {weights.shape}; see moments.exponents."
        )
    norm = float(np.linalg.norm(weights))
    if not norm <= 1.0 + _ROUNDING:
        raise InvalidInputError(f"coefficients must lie in the unit ball, got norm {norm:.6g}; divide them by it.")
    return torch.from_numpy(weights.copy())

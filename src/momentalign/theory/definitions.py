r"""The CMD as the paper defines it: Eqs. (2), (7), (11) and (12) of Zellinger et al. (2019) on samples (rows, width).

.. math:: \mathcal P^k = \{ x \mapsto \langle w, \boldsymbol\nu^{(k)}(x) \rangle : \lVert w \rVert_2 \le 1 \}

Theorem 2 says that the sum of Eq. (12) equals :func:`momentalign.cmd` with all cross-moments, ``cross=k`` (but
``cross=2`` is CV-CMD, its second term over sqrt(2)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from momentalign.moments.sample import monomials, read_pair, refuse_non_finite
from momentalign.validation import check_row_values, positive_int

__all__ = ["cmd_by_definition", "polynomial_ipm"]


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
    order = positive_int(order, "order")
    source, target = (sample.detach().cpu().double() for sample in read_pair(source, target)[:2])
    if centralised:
        source, target = source - source.mean(0), target - target.mean(0)
    difference = monomials(source, order).mean(0) - monomials(target, order).mean(0)
    refuse_non_finite(difference, {"source": source, "target": target})
    return float(torch.linalg.vector_norm(difference))


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
    factors = np.ones(order) if weights is None else check_row_values(weights, "weights", rows=order)
    terms = [polynomial_ipm(source, target, j, centralised=j > 1) for j in range(1, order + 1)]
    return float(factors @ terms)

r"""Norms over all monomials of an order, Eq. (6), without building their list where it is long.

Each monomial counts once (weight 1). The reproducing kernel of that norm is the complete homogeneous symmetric
polynomial h_j of the products x_i y_i, and Newton's identities give it from Gram matrices of element-wise powers:

.. math:: p_i = X^{(i)} {Y^{(i)}}^\top, \qquad h_0 = 1, \qquad h_j = \frac1j \sum_{i=1}^j p_i h_{j-i}
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from momentalign.discrepancies.rounding import ROUNDING_ERRORS, guarded_norm, guarded_root
from momentalign.moments import monomials

__all__ = ["monomial_norms", "symmetric_polynomials"]

# Up to this many numbers the monomials are listed: that is exact to the last digit, the kernel's square only to half
# of them.
LISTED = 1_000_000
EPSILON = torch.finfo(torch.float64).eps


def monomial_norms(source: Tensor, target: Tensor, highest: int) -> Tensor:
    """Return the norms of the differences of all moments of orders 2 to `highest`, (..., highest - 1).

    `source` and `target` are centred samples, shapes (..., rows, width) and (..., other rows, width).
    """
    rows = source.shape[-2] + target.shape[-2]
    width = source.shape[-1]
    listed = [order for order in range(2, highest + 1) if math.comb(order + width - 1, order) * rows <= LISTED]
    terms = [_listed_norm(source, target, order) for order in listed]
    if len(listed) < highest - 1:
        terms += _kernel_norms(source, target, highest)[len(listed) :]
    return torch.stack(terms, -1)


def symmetric_polynomials(left: Tensor, right: Tensor, highest: int) -> list[Tensor]:
    """Return h_0 to h_highest of the element-wise products of all pairs of rows, each (..., left rows, right rows)."""
    left_power, right_power = left, right
    grams = [left @ right.transpose(-1, -2)]
    for _ in range(highest - 1):
        left_power, right_power = left_power * left, right_power * right
        grams.append(left_power @ right_power.transpose(-1, -2))
    kernels = [torch.ones_like(grams[0])]
    for order in range(1, highest + 1):
        parts = [grams[i - 1] * kernels[order - i] for i in range(1, order + 1)]
        kernels.append(torch.stack(parts).sum(0) / order)
    return kernels


def _listed_norm(source: Tensor, target: Tensor, order: int) -> Tensor:
    of_source, of_target = monomials(source, order), monomials(target, order)
    magnitude = of_source.detach().abs().mean(-2) + of_target.detach().abs().mean(-2)
    level = ROUNDING_ERRORS * torch.finfo(source.dtype).eps * torch.linalg.vector_norm(magnitude, dim=-1)
    return guarded_norm(of_source.mean(-2) - of_target.mean(-2), level)


def _kernel_norms(source: Tensor, target: Tensor, highest: int) -> list[Tensor]:
    """Norms of orders 2 to `highest` as roots of signed means of h_j; in float64, since the means cancel."""
    joined = torch.cat([source, target], -2).double()
    signs = torch.cat(
        [
            joined.new_full((source.shape[-2],), 1.0 / source.shape[-2]),
            joined.new_full((target.shape[-2],), -1.0 / target.shape[-2]),
        ]
    )
    norms = []
    for kernel in symmetric_polynomials(joined, joined, highest)[2:]:
        squares = (kernel @ signs) @ signs
        own = kernel.detach().diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt() @ signs.abs()
        level = max(ROUNDING_ERRORS * EPSILON, (ROUNDING_ERRORS * torch.finfo(source.dtype).eps) ** 2) * own.square()
        norms.append(guarded_root(squares, level).to(source.dtype))
    return norms

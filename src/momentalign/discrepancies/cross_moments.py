r"""Norms over all monomials of an order, Eq. (6), without building their list where it is long.

Each monomial counts once (weight 1). The reproducing kernel of that norm is the complete homogeneous symmetric
polynomial h_j of the products x_i y_i, and Newton's identities give it from Gram matrices of element-wise powers:

.. math:: p_i = X^{(i)} {Y^{(i)}}^\top, \qquad h_0 = 1, \qquad h_j = \frac1j \sum_{i=1}^j p_i h_{j-i}
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from momentalign.discrepancies.fused.choice import is_ordinary
from momentalign.discrepancies.fused.symmetric import squares_and_sizes, squares_gradient
from momentalign.discrepancies.rounding import guarded_norm, guarded_root
from momentalign.moments.rounding import ROUNDING_ERRORS
from momentalign.moments.sample import monomials

__all__ = ["cross_variance_norm", "monomial_norms", "symmetric_polynomials"]

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
    listed = [order for order in range(3, highest + 1) if math.comb(order + width - 1, order) * rows <= LISTED]
    terms = [cross_variance_norm(source, target), *(_listed_norm(source, target, order) for order in listed)]
    if len(terms) < highest - 1:
        terms += _kernel_norms(source, target, highest)[len(terms) :]
    return torch.stack(terms, -1)


def cross_variance_norm(source: Tensor, target: Tensor) -> Tensor:
    """Return the norm over all x_i x_j, once for i <= j, of the difference of the covariances of two centred samples.

    By covariance matrices or, for fewer rows than features, by Gram matrices: whichever is smaller.
    """
    rows, others, width = source.shape[-2], target.shape[-2], source.shape[-1]
    if rows + others < width:
        return guarded_root(*_cross_variance_square(source, target)).to(source.dtype)
    difference = _covariance(source) - _covariance(target)
    # Off-diagonal entries stand in the matrix twice and count once.
    once = torch.full_like(difference, math.sqrt(0.5))
    once.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    # Matrix products add rows one after the other; their error grows with the root of the number of rows.
    level = ROUNDING_ERRORS * torch.finfo(difference.dtype).eps * max(1.0, math.sqrt(max(rows, others)) / 4.0)
    variance = source.detach().square().mean(-2).sum(-1) + target.detach().square().mean(-2).sum(-1)
    return guarded_norm((difference * once).flatten(-2), level * variance)


def _covariance(centred: Tensor) -> Tensor:
    return centred.transpose(-1, -2) @ centred / centred.shape[-2]


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


def _cross_variance_square(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The square of that norm by Gram matrices, in float64 since their means cancel, and its rounding level."""
    joined, signs = _joined(source, target)
    gram = joined @ joined.transpose(-1, -2)
    frobenius = (gram.square() @ signs) @ signs
    diagonal = (joined.square().transpose(-1, -2) @ signs).square().sum(-1)  # difference of the variances
    own = gram.detach().diagonal(dim1=-2, dim2=-1) @ signs.abs()
    return (frobenius + diagonal) / 2, _square_level(source.dtype) * own.square()


def _kernel_norms(source: Tensor, target: Tensor, highest: int) -> list[Tensor]:
    """Norms of orders 2 to `highest` as roots of signed means of h_j; in float64, since the means cancel."""
    joined, signs = _joined(source, target)
    if joined.ndim == 2 and is_ordinary(joined):
        squares, own = _KernelSquares.apply(joined, signs, highest)  # type: ignore[no-untyped-call]
    else:
        squares, own = _kernel_squares(joined, signs, highest)
    level = _square_level(source.dtype) * own.square()
    return list(guarded_root(squares, level).to(source.dtype).unbind(-1))


def _joined(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both samples in float64, one after the other, and the weights that make a difference of means of their rows."""
    joined = torch.cat([source, target], -2).double()
    rows, others = source.shape[-2], target.shape[-2]
    return joined, torch.cat([joined.new_full((rows,), 1.0 / rows), joined.new_full((others,), -1.0 / others)])


def _square_level(dtype: torch.dtype) -> float:
    """Rounding level of a square relative to the squares it is the difference of."""
    return max(ROUNDING_ERRORS * EPSILON, (ROUNDING_ERRORS * torch.finfo(dtype).eps) ** 2)


def _kernel_squares(joined: Tensor, signs: Tensor, highest: int) -> tuple[Tensor, Tensor]:
    """Squared norms of orders 2 to `highest` in plain torch, and the size of what they are made of."""
    kernels = symmetric_polynomials(joined, joined, highest)[2:]
    squares = torch.stack([(kernel @ signs) @ signs for kernel in kernels], -1)
    return squares, torch.stack([_own_size(kernel, signs) for kernel in kernels], -1)


def _own_size(kernel: Tensor, signs: Tensor) -> Tensor:
    return kernel.detach().diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt() @ signs.abs()


class _KernelSquares(torch.autograd.Function):
    """:func:`_kernel_squares` tile by tile, with its closed gradient."""

    @staticmethod
    def forward(ctx: Any, joined: Tensor, signs: Tensor, highest: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(joined, signs)
        ctx.highest = highest
        squares, own = squares_and_sizes(joined, signs, highest)
        ctx.mark_non_differentiable(own)
        return squares, own

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        joined, signs = ctx.saved_tensors
        if torch.is_grad_enabled():  # The gradient is to be differentiated again.
            squares, _ = _kernel_squares(joined, signs, ctx.highest)
            return torch.autograd.grad(squares, joined, upstream, create_graph=True)[0], None, None
        return squares_gradient(joined, signs, ctx.highest, upstream), None, None

r"""Norms over all monomials of an order, Eq. (6), without building their list where it is long.

Each monomial counts once (weight 1). The reproducing kernel of that norm is the complete homogeneous symmetric
polynomial h_j of the products x_i y_i, and Newton's identities give it from Gram matrices of element-wise powers:

.. math:: p_i = X^{(i)} {Y^{(i)}}^\top, \qquad h_0 = 1, \qquad h_j = \frac1j \sum_{i=1}^j p_i h_{j-i}

A tile of rows is worked off while it is in the cache: the kernel is never stored as a whole, and only one half of it,
which is symmetric, is computed. Of p_1 to p_k the last is never needed as a matrix: h_k is linear in it, and its sums
are products of sums. The slopes are :math:`\partial h_j / \partial p_i = h_{j-i} / i`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from momentalign.discrepancies.fused import is_ordinary
from momentalign.moments.centre import ROUNDING_ERRORS
from momentalign.moments.sample import RowWeights, guarded_norm, guarded_root, level_of, monomials, row_mean

__all__ = ["cross_variance_norm", "monomial_norms", "norm_of_covariances", "symmetric_polynomials"]


# Numbers of a tile of the kernel: on the CPU they stay in the second cache, elsewhere many are worked on at once.
CPU_TILE, TILE = 2**16, 2**24
# Up to this many numbers the monomials are listed: that is exact to the last digit, the kernel's square only to half
# of them.
LISTED = 1_000_000
EPSILON = torch.finfo(torch.float64).eps


def monomial_norms(source: Tensor, target: Tensor, highest: int, weights: RowWeights = (None, None)) -> Tensor:
    """Return the norms of the differences of all moments of orders 2 to `highest`, (..., highest - 1).

    `source` and `target` are centred samples, shapes (..., rows, width) and (..., other rows, width); `weights` are
    those of their rows, with the sum 1 each.
    """
    rows = source.shape[-2] + target.shape[-2]
    width = source.shape[-1]
    listed = [order for order in range(3, highest + 1) if math.comb(order + width - 1, order) * rows <= LISTED]
    terms = [cross_variance_norm(source, target, weights)]
    terms += [_listed_norm(source, target, order, weights) for order in listed]
    if len(terms) < highest - 1:
        terms += _kernel_norms(source, target, highest, weights)[len(terms) :]
    return torch.stack(terms, -1)


def cross_variance_norm(source: Tensor, target: Tensor, weights: RowWeights = (None, None)) -> Tensor:
    """Return the norm over all x_i x_j, once for i <= j, of the difference of the covariances of two centred samples.

    By covariance matrices or, for fewer rows than features, by Gram matrices: whichever is smaller.
    """
    rows, others, width = source.shape[-2], target.shape[-2], source.shape[-1]
    if rows + others < width:
        return guarded_root(*_cross_variance_square(source, target, weights)).to(source.dtype)
    of_source, of_target = weights
    squares = source.detach().square(), target.detach().square()
    variance = row_mean(squares[0], of_source).sum(-1) + row_mean(squares[1], of_target).sum(-1)
    difference = _covariance(source, of_source) - _covariance(target, of_target)
    return norm_of_covariances(difference, variance, rows=max(rows, others))


def norm_of_covariances(difference: Tensor, variance: Tensor, *, rows: float | Tensor) -> Tensor:
    """Return the norm of a difference of covariance matrices over all x_i x_j, i <= j; zero where it is noise.

    `variance` is the sum of the variances of both samples, `rows` the number of rows of the larger one.
    """
    # Off-diagonal entries stand in the matrix twice and count once.
    once = torch.full_like(difference, math.sqrt(0.5))
    once.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    # Matrix products add rows one after the other; their error grows with the root of the number of rows.
    growth = torch.as_tensor(rows, dtype=variance.dtype, device=variance.device).sqrt() / 4.0
    level = ROUNDING_ERRORS * torch.finfo(difference.dtype).eps * growth.clamp_min(1.0)
    return guarded_norm((difference * once).flatten(-2), level * variance)


def _covariance(centred: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return centred.transpose(-1, -2) @ centred / centred.shape[-2]
    return centred.transpose(-1, -2) @ (weights[:, None] * centred)


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


def _listed_norm(source: Tensor, target: Tensor, order: int, weights: RowWeights) -> Tensor:
    products = monomials(source, order), monomials(target, order)
    of_source, of_target = (row_mean(values, own) for values, own in zip(products, weights, strict=True))
    sizes = [row_mean(values.detach().abs(), own) for values, own in zip(products, weights, strict=True)]
    return guarded_norm(of_source - of_target, level_of(sizes[0] + sizes[1]))


def _cross_variance_square(source: Tensor, target: Tensor, weights: RowWeights) -> tuple[Tensor, Tensor]:
    """The square of that norm by Gram matrices, in float64 since their means cancel, and its rounding level."""
    joined, signs = _joined(source, target, weights)
    gram = joined @ joined.transpose(-1, -2)
    frobenius = (gram.square() @ signs) @ signs
    diagonal = (joined.square().transpose(-1, -2) @ signs).square().sum(-1)  # difference of the variances
    own = gram.detach().diagonal(dim1=-2, dim2=-1) @ signs.abs()
    return (frobenius + diagonal) / 2, _square_level(source.dtype) * own.square()


def _kernel_norms(source: Tensor, target: Tensor, highest: int, weights: RowWeights) -> list[Tensor]:
    """Norms of orders 2 to `highest` as roots of signed means of h_j; in float64, since the means cancel."""
    joined, signs = _joined(source, target, weights)
    if joined.ndim == 2 and is_ordinary(joined):
        squares, own = _KernelSquares.apply(joined, signs, highest)  # type: ignore[no-untyped-call]
    else:
        squares, own = _kernel_squares(joined, signs, highest)
    level = _square_level(source.dtype) * own.square()
    return list(guarded_root(squares, level).to(source.dtype).unbind(-1))


def _joined(source: Tensor, target: Tensor, weights: RowWeights) -> tuple[Tensor, Tensor]:
    """Both samples in float64, one after the other, and the weights that make a difference of means of their rows."""
    joined = torch.cat([source, target], -2).double()
    shares = [
        joined.new_full((sample.shape[-2],), 1.0 / sample.shape[-2]) if own is None else own.double()
        for sample, own in zip((source, target), weights, strict=True)
    ]
    return joined, torch.cat([shares[0], -shares[1]])


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
        squares, own = _squares_and_sizes(joined, signs, highest)
        ctx.mark_non_differentiable(own)
        return squares, own

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        joined, signs = ctx.saved_tensors
        if torch.is_grad_enabled():  # The gradient is to be differentiated again.
            squares, _ = _kernel_squares(joined, signs, ctx.highest)
            return torch.autograd.grad(squares, joined, upstream, create_graph=True)[0], None, None
        return _squares_gradient(joined, signs, ctx.highest, upstream), None, None


def _squares_and_sizes(joined: Tensor, signs: Tensor, highest: int) -> tuple[Tensor, Tensor]:
    """Return the squared norms of orders 2 to `highest` and the sizes of what they are differences of.

    Parameters
    ----------
    joined
        Rows of both centred samples, (rows, width), float64.
    signs
        The weight of each row in the difference of the means, (rows,).
    """
    powers = _powers(joined, highest)
    squares = joined.new_zeros(highest + 1)
    own = joined.new_zeros((highest + 1, len(joined)))
    for rows, grams in _tiles(powers[:-1]):
        sums = _signed_sums(grams, signs[rows], own[:, rows])
        sums[:, rows.stop - rows.start :] *= 2.0  # The other half of the kernel is the same.
        squares += sums @ signs[rows.start :]
    squares[highest] += (signs @ powers[-1]).square().sum() / highest
    own[highest] += powers[-1].square().sum(1) / highest
    return squares[2:], own[2:].clamp_min(0.0).sqrt() @ signs.abs()


def _squares_gradient(joined: Tensor, signs: Tensor, highest: int, upstream: Tensor) -> Tensor:
    """Return the gradient of ``(upstream * squares).sum()`` with respect to `joined`."""
    powers = _powers(joined, highest)
    weights = torch.cat([upstream.new_zeros(2), upstream]).to(joined)
    gradient = powers[-2] * ((2.0 * weights[highest]) * (signs @ powers[-1]))
    weighted = [power * signs[:, None] for power in powers[:-1]]
    for rows, grams in _tiles(powers[:-1]):
        _slopes_in_place(grams, weights)
        after = slice(rows.stop, None)
        for i, slope in enumerate(grams):
            # d p_i(x, y) / dx = i x^(i-1) y^i, twice by symmetry; the signs weight rows and columns.
            _add_product(gradient, powers, i, rows, slope @ weighted[i][rows.start :])
            _add_product(gradient, powers, i, after, slope[:, rows.stop - rows.start :].T @ weighted[i][rows])
    return gradient.mul_(signs[:, None])


def _powers(joined: Tensor, highest: int) -> list[Tensor]:
    powers = [joined]
    for _ in range(highest - 1):
        powers.append(powers[-1] * joined)
    return powers


def _tiles(powers: list[Tensor]) -> Iterator[tuple[slice, Tensor]]:
    """Yield some rows and p_1, p_2, ... of them with all rows from their first on: one half of the symmetric kernel.

    The arrays (powers, tile, rows) are in memory that is used again.
    """
    count = len(powers[0])
    size = min(count, max(1, (CPU_TILE if powers[0].device.type == "cpu" else TILE) // count))
    buffer = powers[0].new_empty(len(powers) * size * count)
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        shape = (len(powers), rows.stop - start, count - start)
        grams = buffer[: math.prod(shape)].view(shape)
        for power, gram in zip(powers, grams, strict=True):
            torch.mm(power[rows], power[start:].T, out=gram)
        yield rows, grams


def _signed_sums(grams: Tensor, signs: Tensor, own: Tensor) -> Tensor:
    """Return ``signs @ h_j``, (k + 1, rows), and write h_j of each row with itself to `own`; h_k without p_k / k."""
    sums = grams.new_zeros((len(grams) + 2, grams.shape[-1]))
    if grams.device.type == "cpu":
        from momentalign.discrepancies._cpu import add_kernels

        add_kernels(grams.numpy(), signs.numpy(), sums.numpy(), own.numpy())
    else:
        _add_kernels_in_torch(grams, signs, sums, own)
    return sums


def _add_kernels_in_torch(grams: Tensor, signs: Tensor, sums: Tensor, own: Tensor) -> None:
    for j, kernel in enumerate(_kernels(grams)[2:], start=2):
        sums[j] += signs @ kernel
        own[j] = kernel.diagonal()


def _slopes_in_place(grams: Tensor, weights: Tensor) -> None:
    """Turn p_i into the slope of ``sum_j weights[j] h_j`` in p_i."""
    if grams.device.type == "cpu":
        from momentalign.discrepancies._cpu import slopes_in_place

        slopes_in_place(grams.numpy(), weights.numpy())
    else:
        _slopes_in_torch(grams, weights)


def _slopes_in_torch(grams: Tensor, weights: Tensor) -> None:
    kernels = _kernels(grams)
    for i, gram in enumerate(grams, start=1):
        gram.zero_()
        for j in range(max(i, 2), len(kernels)):
            gram.addcmul_(kernels[j - i], weights[j] / i)


def _kernels(grams: Tensor) -> list[Tensor]:
    """h_0 to h_k from p_1 to p_(k-1); h_k without p_k / k."""
    kernels = [torch.ones_like(grams[0])]
    for order in range(1, len(grams) + 2):
        kernel = grams[order - 1].clone() if order <= len(grams) else torch.zeros_like(grams[0])
        for i in range(1, order):
            kernel.addcmul_(grams[i - 1], kernels[order - i])
        kernels.append(kernel.div_(order))
    return kernels


def _add_product(gradient: Tensor, powers: list[Tensor], i: int, rows: slice, product: Tensor) -> None:
    if i == 0:
        gradient[rows].add_(product, alpha=2.0)
    else:
        gradient[rows].addcmul_(powers[i - 1][rows], product, value=2.0 * (i + 1))

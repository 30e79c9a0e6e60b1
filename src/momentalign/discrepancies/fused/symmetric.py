r"""Squared norms over all monomials of an order, from the symmetric-polynomial kernel, with its closed gradient.

Newton's identities give the kernel, :math:`h_j = \frac1j \sum_i p_i h_{j-i}`, and its slopes,
:math:`\partial h_j / \partial p_i = h_{j-i} / i`. A tile of rows is worked off while it is in the cache; the kernel is
never stored as a whole, and only one half of it, which is symmetric, is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["squares_and_sizes", "squares_gradient"]

# Numbers of a tile of the kernel: on the CPU they stay in the second cache, elsewhere many are worked on at once.
CPU_TILE, TILE = 2**16, 2**24


def squares_and_sizes(joined: Tensor, signs: Tensor, highest: int) -> tuple[Tensor, Tensor]:
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


def squares_gradient(joined: Tensor, signs: Tensor, highest: int, upstream: Tensor) -> Tensor:
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
        from momentalign.discrepancies.fused.symmetric_loops import add_kernels

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
        from momentalign.discrepancies.fused.symmetric_loops import slopes_in_place

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

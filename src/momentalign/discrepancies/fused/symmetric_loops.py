"""Compiled loops over tiles of the symmetric-polynomial kernel: Newton's identities row by row, in the nearest cache.

`grams` (k - 1, tile, rows) holds p_1 to p_(k-1) of the first rows with all of them. The last one, p_k, is never needed
as a matrix: h_k is linear in it, and its sums are products of sums.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from momentalign.discrepancies.fused.kernels import compiled

__all__ = ["add_kernels", "slopes_in_place"]

Array: TypeAlias = Any  # a float64 array


@compiled
def _fill_kernels(grams: Array, row: int, highest: int, kernels: Array) -> None:
    """Write h_0 to h_highest of one row with all rows to `kernels`, h_k without its part p_k / k."""
    known, width = grams.shape[0], grams.shape[2]
    kernels[0] = 1.0
    for j in range(1, highest + 1):
        out = kernels[j]
        if j <= known:
            last = grams[j - 1, row]
            for c in range(width):
                out[c] = last[c]
        else:
            out[:] = 0.0
        for i in range(1, j):
            gram, before = grams[i - 1, row], kernels[j - i]
            for c in range(width):
                out[c] += gram[c] * before[c]
        inverse = 1.0 / j
        for c in range(width):
            out[c] *= inverse


@compiled
def add_kernels(grams: Array, signs: Array, sums: Array, own: Array) -> None:
    """Add ``signs @ h_j`` to `sums` (k + 1, rows) and write h_j of each row with itself to `own` (k + 1, tile)."""
    known, tile, width = grams.shape
    kernels = np.empty((known + 2, width))
    for row in range(tile):
        _fill_kernels(grams, row, known + 1, kernels)
        sign = signs[row]
        for j in range(2, known + 2):
            total, kernel = sums[j], kernels[j]
            for c in range(width):
                total[c] += sign * kernel[c]
            own[j, row] = kernel[row]


@compiled
def slopes_in_place(grams: Array, weights: Array) -> None:
    """Turn p_i into ``sum_j weights[j] h_(j-i) / i``, the slope of the weighted sum in p_i, for i below k."""
    known, tile, width = grams.shape
    kernels = np.empty((known + 1, width))
    for row in range(tile):
        _fill_kernels(grams, row, known, kernels)
        for i in range(1, known + 1):
            slope = grams[i - 1, row]
            slope[:] = 0.0
            for j in range(max(i, 2), known + 2):
                factor, kernel = weights[j] / i, kernels[j - i]
                for c in range(width):
                    slope[c] += factor * kernel[c]

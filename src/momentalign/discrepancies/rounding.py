"""Norms that know their rounding level: where two samples coincide, a distance and its gradient are zero, not noise.

The distances of Theorem 2 are sums of norms, not of squared norms, so their gradients keep ordinary size up to
equality.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["guarded_norm", "guarded_root"]


def guarded_norm(difference: Tensor, level: Tensor) -> Tensor:
    """Return the Euclidean norm over the last dimension; zero, with zero gradient, where it does not exceed `level`."""
    peak = difference.detach().abs().amax(-1)
    peak = torch.where(
        peak > 0, peak, torch.ones_like(peak)
    )  # Squares of tiny or huge differences would leave float32.
    squares = (difference / peak.unsqueeze(-1)).square().sum(-1)
    return peak * guarded_root(squares, (level / peak).square())


def guarded_root(squares: Tensor, level: Tensor) -> Tensor:
    """Return the square root; zero, with zero gradient, where `squares` does not exceed `level`. NaN stays NaN."""
    noise = squares.detach() <= level
    # The inner `where` keeps the infinite slope of the root at zero out of the gradient: 0 * inf is NaN.
    root = torch.where(noise, torch.ones_like(squares), squares).sqrt()
    return torch.where(noise, torch.zeros_like(root), root)

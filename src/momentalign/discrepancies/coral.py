r"""Correlation alignment (CORAL): the squared Frobenius distance of two covariance matrices.

The peer method of Sections 6.3 to 6.5 in Zellinger et al. (2019). Reference: B. Sun, K. Saenko, Deep CORAL: correlation
alignment for deep domain adaptation, 2016.

.. math:: \mathrm{coral}(S, T) = \frac{1}{4 d^2} \lVert \mathrm{Cov}(S) - \mathrm{Cov}(T) \rVert_F^2
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, overload

from numpy.typing import ArrayLike
from torch import Tensor

from momentalign.discrepancies.base import Compiled, DistanceLoss, Stacked
from momentalign.errors import InvalidInputError
from momentalign.moments.sample import full_precision, read_pair, refuse_non_finite, sample_moments

__all__ = ["CORALLoss", "coral", "stacked_coral"]


@overload
def coral(source: Tensor, target: Tensor) -> Tensor: ...
@overload
def coral(source: ArrayLike, target: ArrayLike) -> float: ...
def coral(source: Any, target: Any) -> Tensor | float:
    """Deep CORAL distance of two samples, as published: covariances with rows - 1, divided by four times width squared.

    Parameters
    ----------
    source, target
        Shapes (rows, width) and (other rows, width), at least two rows each. Torch tensors give a differentiable
        scalar, arrays a float. Columns are taken by position; where both samples name them, the names must agree.

    Examples
    --------
    >>> import momentalign as ma
    >>> ma.coral([[0.0], [2.0]], [[0.0], [4.0]])  # variances 2 and 8
    9.0
    """
    source, target, differentiable = read_pair(source, target)
    for name, sample in (("source", source), ("target", target)):
        if sample.shape[0] < 2:
            raise InvalidInputError(f"coral needs at least 2 rows for a covariance, {name} has {sample.shape[0]}.")
    with full_precision(source.device):
        value = stacked_coral(source, target)
    refuse_non_finite(value, {"source": source, "target": target})
    return value if differentiable else float(value)


class CORALLoss(DistanceLoss):
    """:func:`coral` as a loss: ``loss = CORALLoss(); loss(source_activations, target_activations)``.

    Examples
    --------
    >>> import torch
    >>> loss = CORALLoss()
    >>> loss(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [0.0]]))
    tensor(1.)
    """

    name = "coral"
    stack_key: Hashable = "coral"

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the distance of two batches of activations, shapes (rows, width)."""
        return coral(source, target)

    @staticmethod
    def stack(_losses: Sequence[CORALLoss]) -> Stacked:
        """Return the distances of stacked samples."""
        return stacked_coral

    def compiled(self) -> Compiled:
        """Return its kind in the compiled training loops."""
        return Compiled("coral")


def stacked_coral(source: Tensor, target: Tensor) -> Tensor:
    """Return the distance of stacked samples (..., rows, width)."""
    difference = _covariance(source) - _covariance(target)
    return difference.square().sum((-2, -1)) / (4 * source.shape[-1] ** 2)


def _covariance(sample: Tensor) -> Tensor:
    centred = sample_moments(sample, 1).centred
    return centred.transpose(-1, -2) @ centred / max(sample.shape[-2] - 1, 1)

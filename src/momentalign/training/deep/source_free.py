r"""The CMD between target activations and the moments of the source's, where the source itself may not be had.

Eq. (23) of Zellinger et al. (2019) needs of a domain nothing but its moments: whoever has the source may store them,
with the network, and hand on neither row nor label. With Liang et al. (2020, see
:mod:`~momentalign.training.target_loss`), what is above the layer then stays as the source has taught it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from momentalign.discrepancies.base import DistanceLoss, Interval
from momentalign.discrepancies.cross_moments import norm_of_covariances
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.moments.sample import (
    Marginals,
    full_precision,
    marginal_terms,
    read_sample,
    refuse_non_finite,
    sample_moments,
)
from momentalign.moments.streaming import Moments
from momentalign.networks.layers import eval_mode, network_outputs, recorded
from momentalign.training.deep.ranks import number_of_ranks, sum_over_ranks
from momentalign.validation import check_interval, positive_int

__all__ = ["MomentsLoss", "layer_moments"]


def layer_moments(model: nn.Module, layer: str, loader: Iterable[Any], *, order: int = 5, cross: int = 1) -> Moments:
    """Return the moments of what a layer of a trained network gives for the source: all that leaves it.

    Parameters
    ----------
    model, layer
        The network, which is used in eval mode, and the name of the layer.
    loader
        Gives batches of inputs, or (inputs, ...), where the network is.
    order, cross
        As in :class:`~momentalign.Moments`; ``cross=2`` for ``"cv-cmd"``.
    """
    moments = Moments(order, cross)
    with eval_mode(model), torch.no_grad():
        for batch in loader:
            with recorded(model, [layer]) as activations:
                network_outputs(model, batch[0] if isinstance(batch, (list, tuple)) else batch)
            moments.update(activations[layer].float().cpu())
    return moments


class MomentsLoss(DistanceLoss):
    """The distance of ``Moments.cmd`` as a loss: ``loss(anything, target)``, the source being known by its moments.

    Parameters
    ----------
    moments
        Of the source's activations, with ``cross=2`` for the CV-CMD.
    n_moments, interval, cross
        As in :class:`~momentalign.CMDLoss`; no more orders than the moments have.

    Examples
    --------
    >>> import momentalign as ma
    >>> source, target = torch.rand(50, 3), torch.rand(40, 3)
    >>> loss = MomentsLoss(ma.Moments.of(source))
    >>> torch.testing.assert_close(loss(None, target), ma.cmd(source, target))
    """

    def __init__(
        self, moments: Moments, n_moments: int = 5, interval: Interval | None = (0.0, 1.0), cross: int = 1
    ) -> None:
        super().__init__()
        if not isinstance(moments, Moments):
            raise InvalidTypeError(f"source_moments must be ma.Moments, got {type(moments).__name__}.")
        if positive_int(n_moments, "n_moments") > moments.order or cross > moments.cross:
            raise InvalidInputError(
                f"n_moments={n_moments} of {'cv-cmd' if cross == 2 else 'cmd'} are more than {moments!r} holds; lower "
                "n_moments, or make them with ma.Moments(order, cross=2)."
            )
        self.n_moments, self.cross, self.interval = n_moments, cross, interval
        self._scale = check_interval(interval)
        self._mean = torch.tensor(moments.mean)
        orders = torch.arange(2.0, moments.order + 1.0, dtype=torch.float64)
        self._central = torch.tensor(moments.central) / self._scale ** orders[:, None]
        self._variance = torch.tensor(moments.variance) / self._scale**2
        self._covariance = torch.tensor(moments.covariance) / self._scale**2 if cross == 2 else None

    def forward(self, source: Any, target: Tensor) -> Tensor:
        """Return the distance of target activations (rows, width) from the source's moments."""
        return self.orders(source, target).sum()

    def orders(self, source: Any, target: Tensor) -> Tensor:  # noqa: ARG002
        """Return the terms of the distance."""
        rows = read_sample(target, "target")
        if rows.shape[1] != len(self._mean):
            raise InvalidInputError(
                f"source_moments are of {len(self._mean)} features and the layer gives {rows.shape[1]}; give those of "
                "this layer."
            )
        rows = _of_all_ranks(rows if rows.dtype == torch.float64 else rows.float())
        with full_precision(rows.device):
            found = sample_moments(rows, self.n_moments, scale=self._scale)
            terms = marginal_terms(self._marginals(rows), found, scale=self._scale)
            if self._covariance is not None:
                difference = found.centred.T @ found.centred / len(rows) - self._covariance.to(rows)
                variance = self._variance.sum().to(rows) + found.central[0].detach().sum()
                crossed = norm_of_covariances(difference, variance, rows=len(rows)) / math.sqrt(2.0)
                terms = torch.cat([terms[:1], crossed[None], terms[2:]])
        refuse_non_finite(terms, {"target": rows})
        return terms

    def _marginals(self, like: Tensor) -> Marginals:
        """The source's moments in the type and on the device of activations."""
        shift = self._mean.to(like.dtype)
        residual = (self._mean - shift.double()) / self._scale
        # For the rounding level only: E|z|^j from the even moment below j.
        even = [self._variance, *self._central[2::2]]
        sizes = [even[max(j // 2, 1) - 1] ** (j / (2 * max(j // 2, 1))) for j in range(1, self.n_moments + 1)]
        parts = shift[None], residual[None], self._central[: self.n_moments - 1], torch.stack(sizes)
        return Marginals(*(part.to(like) for part in parts))


def _of_all_ranks(rows: Tensor) -> Tensor:
    """The rows of all ranks, as many of each; the gradient is that of the sum of all ranks' losses."""
    if number_of_ranks() == 1:
        return rows
    own = dist.get_rank()
    parts = [rows if rank == own else torch.zeros_like(rows) for rank in range(number_of_ranks())]
    return sum_over_ranks(torch.cat(parts))

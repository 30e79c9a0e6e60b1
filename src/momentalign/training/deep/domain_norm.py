"""Batch normalisation with statistics of its own for each domain (AdaBN).

Reference: Y. Li, N. Wang, J. Shi, J. Liu, X. Hou, Revisiting batch normalization for practical domain adaptation, 2016.
The weights of a layer are shared, its running mean and variance are not. The network itself holds those of the target,
where it is going to work; those of the source are kept here and lent to it for source batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from momentalign.errors import InvalidInputError

__all__ = ["SourceStatistics"]

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class SourceStatistics(nn.Module):
    """The running statistics of the source domain for every batch-norm layer of a network.

    Examples
    --------
    >>> import torch
    >>> network = nn.Sequential(nn.BatchNorm1d(1, momentum=1.0))
    >>> statistics = SourceStatistics(network)
    >>> with statistics.lent_to(network):
    ...     _ = network(torch.tensor([[4.0], [6.0]]))
    >>> _ = network(torch.tensor([[0.0], [1.0]]))
    >>> network[0].running_mean, statistics.statistics_0_running_mean
    (tensor([0.5000]), tensor([5.]))
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        layers = _tracking_layers(network)
        if not layers:
            raise InvalidInputError(
                f"domain_norm=True asks for batch-norm layers with running statistics, {type(network).__name__} has "
                "none; leave domain_norm out."
            )
        for index, layer in enumerate(layers):
            for name in STATISTICS:
                self.register_buffer(f"statistics_{index}_{name}", layer.get_buffer(name).clone())

    @contextmanager
    def lent_to(self, network: nn.Module) -> Iterator[None]:
        """Let the network normalise with, and update, the statistics of the source."""
        self._exchange(network)
        try:
            yield
        finally:
            self._exchange(network)

    def _exchange(self, network: nn.Module) -> None:
        for index, layer in enumerate(_tracking_layers(network)):
            for name in STATISTICS:
                own = f"statistics_{index}_{name}"
                lent = self._buffers[own]
                self._buffers[own], layer._buffers[name] = layer._buffers[name], lent


def _tracking_layers(network: nn.Module) -> list[_BatchNorm]:
    return [layer for layer in network.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]

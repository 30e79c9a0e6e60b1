"""What is kept beside the weights of a network: their average over the last steps, batch norm of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from momentalign.errors import InvalidInputError
from momentalign.training.deep.lightning import pl
from momentalign.validation import check_number

__all__ = ["DECAY", "AveragedWeights", "SourceStatistics", "move_average"]

DECAY = 0.999


def move_average(average: Sequence[Tensor], weights: Sequence[Tensor], steps: int, decay: float) -> None:
    r"""Move averages of weights, in place, after so many steps towards what the weights are now.

    .. math:: \bar w_t = \bar w_{t-1} + \max(1 - d, 9 / (10 + t)) (w_t - \bar w_{t-1})
    """
    torch._foreach_lerp_(list(average), list(weights), max(1.0 - decay, 9.0 / (10.0 + steps)))


class AveragedWeights(pl.Callback):
    """Averages the weights of the network while it trains and replaces them by the averages at the end.

    The averages of :func:`move_average` scatter less than the weights of any step (B. Polyak, A. Juditsky, Acceleration
    of stochastic approximation by averaging, 1992; with exponential weights A. Tarvainen, H. Valpola, Mean teachers are
    better role models, 2017).

    Parameters
    ----------
    decay
        What is left of the average in the next step once it is warm: 0.999 averages over about 1,000 steps.

    Examples
    --------
    >>> AveragedWeights(0.99).decay
    0.99
    """

    def __init__(self, decay: float = DECAY) -> None:
        self.decay = check_number(decay, "decay", least=0.0, below=1.0, example=0.999)
        self._average: list[Tensor] = []
        self._steps = 0

    def setup(self, _trainer: pl.Trainer, _pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """Begin anew with every fit; where one is resumed, its state is loaded after this."""
        self._average, self._steps = [], 0

    def on_train_batch_end(self, _trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        """Take in the weights of this step."""
        weights = _weights(pl_module)
        if len(self._average) != len(weights):
            self._average = [weight.clone() for weight in weights]
        self._average = [average.to(weight.device) for average, weight in zip(self._average, weights, strict=True)]
        move_average(self._average, weights, self._steps, self.decay)
        self._steps += 1

    def on_train_end(self, _trainer: pl.Trainer, pl_module: Any) -> None:
        """Put the averages into the network."""
        for weight, average in zip(_weights(pl_module), self._average, strict=True):
            weight.copy_(average)

    def state_dict(self) -> dict[str, Any]:
        """Return what a run needs to go on."""
        return {"steps": self._steps, "average": [average.clone() for average in self._average]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self._steps, self._average = state_dict["steps"], [average.clone() for average in state_dict["average"]]


def _weights(module: Any) -> list[Tensor]:
    """The weights of the network as they are; not those of a domain classifier beside it."""
    return [weight.detach() for weight in module.model.parameters() if weight.is_floating_point()]


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class SourceStatistics(nn.Module):
    """The running statistics of the source domain for every batch-norm layer of a network (AdaBN).

    The weights of a layer are shared, its running mean and variance are not. The network itself holds those of the
    target, where it is going to work; those of the source are kept here and lent to it for source batches. Reference:
    Y. Li, N. Wang, J. Shi, J. Liu, X. Hou, Revisiting batch normalization for practical domain adaptation, 2016.

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

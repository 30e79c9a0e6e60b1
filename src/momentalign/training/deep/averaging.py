r"""The average of the weights over the last steps, which scatters less than the weights of any step.

.. math:: \bar w_t = \bar w_{t-1} + \max(1 - d, 9 / (10 + t)) (w_t - \bar w_{t-1})

References: B. Polyak, A. Juditsky, Acceleration of stochastic approximation by averaging, 1992; A. Tarvainen, H.
Valpola, Mean teachers are better role models, 2017 (exponential weights). The beginning is forgotten quickly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from momentalign.errors import InvalidInputError
from momentalign.training.deep.lightning import pl

__all__ = ["AveragedWeights"]


class AveragedWeights(pl.Callback):
    """Averages the weights of the network while it trains and puts the averages in their place at the end.

    Parameters
    ----------
    decay
        What is left of the average in the next step once it is warm: 0.999 averages over about 1,000 steps.

    Examples
    --------
    >>> AveragedWeights(0.99).decay
    0.99
    """

    def __init__(self, decay: float = 0.999) -> None:
        if not 0.0 <= decay < 1.0:
            raise InvalidInputError(f"decay must be at least 0 and less than 1, got {decay}; try decay=0.999.")
        self.decay = decay
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
        torch._foreach_lerp_(self._average, weights, max(1.0 - self.decay, 9.0 / (10.0 + self._steps)))
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

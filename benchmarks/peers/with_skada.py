"""skada 0.6: its DomainAwareNet on skorch with the CMD as the domain loss, trained through ``fit`` as its examples do.

It takes dense arrays, and drops the rows of an epoch that fill no batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from skada.deep.base import (
    BaseDALoss,
    DomainAwareCriterion,
    DomainAwareModule,
    DomainAwareNet,
    DomainBalancedDataLoader,
)
from torch import Tensor, nn


class Network(nn.Module):
    """One hidden layer of sigmoid units."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(inputs, 50), nn.Sigmoid())
        self.head = nn.Linear(50, 2)
        nn.init.xavier_uniform_(self.hidden[0].weight)

    def forward(self, rows: Tensor, sample_weight: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return the outputs; skada hands a weight of each row to every module."""
        return self.head(self.hidden(rows))


class CMDLoss(BaseDALoss):
    """The CMD of five moments as anyone would write it."""

    def forward(self, features_s: Tensor, features_t: Tensor, **_: Any) -> Tensor:
        """Return the distance between the hidden activations of both domains."""
        mean_source, mean_target = features_s.mean(0), features_t.mean(0)
        centred_source, centred_target = features_s - mean_source, features_t - mean_target
        distance = (mean_source - mean_target).norm()
        for order in range(2, 6):
            distance = distance + ((centred_source**order).mean(0) - (centred_target**order).mean(0)).norm()
        return distance


def train(
    source: NDArray[np.float32], labels: NDArray[np.int64], target: NDArray[np.float32], seed: int
) -> tuple[int, Callable[[Any], NDArray[np.int64]]]:
    """Fit a domain-aware net; a target row has the label -1 and a negative domain."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    net = DomainAwareNet(
        module=DomainAwareModule,
        module__base_module=Network(source.shape[1]),
        module__layer_name="hidden",
        iterator_train=DomainBalancedDataLoader,
        criterion=DomainAwareCriterion(nn.CrossEntropyLoss(), CMDLoss(), reg=1.0),
        optimizer=torch.optim.Adagrad,
        lr=0.01,
        batch_size=300,
        max_epochs=50,
        train_split=None,
        verbose=0,
    )
    rows = np.concatenate([source, target])
    codes = np.concatenate([labels, np.full(len(target), -1)])
    domains = np.concatenate([np.full(len(source), 1), np.full(len(target), -2)])
    net.fit(rows, codes, sample_domain=domains)
    steps = int(net.optimizer_.state[net.module_.base_module_.head.bias]["step"])
    return steps, lambda test: net.predict(test, sample_domain=np.full(len(test), -2), allow_source=True)

"""Plain torch: a DataLoader loop as tutorials write it, or, for CSR matrices, sparse rows cut into batches once.

DataLoaders cannot batch sparse rows, so the second keeps the batches of its one shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

Batches = Iterable[tuple[Tensor, Tensor, Tensor]]


class Network(nn.Module):
    """One hidden layer of sigmoid units; weights (inputs, outputs), since sparse rows stand on the left of products."""

    def __init__(self, inputs: int, units: int = 50, classes: int = 2) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, units)))
        self.bias = nn.Parameter(torch.zeros(units))
        self.head = nn.Linear(units, classes)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return hidden activations and outputs."""
        hidden = torch.sigmoid(rows @ self.weight + self.bias)
        return hidden, self.head(hidden)


def cmd(source: Tensor, target: Tensor) -> Tensor:
    """The CMD of five moments as anyone would write it."""
    mean_source, mean_target = source.mean(0), target.mean(0)
    centred_source, centred_target = source - mean_source, target - mean_target
    distance = (mean_source - mean_target).norm()
    for order in range(2, 6):
        distance = distance + ((centred_source**order).mean(0) - (centred_target**order).mean(0)).norm()
    return distance


def train(
    source: Any, labels: NDArray[np.int64], target: Any, seed: int
) -> tuple[int, Callable[[Any], NDArray[np.int64]]]:
    """Train by autograd."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = Network(source.shape[1])
    optimizer = torch.optim.Adagrad(network.parameters(), lr=0.01)
    epoch = sparse_batches(source, labels, target) if sparse.issparse(source) else loaders(source, labels, target)
    steps = 0
    for _ in range(50):
        for rows, codes, others in epoch():
            hidden, outputs = network(rows)
            loss = nn.functional.cross_entropy(outputs, codes) + cmd(hidden, network(others)[0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1

    def predict(rows: Any) -> NDArray[np.int64]:
        with torch.no_grad():
            return network(as_tensor(rows))[1].argmax(1).numpy()

    return steps, predict


def loaders(source: Any, labels: NDArray[np.int64], target: Any) -> Callable[[], Batches]:
    """Two DataLoaders side by side."""
    sources = DataLoader(TensorDataset(as_tensor(source), torch.from_numpy(labels)), batch_size=300, shuffle=True)
    targets = DataLoader(TensorDataset(as_tensor(target)), batch_size=300, shuffle=True)
    return lambda: ((rows, codes, others) for (rows, codes), (others,) in zip(sources, targets, strict=True))


def sparse_batches(source: Any, labels: NDArray[np.int64], target: Any) -> Callable[[], Batches]:
    """Batches of sparse tensors, cut once."""
    chosen, others = torch.randperm(len(labels)).split(300), torch.randperm(target.shape[0]).split(300)
    batches = [
        (as_tensor(source[rows.numpy()]), torch.from_numpy(labels)[rows], as_tensor(target[other.numpy()]))
        for rows, other in zip(chosen, others, strict=True)
    ]
    return lambda: batches


def as_tensor(rows: Any) -> Tensor:
    """A dense or CSR tensor."""
    if not sparse.issparse(rows):
        return torch.from_numpy(rows)
    return torch.sparse_csr_tensor(
        torch.from_numpy(rows.indptr), torch.from_numpy(rows.indices), torch.from_numpy(rows.data), size=rows.shape
    )

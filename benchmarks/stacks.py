"""Stacks on the CPU: an epoch of the sentiment task (Section 6.3) against the loops people write.

1,400 + 1,400 reviews of 5,000 mostly zero counts, 50 hidden units, CMD with five moments, Adagrad, validation included.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.distances import eager_cmd
from benchmarks.figure import Figure, interleaved
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.networks.shallow import initial_layers
from momentalign.paper.problems import load_reviews
from momentalign.training import stack
from momentalign.training.compiled_engine import CompiledEngine, CompiledTask
from momentalign.training.config import NetworkSpec, Task, TrainingConfig
from momentalign.training.stack import train_stack
from momentalign.training.torch_engine import BatchedEngine

RECIPE = TrainingConfig(initializer="lecun_uniform")


def figures() -> Iterator[Figure]:
    """Yield the ratios of one epoch, of many networks, of two cores, and the agreement with float64 autograd."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task = sentiment_task()
        yield from one_epoch(task)
        yield from many_networks(task)
        yield agreement(task)
    finally:
        torch.set_num_threads(threads)


def sentiment_task() -> Task:
    """Books to kitchen, both shuffled once; the last 30 % of both are left out of training."""
    reviews = load_reviews()
    random = np.random.default_rng(0)
    books, kitchen = random.permutation(2000), random.permutation(2000)
    source, labels = reviews.rows["books"][:2000][books], reviews.labels["books"][:2000][books]
    target = reviews.rows["kitchen"][:2000][kitchen][:1400]
    return Task(source[:1400], labels[:1400], target, 2, source[1400:], labels[1400:])


def one_epoch(task: Task) -> Iterator[Figure]:
    """One epoch of one network: ours against a DataLoader loop and against torch's sparse tensors."""
    ours = CompiledEngine(CompiledTask(task, RECIPE), task, RECIPE, NetworkSpec(0, 1.0, CMDLoss()))

    def compiled_epoch() -> None:
        ours.run_epochs(1)
        ours.validate()

    functions: dict[str, Callable[[], Any]] = {
        "ours": compiled_epoch,
        "loader": loader_epoch(task),
        "torch csr": torch_csr_epoch(task),
    }
    seconds = interleaved(functions, repeats=7)
    yield Figure("stacks", "sentiment epoch, ms", 1e3 * seconds["ours"])
    yield Figure("stacks", "sentiment epoch, over DataLoader loop", seconds["ours"] / seconds["loader"], at_most=0.08)
    yield Figure("stacks", "sentiment epoch, over torch CSR", seconds["ours"] / seconds["torch csr"], at_most=0.4)


class Network(nn.Module):
    """The network of Algorithm 1 in torch."""

    def __init__(self) -> None:
        super().__init__()
        bottom, top = initial_layers([5000, 50, 2], 0, initializer="lecun_uniform")
        self.weight, self.bias, self.top, self.top_bias = (
            nn.Parameter(torch.tensor(part, dtype=torch.float32)) for layer in (bottom, top) for part in layer
        )

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return hidden activations and outputs."""
        hidden = torch.sigmoid(rows @ self.weight + self.bias)
        return hidden, hidden @ self.top + self.top_bias


def update(network: Network, optimizer: torch.optim.Optimizer, source: Tensor, labels: Tensor, target: Tensor) -> None:
    """One step of Algorithm 1."""
    hidden, outputs = network(source)
    loss = nn.functional.cross_entropy(outputs, labels) + eager_cmd(hidden, network(target)[0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def loader_epoch(task: Task) -> Callable[[], None]:
    """An epoch as a tutorial writes it: dense tensors and two DataLoaders."""
    network = Network()
    optimizer = torch.optim.Adagrad(network.parameters(), lr=0.01, eps=1e-8)
    source, target, held_out = (torch.tensor(x.toarray()) for x in (task.source, task.target, task.validation))
    labels, held_out_labels = torch.tensor(task.labels), torch.tensor(task.validation_labels)
    source_loader = DataLoader(TensorDataset(source, labels), batch_size=300)
    target_loader = DataLoader(TensorDataset(target), batch_size=300)

    def run() -> None:
        for (rows, codes), (others,) in zip(source_loader, cycle(target_loader), strict=False):
            update(network, optimizer, rows, codes, others)
        with torch.no_grad():
            nn.functional.cross_entropy(network(held_out)[1], held_out_labels).item()

    return run


def torch_csr_epoch(task: Task) -> Callable[[], None]:
    """An epoch with torch's own sparse rows, prepared batch by batch beforehand."""
    warnings.filterwarnings("ignore", message="Sparse")
    network = Network()
    optimizer = torch.optim.Adagrad(network.parameters(), lr=0.01, eps=1e-8)
    batches = [
        (to_torch(task.source[s]), torch.tensor(task.labels[s]), to_torch(task.target[t]))
        for s, t in RECIPE.epoch(task)
    ]
    held_out, held_out_labels = to_torch(task.validation), torch.tensor(task.validation_labels)

    def run() -> None:
        for rows, codes, others in batches:
            update(network, optimizer, rows, codes, others)
        with torch.no_grad():
            nn.functional.cross_entropy(network(held_out)[1], held_out_labels).item()

    return run


def to_torch(rows: sparse.csr_matrix) -> Tensor:
    """A scipy matrix as a torch CSR tensor."""
    return torch.sparse_csr_tensor(
        torch.tensor(rows.indptr, dtype=torch.int64), torch.tensor(rows.indices, dtype=torch.int64),
        torch.tensor(rows.data, dtype=torch.float32), size=rows.shape,
    )  # fmt: skip


def many_networks(task: Task) -> Iterator[Figure]:
    """Time per network of a stack of 70 over one alone, and of two cores over one."""
    recipe = TrainingConfig(initializer="lecun_uniform", max_epochs=6, patience=None)
    limit, stack.WORTH_COMPILING = stack.WORTH_COMPILING, 0.0
    try:

        def seconds(networks: int, cores: int) -> float:
            members = [NetworkSpec(seed, 1.0, CMDLoss()) for seed in range(networks)]
            began = time.perf_counter()
            train_stack(task, recipe, members, n_jobs=cores)
            return time.perf_counter() - began

        seconds(1, 1)
        alone = float(np.median([seconds(1, 1) for _ in range(5)]))
        many = float(np.median([seconds(70, 1) for _ in range(2)]))
        both = float(np.median([seconds(70, 2) for _ in range(2)]))
    finally:
        stack.WORTH_COMPILING = limit
    yield Figure("stacks", "70 networks, time per network over one alone", many / 70 / alone, at_most=1.3)
    yield Figure("stacks", "70 networks, one core over two", many / both, at_least=1.7)


def agreement(task: Task) -> Figure:
    """Largest difference of weights from float64 autograd after 15 epochs, same batches."""
    spec = NetworkSpec(0, 1.0, CMDLoss())
    ours = CompiledEngine(CompiledTask(task, RECIPE), task, RECIPE, spec)
    exact = BatchedEngine(task, RECIPE, [spec], dtype=torch.float64)
    ours.run_epochs(15)
    exact.run_epochs(15)
    pairs = zip(ours.layers(0), exact.layers(0), strict=True)
    error = max(float(np.abs(a - b).max()) for left, right in pairs for a, b in zip(left, right, strict=True))
    return Figure("stacks", "weights after 15 epochs against float64 autograd, largest error", error, at_most=1e-4)

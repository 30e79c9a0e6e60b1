"""One rank of test_ranks.py: ``python ranks_worker.py RANK RANKS FOLDER`` computes every case on this rank's shards."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import momentalign as ma
from momentalign.errors import InvalidInputError

UNEQUAL = (5, 9, 2, 4), (7, 3, 6, 1)
EMPTY = (0, 9, 4, 0), (7, 0, 6, 0)
IDLE = (8, 0, 0, 3), (6, 0, 0, 5)


class Case(NamedTuple):
    """Settings of the loss, and the numbers of rows of source and target on every rank."""

    settings: Mapping[str, object] = MappingProxyType({})
    rows: tuple[tuple[int, ...], tuple[int, ...]] = UNEQUAL
    dtype: torch.dtype = torch.float64
    offset: float = 0.0
    width: int = 4
    constant: bool = False  # ranks without rows give tensors that need no gradient


CASES = {
    "five moments": Case(),
    "one moment": Case({"n_moments": 1}),
    "ten moments": Case({"n_moments": 10, "interval": (-1.0, 1.0)}),
    "cross-variances": Case({"cross": 2, "interval": (0.0, 2.0)}),
    "more features than rows": Case({"cross": 2}, width=60),
    "empty shards": Case(rows=EMPTY),
    "empty shards, cross-variances": Case({"cross": 2}, rows=EMPTY),
    "idle ranks": Case({"cross": 2}, rows=IDLE, constant=True),
    "offset": Case(offset=1e4),
    "offset, cross-variances": Case({"cross": 2}, offset=1e4),
    "single": Case(dtype=torch.float32),
    "single, cross-variances": Case({"cross": 2}, dtype=torch.float32),
    "single, offset": Case(dtype=torch.float32, offset=1e4),
    "single, offset, cross-variances": Case({"cross": 2}, dtype=torch.float32, offset=1e4),
    "single, empty shards": Case(rows=EMPTY, dtype=torch.float32),
    "single, many rows": Case(rows=((900, 2000, 400, 100), (700, 300, 2500, 10)), dtype=torch.float32, width=20),
    "half": Case(dtype=torch.bfloat16),
}

METRIC = ("five moments", "empty shards")  # the batches of a metric


def shards(case: Case, ranks: int) -> list[tuple[Tensor, Tensor]]:
    """Source and target of every rank; the distribution drifts from rank to rank, as sorted data would have it."""
    rng = np.random.default_rng(7)
    return [
        tuple(
            torch.tensor(rng.random((rows, case.width)) ** (power + rank) + case.offset).to(case.dtype)
            for rows, power in zip((case.rows[0][rank], case.rows[1][rank]), (1, 2), strict=True)
        )
        for rank in range(ranks)
    ]


def loss_and_gradients(loss: nn.Module, source: Tensor, target: Tensor, *, constant: bool = False) -> list[Tensor]:
    for sample in (source, target):
        sample.requires_grad_(not (constant and len(sample) == 0))
    value = loss(source, target)
    value.backward()
    gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in (source, target)]
    return [value.detach(), *gradients]


class Network(nn.Module):
    """A hidden layer that is aligned and a classifier on it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden = nn.Linear(6, 8, dtype=torch.float64)
        self.classes = nn.Linear(8, 3, dtype=torch.float64)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.sigmoid(self.hidden(rows))
        return hidden, self.classes(hidden)


def batches(ranks: range) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """What a range of two ranks sees of 15 batches: source rows, their classes, and unequally many target rows."""
    for step in range(15):
        rng = np.random.default_rng(step)
        source, target = torch.tensor(rng.normal(size=(16, 6))), torch.tensor(rng.normal(size=(13, 6)) + 0.7)
        classes = torch.tensor(rng.integers(3, size=16))
        mine = slice(8 * ranks.start, 8 * ranks.stop)
        bounds = (0, 3, 13)
        yield source[mine], classes[mine], target[bounds[ranks.start] : bounds[ranks.stop]]


def trained(model: nn.Module, loss: nn.Module, ranks: range) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for source, classes, target in batches(ranks):
        hidden, scores = model(torch.cat([source, target]))
        rows = len(source)
        objective = cross_entropy(scores[:rows], classes) + loss(hidden[:rows], hidden[rows:])
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    return model


def weights(network: nn.Module) -> np.ndarray:
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()


def message(action: Callable[[], object]) -> str:
    try:
        action()
    except InvalidInputError as error:
        return str(error)
    return "no error"


def main(rank: int, ranks: int, folder: Path) -> None:
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    world, found = dist.group.WORLD, {}

    def keep(name: str, values: list[Tensor]) -> None:
        found.update(
            {f"{name}/{part}": x.double().numpy() for part, x in zip(("loss", "source", "target"), values, strict=True)}
        )

    for name, case in CASES.items():
        source, target = shards(case, ranks)[rank]
        loss = ma.CMDLoss(**case.settings, process_group=world)
        keep(name, loss_and_gradients(loss, source.clone(), target.clone(), constant=case.constant))
        if case.rows == UNEQUAL:
            naive = loss_and_gradients(ma.CMDLoss(**case.settings), source, target)
            dist.all_reduce(naive[0])
            keep(f"naive {name}", [naive[0] / ranks, *naive[1:]])

    source, target = shards(CASES["empty shards"], ranks)[rank]
    loss = ma.CMDLoss(interval="data", process_group=world)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        keep("data", loss_and_gradients(loss, 5 * source - 1, 5 * target - 1))
    found["interval"] = np.array(loss.interval)
    found["warnings"] = np.array([str(warning.message) for warning in caught])

    spoiled = source.clone()
    spoiled[:1] = torch.nan  # on the first rank of this case there is nothing to spoil
    for name, loss in (("nan", ma.CMDLoss(process_group=world)), ("data nan", ma.CMDLoss(5, "data", 1, False, world))):
        found[name] = np.array(message(lambda loss=loss: loss(spoiled, target)))
    loss = ma.CMDLoss(process_group=world)
    found["no rows"] = np.array(message(lambda: loss(source[:0], target)))
    found["overflow"] = np.array(message(lambda: loss(1e100 * source, target)))

    metric = ma.MomentMetric(4)
    for name in METRIC:
        metric.update(*shards(CASES[name], ranks)[rank])
    found["metric"] = metric.compute().numpy()
    found["metric rows"] = metric.source[0, 0].numpy()
    metric.update(*shards(CASES[METRIC[0]], ranks)[rank])
    found["metric again"] = metric.compute().numpy()

    if ranks == 2:  # where the whole world trains
        for name, loss in (("joined", ma.CMDLoss(process_group=world)), ("naive", ma.CMDLoss())):
            model = DistributedDataParallel(Network())
            found[f"{name} weights"] = weights(trained(model, loss, range(rank, rank + 1)))
    else:
        pair = dist.new_group([0, 1])
        if rank < 2:
            source, target = shards(CASES["five moments"], ranks)[rank]
            keep("pair", loss_and_gradients(ma.CMDLoss(process_group=pair), source, target))
        else:
            found["stranger"] = np.array(message(lambda: ma.CMDLoss(process_group=pair)))
    np.savez(folder / f"rank{rank}.npz", **found)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))

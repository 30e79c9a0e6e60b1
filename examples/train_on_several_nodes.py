"""Train one aligned network on several processes, on one node or many
=====================================================================

Every process holds its own rows of source and target. ``DistributedDataParallel`` averages the gradients, and
``CMDLoss(process_group=...)`` compares the moments of all rows, not of each process's rows alone: the network is the
same on any number of processes.

On one node with two processes (on the CPU, or one process per GPU):

    torchrun --standalone --nproc-per-node=2 examples/train_on_several_nodes.py

On two nodes with four GPUs each, the same command on both, the first node being reachable as ``node1``:

    torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 \
        examples/train_on_several_nodes.py

Without alignment, for comparison, add ``--weight 0``.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import momentalign as ma
from momentalign.paper.problems import make_artificial

STEPS = 400


class Network(nn.Module):
    """A sigmoid layer, whose activations are aligned, and a classifier on it."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(2, 15), nn.Sigmoid())
        self.classes = nn.Linear(15, 3)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return activations and scores."""
        hidden = self.hidden(rows)
        return hidden, self.classes(hidden)


def train(model: nn.Module, source: Tensor, labels: Tensor, target: Tensor, *, rows: int, weight: float) -> None:
    """Fit `model` to this process's rows of `rows` source rows in all."""
    alignment = ma.CMDLoss(process_group=dist.group.WORLD)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(STEPS):
        # One call for both domains: DistributedDataParallel wants one forward pass for each backward pass.
        hidden, scores = model(torch.cat([source, target]))
        # Gradients are averaged over processes, so the sum over all rows is given the factor of their number.
        error = cross_entropy(scores[: len(source)], labels, reduction="sum") * dist.get_world_size() / rows
        distance = alignment(hidden[: len(source)], hidden[len(source) :])
        optimizer.zero_grad()
        (error + weight * distance).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, rows: Tensor, labels: Tensor) -> float:
    """Return the share of rows whose class is found."""
    return (model(rows)[1].argmax(1) == labels).float().mean().item()


def main() -> None:
    """Join the other processes, train, and let the first one print."""
    parser = argparse.ArgumentParser(description="Train one aligned network on several processes.")
    parser.add_argument("--weight", type=float, default=1.0, help="weight of the alignment; 0 is a plain network")
    weight = parser.parse_args().weight

    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    dist.init_process_group("nccl" if gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    problem = make_artificial(seed=0)
    source, target = (
        torch.tensor(rows, dtype=torch.float32, device=device) for rows in (problem.source, problem.target)
    )
    labels = torch.tensor(problem.source_labels, device=device)
    mine = slice(rank, None, ranks)

    torch.manual_seed(0)
    model = DistributedDataParallel(Network().to(device))
    train(model, source[mine], labels[mine], target[mine], rows=len(source), weight=weight)
    if rank == 0:
        truth = torch.tensor(problem.target_labels, device=device)
        print(
            f"{ranks} processes: source accuracy {accuracy(model.module, source, labels):.3f}, "
            f"target accuracy {accuracy(model.module, target, truth):.3f}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

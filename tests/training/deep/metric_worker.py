"""One rank of test_metric.py: ``python metric_worker.py RANK RANKS FOLDER`` takes the distance of its batches."""

import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import momentalign as ma

WIDTH = 4
# Rows of source and target in every batch of every rank; the second rank has fewer of both.
ROWS = [[(40, 3), (25, 60)], [(7, 0), (0, 11)]]


def batches(rank: int) -> list[tuple[Tensor, Tensor]]:
    """Batches far from zero; the distribution changes from rank to rank, as sorted data would have it."""
    rng = np.random.default_rng(rank)
    return [
        tuple(torch.tensor(rng.random((rows, WIDTH)) ** (1 + domain + rank) + 3.0) for domain, rows in enumerate(pair))
        for pair in ROWS[rank]
    ]


def main(rank: int, ranks: int, folder: Path) -> None:
    """Write what this rank computes: alone, of all, and of all again after one more batch."""
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    metric = ma.MomentMetric(WIDTH)
    for batch in batches(rank):
        metric.update(*batch)
    found = {"all": metric.compute().item(), "rows": metric.source[0, 0].item()}
    metric.update(*batches(rank)[0])
    found["again"] = metric.compute().item()
    np.savez(folder / f"rank{rank}.npz", **found)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))

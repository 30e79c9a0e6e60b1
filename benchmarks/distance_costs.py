"""What the distances cost beside each other: one forward and backward pass at 1,000 + 1,000 rows of 256 units.

``python -m benchmarks.distance_costs`` prints the ratios to the CMD, measured in turns on one core, medians.
No bar: it is a table to choose by.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.coral import CORALLoss
from momentalign.discrepancies.mmd import MMDLoss

ROWS, WIDTH, TURNS = 1000, 256, 15


def _seconds(distance: Callable[[Tensor, Tensor], Tensor], source: Tensor, target: Tensor) -> float:
    source.grad = target.grad = None
    start = time.perf_counter()
    distance(source, target).backward()
    return time.perf_counter() - start


def main() -> None:
    """Print one JSON line."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    source, target = (torch.rand(ROWS, WIDTH).requires_grad_() for _ in range(2))
    distances = {
        "cmd": CMDLoss(),
        "cv-cmd": CMDLoss(cross=2),
        "mmd": MMDLoss(beta=1.0),
        "coral": CORALLoss(),
        "dann": AdversarialLoss(WIDTH),
    }
    times: dict[str, list[float]] = {name: [] for name in distances}
    for _ in range(TURNS):
        for name, distance in distances.items():
            times[name].append(_seconds(distance, source, target))
    base = statistics.median(times["cmd"])
    ratios = {name: round(statistics.median(values) / base, 1) for name, values in times.items()}
    print(json.dumps({"name": "distance costs", "rows": ROWS, "width": WIDTH, "ratio_to_cmd": ratios}))


if __name__ == "__main__":
    main()

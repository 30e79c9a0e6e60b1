"""pytorch-adapt 0.0.83: its aligner hook with the CMD, its datasets and loaders, in the loop of its front page.

It takes what a DataLoader can batch, dense rows, and drops those of an epoch that fill no batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pytorch_adapt.datasets import CombinedSourceAndTargetDataset, DataloaderCreator, SourceDataset, TargetDataset
from pytorch_adapt.hooks import AlignerHook, AlignerPlusCHook
from pytorch_adapt.weighters import SumWeighter
from torch import Tensor, nn
from torch.utils.data import TensorDataset


def cmd(source: Tensor, target: Tensor) -> Tensor:
    """The CMD of five moments as anyone would write it."""
    mean_source, mean_target = source.mean(0), target.mean(0)
    centred_source, centred_target = source - mean_source, target - mean_target
    distance = (mean_source - mean_target).norm()
    for order in range(2, 6):
        distance = distance + ((centred_source**order).mean(0) - (centred_target**order).mean(0)).norm()
    return distance


def train(
    source: NDArray[np.float32], labels: NDArray[np.int64], target: NDArray[np.float32], seed: int
) -> tuple[int, Callable[[Any], NDArray[np.int64]]]:
    """Train generator and classifier through the hook, which does the optimization itself."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (the library draws source rows from numpy's global state)
    generator = nn.Sequential(nn.Linear(source.shape[1], 50), nn.Sigmoid())
    nn.init.xavier_uniform_(generator[0].weight)
    models = {"G": generator, "C": nn.Linear(50, 2)}
    optimizer = torch.optim.Adagrad([*models["G"].parameters(), *models["C"].parameters()], lr=0.01)
    hook = AlignerPlusCHook(
        [optimizer], weighter=SumWeighter(), aligner_hook=AlignerHook(cmd, layer="features"), softmax=False
    )
    dataset = CombinedSourceAndTargetDataset(
        SourceDataset(TensorDataset(torch.from_numpy(source), torch.from_numpy(labels))),
        TargetDataset(torch.from_numpy(target)),
    )
    loader = DataloaderCreator(batch_size=300)(train=dataset)["train"]
    steps = 0
    for _ in range(50):
        for batch in loader:
            hook({**models, **batch})
            steps += 1

    def predict(rows: Any) -> NDArray[np.int64]:
        with torch.no_grad():
            return models["C"](models["G"](torch.from_numpy(rows))).argmax(1).numpy()

    return steps, predict

"""What two processes do for test_ranks.py: Lightning starts the second one; each writes what it found as JSON.

``python two_processes.py FOLDER`` is run by both. The trainings take a number of devices, so that the test can ask for
the same of one process.
"""

import json
import os
import sys
from pathlib import Path

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, SubsetRandomSampler, TensorDataset

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.training.deep.lightning import quiet, random_state, restore_random_state
from momentalign.training.deep.ranks import BalancedSampler, gathered, sharded

KINDS = ("cmd", "cv-cmd", "some labels", "sharpened", "source-free", "source-free cv-cmd")
LATER = {"sharpen": 1.0, "consistency": 1.0, "augment": lambda rows: 1.1 * rows, "sharpen_from": 0.3}


def task(batch_size):
    """Loaders of 64 and 48 rows, and a network sure of some of its predictions."""
    drawn = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(64, 4, generator=drawn, dtype=torch.float64), torch.arange(64) % 2
    # All known labels fall to the first of two ranks.
    known = torch.where(torch.arange(48) % 2 == 0, torch.arange(48) // 2 % 2, -1)
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 2)).double()
    with torch.no_grad():
        network[2].weight *= 10.0
    datasets = TensorDataset(rows, labels), TensorDataset(rows[:48] * 2 + 1, known)
    return network, *(DataLoader(dataset, batch_size=batch_size) for dataset in datasets)


def train(devices, batch_size, kind):
    """One call, with batches of so many rows on each device."""
    network, source, target = task(batch_size)
    settings, history = LATER if kind == "sharpened" else {}, []
    if kind.startswith("source-free"):
        rows = torch.rand(50, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        settings = {"source_moments": ma.Moments(cross=2).update(rows)}
    adapted = ma.adapt(
        network, "1", None if "source_moments" in settings else source, target, precision="64-true",
        discrepancy="cv-cmd" if kind.endswith("cv-cmd") else "cmd", semi_supervised=kind == "some labels",
        max_epochs=2, device="cpu", devices=devices, optimizer="sgd", learning_rate=0.5, random_state=0,
        source_validation=source, on_epoch=history.append, **settings,
    )  # fmt: skip
    return {"weights": [value.tolist() for value in adapted.state_dict().values()], "history": history}


def train_in_trainer(devices, batch_size, *, strategy="auto", log_every=1, logs=False, **settings):
    """A module in a Trainer of one's own: its weights and history, and what has been logged of it."""
    network, source, target = task(batch_size)
    module = ma.DeepAdaptation(network, "1", optimizer="sgd", learning_rate=0.5, example=torch.zeros(2, 4).double(),
                               **settings)  # fmt: skip
    with quiet():
        trainer = pl.Trainer(
            max_epochs=2, accelerator="cpu", devices=devices, strategy=strategy, log_every_n_steps=log_every,
            logger=pl.loggers.CSVLogger(logs) if logs else False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(module, ma.PairedLoader(source, target), source)
    whole = [weight.full_tensor() if hasattr(weight, "full_tensor") else weight for weight in network.parameters()]
    return {"weights": [weight.tolist() for weight in whole], "history": module.history,
            "kinds": sorted({type(weight).__name__ for weight in module.parameters()})}  # fmt: skip


def train_sharded(devices, batch_size, **settings):
    """The same with weights that are spread over the processes by FSDP2."""
    shards = ModelParallelStrategy(data_parallel_size=devices, tensor_parallel_size=1)
    return train_in_trainer(devices, batch_size, strategy=shards if devices > 1 else "auto", **settings)


def reductions(log_every, logs):
    """How often both processes have added something up, and in how many steps."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        found = train_in_trainer(2, 8, strategy="ddp", log_every=log_every, logs=logs, discrepancy="cv-cmd")
    return {"count": sum(event.name == "gloo:all_reduce" for event in profile.events()), **found}


class Rows(IterableDataset):
    def __iter__(self):
        yield from range(3)


def pairs_of_rows():
    rows = DataLoader(torch.arange(20), batch_size=3, shuffle=True)
    return ma.PairedLoader(rows, DataLoader(torch.arange(8), batch_size=2))


def parts_of_rows(pairs):
    """What each rank gets of the rows of loaders."""
    torch.manual_seed(dist.get_rank())
    data, labels = torch.arange(10), torch.arange(10) % 2
    distributed = DataLoader(data, sampler=DistributedSampler(data))
    found = {
        "lengths": [len(pairs), gathered(dist.get_rank())],
        "source": torch.cat([source for source, _ in pairs]).tolist(),
        "again": torch.cat([source for source, _ in pairs]).tolist(),
        "target": [target.tolist() for _, target in pairs],
        "balanced": [int(row) for row in sharded(DataLoader(data, sampler=BalancedSampler(labels)), "x")],
        "left alone": [sharded(loader, "x") is loader for loader in ([1, 2], DataLoader(Rows()), distributed)],
    }
    try:
        sharded(DataLoader(data, sampler=SubsetRandomSampler([1, 2])), "source_loader")
    except InvalidInputError as error:
        found["refused"] = str(error)
    iterator = iter(pairs)
    for _ in range(2):
        next(iterator)
    state, now = pairs.state_dict(), random_state()
    rest = [[part.tolist() for part in pair] for pair in iterator]
    restore_random_state(now)
    pairs.load_state_dict(state)
    return {**found, "resumed": rest == [[part.tolist() for part in pair] for pair in pairs]}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    pairs = pairs_of_rows()
    found = {"whole": len(pairs), "trained": {kind: train(2, 8, kind) for kind in KINDS}, "parts": parts_of_rows(pairs)}
    found["logged"] = reductions(1, folder / "logs")
    found["silent"] = reductions(1000, None)
    found["sharded"] = {"later": train_sharded(2, 8, **LATER), "dann": train_sharded(2, 8, discrepancy="dann")}
    (folder / f"{os.environ.get('LOCAL_RANK', '0')}.json").write_text(json.dumps(found))

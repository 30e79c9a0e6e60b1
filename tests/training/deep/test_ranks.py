"""Two processes with half of every batch each train to the weights of one process with whole batches."""

import json
import os
import subprocess
import sys

import pytest
import torch

from momentalign.training.deep.ranks import BalancedSampler

PROGRAM = """
import json, os, pathlib, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from momentalign.moments.streaming import Moments
from momentalign.training.deep.adapt import adapt
torch.set_num_threads(1)

def train(devices, batch_size, kind, checkpoint, epochs=2):
    drawn = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(64, 4, generator=drawn, dtype=torch.float64), torch.arange(64) % 2
    source = DataLoader(TensorDataset(rows, labels), batch_size=batch_size)
    # All known labels fall to the first of two ranks.
    known = torch.where(torch.arange(48) % 2 == 0, torch.arange(48) // 2 % 2, -1)
    target = DataLoader(TensorDataset(rows[:48] * 2 + 1, known), batch_size=batch_size)
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 2)).double()
    more = {}
    if kind == "sharpened":
        with torch.no_grad():
            network[2].weight *= 10.0
        more = {"sharpen": 1.0, "consistency": 1.0, "augment": lambda rows: 1.1 * rows, "sharpen_from": 0.3}
    if kind in ("source-free", "source-free cv-cmd"):
        source_moments = Moments(cross=2).update(torch.rand(50, 6, generator=drawn, dtype=torch.float64))
        more = {"source_moments": source_moments}
    history = []
    adapted = adapt(
        network, "1", None if more.get("source_moments") else source, target, precision="64-true",
        discrepancy="cv-cmd" if kind.endswith("cv-cmd") else "cmd",
        semi_supervised=kind == "some labels", max_epochs=epochs, device="cpu", **more,
        devices=devices, optimizer="sgd", learning_rate=0.5, random_state=0, on_epoch=history.append,
        source_validation=source, checkpoint=checkpoint, checkpoint_every=3,
    )
    return {"weights": [value.tolist() for value in adapted.state_dict().values()], "history": history}

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    for kind in sys.argv[2:]:
        found = {"two": train(2, 8, kind, folder / kind)}
        if os.environ.get("LOCAL_RANK", "0") == "0":
            (folder / f"{kind}.json").write_text(json.dumps(found))
"""


KINDS = ("cmd", "cv-cmd", "some labels", "sharpened", "source-free", "source-free cv-cmd")


def test_two_processes_train_as_one(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), *KINDS],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    names = {"__name__": "program"}
    exec(PROGRAM, names)  # noqa: S102
    for kind in KINDS:
        one = names["train"](1, 16, kind, None)
        two = json.loads((tmp_path / f"{kind}.json").read_text())["two"]
        for found, expected in zip(two["weights"], one["weights"], strict=True):
            torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=0, atol=1e-10)
        for found, expected in zip(two["history"], one["history"], strict=True):
            assert found == pytest.approx(expected, abs=1e-6)
        assert one["history"][0]["distance"] > 0.1
        assert kind != "sharpened" or one["history"][1]["consistency"] > 0.0


COUNTS = """
import json, os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import momentalign as ma
from momentalign.training.deep.lightning import pl, quiet

def reductions(log_every):
    rows, labels = torch.rand(48, 4), torch.arange(48) % 2
    network = nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 2))
    loaders = DataLoader(TensorDataset(rows, labels), batch_size=4), DataLoader(rows + 1.0, batch_size=4)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", log_every_n_steps=log_every,
        logger=pl.loggers.CSVLogger(sys.argv[1]), enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    with quiet(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        trainer.fit(ma.DeepAdaptation(network, "1", discrepancy="cv-cmd"), ma.PairedLoader(*loaders))
    return sum(event.name == "gloo:all_reduce" for event in profile.events()), trainer.global_step

if __name__ == "__main__":
    found = [reductions(1), reductions(1000)]
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(json.dumps(found))
"""


def test_logging_costs_at_most_three_reductions_a_step(tmp_path):
    """Of two processes that talk through gloo; DDP's own reduction of gradients is counted with and without."""
    (tmp_path / "program.py").write_text(COUNTS)
    done = subprocess.run(
        [sys.executable, "program.py", "logs"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    (logged, steps), (silent, _) = json.loads(done.stdout.splitlines()[-1])
    assert steps == 6
    assert 4 * steps <= silent < logged <= silent + 3 * steps


SHARDS = """
import json, os, pathlib, sys, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, SubsetRandomSampler
from momentalign.errors import InvalidInputError
from momentalign.training.deep.ranks import BalancedSampler
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.lightning import RandomState
from momentalign.training.deep.ranks import gathered, sharded

class Rows(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from range(3)

folder = pathlib.Path(sys.argv[1])
rows = DataLoader(torch.arange(20), batch_size=3, shuffle=True)
pairs = PairedLoader(rows, DataLoader(torch.arange(8), batch_size=2))
whole = len(pairs)
rank = 1 if os.fork() == 0 else 0
torch.manual_seed(rank)
dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank, world_size=2)
data, labels = torch.arange(10), torch.arange(10) % 2
distributed = DataLoader(data, sampler=DistributedSampler(data))
found = {
    "whole": whole,
    "lengths": [len(pairs), gathered(rank)],
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
state, now = pairs.state_dict(), RandomState.now()
rest = [[part.tolist() for part in pair] for pair in iterator]
now.restore()
pairs.load_state_dict(state)
found["resumed"] = rest == [[part.tolist() for part in pair] for pair in pairs]
(folder / f"{rank}.json").write_text(json.dumps(found))
dist.barrier()
dist.destroy_process_group()
if rank == 0:
    os.wait()
"""


@pytest.mark.skipif(os.name != "posix", reason="fork is of POSIX")
def test_each_rank_has_its_own_part_of_the_rows(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SHARDS, str(tmp_path)], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for found in ranks:
        assert found["whole"] == 7
        assert found["lengths"] == [4, [0, 1]]
        assert found["again"] != found["source"]
        assert found["left alone"] == [True] * 3
        assert "source_loader has SubsetRandomSampler, which cannot be split over 2 processes" in found["refused"]
        assert found["resumed"]
    for name in ("source", "again"):
        assert sorted(ranks[0][name] + ranks[1][name]) == list(range(20))
    assert [found["target"] for found in ranks] == [[[0, 2], [4, 6], [0, 2], [4, 6]], [[1, 3], [5, 7], [1, 3], [5, 7]]]
    together = [row for pair in zip(ranks[0]["balanced"], ranks[1]["balanced"], strict=True) for row in pair]
    assert together == list(BalancedSampler([0, 1] * 5))

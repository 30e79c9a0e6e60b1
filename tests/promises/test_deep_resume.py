"""A deep run killed at any moment goes on from its last checkpoint to the same bits; SIGTERM saves and leaves."""

import json
import os
import subprocess
import sys

import pytest

# Everything is imported once; each run is a process of its own, forked off, so that it can really be killed.
PROGRAM = """
import hashlib, json, os, pathlib, random, signal, sys, time, traceback
import numpy as np, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from momentalign.training.deep.adapt import adapt
import momentalign.training.deep.module
torch.set_num_threads(1)

class Augmented(Dataset):
    def __init__(self, rows, labels):
        self.rows, self.labels = rows, labels
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        time.sleep(0.0005)
        return self.rows[index] + 0.1 * random.random() + 0.1 * float(np.random.rand()), self.labels[index]

def train(folder):
    drawn = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(70, 4, generator=drawn), torch.arange(70) % 2
    source = DataLoader(Augmented(rows, labels), batch_size=8, shuffle=True)
    target = DataLoader(TensorDataset(rows[:30] + 1.0), batch_size=6, shuffle=True)
    held_out = DataLoader(TensorDataset(rows, labels), batch_size=30)
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
    history = []
    adapted = adapt(
        network, "2", source, target, discrepancy=["cmd", "dann"], weight=[1.0, 0.1], schedule="ramp", interval="data",
        domain_norm=True, max_epochs=6, source_validation=held_out, patience=6, random_state=3, device="cpu",
        gradient_clip=1.0, checkpoint=folder, checkpoint_every=2, on_epoch=history.append,
    )
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in adapted.state_dict().values()))
    return digest.hexdigest(), history

def run(folder, result, number=None, steps=1):
    '''One process: trains to the end, or gets a signal some time after its `steps`-th checkpoint.'''
    manifest = pathlib.Path(folder or "none") / "last" / "manifest.json"
    before = written(manifest)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            pathlib.Path(result).write_text(json.dumps(train(folder)))
            code = 0
        except SystemExit as asked:
            code = asked.code
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if number is not None:
        deadline = time.monotonic() + 60
        for _ in range(steps):
            while written(manifest) in (None, before) and time.monotonic() < deadline:
                time.sleep(0.0005)
            before = written(manifest)
        time.sleep(random.random() * 0.05)
        os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def written(path):
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None

work = pathlib.Path(sys.argv[1])
random.seed(os.urandom(8))
codes = {"undisturbed": [run(None, work / "undisturbed")]}
for name in ("SIGKILL", "SIGTERM"):
    number = getattr(signal, name)
    codes[name] = [run(work / f"run {name}", work / name, number, steps) for steps in map(int, sys.argv[2:])]
    codes[name].append(run(work / f"run {name}", work / name))
print(json.dumps(codes))
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL and fork are of POSIX")
@pytest.mark.parametrize("steps", [(1, 3, 2), pytest.param([1] * 8, marks=pytest.mark.long)])
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, steps):
    """Killed so many checkpoints after each start."""
    command = [sys.executable, "-c", PROGRAM, tmp_path, *map(str, steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout.splitlines()[-1])
    signals = {"SIGKILL": [-9] * len(steps) + [0], "SIGTERM": [143] * len(steps) + [0]}
    assert codes == {"undisturbed": [0], **signals}
    digest, history = json.loads((tmp_path / "undisturbed").read_text())
    assert len(history) == 6
    for name in ("SIGKILL", "SIGTERM"):
        resumed, rest = json.loads((tmp_path / name).read_text())
        assert resumed == digest
        assert rest == history[len(history) - len(rest) :]

"""Large data, little memory, many threads: what is promised holds there too."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.training.deep.adapt import memory_advice

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc of Linux")


def _python(script, *arguments):
    """What a script prints in a process of its own with one thread."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


# The peak of a process over what it held before, in units of the data.
CMD = """
import re, sys
from pathlib import Path
import numpy as np, torch
import momentalign as ma

def peak():
    # What getrusage says begins with the peak of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

rows, kind, dtype = int(sys.argv[1]), sys.argv[2], sys.argv[3]
rng = np.random.default_rng(0)
small = [rng.random((1000, 50)).astype(dtype) for _ in range(2)]

def distance(source, target):
    convert = torch.from_numpy if kind == "torch" else np.asarray
    return float(ma.cmd(convert(source), convert(target)))

distance(*small)
before = peak()
source, target = (rng.random((rows, 50), dtype=np.dtype(dtype)) for _ in range(2))
target *= target
value = distance(source, target)
print(value, 1024 * (peak() - before) / (source.nbytes + target.nbytes))
"""


@ON_LINUX
@pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["numpy", pytest.param("torch", marks=pytest.mark.long)])
def test_the_distance_of_large_samples_takes_at_most_three_times_their_memory(rows, kind, dtype):
    value, times = map(float, _python(CMD, rows, kind, dtype).split())
    assert 0.2 < value < 2.0
    assert 0.9 < times <= 3.0


# Trains twice in one process, so that what libraries take on their first use is in both figures of a pair.
CHUNKS = """
import json, sys
from pathlib import Path
import numpy as np
from momentalign.tables.chunks import FileChunks, NpyChunks
from momentalign.estimators.classifier import MANNClassifier
from momentalign.training import stack

def most():  # unlike ru_maxrss, nothing of the process that started this one
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024

folder, kind, engine = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
stack.WORTH_COMPILING = 0.0 if engine == "compiled" else float("inf")
peaks = []
for rows in map(int, sys.argv[4:]):
    model = MANNClassifier(hidden=(5,), batch_size=10_000, max_epochs=1, patience=None, device="cpu", random_state=0)
    if kind == "npy":
        source = NpyChunks(folder / f"X{rows}.npy", folder / f"y{rows}.npy", rows=20_000)
        target = NpyChunks(folder / f"X{rows}.npy", rows=20_000)
    else:
        source = FileChunks(folder / f"{rows}.parquet", label="y", rows=20_000)
        target = FileChunks(folder / f"{rows}.parquet", leave_out=["y"], rows=20_000)
    model.fit_chunks(source, target)
    assert len(model.history_["source_loss"]) == 1
    peaks.append(most())
print(json.dumps(peaks))
"""
COLUMNS, FEW, MANY = 20, 200_000, 1_000_000
# MB by which five times the rows may raise the peak; the rows more take 61 in each of both domains.
BOUND = 40


@pytest.fixture(scope="module")
def rows_on_disk(tmp_path_factory):
    """Rows as .npy and as Parquet files, classes along the first column."""
    folder = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(0)
    for rows in (FEW, MANY):
        X = random.standard_normal((rows, COLUMNS), dtype=np.float32)
        y = (X[:, 0] > 0).astype(np.int8)
        np.save(folder / f"X{rows}.npy", X)
        np.save(folder / f"y{rows}.npy", y)
        table = pa.table({**{f"x{column}": X[:, column] for column in range(COLUMNS)}, "y": y})
        pq.write_table(table, folder / f"{rows}.parquet", row_group_size=20_000, compression="none")
    return folder


@ON_LINUX
@pytest.mark.parametrize(("kind", "engine"), [("npy", "batched"), ("parquet", "compiled")])
def test_training_in_chunks_takes_no_more_memory_for_five_times_the_rows(rows_on_disk, kind, engine):
    few, many = json.loads(_python(CHUNKS, rows_on_disk, kind, engine, FEW, MANY))
    assert many - few < BOUND


def test_eight_threads_predict_what_one_predicts(quick, data):
    X, y, X_target = data
    model = quick(hidden=(50,)).fit(X, y, X_target)
    parts = [np.random.default_rng(seed).normal(size=(500, 4)) for seed in range(64)]

    def answers(part):
        return model.predict_proba(part), model.predict(part), model.transform(part)

    expected = [answers(part) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(answers, parts))
    for one, other in zip(found, expected, strict=True):
        for values, match in zip(one, other, strict=True):
            np.testing.assert_array_equal(values, match)


# The third epoch asks for more memory than the process may have.
SHORT = """
import json, resource, sys
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import momentalign as ma

class Greedy(nn.Module):
    steps = 0
    def forward(self, rows):
        Greedy.steps += self.training
        if Greedy.steps > 8:
            torch.empty(2**42, dtype=torch.uint8)
        return rows

rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
source = DataLoader(TensorDataset(rows, torch.arange(40) % 2), batch_size=10)
network = nn.Sequential(Greedy(), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
history, message = [], "nothing"
try:
    ma.adapt(network, "2", source, DataLoader(rows, batch_size=20), max_epochs=4, device="cpu", random_state=0,
             checkpoint=sys.argv[1], on_epoch=history.append)
except ma.errors.MomentAlignError as error:
    message = str(error)
from momentalign.training.deep.checkpoint import SafetensorsIO
state = SafetensorsIO().load_checkpoint(Path(sys.argv[1]) / "last")
print(json.dumps([message, len(history), state["epoch"]]))
"""


def test_a_shortage_of_memory_names_the_batches_and_keeps_the_checkpoint(tmp_path):
    message, epochs, kept = json.loads(_python(SHORT, tmp_path).splitlines()[-1])
    assert message == (
        "memory ran out with batches of 10 source and 20 target rows; lower batch_size and start again, it goes on "
        f"from {tmp_path / 'last'}."
    )
    assert epochs == 2
    assert kept == 1, "the second epoch, counted from 0"


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), RuntimeError("out of memory")],
)
def test_every_kind_of_shortage_is_known(error):
    words = r"memory ran out with these batches; lower batch_size\.$"
    with pytest.raises(InvalidInputError, match=words), memory_advice([1], [2], checkpoint=None):
        raise error


def test_other_errors_stay_as_they_are():
    rows = torch.zeros(8, 3)
    source = DataLoader(TensorDataset(rows, torch.zeros(8, dtype=torch.long)), batch_size=4)
    network = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        ma.adapt(network, "1", source, DataLoader(rows, batch_size=4), device="cpu", max_epochs=1)

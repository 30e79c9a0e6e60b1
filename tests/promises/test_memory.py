"""Training in chunks takes the memory of a chunk, however many rows there are; measured in processes of their own."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

# Trains twice in one process, so that what libraries take on their first use is in both figures of a pair.
SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
from momentalign.tables.chunks import FileChunks, NpyChunks
from momentalign.estimators.classifier import MANNClassifier
from momentalign.training import compiled_engine as compiled

def most():  # unlike ru_maxrss, nothing of the process that started this one
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024

folder, kind, engine = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
compiled.WORTH_COMPILING = 0.0 if engine == "compiled" else float("inf")
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
def folder(tmp_path_factory):
    """Rows as .npy and as Parquet files, classes along the first column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(0)
    for rows in (FEW, MANY):
        X = random.standard_normal((rows, COLUMNS), dtype=np.float32)
        y = (X[:, 0] > 0).astype(np.int8)
        np.save(place / f"X{rows}.npy", X)
        np.save(place / f"y{rows}.npy", y)
        table = pa.table({**{f"x{column}": X[:, column] for column in range(COLUMNS)}, "y": y})
        pq.write_table(table, place / f"{rows}.parquet", row_group_size=20_000, compression="none")
    return place


def _peaks(folder, kind, engine, *sizes):
    command = [sys.executable, "-c", SCRIPT, str(folder), kind, engine, *map(str, sizes)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak is read from /proc")  # noqa: PTH110
@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("npy", "batched"),
        ("parquet", "compiled"),
    ],
)
def test_five_times_the_rows_take_no_more_memory(folder, kind, engine):
    few, many = _peaks(folder, kind, engine, FEW, MANY)
    assert many - few < BOUND

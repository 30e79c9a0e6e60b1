"""Data that do not fit into memory: the moments of a stream, of shards and of a cluster are those of all rows at once.

The cluster is a real one of two worker processes; a worker that passes the limit of its memory is stopped.
"""

import json
import logging
import re
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.moments.readers import read_chunks

LIMIT = 512 * 2**20  # bytes of a worker; what it imports takes two fifths of them
BLOCK, WIDTH = 2**15, 16  # rows and columns, 4 MiB
SETTINGS = {
    # Blocks that pile up are to be an error, not files on disk or a pause.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.scheduler.allowed-failures": 0,
}


@contextmanager
def cluster(limit, folder):
    """A client of two workers with that many bytes each."""
    settings = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "memory_limit": limit,
        "dashboard_address": ":0",  # any free port
        "silence_logs": logging.CRITICAL,
        "local_directory": str(folder),
    }
    with pytest.MonkeyPatch.context() as patch:
        # What measures the coverage of processes would take a good part of their memory.
        for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
            patch.delenv(name, raising=False)
        with dask.config.set(SETTINGS), LocalCluster(**settings) as workers, Client(workers) as client:
            yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    # Loops are compiled here, once on a machine: on a worker the compiler would take its memory.
    for writeable in (True, False):
        block = np.zeros((8, WIDTH))
        block.flags.writeable = writeable
        ma.Moments().update(block)
    with cluster(LIMIT, tmp_path_factory.mktemp("dask")) as client:
        yield client


def rows(seed, blocks):
    """A lazy array whose blocks are drawn where they are used."""
    return da.random.default_rng(seed).random((blocks * BLOCK, WIDTH), chunks=(BLOCK, WIDTH)) ** 2


def block_by_block(array):
    """The same rows in this process."""
    return ma.Moments.of(block.compute(scheduler="synchronous") for block in array.blocks)


def workers(client):
    """The processes behind the workers; one that was stopped comes back as another."""
    return sorted(client.run(lambda: __import__("os").getpid()).values())


@pytest.mark.parametrize("blocks", [12, pytest.param(6 * LIMIT // (BLOCK * WIDTH * 8), marks=pytest.mark.long)])
def test_a_cluster_reduces_rows_that_its_workers_cannot_hold(client, blocks):
    """The long one has three times the memory of both workers together."""
    source, target = rows(0, blocks), rows(1, 4) + 0.01
    before = workers(client)
    value = ma.cmd(source, target)
    assert workers(client) == before
    assert value == pytest.approx(block_by_block(source).cmd(block_by_block(target)), rel=1e-10)


def test_a_cluster_reads_files_where_its_workers_are(tmp_path, rng):
    values = rng.random((4_000, 3))
    frame = pd.DataFrame(values, columns=list("abc"))
    for number in range(4):
        frame[1000 * number : 1000 * (number + 1)].to_parquet(tmp_path / f"part{number}.parquet")
    expected = ma.cmd(values[values[:, 0] > 0.5], values)
    with cluster(2 * LIMIT, tmp_path / "dask"):  # Pandas and PyArrow take most of the other half.
        stored = dd.read_parquet(str(tmp_path / "*.parquet"))
        assert ma.cmd(stored, values, cross=2) == 0.0
        assert ma.cmd(stored[stored.a > 0.5], values) == pytest.approx(expected, rel=1e-12)


def test_an_error_on_a_worker_is_the_error_here(client):
    with pytest.raises(InvalidInputError, match=r"^source holds NaN or infinite values; remove or impute them first"):
        ma.cmd(da.where(rows(0, 2) < 1e-6, np.nan, 1.0), np.ones((3, WIDTH)))


@pytest.mark.parametrize("dtype", [np.float64, np.int16])
def test_a_memory_map_is_never_copied_as_a_whole(tmp_path, rng, dtype):
    shape = (300_000, 16)
    stored = np.memmap(tmp_path / "rows", dtype=dtype, mode="w+", shape=shape)
    stored[:] = rng.integers(0, 9, shape)
    stored.flush()
    reading = np.memmap(tmp_path / "rows", dtype=dtype, mode="r", shape=shape)
    value = ma.cmd(reading[:200_000], reading[200_000:], interval=(0.0, 9.0))
    tracemalloc.start()  # The second time: what the first one compiles is not counted.
    try:
        assert ma.cmd(reading[:200_000], reading[200_000:], interval=(0.0, 9.0)) == value
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20
    assert value == pytest.approx(ma.cmd(*np.split(np.array(reading, float), [200_000]), interval=(0.0, 9.0)), rel=1e-9)


def test_a_data_set_on_disk_is_read_some_rows_at_a_time(tmp_path, rng):
    columns = {name: rng.random(400_000) for name in "abcdefgh"}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=20_000)  # 26 MB
    del columns
    pool = pa.default_memory_pool()
    before, peak, batches = pool.bytes_allocated(), 0, 0
    for chunk in read_chunks(ds.dataset(tmp_path)):
        peak, batches = max(peak, pool.bytes_allocated() - before), batches + 1
        assert chunk.nbytes <= 2**15 * 8 * 8
    assert batches == 20
    assert peak < 12 * 2**20


def test_a_stream_goes_on_where_it_was_written_down(tmp_path, rng):
    batches = rng.random((6, 50, 3))
    whole = ma.Moments.of(iter(batches))
    half = ma.Moments.of(iter(batches[:3]))
    (tmp_path / "moments.json").write_text(json.dumps(half.to_dict()))
    again = ma.Moments.from_dict(json.loads((tmp_path / "moments.json").read_text()))
    for batch in batches[3:]:
        again.update(batch)
    assert again.to_dict() == whole.to_dict()


def test_moments_need_neither_torch_nor_dask():
    """A worker that adds up blocks has little memory."""
    script = (
        "import sys, momentalign as ma; ma.Moments.of([[1.0]]); print({'torch', 'dask', 'pandas'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_every_example_of_the_guide_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guide = (Path(__file__).parents[2] / "docs" / "streams.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    assert len(blocks) >= 4
    names = {}
    for block in blocks:
        exec(compile(block, "docs/streams.md", "exec"), names)  # noqa: S102

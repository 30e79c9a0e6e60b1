"""The same seed gives the same bits, whatever the threads, the hash seed or the process; nothing global is touched."""

import hashlib
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from momentalign.training import stack

ENGINES = {"batched": np.inf, "compiled": 0.0}

SCRIPT = """
import hashlib, os
import numpy as np, torch
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # torch by itself takes no more than there are cores
from momentalign import MANNClassifier
from momentalign.training import stack
rng = np.random.default_rng(0)
# Sums over this many rows torch splits over threads.
X, y = rng.normal(size=(4000, 50)), np.array(["a", "b"])[np.arange(4000) % 2]
digests, threads = [], torch.get_num_threads()
for limit in (0.0, float("inf")):
    stack.WORTH_COMPILING = limit
    for discrepancy in ("cmd", "coral"):
        model = MANNClassifier(hidden=(30,), discrepancy=discrepancy, batch_size=None, max_epochs=2, random_state=7)
        model.fit(X, y, X[:3200] + 0.5)
        parts = [*model.coefs_, *model.intercepts_, model.predict_proba(X)]
        digests.append(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
assert torch.get_num_threads() == threads, "threads were not given back"
print(threads, *digests)
"""


def _digests(**environment):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env={**os.environ, **environment}, check=True
    )
    threads, *digests = done.stdout.split()
    return int(threads), digests


def test_threads_hash_seeds_and_processes_change_no_bit():
    runs = [
        _digests(OMP_NUM_THREADS="1", PYTHONHASHSEED="1"),
        _digests(OMP_NUM_THREADS="4", PYTHONHASHSEED="2", MKL_NUM_THREADS="4"),
    ]
    assert [threads for threads, _ in runs] == [1, 4]
    assert runs[0][1] == runs[1][1]
    assert len(set(runs[0][1])) == 4


@pytest.mark.long
def test_no_number_of_threads_changes_a_bit():
    runs = [_digests(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads)) for threads in (1, 2, 4, 8)]
    assert [threads for threads, _ in runs] == [1, 2, 4, 8]
    assert len({tuple(digests) for _, digests in runs}) == 1


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    monkeypatch.setattr(stack, "WORTH_COMPILING", ENGINES[request.param])
    return request.param


def _digest(model):
    return hashlib.sha256(b"".join(part.tobytes() for part in model.coefs_ + model.intercepts_)).hexdigest()


@pytest.mark.parametrize("optimizer", ["adagrad", "adadelta", "sgd", "adam"])
def test_the_same_seed_gives_the_same_bits(quick, data, engine, optimizer):
    first, second = (quick(optimizer=optimizer, random_state=3).fit(*data) for _ in range(2))
    assert _digest(first) == _digest(second)
    assert first.history_ == second.history_
    assert _digest(quick(optimizer=optimizer, random_state=4).fit(*data)) != _digest(first)


def test_global_random_states_are_neither_read_nor_moved(quick, data, engine):
    digests = set()
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
        for state in (0, None, np.random.RandomState(0)):
            model = quick(random_state=state).fit(*data)
            model.predict(data[0])
            if state == 0:
                digests.add(_digest(model))
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
        assert after == before
    assert len(digests) == 1


def test_a_callers_settings_of_torch_survive_a_fit(quick, data, engine):
    torch.set_default_dtype(torch.float64)
    try:
        digest = _digest(quick().fit(*data))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert _digest(quick().fit(*data)) == digest
    with torch.no_grad():
        assert _digest(quick().fit(*data)) == digest
        assert not torch.is_grad_enabled()

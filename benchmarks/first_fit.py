"""What the first call costs on a machine that has compiled nothing yet: CPU seconds beyond those of the second call.

Each case runs in a process of its own with an empty compile cache. Imports of the module that defines a public name
come before; what a call imports by itself counts. CPU seconds are those of the process, so that other work on the
machine does not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.figure import Figure

MOST = 5.0

DATA = """
import time
import numpy as np
from scipy import sparse
import momentalign as ma
random = np.random.default_rng(0)
X = random.normal(size=(2000, 20)).astype(np.float32)
T, y = X + 0.5, (X[:, 0] + 0.5 * random.normal(size=2000) > 0).astype(int)
S, R = (sparse.random(2000, 500, density, "csr", np.float32, random_state=0) for density in (0.03, 0.04))
D = np.repeat([1, 2, -1, -2], 1000)
"""
CALL = """
def call():
    {call}
getattr(ma, {name!r})
seconds = []
for _ in range(2):
    began = time.process_time()
    call()
    seconds.append(time.process_time() - began)
print(seconds[0] - seconds[1])
"""
FITS = {
    "dense, CMD": 'ma.MANNClassifier(random_state=0).fit(X, y, T)',
    "CSR, CMD": 'ma.MANNClassifier(random_state=0).fit(S, y, R)',
    "CSR, CMD, Adam": 'ma.MANNClassifier(optimizer="adam", random_state=0).fit(S, y, R)',
    "dense, no distance, SGD": 'ma.MANNClassifier(discrepancy=None, optimizer="sgd", random_state=0).fit(X, y, T)',
    "dense, CMD, Adadelta": 'ma.MANNClassifier(optimizer="adadelta", random_state=0).fit(X, y, T)',
    "CSR, CV-CMD": 'ma.MANNClassifier(discrepancy="cv-cmd", random_state=0).fit(S, y, R)',
    "CSR, MMD": 'ma.MANNClassifier(discrepancy="mmd", random_state=0).fit(S, y, R)',
    "CSR, CORAL": 'ma.MANNClassifier(discrepancy="coral", random_state=0).fit(S, y, R)',
    "dense, DANN": 'ma.MANNClassifier(discrepancy="dann", random_state=0).fit(X, y, T)',
    "CSR, CMD, sharpened": 'ma.MANNClassifier(sharpen=1.0, random_state=0).fit(S, y, R)',
    "CSR, CMD of seven moments": 'ma.MANNClassifier(n_moments=7, random_state=0).fit(S, y, R)',
    "CSR, CMD of two sources and two targets": (
        'ma.MANNClassifier(between="pairs", random_state=0)'
        '.fit(sparse.vstack([S, R]), np.r_[y, y], sample_domain=D)'
    ),
}  # fmt: skip
CALLS = {
    "ma.cmd of arrays": ("cmd", "ma.cmd(X, T)"),
    "ma.cmd of tensors, with gradient": (
        "cmd", "import torch; x = torch.tensor(X, requires_grad=True); ma.cmd(x, torch.tensor(T)).backward()",
    ),
    "ma.Moments of 20,000 rows": ("Moments", "ma.Moments().update(np.repeat(X, 10, 0))"),
    "ma.diagnose": ("diagnose", "ma.diagnose(X, T)"),
}  # fmt: skip


def figures() -> Iterator[Figure]:
    """Yield how many CPU seconds the first call takes more than the second."""
    for name, call in FITS.items():
        yield Figure("first_fit", f"first fit, {name}", seconds("MANNClassifier", call), at_most=MOST)
    for name, (public, call) in CALLS.items():
        yield Figure("first_fit", f"first {name}", seconds(public, call), at_most=MOST)


def seconds(name: str, call: str) -> float:
    """CPU seconds of the first call beyond those of the second, in a new process with an empty cache."""
    script = DATA + CALL.format(name=name, call=call)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(  # noqa: S603  (a script of this file)
            [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    return float(done.stdout.splitlines()[-1])

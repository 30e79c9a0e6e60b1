"""The compiled loops, run as the Python they are written in: every line and branch, with Python's own index checks."""

import os
import subprocess
import sys

SCRIPT = """
import warnings

import numpy as np
import torch
from scipy import sparse

from momentalign.discrepancies.adversarial import AdversarialLoss
from momentalign.discrepancies.central_moment import CMDLoss, stacked_terms
from momentalign.discrepancies.cross_moments import _kernel_squares
from momentalign.discrepancies.coral import CORALLoss
from momentalign.discrepancies._cpu import CPUBackend
from momentalign.discrepancies.fused import differentiable_terms
from momentalign.discrepancies.cross_moments import _squares_and_sizes, _squares_gradient
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.training.torch_engine import BatchedEngine
from momentalign.training.compiled_engine import CompiledEngine, CompiledTask
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig, Task

warnings.filterwarnings("error")
random = np.random.default_rng(0)
source = ((random.random((13, 20)) + 0.1) * (random.random((13, 20)) < 0.12)).astype(np.float32)
target = (random.random((9, 20)) * (random.random((9, 20)) < 0.3)).astype(np.float32)
labels = np.arange(13) % 3
rows = {"csr": (sparse.csr_matrix(source), sparse.csr_matrix(target))}
rows |= {"dense": (source + 0.1, target), "mostly zero": (source, target)}
cases = [
    ("csr", "adagrad", None), ("csr", "adadelta", CMDLoss(5)), ("csr", "sgd", MMDLoss(beta=1.0)), ("csr", "adam", None),
    ("dense", "adagrad", CMDLoss(3, cross=2)), ("dense", "sgd", CMDLoss(2)), ("dense", "adadelta", None),
    ("dense", "adam", CORALLoss()), ("csr", "adagrad", AdversarialLoss(3)), ("mostly zero", "sgd", CMDLoss(2)),
]
for kind, optimizer, distance in cases:
    task = Task(rows[kind][0], labels, rows[kind][1], 3, rows[kind][0][:5], labels[:5])
    rule = Optimizer(optimizer, decay=0.1 if optimizer == "sgd" else 0.0)
    config = TrainingConfig(hidden=(3,), optimizer=rule, batch_size=7)
    specs = [NetworkSpec(1, 2.0, distance)]
    ours = CompiledEngine(CompiledTask(task, config), task, config, specs[0])
    exact = BatchedEngine(task, config, specs)
    ours.run_epochs(2), exact.run_epochs(2)
    np.testing.assert_allclose(ours.validate().loss, exact.validate().loss, rtol=1e-5)
    for left, right in zip(ours.layers(0), exact.layers(0)):
        np.testing.assert_allclose(left.weight, right.weight, atol=1e-4)
source, target = random.normal(size=(13, 3)).astype(np.float32), random.normal(size=(9, 3)).astype(np.float32)
task = Task(source, np.arange(13) % 2, target, 2, source_domains=np.arange(13) % 2, target_domains=np.arange(9) % 2)
config = TrainingConfig(hidden=(3,), optimizer=Optimizer("sgd"), batch_size=4)
for between in ("pooled", "pairs", "barycentre"):
    for weights in ("equal", "size", "similarity", (2.0, 1.0)):
        spec = NetworkSpec(1, 2.0, CMDLoss(3), between=between, domain_weights=weights, sharpen=0.5)
        ours = CompiledEngine(CompiledTask(task, config), task, config, spec)
        exact = BatchedEngine(task, config, [spec])
        np.testing.assert_allclose(ours.run_epochs(1), exact.run_epochs(1), rtol=1e-5)
        for left, right in zip(ours.layers(0), exact.layers(0)):
            np.testing.assert_allclose(left.weight, right.weight, atol=1e-5)
alike = np.repeat(source[:2], 3, axis=0)
task = Task(alike, np.arange(6) % 2, source[:2], 2, source_domains=np.array([0, 1, 2, 0, 1, 2]))
spec = NetworkSpec(1, 2.0, CMDLoss(2), between="pairs", domain_weights="similarity")
assert CompiledEngine(CompiledTask(task, config), task, config, spec).run_epochs(1)[0].distance == 0
for order in (1, 2, 3, 5, 6):
    s, t = (torch.tensor(random.random((n, 3)), requires_grad=True) for n in (9, 6))
    terms = differentiable_terms(CPUBackend(), s, t, order, scale=2.0, summed=False, plain=stacked_terms)
    torch.testing.assert_close(terms, stacked_terms(s, t, order, scale=2.0))
    ours = torch.autograd.grad(terms.sum(), (s, t))
    torch.testing.assert_close(ours, torch.autograd.grad(stacked_terms(s, t, order, scale=2.0).sum(), (s, t)))
same = differentiable_terms(CPUBackend(), s, s.detach().flip(0), 5, scale=1.0, summed=True, plain=stacked_terms)
assert same == 0
rows = torch.tensor(random.random((7, 3)) - 0.5, requires_grad=True)
signs = torch.tensor([1 / 3] * 3 + [-1 / 4] * 4, dtype=torch.float64)
expected, _ = _kernel_squares(rows, signs, 4)
torch.testing.assert_close(_squares_and_sizes(rows.detach(), signs, 4)[0], expected.detach())
(slopes,) = torch.autograd.grad(expected.sum(), rows)
torch.testing.assert_close(_squares_gradient(rows.detach(), signs, 4, torch.ones(3).double()), slopes)
print("as python")
"""


def test_every_loop_as_python():
    """Equal domains are at distance zero."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "as python", run.stderr[-3000:]

"""The compiled loops against float64 autograd, and what is compiled."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import typeof
from scipy import sparse

import momentalign as ma
from momentalign.training import compiled_engine as compiled
from momentalign.training import loops
from momentalign.training.compiled_engine import CompiledEngine, CompiledTask
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig
from momentalign.training.distance_loops import OBJECTIVE
from momentalign.training.row_loops import DENSE, SPARSE
from momentalign.training.update_loops import NETWORK, RULE

OPTIMIZERS = {
    "adagrad": Optimizer("adagrad", 0.05),
    "adadelta": Optimizer("adadelta"),
    "sgd": Optimizer("sgd", 0.1, momentum=0.9, decay=0.01),
    "adam": Optimizer("adam", 0.01),
}
DISTANCES = {
    "none": None,
    "cmd": ma.CMDLoss(5),
    "cmd of one moment": ma.CMDLoss(1),
    "cmd of seven moments on (-1, 1)": ma.CMDLoss(7, interval=(-1.0, 1.0)),
    "cv-cmd": ma.CMDLoss(4, cross=2),
    "coral": ma.CORALLoss(),
    "mmd": ma.MMDLoss(beta=0.8),
    "mmd of median width": ma.MMDLoss(),
    "dann": ma.AdversarialLoss(7),
}


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["dense", "mostly zero", "csr"])
def test_it_trains_what_float64_autograd_trains(make_task, assert_agreement, kind, optimizer, distance):
    task = make_task(kind, rows=41, target_rows=30)
    config = TrainingConfig(hidden=(7,), optimizer=OPTIMIZERS[optimizer], batch_size=16)
    weight = 5.0 if distance == "coral" else 0.8
    assert_agreement(task, config, NetworkSpec(3, weight, DISTANCES[distance]), epochs=6)


@pytest.mark.parametrize("batch_size", [None, 5, 13, 40, 1000])
@pytest.mark.parametrize(("rows", "target_rows"), [(40, 40), (53, 21), (21, 53), (40, 0)])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_batch_sizes_and_unequal_domains(make_task, assert_agreement, kind, rows, target_rows, batch_size):
    task = make_task(kind, rows=rows, target_rows=target_rows)
    config = TrainingConfig(hidden=(6,), optimizer=OPTIMIZERS["adagrad"], batch_size=batch_size)
    assert_agreement(task, config, NetworkSpec(1, 1.0, ma.CMDLoss(3)), epochs=3)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_of_a_feature_that_a_batch_does_not_have_move_on(make_task, assert_agreement, optimizer):
    """Adagrad stands still without a gradient; momentum and running means do not."""
    task, config = make_task("csr"), TrainingConfig(hidden=(6,), optimizer=OPTIMIZERS[optimizer], batch_size=4)
    absent = [
        (task.source[rows].getnnz(0) + task.target[others].getnnz(0) == 0).any() for rows, others in config.epoch(task)
    ]
    assert all(absent)
    assert_agreement(task, config, NetworkSpec(1, 0.5, ma.CMDLoss(2)), epochs=3)


@pytest.mark.parametrize("features", [1, 2, 3, 5])
def test_any_number_of_features_units_and_classes(rng, assert_agreement, features):
    """Widths around the four columns and rows that the loops take at a time."""
    source, target = (rng.normal(size=(rows, features)).astype(np.float32) for rows in (23, 18))
    for units, classes in [(1, 2), (5, 4)]:
        task = Task(source, rng.permutation(np.arange(23) % classes), target, classes)
        config = TrainingConfig(hidden=(units,), optimizer=OPTIMIZERS["sgd"], batch_size=9)
        assert_agreement(task, config, NetworkSpec(1, 0.5, ma.CMDLoss(2, cross=2)), epochs=3)


def test_held_out_rows_by_the_hundreds_are_all_looked_at(make_task, assert_agreement):
    assert_agreement(make_task(held_out=700), TrainingConfig(hidden=(6,), batch_size=16), NetworkSpec(0), epochs=2)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_saturated_units_and_extreme_outputs_stay_finite(make_task, assert_agreement, kind):
    task = make_task(kind)
    config = TrainingConfig(hidden=(6,), optimizer=Optimizer("sgd", 1e-6, momentum=0.0))
    large = [layer._replace(weight=200.0 * layer.weight) for layer in NetworkSpec(0).start(task, config)]
    assert_agreement(task, config, NetworkSpec(0, 0.1, ma.CMDLoss(2), large), epochs=2)


def test_mostly_zero_rows_are_laid_out_as_sparse():
    """A fifth of non-zeros is the limit; few columns are not worth it."""
    rows = np.zeros((10, 20), np.float32)
    rows[:, :4] = 1.0
    assert not compiled._is_mostly_zero(rows)
    rows[0, 0] = 0.0
    assert compiled._is_mostly_zero(rows)
    assert not compiled._is_mostly_zero(rows[:, 5:])
    assert compiled._is_mostly_zero(sparse.csr_matrix(np.ones((2, 2))))


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_arguments_have_the_types_the_loops_are_compiled_for(make_task, kind):
    """Calls do not look at them: one of another type would be read as what it is not."""
    task, config = make_task(kind), TrainingConfig(hidden=(1,), optimizer=OPTIMIZERS["sgd"])
    spec = NetworkSpec(3, 1, ma.CMDLoss(), domain_weights=(2, 1))
    engine = CompiledEngine(CompiledTask(task, config), task, config, spec)
    laid_out, (objective, compares, sharpen, shares, rule, _) = engine._task, engine._setting
    assert typeof(laid_out.rows) == typeof(laid_out.validation[0]) == (SPARSE if kind == "csr" else DENSE)
    assert (typeof(laid_out.batches), typeof(laid_out.validation[1])) == (loops.BATCHES, loops.CODES)
    assert (typeof(engine._network), typeof(objective), typeof(rule)) == (NETWORK, OBJECTIVE, RULE)
    assert (type(compares), type(sharpen), shares.dtype) == (bool, float, np.float64)


ONE_FIT = """
import logging, sys
import numpy as np
from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.training.config import NetworkSpec, Task, TrainingConfig
from momentalign.training.stack import train_stack

logging.basicConfig(format="%(message)s")
rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
config = TrainingConfig(hidden=(3,), max_epochs=2, compiled=True)
task = Task(rows, np.arange(20) % 2, rows + 1, 2, rows[:4], np.arange(4) % 2)
for _ in range(2):
    train_stack(task, config, [NetworkSpec(0, 1.0, CMDLoss())])
loops = [part for name, part in sys.modules.items() if name.startswith("momentalign.training.")]
found = {name: value for part in loops for name, value in vars(part).items()}
names = [n for n, f in found.items() if getattr(f, "signatures", None) or "compiled" in getattr(f, "__dict__", {})]
print(" ".join(names))
"""


def test_only_what_a_fit_needs_is_compiled_once_on_a_machine_and_that_is_announced(tmp_path):
    def fit():
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        run = subprocess.run([sys.executable, "-c", ONE_FIT], env=environment, capture_output=True, text=True)
        return run.stdout.split(), run.stderr.splitlines()

    names, said = fit()
    assert said == ["compiling the training loops, once on this machine (some seconds)"]
    assert {"forward_dense", "descend_dense", "few_sums"} <= set(names)
    others = {"forward_sparse", "descend_sparse", "sharpening", "many_sums", "mmd", "coral", "cmd_of_domains"}
    assert not others & set(names)
    assert fit()[1] == []

"""The compiled loops against float64 autograd."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

import momentalign as ma
from momentalign.training import compiled_engine as compiled
from momentalign.training.compiled_engine import CompiledEngine, CompiledTask, is_compilable
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig
from momentalign.training.torch_engine import BatchedEngine

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


def _engines(task, config, specs):
    exact = BatchedEngine(task, config, specs, dtype=torch.float64)
    return CompiledEngine(CompiledTask(task, config), task, config, specs), exact


def _assert_agreement(task, config, specs, difference, epochs=6):
    fast, exact = _engines(task, config, specs)
    for _ in range(epochs):
        for figure, expected in zip(fast.run_epochs(1)[0], exact.run_epochs(1)[0], strict=True):
            np.testing.assert_allclose(figure, expected, rtol=1e-4, atol=1e-6)
    for index in range(len(specs)):
        assert difference(fast.layers(index), exact.layers(index)) < 1e-4
    if task.validation is not None:
        figures, expected = fast.validate(), exact.validate()
        np.testing.assert_allclose(figures.loss, expected.loss, rtol=1e-4)
        np.testing.assert_allclose(figures.accuracy, expected.accuracy, rtol=1e-12)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["dense", "mostly zero", "csr"])
def test_it_trains_what_float64_autograd_trains(make_task, largest_difference, kind, optimizer, distance):
    task = make_task(kind, rows=41, target_rows=30)
    config = TrainingConfig(hidden=(7,), optimizer=OPTIMIZERS[optimizer], batch_size=16)
    weight = 5.0 if distance == "coral" else 0.8
    _assert_agreement(task, config, [NetworkSpec(3, weight, DISTANCES[distance])], largest_difference)


@pytest.mark.parametrize("batch_size", [None, 5, 13, 40, 1000])
@pytest.mark.parametrize(("rows", "target_rows"), [(40, 40), (53, 21), (21, 53), (40, 0)])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_batch_sizes_and_unequal_domains(make_task, largest_difference, kind, rows, target_rows, batch_size):
    task = make_task(kind, rows=rows, target_rows=target_rows)
    config = TrainingConfig(hidden=(6,), optimizer=OPTIMIZERS["adagrad"], batch_size=batch_size)
    _assert_agreement(task, config, [NetworkSpec(1, 1.0, ma.CMDLoss(3))], largest_difference, epochs=3)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_of_a_feature_that_a_batch_does_not_have_move_on(make_task, largest_difference, optimizer):
    """Adagrad stands still without a gradient; momentum and running means do not."""
    task, config = make_task("csr"), TrainingConfig(hidden=(6,), optimizer=OPTIMIZERS[optimizer], batch_size=4)
    absent = [
        (task.source[rows].getnnz(0) + task.target[others].getnnz(0) == 0).any() for rows, others in config.epoch(task)
    ]
    assert all(absent)
    _assert_agreement(task, config, [NetworkSpec(1, 0.5, ma.CMDLoss(2))], largest_difference, epochs=3)


@pytest.mark.parametrize("features", [1, 2, 3, 5])
def test_any_number_of_features_units_and_classes(rng, largest_difference, features):
    """Widths around the four columns and rows that the loops take at a time."""
    source, target = (rng.normal(size=(rows, features)).astype(np.float32) for rows in (23, 18))
    for units, classes in [(1, 2), (5, 4)]:
        task = Task(source, rng.permutation(np.arange(23) % classes), target, classes)
        config = TrainingConfig(hidden=(units,), optimizer=OPTIMIZERS["sgd"], batch_size=9)
        _assert_agreement(task, config, [NetworkSpec(1, 0.5, ma.CMDLoss(2, cross=2))], largest_difference, epochs=3)


def test_held_out_rows_by_the_hundreds_are_all_looked_at(make_task, largest_difference):
    task = make_task(held_out=700)
    _assert_agreement(
        task, TrainingConfig(hidden=(6,), batch_size=16), [NetworkSpec(0), NetworkSpec(1)], largest_difference, epochs=2
    )


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_saturated_units_and_extreme_outputs_stay_finite(make_task, largest_difference, kind):
    task = make_task(kind)
    config = TrainingConfig(hidden=(6,), optimizer=Optimizer("sgd", 1e-6, momentum=0.0))
    large = [layer._replace(weight=200.0 * layer.weight) for layer in NetworkSpec(0).start(task, config)]
    _assert_agreement(task, config, [NetworkSpec(0, 0.1, ma.CMDLoss(2), large)], largest_difference, epochs=2)


def test_mostly_zero_rows_are_laid_out_as_sparse(make_task):
    """A fifth of non-zeros is the limit; few columns are not worth it."""
    rows = np.zeros((10, 20), np.float32)
    rows[:, :4] = 1.0
    assert not compiled._is_mostly_zero(rows)
    rows[0, 0] = 0.0
    assert compiled._is_mostly_zero(rows)
    assert not compiled._is_mostly_zero(rows[:, 5:])
    assert compiled._is_mostly_zero(sparse.csr_matrix(np.ones((2, 2))))


def test_retain_goes_on_with_the_right_networks(make_task, largest_difference):
    task, config = make_task(), TrainingConfig(hidden=(4,), batch_size=16)
    specs = [NetworkSpec(seed, 0.5, ma.CMDLoss(2)) for seed in range(3)]
    cut, _ = _engines(task, config, specs)
    alone, _ = _engines(task, config, specs[2:])
    cut.run_epochs(1)[0]
    alone.run_epochs(1)[0]
    cut.keep_only([2])
    np.testing.assert_array_equal(cut.run_epochs(1)[0], alone.run_epochs(1)[0])
    assert largest_difference(cut.layers(0), alone.layers(0)) == 0.0


LONG = TrainingConfig(hidden=(50,), max_epochs=100_000, patience=None)


@pytest.mark.parametrize("distance", [*DISTANCES.values(), ma.MMDLoss(beta=2)])
def test_long_trainings_with_known_distances_are_compiled(make_task, distance):
    assert is_compilable(make_task(), LONG, [NetworkSpec(0, 1.0, distance)])


@pytest.mark.parametrize(
    "distance",
    [
        lambda source, target: (source.mean() - target.mean()).abs(),
        ma.CMDLoss(3, unbiased=True),
        ma.CMDLoss(3, interval="data"),
        ma.CMDLoss(3, cross=3),
        ma.MMDLoss("gaussians"),
        ma.MMDLoss(beta=1.0, unbiased=True),
        ma.MMDLoss("polynomial", beta=1.0),
        type("Mine", (ma.CORALLoss,), {"forward": lambda *_: 0.0})(),
    ],
)
def test_other_distances_are_left_to_autograd_unless_they_have_no_weight(make_task, distance):
    assert not is_compilable(make_task(), LONG, [NetworkSpec(0), NetworkSpec(1, 1.0, distance)])
    assert is_compilable(make_task(), LONG, [NetworkSpec(0, 0.0, distance)])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_epochs": 10}, False),
        ({"max_epochs": 20_000}, True),
        ({"max_epochs": 20_000, "patience": 10}, False),
        ({"max_epochs": 20_000, "patience": 100}, True),
        ({"hidden": (20_000_000,), "max_epochs": 10}, True),
        ({"hidden": (50, 50)}, False),
        ({"loss": "squared"}, False),
    ],
)
def test_short_and_deep_trainings_are_left_to_torch(make_task, settings, expected):
    """A training that stops early is not as long as its most epochs."""
    config = replace(LONG, **settings)
    answers = {is_compilable(make_task(), config, [NetworkSpec(0)] * count) for count in (1, 500)}
    assert answers == {expected}


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
    """An index of numba's cache that is of another Python, or empty, counts for nothing."""

    def fit():
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        run = subprocess.run([sys.executable, "-c", ONE_FIT], env=environment, capture_output=True, text=True)
        return run.stdout.split(), run.stderr.splitlines()

    announcement = ["compiling the training loops, once on this machine (some seconds)"]
    names, said = fit()
    assert said == announcement
    assert {"forward_dense", "step_adagrad", "few_sums"} <= set(names)
    others = {"forward_sparse", "descend_sparse", "step_adam", "many_sums", "mmd", "coral", "cmd_of_domains"}
    assert not others & set(names)
    assert fit()[1] == []
    for index in tmp_path.rglob("*.nbi"):
        index.rename(str(index).replace(f"py3{sys.version_info.minor}", "py399"))
    assert fit()[1] == announcement

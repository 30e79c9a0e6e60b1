"""Tasks side by side are the tasks one by one."""

import numpy as np
import pytest
import torch
from scipy import sparse

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.paper.grouped import GroupedEngine, reverse_scores_of_tasks, train_tasks
from momentalign.selection.reverse import reverse_scores
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig
from momentalign.training.stack import train_stack

CONFIG = TrainingConfig(hidden=(6,), batch_size=13, max_epochs=30, patience=3, optimizer=Optimizer("adagrad", 0.1))
SPECS = [NetworkSpec(0), NetworkSpec(1, 1.0, CMDLoss(3)), NetworkSpec(2, 0.5, CMDLoss(5))]
GROUPED = "cpu:0"  # the path of an accelerator, computed on the CPU


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("held_out", [16, 0])
def test_grouped_tasks_are_the_tasks_one_by_one(make_task, kind, held_out):
    """Each task has networks of its own, and gradients that the caller has switched off are switched on."""
    config = (
        CONFIG if held_out else TrainingConfig(hidden=(6,), batch_size=13, max_epochs=5, patience=None, keep="last")
    )
    tasks = [make_task(kind, seed=seed, held_out=held_out) for seed in range(3)]
    specs = [SPECS, [NetworkSpec(5, 1.0, CMDLoss(2)), NetworkSpec(6), NetworkSpec(7)], SPECS[::-1]]
    with torch.no_grad():
        together = train_tasks(tasks, config, specs, device=GROUPED)
    alone = train_tasks(tasks, config, specs)
    assert len({network.n_epochs for own in together for network in own}) > 1 or not held_out
    for task, own, grouped, single in zip(tasks, specs, together, alone, strict=True):
        expected = train_stack(task, config, own)
        for one, other, same in zip(grouped, single, expected, strict=True):
            assert (one.n_epochs, one.best_epoch) == (other.n_epochs, other.best_epoch)
            np.testing.assert_array_equal(other.layers[0].weight, same.layers[0].weight)
            for left, right in zip(one.layers, other.layers, strict=True):
                np.testing.assert_allclose(left.weight, right.weight, atol=2e-3)
                np.testing.assert_allclose(left.bias, right.bias, atol=2e-3)
            np.testing.assert_allclose(one.history.source_loss, other.history.source_loss, atol=1e-4)


@pytest.mark.gpu
def test_grouped_tasks_on_a_gpu():
    random = np.random.default_rng(0)
    tasks = [
        Task(sparse.random(60, 40, 0.2, "csr", np.float32, random), np.arange(60) % 2,
             sparse.random(50, 40, 0.2, "csr", np.float32, random), 2,
             sparse.random(20, 40, 0.2, "csr", np.float32, random), np.arange(20) % 2)
        for _ in range(3)
    ]  # fmt: skip
    on_gpu, on_cpu = (train_tasks(tasks, CONFIG, [SPECS] * 3, device=device) for device in ("cuda", "cpu"))
    for networks, expected in zip(on_gpu, on_cpu, strict=True):
        for one, other in zip(networks, expected, strict=True):
            torch.testing.assert_close(one.history.source_loss[:5], other.history.source_loss[:5], atol=1e-3, rtol=1e-3)


def test_stopped_networks_give_up_their_room(make_task):
    tasks = [make_task(seed=seed) for seed in range(2)]
    specs = [[NetworkSpec(seed, 0.5, CMDLoss(2)) for seed in range(4)]] * 2
    cut, whole = (GroupedEngine(tasks, CONFIG, specs, device="cpu") for _ in range(2))
    for engine in (cut, whole):
        engine.run_epochs(2)
    cut.keep_only([1, 3, 6])
    assert len(cut._slots[0]) == 2
    for engine in (cut, whole):
        engine.run_epochs(3)
    for position, network in enumerate([1, 3, 6]):
        for left, right in zip(cut.layers(position), whole.layers(network), strict=True):
            torch.testing.assert_close(left.weight, right.weight, atol=1e-6, rtol=1e-5)
    np.testing.assert_allclose(cut.validate().loss, whole.validate().loss[[1, 3, 6]], rtol=1e-5)


def test_tasks_together_have_the_reverse_scores_of_tasks_alone(make_task):
    tasks = [make_task(seed=seed, held_out=0) for seed in range(2)]
    together = reverse_scores_of_tasks(tasks, CONFIG, SPECS, seed=3, device=GROUPED)
    assert together.shape == (2, 3)
    for one, scores in zip(tasks, together, strict=True):
        np.testing.assert_array_equal(scores, list(reverse_scores(one, CONFIG, SPECS, seed=3, device=GROUPED)))

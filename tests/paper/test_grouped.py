"""Tasks side by side are the tasks one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.errors import InvalidInputError
from momentalign.paper import grouped
from momentalign.paper.grouped import GroupedEngine, are_alike, reverse_scores_of_tasks, train_tasks
from momentalign.selection.reverse import reverse_scores
from momentalign.training import stack
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig
from momentalign.training.stack import train_stack

RECIPE = TrainingConfig(hidden=(6,), batch_size=13, max_epochs=30, patience=3, optimizer=Optimizer("adagrad", 0.1))
MEMBERS = [NetworkSpec(0), NetworkSpec(1, 1.0, CMDLoss(3)), NetworkSpec(2, 0.5, CMDLoss(5))]


def _grouped(tasks, config):
    engine = GroupedEngine(tasks, config, [MEMBERS] * len(tasks), device="cpu")
    return stack.run_engine(engine, tasks[0], config, MEMBERS * len(tasks), None)


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("held_out", [16, 0])
def test_grouped_tasks_are_the_tasks_one_by_one(make_task, kind, held_out):
    config = (
        RECIPE if held_out else TrainingConfig(hidden=(6,), batch_size=13, max_epochs=5, patience=None, keep="last")
    )
    tasks = [make_task(kind, seed=seed, held_out=held_out) for seed in range(3)]
    together = _grouped(tasks, config)
    alone = [network for task in tasks for network in train_stack(task, config, MEMBERS)]
    assert [network.n_epochs for network in together] == [network.n_epochs for network in alone]
    assert len({network.n_epochs for network in together}) > 1 or not held_out
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.best_epoch == theirs.best_epoch
        for left, right in zip(ours.layers, theirs.layers, strict=True):
            np.testing.assert_allclose(left.weight, right.weight, atol=2e-3)
            np.testing.assert_allclose(left.bias, right.bias, atol=2e-3)
        np.testing.assert_allclose(ours.history.source_loss, theirs.history.source_loss, atol=1e-4)


def test_gradients_that_the_caller_has_switched_off_are_switched_on(make_task):
    tasks = [make_task(seed=seed) for seed in range(2)]
    expected = _grouped(tasks, RECIPE)
    with torch.no_grad():
        found = _grouped(tasks, RECIPE)
    np.testing.assert_array_equal(found[1].layers[0].weight, expected[1].layers[0].weight)


def test_only_tasks_of_one_shape_are_alike(make_task):
    assert are_alike([make_task(seed=0), make_task(seed=1)], RECIPE)
    assert not are_alike([make_task(), make_task(rows=41)], RECIPE)
    assert not are_alike([make_task(), make_task(held_out=0)], RECIPE)
    assert not are_alike([make_task()], TrainingConfig(hidden=(5, 5)))
    assert not are_alike([make_task()], TrainingConfig(hidden=(6,), loss="squared"))
    assert not are_alike([replace(make_task(), source_domains=np.arange(40) % 2)], RECIPE)


def test_on_the_cpu_tasks_train_one_after_the_other(make_task):
    tasks = [make_task(seed=0), make_task(seed=1, rows=30)]
    trained = train_tasks(tasks, RECIPE, MEMBERS)
    for task, networks in zip(tasks, trained, strict=True):
        expected = train_stack(task, RECIPE, MEMBERS)
        np.testing.assert_array_equal(networks[1].layers[0].weight, expected[1].layers[0].weight)


@pytest.mark.gpu
def test_grouped_tasks_on_a_gpu():
    from scipy import sparse

    from momentalign.training.config import Task

    random = np.random.default_rng(0)
    tasks = [
        Task(sparse.random(60, 40, 0.2, "csr", np.float32, random), np.arange(60) % 2,
             sparse.random(50, 40, 0.2, "csr", np.float32, random), 2,
             sparse.random(20, 40, 0.2, "csr", np.float32, random), np.arange(20) % 2)
        for _ in range(3)
    ]  # fmt: skip
    on_gpu = train_tasks(tasks, RECIPE, MEMBERS, device="cuda")
    for networks, task in zip(on_gpu, tasks, strict=True):
        for ours, theirs in zip(networks, train_stack(task, RECIPE, MEMBERS), strict=True):
            torch.testing.assert_close(
                ours.history.source_loss[:5], theirs.history.source_loss[:5], atol=1e-3, rtol=1e-3
            )


def test_members_of_each_task_are_its_own(make_task):
    tasks = [make_task(seed=seed) for seed in range(2)]
    own = [[NetworkSpec(5, 1.0, CMDLoss(2)), NetworkSpec(6)], [NetworkSpec(7), NetworkSpec(8, 2.0, CMDLoss(3))]]
    engine = GroupedEngine(tasks, RECIPE, own, device="cpu")
    together = stack.run_engine(engine, tasks[0], RECIPE, [spec for specs in own for spec in specs], None)
    alone = [network for task, specs in zip(tasks, own, strict=True) for network in train_stack(task, RECIPE, specs)]
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.n_epochs == theirs.n_epochs
        np.testing.assert_allclose(ours.layers[0].weight, theirs.layers[0].weight, atol=2e-3)
    by_task = train_tasks(tasks, RECIPE, own)
    np.testing.assert_array_equal(by_task[1][1].layers[0].weight, alone[3].layers[0].weight)


def test_stopped_networks_give_up_their_room(make_task):
    tasks = [make_task(seed=seed) for seed in range(2)]
    specs = [[NetworkSpec(seed, 0.5, CMDLoss(2)) for seed in range(4)]] * 2
    cut = GroupedEngine(tasks, RECIPE, specs, device="cpu")
    whole = GroupedEngine(tasks, RECIPE, specs, device="cpu")
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


def test_members_that_fit_no_task_are_refused(make_task):
    tasks = [make_task(seed=seed) for seed in range(2)]
    for specs in ([[NetworkSpec(0)]], [[NetworkSpec(0)], [NetworkSpec(1), NetworkSpec(2)]]):
        with pytest.raises(InvalidInputError, match="one of the same length for each task"):
            train_tasks(tasks, RECIPE, specs)


@pytest.mark.parametrize("options", [{}, {"share": 0.6}])
def test_tasks_together_score_as_tasks_alone_on_the_device_that_was_said(make_task, options, monkeypatch):
    train, seen = grouped.train_tasks, []

    def watched(tasks, config, specs, **options):
        seen.append((options["device"], len(tasks)))
        return train(tasks, config, specs, **options)

    monkeypatch.setattr(grouped, "train_tasks", watched)
    tasks = [make_task(seed=seed, held_out=0) for seed in range(2)]
    together = reverse_scores_of_tasks(tasks, RECIPE, MEMBERS, seed=3, device="cpu:0", **options)
    assert together.shape == (2, 3)
    assert seen == [("cpu:0", 2), ("cpu:0", 6)]
    for one, scores in zip(tasks, together, strict=True):
        alone = list(reverse_scores(one, RECIPE, MEMBERS, seed=3, device="cpu:0", **options))
        np.testing.assert_array_equal(scores, alone)

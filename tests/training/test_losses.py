"""Networks that learn numbers: the losses of differences, on the engine that knows them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import outputs
from momentalign.training import compiled_engine as compiled
from momentalign.training import stack
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig
from momentalign.training.grouped import are_alike
from momentalign.training.stack import train_stack, train_tasks
from momentalign.training.torch_engine import (
    HUBER_DELTA,
    LOSSES,
    BatchedEngine,
    absolute_error,
    huber_error,
    squared_error,
)

RECIPE = TrainingConfig(hidden=(6,), optimizer=Optimizer("adam", 0.05), batch_size=16, max_epochs=30, loss="squared")


@pytest.fixture
def make_valued(make_task):
    """A task of `make_task` with two outputs for labels."""

    def make(kind="dense", **sizes):
        task = make_task(kind, **sizes)

        def values(rows):
            return None if rows is None else np.asarray(rows[:, :2] @ np.array([[1.0, 0.5], [-1.0, 0.5]]), np.float32)

        return replace(task, labels=values(task.source), validation_labels=values(task.validation), n_classes=2)

    return make


def huber(r):
    return np.where(np.abs(r) <= HUBER_DELTA, r**2, HUBER_DELTA * (2 * np.abs(r) - HUBER_DELTA))


# The function of each difference, and its slope.
PLAIN = {
    "squared": (squared_error, np.square, lambda r: 2 * r),
    "absolute": (absolute_error, np.abs, np.sign),
    "huber": (huber_error, huber, lambda r: 2 * np.clip(r, -HUBER_DELTA, HUBER_DELTA)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_loss_is_the_mean_over_rows_and_outputs_of_each_network(name):
    error, function, slope = PLAIN[name]
    assert LOSSES[name][0] is error
    rng = np.random.default_rng(0)
    found, values = torch.tensor(rng.normal(size=(3, 7, 2)), requires_grad=True), torch.tensor(rng.normal(size=(7, 2)))
    losses = error(found, values)
    losses.sum().backward()
    differences = (found - values).detach().numpy()
    assert 0 < np.count_nonzero(np.abs(differences) > HUBER_DELTA) < differences.size
    np.testing.assert_allclose(losses.detach().numpy(), function(differences).mean(axis=(1, 2)), rtol=1e-12)
    np.testing.assert_allclose(found.grad.numpy(), slope(differences) / 14, rtol=1e-12)


@pytest.mark.parametrize("name", PLAIN)
def test_no_difference_costs_nothing_and_pulls_nowhere(name):
    found = torch.ones(1, 3, 1, requires_grad=True)
    loss = PLAIN[name][0](found, torch.ones(3, 1))
    loss.sum().backward()
    assert loss.item() == 0.0
    assert (found.grad == 0.0).all()


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_it_is_the_textbook_training(make_valued, kind):
    task, spec = make_valued(kind), NetworkSpec(1, 0.7, ma.CMDLoss(4))
    engine = BatchedEngine(task, RECIPE, [spec])
    figures = [engine.run_epoch() for _ in range(4)][-1]
    dense = [torch.tensor(m.toarray() if kind == "csr" else m).double() for m in (task.source, task.target)]
    parts = [torch.tensor(part, requires_grad=True) for layer in spec.start(task, RECIPE) for part in layer]
    stepper = torch.optim.Adam(parts, lr=0.05)
    for _ in range(4):
        losses = []
        for rows, others in RECIPE.epoch(task):
            hidden = [torch.sigmoid(x[r] @ parts[0] + parts[1]) for x, r in zip(dense, (rows, others), strict=True)]
            loss = functional.mse_loss(hidden[0] @ parts[2] + parts[3], torch.tensor(task.labels[rows]).double())
            stepper.zero_grad()
            (loss + 0.7 * ma.cmd(*hidden, n_moments=4)).backward()
            stepper.step()
            losses.append(loss.item())
    assert figures.source_loss[0] == pytest.approx(np.mean(losses), rel=1e-9)
    for layer, weight in zip(engine.layers(0), parts[::2], strict=True):
        np.testing.assert_allclose(layer.weight, weight.detach().numpy(), atol=1e-9)


@pytest.mark.parametrize("name", PLAIN)
def test_validation_is_the_loss_of_the_held_out_rows_and_no_accuracy(make_valued, name):
    task = make_valued()
    engine = BatchedEngine(task, replace(RECIPE, loss=name), [NetworkSpec(1), NetworkSpec(2)])
    figures = engine.validate()
    for index in range(2):
        errors = outputs(engine.layers(index), task.validation.astype(np.float64)) - task.validation_labels
        assert figures.loss[index] == pytest.approx(PLAIN[name][1](errors).mean(), rel=1e-9)
    assert np.isnan(figures.accuracy).all()


@pytest.mark.parametrize("name", PLAIN)
def test_the_epoch_with_the_lowest_validation_loss_is_kept(make_valued, name):
    config = replace(RECIPE, optimizer=Optimizer("adam", 0.5), max_epochs=60, patience=5, loss=name)
    reports = []
    (network,) = train_stack(make_valued(), config, [NetworkSpec(0)], progress=reports.append)
    losses = network.history.validation_loss
    assert network.best_epoch == np.argmin(losses) + 1 == network.n_epochs - 5 < 55
    assert network.history.validation_accuracy == []
    assert np.isnan(reports[-1].validation_accuracy)


def test_numbers_of_single_precision_are_the_same_to_its_digits(make_valued):
    task = make_valued()
    single = BatchedEngine(task, RECIPE, [NetworkSpec(0)], dtype=torch.float32)
    double = BatchedEngine(task, RECIPE, [NetworkSpec(0)])
    assert single.layers(0)[0].weight.dtype == np.float32
    for _ in range(3):
        figures, expected = single.run_epoch(), double.run_epoch()
    assert figures.source_loss[0] == pytest.approx(expected.source_loss[0], rel=1e-4)


@pytest.mark.parametrize("name", PLAIN)
def test_no_loops_are_compiled_for_it(make_valued, monkeypatch, name):
    monkeypatch.setattr(compiled, "WORTH_COMPILING", 0.0)
    monkeypatch.setattr(stack, "CompiledTask", None)
    (network,) = train_stack(make_valued(), replace(RECIPE, compiled=True, loss=name), [NetworkSpec(0)])
    assert network.layers[-1].weight.shape == (6, 2)


def test_tasks_train_one_after_the_other_on_any_device(make_valued):
    tasks = [make_valued(seed=seed) for seed in range(2)]
    assert not are_alike(tasks, RECIPE)
    assert are_alike(tasks, replace(RECIPE, loss="cross_entropy"))
    trained = train_tasks(tasks, replace(RECIPE, max_epochs=2), [NetworkSpec(0)])
    assert (trained[0][0].layers[0].weight != trained[1][0].layers[0].weight).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "hinge"}, r"loss must be one of cross_entropy, squared, absolute, huber, got 'hinge'"),
        ({"loss": "huber", "balanced": True}, r"balanced batches need classes, which loss='huber' has not"),
    ],
)
def test_recipes_that_cannot_work_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        TrainingConfig(**settings)

import threading
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import activations, outputs
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig
from momentalign.training.torch_engine import BatchedEngine, one_thread, own_settings

DOUBLE = torch.float64
FLOAT32 = 5e-7  # weights are handed out in single precision
# Our settings, torch's own optimizer with the constants of the paper and of the Keras of 2017.
RULES = {
    "adagrad": (Optimizer("adagrad", 0.1), lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-8)),
    "adadelta": (Optimizer("adadelta"), lambda p: torch.optim.Adadelta(p, lr=1.0, rho=0.95, eps=1e-8)),
    "sgd": (Optimizer("sgd", 0.5, momentum=0.8), lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.8)),
    "adam": (Optimizer("adam", 0.02), lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.9, 0.999), eps=1e-8)),
}


def _plain_training(task, config, spec, optimizer, epochs):
    """Algorithm 1 as a textbook writes it: one network, plain modules, torch.optim."""
    dense = [torch.tensor(getattr(m, "toarray", lambda m=m: m)(), dtype=DOUBLE) for m in (task.source, task.target)]
    sizes = [task.source.shape[1], *config.hidden, task.n_classes]
    modules = [torch.nn.Linear(i, o, dtype=DOUBLE) for i, o in pairwise(sizes)]
    for module, layer in zip(modules, spec.start(task, config), strict=True):
        module.weight.data, module.bias.data = torch.tensor(layer.weight.T), torch.tensor(layer.bias)
    hidden = torch.nn.Sequential(*[part for module in modules[:-1] for part in (module, torch.nn.Sigmoid())])
    stepper = optimizer([p for module in modules for p in module.parameters()])
    figures = []
    for _ in range(epochs):
        for source_rows, target_rows in config.epoch(task):
            source, target = hidden(dense[0][source_rows]), hidden(dense[1][target_rows])
            loss = functional.cross_entropy(modules[-1](source), torch.tensor(task.labels[source_rows]))
            distance = spec.distance(source, target) if spec.distance else torch.zeros(())
            stepper.zero_grad()
            (loss + spec.weight * distance).backward()
            stepper.step()
            figures.append((loss.item(), distance.item()))
    return [(m.weight.detach().numpy().T, m.bias.detach().numpy()) for m in modules], figures


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_it_is_the_textbook_training_with_torchs_own_optimizers(make_task, largest_difference, rule, kind):
    task, (optimizer, textbook) = make_task(kind), RULES[rule]
    config = TrainingConfig(hidden=(6,), optimizer=optimizer, batch_size=16)
    spec = NetworkSpec(1, 0.7, ma.CMDLoss(4))
    engine = BatchedEngine(task, config, [spec], dtype=DOUBLE)
    last = [engine.run_epoch() for _ in range(5)][-1]
    layers, figures = _plain_training(task, config, spec, textbook, 5)
    assert largest_difference(engine.layers(0), layers) < FLOAT32
    per_epoch = len(config.epoch(task))
    np.testing.assert_allclose(np.ravel(last), np.mean(figures[-per_epoch:], axis=0), rtol=1e-9)


def test_two_hidden_layers_and_any_callable(make_task, largest_difference):
    task, (optimizer, textbook) = make_task(), RULES["adam"]
    config = TrainingConfig(hidden=(6, 4), optimizer=optimizer, batch_size=None)
    spec = NetworkSpec(2, 2.0, lambda source, target: (source.mean(0) - target.mean(0)).square().sum())
    engine = BatchedEngine(task, config, [spec], dtype=DOUBLE)
    for _ in range(4):
        engine.run_epoch()
    assert largest_difference(engine.layers(0), _plain_training(task, config, spec, textbook, 4)[0]) < FLOAT32


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_with_decay_divides_the_rate_of_update_t_by_one_plus_decay_times_t(make_task, largest_difference, momentum):
    task, spec, updates = make_task(), NetworkSpec(0), 3
    config = TrainingConfig(hidden=(4,), optimizer=Optimizer("sgd", 0.4, momentum=momentum, decay=0.5), batch_size=None)
    engine = BatchedEngine(task, config, [spec], dtype=DOUBLE)
    rates = iter([0.4 / (1 + 0.5 * t) for t in range(updates)])

    class Decaying(torch.optim.SGD):
        def step(self):
            self.param_groups[0]["lr"] = next(rates)
            super().step()

    layers, _ = _plain_training(task, config, spec, lambda p: Decaying(p, lr=1.0, momentum=momentum), updates)
    for _ in range(updates):
        engine.run_epoch()
    assert largest_difference(engine.layers(0), layers) < FLOAT32


def test_validation_is_cross_entropy_and_accuracy_of_the_held_out_rows(make_task):
    task = make_task(held_out=17)
    engine = BatchedEngine(task, TrainingConfig(hidden=(6,)), [NetworkSpec(1), NetworkSpec(2)], dtype=DOUBLE)
    engine.run_epoch()
    figures = engine.validate()
    for index in range(2):
        scores = torch.tensor(outputs(engine.layers(index), task.validation.astype(np.float64)))
        labels = torch.tensor(task.validation_labels)
        assert figures.loss[index] == pytest.approx(functional.cross_entropy(scores, labels).item(), rel=1e-6)
        assert figures.accuracy[index] == (scores.argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize("rule", RULES)
def test_networks_that_stay_keep_their_weights_and_their_optimizers_memory(make_task, largest_difference, rule):
    task, config = make_task(), TrainingConfig(hidden=(5,), optimizer=RULES[rule][0], batch_size=16)
    specs = [NetworkSpec(seed, 0.5 * seed, ma.CMDLoss(seed + 1)) for seed in range(4)]
    whole, cut = (BatchedEngine(task, config, specs, dtype=DOUBLE) for _ in range(2))
    for step in range(6):
        if step == 2:
            cut.retain([1, 3])
        if step == 4:
            cut.retain([1])
        expected, figures = whole.run_epoch(), cut.run_epoch()
    assert largest_difference(cut.layers(0), whole.layers(3)) < 1e-10
    assert figures.source_loss == pytest.approx(expected.source_loss[3:], rel=1e-10)
    assert figures.distance == pytest.approx(expected.distance[3:], rel=1e-10)


def test_layers_are_copies(make_task, largest_difference):
    engine = BatchedEngine(make_task(), TrainingConfig(hidden=(4,)), [NetworkSpec(0)])
    before = engine.layers(0)
    engine.run_epoch()
    assert largest_difference(before, engine.layers(0)) > 1e-3
    assert activations(before, np.zeros((1, 20))).shape == (1, 4)


@pytest.mark.parametrize("device", ["typewriter", "cuda:99", "3"])
def test_a_device_that_is_not_there_is_named(make_task, device):
    with pytest.raises(InvalidInputError, match=rf'device {device!r} cannot be used .*; try device="cpu"') as caught:
        BatchedEngine(make_task(), TrainingConfig(), [NetworkSpec(0)], device=device)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_thread_computes_with_one_and_gives_the_others_back(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == threads
        with pytest.raises(ZeroDivisionError), one_thread():
            _ = 1 / 0
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_threads_that_start_meanwhile_keep_the_number_of_threads():
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        with one_thread():
            thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
            thread.start()
            thread.join()
        assert seen == [2]
    finally:
        torch.set_num_threads(before)


def test_autocast_of_any_device_is_off_within():
    torch.set_autocast_enabled("cuda", True)
    try:
        with own_settings(torch.device("cuda")):
            assert not torch.is_autocast_enabled("cuda")
        assert torch.is_autocast_enabled("cuda")
    finally:
        torch.set_autocast_enabled("cuda", False)

"""The torch engine: against a textbook training, each network's own distance and loss, and the settings of torch."""

import threading
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional

import momentalign as ma
from momentalign import errors as ma_errors
from momentalign.discrepancies import names
from momentalign.discrepancies.base import DistanceLoss, compiled_form
from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import activations, outputs
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig
from momentalign.training.stack import train_stack
from momentalign.training.torch_engine import (
    HUBER_DELTA,
    LOSSES,
    BatchedEngine,
    StackDistance,
    one_thread,
    own_distances,
    own_settings,
    stack_weights,
)

DOUBLE = torch.float64
FLOAT32 = 5e-7  # weights are handed out in single precision
# Our settings, torch's own optimizer with the constants of the paper and of the Keras of 2017.
RULES = {
    "adagrad": (Optimizer("adagrad", 0.1), lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-8)),
    "adadelta": (Optimizer("adadelta"), lambda p: torch.optim.Adadelta(p, lr=1.0, rho=0.95, eps=1e-8)),
    "sgd": (Optimizer("sgd", 0.5, momentum=0.8), lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.8)),
    "adam": (Optimizer("adam", 0.02), lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.9, 0.999), eps=1e-8)),
}


def _plain_training(task, config, spec, optimizer, epochs, minimised=functional.cross_entropy):
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
            labels = torch.tensor(task.labels[source_rows])
            loss = minimised(modules[-1](source), labels.double() if labels.is_floating_point() else labels)
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
    last = [engine.run_epochs(1)[0] for _ in range(5)][-1]
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
        engine.run_epochs(1)[0]
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
        engine.run_epochs(1)[0]
    assert largest_difference(engine.layers(0), layers) < FLOAT32


def test_validation_is_cross_entropy_and_accuracy_of_the_held_out_rows(make_task):
    task = make_task(held_out=17)
    engine = BatchedEngine(task, TrainingConfig(hidden=(6,)), [NetworkSpec(1), NetworkSpec(2)], dtype=DOUBLE)
    engine.run_epochs(1)[0]
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
            cut.keep_only([1, 3])
        if step == 4:
            cut.keep_only([1])
        expected, figures = whole.run_epochs(1)[0], cut.run_epochs(1)[0]
    assert largest_difference(cut.layers(0), whole.layers(3)) < 1e-10
    assert figures.source_loss == pytest.approx(expected.source_loss[3:], rel=1e-10)
    assert figures.distance == pytest.approx(expected.distance[3:], rel=1e-10)


def test_layers_are_copies(make_task, largest_difference):
    engine = BatchedEngine(make_task(), TrainingConfig(hidden=(4,)), [NetworkSpec(0)])
    before = engine.layers(0)
    engine.run_epochs(1)[0]
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


VALUES = TrainingConfig(hidden=(6,), optimizer=Optimizer("adam", 0.05), batch_size=16, max_epochs=30, loss="squared")


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
    "squared": (np.square, lambda r: 2 * r),
    "absolute": (np.abs, np.sign),
    "huber": (huber, lambda r: 2 * np.clip(r, -HUBER_DELTA, HUBER_DELTA)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_loss_is_the_mean_over_rows_and_outputs_of_each_network(name):
    """No difference costs nothing and pulls nowhere."""
    function, slope = PLAIN[name]
    rng = np.random.default_rng(0)
    found, values = rng.normal(size=(3, 7, 2)), rng.normal(size=(7, 2))
    found[0] = values
    found = torch.tensor(found, requires_grad=True)
    losses = LOSSES[name](found, torch.tensor(values))
    losses.sum().backward()
    differences = found.detach().numpy() - values
    assert 0 < np.count_nonzero(np.abs(differences) > HUBER_DELTA) < differences.size
    np.testing.assert_allclose(losses.detach().numpy(), function(differences).mean(axis=(1, 2)), rtol=1e-12)
    np.testing.assert_allclose(found.grad.numpy(), slope(differences) / 14, rtol=1e-12)
    assert losses[0].item() == found.grad[0].abs().max().item() == 0.0


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_it_is_the_textbook_training(make_valued, largest_difference, kind):
    task, spec, (optimizer, textbook) = make_valued(kind), NetworkSpec(1, 0.7, ma.CMDLoss(4)), RULES["adam"]
    config = replace(VALUES, optimizer=optimizer)
    engine = BatchedEngine(task, config, [spec])
    last = engine.run_epochs(4)[-1]
    layers, figures = _plain_training(task, config, spec, textbook, 4, functional.mse_loss)
    assert largest_difference(engine.layers(0), layers) < FLOAT32
    np.testing.assert_allclose(np.ravel(last), np.mean(figures[-len(config.epoch(task)) :], axis=0), rtol=1e-9)


@pytest.mark.parametrize("name", PLAIN)
def test_validation_is_the_loss_of_the_held_out_rows_and_no_accuracy(make_valued, name):
    task = make_valued()
    engine = BatchedEngine(task, replace(VALUES, loss=name), [NetworkSpec(1), NetworkSpec(2)])
    figures = engine.validate()
    for index in range(2):
        errors = outputs(engine.layers(index), task.validation.astype(np.float64)) - task.validation_labels
        assert figures.loss[index] == pytest.approx(PLAIN[name][0](errors).mean(), rel=1e-9)
    assert np.isnan(figures.accuracy).all()


@pytest.mark.parametrize("name", PLAIN)
def test_the_epoch_with_the_lowest_validation_loss_is_kept(make_valued, name):
    config = replace(VALUES, optimizer=Optimizer("adam", 0.5), max_epochs=60, patience=5, loss=name)
    reports = []
    (network,) = train_stack(make_valued(), config, [NetworkSpec(0)], progress=reports.append)
    losses = network.history.validation_loss
    assert network.best_epoch == np.argmin(losses) + 1 == network.n_epochs - 5 < 55
    assert network.history.validation_accuracy == []
    assert np.isnan(reports[-1].validation_accuracy)


def test_numbers_of_single_precision_are_the_same_to_its_digits(make_valued):
    task = make_valued()
    single = BatchedEngine(task, VALUES, [NetworkSpec(0)], dtype=torch.float32)
    double = BatchedEngine(task, VALUES, [NetworkSpec(0)])
    assert single.layers(0)[0].weight.dtype == np.float32
    for _ in range(3):
        figures, expected = single.run_epochs(1)[0], double.run_epochs(1)[0]
    assert figures.source_loss[0] == pytest.approx(expected.source_loss[0], rel=1e-4)


DISTANCES = [
    ma.CMDLoss(5),
    ma.CMDLoss(2),
    None,
    ma.CMDLoss(3, interval=(-1.0, 1.0)),
    ma.CMDLoss(5, cross=2),
    ma.CMDLoss(4, cross=3),
    ma.CMDLoss(2, unbiased=True),
    ma.MMDLoss(beta=1.2),
    ma.MMDLoss(beta=0.3),
    ma.MMDLoss(),
    ma.MMDLoss("gaussians"),
    ma.MMDLoss("polynomial"),
    ma.CORALLoss(),
    lambda source, target: (source.mean() - target.mean()).abs(),
]


@pytest.fixture
def stacks(rng):
    shapes = (len(DISTANCES), 12, 3), (len(DISTANCES), 9, 3)
    return [
        torch.tensor(rng.random(shape) ** power, requires_grad=True)
        for shape, power in zip(shapes, (1, 2), strict=True)
    ]


def _one_by_one(distances, source, target):
    values = [0.0 * s.sum() if d is None else d(s, t) for d, s, t in zip(distances, source, target, strict=True)]
    return torch.stack(values)


def test_every_network_gets_its_own_distance_and_gradient(stacks):
    source, target = stacks
    together = StackDistance([NetworkSpec(0, 1.0, distance) for distance in DISTANCES])(source, target)
    apart = _one_by_one(DISTANCES, source, target)
    torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-14)
    factors = torch.arange(1.0, len(DISTANCES) + 1)
    gradients = [torch.autograd.grad((values * factors).sum(), stacks) for values in (together, apart)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("distance", [ma.CMDLoss(3), ma.MMDLoss(beta=2.0), ma.MMDLoss("gaussians"), ma.CORALLoss()])
def test_a_stack_with_one_distance_is_computed_at_once(stacks, distance, monkeypatch):
    source, target = stacks
    expected = _one_by_one([distance] * len(DISTANCES), source, target)
    monkeypatch.setattr(type(distance), "forward", lambda *_: pytest.fail("called network by network"))
    together = StackDistance([NetworkSpec(0, 1.0, distance)] * len(DISTANCES))(source, target)
    torch.testing.assert_close(together, expected, rtol=1e-12, atol=1e-14)


DOMAIN_SIZES = ([7, 5], [4, 5])
MIXED = {
    "orders": (ma.CMDLoss(1), ma.CMDLoss(5)),
    "kernel widths": (ma.MMDLoss(beta=0.3), ma.MMDLoss(beta=3.0)),
    "domain classifiers": (ma.AdversarialLoss(3), ma.AdversarialLoss(3)),
}


@pytest.mark.parametrize("name", MIXED)
def test_networks_of_a_stack_that_compare_other_domains_keep_their_own_constants(name, rng):
    """Two pooled, two over pairs, in the opposite order: each has the value of a stack of its own."""
    source, target = torch.tensor(rng.random((4, 12, 3))), torch.tensor(rng.random((4, 9, 3)) ** 2)
    one, other = MIXED[name]
    specs = [
        NetworkSpec(0, 1.0, distance, between=between)
        for distance, between in [(one, "pooled"), (other, "pooled"), (other, "pairs"), (one, "pairs")]
    ]
    weights = stack_weights(specs, 3, dtype=torch.float64, device=source.device)
    with torch.no_grad():
        for part in [part for own in weights.values() for part in own]:
            part.copy_(torch.tensor(rng.normal(size=part.shape)))
    together = StackDistance(specs, weights)(source, target, DOMAIN_SIZES)
    for index, spec in enumerate(specs):
        own = {kind: [part[index : index + 1] for part in parts] for kind, parts in weights.items()}
        alone = StackDistance([spec], own)(source[index][None], target[index][None], DOMAIN_SIZES)
        torch.testing.assert_close(together[index], alone[0], rtol=1e-12, atol=1e-14)


class MedianLoss(DistanceLoss):
    """The distance of the medians of the units: the example of docs/architecture.md as a fast, named distance."""

    name = stack_key = "median"

    def forward(self, source, target):
        return self.stack([self])(source, target)

    @staticmethod
    def stack(losses):
        return lambda source, target: (source.median(-2).values - target.median(-2).values).norm(dim=-1)


def test_a_fast_named_distance_is_one_class_and_one_entry_of_a_table(stacks, monkeypatch):
    monkeypatch.setitem(names.DISTANCES, "median", MedianLoss)
    source, target = stacks
    expected = torch.stack([MedianLoss()(s, t) for s, t in zip(source, target, strict=True)])
    rows, labels = np.random.default_rng(0).normal(size=(60, 3)), [0, 1] * 30
    model = ma.MANNClassifier(discrepancy="median", max_epochs=2, random_state=0)
    fitted = model.fit(rows, labels, X_target=rows + 1.0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 2))
    batch = torch.zeros(6, 3), torch.tensor([0, 1] * 3)
    adapted = ma.adapt(network, "1", [batch], [batch[0] + 1.0], discrepancy="median", max_epochs=1, random_state=0)
    assert (fitted.predict(rows).shape, adapted(batch[0]).shape) == ((60,), (6, 2))
    monkeypatch.setattr(MedianLoss, "forward", lambda *_: pytest.fail("called network by network"))
    together = StackDistance([NetworkSpec(0, 1.0, MedianLoss())] * len(source))
    torch.testing.assert_close(together(source, target), expected)
    domains = together(source, target, DOMAIN_SIZES)
    assert domains.shape == (len(source),)
    assert torch.isfinite(domains).all()


def test_a_subclass_with_another_formula_is_not_computed_as_its_base(stacks):
    class Twice(ma.CMDLoss):
        def forward(self, source, target):
            return 2.0 * super().forward(source, target)

    source, target = stacks
    twice, once = ([NetworkSpec(0, 1.0, kind(3))] * len(source) for kind in (Twice, ma.CMDLoss))
    torch.testing.assert_close(StackDistance(twice)(source, target), 2.0 * StackDistance(once)(source, target))
    assert compiled_form(Twice(3)) is None


def test_a_fit_leaves_the_distance_of_the_caller_as_it_is(rng):
    """The range that interval="data" finds in the first batch belongs to the network that is trained."""
    rows, labels, distance = rng.normal(size=(60, 3)), [0, 1] * 30, ma.CMDLoss(interval="data")

    def fitted(distance):
        model = ma.MANNClassifier((4,), distance, max_epochs=3, patience=None, random_state=0)
        with pytest.warns(ma_errors.MomentAlignWarning, match="estimated from the data"):
            return model.fit(rows, labels, X_target=2.0 * rows).coefs_

    first, again, fresh = fitted(distance), fitted(distance), fitted(ma.CMDLoss(interval="data"))
    assert distance.interval == "data"
    for own, second, third in zip(first, again, fresh, strict=True):
        assert np.array_equal(own, second)
        assert np.array_equal(own, third)


def test_networks_of_a_stack_take_the_interval_of_their_own_activations(stacks):
    source, target = (stack.detach()[:2] * torch.tensor([1.0, 3.0])[:, None, None] for stack in stacks)
    specs = own_distances([NetworkSpec(0, 1.0, ma.CMDLoss(interval="data"))] * 2)
    with pytest.warns(ma_errors.MomentAlignWarning, match="estimated from the data"):
        together = StackDistance(specs)(source, target)
    for value, s, t in zip(together, source, target, strict=True):
        bounds = torch.cat([s, t])
        torch.testing.assert_close(value, ma.cmd(s, t, interval=(bounds.min().item(), bounds.max().item())))


def test_a_weight_of_zero_needs_no_distance(stacks):
    def refuse(source, target):
        pytest.fail("a distance without weight was computed")

    silent = StackDistance([NetworkSpec(0, 0.0, refuse)] * len(DISTANCES))
    assert not silent.needed
    assert not StackDistance([]).needed
    assert StackDistance([NetworkSpec(0, 0.5, refuse)]).needed
    torch.testing.assert_close(silent(*stacks), torch.zeros(len(DISTANCES), dtype=torch.float64))


@pytest.mark.parametrize("value", [1.5, None, torch.ones(2), torch.ones(1, 1)])
def test_a_distance_that_is_no_scalar_tensor_is_refused(stacks, value):
    source, target = (stack[:1] for stack in stacks)
    with pytest.raises(InvalidInputError, match="discrepancy must return a scalar torch tensor"):
        StackDistance([NetworkSpec(0, 1.0, lambda *_: value)])(source, target)

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import momentalign as ma
from momentalign.errors import DivergedError, InvalidInputError
from momentalign.networks.shallow import initial_layers, outputs
from momentalign.progress import EpochReport
from momentalign.training import stack
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig
from momentalign.training.stack import is_compiled, train_stack

DISTANCES = [
    None,
    ma.CMDLoss(5),
    ma.CMDLoss(2),
    ma.CMDLoss(3, cross=2),
    ma.MMDLoss(beta=1.2),
    ma.CORALLoss(),
    ma.CMDLoss(3, interval=(-1.0, 1.0)),
    ma.MMDLoss(beta=0.4),
]
RECIPE = TrainingConfig(hidden=(6,), optimizer=Optimizer("adagrad", 0.1), batch_size=16, max_epochs=60, patience=3)


def _members(count):
    return [NetworkSpec(seed, 0.3 * (seed % 5), DISTANCES[seed % len(DISTANCES)]) for seed in range(count)]


def _last(config, **changes):
    return TrainingConfig(**{**vars(config), "keep": "last", "patience": None, **changes})


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_network_in_a_stack_of_40_is_the_network_trained_alone(make_task, largest_difference, engine, kind):
    task, specs = make_task(kind), _members(40)
    together = train_stack(task, RECIPE, specs)
    assert len({network.n_epochs for network in together}) > 2  # they stop at different times
    for index in range(0, 40, 5):
        (alone,) = train_stack(task, RECIPE, [specs[index]])
        network = together[index]
        assert largest_difference(network.layers, alone.layers) < 1e-5
        assert (network.n_epochs, network.best_epoch) == (alone.n_epochs, alone.best_epoch)
        for name, values in vars(network.history).items():
            np.testing.assert_allclose(values, getattr(alone.history, name), rtol=1e-3, atol=1e-5)


def _between_means(source, target):
    return (source.mean(0) - target.mean(0)).square().sum()


@pytest.mark.parametrize(
    "changes",
    [*({"optimizer": Optimizer(rule)} for rule in ("adadelta", "sgd", "adam")), {"hidden": (6, 4)}],
    ids=["adadelta", "sgd", "adam", "two hidden layers"],
)
def test_whatever_the_optimizer_and_the_layers_and_beside_a_callable(make_task, largest_difference, engine, changes):
    task, config = make_task(), _last(RECIPE, max_epochs=8, **changes)
    specs = [*_members(8), *([NetworkSpec(9, 1.0, _between_means)] if engine == "batched" else [])]
    for network, spec in zip(train_stack(task, config, specs), specs, strict=True):
        (alone,) = train_stack(task, config, [spec])
        assert largest_difference(network.layers, alone.layers) < 1e-5


def test_each_network_has_its_own_seed_weight_moments_and_distance(make_task, largest_difference, engine):
    """Changing one thing of a spec changes that network, and no other."""
    task, config = make_task(), _last(RECIPE, max_epochs=10)
    base = NetworkSpec(1, 0.5, ma.CMDLoss(3))
    changed = [
        NetworkSpec(2, 0.5, ma.CMDLoss(3)),
        NetworkSpec(1, 0.9, ma.CMDLoss(3)),
        NetworkSpec(1, 0.5, ma.CMDLoss(2)),
        NetworkSpec(1, 0.5, ma.MMDLoss(beta=1.0)),
        NetworkSpec(1, 0.5, None),
        NetworkSpec(1, 0.5, ma.CMDLoss(3)),
    ]
    first, *others, same = train_stack(task, config, [base, *changed])
    assert all(largest_difference(first.layers, other.layers) > 1e-4 for other in others)
    assert largest_difference(first.layers, same.layers) < 1e-6


def _score(history, epoch):
    return history.validation_accuracy[epoch - 1], -history.validation_loss[epoch - 1]


def test_early_stopping_and_the_epoch_that_is_kept(make_task, engine):
    """Patience epochs after the lowest loss; the best accuracy, and the lower loss among equals."""
    task = make_task(seed=2)
    networks = train_stack(task, RECIPE, _members(25))
    assert sum(network.n_epochs < RECIPE.max_epochs for network in networks) > 6
    assert any(network.best_epoch < network.n_epochs - RECIPE.patience for network in networks)
    for network in networks:
        losses = network.history.validation_loss
        assert {len(values) for values in vars(network.history).values()} == {network.n_epochs}
        lowest = 1 + int(np.argmin(losses))
        assert network.n_epochs == min(lowest + RECIPE.patience, RECIPE.max_epochs)
        # ... and no earlier: no lower loss was ever more than patience epochs away.
        records = [i for i in range(len(losses)) if losses[i] < min(losses[:i], default=math.inf)]
        assert max(np.diff(records), default=0) <= RECIPE.patience
        epochs = range(1, network.n_epochs + 1)
        assert network.best_epoch == max(epochs, key=lambda epoch: _score(network.history, epoch))
        # The weights are those of that epoch.
        scores, labels = torch.tensor(outputs(network.layers, task.validation)), torch.tensor(task.validation_labels)
        accuracy, negative_loss = _score(network.history, network.best_epoch)
        assert (scores.argmax(1) == labels).double().mean().item() == accuracy
        assert torch.nn.functional.cross_entropy(scores, labels).item() == pytest.approx(-negative_loss, abs=1e-5)


def test_among_equal_epochs_the_first_is_kept(make_task, engine):
    config = TrainingConfig(hidden=(6,), optimizer=Optimizer("sgd", 1e-30), max_epochs=20, patience=3)
    (network,) = train_stack(make_task(), config, [NetworkSpec(0)])
    assert len(set(network.history.validation_loss)) == 1
    assert (network.best_epoch, network.n_epochs) == (1, 4)


def test_without_held_out_rows_the_training_loss_is_watched_and_the_last_epoch_kept(make_task, engine):
    config = TrainingConfig(
        hidden=(6,), optimizer=Optimizer("sgd", 8.0, momentum=0.0), batch_size=16, max_epochs=200, patience=2
    )
    (network,) = train_stack(make_task(held_out=0), config, [NetworkSpec(4, 0.5, ma.CMDLoss(3))])
    history = network.history
    objective = np.array(history.source_loss) + 0.5 * np.array(history.distance)
    assert history.validation_loss == history.validation_accuracy == []
    assert network.best_epoch == network.n_epochs == np.argmin(objective) + 1 + config.patience < 200


def test_without_patience_every_epoch_is_trained_and_last_keeps_the_last(make_task, engine, largest_difference):
    task, spec = make_task(), NetworkSpec(0, 0.5, ma.CMDLoss(2))
    (network,) = train_stack(task, _last(RECIPE, max_epochs=50, snapshot_every=50), [spec])
    assert network.best_epoch == network.n_epochs == 50
    assert largest_difference(network.layers, network.snapshots[50]) == 0.0


def test_snapshots_are_the_weights_of_their_epochs(make_task, engine, largest_difference):
    task, spec = make_task(), NetworkSpec(0, 0.5, ma.CMDLoss(2))
    (network,) = train_stack(task, _last(RECIPE, max_epochs=11, snapshot_every=4), [spec])
    assert list(network.snapshots) == [4, 8]
    for epoch, layers in network.snapshots.items():
        (short,) = train_stack(task, _last(RECIPE, max_epochs=epoch), [spec])
        assert largest_difference(layers, short.layers) == 0.0
    (without,) = train_stack(task, _last(RECIPE, max_epochs=2), [spec])
    assert without.snapshots == {}


def test_a_warm_start_goes_on_where_the_weights_were(make_task, engine, largest_difference):
    """Plain SGD has no memory: 3 + 4 epochs are 7 epochs."""
    task = make_task()
    config = _last(RECIPE, optimizer=Optimizer("sgd", 0.1, momentum=0.0), max_epochs=7)
    (whole,) = train_stack(task, config, [NetworkSpec(5, 0.5, ma.CMDLoss(2))])
    (first,) = train_stack(task, _last(config, max_epochs=3), [NetworkSpec(5, 0.5, ma.CMDLoss(2))])
    kept = [part.copy() for layer in first.layers for part in layer]
    (second,) = train_stack(
        task, _last(config, max_epochs=4), [NetworkSpec(77, 0.5, ma.CMDLoss(2), initial=first.layers)]
    )
    assert largest_difference(whole.layers, second.layers) < 1e-6  # weights are handed out in float32
    for before, part in zip(kept, [part for layer in first.layers for part in layer], strict=True):
        np.testing.assert_array_equal(before, part)


def test_members_of_a_stack_may_start_from_weights_of_their_own(make_task, engine, largest_difference):
    task, config = make_task(), _last(RECIPE, optimizer=Optimizer("sgd", 1e-12), max_epochs=1)
    given = initial_layers([20, 6, 3], 123)
    drawn, started = train_stack(task, config, [NetworkSpec(0), NetworkSpec(0, initial=given)])
    assert largest_difference(started.layers, given) < 1e-6
    assert largest_difference(drawn.layers, initial_layers([20, 6, 3], 0)) < 1e-6


def test_the_number_of_jobs_changes_no_bit(make_task, engine, largest_difference):
    task, specs = make_task("csr"), _members(10)
    one, two = (train_stack(task, RECIPE, specs, n_jobs=n_jobs) for n_jobs in (1, 2))
    for network, other in zip(one, two, strict=True):
        assert largest_difference(network.layers, other.layers) == 0.0
        assert network.history == other.history


def test_progress_is_reported_after_every_epoch(make_task, engine):
    reports = []
    networks = train_stack(make_task(), RECIPE, _members(4), progress=reports.append)
    assert all(isinstance(report, EpochReport) and report.max_epochs == 60 for report in reports)
    assert sum(report.training for report in reports) == sum(network.n_epochs for network in networks)
    if engine == "compiled":  # one network after the other
        assert [report.epoch for report in reports] == [e for n in networks for e in range(1, n.n_epochs + 1)]
    else:
        assert [report.epoch for report in reports] == list(range(1, max(n.n_epochs for n in networks) + 1))
        first = [(n.history.source_loss[0], n.history.distance[0], n.history.validation_accuracy[0]) for n in networks]
        np.testing.assert_allclose(reports[0][3:], np.mean(first, axis=0), rtol=1e-12)


def test_without_held_out_rows_progress_has_no_accuracy(make_task, engine):
    reports = []
    train_stack(make_task(held_out=0), _last(RECIPE, max_epochs=120), [NetworkSpec(0)], progress=reports.append)
    assert [report.epoch for report in reports] == [50, 100, 120]
    assert all(math.isnan(report.validation_accuracy) for report in reports)


def test_a_stack_needs_a_member(make_task):
    with pytest.raises(InvalidInputError, match="at least one spec"):
        train_stack(make_task(), RECIPE, [])


@pytest.mark.parametrize(
    ("optimizer", "spec", "words"),
    [
        (
            Optimizer("sgd", 9e37),
            NetworkSpec(7, 0.5, ma.CMDLoss(2)),
            ["validation loss", "weight 0.5", "lower learning_rate or"],
        ),
        (Optimizer("sgd", 9e37), NetworkSpec(7), ["validation loss", "weight 0 ", "lower learning_rate, or scale"]),
        (
            Optimizer("adam"),
            NetworkSpec(7, 2.0, lambda s, t: s.sum() * math.inf),
            ["the distance", "in epoch 1;", "weight"],
        ),
        (Optimizer("adam"), NetworkSpec(7, 2.0, lambda s, t: t.mean() * math.nan), ["the distance", "in epoch 1;"]),
    ],
)
def test_divergence_names_the_loss_the_epoch_and_the_remedy(make_task, engine, optimizer, spec, words):
    config = _last(RECIPE, optimizer=optimizer, batch_size=None)
    with pytest.raises(DivergedError) as caught:
        train_stack(make_task(), config, [spec])
    text = str(caught.value)
    assert "\n" not in text
    for word in ["training diverged", "seed 7", "epoch", *words]:
        assert word in text


LONG = TrainingConfig(hidden=(50,), max_epochs=100_000, patience=None)
KNOWN = [*DISTANCES, ma.CMDLoss(7), ma.MMDLoss(), ma.AdversarialLoss(50)]
UNKNOWN = [
    _between_means,
    ma.CMDLoss(3, unbiased=True),
    ma.CMDLoss(3, interval="data"),
    ma.CMDLoss(3, cross=3),
    ma.MMDLoss("gaussians"),
    ma.MMDLoss(beta=1.0, unbiased=True),
    ma.MMDLoss("polynomial", beta=1.0),
    type("Mine", (ma.CORALLoss,), {"forward": lambda *_: 0.0})(),
]


def test_long_trainings_with_known_distances_are_compiled(make_task):
    task = make_task()
    for distance in KNOWN:
        assert is_compiled(task, LONG, [NetworkSpec(0, 1.0, distance)], "cpu")
    for distance in UNKNOWN:
        assert not is_compiled(task, LONG, [NetworkSpec(0), NetworkSpec(1, 1.0, distance)], "cpu")
        assert is_compiled(task, LONG, [NetworkSpec(0, 0.0, distance)], "cpu")
    assert not is_compiled(task, LONG, [NetworkSpec(0)], "cuda")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_epochs": 10}, False),
        ({"max_epochs": 10, "compiled": True}, True),
        ({"compiled": False}, False),
        ({"max_epochs": 20_000}, True),
        ({"max_epochs": 20_000, "patience": 10}, False),
        ({"max_epochs": 20_000, "patience": 100}, True),
        ({"hidden": (20_000_000,), "max_epochs": 10}, True),
        ({"hidden": (50, 50)}, False),
        ({"loss": "squared"}, False),
    ],
)
def test_short_and_deep_trainings_are_left_to_torch(make_task, settings, expected):
    """A training that stops early is not as long as its most epochs; the number of networks changes nothing."""
    config = replace(LONG, **settings)
    answers = {is_compiled(make_task(), config, [NetworkSpec(0)] * count, "cpu") for count in (1, 500)}
    assert answers == {expected}


@pytest.mark.parametrize(("kind", "named"), [("dense", Optimizer("adam", 0.003)), ("csr", Optimizer("adagrad", 0.01))])
def test_rows_choose_the_optimizer_where_they_are_asked_to(make_task, engine, largest_difference, kind, named):
    task, spec = make_task(kind), NetworkSpec(0, 0.5, ma.CMDLoss(2))
    trained = [
        train_stack(task, _last(RECIPE, optimizer=optimizer, max_epochs=3), [spec])[0].layers
        for optimizer in (
            Optimizer(by_rows=True),
            named,
            Optimizer(learning_rate=0.3, by_rows=True),
            Optimizer(named.name, 0.3),
        )
    ]
    assert largest_difference(trained[0], trained[1]) == largest_difference(trained[2], trained[3]) == 0.0
    assert largest_difference(trained[0], trained[2]) > 0.0


def test_the_device_decides_where_a_stack_is_trained(make_task, monkeypatch):
    asked = []

    class Spy(stack.BatchedEngine):
        def __init__(self, *arguments, device):
            asked.append(device)
            super().__init__(*arguments, device="cpu")

    monkeypatch.setattr(stack, "BatchedEngine", Spy)
    train_stack(make_task(), TrainingConfig(hidden=(50,), max_epochs=1), [NetworkSpec(0)], device="cuda:1")
    assert asked == ["cuda:1"]

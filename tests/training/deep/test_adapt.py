"""One call: it adapts, hands back what it was given, repeats, stops, logs, and goes on where it stopped."""

import importlib.util
import inspect
import logging
import math
import os
import random
import signal
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from momentalign.errors import InvalidInputError, MissingExtraError, MomentAlignWarning
from momentalign.training.deep import lightning, metric
from momentalign.training.deep.adapt import adapt
from momentalign.training.deep.checkpoint import SafetensorsIO
from momentalign.training.deep.module import DeepAdaptation
from momentalign.training.deep.ranks import BalancedSampler

FIGURES = ["source_loss", "distance"]


@pytest.fixture(scope="session")
def plain_accuracy():
    """The target accuracy of a network trained on the source alone, by the settings it was trained with."""
    return {}


def adam(parameters):
    """Less momentum: what a domain classifier has to follow moves."""
    return torch.optim.Adam(parameters, 1e-3, betas=(0.5, 0.99))


@pytest.mark.parametrize(
    ("discrepancy", "weight", "epochs"),
    [
        ("cmd", 1.0, 15),
        ("cv-cmd", 1.0, 15),
        ("mmd", 1.0, 15),
        ("coral", 1000.0, 25),
        ("dann", 0.03, 15),
        ("adda", 1.0, 10),
        ("dsn", 1.0, 15),
    ],
)
def test_each_method_gains_on_the_target(digits, network, plain_accuracy, discrepancy, weight, epochs):
    optimizer = {"optimizer": adam} if discrepancy == "dann" else {"learning_rate": 2e-3}

    def accuracy(**settings):
        settings = {"max_epochs": epochs, "device": "cpu", "random_state": 0, **optimizer, **settings}
        return digits.target_accuracy(adapt(network, "4", digits.source_loader(), digits.target_loader(), **settings))

    key = epochs, discrepancy == "dann"
    if key not in plain_accuracy:
        plain_accuracy[key] = accuracy(discrepancy=None)
    assert 0.5 < plain_accuracy[key] < 0.85
    assert accuracy(discrepancy=discrepancy, weight=weight) > plain_accuracy[key] + 0.05


def weights(model):
    return [value.tolist() for value in model.state_dict().values()]


def run(task, model, **settings):
    settings = {"max_epochs": 2, "device": "cpu", "random_state": 0, **settings}
    return adapt(model, "1", task.source_loader(shuffle=True), task.target_loader(shuffle=True), **settings)


def test_a_copy_is_trained_and_comes_back_as_what_it_was(task, small):
    before = weights(small)
    small.eval()
    model = run(task, small)
    assert type(model) is nn.Sequential
    assert not any(part.training for part in model.modules())
    assert weights(small) == before != weights(model)
    assert not any(part._forward_hooks for part in model.modules())
    assert not small.training


def test_layers_set_to_eval_stay_frozen_and_frozen_weights_stay(task):
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Sigmoid(), nn.Linear(4, 2))
    model[0].eval()
    model[0].requires_grad_(False)
    adapted = run(task, model)
    assert weights(adapted[0]) == weights(model[0])
    assert weights(adapted[2]) != weights(model[2])
    model.eval()
    assert weights(run(task, model)[0]) != weights(model[0])


def test_the_same_seed_gives_the_same_bits_and_no_global_state_is_moved(task, small):
    logger = logging.getLogger("pytorch_lightning")
    level = logger.level
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    first, second, other = (run(task, small, random_state=seed, discrepancy="dann") for seed in (3, 3, 4))
    unseeded = [run(task, small, random_state=None, discrepancy="dann") for _ in range(2)]
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert after == before
    assert logger.level == level
    assert weights(first) == weights(second) != weights(other)
    assert weights(unseeded[0]) != weights(unseeded[1])


def test_figures_of_every_epoch_are_handed_out(task, small):
    history = []
    held_out = task.source_loader()
    run(task, small, on_epoch=history.append, max_epochs=3)
    run(task, small, on_epoch=history.append, max_epochs=1, source_validation=held_out)
    run(task, small, on_epoch=history.append, max_epochs=1, target_validation=held_out)
    assert [list(figures) for figures in history] == [
        *[FIGURES] * 3,
        [*FIGURES, "validation_loss", "validation_accuracy"],
        [*FIGURES, "target_accuracy"],
    ]


def test_patience_stops_on_the_source_alone(task, small):
    def epochs(labels):
        history = []
        held_out = DataLoader(TensorDataset(task.rows, labels), batch_size=40)
        run(task, small, learning_rate=0.05, source_validation=held_out, patience=2, max_epochs=12,
            on_epoch=history.append)  # fmt: skip
        return len(history)

    assert epochs(task.labels) == 12
    assert epochs(1 - task.labels) == 3  # the better the network learns, the worse this gets
    with pytest.raises(InvalidInputError, match="patience=2 needs labelled rows to look at"):
        run(task, small, patience=2)


def test_curves_for_tensorboard(task, small, tmp_path):
    run(task, small, logs=tmp_path)
    assert list(tmp_path.rglob("events.out.tfevents*"))


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_precisions(task, small, precision):
    source = task.source_loader()
    target = task.target_loader()
    history = []
    model = adapt(small.double() if precision == "64-true" else small, "1", source, target, precision=precision,
                  max_epochs=4, device="cpu", random_state=0, learning_rate=0.05, on_epoch=history.append)  # fmt: skip
    assert model[0].weight.dtype == (torch.float64 if precision == "64-true" else torch.float32)
    assert history[-1]["source_loss"] < history[0]["source_loss"]


def test_gradients_are_clipped(task, small):
    sgd = {"optimizer": "sgd", "learning_rate": 1.0, "max_epochs": 1, "steps": 1}
    moves = [
        sum((a - b).square().sum() for a, b in zip(run(task, small, **sgd, **clip).parameters(), small.parameters(),
            strict=True)).sqrt().item()
        for clip in ({}, {"gradient_clip": 0.01})
    ]  # fmt: skip
    assert moves[0] > 0.05
    assert moves[1] == pytest.approx(0.01, rel=1e-3)


def test_class_balanced_source_batches(task, small):
    rare = torch.cat([torch.zeros(36, dtype=torch.long), torch.ones(4, dtype=torch.long)])
    seen = []

    def watching(outputs, labels):
        seen.append(labels.tolist())
        return nn.functional.cross_entropy(outputs, labels)

    source = DataLoader(TensorDataset(task.rows, rare), batch_size=8, sampler=BalancedSampler(rare))
    adapt(small, "1", source, task.target_loader(), loss=watching, max_epochs=1, device="cpu", random_state=0)
    assert len(seen) == 9
    assert all(sum(labels) == 4 for labels in seen)


def test_a_finished_run_is_not_run_again(task, small, tmp_path):
    history = []
    first = run(task, small, checkpoint=tmp_path, on_epoch=history.append)
    again = run(task, small, checkpoint=tmp_path, on_epoch=history.append)
    assert weights(first) == weights(again) == weights(run(task, small))
    assert len(history) == 2
    longer = run(task, small, checkpoint=tmp_path, on_epoch=history.append, max_epochs=4, checkpoint_every=None)
    assert weights(longer) == weights(run(task, small, max_epochs=4))
    assert len(history) == 4


OTHER = {
    "weight": 2.0, "learning_rate": 0.5, "optimizer": "sgd", "discrepancy": "mmd", "interval": (0.0, 2.0),
    "random_state": 7, "n_moments": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_a_checkpoint_of_other_settings_is_refused(task, small, tmp_path, name):
    run(task, small, checkpoint=tmp_path)
    with pytest.raises(InvalidInputError, match=f"checkpoint holds a run with {name}=.*; give another folder"):
        run(task, small, checkpoint=tmp_path, **{name: OTHER[name]})


def test_a_checkpoint_of_another_layer_is_refused(task, small, tmp_path):
    run(task, small, checkpoint=tmp_path, interval=(0.0, 1.0))
    loaders = task.source_loader(shuffle=True), task.target_loader(shuffle=True)
    with pytest.raises(InvalidInputError, match="checkpoint holds a run with layer='1', not '0'"):
        adapt(small, "0", *loaders, interval=(0.0, 1.0), device="cpu", random_state=0, checkpoint=tmp_path)


# What each parameter is set to, to see it change the weights; layer, loaders and model are in the call.
CHANGES = {
    "discrepancy": "mmd",
    "weight": 3.0,
    "schedule": "ramp",
    "n_moments": 2,
    "interval": (0.0, 2.0),
    "loss": lambda outputs, labels: 2.0 * nn.functional.cross_entropy(outputs, labels),
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "domain_norm": True,
    "semi_supervised": True,
    "max_epochs": 3,
    "steps": 2,
    "gradient_clip": 1e-3,
    "precision": "64-true",
    "random_state": 1,
    "sharpen": 0.5,
}
# Those that change something only together with another one: settings without and with the change.
ADDED = {"consistency": 5.0, "augment": lambda rows: rows + 1.0}
TOGETHER = {
    "consistency": ({}, ADDED), "augment": (ADDED, {**ADDED, "augment": lambda rows: rows}),
    "sharpen_from": ({"sharpen": 0.5}, {"sharpen": 0.5, "sharpen_from": 0.1}),
    "sharpen_schedule": ({"sharpen": 0.5}, {"sharpen": 0.5, "sharpen_schedule": "ramp"}),
}  # fmt: skip
# Parameters that change what is shown or kept, or have tests of their own.
BESIDE = {"source_moments", "source_validation", "target_validation", "checkpoint", "logs", "progress", "on_epoch"}


@pytest.fixture(scope="module")
def unchanged():
    """The weights with the default of every parameter, once computed."""
    return []


@pytest.mark.parametrize("name", CHANGES)
def test_every_parameter_changes_the_training(task, unchanged, name):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.BatchNorm1d(6), nn.Linear(6, 2))
    if not unchanged:
        unchanged.extend(weights(run(task, network)))
    changed = network.double() if name == "precision" else network
    assert weights(run(task, changed, **{name: CHANGES[name]})) != unchanged


@pytest.mark.parametrize("name", TOGETHER)
def test_every_parameter_of_the_later_part_changes_the_training(task, small, name):
    with torch.no_grad():
        small[2].weight *= 20.0  # Some predictions are confident.
    before, after = (weights(run(task, small, max_epochs=3, **settings)) for settings in TOGETHER[name])
    assert before != after


def test_progress_is_shown_where_asked_for(task, small, capfd):
    run(task, small)
    assert "Epoch" not in "".join(capfd.readouterr())
    run(task, small, progress=True)
    assert "Epoch" in "".join(capfd.readouterr())


def test_loaders_without_any_batch_are_refused(small):
    with pytest.raises(InvalidInputError, match="source_loader and target_loader give no batch"):
        adapt(small, "1", [], [], device="cpu")


@pytest.mark.parametrize("kind", [list, tuple])
def test_validation_may_be_a_list_of_batches(task, small, kind):
    given, listed = [], []
    run(task, small, source_validation=task.source_loader(), on_epoch=given.append)
    run(task, small, source_validation=kind(task.source_loader()), on_epoch=listed.append)
    assert given == listed
    assert "validation_loss" in given[0]


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
def test_an_interrupt_leaves_as_such_and_so_does_the_next(task, small):
    def loss(outputs, labels):
        os.kill(os.getpid(), signal.SIGINT)
        return nn.functional.cross_entropy(outputs, labels)

    heard = signal.getsignal(signal.SIGINT)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(task, small, loss=loss)
        assert signal.getsignal(signal.SIGINT) is heard


def test_an_exit_that_came_of_no_interrupt_stays_one(task, small):
    def loss(_outputs, _labels):
        sys.exit(7)

    with pytest.raises(SystemExit) as left:
        run(task, small, loss=loss)
    assert left.value.code == 7


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
@pytest.mark.parametrize(("call", "saved"), [(3, 3), (4, 2), (6, 2), (10, 6), (11, 7)])
def test_sigterm_saves_leaves_and_the_next_call_goes_on(task, small, tmp_path, call, saved):
    """Epochs of 4 steps and 4 batches of validation, whose middle is no place to go on from; saved every 2 steps."""
    calls, held_out = [], task.source_loader()

    def train(folder, kill=None):
        def loss(outputs, labels):
            calls.append(len(calls) + 1)
            if calls[-1] == kill:
                os.kill(os.getpid(), signal.SIGTERM)
            return nn.functional.cross_entropy(outputs, labels)

        calls.clear()
        model = nn.Sequential(small, nn.Dropout(0.2))
        settings = {"max_epochs": 4, "checkpoint": folder, "checkpoint_every": 2, "source_validation": held_out}
        return adapt(model, "0.1", task.source_loader(shuffle=True), task.target_loader(shuffle=True), loss=loss,
                     device="cpu", random_state=0, **settings)  # fmt: skip

    with pytest.raises(SystemExit) as left:
        train(tmp_path, kill=call)
    assert left.value.code == 143
    assert SafetensorsIO().load_checkpoint(tmp_path / "last")["global_step"] == saved
    assert weights(train(tmp_path)) == weights(train(None))


def test_warnings_of_ours_come_through(task):
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(task, network, max_epochs=1)
    assert {warning.category for warning in caught} == {MomentAlignWarning}
    assert len(caught) == 2  # that it is taken from data, and what it is


FROZEN = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2)).requires_grad_(False)
METHODS = ("mmd", "coral", "dann", "dsn", lambda source, target: (source - target).norm())
NO_EFFECT = [
    ({"discrepancy": method, "n_moments": 3}, "n_moments=3 has no effect .*leave it out") for method in METHODS
]
NO_EFFECT += [({"discrepancy": method, "interval": (0.0, 2.0)}, "interval=.* has no effect") for method in METHODS]
NO_EFFECT += [
    ({"discrepancy": "adda", name: value}, f"{name}=.* has no effect .*leave it out")
    for name, value in {"weight": 2.0, "schedule": "ramp", "n_moments": 3, "interval": "data"}.items()
]
BAD_INPUT = [
    ({"model": 3}, "model must be a torch.nn.Module, got 3"),
    ({"layer": "fc"}, "layer 'fc' is not in Sequential; layers it has: '0', '1', '2'"),
    ({"random_state": -1}, "random_state must be a whole number of at least 0"),
    ({"random_state": "a"}, "random_state must be a whole number of at least 0"),
    ({"max_epochs": 0}, "max_epochs must be at least 1, got 0"),
    ({"devices": 0}, "devices must be at least 1, got 0"),
    ({"num_nodes": 0}, "num_nodes must be at least 1, got 0"),
    ({"device": "abacus"}, "device 'abacus' cannot be used"),
    ({"patience": 3}, "patience=3 needs labelled rows"),
    ({"checkpoint_every": 0, "checkpoint": "x"}, "every must be at least 1, got 0"),
    ({"discrepancy": "adda", "domain_norm": True}, "domain_norm=True cannot go with 'adda'"),
    *[
        ({"gradient_clip": clip}, "gradient_clip must be a finite number above 0, got")
        for clip in (0.0, -1.0, math.inf)
    ],
    *[({name: -1.0}, f"{name} must be a finite number of at least 0") for name in ("sharpen", "consistency")],
    ({"sharpen": math.nan}, "sharpen must be a finite number of at least 0"),
    ({"consistency": 1.0}, "consistency=1.0 needs a function that changes target inputs"),
    ({"consistency": 1.0, "augment": "flip"}, "augment must be a function of a batch of inputs, got 'flip'"),
    ({"augment": torch.sin}, "augment has no effect with consistency=0.0"),
    ({"sharpen": 1.0, "augment": torch.sin}, "augment has no effect with consistency=0.0"),
    *[({"sharpen": 1.0, "sharpen_from": part}, "sharpen_from must be a .*number") for part in (-0.1, 1.0, "half")],
    ({"sharpen": 1.0, "sharpen_schedule": "up"}, "sharpen_schedule must be 'constant', 'ramp' or a function"),
    ({"sharpen_from": 0.3}, "sharpen_from and sharpen_schedule have no effect with sharpen=0.0"),
    ({"sharpen_schedule": "ramp"}, "sharpen_from and sharpen_schedule have no effect with sharpen=0.0"),
    ({"discrepancy": "adda", "sharpen": 1.0}, "sharpen=1.0 has no effect on 'adda'"),
    *[({"discrepancy": "dsn", "weight": weight}, "weight ") for weight in (-1, None, "1", [1.0, 2.0])],
    *[({"model": FROZEN, "discrepancy": method}, "model has no weight that may") for method in ("cmd", "dann", "adda")],
    *NO_EFFECT,
]


@pytest.mark.parametrize(("settings", "message"), BAD_INPUT)
def test_bad_input_is_refused(task, small, settings, message):
    settings = {"model": small, "layer": "1", "device": "cpu", "max_epochs": 1, **settings}
    with pytest.raises(InvalidInputError, match=message):
        adapt(settings.pop("model"), settings.pop("layer"), task.source_loader(), task.target_loader(), **settings)


def test_every_parameter_is_tested():
    asked = {name for name, one in inspect.signature(adapt).parameters.items() if one.kind is one.KEYWORD_ONLY}
    refused = {name for settings, _ in BAD_INPUT for name in settings} - {"model", "layer"}
    assert asked == {*CHANGES, *TOGETHER, *BESIDE, *refused}
    module = inspect.signature(DeepAdaptation).parameters
    assert {name for name, one in module.items() if one.kind is one.KEYWORD_ONLY} <= {
        *CHANGES,
        *TOGETHER,
        "source_moments",
        "example",
    }


@pytest.mark.parametrize(
    ("missing", "path", "message"),
    [
        (("pytorch_lightning", "lightning.pytorch"), lightning.__file__, "Networks are adapted by Lightning"),
        (("torchmetrics",), metric.__file__, "MomentMetric is a torchmetrics metric"),
    ],
)
def test_without_the_extra_the_remedy_is_said(monkeypatch, missing, path, message):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.spec_from_file_location("imported_again", path)
    with pytest.raises(MissingExtraError, match=rf'{message}: pip install "\.\[deep\]" in a checkout'):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_a_sharded_network_is_refused(task, small, tmp_path):
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        fully_shard(small, mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(InvalidInputError, match=r"model is sharded over processes .* ModelParallelStrategy"):
            run(task, small)
    finally:
        dist.destroy_process_group()

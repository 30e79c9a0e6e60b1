"""The Lightning module: what a step computes, what it logs, what it refuses, and how it resumes."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import momentalign as ma
from momentalign.errors import DivergedError, InvalidInputError, InvalidTypeError, MomentAlignWarning
from momentalign.training.deep.alignment import Alignment
from momentalign.training.deep.checkpoint import SafetensorsIO
from momentalign.training.deep.lightning import pl, quiet
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.module import DeepAdaptation


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def one_step(task):
    """One pair: all rows of both domains."""
    return PairedLoader(task.source_loader(40), task.target_loader(24))


@pytest.mark.parametrize(
    ("discrepancy", "distance"),
    [
        ("cmd", lambda s, t: ma.cmd(s, t)),
        ("cv-cmd", lambda s, t: ma.cmd(s, t, cross=2)),
        ("mmd", lambda s, t: ma.mmd(s, t)),
        ("coral", lambda s, t: ma.coral(s, t)),
        (lambda s, t: (s.mean(0) - t.mean(0)).square().sum(), lambda s, t: (s.mean(0) - t.mean(0)).square().sum()),
        (None, lambda s, t: s.sum() * 0),
    ],
)
def test_a_step_is_that_of_the_loss_written_by_hand(task, small, discrepancy, distance, fit):
    expected = copy.deepcopy(small)
    optimizer = sgd(expected.parameters())
    source, target = task.rows, task.rows[:24] + 1.0
    hidden = [expected[1](expected[0](rows)) for rows in (source, target)]
    loss = cross_entropy(expected[2](hidden[0]), task.labels)
    (loss + 0.7 * distance(*hidden)).backward()
    optimizer.step()
    module = DeepAdaptation(small, "1", discrepancy=discrepancy, weight=0.7, optimizer=sgd)
    fit(module, one_step(task))
    for name, value in small.state_dict().items():
        torch.testing.assert_close(value, expected.state_dict()[name], rtol=1e-5, atol=1e-6)
    (figures,) = module.history
    assert figures["source_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert figures["distance"] == pytest.approx(distance(*hidden).item(), rel=1e-4)


def test_several_layers_and_several_losses_add_up(task, small):
    layers = ["0", "1"]
    alignment = Alignment(small, layers, discrepancy=["cmd", ma.CORALLoss()], weight=[2.0, 3.0], interval=(0, 1))
    source = {name: torch.rand(9, 6) for name in layers}
    target = {name: torch.rand(7, 6) ** 2 for name in layers}
    weighted, plain = alignment(source, target)
    cmds, corals = ([f(source[name], target[name]).item() for name in layers] for f in (ma.cmd, ma.coral))
    assert weighted.item() == pytest.approx(2 * sum(cmds) + 3 * sum(corals), rel=1e-5)
    assert plain.item() == pytest.approx(sum(cmds) + sum(corals), rel=1e-5)
    orders = alignment.orders(source, target)
    assert set(orders) == {f"distance/{name}/{order}" for name in layers for order in range(1, 6)}
    assert sum(value.item() for value in orders.values()) == pytest.approx(sum(cmds), rel=1e-5)


def test_the_interval_comes_from_the_activation_or_is_said():
    network = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU())
    assert Alignment(network, ["1"]).intervals() == [[-1.0, 1.0]]
    assert Alignment(network, ["1"], interval=(0.0, 2.0)).intervals() == [[0.0, 2.0]]
    with pytest.warns(
        MomentAlignWarning, match=r"layer '3' \(ReLU\) has no bounded activation .* pass interval=\(a, b\)"
    ):
        alignment = Alignment(network, ["3"])
    assert alignment.intervals() == ["data"]
    alignment.set_intervals([[0.0, 3.0]])
    assert alignment.intervals() == [[0.0, 3.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Alignment(network, ["3"], interval="data").intervals() == ["data"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"discrepancy": "wasserstein"}, 'discrepancy must be "cmd", .* got .wasserstein.'),
        ({"discrepancy": "dann"}, "'dann' has to know the width of layer '1'"),
        ({"discrepancy": ["cmd", "coral"], "weight": [1.0]}, "weight has 1 numbers for 2 distances"),
        ({"discrepancy": []}, "discrepancy is empty; give a distance, or None"),
        ({"weight": -1.0}, "weight must be a finite number of at least 0, got -1.0"),
        ({"weight": math.nan}, "weight must be a finite number of at least 0, got nan"),
        ({"schedule": "up"}, "schedule must be 'constant', 'ramp' or a function"),
        ({"optimizer": "lion"}, "optimizer must be one of .* got 'lion'"),
        (
            {"optimizer": sgd, "learning_rate": 0.1},
            "learning_rate=0.1 has no effect on an optimizer given as a function",
        ),
        ({"domain_norm": True}, "domain_norm=True asks for batch-norm layers"),
        ({"layer": []}, "layer must name one or more different layers"),
        ({"layer": ["1", "1"]}, "layer must name one or more different layers"),
        ({"layer": None}, "layer must be the name of a layer, or several, got None"),
    ],
)
def test_settings_that_cannot_work_are_refused(small, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        DeepAdaptation(small, **{"layer": "1", **settings})


class Curious(nn.Module):
    """Networks that do what the module cannot work with."""

    def __init__(self, what):
        super().__init__()
        self.what, self.first, self.unused = what, nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, rows):
        outputs = self.first(rows)
        if self.what == "nothing":
            return ()
        return outputs[1:] if self.what == "rows" else outputs


@pytest.mark.parametrize(
    ("what", "layer", "error", "message"),
    [
        ("nothing", "first", InvalidTypeError, "model must return one tensor, or logits first, got tuple"),
        ("rows", "first", InvalidInputError, "'model' gives 63 rows for 64 rows of input"),
        ("unused", "unused", InvalidInputError, "layer 'unused' has no part in the model's forward pass"),
    ],
)
def test_networks_that_cannot_be_aligned_are_refused(task, what, layer, error, message, fit):
    with pytest.raises(error, match=message):
        fit(DeepAdaptation(Curious(what), layer, interval=(0, 1)), one_step(task))


@pytest.mark.parametrize("value", [torch.zeros(2), 1.0])
def test_a_distance_that_is_no_scalar_is_refused(task, small, value, fit):
    with pytest.raises(InvalidTypeError, match="discrepancy must return a scalar torch tensor"):
        fit(DeepAdaptation(small, "1", discrepancy=lambda s, t: value), one_step(task))


def test_source_batches_need_labels(task, small, fit):
    with pytest.raises(InvalidInputError, match=r"source_loader must give batches \(inputs, labels\).*Tensor of shape"):
        fit(DeepAdaptation(small, "1"), PairedLoader([task.rows], [task.rows]))
    pairs = PairedLoader(task.source_loader(), DataLoader(TensorDataset(task.rows), batch_size=8))
    with pytest.raises(InvalidInputError, match=r"target_loader must give batches .* a list of \['Tensor'\]"):
        fit(DeepAdaptation(small, "1", semi_supervised=True), pairs)
    with pytest.raises(InvalidInputError, match=r"source_loader must give batches .* 'x'"):
        fit(DeepAdaptation(small, "1"), PairedLoader(["x"], [task.rows]))


def test_labels_of_the_target_are_not_looked_at_unless_asked_for(task, small, fit):
    def trained(labels, **settings):
        network = copy.deepcopy(small)
        target = DataLoader(TensorDataset(task.rows[:24] + 1.0, labels), batch_size=24)
        fit(DeepAdaptation(network, "1", optimizer=sgd, **settings), PairedLoader(task.source_loader(40), target))
        return [value.tolist() for value in network.parameters()]

    right, wrong, none = task.labels[:24], 1 - task.labels[:24], torch.full((24,), -1)
    assert trained(right) == trained(wrong)
    assert trained(none, semi_supervised=True) == trained(right)
    assert trained(right, semi_supervised=True) != trained(wrong, semi_supervised=True)
    some = torch.where(torch.arange(24) < 5, right, none)
    by_hand = trained(some, semi_supervised=True, loss=lambda outputs, labels: cross_entropy(outputs, labels))
    torch.testing.assert_close(
        [torch.tensor(v) for v in by_hand], [torch.tensor(v) for v in trained(some, semi_supervised=True)]
    )


def test_source_labels_of_minus_one_are_labels_like_others(task, small, fit):
    seen = []

    def loss(outputs, labels):
        seen.append(labels.tolist())
        return (outputs[:, 0] - labels).square().mean()

    signs = 2.0 * task.labels - 1.0
    known = torch.where(torch.arange(24) < 5, 3.0, -1.0)
    source = DataLoader(TensorDataset(task.rows, signs), batch_size=40)
    target = DataLoader(TensorDataset(task.rows[:24], known), batch_size=24)
    fit(DeepAdaptation(small, "1", loss=loss, semi_supervised=True), PairedLoader(source, target))
    assert seen == [[*signs.tolist(), *[3.0] * 5]]


def test_batch_norm_sees_the_mixture_or_with_domain_norm_each_domain(task, fit):
    def trained(**settings):
        network = nn.Sequential(nn.BatchNorm1d(4, momentum=1.0), nn.Sigmoid(), nn.Linear(4, 2))
        module = DeepAdaptation(network, "1", **settings)
        held_out = DataLoader(TensorDataset(task.rows, task.labels), batch_size=40)
        fit(module, one_step(task), validation=[held_out, held_out])
        return network[0].running_mean, module

    both = torch.cat([task.rows, task.rows[:24] + 1.0])
    torch.testing.assert_close(trained()[0], both.mean(0))
    for discrepancy in (None, "cmd"):
        target, module = trained(domain_norm=True, discrepancy=discrepancy)
        torch.testing.assert_close(target, (task.rows[:24] + 1.0).mean(0))
        torch.testing.assert_close(module._statistics.statistics_0_running_mean, task.rows.mean(0))
    # The same rows, once as source and once as target: other statistics, another accuracy or loss.
    assert set(module.history[0]) == {
        "source_loss", "distance", "validation_loss", "validation_accuracy", "target_accuracy"
    }  # fmt: skip


def test_inputs_that_cannot_be_joined_go_one_after_the_other(task, fit):
    network = nn.Sequential(nn.AdaptiveAvgPool1d(4), nn.Sigmoid(), nn.Linear(4, 2))
    pairs = PairedLoader([(torch.rand(6, 8), torch.arange(6) % 2)], [torch.rand(5, 12)])
    module = DeepAdaptation(network, "1")
    fit(module, pairs)
    assert module.history[0]["distance"] > 0


def test_the_weight_follows_its_schedule(task, small, fit):
    seen = []

    class Watching(DeepAdaptation):
        def log_dict(self, figures, **settings):
            if "weight" in figures:
                seen.append(figures["weight"])

    pairs = PairedLoader(task.source_loader(10), task.target_loader())
    fit(Watching(small, "1", weight=2.0, schedule="ramp"), pairs, epochs=2)
    assert seen == pytest.approx([2 * (2 / (1 + math.exp(-10 * step / 8)) - 1) for step in range(8)])
    seen.clear()
    fit(Watching(small, "1", weight=2.0, schedule=lambda progress: 1 - progress), pairs)
    assert seen == pytest.approx([2.0, 1.5, 1.0, 0.5])


def test_curves_are_logged(task, small, tmp_path, fit):
    logger = pl.loggers.CSVLogger(tmp_path)
    held_out = task.source_loader()
    fit(DeepAdaptation(small, "1"), one_step(task), validation=[held_out, held_out], logger=logger, epochs=2)
    (path,) = tmp_path.rglob("metrics.csv")
    names = set(path.read_text().splitlines()[0].split(","))
    orders = {f"distance/{order}" for order in range(1, 6)}
    wanted = {"source_loss", "distance", "weight", "accuracy", "validation_loss", "validation_accuracy"} | orders
    assert wanted | {"target_accuracy"} <= names


def test_curves_of_two_moment_distances_are_told_apart(task, small, tmp_path, fit):
    logger = pl.loggers.CSVLogger(tmp_path)
    fit(DeepAdaptation(small, "1", discrepancy=["cmd", "coral", "cv-cmd"]), one_step(task), logger=logger)
    (path,) = tmp_path.rglob("metrics.csv")
    names = set(path.read_text().splitlines()[0].split(","))
    assert {f"distance/{number}/{order}" for number in (1, 3) for order in range(1, 6)} <= names
    assert "distance/1" not in names


def test_regression_has_no_accuracy(task, fit):
    network = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1), nn.Flatten(0))
    source = DataLoader(TensorDataset(task.rows, task.rows.sum(1)), batch_size=20)
    module = DeepAdaptation(network, "1", loss=nn.MSELoss(), learning_rate=0.02)
    fit(module, PairedLoader(source, task.target_loader()), validation=source, epochs=10)
    assert set(module.history[0]) == {"source_loss", "distance", "validation_loss"}
    assert module.history[-1]["source_loss"] < 0.7 * module.history[0]["source_loss"]


@pytest.mark.parametrize(
    ("discrepancy", "settings"),
    [
        ("cmd", {"schedule": lambda progress: math.nan, "interval": (0.0, 1.0)}),
        ("cmd", {"learning_rate": 1e9, "interval": (0.0, 1.0)}),
        ("mmd", {"learning_rate": 1e30}),
    ],
)
def test_a_network_that_diverges_is_not_blamed_on_the_data(task, discrepancy, settings, fit):
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    pairs = PairedLoader(task.source_loader(8), task.target_loader(8))
    module = DeepAdaptation(network, "1", discrepancy=discrepancy, optimizer="sgd", **settings)
    with pytest.raises(DivergedError, match=r"training diverged: .*; lower learning_rate or weight"):
        fit(module, pairs)


def test_data_that_are_not_finite_are_blamed(task, small, fit):
    rows = task.rows.clone()
    rows[30] = math.nan
    source = DataLoader(TensorDataset(rows, task.labels), batch_size=8)
    with pytest.raises(InvalidInputError, match="source holds NaN or infinite values"):
        fit(DeepAdaptation(small, "1"), PairedLoader(source, task.target_loader(8)))


def test_validation_draws_do_not_change_the_training(task, fit):
    def trained(validation):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Dropout(), nn.Linear(6, 2))
        pairs = PairedLoader(task.source_loader(shuffle=True), task.target_loader(shuffle=True))
        fit(DeepAdaptation(network, "1"), pairs, validation=validation, epochs=2)
        return [value.tolist() for value in network.parameters()]

    assert trained(None) == trained(task.source_loader(shuffle=True))


def test_dann_learns_its_width_from_an_example_without_touching_the_network():
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 2))
    network[2].eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    module = DeepAdaptation(network, "1", discrepancy="dann", example=torch.randn(3, 4))
    assert module.alignment.modules_of_losses[0].width == 6
    assert [part.training for part in network] == [True, True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert len(module.configure_optimizers().param_groups[0]["params"]) == 6 + 2


def test_the_module_gives_what_its_network_gives_and_takes_checkpoints_without_a_run(task, small):
    module = DeepAdaptation(small, "1")
    torch.testing.assert_close(module(task.rows), small(task.rows))
    module.on_load_checkpoint({"state_dict": {}})
    assert module.history == []


@pytest.mark.filterwarnings(
    "ignore:Be aware that when using `ckpt_path`"
)  # the writing callback is left out on purpose
def test_a_user_s_own_trainer_goes_on_from_lightning_s_checkpoints(task, small, tmp_path, fit):
    """With ModelCheckpoint in the middle of epochs and at their last batch, in folders of ours."""

    def trained(callbacks, path=None):
        network = nn.Sequential(copy.deepcopy(small), nn.Dropout(0.2))
        pairs = PairedLoader(task.source_loader(shuffle=True), task.target_loader(shuffle=True))
        torch.manual_seed(0)
        with quiet():
            trainer = pl.Trainer(
                max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
                callbacks=callbacks, enable_checkpointing=bool(callbacks), plugins=[SafetensorsIO()],
                num_sanity_val_steps=0,
            )  # fmt: skip
            trainer.fit(DeepAdaptation(network, "0.1"), pairs, task.source_loader(shuffle=True), ckpt_path=path)
        return [value.tolist() for value in network.parameters()]

    undisturbed = trained([pl.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)])
    for step in (1, 4, 10):
        assert trained([], tmp_path / f"step={step}.ckpt") == undisturbed

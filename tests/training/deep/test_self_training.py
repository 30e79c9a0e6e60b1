"""Losses on the target's predictions: their values, when they begin, what they gain, and that runs can go on."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, softmax
from torch.utils.data import DataLoader, TensorDataset

from momentalign.errors import InvalidInputError
from momentalign.training.deep.adapt import adapt
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.module import DeepAdaptation
from momentalign.training.deep.self_training import SHARES_EVERY, self_training
from momentalign.training.target_loss import target_loss


def brighter(images):
    return images * (0.7 + 0.6 * torch.rand(len(images), 1, 1, 1)) + 0.1 * torch.randn(len(images), 1, 1, 1)


def noisy(rows):
    return rows + 0.1 * torch.randn_like(rows)


def made(model, **settings):
    defaults = {"sharpen": 0.0, "consistency": 0.0, "augment": None, "start": 0.0, "schedule": "constant"}
    return self_training(model, **{**defaults, **settings})


@pytest.mark.parametrize(("discrepancy", "least"), [(None, 0.10), ("cmd", 0.0)])
def test_each_loss_gains_on_the_target(digits, network, discrepancy, least):
    def accuracy(**settings):
        loaders = digits.source_loader(), digits.target_loader()
        adapted = adapt(
            network, "4", *loaders, discrepancy=discrepancy, max_epochs=20, device="cpu", random_state=0,
            learning_rate=2e-3, **settings,
        )  # fmt: skip
        return digits.target_accuracy(adapted)

    without = accuracy()
    assert accuracy(sharpen=1.0) > without + least
    assert accuracy(consistency=1.0, augment=brighter) > without + least


def test_class_shares_of_the_target_are_followed(digits, network):
    """Fives to nines are one in ten; with shares taken to be equal they would become five in ten."""
    few = torch.isin(digits.target_labels, torch.arange(5)) | (torch.arange(len(digits.target)) % 9 == 0)
    target, labels = digits.target[few], digits.target_labels[few]
    loader = DataLoader(TensorDataset(target), batch_size=100, shuffle=True)
    settings = {"sharpen": 1.0, "weight": 0.1, "max_epochs": 20, "learning_rate": 2e-3, "random_state": 0}
    adapted = adapt(network, "4", digits.source_loader(), loader, device="cpu", **settings)
    with torch.no_grad():
        found = adapted(target).argmax(1)
    assert (labels >= 5).float().mean() < 0.12
    assert (found >= 5).float().mean() < 0.25


def test_values_are_those_of_the_formulas(small):
    """By hand: shares are the mean answers of the averaged network, its confident answers the labels."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in small.parameters():
            weight.copy_(torch.randn_like(weight))
        small[2].weight *= 4.0
    own = made(small, sharpen=1.0, consistency=1.0, augment=lambda rows: rows + 1.0)
    first, second = torch.randn(30, 4), torch.randn(20, 4)
    own.answer(small, first, 0, 10)
    moved = copy.deepcopy(small)
    with torch.no_grad():
        for weight in moved.parameters():
            weight += 0.5
        expected = [0.1 * old + 0.9 * new for old, new in zip(small.parameters(), moved.parameters(), strict=True)]
        shares = softmax(small(first), 1).mean(0)
    answers = own.answer(moved, second, 1, 10)
    torch.testing.assert_close(list(own.averaged.parameters()), expected)
    losses = own.losses(answers, moved(second), moved(answers.augmented))
    with torch.no_grad():
        probabilities = softmax(own.averaged(second), 1)
        confident = probabilities.max(1).values > 0.9
        assert 0 < confident.sum() < 20
        each = cross_entropy(moved(second + 1.0), probabilities.argmax(1), reduction="none")
        torch.testing.assert_close(losses["consistency"], (1.0, each[confident].sum() / 20))
        torch.testing.assert_close(losses["sharpen"], (1.0, target_loss(moved(second), shares)))


def test_shares_are_found_again_after_so_many_batches(small):
    own, shares = made(small, sharpen=1.0), []
    for step in range(2 * SHARES_EVERY + 1):
        own.answer(small, torch.randn(2, 4) + step, 0, math.inf)
        shares.append(own.get_extra_state()["shares"])
    changes = [step for step in range(1, len(shares)) if shares[step] != shares[step - 1]]
    assert changes == [SHARES_EVERY, 2 * SHARES_EVERY]


def test_they_begin_when_they_shall_and_follow_their_schedule(small, task, fit):
    """Eight steps; a factor that is zero until the very end leaves the weights as they are without."""

    def trained(steps=8, **settings):
        network = copy.deepcopy(small)
        module = DeepAdaptation(network, "1", **settings)
        fit(module, PairedLoader(task.source_loader(), task.target_loader()), 2, max_steps=steps)
        return [weight.tolist() for weight in network.parameters()], module.history

    plain, _ = trained()
    late, history = trained(sharpen=1.0, sharpen_from=0.5)
    assert history[0]["sharpen"] == 0.0 < history[1]["sharpen"]
    assert late != plain
    seen = []
    trained(sharpen=1.0, sharpen_from=0.5, sharpen_schedule=lambda progress: seen.append(progress) or 1.0)
    assert seen == pytest.approx([0.0, 0.25, 0.5, 0.75])
    silent, _ = trained(sharpen=1.0, sharpen_from=0.5, sharpen_schedule=lambda progress: 0.0)
    assert silent == plain


@pytest.mark.parametrize("discrepancy", ["cmd", "cv-cmd", "mmd", "coral", "dann", "dsn", None, "callable"])
def test_they_go_with_every_distance_and_precision(task, discrepancy):
    network, history = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2)), []
    distance = (
        (lambda source, target: (source.mean(0) - target.mean(0)).norm()) if discrepancy == "callable" else discrepancy
    )
    adapt(
        network, "2", task.source_loader(), task.target_loader(), discrepancy=distance, sharpen=0.5, consistency=0.5,
        augment=noisy, sharpen_from=0.0, precision="bf16-mixed", domain_norm=discrepancy == "cmd", max_epochs=2,
        device="cpu", random_state=0, on_epoch=history.append,
    )  # fmt: skip
    assert list(history[0]) == ["source_loss", "distance", "sharpen", "consistency"]
    assert all(math.isfinite(value) for epoch in history for value in epoch.values())
    assert history[1]["sharpen"] > 0.0


def test_an_interrupted_run_goes_on_to_the_same_bits(small, task, tmp_path):
    """Stopped before the losses begin, between two searches for shares, and after the first one."""
    network = nn.Sequential(small, nn.Dropout(0.2))

    def train(folder, stop=None):
        calls = []

        def loss(outputs, labels):
            calls.append(1)
            if len(calls) == stop:
                raise RuntimeError("stopped")
            return cross_entropy(outputs, labels)

        settings = {"consistency": 1.0, "augment": noisy, "sharpen": 1.0, "sharpen_from": 0.2, "weight": 0.1}
        loaders = task.source_loader(shuffle=True), task.target_loader(shuffle=True)
        adapted = adapt(network, "0.1", *loaders, loss=loss, device="cpu", random_state=0, max_epochs=30,
                        checkpoint=folder, checkpoint_every=3, **settings)  # fmt: skip
        return [value.tolist() for value in adapted.state_dict().values()]

    undisturbed = train(None)
    for stop in (10, 60, 30):
        with pytest.raises(RuntimeError, match="stopped"):
            train(tmp_path, stop)
    assert train(tmp_path) == undisturbed


def test_outputs_that_are_no_classes_are_refused(task):
    network = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    source = [(task.rows, task.rows[:, :1])]
    with pytest.raises(InvalidInputError, match=r"need outputs \(rows, classes\) .* got shape \(24, 1\)"):
        adapt(network, "1", source, task.target_loader(24), loss=nn.MSELoss(), sharpen=1.0, sharpen_from=0.0,
              max_epochs=1, device="cpu")  # fmt: skip

"""The averaged weights: those of the formula, in the network at the end, and on from where a run stopped."""

import copy

import pytest
import torch

from momentalign.errors import InvalidInputError
from momentalign.training.deep.checkpoint import LastCheckpoint, SafetensorsIO
from momentalign.training.deep.lightning import pl, quiet
from momentalign.training.deep.loaders import PairedLoader
from momentalign.training.deep.module import DeepAdaptation
from momentalign.training.deep.weights import AveragedWeights


class Noted(pl.Callback):
    """Keeps the weights after every step."""

    def __init__(self):
        self.steps = []

    def on_train_batch_end(self, _trainer, pl_module, *_):
        self.steps.append([weight.detach().double().clone() for weight in pl_module.model.parameters()])


def fit(task, network, averaged, *, epochs=2, folder=None, discrepancy="cmd"):
    """Train a copy of a network and return it with its weights after every step."""
    torch.manual_seed(0)
    model, noted = copy.deepcopy(network), Noted()
    last = [] if folder is None else [LastCheckpoint(folder, every=None)]
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        callbacks=[noted, averaged, *last],
        plugins=[SafetensorsIO()],
        enable_checkpointing=bool(last),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with quiet():
        module = DeepAdaptation(
            model, "1", discrepancy=discrepancy, interval=(0.0, 1.0), learning_rate=0.05, example=task.rows
        )
        pairs = PairedLoader(task.source_loader(shuffle=True), task.target_loader(shuffle=True))
        trainer.fit(module, pairs, ckpt_path=last[0].found() if last else None)
    return model, noted.steps


def by_hand(steps, decay):
    average = steps[0]
    for step, weights in enumerate(steps):
        share = max(1 - decay, 9 / (10 + step))
        average = [old + share * (new - old) for old, new in zip(average, weights, strict=True)]
    return average


@pytest.mark.parametrize("decay", [0.0, 0.4, 0.999])
def test_the_end_weights_are_the_averages_of_the_formula(task, small, decay):
    model, steps = fit(task, small, AveragedWeights(decay))
    assert len(steps) == 8
    for weight, expected in zip(model.parameters(), by_hand(steps, decay), strict=True):
        torch.testing.assert_close(weight.detach().double(), expected, atol=1e-6, rtol=1e-5)
        assert weight.requires_grad
    differs = any(not torch.equal(a.double(), b) for a, b in zip(model.parameters(), steps[-1], strict=True))
    assert differs == (decay > 0)


def test_the_weights_of_a_domain_classifier_are_left_alone(task, small):
    averaged = AveragedWeights()
    model, steps = fit(task, small, averaged, discrepancy="dann")
    shapes = [average.shape for average in averaged.state_dict()["average"]]
    assert shapes == [weight.shape for weight in model.parameters()]
    assert len(steps[0]) == len(shapes)


def test_training_itself_is_not_changed_and_another_fit_begins_anew(task, small):
    averaged = AveragedWeights(0.9)
    first, steps = fit(task, small, averaged)
    again, same_steps = fit(task, small, averaged)
    alone, plain_steps = fit(task, small, Noted())
    for one, other, third in zip(steps, same_steps, plain_steps, strict=True):
        assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(one, other, third, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first[0].weight, alone[0].weight)


def test_a_state_is_a_copy_and_comes_back(task, small):
    averaged = AveragedWeights(0.9)
    model, _ = fit(task, small, averaged)
    state = averaged.state_dict()
    assert state["steps"] == 8
    other = AveragedWeights(0.9)
    other.load_state_dict(state)
    state["average"][0].zero_()
    for callback in (averaged, other):
        for average, weight in zip(callback.state_dict()["average"], model.parameters(), strict=True):
            assert torch.equal(average, weight)


def test_a_run_that_goes_on_ends_with_the_same_averages(task, small, tmp_path):
    whole, _ = fit(task, small, AveragedWeights(0.9), epochs=3, folder=tmp_path / "whole")
    fit(task, small, AveragedWeights(0.9), epochs=1, folder=tmp_path / "parts")
    resumed, steps = fit(task, small, AveragedWeights(0.9), epochs=3, folder=tmp_path / "parts")
    assert len(steps) == 8
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_a_decay_that_is_none_is_refused(decay):
    with pytest.raises(InvalidInputError, match=r"decay must be at least 0 and less than 1, got .*; try decay=0.999"):
        AveragedWeights(decay)

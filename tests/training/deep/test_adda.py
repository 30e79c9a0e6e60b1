"""ADDA, and the encoder that a layer cuts out of any network."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from momentalign.errors import InvalidInputError
from momentalign.training.deep.adapt import adapt
from momentalign.training.deep.adda import ADDA, check_one_layer, find_encoder, fresh_weights
from momentalign.training.deep.loaders import PairedLoader

ABOVE = ("4", "5", "6")


def states(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.fixture
def normed():
    """Batch norm on both sides of layer "3", and dropout above it."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 6),
        nn.BatchNorm1d(6),
        nn.Tanh(),
        nn.Linear(6, 5),
        nn.BatchNorm1d(5),
        nn.Dropout(0.5),
        nn.Linear(5, 2),
    )


def test_what_belongs_to_the_source_stays_to_the_bit(normed, task, fit):
    source = states(normed)
    torch.manual_seed(1)
    module = ADDA(normed, "3", example=task.rows)
    module.train()
    fit(module, PairedLoader(task.source_loader(), task.target_loader()), 2)
    assert same(states(module.source), source)
    adapted = states(module.model)
    changed = {name for name, value in adapted.items() if not torch.equal(value, source[name])}
    assert {name for name in changed if name.startswith(ABOVE)} == set()
    assert changed == {name for name in adapted if not name.startswith(ABOVE)}
    assert module.model is normed
    assert all(weight.requires_grad for weight in normed.parameters())


def test_a_step_is_that_of_the_discriminator_then_that_of_the_encoder(small, task, fit):
    """By hand: the encoder meets the discriminator after its step, with the target's labels inverted."""
    torch.manual_seed(0)
    module = ADDA(small, "1", example=task.rows)
    encoder, discriminator = copy.deepcopy(small[:2]), copy.deepcopy(module.discriminator)
    steps = [torch.optim.Adam(part.parameters(), lr=2e-4, betas=(0.5, 0.999)) for part in (discriminator, encoder)]
    rows, others = task.rows[:10], task.rows[:8] + 1.0
    with torch.no_grad():
        of_source = encoder(rows)
    codes = encoder(others)
    logits = discriminator(torch.cat([of_source, codes.detach()])).squeeze(1)
    answers = torch.cat([torch.ones(10), torch.zeros(8)])
    losses = binary_cross_entropy_with_logits(logits, answers, reduction="none")
    expected_loss = losses[:10].mean() + losses[10:].mean()
    expected_loss.backward()
    steps[0].step()
    binary_cross_entropy_with_logits(discriminator(codes), torch.ones(8, 1)).backward()
    steps[1].step()

    fit(module, PairedLoader(task.source_loader(), task.target_loader(), steps=1), 1)
    for made, expected in ((module.discriminator, discriminator), (module.model[:2], encoder)):
        for weight, by_hand in zip(made.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(weight, by_hand)
    (epoch,) = module.history
    assert epoch["distance"] == pytest.approx(2 * torch.log(torch.tensor(2.0)).item() - expected_loss.item(), abs=1e-6)
    assert module.trainer.global_step == 2


def test_a_run_goes_on_to_the_same_bits(normed, task, tmp_path, fit):
    def run(epochs, folder):
        torch.manual_seed(2)
        module = ADDA(copy.deepcopy(normed), "3", example=task.rows)
        pairs = PairedLoader(task.source_loader(shuffle=True), task.target_loader(shuffle=True))
        fit(module, pairs, epochs, folder=tmp_path / folder)
        return module

    whole = run(3, "whole")
    run(1, "parts")
    resumed = run(3, "parts")
    assert same(states(resumed), states(whole))
    assert resumed.history == whole.history


def test_the_source_is_validated_by_its_own_network(normed, task, fit):
    torch.manual_seed(0)
    module = ADDA(normed, "3", example=task.rows)
    loaders = [task.source_loader(batch_size=40), task.target_loader(batch_size=24)]
    fit(module, PairedLoader(task.source_loader(), task.target_loader()), 3, validation=loaders)
    losses = [epoch["validation_loss"] for epoch in module.history]
    with torch.no_grad():
        expected = nn.functional.cross_entropy(module.source(task.rows), task.labels).item()
    assert losses == pytest.approx([expected] * 3, rel=1e-6)
    assert all("target_accuracy" in epoch for epoch in module.history)


def test_figures_are_logged_every_so_many_pairs(small, task, fit):
    module = ADDA(small, "1", example=task.rows)
    pairs = PairedLoader(task.source_loader(), task.target_loader(), steps=6)
    assert fit(module, pairs, 1, log_every_n_steps=7).callback_metrics == {}
    assert set(fit(module, pairs, 1, log_every_n_steps=6).callback_metrics) == {
        "source_loss", "distance", "encoder_loss"
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_discriminator_is_of_the_type_of_the_codes(small, task, dtype):
    rows = task._replace(rows=task.rows.to(dtype))
    loaders = rows.source_loader(), rows.target_loader()
    adapted = adapt(small.to(dtype), "1", *loaders, discrepancy="adda", max_epochs=1, random_state=0)
    assert {weight.dtype for weight in adapted.parameters()} == {dtype}
    assert not torch.equal(adapted[0].weight, small[0].weight)


@pytest.mark.parametrize(("precision", "dtype"), [("64-true", torch.float64), ("bf16-true", torch.bfloat16)])
def test_the_second_stage_follows_the_precision_of_the_first(small, task, tmp_path, precision, dtype):
    """Rows are of 32 bits and stay so: it is Lightning that hands them out in another precision."""

    def run():
        loaders = task.source_loader(), task.target_loader()
        settings = {"precision": precision, "max_epochs": 2, "random_state": 0, "checkpoint": tmp_path}
        return states(adapt(small, "1", *loaders, discrepancy="adda", **settings))

    first = run()
    assert {value.dtype for value in first.values()} == {dtype}
    assert same(run(), first)  # from the checkpoints of both stages


def test_words_stay_whole_numbers_and_have_codes_of_the_precision(task):
    words = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 2))
    source = [(task.rows.long().abs(), task.labels)]
    target = [task.rows.long().abs() + 1]
    adapted = adapt(words, "1", source, target, discrepancy="adda", precision="64-true", max_epochs=1, random_state=0)
    assert adapted[0].weight.dtype == torch.float64


def test_a_parameter_of_whole_numbers_says_nothing_of_the_precision(small, task):
    small.register_parameter("count", nn.Parameter(torch.tensor(3), requires_grad=False))
    assert not next(small.parameters()).is_floating_point()
    loaders = task.source_loader(), task.target_loader()
    adapted = adapt(small, "1", *loaders, discrepancy="adda", max_epochs=1, random_state=0)
    assert adapted.count == 3


def test_what_is_above_the_layer_is_not_optimised(small, task):
    of_encoder = ADDA(small, "1", example=task.rows).configure_optimizers()[1].param_groups[0]
    assert [id(weight) for weight in of_encoder["params"]] == [id(weight) for weight in small[0].parameters()]


class Branches(nn.Module):
    """Two ways that meet in a head; ``scale`` belongs to no layer and is used below ``right``."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.left = nn.Linear(3, 4)
        self.right = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5))
        self.head = nn.Sequential(nn.BatchNorm1d(9), nn.Linear(9, 2))
        self.unused = nn.Linear(1, 1)

    def forward(self, rows):
        return self.head(torch.cat([self.left(rows), self.right(rows * self.scale)], 1))


def test_the_encoder_is_what_the_layer_depends_on():
    network = Branches()
    network.head[0].eval()
    before = copy.deepcopy(network.state_dict())
    weights, above, width = find_encoder(network, "right", torch.randn(4, 3))
    assert weights == ["scale", "right.0.weight", "right.0.bias"]
    assert above == ["head", "head.0", "head.1", "unused"]
    assert width == 5
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [name for name, part in network.named_modules() if not part.training] == ["head.0"]
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())


def test_frozen_weights_are_left_out():
    network = Branches()
    network.right[0].weight.requires_grad_(False)
    assert find_encoder(network, "right", torch.randn(4, 3)).weights == ["scale", "right.0.bias"]


def test_layers_that_cut_nothing_are_refused():
    network = Branches()
    with pytest.raises(InvalidInputError, match="layer 'unused' has no part in the model's forward pass"):
        find_encoder(network, "unused", torch.randn(4, 3))
    network.requires_grad_(False)
    with pytest.raises(InvalidInputError, match="layer 'left' has nothing to train below it"):
        find_encoder(network, "left", torch.randn(4, 3))
    assert network.training


def test_one_layer_is_asked_for():
    assert check_one_layer(Branches(), ["left"], "DSN") == "left"
    with pytest.raises(InvalidInputError, match=r"ADDA cuts the network at one layer, got layer=\['left', 'right'\]"):
        ADDA(Branches(), ["left", "right"], example=torch.zeros(2, 3))


def test_fresh_weights_have_forgotten_everything():
    network = Branches()
    with torch.no_grad():
        network.scale.copy_(torch.tensor([1.0, 2.0, 3.0]))
    network.head(torch.randn(50, 9))
    old = copy.deepcopy(network.state_dict())
    orders = set()
    for _ in range(20):
        fresh_weights(network)
        orders.add(tuple(network.scale.tolist()))
    assert len(orders) > 1
    assert all(sorted(order) == [1.0, 2.0, 3.0] for order in orders)
    assert not (network.left.weight == old["left.weight"]).any()
    assert network.head[0].running_mean.tolist() == [0.0] * 9
    assert old["head.0.running_mean"].abs().min() > 0

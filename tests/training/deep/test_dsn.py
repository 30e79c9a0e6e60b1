"""Domain separation networks: the four losses, the decoders, and which weights learn."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from momentalign.discrepancies.central_moment import cmd
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.training.deep.adapt import adapt
from momentalign.training.deep.dsn import (
    ALPHA,
    BETA,
    DomainSeparation,
    difference_loss,
    make_decoder,
    scale_invariant_error,
)
from momentalign.training.deep.lightning import pl
from momentalign.training.deep.loaders import PairedLoader


def test_the_loss_is_the_sum_of_its_four_parts(small, task, fit):
    """By hand, in numpy where nothing is learned from."""
    torch.manual_seed(0)
    module = DomainSeparation(small, "1", example=task.rows, discrepancy="cmd", weight=0.7)
    losses = []

    class Keep(pl.Callback):
        def on_before_backward(self, trainer, pl_module, loss):
            losses.append(loss.item())

    rows, labels, others = task.rows[:10], task.labels[:10], task.rows[:8] + 1.0
    with torch.no_grad():
        expected = nn.functional.cross_entropy(small(rows), labels) + 0.7 * cmd(small[:2](rows), small[:2](others))
        for inputs, private in ((rows, module.private_source), (others, module.private_target)):
            shared, own = small[:2](inputs), private[:2](inputs)
            gap = (inputs - module.decoder(shared + own)).numpy()
            expected += ALPHA * ((gap**2).sum(1) / 4 - gap.sum(1) ** 2 / 16).mean()
            centred = [codes.numpy() - codes.numpy().mean(0) for codes in (shared, own)]
            unit = [codes / np.linalg.norm(codes, axis=1, keepdims=True) for codes in centred]
            expected += BETA * np.linalg.norm(unit[0].T @ unit[1], "fro") ** 2 / len(inputs) ** 2
    pairs = PairedLoader(task.source_loader(), task.target_loader())
    fit(module, pairs, max_steps=1, callbacks=[Keep()])
    assert losses == pytest.approx([float(expected)], rel=1e-5)


def test_private_encoders_are_like_the_network_but_not_the_same(small, task, fit):
    torch.manual_seed(1)
    module = DomainSeparation(small, "1", discrepancy="mmd", example=task.rows)
    before = copy.deepcopy(module.state_dict())
    both = module.private_source, module.private_target
    first = [network[0].weight for network in (small, *both)]
    assert not (first[0] == first[1]).any()
    assert not (first[1] == first[2]).any()
    assert [name for name, weight in both[0].named_parameters() if weight.requires_grad] == ["0.weight", "0.bias"]
    fit(module, PairedLoader(task.source_loader(), task.target_loader()), 1)
    still = {name for name, value in module.state_dict().items() if torch.equal(value, before[name])}
    assert still == {f"private_{domain}.2.{name}" for domain in ("source", "target") for name in ("weight", "bias")}
    assert module.model is small
    assert all(weight.requires_grad for weight in small.parameters())


def test_the_difference_is_what_keeps_the_codes_apart(small, task, fit):
    torch.manual_seed(0)
    module = DomainSeparation(small, "1", discrepancy="mmd", example=task.rows, learning_rate=0.01)
    pairs = PairedLoader(task.source_loader(), task.target_loader())
    figures = [fit(module, pairs, epochs).callback_metrics for epochs in (1, 10)]
    first, last = ({name: found[name].item() for name in ("difference", "reconstruction")} for found in figures)
    assert last["difference"] < 0.5 * first["difference"]
    assert last["reconstruction"] < first["reconstruction"]


def test_a_run_goes_on_to_the_same_bits(small, task, tmp_path, fit):
    def run(epochs, folder):
        torch.manual_seed(2)
        module = DomainSeparation(copy.deepcopy(small), "1", example=task.rows, discrepancy="dann")
        pairs = PairedLoader(task.source_loader(shuffle=True), task.target_loader(shuffle=True))
        fit(module, pairs, epochs, folder=tmp_path / folder)
        return module

    whole = run(3, "whole")
    run(1, "parts")
    resumed = run(3, "parts").state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.state_dict().items())


@pytest.mark.parametrize("shape", [(5,), (3, 5), (1, 28, 28), (3, 7, 10), (2, 3, 4, 5)])
def test_decoders_give_inputs_of_every_shape(shape):
    decoder = make_decoder(6, shape)
    assert decoder(torch.randn(2, 6)).shape == (2, *shape)
    assert any(isinstance(part, nn.ConvTranspose2d) for part in decoder.modules()) == (len(shape) == 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4,), (1, 2, 2)])
def test_the_decoder_is_of_the_type_of_the_inputs(task, dtype, shape):
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 2)).to(dtype)
    rows = task._replace(rows=task.rows.to(dtype).reshape(-1, *shape))
    loaders = rows.source_loader(), rows.target_loader()
    adapted = adapt(network, "2", *loaders, discrepancy="dsn", max_epochs=1, random_state=0)
    assert {weight.dtype for weight in adapted.parameters()} == {dtype}
    assert not torch.equal(adapted[1].weight, network[1].weight)


def test_a_shift_of_a_whole_row_costs_nothing():
    rows = torch.rand(3, 2, 4)
    with pytest.raises(InvalidInputError, match=r"decoder gives shape \(3, 4\) for inputs of shape \(3, 2, 4\)"):
        scale_invariant_error(rows, rows[:, 0])
    assert scale_invariant_error(rows, rows + torch.rand(3, 1, 1)).item() == pytest.approx(0.0, abs=1e-12)
    assert scale_invariant_error(rows, rows + torch.rand(3, 2, 4)).item() > 0.01


def test_the_difference_does_not_depend_on_the_size_of_the_batch():
    codes, other = torch.rand(6, 3), torch.rand(6, 4)
    repeated = difference_loss(codes.repeat(5, 1), other.repeat(5, 1))
    torch.testing.assert_close(repeated, difference_loss(codes, other))


def test_settings_that_cannot_work(small, task):
    with pytest.raises(InvalidInputError, match="DSN needs a distance of the shared codes, got discrepancy=None"):
        DomainSeparation(small, "1", example=task.rows, discrepancy=None)
    with pytest.raises(InvalidInputError, match="DSN cuts the network at one layer"):
        DomainSeparation(small, ["0", "1"], example=task.rows, discrepancy="mmd")
    with pytest.raises(InvalidTypeError, match=r"example must be a tensor .* got torch.int64 of shape \(4, 4\)"):
        DomainSeparation(small, "1", discrepancy="mmd", example=torch.ones(4, 4, dtype=torch.int64))
    with pytest.raises(InvalidTypeError, match=r"example must be a tensor .* got 'rows'"):
        DomainSeparation(small, "1", discrepancy="mmd", example="rows")

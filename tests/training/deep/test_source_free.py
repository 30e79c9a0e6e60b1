"""Adaptation from the moments of the source's activations alone."""

import pytest
import torch
from torch import nn

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.training.deep.adapt import adapt
from momentalign.training.deep.source_free import MomentsLoss, layer_moments


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("settings", "cross"), [({}, 1), ({"n_moments": 3, "interval": (-1.0, 2.0)}, 1), ({"n_moments": 4}, 2)]
)
def test_the_loss_and_its_gradient_are_those_of_the_rows(dtype, settings, cross):
    torch.manual_seed(0)
    source, target = torch.rand(90, 4, dtype=dtype), (torch.rand(50, 4, dtype=dtype) ** 2).requires_grad_()
    loss = MomentsLoss(ma.Moments.of(source, cross=2), cross=cross, **settings)
    expected = ma.cmd(source, target, cross=cross, **settings)
    torch.testing.assert_close(loss(None, target), expected)
    torch.testing.assert_close(loss.orders(None, target).sum(), expected)
    gradients = [torch.autograd.grad(value, target)[0] for value in (loss(None, target), expected)]
    torch.testing.assert_close(*gradients)


def test_a_target_with_the_same_moments_is_at_distance_zero():
    rows = 1e3 + torch.randn(60, 5)
    target = rows.flip(0).requires_grad_()
    distance = MomentsLoss(ma.Moments.of(rows), interval=(990.0, 1010.0))(None, target)
    distance.backward()
    assert distance == 0.0
    assert not target.grad.any()


def test_most_of_the_gain_is_had_without_a_source_row(digits, network):
    settings = {"max_epochs": 15, "device": "cpu", "random_state": 0, "learning_rate": 2e-3}
    loaders = digits.source_loader(), digits.target_loader()
    trained = adapt(network, "4", *loaders, discrepancy=None, **settings)
    whole = adapt(network, "4", *loaders, **settings)
    moments = layer_moments(trained, "4", digits.source_loader())
    free = adapt(trained, "4", None, digits.target_loader(), source_moments=moments, **settings)
    plain, most, found = map(digits.target_accuracy, (trained, whole, free))
    assert found - plain > 2 / 3 * (most - plain) > 0.1
    assert torch.equal(free[5].weight, trained[5].weight)
    assert not torch.equal(free[1].weight, trained[1].weight)
    assert all(weight.requires_grad for weight in free.parameters())


def test_figures_of_an_epoch_are_those_there_are(task, small):
    moments, history = layer_moments(small, "1", task.source_loader()), []
    settings = {"sharpen": 1.0, "source_validation": task.source_loader(), "on_epoch": history.append}
    adapt(small, "1", None, task.target_loader(), source_moments=moments, max_epochs=1, device="cpu", **settings)
    assert list(history[0]) == ["distance", "sharpen", "validation_loss", "validation_accuracy"]


MOMENTS = ma.Moments.of(torch.rand(9, 6))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"source_moments": None}, InvalidInputError, "source_moments stand in for a source that is not there"),
        ({"source_loader": [(torch.rand(5, 4), torch.zeros(5))]}, InvalidInputError, "source_moments stand in"),
        ({"source_moments": [0.5]}, InvalidTypeError, "source_moments must be ma.Moments, got list"),
        ({"source_moments": ma.Moments()}, InvalidInputError, "these moments have no rows yet"),
        ({"source_moments": ma.Moments.of(torch.rand(9, 5))}, InvalidInputError, "source_moments are of 5 features"),
        ({"discrepancy": "mmd"}, InvalidInputError, "source_moments go with one layer and discrepancy 'cmd'"),
        ({"discrepancy": None}, InvalidInputError, "source_moments go with one layer"),
        ({"discrepancy": "dsn"}, InvalidInputError, "source_moments go with one layer"),
        ({"discrepancy": "adda"}, InvalidInputError, "source_moments=.* has no effect on 'adda'"),
        ({"discrepancy": "cv-cmd"}, InvalidInputError, "n_moments=5 of cv-cmd are more than Moments"),
        ({"n_moments": 6}, InvalidInputError, "n_moments=6 of cmd are more than Moments"),
        ({"layer": ["0", "1"]}, InvalidInputError, "cuts the network at one layer"),
        ({"layer": "0"}, InvalidInputError, "moments do not know the range"),
        ({"interval": "data"}, InvalidInputError, "moments do not know the range"),
        ({"semi_supervised": True}, InvalidInputError, "semi_supervised and domain_norm are for a source"),
    ],
)
def test_what_moments_cannot_do_is_refused(task, small, settings, error, message):
    settings = {"layer": "1", "source_loader": None, "source_moments": MOMENTS, "max_epochs": 1, **settings}
    with pytest.raises(error, match=message):
        adapt(small, target_loader=task.target_loader(), device="cpu", **settings)


def test_networks_with_several_inputs_give_moments_too():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())

        def forward(self, left, right):
            return {"logits": self.hidden(torch.cat([left, right], 1))}

    model, rows = Two(), torch.rand(8, 4)
    found = layer_moments(model, "hidden", [{"left": rows[:, :2], "right": rows[:, 2:]}], order=2)
    torch.testing.assert_close(torch.tensor(found.mean), model.hidden(rows).mean(0).double())
    assert model.training

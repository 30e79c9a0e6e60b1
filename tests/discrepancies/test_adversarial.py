"""The adversarial distance: its value, who goes which way, and that it adapts."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression

import momentalign as ma
from momentalign.discrepancies.adversarial import stacked_adversarial
from momentalign.errors import InvalidInputError
from momentalign.training.config import NetworkSpec
from momentalign.training.torch_engine import stack_weights


@pytest.fixture
def samples(rng):
    return tuple(torch.tensor(rng.normal(shift, size=(40, 3)), requires_grad=True) for shift in (0.0, 0.7))


@pytest.mark.parametrize("hidden", [(), (5,), (4, 3)])
def test_a_classifier_that_knows_nothing_sees_no_distance(samples, hidden):
    assert ma.AdversarialLoss(3, hidden)(*samples).item() == pytest.approx(0.0, abs=1e-12)


def test_the_value_is_that_of_the_best_logistic_regression(samples):
    rows = torch.cat(samples).detach().numpy()
    domain = np.repeat([0, 1], 40)
    best = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(rows, domain)
    chances = best.predict_proba(rows)[np.arange(80), domain]
    loss = ma.AdversarialLoss(3).double()
    optimizer = torch.optim.LBFGS(loss.parameters(), max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-14)
    rows_only = [sample.detach() for sample in samples]

    def closure():  # LBFGS looks at the value too: what the classifier lowers is minus the distance.
        optimizer.zero_grad()
        value = loss(*rows_only)
        value.backward()
        return -value

    optimizer.step(closure)
    expected = 2 * math.log(2) + 2 * np.log(chances).mean()
    assert loss(*rows_only).item() == pytest.approx(expected, rel=1e-6)
    assert 0.0 < expected < 2 * math.log(2)


def test_network_and_classifier_go_opposite_ways(samples):
    source, target = samples
    loss = ma.AdversarialLoss(3).double()
    with torch.no_grad():
        loss.classifier[0].weight.copy_(torch.tensor([[0.5, -0.2, 0.1]]))
    loss(source, target).backward()
    weight, bias = (p.detach().clone().requires_grad_() for p in loss.parameters())
    leaves = [sample.detach().requires_grad_() for sample in samples]
    a, b = (sample @ weight[0] + bias for sample in leaves)
    cross_entropy = torch.nn.functional.softplus(a).mean() + torch.nn.functional.softplus(-b).mean()
    expected = torch.autograd.grad(cross_entropy, [*leaves, weight, bias])
    torch.testing.assert_close(source.grad, -expected[0])
    torch.testing.assert_close(target.grad, -expected[1])
    for parameter, gradient in zip(loss.parameters(), expected[2:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_stack_is_its_networks(samples):
    source, target = (torch.stack([sample, 2 * sample]).detach() for sample in samples)
    weight = torch.tensor([[0.3, 0.1, -0.4], [0.0, 1.0, 0.2]], dtype=torch.float64)[..., None]
    bias = torch.tensor([0.1, -0.3], dtype=torch.float64)[:, None, None]
    together = stacked_adversarial(source, target, weight, bias)
    for index in range(2):
        loss = ma.AdversarialLoss(3).double()
        with torch.no_grad():
            loss.classifier[0].weight.copy_(weight[index].T)
            loss.classifier[0].bias.copy_(bias[index, 0])
        torch.testing.assert_close(together[index], loss(source[index], target[index]))


def test_classifiers_are_made_only_where_they_are_used():
    kwargs = {"dtype": torch.float64, "device": torch.device("cpu")}
    assert stack_weights([NetworkSpec(0), NetworkSpec(1, 1.0, ma.CMDLoss())], 4, **kwargs) == {}
    ((weight, bias),) = stack_weights(
        [NetworkSpec(0), NetworkSpec(1, 1.0, ma.AdversarialLoss(4))], 4, **kwargs
    ).values()
    assert weight.shape == (2, 4, 1)
    assert bias.shape == (2, 1, 1)
    assert weight.requires_grad


def test_a_loss_whose_weights_nobody_would_train_is_refused(rng):
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 2
    model = ma.MANNClassifier(hidden=(4,), discrepancy=ma.AdversarialLoss(4, hidden=(3,)), max_epochs=2)
    with pytest.raises(InvalidInputError, match="weights of its own, which a stack does not train"):
        model.fit(X, y, X_target=X + 1.0)


def test_settings_are_shown_and_checked():
    loss = ma.AdversarialLoss(3, [2])
    assert (loss.width, loss.hidden) == (3, (2,))
    assert str(loss).startswith("AdversarialLoss(\n  width=3, hidden=(2,)\n")
    assert [type(layer).__name__ for layer in loss.classifier] == ["Linear", "ReLU", "Linear"]
    with pytest.raises(InvalidInputError, match=r"^width must be at least 1, got 0; try width=50\.$"):
        ma.AdversarialLoss(0)
    with pytest.raises(InvalidInputError, match=r"^hidden must be at least 1, got 0; try hidden=5\.$"):
        ma.AdversarialLoss(3, (0,))


def test_autocast_lowers_no_precision(samples):
    source, target = (sample.detach().float() for sample in samples)
    loss = ma.AdversarialLoss(3)
    with torch.no_grad():
        loss.classifier[0].weight.fill_(0.1)
    expected = loss(source, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(source, target) == expected


def test_what_has_no_distance_is_named(samples):
    source, target = (sample.detach() for sample in samples)
    with pytest.raises(InvalidInputError, match=r"^target holds NaN or infinite values; remove"):
        ma.AdversarialLoss(3)(source, target / 0.0)


def test_it_adapts_rotated_moons():
    """The example of Ganin et al. (2016): the target is the source, turned by 35 degrees."""
    X, y = make_moons(300, noise=0.05, random_state=0)
    X -= X.mean(0)
    angle = np.deg2rad(35)
    X_target = X @ [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    settings = {"hidden": (15,), "optimizer": "sgd", "learning_rate": 0.05, "max_epochs": 1500, "random_state": 0}
    settings |= {"patience": None, "batch_size": None, "validation_fraction": 0.0}
    plain = ma.MANNClassifier(discrepancy=None, **settings).fit(X, y)
    adapted = ma.MANNClassifier(discrepancy="dann", weight=6.0, **settings).fit(X, y, X_target)
    assert adapted.score(X_target, y) > plain.score(X_target, y) + 0.05

import numpy as np
import pytest
import torch

import momentalign as ma
from momentalign import errors as ma_errors
from momentalign.discrepancies import names
from momentalign.discrepancies.base import DistanceLoss, compiled_form
from momentalign.errors import InvalidInputError
from momentalign.training.config import NetworkSpec
from momentalign.training.stack_distance import StackDistance, own_distances, stack_weights

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

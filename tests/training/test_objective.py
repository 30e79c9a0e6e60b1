import pytest
import torch

import momentalign as ma
from momentalign.errors import InvalidInputError
from momentalign.training.config import NetworkSpec
from momentalign.training.torch_engine import StackDistance

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


def test_the_mmd_of_large_samples_is_that_of_some_rows_drawn_anew(rng):
    source, target = torch.tensor(rng.random((2, 40, 3))), torch.tensor(rng.random((2, 600, 3)) + 1.0)
    specs = [NetworkSpec(seed, 1.0, ma.MMDLoss("gaussians")) for seed in range(2)]

    def values():
        drawn = StackDistance(specs, mmd_rows=500, generator=torch.Generator().manual_seed(0))
        return torch.stack([drawn(source, target) for _ in range(3)])

    whole = StackDistance(specs)(source, target)
    torch.testing.assert_close(values(), whole.expand(3, 2), rtol=0.02, atol=0.0)
    assert len(set(values()[:, 0].tolist())) == 3
    assert not torch.isclose(values(), whole, rtol=1e-9).any()
    assert torch.equal(values(), values())
    torch.testing.assert_close(StackDistance(specs, mmd_rows=600)(source, target), whole)


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

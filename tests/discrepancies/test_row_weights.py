"""Rows that count more: weighted means and weighted central moments."""

import functools

import dask.array as da
import numpy as np
import pytest
import torch
import torch.distributed as dist

import momentalign as ma
from momentalign.discrepancies import cross_moments
from momentalign.errors import InvalidInputError, InvalidTypeError


def _weights(rng, *samples):
    return {name: rng.random(len(x)) for name, x in zip(("source_weight", "target_weight"), samples, strict=False)}


def test_the_terms_are_those_of_the_formula(pair, rng):
    source, target = pair(60, 50, 20)  # as many numbers as go through the compiled loops otherwise
    weights = _weights(rng, source, target)
    moments = []
    for sample, weight in zip((source.numpy(), target.numpy()), weights.values(), strict=True):
        w = (weight / weight.sum())[:, None]
        mean = (w * sample).sum(0)
        moments.append([mean, *((w * (sample - mean) ** j).sum(0) for j in range(2, 6))])
    expected = [np.linalg.norm(one - other) / 2.0**j for j, (one, other) in enumerate(zip(*moments, strict=True), 1)]
    found = ma.cmd_terms(source, target, interval=(-1.0, 1.0), **weights)
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    arrays = ma.cmd(source.numpy(), target.tolist(), interval=(-1.0, 1.0), **weights)
    assert arrays == pytest.approx(sum(expected), rel=1e-11)
    loss = ma.CMDLoss(interval=(-1.0, 1.0))
    assert loss(source, target, *weights.values()).item() == pytest.approx(arrays, rel=1e-12)
    assert loss(source, target, target_weight=weights["target_weight"]).item() != pytest.approx(arrays, rel=1e-3)


@pytest.mark.parametrize("width", [3, 40])  # covariances, or Gram matrices of the rows
@pytest.mark.parametrize(("cross", "listed"), [(1, 10**9), (2, 10**9), (4, 10**9), (4, 0)])
def test_values_and_gradients_are_those_of_repeated_rows(pair, monkeypatch, width, cross, listed):
    monkeypatch.setattr(cross_moments, "LISTED", listed)
    source, target = pair(7, 9, width, grad=True)
    counts = torch.tensor([1, 2, 3, 1, 0, 1, 4])
    once = ma.cmd(source, target, cross=cross, source_weight=counts)
    repeated = ma.cmd(source.repeat_interleave(counts, 0), target, cross=cross)
    torch.testing.assert_close(once, repeated, rtol=1e-9, atol=0.0)
    for one, other in zip(*(torch.autograd.grad(v, (source, target)) for v in (once, repeated)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-10)


def test_the_gradient_is_that_of_the_samples_alone(pair, rng):
    source, target = pair(6, 5, 2, grad=True)
    weight = torch.tensor(rng.random(6), requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, t: ma.cmd(s, t, source_weight=weight), (source, target))
    ma.cmd(source, target, source_weight=weight).backward()
    assert weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_of_one_value_change_nothing(pair, dtype):
    source, target = (sample.to(dtype) for sample in pair(70, 50, 20))
    weighted = ma.cmd(source, target, source_weight=np.full(70, 1e-3), target_weight=torch.full((50,), 7))
    torch.testing.assert_close(weighted, ma.cmd(source, target), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("distance", [ma.CMDLoss(interval="data"), functools.partial(ma.cmd, interval="data")])
def test_the_interval_of_the_data_is_that_of_the_rows_that_count(distance):
    source, target = torch.tensor([[0.0], [1.0], [100.0]]), torch.tensor([[2.0], [4.0]])
    with pytest.warns(match=r"\[0, 4\]"):
        found = distance(source, target, source_weight=[1.0, 1.0, 0.0])
    torch.testing.assert_close(found, ma.cmd(source[:2], target, interval=(0.0, 4.0)))


@pytest.mark.parametrize(
    ("weight", "error", "words"),
    [
        ([1.0, 2.0], InvalidInputError, "has shape (2,) for 3 rows; give one number per row."),
        (np.ones((3, 1)), InvalidInputError, "has shape (3, 1) for 3 rows; give one number per row."),
        (torch.ones(4), InvalidInputError, "has shape (4,) for 3 rows; give one number per row."),
        (["a", "b", "c"], InvalidTypeError, "must be an array of numbers, got list."),
        *(
            (bad, InvalidInputError, "must be finite, none negative and one positive at least; look at those rows.")
            for bad in ([1.0, -1.0, 2.0], [0.0] * 3, [1.0, np.nan, 1.0], [1.0, np.inf, 1.0], torch.zeros(3))
        ),
    ],
)
@pytest.mark.parametrize("name", ["source_weight", "target_weight"])
def test_what_are_no_weights_is_refused(name, weight, error, words):
    with pytest.raises(error) as caught:
        ma.cmd(np.ones((3, 2)), np.zeros((3, 2)), **{name: weight})
    assert str(caught.value) == f"{name} {words}"


def test_ways_without_weights_say_so(pair):
    source, target = pair(20, 20)
    with pytest.raises(InvalidInputError, match="unbiased=True has no estimate for weighted rows"):
        ma.CMDLoss(unbiased=True)(source, target, np.ones(20))
    with pytest.raises(InvalidInputError, match=r"read in chunks have no weights in one call; add them with Moments"):
        ma.cmd(da.from_array(source.numpy()), target.numpy(), target_weight=np.ones(20))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        loss = ma.CMDLoss(process_group=dist.group.WORLD)
        with pytest.raises(InvalidInputError, match="joined batches of several processes have no weights of rows"):
            loss(source, target, target_weight=np.ones(20))
    finally:
        dist.destroy_process_group()


def test_moments_of_weighted_batches_have_the_same_distance(pair, rng):
    source, target = (sample.numpy() for sample in pair(30, 40))
    weights = _weights(rng, source, target)
    streams = [
        ma.Moments(cross=2).update(x[:9], w[:9]).update(x[9:], w[9:])
        for x, w in zip((source, target), weights.values(), strict=True)
    ]
    assert streams[0].cmd(streams[1]) == pytest.approx(ma.cmd(source, target, cross=2, **weights), rel=1e-11)

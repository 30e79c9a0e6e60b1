"""MomentMetric: the distance of everything seen, however it is cut into batches; for ranks see tests/promises."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.training.deep.lightning import pl, quiet


@pytest.fixture
def samples(rng):
    return torch.tensor(rng.random((90, 3))), torch.tensor(rng.random((70, 3)) ** 2)


@pytest.fixture
def filled(samples):
    """A metric that saw all of both samples in unequal batches."""
    metric = ma.MomentMetric(3)
    cuts = [(0, 50, 0, 1), (50, 50, 1, 69), (50, 90, 69, 70)]
    for start, stop, other_start, other_stop in cuts:
        metric.update(samples[0][start:stop], samples[1][other_start:other_stop])
    return metric


@pytest.mark.parametrize("settings", [{}, {"n_moments": 1}, {"n_moments": 3, "interval": (-1.0, 2.0)}])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_it_is_the_distance_of_all_rows(samples, settings, offset):
    source, target = (sample + offset for sample in samples)
    metric = ma.MomentMetric(3, **settings)
    for start in range(0, 90, 11):
        metric.update(source[start : start + 11], target[start : start + 11])
    assert metric.compute().dtype == torch.float64
    assert metric.compute().item() == pytest.approx(ma.cmd(source, target, **settings).item(), rel=1e-11)


def test_its_state_is_that_of_moments(samples, filled):
    for sample, state in zip(samples, (filled.source, filled.target), strict=True):
        moments = ma.Moments.of(sample.numpy())
        assert state[0].tolist() == [moments.count] * 3
        np.testing.assert_allclose(state[1], moments.mean, rtol=1e-13)
        np.testing.assert_allclose(state[2:] / state[0], moments.central, rtol=0, atol=1e-15)


def test_forward_gives_the_batch_and_keeps_the_whole(samples):
    source, target = samples
    metric = ma.MomentMetric(3)
    for part in (slice(0, 40), slice(40, 90)):
        batch = metric(source[part], target[part])
        assert batch.item() == pytest.approx(ma.cmd(source[part], target[part]).item(), rel=1e-12)
    assert metric.compute().item() == pytest.approx(ma.cmd(source, target).item(), rel=1e-12)


def test_narrow_tensors_are_summed_in_double(samples):
    narrow = [sample.to(torch.bfloat16).requires_grad_() for sample in samples]
    metric = ma.MomentMetric(3).half()
    found = metric(*narrow)
    assert metric.source.dtype == torch.float64
    assert not found.requires_grad
    assert found.item() == pytest.approx(ma.cmd(*(sample.detach().double() for sample in narrow)).item(), rel=1e-12)
    metric.to(torch.float32).update(*narrow)
    assert metric.source.dtype == torch.float64


def test_copies_stand_alone_and_a_reset_forgets(samples, filled):
    expected = filled.compute().item()
    clone, copied = filled.clone(), copy.deepcopy(filled)
    filled.reset()
    assert not filled.source.any()
    filled.update(samples[0], samples[0])
    assert filled.compute() == 0.0
    assert clone.compute().item() == copied.compute().item() == expected


def test_the_state_is_kept_where_asked_for(samples, filled):
    assert ma.MomentMetric(3).state_dict() == {}
    filled.persistent(True)
    restored = ma.MomentMetric(3)
    restored.persistent(True)
    restored.load_state_dict(filled.state_dict())
    for metric in (filled, restored):
        metric.update(samples[1], samples[0])
    assert restored.compute().item() == filled.compute().item()


def test_states_of_two_metrics_merge(samples):
    source, target = samples
    parts = [ma.MomentMetric(3) for _ in range(2)]
    parts[0].update(source[:20], target[:60])
    parts[1].update(source[20:], target[60:])
    parts[0].merge_state(parts[1])
    assert parts[0].compute().item() == pytest.approx(ma.cmd(source, target).item(), rel=1e-12)


def test_what_cannot_work_is_named(samples):
    source, target = samples
    metric = ma.MomentMetric(3)
    metric.update(source, target[:0])
    with pytest.raises(InvalidInputError, match="target has no rows yet; update the metric with some first"):
        metric.compute()
    with pytest.raises(InvalidInputError, match=r"target must have shape \(rows, 3\), got \(70, 2\)"):
        metric.update(source, target[:, :2])
    with pytest.raises(InvalidTypeError, match=r"source must be a tensor of floating-point numbers, got torch\.int64"):
        metric.update(source.long(), target)
    with pytest.raises(InvalidTypeError, match="target must be a tensor of floating-point numbers, got ndarray"):
        metric.update(source, target.numpy())
    with pytest.raises(InvalidInputError, match="target holds NaN or infinite values"):
        metric.update(source, target / 0.0)
    assert metric.source[0, 0] == 90, "a refused batch changes nothing"
    with pytest.raises(InvalidInputError, match="width must be at least 1, got 0; try width=64"):
        ma.MomentMetric(0)
    with pytest.raises(InvalidInputError, match="interval must be finite and not empty"):
        ma.MomentMetric(3, interval=(1.0, 1.0))


class Watched(pl.LightningModule):
    """A layer whose activations of two domains are watched."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 6)
        self.metric = ma.MomentMetric(6)

    def training_step(self, batch, _):
        source, target = (torch.sigmoid(self.hidden(rows)) for rows in batch)
        self.metric(source, target)
        self.log("distance", self.metric, on_step=False, on_epoch=True)
        return ma.cmd(source, target)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def test_lightning_logs_the_distance_of_an_epoch(rng, tmp_path):
    rows = torch.tensor(rng.normal(size=(50, 4)), dtype=torch.float32)
    module = Watched()
    with quiet():
        trainer = pl.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(module, DataLoader(TensorDataset(rows, rows + 1.0), batch_size=16))
    with torch.no_grad():
        expected = ma.cmd(*(torch.sigmoid(module.hidden(part)).double() for part in (rows, rows + 1.0)))
    assert trainer.callback_metrics["distance"].item() == pytest.approx(expected.item(), rel=1e-6)

"""Heads on features: balanced whole-sample batches, dropout, stopping, stacks."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from momentalign.discrepancies.central_moment import CMDLoss, cmd
from momentalign.errors import DivergedError
from momentalign.paper import object_heads
from momentalign.paper.object_heads import HeadConfig, HeadTask, seconds_per_update, train_heads
from momentalign.training.config import NetworkSpec, Optimizer

CONFIG = HeadConfig(hidden=16, dropout=0.5, patience=100, max_updates=400)


def make_task(shift=1.0, views=1, n_target=90, seed=0):
    """Three classes, unequal in the source; the target is moved along one feature."""
    random = np.random.default_rng(seed)
    labels, truth = np.repeat([0, 1, 2], [40, 20, 10]), np.arange(n_target) % 3
    centres = 6.0 * np.eye(3, 6)
    source = centres[labels] + random.normal(size=(views, 70, 6))
    target = centres[truth] + random.normal(size=(views, n_target, 6)) + shift * np.eye(6)[5]
    return HeadTask(source.astype(np.float16), labels, target.astype(np.float16), 3), truth


def stack(specs=None, config=CONFIG, **options):
    return object_heads._Stack(make_task(**options)[0], specs or [NetworkSpec(0)], config, "cpu")


def test_a_head_learns_and_stops_when_the_source_gets_no_better():
    task, truth = make_task()
    config = replace(CONFIG, patience=300, max_updates=3000)
    (head,) = train_heads(task, [NetworkSpec(0)], config)
    assert (head.predictions == truth).mean() > 0.9
    (short,) = train_heads(task, [NetworkSpec(0)], replace(config, patience=100))
    assert 100 < short.updates <= head.updates - 200
    assert head.updates < 3000
    (limited,) = train_heads(task, [NetworkSpec(0)], replace(CONFIG, max_updates=33))
    assert limited.updates == 33


@pytest.mark.parametrize("follow_at", [0, 30])
def test_a_head_depends_neither_on_its_neighbours_nor_on_their_stopping(follow_at):
    task, _ = make_task()
    config = replace(CONFIG, patience=50, follow_at=follow_at)
    specs = [NetworkSpec(0), NetworkSpec(1), NetworkSpec(0, 1.0, CMDLoss()), NetworkSpec(1, 1.0, CMDLoss())]
    together = train_heads(task, specs, config)
    alone = [train_heads(task, [spec], config)[0] for spec in specs]
    for one, other in zip(together, alone, strict=True):
        assert one.updates == other.updates
        np.testing.assert_array_equal(one.predictions, other.predictions)
    assert any((one.predictions != other.predictions).any() for one, other in pairwise(alone))


def test_classes_are_balanced_and_the_smaller_domain_repeated():
    rows = stack()._rows.numpy()
    labels = make_task()[0].labels
    assert len(rows) == 120
    assert np.bincount(labels[rows]).tolist() == [40, 40, 40]
    assert set(rows) == set(range(70))
    larger = stack(n_target=200)._rows.numpy()
    assert len(larger) == 200
    assert np.ptp(np.bincount(labels[larger])) <= 1


def test_classes_follow_what_each_head_finds_in_the_target():
    specs = [NetworkSpec(seed, 1.0, CMDLoss()) for seed in range(2)]
    trained = stack(specs, replace(CONFIG, optimizer=Optimizer("adam")), n_target=93)
    trained._target[:, :60] = trained._target[:, :1]  # two thirds of the target are of one class
    for _ in range(100):
        trained.update()
    trained.follow()
    labels, rows = make_task()[0].labels, trained._rows.numpy()
    assert rows.shape == (2, 120)
    counts = [np.bincount(labels[own], minlength=3) for own in rows]
    with torch.no_grad():
        found = torch.softmax(trained._outputs(trained._hidden(trained._target[0])), -1).mean(1).numpy()
    np.testing.assert_allclose(np.array(counts) / 120, found, atol=1 / 120)
    assert (counts[0] != counts[1]).any()
    assert max(counts[0]) > 45
    assert all(len(set(own[labels[own] == 2])) == min(10, count[2]) for own, count in zip(rows, counts, strict=True))
    trained.update()
    assert np.isfinite(trained.accuracy()).all()


def test_classes_are_followed_once_and_from_the_update_it_is_asked_for(monkeypatch):
    followed = []
    monkeypatch.setattr(object_heads._Stack, "follow", lambda self: followed.append(self))
    train_heads(make_task()[0], [NetworkSpec(0)], replace(CONFIG, follow_at=7, max_updates=6))
    assert followed == []
    train_heads(make_task()[0], [NetworkSpec(0)], replace(CONFIG, follow_at=7, max_updates=50))
    assert len(followed) == 1


def test_the_update_is_the_gradient_of_loss_and_distance_of_repeated_rows():
    """Rows that are repeated are computed once; the result is that of computing all."""
    config = replace(CONFIG, dropout=0.0, optimizer=Optimizer("sgd", 0.5, momentum=0.0))
    trained = stack([NetworkSpec(3, 2.0, CMDLoss())], config)
    bottom, bias, top, top_bias = (part.detach().clone().requires_grad_() for part in trained._parameters)
    task, rows = make_task()[0], trained._rows
    source, target = (torch.tensor(sample[0], dtype=torch.float32) for sample in (task.source, task.target))
    hidden, others = (torch.sigmoid(sample @ bottom + bias) for sample in (source[rows], target))
    outputs = hidden @ top[0] + top_bias[0]
    loss = torch.nn.functional.cross_entropy(outputs, torch.tensor(task.labels)[rows]) + 2.0 * cmd(hidden, others)
    loss.backward()
    trained.update()
    for part, before in zip(trained._parameters, (bottom, bias, top, top_bias), strict=True):
        torch.testing.assert_close(part.detach(), before.detach() - 0.5 * before.grad, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_decays_with_every_update():
    trained = stack(config=replace(CONFIG, optimizer=Optimizer("sgd", decay=0.5)))
    rates = []
    for _ in range(3):
        rates.append(trained._optimizer.param_groups[0]["lr"])
        trained.update()
    assert rates == pytest.approx([0.01, 0.01 / 1.5, 0.01 / 2.0])


def test_dropout_leaves_out_its_part_and_keeps_the_mean():
    trained = stack([NetworkSpec(0), NetworkSpec(1), NetworkSpec(0)], replace(CONFIG, dropout=0.8))
    hidden = torch.ones(3, 2000, 16)
    dropped = trained._drop(hidden)
    assert dropped.unique().tolist() == pytest.approx([0.0, 5.0])
    assert (dropped == 0).double().mean() == pytest.approx(0.8, abs=0.01)
    assert (dropped[0] == dropped[2]).all()  # one seed, one dropout: what differs is the method
    assert (dropped[0] != dropped[1]).any()
    assert (trained._drop(hidden)[0] != dropped[0]).any()


def test_views_are_drawn_for_every_update_where_crops_are_wanted():
    trained = stack(config=replace(CONFIG, crops=True), views=4)
    rows, number = trained._source, trained._source.shape[1]
    first, second = trained._view(rows), trained._view(rows)
    assert (first != second).any()
    from_views = (rows == first).all(-1)
    assert (from_views.sum(0) == 1).all()
    assert (np.bincount(from_views.int().argmax(0), minlength=4) > number // 12).all()
    centre = stack(views=4)
    assert (centre._view(centre._source) == centre._source[0]).all()
    alone = stack(config=replace(CONFIG, crops=True))
    assert (alone._view(alone._source) == alone._source[0]).all()


def test_a_head_that_diverges_is_named():
    task, _ = make_task()
    broken = task._replace(target=np.full_like(task.target, np.nan))
    with pytest.raises(DivergedError, match="left the finite numbers; lower the learning rate"):
        train_heads(broken, [NetworkSpec(0, 1.0, CMDLoss())], CONFIG)


def test_updates_are_timed():
    assert 0 < seconds_per_update(make_task()[0], [NetworkSpec(0)], CONFIG) < 5

"""Table 4: heads on features, the cells, what is asked and reported, and small trainings on real features."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from momentalign.discrepancies.central_moment import CMDLoss, cmd
from momentalign.errors import DivergedError
from momentalign.journal import Journal, cell_key
from momentalign.paper import objects
from momentalign.paper.experiment import split_task
from momentalign.paper.objects import (
    METHODS,
    HeadConfig,
    HeadTask,
    balanced_order,
    compute_all,
    estimate,
    object_identity,
    order_by_shares,
    train_heads,
)
from momentalign.paper.office import ObjectFeatures, OfficeRows, load_features
from momentalign.paper.tables import OBJECTS, compare
from momentalign.training.config import NetworkSpec, Optimizer

TASKS = ["dslr->webcam", "webcam->dslr"]
ALIGNED = ("mmd", "coral", "dann", "cmd", "fp-cmd", "cv-cmd")


def make_features(views=2):
    """Three domains of 62 pictures, 31 classes of two each, that differ by a shift."""
    random = np.random.default_rng(0)
    labels, domains = np.tile(np.arange(31), 6), np.repeat([0, 1, 2], 62)
    centres = 4.0 * random.normal(size=(31, 8))
    rows = centres[labels] + random.normal(size=(views, 186, 8)) + domains[:, None] * random.normal(size=8)
    return ObjectFeatures(OfficeRows(rows.astype(np.float16), labels, domains), "nothing real", {"made": "here"})


@pytest.fixture
def features():
    return make_features()


@pytest.fixture
def journal(tmp_path, features):
    return Journal(tmp_path / "cells.jsonl", object_identity(features))


@pytest.fixture
def short(monkeypatch):
    """Every method with few updates."""
    for name, method in METHODS.items():
        config = HeadConfig(method.config.optimizer, max_updates=20, crops=method.config.crops)
        monkeypatch.setitem(METHODS, name, type(method)(method.title, method.weight, config, method.apart))


def test_every_method_runs_is_kept_and_reported(short, features, journal):
    told, calls = [], []
    ask = {"seeds": range(2), "tasks": TASKS}
    result = objects.run(
        list(METHODS), features, journal, say=told.append, progress=lambda *call: calls.append(call), **ask
    )
    assert told == ["34 of 34 trainings are to be done: less than a minute"]
    assert calls[-1] == (34, 34)
    lines = journal.path.read_bytes()
    again = objects.run(list(METHODS), features, journal, say=told.append, **ask)
    assert again == json.loads(json.dumps(result)) == result
    assert told[1].startswith("0 of 34")
    assert journal.path.read_bytes() == lines
    assert all(len(runs) == 2 for column in result["methods"].values() for runs in column["accuracy"].values())
    assert result["methods"]["tca"]["accuracy"]["dslr->webcam"][0] > 0.5
    assert result["methods"]["cmd"]["settings"]["views"] == 2
    assert result["methods"]["fp-cmd"]["settings"] == {"weight": 1.0, "optimizer": "adadelta", "max_updates": 20}
    assert result["methods"]["tca"]["updates"]["dslr->webcam"] == [0, 0]
    assert result["note"].endswith("those here on features of nothing real.")
    comparison = compare(result, OBJECTS)
    assert comparison.entries["fp-cmd"]["dslr->webcam"].paper == 95.4
    assert comparison.entries["nn"]["dslr->webcam"].paper is None
    assert comparison.paper_name == "paper on AlexNet"


@pytest.mark.parametrize("method", ALIGNED)
def test_alignment_has_a_part_in_every_aligned_method(method, short, features):
    cell = {"method": method, "source": "amazon", "target": "webcam", "seed": 0}
    task, _ = objects._task(cell, features)
    specs = [objects._spec(cell), NetworkSpec(0)]
    stack = objects._Stack(task, specs, METHODS[method].config, "cpu")
    for _ in range(5):
        stack.update()
    bottom = stack._parameters[0].detach()
    assert (bottom[:, :256] - bottom[:, 256:]).abs().max() > 1e-4


def test_stacks_and_single_heads_agree(short, features, tmp_path, journal):
    """What an accelerator does, done on the CPU: all heads of a task that share their recipe in one stack."""
    cells = [
        {"method": method, "source": "amazon", "target": "dslr", "seed": seed}
        for method in ("nn", "fp-cmd", "cmd", "tca")
        for seed in (0, 1)
    ]
    alone = compute_all(cells, features, journal)
    groups = objects._by_stack(cells)
    assert [len(group) for group in groups] == [4, 2, 2]
    for group in groups:
        for cell, result in zip(group, objects.compute(group, features), strict=True):
            assert result == pytest.approx(alone[cell_key(cell)], abs=0.05)


def test_an_accelerators_work_is_kept_group_by_group(short, features, journal, monkeypatch):
    cells = [
        {"method": method, "source": "amazon", "target": target, "seed": 0}
        for method in ("nn", "fp-cmd")
        for target in ("dslr", "webcam")
    ]
    journal.append(cells[0], {"accuracy": 0.125, "updates": 7})
    calls, devices = [], []
    train = objects.train_heads

    def on_cpu(*arguments, device):
        devices.append(device)
        return train(*arguments, device="cpu")

    monkeypatch.setattr(objects, "train_heads", on_cpu)
    done = compute_all(cells, features, journal, device="cuda", progress=lambda *call: calls.append(call))
    assert devices == ["cuda", "cuda"]
    assert calls == [(1, 4), (3, 4), (4, 4)]
    assert done[cell_key(cells[0])] == {"accuracy": 0.125, "updates": 7}
    assert list(done) == [cell_key(cell) for cell in cells]
    assert compute_all([{**cells[0], "seed": 1}], features, journal, device="cuda").keys().isdisjoint(done)


@pytest.mark.gpu
def test_stacks_side_by_side_on_an_accelerator_are_those_one_after_the_other(features, tmp_path):
    cells = [
        {"method": method, "source": "amazon", "target": target, "seed": 0}
        for method in ("nn", "mmd")
        for target in ("dslr", "webcam")
    ]
    one, several = (
        compute_all(cells, features, Journal(tmp_path / f"{jobs}.jsonl", {}), device="cuda", n_jobs=jobs)
        for jobs in (1, 2)
    )
    assert {key: result["updates"] for key, result in one.items()} == {
        key: result["updates"] for key, result in several.items()
    }
    assert all(result["accuracy"] == pytest.approx(several[key]["accuracy"], abs=0.05) for key, result in one.items())


def test_the_estimate_counts_kinds_seeds_and_workers(features, monkeypatch):
    asked = []

    def second(task, specs, config, *, device):
        asked.append((len(specs), device))
        return 0.5

    monkeypatch.setattr(objects, "seconds_per_update", second)
    cells = [
        {"method": method, **split_task(task), "seed": seed}
        for method in ("nn", "cmd", "tca")
        for task in TASKS
        for seed in range(3)
    ]
    usual = objects.USUAL_UPDATES
    assert all(usual[method.config.optimizer.name] < method.config.max_updates for method in METHODS.values())
    once = 0.5 * 2 * (usual["adadelta"] + usual["sgd"])
    assert estimate(cells, features) == 3 * once
    assert asked == [(1, "cpu")] * 4
    assert estimate(cells, features, n_jobs=2) == 1.5 * once
    assert estimate(cells, features, device="cuda", n_jobs=2) == once
    assert asked[-1] == (3, "cuda")
    assert estimate([], features) == 0.0


def test_labels_of_the_target_have_no_part_in_a_task(features):
    cell = {"method": "nn", "source": "dslr", "target": "webcam", "seed": 0}
    task, truth = objects._task(cell, features)
    turned = features.office._replace(labels=np.where(features.office.domains == 2, 0, features.office.labels))
    again, other = objects._task(cell, features._replace(office=turned))
    assert (truth != other).any()
    for one, same in zip(task, again, strict=True):
        np.testing.assert_array_equal(one, same)


def test_crops_are_asked_for_and_missed(short, journal):
    assert objects.needs_crops(["nn", "cmd"])
    assert not objects.needs_crops(["nn", "fp-cmd", "tca"])
    one_view, ask = make_features(views=1), {"seeds": [0], "tasks": TASKS[:1]}
    notes = {method: objects.run([method], one_view, journal, **ask)["note"] for method in ("cmd", "fp-cmd")}
    assert "no crops and mirrors" in notes["cmd"]
    assert "no crops" not in notes["fp-cmd"]


@pytest.mark.data
def test_adaptation_helps_on_real_features(monkeypatch, tmp_path):
    """D->W at 100 updates, a few points below what it becomes."""
    for name in ("nn", "fp-cmd"):
        monkeypatch.setitem(METHODS, name, type(METHODS[name])(name, METHODS[name].weight, HeadConfig(max_updates=100)))
    found = ObjectFeatures(load_features(), "EfficientNet-Lite0", {})
    result = objects.run(["nn", "fp-cmd"], found, Journal(tmp_path / "j", {}), seeds=[0], tasks=["dslr->webcam"])
    plain, aligned = (result["methods"][name]["accuracy"]["dslr->webcam"][0] for name in ("nn", "fp-cmd"))
    assert 0.93 < plain < aligned + 0.01


# Heads.
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
    return objects._Stack(make_task(**options)[0], specs or [NetworkSpec(0)], config, "cpu")


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


def test_a_head_depends_neither_on_its_neighbours_nor_on_their_stopping():
    """Neither while rows are shared nor when each head has its own, from update 30 on."""
    task, _ = make_task()
    config = replace(CONFIG, patience=50, follow_at=30)
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
    monkeypatch.setattr(objects._Stack, "follow", lambda self: followed.append(self))
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


@given(arrays.arrays(np.int64, st.integers(1, 60), elements=st.integers(0, 4)))
def test_balanced_rows_alternate_between_the_classes(labels):
    order, classes = balanced_order(labels), np.unique(labels)
    largest = np.bincount(labels).max()
    drawn = labels[order].reshape(largest, len(classes))
    np.testing.assert_array_equal(drawn, np.tile(classes, (largest, 1)))
    for position, label in enumerate(classes):
        members = np.flatnonzero(labels == label)
        np.testing.assert_array_equal(order[position :: len(classes)], members[np.arange(largest) % len(members)])


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5),
    st.integers(1, 200),
)
def test_every_class_has_its_share_and_its_rows_take_turns(sizes, shares, count):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    # The last class has no rows, so it gets none.
    wanted = np.array([*shares[: len(sizes)], 0.5])
    rows = order_by_shares(labels, wanted, count)
    assert len(rows) == count
    drawn = np.bincount(labels[rows], minlength=len(sizes))
    np.testing.assert_allclose(drawn, count * wanted[:-1] / wanted[:-1].sum(), atol=1.0 + 1e-9)
    times = np.bincount(rows, minlength=len(labels))
    assert all(np.ptp(times[labels == label]) <= 1 for label in range(len(sizes)))

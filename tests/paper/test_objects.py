"""Table 4: the cells, what is asked and reported, and small real trainings on the features of the file."""

import json

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.journal import Journal, cell_key
from momentalign.paper import object_heads, objects
from momentalign.paper.object_heads import HeadConfig
from momentalign.paper.objects import METHODS, compute_all, estimate, object_identity
from momentalign.paper.office import ObjectFeatures, OfficeRows, load_features
from momentalign.paper.tables import OBJECTS, compare
from momentalign.training.config import Optimizer

TASKS = [("dslr", "webcam"), ("webcam", "dslr")]
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


def test_the_methods_are_those_of_the_paper_and_two_more():
    assert set(METHODS) == {*OBJECTS.columns, "nn", "cv-cmd"}
    for name in ("cnn", "cmd"):
        assert METHODS[name].config.optimizer == Optimizer("sgd", decay=1e-4)
        assert METHODS[name].config.optimizer.rate == 0.01
        assert METHODS[name].config.optimizer.momentum == 0.9
        assert METHODS[name].config.crops
    for name in ("nn", "fp-cmd"):
        assert METHODS[name].config == HeadConfig()
    assert METHODS["cv-cmd"].config == HeadConfig(follow_at=500)
    assert HeadConfig().optimizer == Optimizer("adadelta")
    assert (HeadConfig().hidden, HeadConfig().dropout, HeadConfig().patience) == (256, 0.8, 1000)
    assert objects.TASKS[0] == ("amazon", "webcam")
    assert len(set(objects.TASKS)) == 6


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
    specs = [objects._spec(cell), objects.NetworkSpec(0)]
    stack = object_heads._Stack(task, specs, METHODS[method].config, "cpu")
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
        for cell, result in zip(group, objects.compute_together(group, features, device="cpu"), strict=True):
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
        {"method": method, "source": source, "target": target, "seed": seed}
        for method in ("nn", "cmd", "tca")
        for source, target in TASKS
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


def test_crops_are_asked_for_and_missed():
    assert objects.needs_crops(["nn", "cmd"])
    assert not objects.needs_crops(["nn", "fp-cmd", "tca"])
    assert "no crops and mirrors" in objects._note(["cmd"], make_features(views=1))
    assert "no crops" not in objects._note(["fp-cmd"], make_features(views=1))


def test_an_unknown_method_is_named(features, journal):
    with pytest.raises(InvalidInputError, match="method 'magic' is not known; choose among nn, cnn"):
        objects.run(["magic"], features, journal)


@pytest.mark.data
def test_adaptation_helps_on_real_features(monkeypatch, tmp_path):
    """D->W at 100 updates, a few points below what it becomes."""
    for name in ("nn", "fp-cmd"):
        monkeypatch.setitem(METHODS, name, type(METHODS[name])(name, METHODS[name].weight, HeadConfig(max_updates=100)))
    found = ObjectFeatures(load_features(), "EfficientNet-Lite0", {})
    result = objects.run(["nn", "fp-cmd"], found, Journal(tmp_path / "j", {}), seeds=[0], tasks=[("dslr", "webcam")])
    plain, aligned = (result["methods"][name]["accuracy"]["dslr->webcam"][0] for name in ("nn", "fp-cmd"))
    assert 0.93 < plain < aligned + 0.01

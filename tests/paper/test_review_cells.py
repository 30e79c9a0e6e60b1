"""The cells of the review experiments on the real file: tasks, starts, methods, devices, resuming."""

import numpy as np
import pytest

import momentalign as ma
from momentalign.journal import Journal, cell_key
from momentalign.networks.shallow import outputs
from momentalign.paper import sentiment as cells

pytestmark = pytest.mark.data

SHORT = {"source": "books", "target": "kitchen", "seeds": [0]}


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "cells.jsonl", cells.identity("test"))


def test_a_task_is_what_the_protocol_says():
    found = cells.read_task("electronics", "dvd")
    task = found.task
    assert task.source.shape == (1400, 5000) == task.target.shape
    assert task.validation.shape == (600, 5000)
    assert found.test.shape == (3586, 5000) == (len(found.test_labels), 5000)
    assert np.bincount(np.r_[task.labels, task.validation_labels]).tolist() == [1000, 1000]
    assert len(cells.TASKS) == 12


def test_log_features_are_the_logarithm_of_counts():
    counts, logs = (cells.read_task("books", "dvd", features=features).task.source for features in ("counts", "log"))
    np.testing.assert_allclose(logs.data, np.log1p(counts.data))


def test_labels_of_the_target_have_no_part_in_a_task(monkeypatch):
    """The same reviews with all labels of the target turned around make the same task."""
    found, every = cells.read_task("books", "dvd"), cells._reviews(None)
    turned = every._replace(labels={**every.labels, "dvd": 1 - every.labels["dvd"]})
    monkeypatch.setattr(cells, "_reviews", lambda _: turned)
    again = cells.read_task("books", "dvd")
    assert (again.test_labels == 1 - found.test_labels).all()
    for name in ("source", "target", "validation"):
        assert (getattr(again.task, name) != getattr(found.task, name)).nnz == 0
    for name in ("labels", "validation_labels"):
        np.testing.assert_array_equal(getattr(again.task, name), getattr(found.task, name))


def test_every_method_starts_from_the_same_weights_after_one_epoch():
    task = cells.read_task("books", "dvd").task
    recipe = cells.recipe_of(10)
    (first,), (second,) = (cells.starts([task], recipe, [seed], device="cpu")[0] for seed in (0, 1))
    assert (first[0].weight != second[0].weight).any()
    (again,) = cells.starts([task], recipe, [0], device="cpu")[0]
    assert (first[0].weight == again[0].weight).all()
    right = (outputs(first, task.source).argmax(1) == task.labels).mean()
    assert 0.6 < right < 1.0  # something is learned, not everything


@pytest.mark.parametrize("method", ["nn", "cmd", "cv-cmd", "coral", "dann"])
def test_each_method_is_trained_and_tested(journal, method):
    cell = {**SHORT, "method": method, "weight": 0.0 if method == "nn" else 1.0}
    (result,) = cells.compute_all([cell], journal, folder=None).values()
    assert len(result["accuracy"]) == len(result["epochs"]) == 1
    assert 0.65 < result["accuracy"][0] < 0.9


def test_adaptation_helps_and_neither_process_nor_journal_changes_a_number(journal, tmp_path):
    both = [{**SHORT, "method": "nn"}, {**SHORT, "method": "cmd", "weight": 1.0}]
    alone = cells.compute_all(both, journal, folder=None)
    other = Journal(tmp_path / "other.jsonl", cells.identity("test"))
    spread = cells.compute_all(both, other, folder=None, n_jobs=2)
    assert alone == spread
    plain, aligned = (alone[cell_key(cell)]["accuracy"][0] for cell in both)
    assert aligned > plain + 0.04


def test_a_grid_has_one_network_a_weight(journal):
    cell = {**SHORT, "method": "cmd", "grid": [0.0, 1.0]}
    (result,) = cells.compute_all([cell], journal, folder=None).values()
    single = cells.compute({**SHORT, "method": "cmd", "weight": 1.0})
    assert result["accuracy"][1] == single["accuracy"][0] != result["accuracy"][0]


def test_weights_are_scored_by_reverse_validation(journal):
    cell = {"source": "books", "target": "kitchen", "method": "cmd", "weights": [0.0, 1.0]}
    (result,) = cells.compute_all([cell], journal, folder=None).values()
    assert len(result["scores"]) == 2
    assert all(0.5 < score < 1.0 for score in result["scores"])


def test_transfer_components_stand_before_a_classifier(journal):
    cell = {**SHORT, "seeds": [0, 1], "method": "tca", "components": 50, "mu": 0.1}
    (result,) = cells.compute_all([cell], journal, folder=None).values()
    assert result["accuracy"][0] == result["accuracy"][1] > 0.7


def test_the_automatic_weight_is_the_estimator_as_users_call_it(journal):
    (result,) = cells.compute_all([{**SHORT, "method": "auto"}], journal, folder=None).values()
    assert result["accuracy"][0] > 0.8


def test_tasks_side_by_side_are_the_tasks_one_by_one(journal):
    """The road an accelerator takes, on the CPU: what is done is not done again."""
    settings = ({"method": "nn"}, {"method": "cmd", "weight": 1.0})
    both = [{**SHORT, **setting, "target": target} for setting in settings for target in ("dvd", "kitchen")]
    journal.append(both[0], {"accuracy": [0.25], "epochs": [1]})
    calls = []
    found = cells.compute_all(both, journal, folder=None, device="cpu:0", progress=lambda *call: calls.append(call))
    assert calls == [(1, 4), (2, 4), (4, 4)]
    assert found[cell_key(both[0])]["accuracy"] == [0.25]
    for cell in both[1:]:
        assert abs(found[cell_key(cell)]["accuracy"][0] - cells.compute(cell)["accuracy"][0]) < 0.01
    assert cells.compute_together([], folder=None, device="cpu") == []


def test_distances_carry_their_parameters():
    assert cells.distance_of("nn", {}) is None
    assert cells.distance_of("cmd", {"n_moments": 3}).n_moments == 3
    assert cells.distance_of("mmd", {"beta": 0.5}).beta == 0.5
    assert cells.distance_of("dann", {"hidden": 7}).width == 7
    assert isinstance(cells.distance_of("coral", {}), ma.CORALLoss)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("method", "there"), [("nn", (0.790, 0.743)), ("cmd", (0.809, 0.823)), ("dann", (0.800, 0.746))]
)
def test_a_gpu_gives_the_accuracies_of_the_cpu(journal, method, there):
    """Beside the means over ten seeds that both give."""
    cell = {**SHORT, "method": method, "weight": 0.0 if method == "nn" else 1.0}
    both = [{**cell, "target": name} for name in ("dvd", "kitchen")]
    found = cells.compute_all(both, journal, folder=None, device="cuda")
    for other, expected in zip(both, there, strict=True):
        assert abs(found[cell_key(other)]["accuracy"][0] - expected) < 0.02

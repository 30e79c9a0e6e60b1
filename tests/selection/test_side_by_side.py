"""Reverse validation of several tasks at once is that of each."""

import numpy as np
import pytest

import momentalign as ma
from momentalign.selection import reverse as side_by_side
from momentalign.selection.reverse import Domains, reverse_scores, reverse_scores_of_tasks
from momentalign.training.config import NetworkSpec, TrainingConfig

RECIPE = TrainingConfig(hidden=(5,), max_epochs=20, batch_size=32)
MEMBERS = [NetworkSpec(1, weight, ma.CMDLoss(3)) for weight in (0.0, 1.0, 20.0)]


@pytest.fixture
def tasks():
    random = np.random.default_rng(0)
    labels = np.arange(120) % 2
    made = []
    for shift in (0.0, 1.0):
        rows = (random.normal(size=(120, 3)) + 2.0 * labels[:, None]).astype(np.float32)
        made.append(Domains(rows, labels, (rows + np.float32(shift))[::-1].copy()))
    return made


@pytest.mark.parametrize("options", [{}, {"share": 0.6}])
def test_tasks_together_score_as_tasks_alone(tasks, options):
    together = reverse_scores_of_tasks(tasks, 2, RECIPE, MEMBERS, seed=3, **options)
    assert together.shape == (2, 3)
    for task, scores in zip(tasks, together, strict=True):
        np.testing.assert_array_equal(scores, reverse_scores(*task, 2, RECIPE, MEMBERS, seed=3, **options).scores)


def test_both_ways_are_trained_where_it_was_said(tasks, monkeypatch):
    train, seen = side_by_side.train_tasks, []

    def watched(tasks, config, specs, **options):
        seen.append((options["device"], {task.n_classes for task in tasks}, len(tasks)))
        return train(tasks, config, specs, **options)

    monkeypatch.setattr(side_by_side, "train_tasks", watched)
    reverse_scores_of_tasks(tasks, 2, RECIPE, MEMBERS, seed=3, device="cpu:0")
    assert seen == [("cpu:0", {2}, 2), ("cpu:0", {2}, 6)]

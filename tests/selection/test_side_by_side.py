"""Reverse validation of several tasks at once is that of each."""

import numpy as np

import momentalign as ma
from momentalign.selection.reverse import reverse_scores
from momentalign.selection.side_by_side import Domains, reverse_scores_of_tasks
from momentalign.training.recipe import Member, Recipe


def test_tasks_together_score_as_tasks_alone():
    random = np.random.default_rng(0)
    labels = np.arange(120) % 2
    recipe = Recipe(hidden=(5,), max_epochs=20, batch_size=32)
    members = [Member(1, weight, ma.CMDLoss(3)) for weight in (0.0, 1.0)]
    tasks = []
    for shift in (0.0, 1.0):
        rows = (random.normal(size=(120, 3)) + 2.0 * labels[:, None]).astype(np.float32)
        tasks.append(Domains(rows, labels, (rows + np.float32(shift))[::-1].copy()))
    together = reverse_scores_of_tasks(tasks, 2, recipe, members, seed=3)
    assert together.shape == (2, 2)
    for task, scores in zip(tasks, together, strict=True):
        np.testing.assert_array_equal(scores, reverse_scores(*task, 2, recipe, members, seed=3).scores)

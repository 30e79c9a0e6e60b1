"""Reverse validation against the steps of Ganin et al. (2016) written out one by one."""

import numpy as np
import pytest
from scipy import sparse

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.networks.shallow import outputs
from momentalign.selection.grid import split_labelled, split_unlabelled
from momentalign.selection.reverse import reverse_scores
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig
from momentalign.training.stack import train_stack

RECIPE = TrainingConfig(hidden=(5,), optimizer=Optimizer("adam", 0.1), max_epochs=15, batch_size=60)
MEMBERS = [NetworkSpec(4, weight, CMDLoss(3)) for weight in (0.0, 0.5, 20.0)]


@pytest.fixture(params=["dense", "csr", "compiled"])
def case(request, problem):
    """Source, labels, target and the config, in float32."""
    X, X_target = (rows.astype(np.float32) for rows in (problem.X, problem.X_target))
    if request.param == "csr":
        X, X_target = sparse.csr_matrix(X), sparse.csr_matrix(X_target)
    config = TrainingConfig(**{**vars(RECIPE), "compiled": True}) if request.param == "compiled" else RECIPE
    return X, problem.y, X_target, 2, config


def by_hand(source, labels, target, n_classes, config, spec, seed):
    training, held_out = split_labelled(labels, share=0.8, seed=seed)
    there, not_there = split_unlabelled(target.shape[0], share=0.8, seed=seed)
    task = Task(source[training], labels[training], target[there], n_classes, source[held_out], labels[held_out])
    (forward,) = train_stack(task, config, [spec])
    guess, other_guess = (outputs(forward.layers, target[rows]).argmax(1) for rows in (there, not_there))
    back = Task(target[there], guess, source[training], n_classes, target[not_there], other_guess)
    (reverse,) = train_stack(back, config, [NetworkSpec(99, spec.weight, spec.distance, forward.layers)])
    return (outputs(reverse.layers, source[held_out]).argmax(1) == labels[held_out]).mean()


def test_scores_are_those_of_the_steps_done_one_by_one(case):
    result = reverse_scores(*case, MEMBERS, seed=7)
    assert result.scores.tolist() == [by_hand(*case, spec, 7) for spec in MEMBERS]
    assert len(set(result.scores)) > 1
    assert len(result.forward) == 3


def test_jobs_change_nothing_and_every_score_is_told_in_order(case):
    told = []
    alone = reverse_scores(*case, MEMBERS, seed=7)
    spread = reverse_scores(*case, MEMBERS, seed=7, n_jobs=2, finished=lambda *pair: told.append(pair))
    np.testing.assert_array_equal(alone.scores, spread.scores)
    assert told == list(enumerate(alone.scores.tolist()))


def test_seed_and_share_choose_the_split(case):
    scores = [reverse_scores(*case, MEMBERS, seed=seed, share=share).scores for seed, share in ((7, 0.8), (7, 0.5))]
    for part, rows in zip(scores, (24, 60), strict=True):  # shares of so many held-out rows
        np.testing.assert_allclose(part * rows, np.round(part * rows), atol=1e-9)
    assert scores[0].tolist() != scores[1].tolist()


def test_the_reverse_network_starts_from_the_forward_weights(problem):
    """With a learning rate of nothing the reverse network is the forward one: its score is the forward accuracy."""
    still = TrainingConfig(hidden=(5,), optimizer=Optimizer("sgd", 1e-30), max_epochs=2, keep="last")
    X, X_target = (rows.astype(np.float32) for rows in (problem.X, problem.X_target))
    result = reverse_scores(X, problem.y, X_target, 2, still, MEMBERS, seed=1)
    held_out = split_labelled(problem.y, share=0.8, seed=1)[1]
    accuracies = [
        (outputs(network.layers, X[held_out]).argmax(1) == problem.y[held_out]).mean() for network in result.forward
    ]
    assert result.scores.tolist() == accuracies

"""Reverse validation against the steps of Ganin et al. (2016) one by one; several tasks, several domains."""

import numpy as np
import pytest
from scipy import sparse

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.networks.shallow import outputs
from momentalign.selection import reverse
from momentalign.selection.base import Sample
from momentalign.selection.grid import split_labelled, split_unlabelled
from momentalign.selection.reverse import (
    Domains,
    _turned,
    reverse_scores,
    reverse_scores_of_tasks,
    reverse_task,
    split_domains,
)
from momentalign.selection.search import _hold_out
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
    (returned,) = train_stack(back, config, [NetworkSpec(99, spec.weight, spec.distance, forward.layers)])
    return (outputs(returned.layers, source[held_out]).argmax(1) == labels[held_out]).mean()


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
    train, seen = reverse.train_tasks, []

    def watched(tasks, config, specs, **options):
        seen.append((options["device"], {task.n_classes for task in tasks}, len(tasks)))
        return train(tasks, config, specs, **options)

    monkeypatch.setattr(reverse, "train_tasks", watched)
    reverse_scores_of_tasks(tasks, 2, RECIPE, MEMBERS, seed=3, device="cpu:0")
    assert seen == [("cpu:0", {2}, 2), ("cpu:0", {2}, 6)]


NUMBERS, OTHERS = np.arange(120) % 3, np.arange(90) // 30


@pytest.fixture
def rows(problem):
    """Source, labels and target; the last feature of a row is its position."""
    X, X_target = (rows.astype(np.float32) for rows in (problem.X, problem.X_target))
    X[:, 2], X_target[:, 2] = np.arange(120), np.arange(90)
    return X, problem.y, X_target


def positions(rows):
    return rows[:, 2].astype(int)


def test_both_domains_are_split_with_their_numbers(rows):
    parts = split_domains(*rows, share=0.7, seed=1, source_domains=NUMBERS, target_domains=OTHERS)
    np.testing.assert_array_equal(parts.source_domains, NUMBERS[positions(parts.source)])
    np.testing.assert_array_equal(parts.target_domains, OTHERS[positions(parts.target)])
    np.testing.assert_array_equal(parts.labels_held_out, rows[1][positions(parts.source_held_out)])
    task = parts.forward(2)
    assert task.source_domains is parts.source_domains
    assert task.target_domains is parts.target_domains
    (network,) = train_stack(task, *recipe_and_members([1.0]))
    back = reverse_task(parts, network.layers, 2)
    assert (task.n_classes, back.n_classes) == (2, 2)
    assert back.source_domains is parts.target_domains
    assert back.target_domains is parts.source_domains
    np.testing.assert_array_equal(back.labels, outputs(network.layers, parts.target).argmax(axis=1))
    np.testing.assert_array_equal(back.validation_labels, outputs(network.layers, parts.target_held_out).argmax(axis=1))


def test_a_domain_of_few_rows_is_not_held_out(rows):
    few, others = np.repeat([0, 1], [118, 2]), np.repeat([0, 1], [88, 2])
    for seed in range(5):
        parts = split_domains(*rows, share=0.5, seed=seed, source_domains=few, target_domains=others)
        assert np.bincount(parts.source_domains)[1] == np.bincount(parts.target_domains)[1] == 2
        assert len(parts.source) + len(parts.source_held_out) == 120
        assert len(parts.target) + len(parts.target_held_out) == 90
        task = _hold_out(Sample(*rows, 2, seed, few, others), 0.5)
        assert np.bincount(task.source_domains)[1] == 2
        assert len(task.source) + len(task.validation) == 120


def test_rows_are_held_out_with_their_numbers(rows):
    task = _hold_out(Sample(*rows, 2, 1, NUMBERS, OTHERS), 0.7)
    np.testing.assert_array_equal(task.source_domains, NUMBERS[positions(task.source)])
    np.testing.assert_array_equal(task.target_domains, OTHERS[positions(task.target)])
    np.testing.assert_array_equal(task.validation_labels, rows[1][positions(task.validation)])
    assert sorted(positions(task.target)) == list(range(90))


def recipe_and_members(weights, **options):
    config = TrainingConfig(hidden=(5,), optimizer=Optimizer("adam", 0.1), max_epochs=15, batch_size=60)
    return config, [NetworkSpec(3, weight, CMDLoss(5), **options) for weight in weights]


def by_hand_of_several(rows, spec, config, *, weights):
    """Reverse validation of one spec step by step; on the way back the weights of the domains are `weights`."""
    parts = split_domains(*rows, share=0.8, seed=3, source_domains=NUMBERS, target_domains=OTHERS)
    (forward,) = train_stack(parts.forward(2), config, [spec])
    guesses = [outputs(forward.layers, part).argmax(axis=1) for part in (parts.target, parts.target_held_out)]
    back = Task(
        parts.target, guesses[0], parts.source, 2, parts.target_held_out, guesses[1],
        source_domains=parts.target_domains, target_domains=parts.source_domains,
    )  # fmt: skip
    turned = NetworkSpec(3, spec.weight, spec.distance, forward.layers, between="pairs", domain_weights=weights)
    (network,) = train_stack(back, config, [turned])
    return (outputs(network.layers, parts.source_held_out).argmax(axis=1) == parts.labels_held_out).mean()


@pytest.mark.parametrize(("weights", "back"), [((1.0, 2.0), "equal"), ("equal", "equal"), ("size", "size")])
def test_on_the_way_back_a_network_starts_from_its_weights_and_numbers_are_dropped(weights, back):
    turned = _turned(NetworkSpec(3, 0.5, between="pairs", domain_weights=weights), ["layers"])
    assert turned == NetworkSpec(3, 0.5, initial=["layers"], between="pairs", domain_weights=back)


@pytest.mark.parametrize(("weights", "back"), [((1.0, 2.0, 30.0), "equal"), ("size", "size")])
def test_weights_of_sources_that_are_numbers_do_not_go_the_way_back(problem, weights, back):
    rows = (problem.X.astype(np.float32), problem.y, problem.X_target.astype(np.float32))
    config, specs = recipe_and_members([0.5, 20.0], between="pairs", domain_weights=weights)
    found = reverse_scores(*rows, 2, config, specs, seed=3, source_domains=NUMBERS, target_domains=OTHERS).scores
    assert found.tolist() == [by_hand_of_several(rows, spec, config, weights=back) for spec in specs]

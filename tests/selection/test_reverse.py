"""Reverse validation against the steps of Ganin et al. (2016) one by one; splits, several domains."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.networks.shallow import outputs
from momentalign.selection.reverse import (
    BothWays,
    reverse_scores,
    split_labelled,
    split_unlabelled,
    turned,
)
from momentalign.selection.search import _hold_out
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig
from momentalign.training.stack import train_stack

CONFIG = TrainingConfig(hidden=(5,), optimizer=Optimizer("adam", 0.1), max_epochs=15, batch_size=60)
SPECS = [NetworkSpec(4, weight, CMDLoss(3)) for weight in (0.0, 0.5, 20.0)]
# The numbers of the domains of the rows of `task`.
SOURCES, TARGETS = np.arange(120) % 3, np.arange(90) // 30


@pytest.fixture
def task(problem):
    """Both domains in float32; the last feature of a row is its position."""
    X, X_target = (rows.astype(np.float32) for rows in (problem.X, problem.X_target))
    X[:, 2], X_target[:, 2] = np.linspace(-1, 1, 120), np.linspace(-1, 1, 90)
    return Task(X, problem.y, X_target, 2)


@pytest.fixture(params=["dense", "csr", "compiled", "several"])
def case(request, task):
    """A task, the config, the specs, and the weights of domains on the way back."""
    if request.param == "csr":
        task = replace(task, source=sparse.csr_matrix(task.source), target=sparse.csr_matrix(task.target))
    config = replace(CONFIG, compiled=True) if request.param == "compiled" else CONFIG
    if request.param != "several":
        return task, config, SPECS
    task = replace(task, source_domains=SOURCES, target_domains=TARGETS)
    return task, config, [replace(spec, between="pairs", domain_weights=(1.0, 2.0, 30.0)) for spec in SPECS]


def by_hand(task, config, spec, *, seed, share=0.8):
    """What is learned on the way there, and the score of the way back, step by step."""
    training, held_out = split_labelled(task.labels, share=share, seed=seed)
    there, not_there = split_unlabelled(task.target.shape[0], share=share, seed=seed)
    several = task.source_domains is not None
    sources, targets = (SOURCES[training], TARGETS[there]) if several else (None, None)
    forward = Task(
        task.source[training], task.labels[training], task.target[there], 2, task.source[held_out],
        task.labels[held_out], sources, targets,
    )  # fmt: skip
    (network,) = train_stack(forward, config, [spec])
    guess, other_guess = (outputs(network.layers, task.target[rows]).argmax(1) for rows in (there, not_there))
    back = Task(
        task.target[there], guess, task.source[training], 2, task.target[not_there], other_guess, targets, sources
    )
    returning = NetworkSpec(99, spec.weight, spec.distance, network.layers, spec.between)
    (returned,) = train_stack(back, config, [returning])
    return (outputs(returned.layers, task.source[held_out]).argmax(1) == task.labels[held_out]).mean()


def test_scores_are_those_of_the_steps_done_one_by_one(case):
    """Weights of sources that are numbers do not go the way back; jobs change nothing."""
    task, config, specs = case
    scores = list(reverse_scores(task, config, specs, seed=7, n_jobs=2))
    assert scores == [by_hand(task, config, spec, seed=7) for spec in specs]
    assert list(reverse_scores(task, config, specs, seed=7)) == scores


def test_weights_that_are_a_name_go_the_way_back_too(task):
    spec = replace(SPECS[2], domain_weights="size", between="pairs")
    layers = spec.start(task, CONFIG)
    assert turned(spec, layers) == replace(spec, initial=layers)
    assert turned(replace(spec, domain_weights=(1.0, 2.0)), layers).domain_weights == "equal"


def test_the_reverse_network_starts_from_the_forward_weights(task):
    """With a learning rate of nothing the reverse network is the forward one: its score is the forward accuracy."""
    still = TrainingConfig(hidden=(5,), optimizer=Optimizer("sgd", 1e-30), max_epochs=2, keep="last")
    ways = BothWays.split(task, share=0.8, seed=1)
    accuracies = [ways.accuracy(network.layers) for network in train_stack(ways.forward, still, SPECS)]
    assert list(reverse_scores(task, still, SPECS, seed=1)) == accuracies


def test_domains_keep_their_numbers_whichever_part_a_row_is_in(task):
    task = replace(task, source_domains=SOURCES, target_domains=TARGETS)
    there, target_held_out = BothWays.split(task, share=0.7, seed=1)
    kept = {row.tobytes(): number for row, number in zip(task.source, SOURCES, strict=True)}
    for part in (there, _hold_out(task, 0.7, 1)):
        assert [kept[row.tobytes()] for row in part.source] == part.source_domains.tolist()
        assert [kept[row.tobytes()] for row in part.validation] == part.validation_domains.tolist()
    others = {row.tobytes(): number for row, number in zip(task.target, TARGETS, strict=True)}
    assert [others[row.tobytes()] for row in there.target] == there.target_domains.tolist()
    assert len(there.target) + len(target_held_out) == 90
    whole = _hold_out(task, 0.7, 1).target
    assert sorted(row.tobytes() for row in whole) == sorted(row.tobytes() for row in task.target)


def test_a_domain_of_few_rows_is_not_held_out(task):
    few = replace(task, source_domains=np.repeat([0, 1], [118, 2]), target_domains=np.repeat([0, 1], [88, 2]))
    for seed in range(5):
        there, target_held_out = BothWays.split(few, share=0.5, seed=seed)
        assert np.bincount(there.source_domains)[1] == np.bincount(there.target_domains)[1] == 2
        assert len(there.source) + len(there.validation) == 120
        assert len(there.target) + len(target_held_out) == 90
        assert np.bincount(_hold_out(few, 0.5, seed).source_domains)[1] == 2


@pytest.mark.parametrize("share", [0.5, 0.7, 0.8, 0.95])
def test_classes_keep_their_proportion_and_no_row_is_lost(share):
    labels = np.repeat([0, 1, 2], [100, 60, 40])
    training, held_out = split_labelled(labels, share=share, seed=3)
    assert sorted([*training, *held_out]) == list(range(200))
    np.testing.assert_allclose(np.bincount(labels[training]), share * np.array([100, 60, 40]), atol=1)
    assert len(training) == round(share * 200)


def test_splits_are_the_same_in_every_version_and_seeds_as_large_as_one_likes():
    """A search goes on with the splits it was begun with."""
    assert [part.tolist() for part in split_labelled(np.arange(6) % 2, share=0.6, seed=6)] == [[5, 0, 3, 2], [1, 4]]
    assert [part.tolist() for part in split_unlabelled(5, share=0.6, seed=6)] == [[1, 2, 3], [4, 0]]
    labels = np.arange(50) % 2
    for seed in (2**32 + 6, 2**70 + 6):
        for part, small in zip(*(split_labelled(labels, share=0.8, seed=one) for one in (seed, 6)), strict=True):
            np.testing.assert_array_equal(part, small)
        assert sorted(np.concatenate(split_unlabelled(50, share=0.8, seed=seed))) == list(range(50))


def test_every_class_is_in_both_parts_however_few_rows_there_are():
    labels = np.array([0, 0, 1, 1, 2, 2])
    training, held_out = split_labelled(labels, share=0.9, seed=0)
    assert sorted(labels[training]) == sorted(labels[held_out]) == [0, 1, 2]
    for rows, share, expected in [(10, 0.8, 8), (2, 0.01, 1), (2, 0.99, 1), (3, 0.99, 2)]:
        there, not_there = split_unlabelled(rows, share=share, seed=0)
        assert len(there) == expected
        assert sorted([*there, *not_there]) == list(range(rows))


@pytest.mark.parametrize(
    ("labels", "share", "message"),
    [
        ([0, 0, 0, 1], 0.8, "1 of the rarest, too few to hold out some of each class; give at"),
        ([0, 1], 0.8, "1 of the rarest, too few"),
        ([0, 0, 1, 1], 0.1, "y has 4 labels of 2 classes, 2 of the rarest, too few"),
        *(([0, 0, 1, 1], share, "share must be a finite number above 0") for share in (0, 1, -0.2, 1.5, np.nan)),
        *(([0, 0, 1, 1], share, "share must be a number") for share in ("0.8", None, True, [0.8])),
    ],
)
def test_what_cannot_be_split_is_refused(labels, share, message):
    with pytest.raises((InvalidInputError, InvalidTypeError), match=message):
        split_labelled(np.array(labels), share=share, seed=0)

"""Grids of parameters: points, the stacks they train as, their table, and the splits of rows."""

import json

import numpy as np
import pytest

import momentalign as ma
from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.selection import grid as grids
from momentalign.selection.grid import read_points, split_labelled, split_unlabelled
from momentalign.training.config import NetworkSpec, TrainingConfig

GRID = {
    "weight": [0.5],
    "hidden": [(5,), (3,)],
    "optimizer": ["adam", "adagrad"],
    "discrepancy": [
        "cmd",
        ma.MMDLoss(beta=0.5),
        lambda source, target: (source.mean(0) - target.mean(0)).square().sum(),
    ],
}


def as_float32(problem):
    return problem.X.astype(np.float32), problem.y, problem.X_target.astype(np.float32), 2


def test_points_of_one_score_share_the_better_rank():
    table = grids.results_table([{}] * 4, [0, 0, 1, 0])
    assert table["rank_test_score"].tolist() == [2, 2, 1, 2]
    assert table["mean_test_score"].dtype == np.float64


def test_points_of_one_recipe_train_as_one_stack(quick, problem):
    points = grids.read_points(quick(), GRID, seed=0)
    X, y, X_target, classes = as_float32(problem)
    found = list(grids.stacks(points, grids.Task(X, y, X_target, classes)))
    # Two hidden layers, two optimizers; the function, which no compiled loop knows, apart from the two distances.
    assert sorted(len(stack) for stack in found) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert all(len({point.config for point in stack}) == 1 for stack in found)
    assert sorted(point.index for stack in found for point in stack) == list(range(12))


def test_stacks_are_not_too_large_and_none_is_left_out(quick, problem, monkeypatch):
    monkeypatch.setattr(grids, "STACK", 3)
    points = grids.read_points(quick(), {"weight": np.arange(7.0)}, seed=0)
    X, y, X_target, classes = as_float32(problem)
    found = grids.stacks(points, grids.Task(X, y, X_target, classes))
    assert [[point.index for point in stack] for stack in found] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_point_has_the_network_of_its_parameters(quick):
    model = quick(hidden=(7, 4), discrepancy="dann", between="pairs", domain_weights=[1, 2], device="cpu:0")
    (point,) = grids.read_points(model, {"weight": [3]}, seed=6)
    distance = point.spec.distance
    assert point.spec == NetworkSpec(6, 3.0, distance, between="pairs", domain_weights=(1.0, 2.0))
    assert repr(distance) == repr(ma.AdversarialLoss(4))
    assert (point.model.random_state, point.parameters, point.device) == (6, {"weight": 3}, "cpu:0")
    assert point.config == model._config()


def test_the_default_recipe_is_taken_as_it_is(quick):
    (point,) = grids.read_points(ma.MANNClassifier(), {"weight": [1.0]}, seed=0)
    assert point.config == TrainingConfig()
    assert json.loads(json.dumps(point.cell()))["hidden"] == [50]


def test_points_are_named_by_plain_values(quick):
    loss = ma.MMDLoss(beta=0.5)
    model = quick(weight=np.float32(0.5), domain_weights=np.array([1, 2]), discrepancy=loss)
    (point,) = read_points(model, {"n_moments": [np.int64(3)]}, seed=0)
    cell = json.loads(json.dumps(point.cell()))
    assert (cell["weight"], cell["n_moments"], cell["domain_weights"]) == (0.5, 3, [1.0, 2.0])
    assert cell["discrepancy"] == repr(loss)


@pytest.mark.parametrize("share", [0.5, 0.7, 0.8, 0.95])
def test_classes_keep_their_proportion_and_no_row_is_lost(share):
    labels = np.repeat([0, 1, 2], [100, 60, 40])
    training, held_out = split_labelled(labels, share=share, seed=3)
    assert sorted([*training, *held_out]) == list(range(200))
    np.testing.assert_allclose(np.bincount(labels[training]), share * np.array([100, 60, 40]), atol=1)
    assert len(training) == round(share * 200)


def test_rows_are_shuffled_by_the_seed_alone():
    labels = np.arange(50) % 2
    first, again, other = (split_labelled(labels, share=0.8, seed=seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.tolist() != other.tolist()
    assert first.tolist() != sorted(first)
    assert split_unlabelled(50, share=0.8, seed=0)[0].tolist() != split_unlabelled(50, share=0.8, seed=1)[0].tolist()


def test_splits_are_the_same_in_every_version():
    """A search goes on with the splits it was begun with."""
    assert [part.tolist() for part in split_labelled(np.arange(6) % 2, share=0.6, seed=6)] == [[5, 0, 3, 2], [1, 4]]
    assert [part.tolist() for part in split_unlabelled(5, share=0.6, seed=6)] == [[1, 2, 3], [4, 0]]


@pytest.mark.parametrize("seed", [2**32 - 1, 2**32 + 3, 2**70 + 3])
def test_seeds_may_be_as_large_as_one_likes(seed):
    labels = np.arange(50) % 2
    small = split_labelled(labels, share=0.8, seed=seed % 2**32)[0]
    np.testing.assert_array_equal(split_labelled(labels, share=0.8, seed=seed)[0], small)
    assert sorted(np.concatenate(split_unlabelled(50, share=0.8, seed=seed))) == list(range(50))


def test_every_class_is_in_both_parts_however_few_rows_there_are():
    labels = np.array([0, 0, 1, 1, 2, 2])
    training, held_out = split_labelled(labels, share=0.9, seed=0)
    assert sorted(labels[training]) == sorted(labels[held_out]) == [0, 1, 2]


@pytest.mark.parametrize("labels", [[0, 0, 0, 1], [0, 1]])
def test_too_few_rows_of_a_class_are_said(labels):
    with pytest.raises(InvalidInputError, match="1 of the rarest, too few to hold out some of each class; give at"):
        split_labelled(np.array(labels), share=0.8, seed=0)


def test_a_share_that_leaves_no_row_of_a_class_to_train_on_is_said():
    with pytest.raises(InvalidInputError, match="y has 4 labels of 2 classes, 2 of the rarest, too few"):
        split_labelled(np.array([0, 0, 1, 1]), share=0.1, seed=0)


def test_the_split_of_unlabelled_rows_is_whole_and_has_two_parts():
    for rows, share, expected in [(10, 0.8, 8), (2, 0.01, 1), (2, 0.99, 1), (3, 0.99, 2)]:
        training, held_out = split_unlabelled(rows, share=share, seed=0)
        assert len(training) == expected
        assert sorted([*training, *held_out]) == list(range(rows))


@pytest.mark.parametrize("share", [0, 1, 0.0, 1.0, -0.2, 1.5, np.nan, np.inf])
def test_a_share_is_between_nothing_and_everything(share):
    with pytest.raises(InvalidInputError, match=r"share must be a finite number above 0 and below 1, got"):
        split_unlabelled(10, share=share, seed=0)


@pytest.mark.parametrize("share", ["0.8", None, True, [0.8]])
def test_a_share_is_a_number(share):
    with pytest.raises(InvalidTypeError, match="share must be a number, got"):
        split_unlabelled(10, share=share, seed=0)

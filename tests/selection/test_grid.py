"""Grids of parameters: points, the stacks they train as, and their table."""

import json

import numpy as np

import momentalign as ma
from momentalign.selection import grid as grids
from momentalign.selection.grid import read_points
from momentalign.training.config import NetworkSpec, Optimizer, TrainingConfig

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
    assert point.config == model._settings().config


def test_the_default_recipe_is_taken_as_it_is(quick):
    (point,) = grids.read_points(ma.MANNClassifier(), {"weight": [1.0]}, seed=0)
    assert point.config == TrainingConfig(optimizer=Optimizer(by_rows=True))
    assert json.loads(json.dumps(point.cell()))["hidden"] == [50]


def test_points_are_named_by_plain_values(quick):
    loss = ma.MMDLoss(beta=0.5)
    model = quick(weight=np.float32(0.5), domain_weights=np.array([1, 2]), discrepancy=loss)
    (point,) = read_points(model, {"n_moments": [np.int64(3)]}, seed=0)
    cell = json.loads(json.dumps(point.cell()))
    assert (cell["weight"], cell["n_moments"], cell["domain_weights"]) == (0.5, 3, [1.0, 2.0])
    assert cell["discrepancy"] == repr(loss)

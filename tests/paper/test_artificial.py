"""The artificial example: protocol, figures, and no look at target labels."""

import json
from dataclasses import replace

import numpy as np
import pytest

from momentalign.discrepancies.central_moment import cmd
from momentalign.networks.shallow import Layer, activations, outputs
from momentalign.paper.artificial import OWN, PAPER, label_free_score, run, train
from momentalign.paper.problems import load_artificial, make_artificial

SHORT = replace(PAPER, plain_epochs=200, aligned_epochs=100)


@pytest.fixture(scope="module")
def problem():
    return make_artificial(0)


@pytest.fixture(scope="module")
def result(problem):
    return run(problem, SHORT, seeds=range(3), data="generated", data_seed=0)


def test_protocol_is_the_papers():
    plain, aligned = PAPER.plain_config(), PAPER.aligned_config()
    assert (plain.max_epochs, aligned.max_epochs) == (15_000, 5_000)
    for config in (plain, aligned):
        assert config.hidden == (15,)
        assert (config.optimizer.name, config.optimizer.rate) == ("adadelta", 1.0)
        assert (config.batch_size, config.patience, config.keep) == (None, None, "last")
    assert (PAPER.weight, PAPER.n_moments) == (1.0, 5)


@pytest.mark.parametrize("setting", [PAPER, OWN, replace(PAPER, plain_epochs=7, aligned_epochs=3)])
def test_the_start_of_the_mann_is_among_the_kept_weights(setting):
    assert setting.plain_epochs % setting.plain_config().snapshot_every == 0


def test_mann_starts_from_the_plain_weights(problem):
    (pair,) = train(problem, replace(SHORT, aligned_epochs=1, weight=0.0, aligned_optimizer="sgd"), [4])
    start = pair.nn.snapshots[200][0].weight
    moved = np.abs(pair.mann.layers[0].weight - start).max()
    assert 0 < moved < 0.01


def test_target_labels_are_not_looked_at(problem):
    honest = train(problem, SHORT, [1])[0]
    poisoned = train(problem._replace(target_labels=None), SHORT, [1])[0]
    for one, other in zip(honest.mann.layers, poisoned.mann.layers, strict=True):
        np.testing.assert_array_equal(one.weight, other.weight)


def test_alignment_lowers_the_distance_and_is_what_the_result_says(problem, result):
    shown = result["shown"]
    for name in ("nn", "mann"):
        weights = {key: np.array(values) for key, values in shown[name]["weights"].items()}
        layers = [Layer(weights["W"], weights["b"]), Layer(weights["V"], weights["c"])]
        accuracy = (outputs(layers, problem.target).argmax(1) == problem.target_labels).mean()
        assert accuracy == pytest.approx(shown[name]["accuracy_target"], abs=2 / 639)
        distance = cmd(activations(layers, problem.source), activations(layers, problem.target))
        assert distance == pytest.approx(sum(shown[name]["cmd_terms"]), rel=1e-3)
    for figures in result["runs"]:
        assert figures["mann_cmd"] < figures["nn_cmd"]


def test_result_is_plain_json_with_medians_and_the_median_run(result):
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    accuracies = [figures["mann_accuracy"] for figures in result["runs"]]
    assert result["median"]["mann_accuracy"] == pytest.approx(np.median(accuracies))
    shown = next(figures for figures in result["runs"] if figures["seed"] == result["shown"]["seed"])
    assert shown["mann_accuracy"] == pytest.approx(np.median(accuracies))
    history = result["shown"]["history"]
    assert history["nn"]["epoch"][-1] == 300
    assert (history["mann"]["epoch"][0], history["mann"]["epoch"][-1]) == (200, 300)
    assert history["mann"]["target_accuracy"][-1] == result["shown"]["mann"]["accuracy_target"]
    assert all(len(values) <= 301 for values in history["nn"].values())


def test_label_free_score_of_perfect_and_of_constant_predictions(problem):
    constant = [Layer(np.zeros((2, 1)), np.zeros(1)), Layer(np.zeros((1, 3)), np.array([1.0, 0.0, 0.0]))]
    assert label_free_score(problem, constant) == pytest.approx(1 - 200 / 639)
    poisoned = problem._replace(target_labels=None)
    assert label_free_score(poisoned, constant) == label_free_score(problem, constant)


@pytest.mark.data
def test_the_authors_points_are_learned_as_in_the_paper():
    problem = load_artificial()
    papers, own = (
        run(problem, setting, seeds=range(seeds), data="authors") for setting, seeds in ((PAPER, 4), (OWN, 2))
    )
    assert 0.85 < papers["median"]["nn_accuracy"] < 0.91
    assert papers["median"]["mann_accuracy"] > papers["median"]["nn_accuracy"] + 0.03
    assert own["median"]["mann_accuracy"] > 0.97
    scores = [np.mean([figures["mann_score"] for figures in result["runs"]]) for result in (papers, own)]
    assert scores[1] < scores[0]

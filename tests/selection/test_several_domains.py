"""Splits keep the number of the domain of each row, and searches hand them on."""

import numpy as np
import pytest

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.discrepancies.mmd import MMDLoss
from momentalign.networks.shallow import outputs
from momentalign.selection import reverse
from momentalign.selection.base import Sample
from momentalign.selection.reverse import _turned, reverse_scores, reverse_task, split_domains
from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch, _hold_out
from momentalign.training.config import NetworkSpec, Optimizer, Task, TrainingConfig
from momentalign.training.stack import train_stack

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


def by_hand(rows, spec, config, *, weights):
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
    assert found.tolist() == [by_hand(rows, spec, config, weights=back) for spec in specs]


@pytest.fixture
def mixed(problem):
    """All rows, their labels and the ids of their domains."""
    return (
        np.concatenate([problem.X, problem.X_target]),
        np.concatenate([problem.y, np.full(90, -1)]),
        np.concatenate([NUMBERS + 1, -1 - OTHERS]),
    )


@pytest.mark.parametrize(
    ("ids", "sizes"),
    [
        (np.sign, [2, 1, 1]),
        (np.copy, [1, 1, 1, 1]),
        (lambda domain: np.maximum(domain, -1), [1, 1, 1, 1]),  # several sources, one target
        (lambda domain: np.minimum(domain, 1), [1, 1, 1, 1]),
    ],
)
def test_a_distance_that_loops_know_for_two_domains_only_trains_apart(quick, mixed, monkeypatch, ids, sizes):
    """What a network becomes does not depend on which others train beside it."""
    train, found = reverse.train_stack, []

    def watched(task, config, specs, **options):
        found.append(len(specs))
        return train(task, config, specs, **options)

    monkeypatch.setattr(reverse, "train_stack", watched)
    X, y, domain = mixed
    grid = {"discrepancy": ["cmd", MMDLoss(beta=0.5)]}
    ReverseValidationSearch(quick(max_epochs=2), grid, random_state=3, refit=False).fit(X, y, sample_domain=ids(domain))
    assert found == sizes


def test_a_search_hands_them_on(quick, problem, mixed):
    rows = (problem.X.astype(np.float32), problem.y, problem.X_target.astype(np.float32))
    config, specs = recipe_and_members([0.5, 20.0], between="pairs")
    expected = reverse_scores(*rows, 2, config, specs, seed=3, source_domains=NUMBERS, target_domains=OTHERS).scores
    search = ReverseValidationSearch(quick(between="pairs"), {"weight": [0.5, 20.0]}, random_state=3, refit=False)
    X, y, domain = mixed
    search.fit(X, y, sample_domain=domain)
    assert search.cv_results_["mean_test_score"].tolist() == expected.tolist()


@pytest.mark.parametrize("kind", [ReverseValidationSearch, LabelFreeSearch])
def test_the_best_model_is_fitted_to_all_domains(quick, mixed, kind):
    X, y, domain = mixed
    search = kind(quick(max_epochs=2), {"weight": [0.5]}, random_state=3).fit(X, y, sample_domain=domain)
    assert list(search.best_estimator_.moments_) == [1, 2, 3, -1, -2, -3]

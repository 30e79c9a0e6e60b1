"""LabelFreeSearch: every rule is the score it names, on the networks of the grid."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from momentalign.discrepancies.central_moment import CMDLoss
from momentalign.estimators.combination import aggregated_probabilities, combine
from momentalign.evaluation.scores import (
    balancing_choice,
    cross_entropies,
    deep_embedded_score,
    importance_weighted_score,
    importance_weights,
    logistic_ratio,
    mutual_information,
    negative_entropy,
    neighbourhood_density,
    nuclear_norm,
)
from momentalign.networks.shallow import activations, outputs, probabilities
from momentalign.selection.reverse import split_labelled
from momentalign.selection.rules import _total_variation, balanced_weight, density_ratio
from momentalign.selection.search import LabelFreeSearch
from momentalign.training.config import NetworkSpec, Task
from momentalign.training.stack import train_stack

WEIGHTS = [20.0, 0.0, 0.5]


@pytest.fixture
def fitted(quick, problem):
    def fit(**options):
        search = LabelFreeSearch(quick(), {"weight": WEIGHTS}, **{"random_state": 3, **options})
        return search.fit(problem.X, problem.y, problem.X_target)

    return fit


@pytest.fixture
def by_hand(quick, problem):
    """The task of the search and its networks, trained one by one."""
    X, X_target = (rows.astype(np.float32) for rows in (problem.X, problem.X_target))
    training, held_out = split_labelled(problem.y, share=0.8, seed=3)
    order = np.random.default_rng([3, 1]).permutation(len(X_target))
    task = Task(X[training], problem.y[training], X_target[order], 2, X[held_out], problem.y[held_out])
    networks = [
        train_stack(task, quick()._settings().config, [NetworkSpec(3, weight, CMDLoss(5))])[0] for weight in WEIGHTS
    ]
    return task, [network.layers for network in networks]


def ratio_of(task, layers):
    source = activations(layers, np.concatenate([task.source, task.validation]))
    return logistic_ratio(source=source, target=activations(layers, task.target))[len(task.source) :]


def losses_of(task, layers):
    return cross_entropies(probabilities=probabilities(layers, task.validation), labels=task.validation_labels)


RULES = {
    "importance-weighted": lambda task, layers: importance_weighted_score(
        losses=losses_of(task, layers), weights=importance_weights(ratio=ratio_of(task, layers))
    ),
    "deep-embedded": lambda task, layers: deep_embedded_score(
        losses=losses_of(task, layers), ratio=ratio_of(task, layers)
    ),
    "neighbourhood-density": lambda task, layers: neighbourhood_density(
        probabilities=probabilities(layers, task.target)
    ),
    "nuclear-norm": lambda task, layers: nuclear_norm(probabilities=probabilities(layers, task.target)),
    "entropy": lambda task, layers: negative_entropy(probabilities=probabilities(layers, task.target)),
    "mutual-information": lambda task, layers: mutual_information(probabilities=probabilities(layers, task.target)),
    "source": lambda task, layers: (
        outputs(layers, task.validation).argmax(axis=1) == task.validation_labels
    ).mean(),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_scores_are_those_of_the_networks_one_by_one(fitted, by_hand, rule):
    task, networks = by_hand
    expected = [RULES[rule](task, layers) for layers in networks]
    found = fitted(rule=rule, refit=False)
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], expected, rtol=1e-9)
    assert found.best_index_ == int(np.argmax(expected))
    assert found.best_params_ == {"weight": WEIGHTS[found.best_index_]}
    spread = fitted(rule=rule, refit=False, n_jobs=2)
    assert spread.cv_results_["mean_test_score"].tolist() == found.cv_results_["mean_test_score"].tolist()


def test_rules_differ_in_what_they_say(fitted):
    found = {rule: tuple(fitted(rule=rule, refit=False).cv_results_["mean_test_score"]) for rule in RULES}
    assert len(set(found.values())) == len(RULES)


def test_balancing_takes_networks_by_growing_weight(fitted, by_hand):
    task, networks = by_hand
    growing = [networks[index] for index in (1, 2, 0)]
    distances = []
    for layers in growing:
        source, target = activations(layers, task.source), activations(layers, task.target)
        wrong = (logistic_ratio(source=source, target=target) > 1).mean()
        wrong += (logistic_ratio(source=target, target=source) > 1).mean()
        distances.append(max(0.0, 1.0 - wrong))
    predictions = np.stack([probabilities(layers, task.target) for layers in growing])
    choice = balancing_choice(predictions=predictions, distances=distances)
    np.testing.assert_allclose([_total_variation(layers, task) for layers in growing], distances, rtol=1e-9)
    assert len({0.0, *distances}) > 2
    found = fitted(rule="balancing", refit=False)
    assert found.best_params_ == {"weight": [0.0, 0.5, 20.0][choice]}
    assert sorted(found.cv_results_["mean_test_score"]) == [0.0, 0.0, 1.0]


def test_balancing_takes_the_first_where_the_domains_are_one(by_hand):
    task, networks = by_hand
    one = Task(task.source, task.labels, task.source, 2, task.validation, task.validation_labels)
    assert balanced_weight(networks, one) == 0
    # A network that does not look at the feature that is moved cannot tell the domains apart either.
    first, *rest = networks[1]
    blind = [first._replace(weight=first.weight * np.array([[0.0], [1.0], [1.0]])), *rest]
    assert balanced_weight([blind, networks[1]], task) == 0
    assert balanced_weight([networks[1], blind], task) == 1


@pytest.mark.parametrize(("rows", "others"), [(3, 90), (120, 3), (3, 2)])
def test_domains_with_fewer_rows_than_folds_are_compared_too(by_hand, rows, others):
    task, networks = by_hand
    few = Task(task.source[:rows], task.labels[:rows], task.target[:others], 2, task.validation[:1], np.zeros(1, int))
    source, target = activations(networks[1], few.source), activations(networks[1], few.target)
    folds = min(5, len(source), len(target))
    wrong = (logistic_ratio(source=source, target=target, folds=folds) > 1).mean()
    wrong += (logistic_ratio(source=target, target=source, folds=folds) > 1).mean()
    assert _total_variation(networks[1], few) == pytest.approx(max(0.0, 1.0 - wrong))
    source = np.concatenate([source, activations(networks[1], few.validation)])
    ratio = logistic_ratio(source=source, target=target, folds=min(5, len(source), len(target)))
    np.testing.assert_allclose(density_ratio(networks[1], few), ratio[-1:], rtol=1e-9)


def test_the_best_model_is_fitted_to_all_data(fitted, quick, problem):
    found = fitted()
    model = quick(**found.best_params_, random_state=3).fit(*problem[:3])
    np.testing.assert_array_equal(found.predict_proba(problem.X_target), model.predict_proba(problem.X_target))
    assert not hasattr(fitted(refit=False), "predict")


def test_aggregation_is_the_combination_of_the_estimator(fitted, by_hand, problem):
    task, networks = by_hand
    members = combine([NetworkSpec(3, weight, CMDLoss(5)) for weight in WEIGHTS], networks, task)
    assert members.indices == [0, 2]
    found = fitted(aggregate=True, refit=False)
    np.testing.assert_allclose(found.coefficients_, members.coefficients, rtol=1e-9)
    predictions = np.stack([probabilities(networks[index], problem.X_target) for index in members.indices])
    expected = aggregated_probabilities(coefficients=members.coefficients, predictions=predictions)
    np.testing.assert_allclose(found.predict_proba(problem.X_target), expected, atol=1e-6)
    np.testing.assert_array_equal(found.predict(problem.X_target), found.classes_[expected.argmax(axis=1)])
    largest = networks[members.indices[members.largest]]
    np.testing.assert_allclose(found.transform(problem.X), activations(largest, problem.X), atol=1e-6)
    model = found.best_estimator_
    assert (model.n_features_in_, model.classes_.tolist()) == (3, [0, 1])
    assert model.n_epochs_ == len(model.history_["source_loss"])
    np.testing.assert_array_equal(model.coefs_[0], largest[0].weight.astype(np.float32))


def test_aggregation_and_refit_train_the_networks_again_on_all_rows(fitted):
    first, again = (fitted(aggregate=True, refit=refit) for refit in (False, True))
    assert first.coefficients_.tolist() == again.coefficients_.tolist()
    assert (first.best_estimator_.coefs_[0] != again.best_estimator_.coefs_[0]).any()


def test_aggregation_keeps_a_plain_network_where_that_is_safer(quick, problem):
    """The second class is rare in the source and frequent in the target; the grid has no plain network."""
    X, y = problem.X, problem.y
    few = (y == 0) | (np.arange(len(y)) < 20)
    X_target = np.concatenate([X[y == 1] + 0.1, X[~few] - 0.1, X[y == 0][:6]])
    search = LabelFreeSearch(quick(max_epochs=60), {"weight": [5.0, 20.0]}, aggregate=True, random_state=0)
    search.fit(X[few], y[few], X_target)
    plain = quick(discrepancy=None, max_epochs=60, random_state=0).fit(X[few], y[few])
    assert (len(search.networks_), search.coefficients_.tolist()) == (1, [1.0])
    assert (search.predict(X_target) == plain.predict(X_target)).mean() > 0.95


def test_aggregation_over_networks_of_different_widths(quick, problem):
    grid = {"weight": [0.5, 2.0], "hidden": [(3,), (5,)]}
    frame, target = (pd.DataFrame(rows, columns=list("abc")) for rows in (problem.X, problem.X_target))
    found = LabelFreeSearch(quick(), grid, aggregate=True, rule="source", random_state=0)
    found.fit(frame, problem.y, target)
    assert [network.layers[0].weight.shape[1] for network in found.networks_] == [3, 3, 5, 5]
    assert found.best_estimator_.feature_names_in_.tolist() == list("abc")
    assert found.score(frame, problem.y) > 0.8


@pytest.mark.parametrize("rule", ["importance-weighted", "mutual-information", "balancing"])
def test_sparse_rows_stay_sparse_and_give_the_same(fitted, quick, problem, rule):
    found = LabelFreeSearch(quick(), {"weight": WEIGHTS}, rule=rule, random_state=3, refit=False)
    found.fit(sparse.csr_matrix(problem.X), problem.y, sparse.csr_matrix(problem.X_target))
    dense = fitted(rule=rule, refit=False)
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], dense.cv_results_["mean_test_score"], rtol=1e-4)

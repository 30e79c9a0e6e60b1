"""Several networks as one: coefficients, the guard of the plain network, and weight="auto"."""

import re
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.datasets import load_breast_cancer

import momentalign as ma
from momentalign.estimators.combination import (
    WEIGHTS,
    aggregated_probabilities,
    aggregation_coefficients,
    combine,
    train_again,
    train_combination,
    train_each,
    weight_grid,
)
from momentalign.estimators.domains import joined_task
from momentalign.estimators.mann import in_chunks
from momentalign.evaluation.scores import nuclear_norm
from momentalign.networks.shallow import Layer, probabilities
from momentalign.training.config import NetworkSpec, Task, TrainingConfig
from momentalign.training.stack import train_stack


def two_columns(share):
    return np.stack([share, 1.0 - share], axis=-1)


@pytest.fixture
def two_domains(rng):
    """Source N(0, 1), target N(1, 1), labels of one rule in both; models that are right in different places."""

    def draw(rows=4000):
        source, target = rng.normal(0.0, 1.0, rows), rng.normal(1.0, 1.0, rows)

        def chance(x):
            return 0.5 + 0.4 * np.sin(2 * x)

        slopes = (-0.8, 0.3, 2.0)

        def stack(x):
            return np.stack([two_columns(np.clip(0.5 + slope * np.sin(x + slope), 0, 1)) for slope in slopes])

        labels = (rng.random(rows) >= chance(source)).astype(int)
        return stack(target), stack(source), labels, np.exp(source - 0.5), two_columns(chance(target))

    return draw


def squared_error(coefficients, predictions, truth):
    return ((np.tensordot(coefficients, predictions, axes=1) - truth) ** 2).sum(axis=1).mean()


def test_by_hand():
    # G = [[1, 1/2], [1/2, 1/2]], g = (3/4, 1/2): c = (1/2, 1/2).
    stack, labels = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]), np.array([0, 0])
    weights = np.array([1.5, 0.5])
    coefficients = aggregation_coefficients(target=stack, source=stack, labels=labels, weights=weights, rcond=0.0)
    assert coefficients == pytest.approx([0.5, 0.5])
    # Where no row counts the models are averaged.
    averaged = aggregation_coefficients(target=stack, source=stack, labels=labels, weights=0.0 * weights)
    assert averaged.tolist() == [0.5, 0.5]


def test_it_finds_the_combination_the_labels_were_made_of(rng):
    """The truth is 0.7 f_1 + 0.3 f_2 on both domains; its own probabilities draw the labels."""
    rows = 200_000
    source, target = rng.random(rows), rng.random(rows) ** 2
    weights = 0.5 / np.sqrt(np.maximum(source, 1e-4))
    stacks = [np.stack([two_columns(x), two_columns(1.0 - x**2)]) for x in (target, source)]
    labels = (rng.random(rows) >= (0.7 * stacks[1][0] + 0.3 * stacks[1][1])[:, 0]).astype(int)
    coefficients = aggregation_coefficients(
        target=stacks[0], source=stacks[1], labels=labels, weights=weights, rcond=1e-6
    )
    assert coefficients == pytest.approx([0.7, 0.3], abs=0.03)


def test_it_is_close_to_the_best_combination_and_better_than_each_model_by_the_weights(two_domains):
    target, source, labels, weights, truth = two_domains()
    reached, unweighted = (
        squared_error(aggregation_coefficients(target=target, source=source, labels=labels, weights=w), target, truth)
        for w in (weights, np.ones(len(labels)))
    )
    least = squared_error(np.linalg.lstsq(target.reshape(3, -1).T, truth.ravel(), rcond=None)[0], target, truth)
    alone = min(squared_error(one, target, truth) for one in np.eye(3))
    assert reached < least + 0.1 * (alone - least)
    assert reached < unweighted


def test_almost_equal_models_share_their_coefficient(two_domains):
    target, source, labels, weights, _ = two_domains()
    single = aggregation_coefficients(target=target[:1], source=source[:1], labels=labels, weights=weights)
    twins = [np.stack([stack[0], (1 - 1e-9) * stack[0] + 1e-9 * stack[1]]) for stack in (target, source)]
    shared = aggregation_coefficients(target=twins[0], source=twins[1], labels=labels, weights=weights)
    assert shared == pytest.approx([single[0] / 2, single[0] / 2], rel=1e-6)
    common = aggregation_coefficients(target=target, source=source, labels=labels, weights=weights, rcond=0.9)
    leading = np.linalg.eigh(np.einsum("irk,jrk->ij", target, target))[1][:, -1]
    assert abs(common @ leading) == pytest.approx(np.linalg.norm(common))
    assert common.min() > 0.0


def test_predictions_are_combined_row_by_row():
    def combined(coefficients, *rows):
        found = aggregated_probabilities(coefficients=np.array(coefficients), predictions=np.array(rows))
        return found.tolist()

    stack = [[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [0.0, 1.0]]
    assert combined([2.0, -1.0], *stack) == [[1.0, 0.0], [1.0, 0.0]]
    assert combined([1.0, 0.5], *stack)[1] == pytest.approx([1 / 3, 2 / 3])
    assert combined([-1.0], [[0.25, 0.75]]) == [[0.5, 0.5]]


@pytest.fixture
def adapted(quick, problem):
    """An automatic model whose guard lets the combination pass."""
    model = quick(weight="auto", max_epochs=30, patience=5).fit(problem.X, problem.y, problem.X_target)
    assert len(model.networks_) == len(WEIGHTS)
    return model


def test_predictions_are_those_of_the_combination_again_and_again(adapted, quick, problem, tmp_path):
    assert len(adapted.networks_) == len(adapted.coefficients_)
    first = [coefs[0] for coefs, _ in adapted.networks_]
    assert all((first[0] != other).any() for other in first[1:])
    assert adapted.coefs_[0] is adapted.networks_[int(adapted.coefficients_.argmax())][0][0]
    combined = sum(
        c * in_chunks(probabilities, problem.X_target, *network)
        for c, network in zip(adapted.coefficients_, adapted.networks_, strict=True)
    )
    found = adapted.predict_proba(problem.X_target)
    np.testing.assert_allclose(found, combined.clip(0) / combined.clip(0).sum(1, keepdims=True), atol=1e-12)
    assert (adapted.predict(problem.X_target) == adapted.classes_[combined.argmax(1)]).all()
    assert adapted.transform(problem.X_target).shape == (len(problem.X_target), 5)
    adapted.save(tmp_path / "model")
    same = quick(weight="auto", max_epochs=30, patience=5, verbose=1).fit(problem.X, problem.y, problem.X_target)
    for again in (same, ma.load(tmp_path / "model")):
        assert (again.weight, again.coefficients_.tolist()) == ("auto", adapted.coefficients_.tolist())
        assert (again.predict_proba(problem.X_target) == found).all()


@pytest.mark.parametrize("change", [{"X_target": None}, {"discrepancy": None}])
def test_without_a_target_or_a_distance_one_plain_network_is_trained_again_on_all_rows(quick, problem, change):
    target = change.pop("X_target", problem.X_target)
    model = quick(weight="auto", **change).fit(problem.X, problem.y, target)
    plain = quick(discrepancy=None).fit(problem.X, problem.y)
    assert len(model.networks_) == 1
    assert (model.history_["distance"], model.coefficients_.tolist()) == (plain.history_["distance"], [1.0])
    assert model.history_["source_loss"] == pytest.approx(plain.history_["source_loss"], rel=1e-4)
    assert (model.coefs_[0] != plain.coefs_[0]).any()


@pytest.fixture
def halves():
    """Breast cancer cut at the median of one feature: other class shares in the target, where alignment does harm."""
    data = load_breast_cancer()
    low = data.data[:, 1] <= np.median(data.data[:, 1])
    X = (data.data - data.data[low].mean(0)) / data.data[low].std(0)
    return X[low], data.target[low], X[~low], data.target[~low]


def test_the_plain_network_is_kept_where_alignment_does_harm(halves):
    X, y, X_target, y_target = halves
    settings = {"optimizer": "adam", "learning_rate": 0.003, "max_epochs": 300, "random_state": 0}
    aligned = ma.MANNClassifier(**settings).fit(X, y, X_target)
    plain = ma.MANNClassifier(discrepancy=None, **settings).fit(X, y)
    model = ma.MANNClassifier(weight="auto", **settings).fit(X, y, X_target)
    assert aligned.score(X_target, y_target) < 0.87 < 0.92 < plain.score(X_target, y_target)
    assert model.score(X_target, y_target) >= plain.score(X_target, y_target)
    assert len(model.networks_) == 1


def step(sign, sharpness=40.0):
    """Layers of a network of one unit whose second class is where the first feature is positive, times `sign`."""
    return [
        Layer(np.array([[sharpness]]), np.zeros(1)),
        Layer(np.array([[-1.0, 1.0]]) * sign * 4, np.array([2.0, -2.0]) * sign),
    ]


def guarded(adapted, plain):
    rows = np.linspace(-1.0, 1.0, 101)[:, None]
    task = Task(rows, (rows[:, 0] > 0).astype(int), rows, 2)
    specs = [NetworkSpec(0, weight, ma.CMDLoss()) for weight in [1.0] * len(adapted) + [0.0] * len(plain)]
    return combine(specs, [*adapted, *plain], task)


def test_the_guard_weighs_changed_predictions_against_confidence():
    assert guarded([step(1), step(1, 20.0)], [step(1)]).indices == [0, 1]
    assert guarded([step(-1), step(-1, 20.0)], [step(1)]).indices == [2]
    # A plain network that says the same of every row has no confidence over all classes to lose.
    undecided = [step(1)[0], Layer(np.zeros((1, 2)), np.array([0.1, 0.0]))]
    assert guarded([step(1), step(1, 20.0)], [undecided]).indices == [0, 1]


def test_the_guard_compares_with_the_combination_and_not_with_the_best_single_network():
    """Two networks that are confident, but contradict each other: together they know nothing."""
    opposite = [step(1), step(-1)]
    rows = np.linspace(-1.0, 1.0, 101)[:, None]
    norms = [nuclear_norm(probabilities=probabilities(layers, rows)) for layers in [*opposite, step(1)]]
    assert norms[2] <= max(norms[:2])
    task = Task(rows, np.arange(101) % 2, rows, 2)
    specs = [NetworkSpec(0, weight, ma.CMDLoss()) for weight in (1.0, 1.0, 0.0)]
    members = combine(specs, [*opposite, step(1)], task)
    assert (members.indices, members.coefficients.tolist()) == ([2], [1.0])


def test_the_grid_keeps_all_else_of_a_specification():
    spec = NetworkSpec(3, 7.0, ma.CMDLoss(), between="pairs", domain_weights=(1.0, 2.0), sharpen=0.5)
    grid = weight_grid(spec)
    assert sorted(one.weight for one in grid) == [0.0, *WEIGHTS]
    assert all(replace(one, weight=7.0) == spec for one in grid)


@pytest.mark.parametrize("change", [{"between": "pairs"}, {"domain_weights": [1.0, 9.0]}])
def test_it_compares_several_domains_as_it_is_told(quick, problem, change):
    domain = np.concatenate([np.arange(len(problem.X)) % 2 + 1, np.full(len(problem.X_target), -3)])
    X = np.concatenate([problem.X, problem.X_target])
    X[domain == 2] += [0.0, 2.0, 0.0, 0.0]
    y = np.concatenate([problem.y, np.zeros(len(problem.X_target), int)])
    models = [quick(weight="auto", max_epochs=30, **more).fit(X, y, sample_domain=domain) for more in ({}, change)]
    assert all(len(model.networks_) == len(WEIGHTS) for model in models)
    assert (models[0].coefs_[0] != models[1].coefs_[0]).any()


def test_verbose_shows_a_bar(quick, problem, capsys):
    """It counts the epochs of all networks up to their end."""
    quick(weight="auto", verbose=1, max_epochs=2).fit(problem.X, problem.y, problem.X_target)
    assert re.search(r"MANNClassifier .* ([1-9]\d*)/\1 ", capsys.readouterr().err)


@pytest.fixture
def task(rng):
    labels = np.arange(90) % 2
    rows = (rng.normal(size=(90, 3)) + labels[:, None]).astype(np.float32)
    return Task(rows[:60], labels[:60], rows + 1, 2, rows[60:], labels[60:])


def test_members_are_trained_again_on_all_rows_where_enough_were_held_out(task):
    """Held-out rows end the first training and take part in the second."""
    config = TrainingConfig(hidden=(4,), max_epochs=20, patience=3)
    grid = weight_grid(NetworkSpec(0, 1.0, ma.CMDLoss()))
    networks, members = train_combination(task, config, grid)
    for index, network in zip(members.indices, networks, strict=True):
        best = int(np.argmin(network.history.validation_loss)) + 1
        assert len(network.history.source_loss) >= best == network.best_epoch
        alone = replace(config, max_epochs=best, patience=None, keep="last", compiled=True)
        (again,) = train_stack(joined_task(task), alone, [grid[index]])
        np.testing.assert_array_equal(again.layers[0].weight, network.layers[0].weight)
    few = replace(task, validation=task.validation[:15], validation_labels=task.validation_labels[:15])
    networks, members = train_combination(few, config, grid)
    (once,) = train_stack(few, replace(config, compiled=True), [grid[members.indices[0]]])
    np.testing.assert_array_equal(once.layers[0].weight, networks[0].layers[0].weight)


@pytest.mark.parametrize("threads", [1, 3])
def test_networks_trained_side_by_side_are_those_trained_alone(task, threads):
    config, seen = TrainingConfig(hidden=(4,), max_epochs=5), []
    specs = weight_grid(NetworkSpec(0, 1.0, ma.CMDLoss()))
    networks = train_each(
        [(task, config, spec) for spec in specs], threads=threads, progress=lambda *of: seen.append(of)
    )
    assert (len(networks), seen[-1]) == (5, (25, 25))
    for spec, network in zip(specs, networks, strict=True):
        (alone,) = train_stack(task, config, [spec])
        np.testing.assert_array_equal(alone.layers[0].weight, network.layers[0].weight)


def test_an_interrupt_ends_the_training_of_all(task):
    seen = []

    def interrupt(done, _most):
        seen.append(done)
        if len(seen) == 7:
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.5)  # The main thread hears it, this one goes on.

    trainings = [(task, TrainingConfig(hidden=(4,), max_epochs=5), NetworkSpec(seed)) for seed in range(30)]
    with pytest.raises(KeyboardInterrupt):
        train_each(trainings, progress=interrupt)
    assert max(seen) < 20


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
def test_nothing_is_lost_when_held_out_rows_join(rng, make):
    rows = rng.integers(0, 5, size=(20, 3)).astype(np.float32)
    labels = np.arange(20) % 2
    task = Task(make(rows[:12]), labels[:12], make(rows), 2, make(rows[12:]), labels[12:])
    whole = joined_task(task)
    there = whole.source.toarray() if sparse.issparse(whole.source) else whole.source
    pairs = np.c_[there, whole.labels]
    np.testing.assert_array_equal(pairs[np.lexsort(pairs.T)], np.c_[rows, labels][np.lexsort(np.c_[rows, labels].T)])
    assert whole.validation is None


def test_where_nothing_is_held_out_one_training_is_all(quick, problem):
    model = quick(weight="auto", validation_fraction=0.0).fit(problem.X, problem.y, problem.X_target)
    assert (model.n_epochs_, model.history_["validation_loss"]) == (5, [])


def test_a_sharpened_network_is_trained_again_for_as_many_epochs_as_its_first_phase_was_good(rng):
    rows = rng.normal(size=(60, 3)).astype(np.float32)
    task = Task(rows, np.arange(60) % 2, rows + np.float32(1.0), 2)
    config, spec = TrainingConfig(hidden=(4,), max_epochs=6, patience=6), NetworkSpec(0, sharpen=1.0)
    (network,) = train_stack(task, config, [spec])
    losses = [3.0, 1.0, 2.0, 3.0, 4.0, 5.0] + [0.5] * 6  # the second epoch of the first phase
    network = replace(network, history=replace(network.history, validation_loss=losses))
    (again,) = train_again([(config, spec, network)], task)
    (expected,) = train_stack(task, replace(config, max_epochs=2, patience=2, keep="last"), [spec])
    for one, other in zip(again.layers, expected.layers, strict=True):
        np.testing.assert_array_equal(one.weight, other.weight)


@st.composite
def stacks_of_probabilities(draw, models):
    """Whole-number odds, so that uniform and certain rows occur."""
    shape = models, draw(st.integers(2, 8)), draw(st.integers(2, 4))
    odds = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 5)))
    odds[odds.sum(axis=-1) == 0] = 1
    return odds / odds.sum(axis=-1, keepdims=True)


@given(stack=stacks_of_probabilities(models=3), seed=st.integers(0, 2**32 - 1))
def test_aggregation_does_not_depend_on_the_order_of_models(stack, seed):
    random = np.random.default_rng(seed)
    order, labels = random.permutation(3), random.integers(stack.shape[2], size=stack.shape[1])
    weights = random.uniform(0.5, 1.5, len(labels))

    def aggregated(models):
        coefficients = aggregation_coefficients(target=models, source=models, labels=labels, weights=weights)
        return np.tensordot(coefficients, models, axes=1)

    assert aggregated(stack[order]) == pytest.approx(aggregated(stack), abs=1e-8)


@given(
    stack=stacks_of_probabilities(models=2),
    coefficients=hnp.arrays(np.float64, 2, elements=st.floats(-2.0, 2.0, width=16)),
)
def test_aggregated_probabilities_keep_the_class(stack, coefficients):
    combined = np.tensordot(coefficients, stack, axes=1)
    found = aggregated_probabilities(coefficients=coefficients, predictions=stack)
    assert found.min() >= 0.0
    assert found.sum(axis=1) == pytest.approx(1.0)
    decided = combined.max(axis=1) > 1e-12
    assert (found.argmax(axis=1) == combined.argmax(axis=1))[decided].all()
    assert found[~(combined.max(axis=1) > 0.0)] == pytest.approx(1.0 / stack.shape[2])

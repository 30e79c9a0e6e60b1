"""weight="auto": a stack of weights, trained twice, combined without target labels."""

import numpy as np
import pytest
from scipy import sparse

import momentalign as ma
from momentalign.errors import InvalidTypeError
from momentalign.estimators.combination import WEIGHTS, train_aggregated
from momentalign.estimators.domains import joined_task
from momentalign.networks.shallow import probabilities
from momentalign.training.config import Task, TrainingConfig
from momentalign.training.stack import train_stack


@pytest.fixture
def automatic(quick):
    return quick(weight="auto", max_epochs=30, patience=5)


def test_one_network_a_weight_and_one_coefficient_each(automatic, problem):
    model = automatic.fit(problem.X, problem.y, problem.X_target)
    assert len(model.networks_) == len(WEIGHTS) == len(model.coefficients_)
    assert np.isfinite(model.coefficients_).all()
    first = [coefs[0] for coefs, _ in model.networks_]
    assert all((first[0] != other).any() for other in first[1:])
    largest = int(model.coefficients_.argmax())
    assert model.coefs_[0] is model.networks_[largest][0][0]


def test_probabilities_are_those_of_the_combination(automatic, problem):
    model = automatic.fit(problem.X, problem.y, problem.X_target)
    chances = model.predict_proba(problem.X_target)
    np.testing.assert_allclose(chances.sum(1), 1.0)
    combined = sum(
        c * model._apply(probabilities, problem.X_target, *network)
        for c, network in zip(model.coefficients_, model.networks_, strict=True)
    )
    np.testing.assert_allclose(chances, combined.clip(0) / combined.clip(0).sum(1, keepdims=True), atol=1e-12)
    assert (model.predict(problem.X_target) == model.classes_[combined.argmax(1)]).all()
    assert model.transform(problem.X_target).shape == (len(problem.X_target), 5)


def test_the_same_seed_gives_the_same_bits(quick, problem):
    models = [quick(weight="auto").fit(problem.X, problem.y, problem.X_target) for _ in range(2)]
    assert (models[0].coefficients_ == models[1].coefficients_).all()
    assert (models[0].predict_proba(problem.X) == models[1].predict_proba(problem.X)).all()


def test_it_is_saved_and_read_back(automatic, problem, tmp_path):
    model = automatic.fit(problem.X, problem.y, problem.X_target)
    model.save(tmp_path / "model")
    again = ma.load(tmp_path / "model")
    assert again.weight == "auto"
    assert (again.predict_proba(problem.X_target) == model.predict_proba(problem.X_target)).all()


@pytest.mark.parametrize("change", [{"X_target": None}, {"discrepancy": None}])
def test_without_a_target_or_a_distance_there_is_nothing_to_weigh(quick, problem, assert_same_weights, change):
    target = change.pop("X_target", problem.X_target)
    model = quick(weight="auto", **change).fit(problem.X, problem.y, target)
    assert len(model.networks_) == 1
    assert_same_weights(model, quick(discrepancy=None).fit(problem.X, problem.y))


def test_any_other_word_is_refused(quick, problem):
    with pytest.raises(InvalidTypeError, match="weight must be a number, got 'automatic'"):
        quick(weight="automatic").fit(problem.X, problem.y, problem.X_target)


def test_networks_are_trained_again_on_all_rows(rng):
    """Held-out rows end the first training and take part in the second."""
    labels = np.arange(90) % 2
    rows = (rng.normal(size=(90, 3)) + labels[:, None]).astype(np.float32)
    task = Task(rows[:60], labels[:60], rows + 1, 2, rows[60:], labels[60:])
    config = TrainingConfig(hidden=(4,), max_epochs=20, patience=3)
    found = train_aggregated(task, joined_task(task), config, ma.CMDLoss(), seed=0, device="cpu")
    for network in found.networks:
        best = int(np.argmin(network.history.validation_loss)) + 1
        assert len(network.history.source_loss) >= best == network.best_epoch
    (alone,) = train_stack(task, config, [found_member(WEIGHTS[1])])
    assert (alone.layers[0].weight != found.networks[1].layers[0].weight).any()


def found_member(weight):
    from momentalign.training.config import NetworkSpec

    return NetworkSpec(0, weight, ma.CMDLoss())


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


def test_where_nothing_can_be_held_out_one_training_is_all(quick, problem):
    model = quick(weight="auto", validation_fraction=0.0).fit(problem.X, problem.y, problem.X_target)
    assert len(model.networks_) == len(WEIGHTS)
    assert model.n_epochs_ == 5

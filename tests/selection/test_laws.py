"""What holds for every score of predictions, and for the rules on several models, whatever the numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from momentalign.estimators.combination import (
    aggregated_predictions,
    aggregated_probabilities,
    aggregation_coefficients,
)
from momentalign.evaluation.importance import effective_sample_size, importance_weights
from momentalign.evaluation.scores import (
    balancing_choice,
    deep_embedded_score,
    importance_weighted_score,
    mutual_information,
    negative_entropy,
    neighbourhood_density,
    nuclear_norm,
)

SCORES = (negative_entropy, mutual_information, nuclear_norm, neighbourhood_density)
CLASSES = st.integers(2, 4)
SLACK = 1e-12
every_score = pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)


@st.composite
def probabilities(draw, least_rows=2, classes=CLASSES, models=None):
    """Rows of probabilities with whole-number odds, so that uniform and certain ones occur."""
    shape = draw(st.integers(least_rows, 8)), draw(classes)
    odds = draw(hnp.arrays(np.int64, shape if models is None else (models, *shape), elements=st.integers(0, 5)))
    odds[odds.sum(axis=-1) == 0] = 1
    return odds / odds.sum(axis=-1, keepdims=True)


def positive(rows):
    return hnp.arrays(np.float64, rows, elements=st.integers(1, 100).map(lambda whole: whole / 10))


@every_score
@given(matrix=probabilities(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_and_classes_does_not_matter(score, matrix, seed):
    random = np.random.default_rng(seed)
    shuffled = matrix[random.permutation(len(matrix))][:, random.permutation(matrix.shape[1])]
    assert score(probabilities=shuffled) == pytest.approx(score(probabilities=matrix), abs=SLACK)


@pytest.mark.parametrize("score", SCORES[:3], ids=lambda score: score.__name__)
@given(matrix=probabilities())
def test_rows_that_occur_twice_change_nothing(score, matrix):
    if score is nuclear_norm and len(matrix) < matrix.shape[1]:
        matrix = np.tile(matrix, (2, 1))  # Fewer rows than classes have a smaller largest norm.
    doubled = np.tile(matrix, (2, 1))
    assert score(probabilities=doubled) == pytest.approx(score(probabilities=matrix), abs=SLACK)


@pytest.mark.parametrize(
    ("score", "lowest", "highest"),
    [
        (negative_entropy, lambda n, c: -np.log(c), lambda n, c: 0.0),
        (mutual_information, lambda n, c: 0.0, lambda n, c: np.log(c)),
        (nuclear_norm, lambda n, c: 1 / np.sqrt(c * min(n, c)), lambda n, c: 1.0),
        (neighbourhood_density, lambda n, c: 0.0, lambda n, c: np.log(n - 1)),
    ],
)
@given(matrix=probabilities())
def test_scores_keep_to_their_range(score, lowest, highest, matrix):
    assert lowest(*matrix.shape) - SLACK <= score(probabilities=matrix) <= highest(*matrix.shape) + SLACK


@pytest.mark.parametrize("score", SCORES[:3], ids=lambda score: score.__name__)
@given(matrix=probabilities(), times=st.integers(1, 3))
def test_uniform_predictions_are_the_worst_and_confident_balanced_ones_the_best(score, matrix, times):
    classes = matrix.shape[1]
    matrix = np.tile(matrix, (classes, 1))  # At least as many rows as classes.
    of_matrix = score(probabilities=matrix)
    uniform = score(probabilities=np.full((len(matrix), classes), 1 / classes))
    ideal = score(probabilities=np.tile(np.eye(classes), (times, 1)))
    assert uniform - SLACK <= of_matrix <= ideal + SLACK


@given(matrix=probabilities(), chunk=st.integers(1, 10))
def test_chunks_do_not_change_the_density(matrix, chunk):
    whole = neighbourhood_density(probabilities=matrix, chunk=len(matrix))
    assert neighbourhood_density(probabilities=matrix, chunk=chunk) == pytest.approx(whole, abs=SLACK)


@given(data=st.data(), rows=st.integers(1, 10), factor=st.sampled_from([0.125, 3.0]))
def test_weights_have_mean_1_on_any_scale(data, rows, factor):
    ratio = data.draw(positive(rows))
    weights = importance_weights(ratio=ratio, largest=2.0)
    assert weights.mean() == pytest.approx(1.0)
    assert importance_weights(ratio=factor * ratio, largest=2.0) == pytest.approx(weights)
    assert 1.0 - SLACK <= effective_sample_size(weights=weights) <= rows + SLACK
    assert effective_sample_size(weights=factor * weights) == pytest.approx(effective_sample_size(weights=weights))


@given(data=st.data(), rows=st.integers(2, 10))
def test_deep_embedded_is_importance_weighted_where_the_weights_have_mean_1(data, rows):
    losses, weights = data.draw(positive(rows)), importance_weights(ratio=data.draw(positive(rows)))
    plain = importance_weighted_score(losses=losses, weights=weights)
    assert deep_embedded_score(losses=losses, ratio=weights) == pytest.approx(plain, rel=1e-9)


@given(data=st.data(), rows=st.integers(2, 10), level=st.sampled_from([0.25, 1.0, 4.0]))
def test_deep_embedded_knows_constant_losses_exactly(data, rows, level):
    ratio = data.draw(positive(rows).filter(lambda values: np.ptp(values) > 0))
    assert deep_embedded_score(losses=np.full(rows, level), ratio=ratio) == pytest.approx(-level, rel=1e-9)


@given(stack=probabilities(models=4), seed=st.integers(0, 2**32 - 1))
def test_the_balancing_choice_is_as_good_as_its_proof(stack, seed):
    """Errors, distances and learning errors as the principle supposes them; the truth is one of the models' kind."""
    random = np.random.default_rng(seed)
    truth = np.eye(stack.shape[2])[stack[0].argmax(axis=1)]
    errors = np.abs(stack - truth).sum(axis=2).mean(axis=1) / 2
    distances = np.sort(random.uniform(0.01, 1.0, len(stack)))[::-1]
    # The smallest growing learning errors for which the bound on every error holds.
    learning = np.maximum.accumulate(np.maximum(errors - distances, 0.0))
    balanced = np.flatnonzero(learning <= distances / distances[0])[-1]
    choice = balancing_choice(predictions=stack, distances=distances)
    assert choice >= balanced
    assert errors[choice] <= 3 * (1 + 1 / distances[0]) * distances[balanced] + SLACK


@given(stack=probabilities(models=3), seed=st.integers(0, 2**32 - 1))
def test_aggregation_has_the_least_error_it_can_estimate(stack, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(stack.shape[2], size=stack.shape[1])
    arguments = {"target": stack, "source": stack, "labels": labels, "weights": np.ones(len(labels))}

    def error(coefficients):
        combined = aggregated_predictions(coefficients=coefficients, predictions=stack)
        return ((combined - np.eye(stack.shape[2])[labels]) ** 2).sum()

    reached = error(aggregation_coefficients(**arguments, rcond=0.0))
    least = np.linalg.lstsq(stack.reshape(3, -1).T, np.eye(stack.shape[2])[labels].ravel(), rcond=None)[1]
    if least.size:  # Else the models are linearly dependent.
        assert reached == pytest.approx(least[0], abs=1e-6)


@given(stack=probabilities(models=3), seed=st.integers(0, 2**32 - 1))
def test_aggregation_does_not_depend_on_the_order_of_models(stack, seed):
    random = np.random.default_rng(seed)
    order, labels = random.permutation(3), random.integers(stack.shape[2], size=stack.shape[1])
    weights = random.uniform(0.5, 1.5, len(labels))

    def aggregated(models):
        coefficients = aggregation_coefficients(target=models, source=models, labels=labels, weights=weights)
        return aggregated_predictions(coefficients=coefficients, predictions=models)

    assert aggregated(stack[order]) == pytest.approx(aggregated(stack), abs=1e-8)


@given(stack=probabilities(models=2), coefficients=hnp.arrays(np.float64, 2, elements=st.floats(-2.0, 2.0, width=16)))
def test_aggregated_probabilities_keep_the_class(stack, coefficients):
    combined = aggregated_predictions(coefficients=coefficients, predictions=stack)
    chances = aggregated_probabilities(coefficients=coefficients, predictions=stack)
    assert chances.min() >= 0.0
    assert chances.sum(axis=1) == pytest.approx(1.0)
    decided = combined.max(axis=1) > SLACK
    assert (chances.argmax(axis=1) == combined.argmax(axis=1))[decided].all()
    assert chances[~(combined.max(axis=1) > 0.0)] == pytest.approx(1.0 / stack.shape[2])

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.estimators.combination import (
    aggregated_predictions,
    aggregated_probabilities,
    aggregation_coefficients,
)


def two_columns(share):
    return np.stack([share, 1.0 - share], axis=-1)


@pytest.fixture
def problem(rng):
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


def squared_error(predictions, truth):
    return ((predictions - truth) ** 2).sum(axis=1).mean()


def test_by_hand():
    # G = [[1, 1/2], [1/2, 1/2]], g = (3/4, 1/2): c = (1/2, 1/2).
    target = [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]
    coefficients = aggregation_coefficients(target=target, source=target, labels=[0, 0], weights=[1.5, 0.5], rcond=0.0)
    assert coefficients == pytest.approx([0.5, 0.5])


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


def test_it_is_close_to_the_best_combination_and_better_than_each_model(problem):
    target, source, labels, weights, truth = problem()
    coefficients = aggregation_coefficients(target=target, source=source, labels=labels, weights=weights)
    reached = squared_error(aggregated_predictions(coefficients=coefficients, predictions=target), truth)
    best = np.linalg.lstsq(target.reshape(3, -1).T, truth.ravel(), rcond=None)[0]
    least = squared_error(aggregated_predictions(coefficients=best, predictions=target), truth)
    alone = min(squared_error(model, truth) for model in target)
    assert reached < least + 0.1 * (alone - least)


def test_weights_are_what_makes_it_fit_the_target(problem):
    target, source, labels, weights, truth = problem()

    def reached(importance):
        coefficients = aggregation_coefficients(target=target, source=source, labels=labels, weights=importance)
        return squared_error(aggregated_predictions(coefficients=coefficients, predictions=target), truth)

    assert reached(weights) < reached(np.ones(len(labels)))


def test_almost_equal_models_share_their_coefficient(problem):
    target, source, labels, weights, _ = problem()
    single = aggregation_coefficients(target=target[:1], source=source[:1], labels=labels, weights=weights)
    twins = [np.stack([stack[0], (1 - 1e-9) * stack[0] + 1e-9 * stack[1]]) for stack in (target, source)]
    shared = aggregation_coefficients(target=twins[0], source=twins[1], labels=labels, weights=weights)
    assert shared == pytest.approx([single[0] / 2, single[0] / 2], rel=1e-6)


def test_a_large_cut_leaves_what_the_models_have_in_common(problem):
    target, source, labels, weights, _ = problem()
    common = aggregation_coefficients(target=target, source=source, labels=labels, weights=weights, rcond=0.9)
    leading = np.linalg.eigh(np.einsum("irk,jrk->ij", target, target))[1][:, -1]
    assert abs(common @ leading) == pytest.approx(np.linalg.norm(common))
    assert common.min() > 0.0


def test_models_are_averaged_where_no_row_counts():
    stack = [np.eye(2), np.full((2, 2), 0.5)]
    coefficients = aggregation_coefficients(target=stack, source=stack, labels=[0, 1], weights=[0.0, 0.0])
    assert coefficients.tolist() == [0.5, 0.5]


def test_predictions_are_combined_row_by_row():
    stack = [[[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [0.0, 1.0]]]
    combined = aggregated_predictions(coefficients=[2.0, -1.0], predictions=stack)
    assert combined == pytest.approx(np.array([[1.75, -0.75], [1.0, 0.0]]))
    assert aggregated_probabilities(coefficients=[2.0, -1.0], predictions=stack).tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert aggregated_probabilities(coefficients=[1.0, 0.5], predictions=stack)[1] == pytest.approx([1 / 3, 2 / 3])


def test_rows_without_a_positive_entry_are_undecided():
    assert aggregated_probabilities(coefficients=[-1.0], predictions=[[[0.25, 0.75]]]).tolist() == [[0.5, 0.5]]


STACK = [[[1.0, 0.0]], [[0.5, 0.5]]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"target": STACK[:1]}, "target has 1 models of 2 classes and source has 2 of 2"),
        ({"target": np.full((2, 1, 3), 1 / 3)}, "target has 2 models of 3 classes"),
        ({"labels": [2]}, "labels must be codes from 0 to 1"),
        ({"weights": [1.0, 1.0]}, r"weights must have shape \(1,\)"),
        ({"rcond": 1.0}, "rcond must be at least 0 and below 1"),
        ({"rcond": -0.1}, "rcond must be at least 0"),
    ],
)
def test_arguments_are_checked(changed, message):
    arguments = {"target": STACK, "source": STACK, "labels": [0], "weights": [1.0]}
    with pytest.raises(InvalidInputError, match=message):
        aggregation_coefficients(**{**arguments, **changed})


@pytest.mark.parametrize("coefficients", [[1.0], [1.0, np.nan]])
@pytest.mark.parametrize("function", [aggregated_predictions, aggregated_probabilities])
def test_coefficients_are_checked(function, coefficients):
    with pytest.raises(InvalidInputError, match="coefficients must be 2 finite numbers"):
        function(coefficients=coefficients, predictions=STACK)

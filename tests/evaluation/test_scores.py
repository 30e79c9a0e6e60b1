"""Scores without target labels and importance weights: by hand, by their laws, and what they refuse."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import (
    balancing_choice,
    classification_errors,
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

PROBABILITIES = [[0.5, 0.25, 0.25], [0.125, 0.25, 0.625], [0.0, 1.0, 0.0]]
CERTAIN, MIXED = [[1.0, 0.0]] * 2, [[1.0, 0.0], [0.5, 0.5]]
SCORES = (negative_entropy, mutual_information, nuclear_norm, neighbourhood_density)
RATIO = {"source": [[0.0]] * 4, "target": [[0.0]] * 9, "folds": 2}
PAIR = {"predictions": np.eye(2)[:, None], "distances": [1.0, 0.5]}
BAD = {
    "probabilities": [
        (neighbourhood_density, {"probabilities": [[1.0, 0.0]]}),
        *((score, {"probabilities": [[0.5, 0.25]] * 2}) for score in SCORES),
        *((score, {"probabilities": [[2.0, -1.0]] * 2}) for score in SCORES),
    ],
    "temperature": [(neighbourhood_density, {"probabilities": CERTAIN, "temperature": t}) for t in (0.0, np.inf)],
    "chunk": [(neighbourhood_density, {"probabilities": CERTAIN, "chunk": 0})],
    "labels": [
        (losses, {"probabilities": PROBABILITIES, "labels": labels})
        for losses in (classification_errors, cross_entropies)
        for labels in ([1, 2, 3], [1, 2])
    ],
    "losses": [
        (deep_embedded_score, {"losses": [np.inf], "ratio": [1.0]}),
        (importance_weighted_score, {"losses": [-1.0], "weights": [1.0]}),
    ],
    "weights": [(importance_weighted_score, {"losses": [1.0] * len(w), "weights": w[:1]}) for w in ([1, 2], [np.nan])],
    "ratio": [
        (deep_embedded_score, {"losses": [1.0, 2.0], "ratio": [1.0]}),
        (importance_weights, {"ratio": [0.0, 0.0]}),
    ],
    "largest": [(importance_weights, {"ratio": [1.0], "largest": largest}) for largest in (0.5, np.nan)],
    "source": [(logistic_ratio, {"source": np.zeros((5, 2)), "target": np.zeros((5, 3))})],
    "target": [(logistic_ratio, RATIO | {"target": [[np.nan]]})],
    "folds": [(logistic_ratio, RATIO | {"folds": folds}) for folds in (1, 5)],
    "strength": [(logistic_ratio, RATIO | {"strength": strength}) for strength in (0.0, np.nan)],
    "distances": [(balancing_choice, PAIR | {"distances": d}) for d in ([1.0], [0.0, 0.0], [1.0, -1.0])],
    "error_bound": [(balancing_choice, PAIR | {"error_bound": bound}) for bound in (0.0, np.nan)],
}


@pytest.mark.parametrize("name", BAD)
def test_arguments_are_checked_and_named(name):
    for score, arguments in BAD[name]:
        with pytest.raises(InvalidInputError, match=f"^{name} "):
            score(**arguments)


def test_losses_by_hand():
    assert classification_errors(probabilities=PROBABILITIES, labels=[0, 1, 1]).tolist() == [0.0, 1.0, 0.0]
    assert classification_errors(probabilities=[[0.5, 0.5]], labels=[0]).tolist() == [0.0]
    losses = cross_entropies(probabilities=PROBABILITIES, labels=[1, 2, 1])
    assert losses == pytest.approx([np.log(4), np.log(1.6), 0.0])
    assert not np.signbit(losses[2])
    (impossible,) = cross_entropies(probabilities=[[0.0, 1.0]], labels=[0])
    assert 80.0 < impossible < 100.0, "an impossible label costs much but not infinity"
    assert importance_weighted_score(losses=[1.0, 2.0, 4.0], weights=[0.5, 0.5, 2.0]) == pytest.approx(-9.5 / 3)


def test_the_true_ratio_gives_the_loss_on_the_target(rng):
    """Source N(0, 1), target N(1, 1), loss x^2: 1 on the source, 2 on the target."""
    source = rng.normal(size=200_000)
    score = importance_weighted_score(losses=source**2, weights=np.exp(source - 0.5))
    assert score == pytest.approx(-2.0, abs=0.1)


def test_deep_embedded_by_hand():
    # L = (0, 3, 1), w = (1, 3, 1): means 4/3 and 5/3, eta = -(20/9) / (24/9), corrected by eta times 2/3.
    losses, ratio = [0.0, 1.0, 1.0], [1.0, 3.0, 1.0]
    covariance = np.cov([0.0, 3.0, 1.0], ratio)
    expected = 4 / 3 - covariance[0, 1] / covariance[1, 1] * (5 / 3 - 1)
    assert deep_embedded_score(losses=losses, ratio=ratio) == pytest.approx(-expected)


@pytest.mark.parametrize("level", [1.0, 0.1, 0.7])
def test_equal_ratios_leave_nothing_to_correct(level):
    losses, ratio = [0.0, 1.0, 3.0], [level] * 3
    assert deep_embedded_score(losses=losses, ratio=ratio) == pytest.approx(-level * 4 / 3)
    assert deep_embedded_score(losses=losses, ratio=[0.0] * 3) == 0.0


def test_it_is_right_on_average_and_varies_less(rng):
    """Source N(0, 1), target N(1, 1), the loss an error that is more frequent to the right."""
    plain, corrected = [], []
    for _ in range(500):
        source = rng.normal(size=200)
        losses = (rng.random(200) < 0.3 + 0.1 * np.tanh(source)).astype(float)
        ratio = np.exp(source - 0.5)
        plain.append(importance_weighted_score(losses=losses, weights=ratio))
        corrected.append(deep_embedded_score(losses=losses, ratio=ratio))
    on_target = 0.3 + 0.1 * np.tanh(rng.normal(1.0, 1.0, 1_000_000)).mean()
    assert np.mean(plain) == pytest.approx(-on_target, abs=0.01)
    assert np.mean(corrected) == pytest.approx(-on_target, abs=0.01)
    assert np.var(corrected) < 0.7 * np.var(plain)


@pytest.mark.parametrize(
    ("score", "matrix", "expected"),
    [
        # Entropies log 4, 0 and 1.5 log 2 of four classes.
        (negative_entropy, [[0.25] * 4, [0.0, 1.0, 0.0, 0.0], [0.5, 0.25, 0.25, 0.0]], -3.5 * np.log(2) / 3),
        # Mean (3/4, 1/4); entropies 0 and log 2.
        (mutual_information, MIXED, -0.75 * np.log(0.75) - 0.25 * np.log(0.25) - np.log(2) / 2),
        # Gram matrix of the rows: eigenvalues whose roots sum to sqrt(trace + 2 sqrt(det)).
        (nuclear_norm, MIXED, np.sqrt(1.5 + 2 * np.sqrt(0.25)) / 2),
        (nuclear_norm, np.eye(4), 1.0),
        # Classes 3 and 1 times.
        (nuclear_norm, np.eye(2)[[0, 0, 0, 1]], (np.sqrt(3) + 1) / np.sqrt(8)),
        (nuclear_norm, np.eye(5)[:2], 1.0),
    ],
)
def test_scores_by_hand(score, matrix, expected):
    assert score(probabilities=matrix) == pytest.approx(expected)


def test_entropy_cannot_see_a_collapse_and_mutual_information_can():
    collapsed, balanced = np.eye(2)[[0] * 10], np.eye(2)[[0, 1] * 5]
    assert negative_entropy(probabilities=collapsed) == negative_entropy(probabilities=balanced) == 0.0
    assert not np.signbit(negative_entropy(probabilities=collapsed))
    assert mutual_information(probabilities=collapsed) == 0.0
    assert mutual_information(probabilities=balanced) == pytest.approx(np.log(2))


def by_definition(matrix, temperature):
    """Row by row, as the formula stands."""
    units = [row / np.sqrt((row**2).sum()) for row in matrix]
    total = 0.0
    for i, unit in enumerate(units):
        odds = np.array([np.exp(unit @ other / temperature) for j, other in enumerate(units) if j != i])
        shares = odds / odds.sum()
        total -= sum(share * np.log(share) for share in shares if share > 0)
    return total / len(units)


@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_the_density_is_its_definition(rng, temperature):
    matrix = rng.dirichlet(np.ones(3), size=20)
    expected = by_definition(matrix, temperature)
    assert neighbourhood_density(probabilities=matrix, temperature=temperature) == pytest.approx(expected, rel=1e-10)


def test_the_density_takes_the_memory_of_a_chunk(rng):
    matrix = rng.dirichlet(np.ones(2), size=3000)
    tracemalloc.start()
    try:
        neighbourhood_density(probabilities=matrix, chunk=50)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * 50 * 3000 * 8 < 3000 * 3000 * 8


def models(*shares):
    """One row and two classes: the difference of two models is that of their first probabilities."""
    return [[[share, 1.0 - share]] for share in shares]


@pytest.mark.parametrize(
    ("shares", "distances", "bound", "choice"),
    [
        # With D_0 = 1 and B = 1 a difference of 4 D_j is allowed.
        pytest.param([1.0, 1.0, 1.0], [1.0, 0.5, 0.0], 1.0, 2, id="no disagreement"),
        pytest.param([0.0, 0.5, 1.0], [1.0, 0.125, 0.1], 1.0, 2, id="exactly what is allowed"),
        pytest.param([0.0, 0.5, 1.0], [1.0, 0.12, 0.1], 1.0, 1, id="just more"),
        pytest.param([0.0, 0.0, 0.5, 0.2], [1.0, 0.1, 0.1, 0.1], 1.0, 3, id="the last, also after one that disagrees"),
        pytest.param([0.0, 0.5, 1.0, 1.0], [1.0, 0.1, 0.1, 0.1], 1.0, 1, id="one earlier model is enough to reject"),
        pytest.param([0.3], [1.0], 1.0, 0, id="one model"),
        # B / D_0 small: allowed is 2 D_0 and a little.
        pytest.param([0.0, 1.0, 1.0], [0.4, 0.4, 0.4], 0.01, 0, id="only the first is left"),
        pytest.param([0.0, 1.0, 1.0], [0.4, 0.4, 0.4], 1.0, 2, id="a larger bound"),
        # (2 + 2 B / D_0) D_1 = 0.25 + 0.5 B, against a difference of 0.5.
        pytest.param([0.0, 0.0, 0.5], [0.5, 0.125, 0.0], 0.5, 2, id="the bound in units of the first distance"),
        pytest.param([0.0, 0.0, 0.5], [0.5, 0.125, 0.0], 0.49, 1, id="just less"),
    ],
)
def test_balancing_by_hand(shares, distances, bound, choice):
    assert balancing_choice(predictions=models(*shares), distances=distances, error_bound=bound) == choice


def test_differences_are_means_over_the_rows():
    # Rows differ by 1 and 0: a mean of 1/2, within 4 * 0.125 of the second model.
    first, second = np.eye(2)[[0, 0]], np.eye(2)[[0, 1]]
    assert balancing_choice(predictions=[first, first, second], distances=[1.0, 0.125, 0.0]) == 2
    assert balancing_choice(predictions=[first, first, second], distances=[1.0, 0.124, 0.0]) == 1


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


@pytest.fixture
def normals(rng):
    """Source N(0, 1), target N(1/2, 1): the ratio at x is exp(x/2 - 1/8)."""
    source, target = rng.normal(0.0, 1.0, (4000, 1)), rng.normal(0.5, 1.0, (2000, 1))
    return source, target, np.exp(source[:, 0] / 2 - 1 / 8)


def test_logistic_ratio_recovers_that_of_two_normals(normals):
    source, target, truth = normals
    ratio = logistic_ratio(source=source, target=target)
    assert ratio.mean() == pytest.approx(1.0, abs=0.05)
    assert np.abs(np.log(ratio / truth)).max() < 0.3
    assert np.abs(ratio - truth).mean() < 0.05


def test_the_ratio_does_not_depend_on_sizes_and_scales(normals):
    source, target, truth = normals
    few = logistic_ratio(source=source, target=target[:400])
    assert few.mean() == pytest.approx(1.0, abs=0.1)
    assert np.abs(few - truth).mean() < 0.1
    ratio = logistic_ratio(source=source, target=target)
    assert logistic_ratio(source=1e-4 * source, target=1e-4 * target) == pytest.approx(ratio, rel=1e-3)
    weights = importance_weights(ratio=ratio)
    assert (weights * source[:, 0]).mean() == pytest.approx(0.5, abs=0.05), "source means become target means"
    assert (weights * source[:, 0] ** 2).mean() == pytest.approx(1.25, abs=0.1)


def test_rows_are_judged_by_classifiers_that_have_not_seen_them(rng):
    """In as many dimensions as rows a classifier knows its own rows' domain; others' it cannot know."""
    source, target = rng.normal(size=(60, 120)), rng.normal(size=(60, 120))
    ratio = logistic_ratio(source=source, target=target, strength=100.0)
    assert 0.3 < (ratio > 1.0).mean() < 0.7


def test_sparse_features_give_the_same_ratio(rng):
    source, target = (rng.poisson(rate, (300, 5)).astype(float) for rate in (0.3, 0.4))
    dense = logistic_ratio(source=source, target=target)
    assert logistic_ratio(source=sparse.csr_matrix(source), target=sparse.csr_matrix(target)) == pytest.approx(
        dense, abs=1e-3
    )
    assert logistic_ratio(source=source, target=sparse.csr_matrix(target)) == pytest.approx(dense, abs=1e-3)


def test_seeds_change_the_folds_only(normals):
    source, target, _ = normals
    first, again, other = (logistic_ratio(source=source, target=target, seed=seed) for seed in (0, 0, 1))
    assert (first == again).all()
    assert 0.0 < np.abs(first - other).mean() < 0.05


def test_domains_without_overlap_keep_finite_ratios():
    ratio = logistic_ratio(source=np.zeros((50, 1)), target=np.ones((50, 1)), strength=1e12)
    assert np.isfinite(ratio).all()
    assert ratio.max() < 1e-3


def test_large_ratios_are_cut_at_a_multiple_of_their_mean():
    ratio = [1.0, 1.0, 1.0, 5.0]  # Mean 2, cut at 3: mean 3/2.
    assert importance_weights(ratio=ratio, largest=1.5) == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2.0])
    assert importance_weights(ratio=ratio, largest=math.inf) == pytest.approx([0.5, 0.5, 0.5, 2.5])

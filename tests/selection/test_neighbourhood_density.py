import tracemalloc

import numpy as np
import pytest

from momentalign.errors import InvalidInputError
from momentalign.evaluation.scores import neighbourhood_density


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
def test_it_is_its_definition(rng, temperature):
    matrix = rng.dirichlet(np.ones(3), size=20)
    expected = by_definition(matrix, temperature)
    assert neighbourhood_density(probabilities=matrix, temperature=temperature) == pytest.approx(expected, rel=1e-10)


def test_three_rows_by_hand():
    # Orthogonal rows: one neighbour at similarity 1, one at 0.
    near = 1 / (1 + np.exp(-2))
    pair = -near * np.log(near) - (1 - near) * np.log(1 - near)
    expected = (2 * pair + np.log(2)) / 3
    matrix = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    assert neighbourhood_density(probabilities=matrix, temperature=0.5) == pytest.approx(expected)


def test_dense_clusters_beat_scattered_rows(rng):
    scattered = rng.dirichlet(np.ones(2), size=100)
    clusters = np.eye(2)[rng.integers(2, size=100)]
    assert neighbourhood_density(probabilities=clusters) > neighbourhood_density(probabilities=scattered)


def test_memory_is_that_of_a_chunk(rng):
    matrix = rng.dirichlet(np.ones(2), size=3000)
    tracemalloc.start()
    try:
        neighbourhood_density(probabilities=matrix, chunk=50)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * 50 * 3000 * 8 < 3000 * 3000 * 8


@pytest.mark.parametrize(
    ("matrix", "arguments", "message"),
    [
        ([[1.0, 0.0]], {}, "1 row only"),
        ([[1.0, 0.0]] * 2, {"temperature": 0.0}, "temperature must be positive and finite, got 0"),
        ([[1.0, 0.0]] * 2, {"temperature": np.inf}, "temperature must be positive"),
        ([[1.0, 0.0]] * 2, {"chunk": 0}, "chunk must be at least 1, got 0"),
        ([[1.0, 1.0]] * 2, {}, "probabilities must sum to 1"),
    ],
)
def test_arguments_are_checked(matrix, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        neighbourhood_density(probabilities=matrix, **arguments)

import math

import numpy as np
import pytest
from scipy import sparse

from momentalign.errors import InvalidInputError
from momentalign.networks.shallow import Layer, activations, initial_layers, outputs, probabilities

INPUTS, UNITS = 400, 300
# Variance and largest weight, in closed form. The bound of a uniform law is sqrt(3 * variance); a normal law cut at two
# deviations keeps 0.87962566 of its deviation, so that the cut stands at 2 / 0.87962566 deviations of the result.
LAWS = {
    "glorot_uniform": (2 / (INPUTS + UNITS), math.sqrt(6 / (INPUTS + UNITS))),
    "lecun_uniform": (1 / INPUTS, math.sqrt(3 / INPUTS)),
    "he_normal": (2 / INPUTS, 2 / 0.87962566 * math.sqrt(2 / INPUTS)),
}


def _layer(initializer, **settings):
    (layer,) = initial_layers([INPUTS, UNITS], seed=3, initializer=initializer, **settings)
    return layer


@pytest.mark.parametrize("initializer", LAWS)
def test_initial_weights_follow_their_law(initializer):
    weight, bias = _layer(initializer)
    variance, bound = LAWS[initializer]
    # 120,000 draws: the deviation of the mean is 0.3 %, of the variance 0.4 % of its size at most.
    assert abs(weight.mean()) < 0.015 * math.sqrt(variance)
    assert weight.var() == pytest.approx(variance, rel=0.02)
    assert 0.99 * bound < np.abs(weight).max() <= bound * (1 + 1e-7)
    assert weight.shape == (INPUTS, UNITS)
    assert weight.dtype == np.float64
    np.testing.assert_array_equal(bias, np.zeros(UNITS))


def test_the_cut_normal_is_a_normal_up_to_the_cut():
    weight = _layer("he_normal").weight / (math.sqrt(2 / INPUTS) / 0.87962566)
    within = (np.abs(weight) < 1).mean()
    assert within == pytest.approx(math.erf(1 / math.sqrt(2)) / math.erf(2 / math.sqrt(2)), abs=0.005)


def test_glorot_counts_inputs_and_outputs_and_lecun_inputs_only():
    bounds = {
        name: [np.abs(layer.weight).max() for layer in initial_layers([600, 40, 600], seed=0, initializer=name)]
        for name in ("glorot_uniform", "lecun_uniform")
    }
    assert bounds["glorot_uniform"] == pytest.approx([math.sqrt(6 / 640)] * 2, rel=0.01)
    assert bounds["lecun_uniform"] == pytest.approx([math.sqrt(3 / 600), math.sqrt(3 / 40)], rel=0.01)


def test_the_same_seed_gives_the_same_weights():
    first, second, other = (initial_layers([4, 5, 3], seed=seed) for seed in (7, 7, 8))
    for layer, same, different in zip(first, second, other, strict=True):
        np.testing.assert_array_equal(layer.weight, same.weight)
        assert (layer.weight != different.weight).all()
    assert not np.isin(first[1].weight, first[0].weight).any()  # each layer has draws of its own


def test_an_unknown_initializer_names_the_known_ones():
    with pytest.raises(InvalidInputError, match=r"initializer must be one of .*he_normal.* got 'ones'"):
        initial_layers([2, 2], seed=0, initializer="ones")


def _hand_network():
    """sigm(ln 3) = 3/4 and sigm(-ln 3) = 1/4, so that everything can be worked out on paper."""
    third = math.log(3)
    bottom = Layer(np.array([[third, 0.0], [0.0, third]]), np.array([0.0, -third]))
    top = Layer(np.array([[4.0, 0.0, 8.0], [0.0, 4.0, 0.0]]), np.array([0.0, 1.0, -4.0]))
    return [bottom, top]


def test_forward_by_hand():
    layers, rows = _hand_network(), np.array([[1.0, 0.0], [-1.0, 2.0]])
    np.testing.assert_allclose(activations(layers, rows), [[0.75, 0.25], [0.25, 0.75]], rtol=1e-12)
    np.testing.assert_allclose(outputs(layers, rows), [[3.0, 2.0, 2.0], [1.0, 4.0, -2.0]], rtol=1e-12)
    total = math.exp(1) + 2
    np.testing.assert_allclose(probabilities(layers, rows)[0], [math.exp(1) / total, 1 / total, 1 / total], rtol=1e-12)


def test_two_hidden_layers_are_applied_in_order():
    bottom, top = _hand_network()
    middle = Layer(np.array([[0.0], [4 * math.log(3)]]), np.array([-2 * math.log(3)]))
    hidden = activations([bottom, middle, top], np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(hidden, [[0.25]], rtol=1e-12)  # sigm(4 ln 3 / 4 - 2 ln 3)


def test_probabilities_of_extreme_outputs_are_finite():
    layers = [Layer(np.zeros((1, 1)), np.zeros(1)), Layer(np.array([[2000.0, -2000.0]]), np.zeros(2))]
    np.testing.assert_array_equal(probabilities(layers, np.zeros((1, 1))), [[1.0, 0.0]])


@pytest.mark.parametrize("function", [activations, outputs, probabilities])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_rows_give_what_dense_rows_give(rng, function, kind):
    rows = rng.random((6, 10)) * (rng.random((6, 10)) < 0.3)
    layers = initial_layers([10, 4, 3], seed=1)
    result = function(layers, kind(rows))
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, function(layers, rows), rtol=1e-12)

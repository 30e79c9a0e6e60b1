r"""The network of Algorithm 1: fully connected sigmoid layers and a softmax on top.

Eqs. (18) to (20) of Zellinger et al. (2019), there with one hidden layer:
:math:`h_0(x) = \mathrm{sigm}(W x + b)`, :math:`h_1(x) = \mathrm{softmax}(V h_0(x) + c)`.

Weights are stored inputs first, so that a row of data multiplies them from the left. How they are trained is the
business of `training`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from momentalign.errors import InvalidInputError

__all__ = ["Initializer", "Layer", "Matrix", "activations", "initial_layers", "outputs", "probabilities"]

Floats: TypeAlias = NDArray[np.floating[Any]]
# A dense array or anything with rows that multiplies one from the left, such as a scipy CSR matrix.
Matrix: TypeAlias = Any
Initializer: TypeAlias = Literal["glorot_uniform", "lecun_uniform", "he_normal"]


class Layer(NamedTuple):
    """Weights (inputs, outputs) and bias (outputs,) of one fully connected layer."""

    weight: Floats
    bias: Floats


def initial_layers(sizes: Sequence[int], seed: int, *, initializer: Initializer = "glorot_uniform") -> list[Layer]:
    """Draw the weights of a network with layers of the given sizes (inputs, hidden ..., outputs); biases are zero.

    Parameters
    ----------
    sizes
        Number of inputs, of units in each hidden layer, of outputs.
    seed
        The same seed gives the same float64 weights, on every machine.
    initializer
        ``"glorot_uniform"``: uniform with variance 2 / (inputs + outputs). ``"lecun_uniform"``: uniform with variance
        1 / inputs. ``"he_normal"``: normal with variance 2 / inputs, cut at two standard deviations.

    Examples
    --------
    >>> [layer.weight.shape for layer in initial_layers([2, 15, 3], seed=0)]
    [(2, 15), (15, 3)]
    """
    if initializer not in get_args(Initializer):
        raise InvalidInputError(f"initializer must be one of {', '.join(get_args(Initializer))}, got {initializer!r}.")
    random = np.random.default_rng(seed)
    layers = []
    for inputs, units in pairwise(sizes):
        layers.append(Layer(_draw(random, inputs, units, initializer), np.zeros(units)))
    return layers


def _draw(random: np.random.Generator, inputs: int, units: int, initializer: Initializer) -> Floats:
    if initializer == "he_normal":
        # The standard deviation of a standard normal cut at two is 0.8796.
        normal = random.standard_normal((inputs, units))
        while (outside := np.abs(normal) > 2).any():
            normal[outside] = random.standard_normal(int(outside.sum()))
        return np.asarray(normal * (np.sqrt(2.0 / inputs) / 0.87962566103423978))
    variance = 1.0 / inputs if initializer == "lecun_uniform" else 2.0 / (inputs + units)
    bound = np.sqrt(3.0 * variance)
    return random.uniform(-bound, bound, (inputs, units))


def activations(layers: Sequence[Layer], rows: Matrix) -> Floats:
    """Return the activations (rows, width) of the last hidden layer, values in [0, 1]."""
    for layer in layers[:-1]:
        rows = expit(np.asarray(rows @ layer.weight + layer.bias))
    return cast(Floats, rows)


def outputs(layers: Sequence[Layer], rows: Matrix) -> Floats:
    """Return what enters the softmax, (rows, classes)."""
    return cast(Floats, activations(layers, rows) @ layers[-1].weight + layers[-1].bias)


def probabilities(layers: Sequence[Layer], rows: Matrix) -> Floats:
    """Return the class probabilities (rows, classes)."""
    return np.asarray(softmax(outputs(layers, rows), axis=1))

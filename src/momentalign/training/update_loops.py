"""The weights of a network as the compiled loops have them, and the rules that update them, Eqs. (25) to (27)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from momentalign.moments.loops import inner
from momentalign.training.kernels import MATRIX, VECTOR, Array, kernel, named_tuple

__all__ = [
    "ADAGRAD",
    "NETWORK",
    "RULE",
    "RULES",
    "STEPS",
    "WEIGHTS",
    "Network",
    "Rule",
    "Weights",
    "adadelta",
    "adam",
    "sgd",
]

ONE = np.float32(1.0)
RULES = ("adagrad", "adadelta", "sgd", "adam")
ADAGRAD, ADADELTA, SGD, ADAM = range(4)
EPSILON = np.float32(1e-8)
RHO = np.float32(0.95)
BETA_1, BETA_2 = 0.9, 0.999


class Weights(NamedTuple):
    """The weights of a network, or an array for each of them: all in one, and the parts.

    Units are filled up with idle ones, whose weights and activations stay zero, to whole vector registers.
    """

    flat: Array
    bottom: Array
    bias: Array
    top: Array
    top_bias: Array
    classifier: Array
    classifier_bias: Array


class Network(NamedTuple):
    """One network: weights, room for their gradients, and two sums per weight for the optimizer."""

    weights: Weights
    gradient: Weights
    first: Weights
    second: Weights
    units: int
    used: int
    """How many of the weights are trained: without an adversarial distance not the domain classifier's."""


class Rule(NamedTuple):
    """How weights are updated: an index into ``RULES`` and its numbers."""

    kind: int
    rate: float
    momentum: float
    decay: float


WEIGHTS = named_tuple(Weights, VECTOR, MATRIX, VECTOR, MATRIX, VECTOR, VECTOR, VECTOR)
NETWORK = named_tuple(Network, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS, types.int64, types.int64)
RULE = named_tuple(Rule, types.int64, types.float64, types.float64, types.float64)


@inner
def rates(rule: Rule, update: int) -> tuple[Any, Any]:
    """Return the learning rate of an update, and the momentum of SGD or the second bias correction of Adam."""
    if rule.kind == ADAM:
        return np.float32(rule.rate / (1.0 - BETA_1**update)), np.float32(math.sqrt(1.0 - BETA_2**update))
    return np.float32(rule.rate / (1.0 + rule.decay * (update - 1))), np.float32(rule.momentum)


@inner
def adagrad(values: Array, gradient: Array, first: Array, _second: Array, rate: Any, _other: Any) -> None:
    """Update weights in place by Eq. (26); `first` and `second` are the sums that a rule keeps."""
    for u in range(values.shape[0]):
        g = gradient[u]
        first[u] += g * g
        values[u] -= rate * g / (np.sqrt(first[u]) + EPSILON)


@inner
def adadelta(values: Array, gradient: Array, first: Array, second: Array, rate: Any, _other: Any) -> None:
    """Update weights in place by Eq. (27)."""
    for u in range(values.shape[0]):
        g = gradient[u]
        first[u] = RHO * first[u] + (ONE - RHO) * g * g
        move = np.sqrt(second[u] + EPSILON) / np.sqrt(first[u] + EPSILON) * g
        second[u] = RHO * second[u] + (ONE - RHO) * move * move
        values[u] -= rate * move


@inner
def sgd(values: Array, gradient: Array, first: Array, _second: Array, rate: Any, momentum: Any) -> None:
    """Update weights in place with momentum."""
    for u in range(values.shape[0]):
        first[u] = momentum * first[u] + gradient[u]
        values[u] -= rate * first[u]


@inner
def adam(values: Array, gradient: Array, first: Array, second: Array, rate: Any, correction: Any) -> None:
    """Update weights in place by running means of gradients and of their squares."""
    for u in range(values.shape[0]):
        g = gradient[u]
        first[u] = np.float32(BETA_1) * first[u] + np.float32(1.0 - BETA_1) * g
        second[u] = np.float32(BETA_2) * second[u] + np.float32(1.0 - BETA_2) * g * g
        values[u] -= rate * first[u] / (np.sqrt(second[u]) / correction + EPSILON)


STEP = kernel(types.void(VECTOR, VECTOR, VECTOR, VECTOR, types.float32, types.float32))
STEPS = STEP(adagrad), STEP(adadelta), STEP(sgd), STEP(adam)

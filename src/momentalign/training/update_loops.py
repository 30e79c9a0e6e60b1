"""Compiled loops that update weights by their gradients, Eqs. (25) to (27): a kernel for each rule."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import types

from momentalign.moments.loops import inner
from momentalign.training.kernels import VECTOR, kernel, named_tuple

__all__ = [
    "ADADELTA",
    "EPSILON",
    "RULE",
    "RULES",
    "SGD",
    "STEPS",
    "Rule",
    "by_adadelta",
    "by_adam",
    "by_sgd",
    "corrected_rate",
    "decayed_rate",
]

Array: TypeAlias = Any  # a numpy array; the loops are compiled for float32

ONE = np.float32(1.0)
RULES = {"adagrad": 0, "adadelta": 1, "sgd": 2, "adam": 3}
_, ADADELTA, SGD, ADAM = RULES.values()
EPSILON = np.float32(1e-8)
RHO = np.float32(0.95)
BETA_1, BETA_2 = 0.9, 0.999


class Rule(NamedTuple):
    """How weights are updated, Eqs. (25) to (27): one of ``RULES`` and its numbers."""

    kind: int
    rate: float
    momentum: float
    decay: float


RULE = named_tuple(Rule, types.int64, types.float64, types.float64, types.float64)
step = kernel(types.void(VECTOR, VECTOR, VECTOR, VECTOR, RULE, types.int64))


@step
def step_adagrad(values: Array, gradient: Array, first: Array, _second: Array, rule: Rule, update: int) -> None:
    """Update weights in place by their gradient; `first` and `second` are the sums that the rule keeps."""
    by_adagrad(values, gradient, first, decayed_rate(rule, update))


@step
def step_adadelta(values: Array, gradient: Array, first: Array, second: Array, rule: Rule, update: int) -> None:
    """The same by Eq. (27)."""
    by_adadelta(values, gradient, first, second, decayed_rate(rule, update))


@step
def step_sgd(values: Array, gradient: Array, first: Array, _second: Array, rule: Rule, update: int) -> None:
    """The same with momentum."""
    by_sgd(values, gradient, first, decayed_rate(rule, update), np.float32(rule.momentum))


@step
def step_adam(values: Array, gradient: Array, first: Array, second: Array, rule: Rule, update: int) -> None:
    """The same by running means of gradients and of their squares."""
    rate, correction = corrected_rate(rule, update)
    by_adam(values, gradient, first, second, rate, correction)


STEPS = {"adagrad": step_adagrad, "adadelta": step_adadelta, "sgd": step_sgd, "adam": step_adam}


@inner
def by_adagrad(values: Array, gradient: Array, first: Array, rate: float) -> None:
    for u in range(values.shape[0]):
        g = gradient[u]
        first[u] += g * g
        values[u] -= rate * g / (np.sqrt(first[u]) + EPSILON)


@inner
def by_adadelta(values: Array, gradient: Array, first: Array, second: Array, rate: Any) -> None:
    """Update some weights by Eq. (27)."""
    for u in range(values.shape[0]):
        g = gradient[u]
        first[u] = RHO * first[u] + (ONE - RHO) * g * g
        move = np.sqrt(second[u] + EPSILON) / np.sqrt(first[u] + EPSILON) * g
        second[u] = RHO * second[u] + (ONE - RHO) * move * move
        values[u] -= rate * move


@inner
def by_sgd(values: Array, gradient: Array, first: Array, rate: Any, momentum: Any) -> None:
    """Update some weights with momentum."""
    for u in range(values.shape[0]):
        first[u] = momentum * first[u] + gradient[u]
        values[u] -= rate * first[u]


@inner
def by_adam(values: Array, gradient: Array, first: Array, second: Array, rate: Any, correction: Any) -> None:
    """Update some weights by running means of gradients and of their squares."""
    for u in range(values.shape[0]):
        g = gradient[u]
        first[u] = np.float32(BETA_1) * first[u] + np.float32(1.0 - BETA_1) * g
        second[u] = np.float32(BETA_2) * second[u] + np.float32(1.0 - BETA_2) * g * g
        values[u] -= rate * first[u] / (np.sqrt(second[u]) / correction + EPSILON)


@inner
def decayed_rate(rule: Rule, update: int) -> Any:
    """Return the learning rate of this update."""
    return np.float32(rule.rate / (1.0 + rule.decay * (update - 1)))


@inner
def corrected_rate(rule: Rule, update: int) -> tuple[Any, Any]:
    """Return the learning rate of this update and the second bias correction of Adam."""
    return np.float32(rule.rate / (1.0 - BETA_1**update)), np.float32(math.sqrt(1.0 - BETA_2**update))

"""A small problem whose target is shifted, and a model that trains in milliseconds."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from momentalign import MANNClassifier, MANNRegressor


class Shifted(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_target: np.ndarray
    y_target: np.ndarray


@pytest.fixture
def make_problem() -> Callable[..., Shifted]:
    """Two classes apart along the first feature; in the target the first feature is moved by `shift`."""

    def make(seed: int = 0, rows: int = 120, target_rows: int = 90, features: int = 4, shift: float = 1.0) -> Shifted:
        rng = np.random.default_rng(seed)
        X, X_target = rng.normal(size=(rows, features)), rng.normal(size=(target_rows, features))
        y, y_target = np.arange(rows) % 2, np.arange(target_rows) % 2
        X[:, 0] += 3.0 * y
        X_target[:, 0] += 3.0 * y_target + shift
        return Shifted(X, y, X_target, y_target)

    return make


@pytest.fixture
def problem(make_problem) -> Shifted:
    return make_problem()


@pytest.fixture
def quick() -> Callable[..., MANNClassifier]:
    """A model of five units and five epochs; ``quick(weight=2.0)`` changes parameters."""

    def make(**parameters: object) -> MANNClassifier:
        settings = {"hidden": (5,), "optimizer": "adagrad", "max_epochs": 5, "batch_size": 40, "random_state": 0}
        return MANNClassifier(**{**settings, **parameters})

    return make


@pytest.fixture(params=[MANNClassifier, MANNRegressor], ids=["classifier", "regressor"])
def either(request) -> Callable[..., MANNClassifier | MANNRegressor]:
    """The same of a classifier and of a regressor, for which the codes of classes are values."""

    def make(**parameters: object) -> MANNClassifier | MANNRegressor:
        return request.param(**{"hidden": (5,), "max_epochs": 5, "batch_size": 40, "random_state": 0, **parameters})

    return make


@pytest.fixture
def assert_same_weights() -> Callable[[MANNClassifier, MANNClassifier], None]:
    def check(model: MANNClassifier, other: MANNClassifier) -> None:
        for part, match in zip(model.coefs_ + model.intercepts_, other.coefs_ + other.intercepts_, strict=True):
            np.testing.assert_array_equal(part, match)

    return check


@pytest.fixture
def several():
    """Sources 1, 2 and 5, targets -1 and -4, rows mixed; each domain is moved in a direction of its own."""
    rng = np.random.default_rng(3)
    domain = rng.permutation(np.repeat([1, 2, 5, -1, -4], [60, 50, 13, 40, 30]))
    labels = rng.integers(2, size=len(domain))
    X = rng.normal(size=(len(domain), 4))
    X[:, 0] += 3.0 * labels
    for number, moved in {2: 1, 5: 2, -1: 3, -4: 1}.items():
        X[domain == number, moved] += 1.5
    return X, np.where(domain > 0, labels, 99), domain

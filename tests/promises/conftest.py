"""A small problem and a model that trains in milliseconds."""

from collections.abc import Callable

import numpy as np
import pytest

from momentalign import MANNClassifier


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, y, X_target) of 60 and 45 rows with 4 features and two classes."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 2
    X[:, 0] += 2.0 * y
    return X, y, rng.normal(size=(45, 4)) + 0.5


@pytest.fixture
def quick() -> Callable[..., MANNClassifier]:
    def make(**parameters: object) -> MANNClassifier:
        return MANNClassifier(**{"hidden": (5,), "max_epochs": 4, "batch_size": 20, "random_state": 0, **parameters})

    return make

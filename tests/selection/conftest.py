"""A small problem whose target is shifted, and a model that trains in a moment."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from momentalign import MANNClassifier


class Shifted(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_target: np.ndarray
    y_target: np.ndarray


@pytest.fixture
def problem() -> Shifted:
    """Two classes four apart along the first feature; in the target that feature is moved."""
    rng = np.random.default_rng(0)
    X, X_target = rng.normal(size=(120, 3)), rng.normal(size=(90, 3))
    y, y_target = np.arange(120) % 2, np.arange(90) % 2
    X[:, 0] += 4.0 * y
    X_target[:, 0] += 4.0 * y_target + 2.0
    return Shifted(X, y, X_target, y_target)


@pytest.fixture
def quick() -> Callable[..., MANNClassifier]:
    """A model of five units and fifteen epochs; ``quick(weight=2.0)`` changes parameters."""

    def make(**parameters: object) -> MANNClassifier:
        chosen = {"hidden": (5,), "optimizer": "adam", "learning_rate": 0.1, "max_epochs": 15, "batch_size": 60}
        return MANNClassifier(**{**chosen, **parameters})

    return make

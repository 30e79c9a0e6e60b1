"""The choice of an engine, how much two networks differ, and whether both engines train the same."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from momentalign.training import stack
from momentalign.training.compiled_engine import CompiledEngine, CompiledTask
from momentalign.training.torch_engine import BatchedEngine


@pytest.fixture(params=["batched", "compiled"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with each engine, whatever the size of the task."""
    monkeypatch.setattr(stack, "WORTH_COMPILING", math.inf if request.param == "batched" else 0.0)
    return str(request.param)


def largest_difference(layers, other_layers) -> float:
    parts = [
        (part, other)
        for layer, match in zip(layers, other_layers, strict=True)
        for part, other in zip(layer, match, strict=True)
    ]
    assert all(part.shape == other.shape for part, other in parts)
    return max(float(np.abs(part - other).max()) for part, other in parts)


@pytest.fixture(name="largest_difference")
def _largest_difference() -> Callable[..., float]:
    """The largest difference of any weight of two networks."""
    return largest_difference


@pytest.fixture
def assert_agreement() -> Callable[..., None]:
    """Assert that the compiled loops train what float64 autograd trains: figures, weights and validation."""

    def check(task, config, spec, *, epochs=4):
        fast = CompiledEngine(CompiledTask(task, config), task, config, spec)
        exact = BatchedEngine(task, config, [spec], dtype=torch.float64)
        np.testing.assert_allclose(fast.run_epochs(epochs), exact.run_epochs(epochs), rtol=1e-4, atol=1e-6)
        assert largest_difference(fast.layers(0), exact.layers(0)) < 1e-4
        if task.validation is not None:
            figures, expected = fast.validate(), exact.validate()
            np.testing.assert_allclose(figures.loss, expected.loss, rtol=1e-4)
            np.testing.assert_allclose(figures.accuracy, expected.accuracy, rtol=1e-12)

    return check

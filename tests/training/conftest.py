"""The choice of an engine, and how much two networks differ."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from momentalign.training import stack


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

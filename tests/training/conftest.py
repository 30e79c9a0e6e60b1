"""Small tasks and the choice of an engine."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from momentalign.training import compiled_engine as compiled
from momentalign.training.config import Task

FEATURES, CLASSES = 20, 3


def _rows(rng: np.random.Generator, count: int, labels: np.ndarray, shift: float, density: float) -> np.ndarray:
    rows = rng.normal(size=(count, FEATURES)) + np.eye(CLASSES, FEATURES)[labels] * 1.5 + shift
    return (rows * (rng.random(rows.shape) < density)).astype(np.float32)


@pytest.fixture
def make_task() -> Callable[..., Task]:
    """``make_task("csr", rows=41, target_rows=23)``: three classes, a shifted target, some rows held out."""

    def make(kind: str = "dense", *, rows: int = 40, target_rows: int = 30, held_out: int = 16, seed: int = 0) -> Task:
        rng = np.random.default_rng(seed)
        density = 1.0 if kind == "dense" else 0.15
        labels, validation_labels, hidden_labels = (
            rng.permutation(np.arange(count) % CLASSES) for count in (rows, held_out, target_rows)
        )
        matrices = [
            _rows(rng, rows, labels, 0.0, density),
            _rows(rng, target_rows, hidden_labels, 0.7, density) if target_rows else None,
            _rows(rng, held_out, validation_labels, 0.0, density) if held_out else None,
        ]
        if kind == "csr":
            matrices = [None if matrix is None else sparse.csr_matrix(matrix) for matrix in matrices]
        source, target, validation = matrices
        return Task(source, labels, target, CLASSES, validation, validation_labels if held_out else None)

    return make


@pytest.fixture(params=["batched", "compiled"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with each engine, whatever the size of the task."""
    monkeypatch.setattr(compiled, "WORTH_COMPILING", math.inf if request.param == "batched" else 0.0)
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

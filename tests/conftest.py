"""What all tests share: hypothesis profiles, seeded samples, and the exact oracle.

The ordinary run draws 100 examples per law, the same ones every time; ``HYPOTHESIS_PROFILE=long`` draws 1,000 new ones.
"""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import settings

# Tests that need the benchmark files look beside the checkout unless told otherwise; without them they are skipped.
BESIDE = Path(__file__).parents[2] / "shared" / "data"
if BESIDE.is_dir():
    os.environ.setdefault("MOMENTALIGN_DATA", str(BESIDE))


@pytest.hookimpl(tryfirst=True)  # before fixtures look for the files
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, visibly, what needs the benchmark files where they are not."""
    if item.get_closest_marker("data") is not None and "MOMENTALIGN_DATA" not in os.environ:
        pytest.skip("needs the benchmark files (MOMENTALIGN_DATA)")


settings.register_profile("ordinary", max_examples=100, derandomize=True, deadline=None, database=None)
settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))

Pair = Callable[..., tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20190101)


@pytest.fixture
def pair(rng: np.random.Generator) -> Pair:
    """Two samples in [0, 1] of different sizes and distributions: ``pair(rows, other_rows, width)``."""

    def draw(
        rows: int = 7, other_rows: int = 5, width: int = 3, *, dtype: torch.dtype = torch.float64, grad: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        source, target = rng.random((rows, width)), rng.random((other_rows, width)) ** 2
        return tuple(torch.tensor(sample, dtype=dtype, requires_grad=grad) for sample in (source, target))

    return draw


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    """tests/oracle.py."""
    return beside("oracle")


@pytest.fixture(scope="session")
def page_faults() -> Callable[[Path, Path], list[str]]:
    """What is wrong with the pages of a folder, seen by a browser with a profile in another folder."""
    tool = beside("page_faults")
    if tool.BROWSER is None:
        pytest.skip("no Chromium on this machine to open the pages with")
    return tool.faults


def beside(name: str) -> ModuleType:
    """A file of this folder; in pytest's importlib mode test folders are not on the path."""
    spec = importlib.util.spec_from_file_location(f"momentalign_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _task_rows(rng: np.random.Generator, count: int, labels: np.ndarray, shift: float, density: float) -> np.ndarray:
    rows = rng.normal(size=(count, 20)) + np.eye(3, 20)[labels] * 1.5 + shift
    return (rows * (rng.random(rows.shape) < density)).astype(np.float32)


@pytest.fixture
def make_task() -> Callable[..., object]:
    """``make_task("csr", rows=41, target_rows=23)``: three classes, a shifted target, some rows held out."""

    from scipy import sparse

    from momentalign.training.config import Task

    def make(
        kind: str = "dense", *, rows: int = 40, target_rows: int = 30, held_out: int = 16, seed: int = 0
    ) -> object:
        rng = np.random.default_rng(seed)
        density = 1.0 if kind == "dense" else 0.15
        labels, validation_labels, hidden_labels = (
            rng.permutation(np.arange(count) % 3) for count in (rows, held_out, target_rows)
        )
        matrices = [
            _task_rows(rng, rows, labels, 0.0, density),
            _task_rows(rng, target_rows, hidden_labels, 0.7, density) if target_rows else None,
            _task_rows(rng, held_out, validation_labels, 0.0, density) if held_out else None,
        ]
        if kind == "csr":
            matrices = [None if matrix is None else sparse.csr_matrix(matrix) for matrix in matrices]
        source, target, validation = matrices
        return Task(source, labels, target, 3, validation, validation_labels if held_out else None)

    return make

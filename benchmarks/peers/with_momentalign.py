"""Ours: the estimator as it comes, CSR matrix or dense array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentalign import MANNClassifier
from momentalign.training.config import batches


def train(
    source: Any, labels: NDArray[np.int64], target: Any, seed: int
) -> tuple[int, Callable[[Any], NDArray[np.int64]]]:
    """Fit a MANNClassifier without early stopping."""
    model = MANNClassifier(
        hidden=(50,), max_epochs=50, patience=None, validation_fraction=0, batch_size=300, optimizer="adagrad",
        random_state=seed,
    )  # fmt: skip
    model.fit(source, labels, X_target=target)
    return model.n_epochs_ * len(batches(np.arange(len(labels)), 300)), model.predict

"""How estimators read their parameters and data: checked, named in errors, in the types that training takes."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.estimators.domains import naming
from momentalign.networks.shallow import Layer, Matrix
from momentalign.training.recipe import Task

__all__ = [
    "as_float32",
    "encode_labels",
    "joined_task",
    "read_device",
    "read_number",
    "read_seed",
    "split_layers",
]


def read_number(value: object, name: str, *, least: float, most: float = math.inf) -> float:
    """Return a parameter as a finite number within limits, or say what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidTypeError(f"{name} must be a number, got {value!r}.")
    number = float(value)
    if not (math.isfinite(number) and least <= number <= most):
        limit = f" and at most {most:g}" if math.isfinite(most) else ""
        raise InvalidInputError(f"{name} must be a finite number of at least {least:g}{limit}, got {value!r}.")
    return number


def read_seed(random_state: int | np.random.RandomState | np.random.Generator | None) -> int:
    """Return a seed; drawing one for None leaves the global random state alone."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, bool) or not isinstance(random_state, numbers.Integral) or random_state < 0:
        raise InvalidInputError(
            f"random_state must be a whole number of at least 0, a RandomState or None, got {random_state!r}."
        )
    return int(random_state)


def read_device(device: str) -> str:
    """Return the device a name stands for: ``"auto"`` is a GPU if there is one."""
    if device != "auto":
        return str(device)
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def encode_labels(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the classes in order and each label as the number of its class."""
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        raise InvalidTypeError("y holds labels of different types; make all of them numbers or all strings.") from None
    with naming("y"):
        check_classification_targets(labels)
    return classes, codes


def as_float32(rows: Matrix, name: str) -> Matrix:
    """Return rows in float32, or name the argument whose values do not fit."""
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float32, copy=False)
    if not np.isfinite(narrow.data if hasattr(narrow, "tocsr") else narrow).all():
        raise InvalidInputError(f"{name} holds values too large for float32; scale its columns first.")
    return narrow


def joined_task(task: Task) -> Task:
    """The task with the held-out rows among the others, in an order that does not depend on which were held out."""
    if task.validation is None or task.validation_labels is None:
        return task
    parts: list[Any] = [task.source, task.validation]
    rows = sparse.vstack(parts, format="csr") if sparse.issparse(task.source) else np.concatenate(parts)
    labels = np.concatenate([task.labels, task.validation_labels])
    order = np.random.default_rng(len(labels)).permutation(len(labels))
    joined = Task(rows[order], labels[order], task.target, task.n_classes)
    if task.source_domains is not None and task.validation_domains is not None:
        domains = np.concatenate([task.source_domains, task.validation_domains])[order]
        joined = replace(joined, source_domains=domains)
    return replace(joined, target_domains=task.target_domains)


def split_layers(layers: Sequence[Layer]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Return weights and biases as an estimator keeps them."""
    return [layer.weight.astype(np.float32) for layer in layers], [layer.bias.astype(np.float32) for layer in layers]

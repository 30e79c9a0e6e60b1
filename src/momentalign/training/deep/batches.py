"""What a batch holds: inputs and labels of the source, inputs of the target, and its labels only where asked for."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from momentalign.errors import InvalidInputError

__all__ = ["accuracy", "classified", "inputs_of", "joinable", "labelled"]


def labelled(batch: Any, name: str) -> tuple[Any, Tensor]:
    """Return the inputs and the labels of a batch ``(inputs, labels, ...)``."""
    if isinstance(batch, (list, tuple)) and len(batch) >= 2 and isinstance(batch[1], Tensor):
        return batch[0], batch[1]
    raise InvalidInputError(
        f"{name} must give batches (inputs, labels) with labels as a tensor, got {_described(batch)}; "
        "change what its dataset or collate_fn returns."
    )


def inputs_of(batch: Any) -> Any:
    """Return the inputs of a target batch: the batch itself, or the first part of a tuple; the rest is never read."""
    return batch[0] if isinstance(batch, (list, tuple)) and batch else batch


def joinable(source: Any, target: Any) -> bool:
    """Whether the inputs of both domains can go through the network as one batch."""
    both = isinstance(source, Tensor) and isinstance(target, Tensor)
    return both and source.shape[1:] == target.shape[1:] and source.dtype == target.dtype


def classified(outputs: Tensor, labels: Tensor) -> bool:
    """Whether labels are classes, one for every row of outputs (rows, classes)."""
    return outputs.ndim == 2 and labels.ndim == 1 and not labels.is_floating_point()


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the share of rows whose largest output is that of their label.

    Examples
    --------
    >>> import torch
    >>> accuracy(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1]))
    tensor(0.5000)
    """
    return (outputs.detach().argmax(1) == labels).float().mean()


def _described(batch: Any) -> str:
    if isinstance(batch, (list, tuple)):
        return f"a {type(batch).__name__} of {[type(part).__name__ for part in batch]}"
    return f"a {type(batch).__name__} of shape {tuple(batch.shape)}" if isinstance(batch, Tensor) else repr(batch)[:80]

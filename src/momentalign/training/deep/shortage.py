"""What to say when memory runs out in training: the size of the batches, and that the last checkpoint stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from momentalign.errors import InvalidInputError

__all__ = ["speaking_of_batches"]

# What the allocator of the CPU says; that of an accelerator has an error of its own.
WORDS = ("can't allocate memory", "not enough memory", "out of memory")


@contextmanager
def speaking_of_batches(source_loader: Any, target_loader: Any, *, checkpoint: Path | None) -> Iterator[None]:
    """Turn a shortage of memory into a sentence with a remedy; any other error is left as it is.

    Examples
    --------
    >>> loader = torch.utils.data.DataLoader(range(99), batch_size=32)
    >>> with speaking_of_batches(loader, loader, checkpoint=None):
    ...     raise MemoryError
    Traceback (most recent call last):
    ...
    momentalign.errors.InvalidInputError: memory ran out with batches of 32 source and 32 target rows; lower batch_size.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_shortage(error):
            raise
        sizes = [getattr(loader, "batch_size", None) for loader in (source_loader, target_loader)]
        known = all(isinstance(size, int) for size in sizes)
        batches = f"batches of {sizes[0]} source and {sizes[1]} target rows" if known else "these batches"
        kept = "" if checkpoint is None else f" and start again, it goes on from {checkpoint}"
        raise InvalidInputError(f"memory ran out with {batches}; lower batch_size{kept}.") from error


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return any(words in str(error) for words in WORDS)

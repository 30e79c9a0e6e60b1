"""Lightning, or the word on how to get it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import pytorch_lightning as pl
    from lightning_fabric.utilities.warnings import PossibleUserWarning
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("Networks are adapted by Lightning: pip install momentalign[deep]") from error

__all__ = ["interruptible", "pl", "quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back Lightning's advice on settings that were chosen here; warnings of anyone else come through."""
    logger = logging.getLogger(pl.__name__)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=PossibleUserWarning)
            # Lightning's use of torch's trees, which only it can change.
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let ^C leave a Trainer as it leaves anything else, as KeyboardInterrupt.

    Lightning clears up and then exits with code 1.
    """
    try:
        yield
    except SystemExit as left:
        if not isinstance(left.__context__, KeyboardInterrupt):
            raise
        raise KeyboardInterrupt from None

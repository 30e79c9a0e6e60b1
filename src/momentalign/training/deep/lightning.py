"""Lightning, quiet and interruptible, and the state of all random generators that training draws from.

It comes in two packages of the same code, ``lightning`` and ``pytorch_lightning``, and a Trainer of one takes no module
of the other. The modules here are of the one that has been imported first; of ``pytorch_lightning`` where there is a
choice.
"""

from __future__ import annotations

import importlib
import logging
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from momentalign.errors import MissingExtraError

__all__ = [
    "SIGTERMException",
    "first_imported",
    "interruptible",
    "kept_random_state",
    "pl",
    "quiet",
    "random_state",
    "restore_random_state",
    "seed_everything",
]


def first_imported(*names: str) -> Any:
    """Return the module of these that was imported first, else the first one that is installed."""
    for name in [*(name for name in sys.modules if name in names), *names]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error
    raise MissingExtraError.of("Networks are adapted by Lightning", "deep") from missing


if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    pl = first_imported("pytorch_lightning", "lightning.pytorch")

SIGTERMException = importlib.import_module(f"{pl.__name__}.utilities.exceptions").SIGTERMException
PossibleUserWarning = importlib.import_module(f"{pl.__name__}.utilities.warnings").PossibleUserWarning


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


TERMINATED = 143  # what a shell reports of a process that ended on SIGTERM


@contextmanager
def interruptible() -> Iterator[None]:
    """Let ^C leave a Trainer as it leaves anything else, as KeyboardInterrupt, and SIGTERM with its exit code.

    Lightning clears up and then exits with code 1, or raises an error of its own.
    """
    try:
        yield
    except SIGTERMException:
        raise SystemExit(TERMINATED) from None
    except SystemExit as left:
        if not isinstance(left.__context__, KeyboardInterrupt):
            raise
        raise KeyboardInterrupt from None


def random_state() -> dict[str, Any]:
    """Return the state of all generators of this process as tensors and plain numbers; no device is waited for."""
    version, state, gauss = random.getstate()
    _, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    found = {
        "python": [version, torch.tensor(state), gauss],
        "numpy": [torch.from_numpy(np.asarray(keys, np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {**found, "cuda": torch.cuda.get_rng_state()} if in_use else found


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Put all generators back to what :func:`random_state` returned."""
    version, python, gauss = state["python"]
    random.setstate((version, tuple(python.tolist()), gauss))
    keys, *rest = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Leave the generators as they were, whatever is drawn inside.

    Examples
    --------
    >>> with kept_random_state():
    ...     inside = torch.rand(2)
    >>> bool((torch.rand(2) == inside).all())
    True
    """
    state = random_state()
    try:
        yield
    finally:
        restore_random_state(state)


def seed_everything(seed: int) -> None:
    """Start all generators from one seed."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)

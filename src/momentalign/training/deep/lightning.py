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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from momentalign.errors import MissingExtraError

__all__ = ["RandomState", "SIGTERMException", "interruptible", "kept_random_state", "pl", "quiet", "seed_everything"]


def _imported(*names: str) -> Any:
    for name in [*(name for name in sys.modules if name in names), *names]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error
    raise MissingExtraError.of("Networks are adapted by Lightning", "deep") from missing


if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    pl = _imported("pytorch_lightning", "lightning.pytorch")

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


class RandomState(NamedTuple):
    """One moment of all generators of this process."""

    python: tuple[Any, ...]
    numpy: tuple[Any, ...]
    torch: Tensor
    cuda: Tensor | None

    @classmethod
    def now(cls) -> RandomState:
        """Return the state as it is; nothing is drawn and no device is waited for."""
        in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        cuda = torch.cuda.get_rng_state() if in_use else None
        numpy = np.random.get_state(legacy=True)  # noqa: NPY002
        return cls(random.getstate(), tuple(numpy), torch.get_rng_state(), cuda)

    def restore(self) -> None:
        """Put all generators back to this moment."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002
        torch.set_rng_state(self.torch)
        if self.cuda is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.cuda)

    def as_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain numbers, fit for a file."""
        version, state, gauss = self.python
        _, keys, *rest = self.numpy
        plain = {
            "python": [version, torch.tensor(state), gauss],
            "numpy": [torch.from_numpy(keys.astype(np.int64)), *rest],
            "torch": self.torch,
        }
        return plain if self.cuda is None else {**plain, "cuda": self.cuda}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> RandomState:
        """Return the state that :meth:`as_dict` described."""
        version, state, gauss = plain["python"]
        keys, *rest = plain["numpy"]
        return cls(
            (version, tuple(state.tolist()), gauss),
            ("MT19937", keys.numpy().astype(np.uint32), *rest),
            plain["torch"],
            plain.get("cuda"),
        )


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
    state = RandomState.now()
    try:
        yield
    finally:
        state.restore()


def seed_everything(seed: int) -> None:
    """Start all generators from one seed."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)

"""Libraries that not every installation has, asked for where they are used."""

from __future__ import annotations

import importlib
from typing import Any

from momentalign.errors import InvalidInputError

__all__ = ["need"]


def need(module: str, *, extra: str = "tables") -> Any:
    """Return a module, or say what to install.

    Examples
    --------
    >>> need("pyarrow.csv").__name__
    'pyarrow.csv'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise InvalidInputError(
            f"{name} is needed to read this file and is not installed; pip install 'momentalign[{extra}]'."
        ) from error

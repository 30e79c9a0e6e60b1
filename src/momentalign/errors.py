"""The tree of errors; everything momentalign raises on purpose is in it.

MomentAlignError
├── InvalidInputError (ValueError)       an argument has a value that cannot work
│   └── InvalidTypeError (TypeError)     an argument is of a type that cannot work
├── DataNotFoundError (FileNotFoundError)  a benchmark file or a model is not where it was looked for
├── DamagedFileError (ValueError)        a file is there but is not what was written
└── DivergedError (ArithmeticError)      training left the finite numbers

MomentAlignWarning (UserWarning)         something was decided for the caller; the text says what
"""

__all__ = [
    "DamagedFileError",
    "DataNotFoundError",
    "DivergedError",
    "InvalidInputError",
    "InvalidTypeError",
    "MomentAlignError",
    "MomentAlignWarning",
]


class MomentAlignError(Exception):
    """Base of all errors raised on purpose."""


class InvalidInputError(MomentAlignError, ValueError):
    """An argument has a value that cannot work; the message names it and the remedy."""


class InvalidTypeError(InvalidInputError, TypeError):
    """An argument is of a type that cannot work."""


class DataNotFoundError(MomentAlignError, FileNotFoundError):
    """A file is not where it was looked for; the message says how to get it."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DamagedFileError(MomentAlignError, ValueError):
    """A file is there but is not what was written: wrong digest, schema, shape or values."""


class DivergedError(MomentAlignError, ArithmeticError):
    """Training left the finite numbers; the message says which loss, when, and what to lower."""


class MomentAlignWarning(UserWarning):
    """Something was decided for the caller; the message says what."""

"""The tree of errors; everything momentalign raises on purpose is in it.

MomentAlignError
├── InvalidInputError (ValueError)       an argument has a value that cannot work
│   └── InvalidTypeError (TypeError)     an argument is of a type that cannot work
├── DataNotFoundError (FileNotFoundError)  a benchmark file or a model is not where it was looked for
├── DamagedFileError (ValueError)        a file is there but is not what was written
├── MissingExtraError (ModuleNotFoundError)  a library that an extra brings is not installed
└── DivergedError (ArithmeticError)      training left the finite numbers

MomentAlignWarning (UserWarning)         something was decided for the caller; the text says what

Messages are one line that any terminal can show: names of files and columns in them may hold anything.
"""

from typing import Self
from unicodedata import category

__all__ = [
    "DamagedFileError",
    "DataNotFoundError",
    "DivergedError",
    "InvalidInputError",
    "InvalidTypeError",
    "MissingExtraError",
    "MomentAlignError",
    "MomentAlignWarning",
    "printable",
]


_LONGEST = 1500


def printable(text: str) -> str:
    r"""Return a text as one line of at most 1,500 letters, without anything that a terminal would obey.

    Examples
    --------
    >>> printable("a\x1b[31m\nb")
    'a\\x1b[31m b'
    """
    line = " ".join(text.split()) if "\n" in text or "\r" in text else text
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - 300]} ... {line[-300:]}"
    # Not even a space is printable to Python unless it is " "; the one before a percent sign is another.
    return "".join(c if c.isprintable() or category(c) == "Zs" else repr(c)[1:-1] for c in line)


class MomentAlignError(Exception):
    """Base of all errors raised on purpose."""

    def __init__(self, message: str = "", *more: object) -> None:
        super().__init__(*([printable(message), *more] if message else more))


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


class MissingExtraError(MomentAlignError, ModuleNotFoundError):
    """A library that an extra brings is not installed; the message names the command that installs it."""

    @classmethod
    def of(cls, need: str, extra: str) -> Self:
        """Return the error of what needs an extra, as in ``of("plot() needs matplotlib", "deep")``."""
        return cls(f'{need}: pip install ".[{extra}]" in a checkout of momentalign.')


class DivergedError(MomentAlignError, ArithmeticError):
    """Training left the finite numbers; the message says which loss, when, and what to lower."""


class MomentAlignWarning(UserWarning):
    """Something was decided for the caller; the message says what."""

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))

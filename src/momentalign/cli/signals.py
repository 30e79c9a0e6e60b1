"""^C and SIGTERM: both interrupt a command, which saves what is finished; the exit code says which it was."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["INTERRUPTED", "came_of_interruption", "hear_termination", "interrupted_code"]

INTERRUPTED, TERMINATED = 130, 143

_heard: list[int] = []


def hear_termination() -> None:
    """Let SIGTERM, with which systems stop a process, do what ^C does."""
    signal.signal(signal.SIGTERM, _interrupt)


def interrupted_code() -> int:
    """Return the exit code of a command that was interrupted: 143 after SIGTERM, else 130."""
    return TERMINATED if _heard else INTERRUPTED


def came_of_interruption(error: BaseException) -> bool:
    """Return whether an error came up while something was cleared up after an interruption.

    Examples
    --------
    >>> came_of_interruption(RuntimeError("a pool that has not started cannot be stopped"))
    False
    """
    earlier = error.__context__
    return isinstance(error, KeyboardInterrupt) or (earlier is not None and came_of_interruption(earlier))


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _heard.append(number)
    raise KeyboardInterrupt

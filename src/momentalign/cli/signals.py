"""^C and SIGTERM: both interrupt a command, which saves what is finished; the exit code says which it was."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["INTERRUPTED", "hear_termination", "interrupted_code"]

INTERRUPTED, TERMINATED = 130, 143

_heard: list[int] = []


def hear_termination() -> None:
    """Let SIGTERM, with which systems stop a process, do what ^C does."""
    signal.signal(signal.SIGTERM, _interrupt)


def interrupted_code() -> int:
    """Return the exit code of a command that was interrupted: 143 after SIGTERM, else 130."""
    return TERMINATED if _heard else INTERRUPTED


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _heard.append(number)
    raise KeyboardInterrupt

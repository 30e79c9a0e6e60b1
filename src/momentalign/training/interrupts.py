"""Compilation that can be interrupted: ^C and SIGTERM are heard between the compiler's passes.

Amid a pass the compiler is called back by LLVM, and an exception that a signal's handler raises in such a call is lost:
the process would go on as if nobody had asked it to stop, or fail with an error of the compiler.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["heard_between_passes"]

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def heard_between_passes() -> Iterator[None]:
    """Hold signals back while numba compiles, and let their usual handlers have them before its next pass.

    On another thread than the main one, which alone hears signals, nothing is changed.
    """
    from numba.core import event

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers: dict[int, Handler] = {number: handler for number, handler in usual.items() if callable(handler)}
    held: list[int] = []

    def let_go() -> None:
        while held:
            number = held.pop(0)
            handlers[number](number, None)

    class Passes(event.Listener):
        def on_start(self, _event: Any) -> None:
            let_go()

        def on_end(self, _event: Any) -> None:
            """Nothing: what an end raised would replace an error of the pass."""

    try:
        for number in handlers:
            signal.signal(number, lambda number, _frame: held.append(number))
        with event.install_listener("numba:run_pass", Passes()):
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    let_go()

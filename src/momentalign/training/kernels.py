"""Compiled functions that other compiled loops call as they would call a library in C, and how they are compiled.

A loop that calls another compiled loop is compiled along with it, in every loop that calls it once more. A kernel is
compiled by itself, once: kernels that call it by its name know its signature alone, and one that is given an address
is compiled once for all kernels of a signature.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from types import FrameType
from typing import Any, TypeAlias

from llvmlite import ir
from llvmlite.binding import add_symbol
from numba import config, types
from numba.core import cgutils, event
from numba.core.ccallback import CFunc
from numba.core.typing.templates import ConcreteTemplate
from numba.extending import lower_builtin

from momentalign.moments.compile_cache import compile_cache

__all__ = [
    "FLOATS",
    "INTEGERS",
    "MATRIX",
    "VECTOR",
    "WIDE",
    "Array",
    "Kernel",
    "compiling",
    "entry_point",
    "heard_between_passes",
    "kernel",
    "named_tuple",
]

Array: TypeAlias = Any  # a numpy array; the loops are compiled for float32 and whole numbers
Handler: TypeAlias = Callable[[int, FrameType | None], Any]

MATRIX, VECTOR = types.Array(types.float32, 2, "C"), types.Array(types.float32, 1, "C")
WIDE, FLOATS = types.Array(types.float64, 2, "C"), types.Array(types.float64, 1, "C")
INTEGERS = types.Array(types.int64, 1, "C")


class Kernel:
    """A function that is compiled by itself, and only where it is needed; other loops call it by name or address."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self._function, self._signature = getattr(function, "py_func", function), signature
        self.kind = types.FunctionType(signature)
        function_type: Any = types.Function
        lowered_by: Any = lower_builtin
        # What numba takes a kernel for that a loop calls by its name, and how it writes the call.
        self._numba_type_ = function_type(type("Call", (ConcreteTemplate,), {"key": self, "cases": [signature]}))
        lowered_by(self, *signature.args)(self._lower_call)

    @cached_property
    def compiled(self) -> Any:
        """What a loop is given; compiled at first, or read from numba's cache."""
        if vars(config)["DISABLE_JIT"]:
            return self._function
        # Machine code that is read from the cache is linked with what it calls by name.
        _compile_called(self._function)
        options = {"nopython": True, "error_model": "numpy", "fastmath": {"contract"}}
        signature = self._signature.args, self._signature.return_type
        found: Any = CFunc(self._function, signature, locals={}, options=options)
        found._cache = compile_cache(self._function)
        found.compile()
        add_symbol(self._symbol, found.address)
        return found

    @property
    def _symbol(self) -> str:
        return f"{self._function.__module__}.{self._function.__name__}"

    def _lower_call(self, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Write the call of what another library defines, for numba's compiler."""
        types_ = [context.get_value_type(kind) for kind in signature.args]
        function = ir.FunctionType(context.get_value_type(signature.return_type), types_)
        declare: Any = cgutils.get_or_insert_function
        return builder.call(declare(builder.module, function, self._symbol), arguments)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function as the Python it is written in, where nothing is compiled."""
        return self._function(*arguments)


def _compile_called(function: Callable[..., Any]) -> None:
    """Compile the kernels that a function, or a loop it is compiled with, calls by their names."""
    for name in function.__code__.co_names:
        called: Any = function.__globals__.get(name)
        if isinstance(called, Kernel):
            called.compiled  # noqa: B018
        elif hasattr(called, "py_func"):
            _compile_called(called.py_func)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a :class:`Kernel` of this signature."""
    return lambda function: Kernel(function, signature)


def named_tuple(kind: type, *members: Any) -> Any:
    """Return the type of a named tuple by those of its members."""
    tuples: Any = types.BaseTuple
    return tuples.from_types(members, kind)


def entry_point(loop: Any, *kinds: Any) -> Any:
    """Return a compiled loop for arguments of these types; calls of it do not look at the types.

    With dozens of arrays in named tuples, looking takes longer than a small epoch.
    """
    if vars(config)["DISABLE_JIT"]:
        return loop
    _compile_called(loop.py_func)
    return loop.compile(kinds)


@contextmanager
def compiling() -> Iterator[None]:
    """Compile inside: it is announced, a signal is heard between passes, and no garbage is collected.

    Looking through all objects again and again would take a tenth of a compilation.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with event.install_listener("numba:run_pass", _BeforePass(_announce)), heard_between_passes():
            yield
    finally:
        if collects:
            gc.enable()


@cache
def _announce() -> None:
    """Say once in a process that loops are compiled; those that are read from numba's cache have no passes."""
    logging.getLogger("momentalign").warning("compiling the training loops, once on this machine (some seconds)")


class _BeforePass(event.Listener):
    """Calls a function before each pass of the compiler."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def on_start(self, _event: Any) -> None:
        self._function()

    def on_end(self, _event: Any) -> None:
        """Nothing: what an end raised would replace an error of the pass."""


@contextmanager
def heard_between_passes() -> Iterator[None]:
    """Hold signals back while numba compiles, and let their usual handlers have them before its next pass.

    Amid a pass the compiler is called back by LLVM, and an exception that a signal's handler raises in such a call is
    lost: the process would go on as if nobody had asked it to stop, or fail with an error of the compiler. On another
    thread than the main one, which alone hears signals, nothing is changed.
    """
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

    try:
        for number in handlers:
            signal.signal(number, lambda number, _frame: held.append(number))
        with event.install_listener("numba:run_pass", _BeforePass(let_go)):
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    let_go()

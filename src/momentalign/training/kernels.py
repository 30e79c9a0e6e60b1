"""Compiled functions that other compiled loops call as they would call a library in C.

A loop that calls another compiled loop is compiled along with it, in every loop that calls it once more. A kernel is
compiled by itself, once: kernels that call it by its name know its signature alone, and one that is given an address
is compiled once for all kernels of a signature.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from llvmlite import ir
from llvmlite.binding import add_symbol
from numba import config, typeof, types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.core.typing.templates import ConcreteTemplate
from numba.extending import lower_builtin

from momentalign.moments.compile_cache import compile_cache

__all__ = ["MATRIX", "VECTOR", "Kernel", "compile_called", "entry_point", "kernel", "named_tuple"]

MATRIX, VECTOR = types.Array(types.float32, 2, "C"), types.Array(types.float32, 1, "C")


class Kernel:
    """A function that is compiled by itself, and only where it is needed; other loops call it by name or address."""

    def __init__(self, function: Callable[..., Any], kind: Any) -> None:
        self._function, self._kind = getattr(function, "py_func", function), kind
        function_type: Any = types.Function
        lowered_by: Any = lower_builtin
        # What numba takes a kernel for that a loop calls by its name, and how it writes the call.
        self._numba_type_ = function_type(type("Call", (ConcreteTemplate,), {"key": self, "cases": [kind]}))
        lowered_by(self, *kind.args)(self._lower_call)

    @cached_property
    def compiled(self) -> Any:
        """What a loop is given; compiled at first, or read from numba's cache."""
        if vars(config)["DISABLE_JIT"]:
            return self._function
        # Machine code that is read from the cache is linked with what it calls by name.
        compile_called(self._function)
        options = {"nopython": True, "error_model": "numpy", "fastmath": {"contract"}}
        found: Any = CFunc(self._function, (self._kind.args, self._kind.return_type), locals={}, options=options)
        found._cache = compile_cache(self._function)
        found.compile()
        add_symbol(self._symbol, found.address)
        return found

    @property
    def _symbol(self) -> str:
        return f"{self._function.__module__}.{self._function.__name__}"

    def _lower_call(self, context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        """Write the call of what another library defines, for numba's compiler."""
        types_ = [context.get_value_type(kind) for kind in self._kind.args]
        function = ir.FunctionType(context.get_value_type(self._kind.return_type), types_)
        declare: Any = cgutils.get_or_insert_function
        return builder.call(declare(builder.module, function, self._symbol), arguments)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function as the Python it is written in, where nothing is compiled."""
        return self._function(*arguments)


def compile_called(function: Callable[..., Any]) -> None:
    """Compile the kernels that a function, or a loop it is compiled with, calls by their names."""
    for name in function.__code__.co_names:
        called: Any = function.__globals__.get(name)
        if isinstance(called, Kernel):
            called.compiled  # noqa: B018
        elif hasattr(called, "py_func"):
            compile_called(called.py_func)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a :class:`Kernel` of this signature."""
    return lambda function: Kernel(function, signature)


def named_tuple(kind: type, *members: Any) -> Any:
    """Return the type of a named tuple by those of its members."""
    tuples: Any = types.BaseTuple
    return tuples.from_types(members, kind)


def entry_point(loop: Any, *arguments: Any) -> Any:
    """Return a compiled loop for arguments of these types; calls of it do not look at the types again.

    With dozens of arrays in named tuples, looking takes longer than a small epoch.
    """
    if vars(config)["DISABLE_JIT"]:
        return loop
    compile_called(loop.py_func)
    return loop.compile(tuple(map(typeof, arguments)))

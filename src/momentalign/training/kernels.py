"""Compiled functions that other compiled loops call by their address.

A loop that calls another is compiled along with it. One that is given an address is compiled once for all kernels of
a signature, and a kernel only where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from numba import cfunc, config, typeof, types

__all__ = ["MATRIX", "VECTOR", "Kernel", "entry_point", "kernel", "named_tuple"]

MATRIX, VECTOR = types.Array(types.float32, 2, "C"), types.Array(types.float32, 1, "C")


class Kernel:
    """A function that is compiled by itself, and only where it is needed; other loops call it by its address."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self._function, self._signature = function, signature

    @cached_property
    def compiled(self) -> Any:
        """What a loop is given; compiled at first, or read from numba's cache."""
        if vars(config)["DISABLE_JIT"]:
            return self._function
        compiler: Any = cfunc
        options = {"nopython": True, "error_model": "numpy", "fastmath": {"contract"}}
        return compiler(self._signature, cache=True, **options)(self._function)


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
    return loop if vars(config)["DISABLE_JIT"] else loop.compile(tuple(map(typeof, arguments)))

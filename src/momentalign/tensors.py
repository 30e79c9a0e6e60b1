"""The tensors of a safetensors file, as arrays that share its memory; nothing is copied and nothing is trusted.

The format: the length of a header in eight bytes, the header in JSON, then the numbers. Tensors must follow each other
without a gap or an overlap up to the last byte, and no name may stand twice, so that every reader sees the same.
"""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

__all__ = ["LENGTH", "TYPES", "read_header", "strict_json", "unpack_tensors"]

# Types that numpy has too.
TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip
LENGTH = 8  # bytes of the header's length
METADATA = "__metadata__"


def unpack_tensors(packed: bytearray) -> dict[str, NDArray[Any]]:
    """Return the arrays of a safetensors file by their names; they share its memory.

    Examples
    --------
    >>> from safetensors.numpy import save
    >>> unpack_tensors(bytearray(save({"bias": np.arange(3.0)})))
    {'bias': array([0., 1., 2.])}
    """
    header, start = read_header(packed)
    header.pop(METADATA, None)
    arrays: dict[str, NDArray[Any]] = {}
    position = 0
    for name, entry in sorted(header.items(), key=lambda item: _offsets(*item)):
        begin, end = _offsets(name, entry)
        if begin != position:
            raise ValueError(f"tensor {name!r:.80} does not begin where the one before it ends")
        arrays[name] = _window(packed, start, name, entry)
        position = end
    if start + position != len(packed):
        raise ValueError(f"its tensors take {position} bytes of {len(packed) - start}")
    return arrays


def read_header(packed: bytes | bytearray) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file and where its numbers begin; `packed` may end there."""
    start = LENGTH + int.from_bytes(packed[:LENGTH], "little")
    if not LENGTH < start <= len(packed):
        raise ValueError(f"its header should take {start - LENGTH} of {len(packed)} bytes")
    header = strict_json(packed[LENGTH:start])
    if not isinstance(header, dict):
        raise ValueError("its header names no tensors")
    return header, start


def strict_json(content: bytes | bytearray) -> Any:
    """Read JSON that means the same to every reader: no name twice, finite numbers, any nesting or a ValueError."""
    try:
        text = content.decode("utf-8")
        return json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice")
    return result


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _offsets(name: str, entry: Any) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not (_are_sizes(offsets) and len(offsets) == 2):
        raise ValueError(f"tensor {name!r:.80} has no beginning and end")
    return offsets[0], offsets[1]


def _window(packed: bytearray, start: int, name: str, entry: dict[str, Any]) -> NDArray[Any]:
    shape, kind, (begin, end) = entry.get("shape"), entry.get("dtype"), _offsets(name, entry)
    if not (isinstance(kind, str) and kind in TYPES and _are_sizes(shape)):
        raise ValueError(f"tensor {name!r:.80} has no type and shape that are known")
    dtype = np.dtype(TYPES[kind])
    if math.prod(shape) * dtype.itemsize != end - begin or start + end > len(packed):
        raise ValueError(f"tensor {name!r:.80} has another size than its shape says")
    values = np.frombuffer(packed, dtype, math.prod(shape), start + begin if end > begin else 0)
    return np.require(values.reshape(shape), requirements="A")


def _are_sizes(numbers: Any) -> TypeGuard[list[int]]:
    return isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)

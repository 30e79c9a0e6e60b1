"""Weights in files of torch, read without running them: a closed reader for the pickles of state dicts.

A ``.pth`` file holds a pickle, and a pickle is a program: whoever loads it runs it. Here it is only read. Of its
instructions those that a dictionary of tensors needs are known, of the names it may call five functions and the types
of numbers, and none of them is imported: they stand for what this file does itself. Anything else is refused by name.

Both layouts are read: the archive of torch 1.6 and later (a zip file with ``data.pkl`` and one member per storage),
and the older one (five pickles, then the storages one after the other). Safetensors files need no such care.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from momentalign.errors import DamagedFileError, DataNotFoundError

__all__ = ["read_weights"]

Arrays: TypeAlias = dict[str, NDArray[Any]]

MAGIC, LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
STORAGES = {
    "torch DoubleStorage": "<f8",
    "torch FloatStorage": "<f4",
    "torch HalfStorage": "<f2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
    "torch ShortStorage": "<i2",
    "torch CharStorage": "i1",
    "torch ByteStorage": "u1",
    "torch BoolStorage": "?",
}
MAPPING = "collections OrderedDict"
TENSOR, OLD_TENSOR = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor"
PARAMETER = "torch._utils _rebuild_parameter"
KNOWN = frozenset({*STORAGES, MAPPING, TENSOR, OLD_TENSOR, PARAMETER})
REMEDY = "save the state dict alone, as safetensors"


def read_weights(path: str | Path) -> Arrays:
    """Return the arrays of a state dict by their names, from a ``.safetensors`` or a torch file.

    Parameters
    ----------
    path
        The file. Its content, not its name, decides how it is read.

    Examples
    --------
    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"bias": torch.arange(3.0)}, f"{folder}/weights.pth")
    ...     read_weights(f"{folder}/weights.pth")
    {'bias': array([0., 1., 2.], dtype=float32)}
    """
    place = Path(path)
    if not place.is_file():
        raise DataNotFoundError(f"{place} is not there; give a file of weights, .safetensors or .pth.")
    content = place.read_bytes()
    try:
        return _read(content)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedFileError(f"{place} cannot be read as a dictionary of tensors ({error}); {REMEDY}.") from error


def _read(content: bytes) -> Arrays:
    if content.startswith(b"PK"):
        return _tensors(*_archive(content))
    if content.startswith(b"\x80"):
        return _tensors(*_legacy(content))
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(content)
    except SafetensorError as error:
        raise ValueError(f"it is neither a file of torch nor of safetensors: {error}") from error


class _Name(NamedTuple):
    """A name that a pickle asks for; it is never looked up."""

    words: str


class _Storage(NamedTuple):
    """Numbers in a row, wherever they stand."""

    dtype: np.dtype[Any]
    key: str
    length: int


class _Tensor(NamedTuple):
    """A window on a storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Mark:
    """Where a sequence begins on the stack."""


def _archive(content: bytes) -> tuple[Any, Callable[[_Storage], bytes]]:
    """The pickled value and the storages of the newer layout."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    members = {info.filename: info for info in archive.infolist()}
    (pickled,) = [name for name in members if name.endswith("/data.pkl")] or [""]
    if not pickled:
        raise ValueError("it holds no data.pkl")
    folder = pickled.removesuffix("data.pkl")

    def member(name: str) -> bytes:
        # torch stores members as they are; what is packed could unfold without end.
        if members[name].compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"its member {name} is compressed")
        return archive.read(name)

    order = f"{folder}byteorder"
    if order in members and member(order) != b"little":
        raise ValueError("its numbers are not little-endian")
    return _interpret(io.BytesIO(member(pickled))), lambda storage: member(f"{folder}data/{storage.key}")


def _legacy(content: bytes) -> tuple[Any, Callable[[_Storage], bytes]]:
    """The pickled value and the storages of the older layout."""
    stream = io.BytesIO(content)
    if (_interpret(stream), _interpret(stream)) != (MAGIC, LEGACY_PROTOCOL):
        raise ValueError("it does not begin as a file of torch")
    system = _interpret(stream)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ValueError("its numbers are not little-endian")
    value, keys = _interpret(stream), _interpret(stream)
    storages = {tensor.storage.key: tensor.storage for tensor in _named(value).values()}
    parts = {}
    for key in keys:
        storage = storages[key]
        if int.from_bytes(stream.read(8), "little", signed=True) != storage.length:
            raise ValueError(f"its storage {key} has another length than its tensor says")
        parts[key] = stream.read(storage.length * storage.dtype.itemsize)
    return value, lambda storage: parts[storage.key]


def _tensors(value: Any, read: Callable[[_Storage], bytes]) -> Arrays:
    return {name: _array(tensor, read(tensor.storage)) for name, tensor in _named(value).items()}


def _named(value: Any) -> Mapping[str, _Tensor]:
    """The tensors of a state dict, which may stand in a dictionary of its own."""
    if isinstance(value, dict) and isinstance(value.get("state_dict"), dict):
        value = value["state_dict"]
    if not isinstance(value, dict) or not value:
        raise ValueError(f"it holds {type(value).__name__}, not a dictionary of tensors")
    for name, tensor in value.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise ValueError(f"its entry {name!r:.80} is no tensor")
    return value


def _array(tensor: _Tensor, content: bytes) -> NDArray[Any]:
    """The numbers of a tensor, copied out of its storage; what would reach beyond it is refused."""
    storage, offset, shape, strides = tensor
    if len(content) != storage.length * storage.dtype.itemsize:
        raise ValueError(f"its storage {storage.key} has {len(content)} bytes for {storage.length} numbers")
    size = math.prod(shape)
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    # A window larger than its storage would repeat numbers, as often as a hostile file likes.
    if min(offset, *shape, *strides, 0) < 0 or size > storage.length or (size and last >= storage.length):
        raise ValueError(f"a tensor of shape {shape} reaches beyond its storage of {storage.length} numbers")
    flat = np.frombuffer(content, dtype=storage.dtype)[offset:]
    window = np.lib.stride_tricks.as_strided(flat, shape, [stride * storage.dtype.itemsize for stride in strides])
    return np.array(window)


def _interpret(stream: io.BytesIO) -> Any:
    """The value of the next pickle of a stream, made of numbers, words, sequences, dictionaries and tensors."""
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(stream):
        machine.step(opcode.name, argument)
    (value,) = machine.stack
    return value


class _Machine:
    """The part of the pickle machine that builds plain values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Follow one instruction, or refuse it."""
        if name in VALUES:
            self.stack.append(argument)
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name]())
        elif name in TUPLES:
            self._push(tuple(self._pop() for _ in range(TUPLES[name]))[::-1])
        elif name in ACTIONS:
            ACTIONS[name](self, argument)
        else:
            raise ValueError(f"it asks for {name}, which a dictionary of tensors does not need")

    def _push(self, value: Any) -> None:
        self.stack.append(value)

    def _pop(self) -> Any:
        if not self.stack or isinstance(self.stack[-1], _Mark):
            raise ValueError("it takes more than it has laid down")
        return self.stack.pop()

    def _since_mark(self) -> list[Any]:
        items = []
        while self.stack and not isinstance(self.stack[-1], _Mark):
            items.append(self.stack.pop())
        if not self.stack:
            raise ValueError("it ends a sequence that it did not begin")
        self.stack.pop()
        return items[::-1]

    def tuple(self, _: Any) -> None:
        self._push(tuple(self._since_mark()))

    def put(self, place: int) -> None:
        self._memo[place] = self.stack[-1]

    def get(self, place: int) -> None:
        self._push(self._memo[place])

    def name(self, words: str) -> None:
        if words not in KNOWN:
            raise ValueError(f"it asks for {words.replace(' ', '.')}, which is not run here")
        self._push(_Name(words))

    def set_item(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._dictionary()[key] = value

    def set_items(self, _: Any) -> None:
        items = self._since_mark()
        self._dictionary().update(zip(items[::2], items[1::2], strict=True))

    def extend(self, _: Any) -> None:
        items = self._since_mark()
        self._sequence().extend(items)

    def append(self, _: Any) -> None:
        item = self._pop()
        self._sequence().append(item)

    def storage(self, _: Any) -> None:
        """A storage is named by a tuple: kind, type, key, device, length, and in the older layout a view."""
        kind, dtype, key, _device, length, *view = self._pop()
        if kind != "storage" or not isinstance(dtype, _Name) or dtype.words not in STORAGES or any(view):
            raise ValueError(f"it names a storage of a kind that is not known: {kind!r:.40} {dtype!r:.80}")
        self._push(_Storage(np.dtype(STORAGES[dtype.words]), str(key), _whole(length)))

    def call(self, _: Any) -> None:
        arguments, function = self._pop(), self._pop()
        self._push(_called(function, arguments))

    def build(self, _: Any) -> None:
        """The attributes of a dictionary, versions of modules, are of no use here."""
        self._pop()
        self._dictionary()

    def _dictionary(self) -> dict[Any, Any]:
        if not isinstance(self.stack[-1], dict):
            raise ValueError("it changes something that is no dictionary")
        return self.stack[-1]

    def _sequence(self) -> list[Any]:
        if not isinstance(self.stack[-1], list):
            raise ValueError("it extends something that is no list")
        return self.stack[-1]


def _called(function: Any, arguments: Any) -> Any:
    """What a known name stands for, with arguments; nothing is imported."""
    words = function.words if isinstance(function, _Name) else repr(function)[:80]
    if words == MAPPING and arguments == ():
        return {}
    if words in (TENSOR, OLD_TENSOR):
        storage, offset, shape, strides, *_ = arguments
        if isinstance(storage, _Storage):
            return _Tensor(storage, _whole(offset), tuple(map(_whole, shape)), tuple(map(_whole, strides)))
    if words == PARAMETER and isinstance(arguments[0], _Tensor):
        return arguments[0]
    raise ValueError(f"it calls {words} in a way that is not known")


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise TypeError(f"{number!r:.40} stands where a whole number should")
    return number


VALUES = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"})
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "MARK": _Mark,
}  # fmt: skip
ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda _machine, _version: None,
    "STOP": lambda _machine, _nothing: None,
    "TUPLE": _Machine.tuple, "BINPUT": _Machine.put, "LONG_BINPUT": _Machine.put,
    "BINGET": _Machine.get, "LONG_BINGET": _Machine.get, "GLOBAL": _Machine.name,
    "SETITEM": _Machine.set_item, "SETITEMS": _Machine.set_items, "APPEND": _Machine.append, "APPENDS": _Machine.extend,
    "BINPERSID": _Machine.storage, "REDUCE": _Machine.call, "BUILD": _Machine.build,
}  # fmt: skip
"""What the machine can do; the rest of pickle, and all that imports or runs, is missing on purpose."""

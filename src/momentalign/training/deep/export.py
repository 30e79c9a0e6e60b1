"""Exporting a model: its weights as safetensors, the network as ONNX; each file is whole or not there.

Weights carry a digest over all names, types, shapes and numbers. It is checked, and the weights are compared with the
network by name, before the network is changed. An ONNX file is written after onnxruntime has given the same outputs.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import logging
import math
import struct
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from momentalign.errors import (
    DamagedFileError,
    DataNotFoundError,
    InvalidInputError,
    InvalidTypeError,
    MissingExtraError,
)
from momentalign.files import check_path, replace_file
from momentalign.tensors import LENGTH, read_header

__all__ = ["export_onnx", "load_weights", "need_onnx", "save_weights", "write_content"]

DIGEST = "momentalign_sha256"
ROWS_TRIED = (1, 2, 5)
TOLERANCE, HALF_TOLERANCE = 1e-4, 1e-2
# What torch.onnx says about torch's own files; the last two about recurrent layers.
OF_TORCH_ITSELF = (
    (".*LeafSpec", FutureWarning),
    (".*_check_is_size", FutureWarning),
    (".*_flat_weights.* were assigned during export", UserWarning),
)
ONNX_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")


def save_weights(model: nn.Module, path: str | Path) -> None:
    """Write weights and buffers of a network to a safetensors file, replacing what was there in one step.

    Any program that reads safetensors can read it; :func:`load_weights` knows whether it is as it was written.

    Examples
    --------
    >>> import tempfile
    >>> network, other = nn.Linear(2, 3), nn.Linear(2, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(network, f"{folder}/network.safetensors")
    ...     load_weights(other, f"{folder}/network.safetensors")
    >>> bool((other.weight == network.weight).all())
    True
    """
    from safetensors.torch import save

    tensors = {}
    for name, value in _state(model).items():
        # Tied weights share memory, which the format does not know.
        tensors[name] = value.detach().cpu().contiguous().clone()
    write_content(path, save(tensors, {"format": "pt", DIGEST: _digest(tensors)}))


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Read what :func:`save_weights` wrote into a network of the same structure, or raise and change nothing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(nn.Linear(2, 3), f"{folder}/small.safetensors")
    ...     load_weights(nn.Linear(4, 3), f"{folder}/small.safetensors")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    momentalign.errors.InvalidInputError: 'weight' is ...
    """
    tensors = _read(check_path(path))
    state = _state(model)
    remedy = "build the model as it was when it was saved."
    for name in [*state, *tensors]:
        if name not in tensors:
            raise InvalidInputError(f"{name!r} of the model is not in {path}; {remedy}")
        if name not in state:
            raise InvalidInputError(f"{name!r} in {path} is not in the model; {remedy}")
        found, own = tensors[name], state[name]
        if found.shape != own.shape or found.dtype != own.dtype:
            raise InvalidInputError(
                f"{name!r} is {_described(found)} in {path}, in the model {_described(own)}; {remedy}"
            )
    model.load_state_dict(tensors)


def export_onnx(model: nn.Module, example: Tensor, path: str | Path) -> None:
    """Write a network in eval mode to an ONNX file that takes any number of rows; the network is not touched.

    The file is written only if onnxruntime gives the same outputs for several numbers of rows, up to 1e-4 of the
    largest (1e-2 in half precision). The graph's input is called ``inputs``, its output ``outputs``.

    Parameters
    ----------
    model
        A network from one tensor to one tensor; rows come first.
    example
        Some rows of inputs.
    path
        Where to write.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(nn.Linear(2, 3), torch.zeros(4, 2), f"{folder}/network.onnx")
    ...     Path(f"{folder}/network.onnx").is_file()
    True
    """
    need_onnx()
    _need_module(model)
    if not isinstance(example, Tensor) or example.ndim < 1 or len(example) == 0:
        raise InvalidTypeError(f"example must be a tensor with at least one row of inputs, got {example!r:.80}.")
    network = copy.deepcopy(model).cpu().eval().requires_grad_(False)
    inputs = example.detach().cpu()
    _refuse_type(inputs, "example")
    _refuse_type(_outputs(network, inputs), "the output of model")
    graph = _graph(network, inputs)
    session = _session(graph, network)
    for rows in ROWS_TRIED:
        _check_outputs(session, network, _repeated(inputs, rows))
    write_content(path, graph)


def _need_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidTypeError(f"model must be a torch.nn.Module, got {model!r:.80}.")


def _state(model: nn.Module) -> dict[str, Tensor]:
    _need_module(model)
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InvalidTypeError(
                f"{name!r} in the model's state is {type(value).__name__}, files hold tensors only; keep it elsewhere."
            )
    return state


def _digest(tensors: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        title = f"{name}\n{value.dtype}\n{tuple(value.shape)}".encode()
        # The length keeps two names from being read as one.
        total.update(struct.pack("<Q", len(title)) + title)
        total.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise DataNotFoundError(f"there is no file {path}; give the path that save_weights() was given.")
    try:
        # The library takes the last of two tensors with one name; other readers may take the first.
        with path.open("rb") as content:
            head = content.read(LENGTH)
            read_header(head + content.read(min(int.from_bytes(head, "little"), path.stat().st_size)))
        with safe_open(path, framework="pt") as file:
            digest = (file.metadata() or {}).get(DIGEST)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, TypeError, RuntimeError, OSError) as error:
        raise DamagedFileError(f"{path} is not a safetensors file ({error}); save the weights again.") from error
    if digest is None:
        raise DamagedFileError(
            f"{path} has no digest, so save_weights() did not write it; read it with safetensors.torch.load_file."
        )
    if _digest(tensors) != digest:
        raise DamagedFileError(f"{path} is damaged: its weights do not match its digest; save them again.")
    return tensors


def _described(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


def write_content(path: str | Path, content: bytes) -> None:
    """Write the content of a file whole or not at all."""
    try:
        replace_file(check_path(path), content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(f"{path} cannot be written ({reason}); give a path in a folder that can be.") from error


def need_onnx() -> None:
    """Say how to install what writes and checks ONNX files, where it is missing."""
    for name in ONNX_LIBRARIES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise MissingExtraError.of(f"ONNX files need {name}", "onnx") from error


@torch.no_grad()
def _outputs(network: nn.Module, inputs: Tensor) -> Tensor:
    outputs = network(inputs)
    if isinstance(outputs, Tensor):
        return outputs
    raise InvalidTypeError(
        f"model must return one tensor, got {type(outputs).__name__}; wrap it so that it returns its logits."
    )


def _refuse_type(values: Tensor, name: str) -> None:
    """Raise an error for numbers of a type that onnxruntime cannot be given or give."""
    try:
        values.numpy()
    except TypeError as error:
        raise InvalidTypeError(
            f"{name} is {_described(values)}, a type that cannot be checked in onnxruntime; "
            "give model.float() and example.float()."
        ) from error


def _repeated(inputs: Tensor, rows: int) -> Tensor:
    """So many rows, over and over."""
    return inputs[torch.arange(rows) % len(inputs)]


def _graph(network: nn.Module, inputs: Tensor) -> bytes:
    """The network as the content of an ONNX file."""
    try:
        with _quiet():
            program = torch.onnx.export(
                network,
                (inputs,),
                dynamo=True,
                verbose=False,
                input_names=["inputs"],
                output_names=["outputs"],
                dynamic_shapes=({0: "rows"},),
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise InvalidInputError(
            f"model {type(network).__name__} has no form in ONNX for every number of rows ({_reason(error)}); "
            "change the part named there."
        ) from error
    if program is None:
        raise AssertionError("torch.onnx.export with dynamo returns a program")
    proto = program.model_proto
    _forget_origin(proto.graph)
    return bytes(proto.SerializeToString(deterministic=True))


def _reason(error: BaseException) -> str:
    """The first line of the first cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]:.200}"


def _forget_origin(graph: Any) -> None:
    """Leave out the metadata that says in whose files a node was made."""
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer, *graph.value_info):
        part.ClearField("metadata_props")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _forget_origin(attribute.g)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back torch's warnings about its own code and about libraries that are not needed."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for message, category in OF_TORCH_ITSELF:
                warnings.filterwarnings("ignore", message=message, category=category)
            yield
    finally:
        logger.setLevel(level)


def _session(graph: bytes, network: nn.Module) -> Any:
    from onnxruntime import InferenceSession, SessionOptions
    from onnxruntime.capi.onnxruntime_pybind11_state import (
        Fail,
        InvalidGraph,
        RuntimeException,
    )
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Unsupported

    options = SessionOptions()
    options.log_severity_level = 4
    try:
        return InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph, RuntimeException, Unsupported) as error:
        raise InvalidInputError(
            f"model {type(network).__name__} cannot be checked in onnxruntime ({_reason(error)}); "
            "change the part named there, or its numbers to float32."
        ) from error


def _check_outputs(session: Any, network: nn.Module, inputs: Tensor) -> None:
    expected = _outputs(network, inputs)
    outputs = _run(session, inputs)
    difference = math.inf
    if outputs.shape == expected.shape:
        difference = float((torch.from_numpy(outputs).double() - expected.double()).abs().max())
    tolerance = HALF_TOLERANCE if expected.dtype == torch.float16 else TOLERANCE
    if not difference <= tolerance * float(expected.double().abs().max()):
        raise InvalidInputError(
            f"model {type(network).__name__} is not the same in ONNX: for {len(inputs)} rows outputs differ by "
            f"{difference:g}; look for a part that depends on the number of rows, is random in eval mode or works in "
            "half precision."
        )


def _run(session: Any, inputs: Tensor) -> NDArray[Any]:
    """What onnxruntime gives; nothing where it cannot run the graph on so many rows."""
    from onnxruntime.capi.onnxruntime_pybind11_state import (
        Fail,
        InvalidArgument,
        RuntimeException,
    )

    try:
        return np.asarray(session.run(["outputs"], {"inputs": inputs.numpy()})[0])
    except (Fail, InvalidArgument, RuntimeException):
        return np.empty(0)

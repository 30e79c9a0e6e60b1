"""What can be read in chunks, and how: nothing is ever copied as a whole.

Arrays in memory or on disk (``numpy.memmap``), tensors, data frames and CSR matrices are cut into blocks of rows;
PyArrow tables, datasets, scanners and readers come as record batches; an iterator or a list of matrices is taken block
by block. PyArrow, Dask and scipy are recognised by what their types have, so that none is imported where it is not
used. Two samples that lie in memory become tensors of one type.

Names of columns: where two samples have them, moments are compared of columns with the same name only.

Frames (pandas, Dask) and all of PyArrow name their columns, arrays and tensors do not. As for estimators, names are
strings: a frame whose columns are numbered has none.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from momentalign.errors import InvalidInputError, InvalidTypeError

__all__ = [
    "HIGHEST_ORDER",
    "Block",
    "column_names",
    "is_arrow",
    "is_dask",
    "is_lazy",
    "read_blocks",
    "read_chunks",
    "read_matrix",
    "read_pair",
    "read_sample",
    "refuse_differing_names",
    "refuse_non_finite",
    "refuse_other_names",
]

Block: TypeAlias = Any  # a numpy array (rows, width), float32 or float64 in C order, or a CSR matrix

HIGHEST_ORDER = 10
"""Of what is read in chunks; above, merging loses digits: a sum of powers moves by binomials of its order."""
# Numbers that are converted at a time: they stay in the cache.
_STEP = 2**17
# Rows of a data set on disk that are read at a time.
_BATCH_ROWS = 2**15


def is_lazy(data: object) -> bool:
    """Return whether `data` is to be read in chunks: Dask, PyArrow, a memory map or an iterator of blocks."""
    return isinstance(data, np.memmap) or is_dask(data) or is_arrow(data) or hasattr(data, "__next__")


def is_dask(data: object) -> bool:
    """Return whether `data` is a Dask collection."""
    return type(data).__module__.partition(".")[0] == "dask" and hasattr(data, "__dask_graph__")


def is_arrow(data: object) -> bool:
    """Return whether `data` is of PyArrow."""
    return type(data).__module__.partition(".")[0] == "pyarrow"


def read_chunks(data: Any, name: str = "data") -> Iterator[Any]:
    """Yield `data` as matrices that :func:`read_matrix` takes; all but Dask collections.

    Examples
    --------
    >>> [chunk.shape for chunk in read_chunks(np.ones((3, 2)))]
    [(3, 2)]
    >>> [chunk.shape for chunk in read_chunks(np.ones((rows, 2)) for rows in (3, 4))]
    [(3, 2), (4, 2)]
    """
    if is_arrow(data):
        yield from (_arrow_matrix(batch, name) for batch in _record_batches(data, name))
    elif hasattr(data, "__next__") or _is_list_of_matrices(data):
        yield from data
    else:
        yield data


def _is_list_of_matrices(data: object) -> bool:
    return isinstance(data, list | tuple) and bool(data) and all(getattr(one, "ndim", 0) == 2 for one in data)


def _record_batches(data: Any, name: str) -> Iterator[Any]:
    if hasattr(data, "scanner"):  # a dataset
        yield from data.to_batches(batch_size=_BATCH_ROWS, **_without_reading_ahead(data))
    elif hasattr(data, "scan_batches"):  # a scanner, which knows its own settings
        yield from data.to_batches()
    elif hasattr(data, "to_batches"):  # a table
        yield from data.to_batches(max_chunksize=_BATCH_ROWS)
    elif hasattr(data, "read_next_batch"):  # a reader
        yield from data
    elif hasattr(data, "num_rows"):  # a batch
        yield data
    else:
        raise InvalidTypeError(
            f"{name} must be a PyArrow table, dataset, scanner or record batch reader, got {type(data).__name__}; "
            "make a table of it."
        )


def _without_reading_ahead(dataset: Any) -> dict[str, Any]:
    """Settings of a scan; with PyArrow's own, a file that is read faster than it is worked on is held as a whole."""
    settings: dict[str, Any] = {"batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
    if getattr(getattr(dataset, "format", None), "default_extname", "") == "parquet":
        arrow = importlib.import_module("pyarrow.dataset")
        settings["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(pre_buffer=False)
    return settings


def _arrow_matrix(batch: Any, name: str) -> NDArray[np.float64]:
    """The columns of a record batch side by side."""
    matrix = np.empty((batch.num_rows, batch.num_columns))
    for place, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True)):
        if column.null_count:
            raise InvalidInputError(f"column {field.name!r} of {name} has missing values; remove or impute them first.")
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "biuf":
            raise InvalidTypeError(
                f"column {field.name!r} of {name} must hold numbers, got {field.type}; leave it out or convert it."
            )
        matrix[:, place] = values
    return matrix


def read_matrix(batch: Any, name: str) -> Any:
    """Return a batch as something of shape (rows, width) that can be cut, or say what is wrong with it.

    No values are read. A batch may have no rows, but it has columns.
    """
    matrix = batch if hasattr(batch, "shape") else _as_array(batch, name)
    shape = tuple(matrix.shape)
    if len(shape) != 2:
        raise InvalidInputError(
            f"{name} must be a matrix (rows, features), got shape {shape}; reshape it to two dimensions."
        )
    if shape[1] == 0:
        raise InvalidInputError(f"{name} has no columns, its shape is {shape}; give at least one.")
    if str(getattr(matrix, "layout", "torch.strided")) != "torch.strided":
        raise InvalidTypeError(f"{name} is a sparse tensor; give a dense one, for instance {name}.to_dense().")
    return matrix


def _as_array(batch: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(batch)
    except ValueError as error:
        raise InvalidInputError(f"{name} cannot be read as a matrix of numbers ({error}).") from None


def read_blocks(matrix: Any, name: str) -> Iterator[tuple[slice, Block]]:
    """Yield a matrix as blocks that are ready for sums, each with the place of its rows.

    A CSR matrix and an array of floats in C order are one block as they are; all else is converted some rows at a time.

    Examples
    --------
    >>> [(place, block.dtype) for place, block in read_blocks(np.array([[1, 2], [3, 4]]), "batch")]
    [(slice(0, 2, None), dtype('float64'))]
    """
    rows, width = matrix.shape
    if hasattr(matrix, "tocsr"):
        yield slice(0, rows), _csr(matrix, name)
    elif _is_ready(matrix):
        yield slice(0, rows), matrix.view(np.ndarray)
    else:
        step = max(1, _STEP // width)
        for start in range(0, rows, step):
            place = slice(start, min(start + step, rows))
            yield place, _block(matrix.iloc[place] if hasattr(matrix, "iloc") else matrix[place], name)


def _is_ready(matrix: Any) -> bool:
    return (
        type(matrix) in (np.ndarray, np.memmap)
        and matrix.dtype in (np.float32, np.float64)
        and matrix.dtype.isnative
        and matrix.flags.c_contiguous
        and matrix.flags.aligned
    )


def _block(rows: Any, name: str) -> NDArray[Any]:
    if np.ma.is_masked(rows):
        raise InvalidInputError(f"{name} has masked values; remove or impute them first.")
    array = _from_tensor(rows) if hasattr(rows, "detach") else np.asarray(rows)
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float first.")
    return np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" and array.itemsize <= 4 else np.float64)


def _from_tensor(rows: Any) -> NDArray[Any]:
    """The values of a torch tensor; numpy does not know bfloat16."""
    values = rows.detach().cpu()
    return np.asarray(values.float() if values.is_floating_point() and values.itemsize < 4 else values)


def _csr(matrix: Any, name: str) -> Any:
    """The matrix in CSR form with every place at most once."""
    rows = matrix.tocsr()
    if rows.dtype.kind not in "biuf":
        raise InvalidTypeError(f"{name} must hold real numbers, got dtype {rows.dtype}; convert it to float first.")
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def column_names(data: Any) -> tuple[str, ...] | None:
    """Return the names of the columns, None where there are none; no values are read.

    Examples
    --------
    >>> import pandas as pd
    >>> column_names(pd.DataFrame({"a": [0.0], "b": [1.0]}))
    ('a', 'b')
    >>> column_names(pd.DataFrame([[0.0, 1.0]]))
    """
    names = _arrow_names(data) if is_arrow(data) else getattr(data, "columns", ())
    found = tuple(names) if hasattr(names, "__iter__") else ()
    return found if found and all(isinstance(name, str) for name in found) else None


def _arrow_names(data: Any) -> Any:
    # A scanner may leave out columns of its data.
    schema = getattr(data, "projected_schema", None) or getattr(data, "schema", None)
    return getattr(schema, "names", ())


def refuse_differing_names(samples: Mapping[str, Any]) -> None:
    """Raise if two samples, given by what an error calls them, name their columns and do not name them alike."""
    named = {name: names for name, data in samples.items() if (names := column_names(data)) is not None}
    first = next(iter(named), "")
    for name, names in named.items():
        refuse_other_names(names, name, named[first], first)


def refuse_other_names(names: Sequence[str] | None, name: str, expected: Sequence[str] | None, other: str) -> None:
    """Raise if the columns of `name` are not those of `other`; whether they are as many is for others to see.

    Examples
    --------
    >>> refuse_other_names(("a", "b"), "target", ("a", "b"), "source")
    >>> try:
    ...     refuse_other_names(("b", "a"), "target", ("a", "b"), "source")
    ... except InvalidInputError as error:
    ...     print(error)
    target has the column 'b' where source has 'a'; give both the same columns in the same order.
    """
    if names is None or expected is None or len(names) != len(expected):
        return
    for given, wanted in zip(names, expected, strict=True):
        if given != wanted:
            raise InvalidInputError(
                f"{name} has the column {given!r} where {other} has {wanted!r}; give both the same columns in the same "
                "order."
            )


def read_pair(source: Any, target: Any, *, widened: bool = True) -> tuple[Tensor, Tensor, bool]:
    """Return two samples as float tensors of one dtype on one device, and whether they came as tensors.

    Anything numpy can read as a matrix of numbers is welcome, whole numbers become float64. float16 and bfloat16 are
    widened to float32, so that sums and powers keep their accuracy and range, unless `widened` is False. Columns are
    taken by position; where both samples name them, the names must agree.
    """
    if isinstance(source, Tensor) != isinstance(target, Tensor):
        raise InvalidTypeError(
            f"source and target must both be torch tensors or both be arrays, got {type(source).__name__} and "
            f"{type(target).__name__}; convert one of them."
        )
    differentiable = isinstance(source, Tensor)
    if not differentiable:
        refuse_differing_names({"source": source, "target": target})
    source, target = read_sample(source, "source"), read_sample(target, "target")
    if source.shape[1] != target.shape[1]:
        raise InvalidInputError(
            f"source has {source.shape[1]} columns and target has {target.shape[1]}; give both the same features."
        )
    if source.device != target.device:
        raise InvalidInputError(f"source is on {source.device} and target on {target.device}; move one of them.")
    if source.dtype == target.dtype and source.dtype in (torch.float32, torch.float64):
        return source, target, differentiable
    dtype = torch.promote_types(source.dtype, target.dtype)
    if widened and dtype in (torch.float16, torch.bfloat16):
        dtype = torch.float32
    return source.to(dtype), target.to(dtype), differentiable


def read_sample(sample: Any, name: str) -> Tensor:
    """Return one sample as a floating-point tensor of shape (rows, width), or say what is wrong with it."""
    tensor = sample if isinstance(sample, Tensor) else _from_array(sample, name)
    shape = tensor.shape
    if len(shape) != 2:
        raise InvalidInputError(
            f"{name} must be a matrix (rows, features), got shape {tuple(shape)}; reshape it to two dimensions."
        )
    if tensor.layout is not torch.strided:
        raise InvalidTypeError(f"{name} is a sparse tensor; give a dense one, for instance {name}.to_dense().")
    if 0 in shape:
        raise InvalidInputError(f"{name} is empty, its shape is {tuple(shape)}; give at least one row and one column.")
    if not tensor.is_floating_point():
        raise InvalidTypeError(
            f"{name} must hold real floating-point numbers, got {tensor.dtype}; convert it with .float()."
        )
    return tensor


def _from_array(sample: Any, name: str) -> Tensor:
    if hasattr(sample, "tocsr"):
        raise InvalidTypeError(f"{name} is a scipy sparse matrix; give a dense array, for instance {name}.toarray().")
    if np.ma.is_masked(sample):
        raise InvalidInputError(f"{name} has masked values; remove or impute them first.")
    try:
        array = np.asarray(sample)
    except ValueError as error:
        raise InvalidInputError(f"{name} cannot be read as a matrix of numbers ({error}).") from None
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise InvalidTypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float first.")
    # Torch knows neither foreign byte order nor negative strides nor read-only memory.
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    array = np.require(array, requirements=["C", "W"])
    if any(stride < 0 for stride in array.strides):  # an axis of one entry counts as contiguous whatever its stride
        array = array.copy()
    return torch.from_numpy(array)


def refuse_non_finite(value: Tensor, source: Tensor, target: Tensor, *, remedy: str = "scale them down") -> None:
    """Raise if a distance is not finite, naming the cause.

    One look at the result replaces a look at every input. It is left out on accelerators, where it would stop the
    queue, and inside function transforms, where there is no value to look at.
    """
    if (
        value.device.type != "cpu"
        or torch.compiler.is_compiling()
        or torch._C._functorch.is_functorch_wrapped_tensor(value)
    ):
        return
    numbers = value.tolist()
    if all(map(math.isfinite, numbers if isinstance(numbers, list) else [numbers])):
        return
    for name, sample in (("source", source), ("target", target)):
        if not bool(torch.isfinite(sample.detach()).all()):
            raise InvalidInputError(f"{name} holds NaN or infinite values; remove or impute them first.")
    peak = max(source.detach().abs().max().item(), target.detach().abs().max().item())
    raise InvalidInputError(f"the powers of values as large as {peak:.3g} overflow {source.dtype}; {remedy}.")

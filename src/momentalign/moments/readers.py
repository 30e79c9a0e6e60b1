"""What can be read in chunks, and how: nothing is ever copied as a whole.

Arrays in memory or on disk (``numpy.memmap``), tensors, data frames and CSR matrices are cut into blocks of rows;
PyArrow tables, datasets, scanners and readers come as record batches; an iterator or a list of matrices is taken block
by block. Torch, PyArrow, Dask and scipy are recognised by what their types have; none is imported where it is not used.

Frames (pandas, Dask) and all of PyArrow name their columns, and only columns of one name are compared. As for
estimators, names are strings: a frame whose columns are numbered has none.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    "refuse_differing_names",
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
    for index, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True)):
        if column.null_count:
            raise InvalidInputError(f"column {field.name!r} of {name} has missing values; remove or impute them first.")
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "biuf":
            raise InvalidTypeError(
                f"column {field.name!r} of {name} must hold numbers, got {field.type}; leave it out or convert it."
            )
        matrix[:, index] = values
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
    if getattr(matrix, "is_meta", False):
        raise InvalidTypeError(f"{name} is on the meta device and holds no numbers; give a tensor that does.")
    if str(getattr(matrix, "layout", "torch.strided")) != "torch.strided":
        raise InvalidTypeError(f"{name} is a sparse tensor; give a dense one, for instance {name}.to_dense().")
    return matrix


def _as_array(batch: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(batch)
    except ValueError as error:
        raise InvalidInputError(f"{name} cannot be read as a matrix of numbers ({error}).") from None


def read_blocks(matrix: Any, name: str) -> Iterator[tuple[slice, Block]]:
    """Yield a matrix as blocks that are ready for sums, each with the slice of its rows.

    A CSR matrix and an array of floats in C order are one block as they are; all else is converted some rows at a time.

    Examples
    --------
    >>> [(part, block.dtype) for part, block in read_blocks(np.array([[1, 2], [3, 4]]), "batch")]
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
            part = slice(start, min(start + step, rows))
            yield part, _block(matrix.iloc[part] if hasattr(matrix, "iloc") else matrix[part], name)


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
    """The matrix in CSR form with every entry at most once."""
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

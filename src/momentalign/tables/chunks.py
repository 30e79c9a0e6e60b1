"""Rows in chunks for data larger than memory: from arrays, from .npy files, from tables.

Each class is iterated as often as wanted and begins with the first row every time, in the order of the file: a training
reads it once in every epoch. It yields (rows, labels), or rows alone where there are no labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.tables.encoders import kind_of
from momentalign.tables.opening import find_path, reading
from momentalign.tables.read import LabelType, find_label_type, joint_label_type, read_chunks
from momentalign.tables.table import Kind, Table, quoted
from momentalign.validation import positive_int

__all__ = ["ROWS", "ArrayChunks", "FileChunks", "NpyChunks"]

ROWS = 65_536
"""Rows of a chunk unless told otherwise: with 100 columns of float32, 26 MB."""


class ArrayChunks:
    """Slices of an array or a scipy CSR matrix, and of its labels.

    Of a ``np.memmap`` every page that was read counts as memory of the process until the system wants it back; to
    read an .npy file take :class:`NpyChunks`, which lets go of them.

    Examples
    --------
    >>> chunks = ArrayChunks(np.zeros((5, 3)), np.arange(5), rows=2)
    >>> [labels.tolist() for _, labels in chunks]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, X: Any, y: Any = None, *, rows: int = ROWS) -> None:
        self._X = X.tocsr() if sparse.issparse(X) else X  # type: ignore[attr-defined]
        if getattr(self._X, "ndim", 0) != 2 or not (sparse.issparse(X) or isinstance(X, np.ndarray)):
            raise InvalidTypeError(
                f"X must be an array or a CSR matrix of two dimensions, got {type(X).__name__}; convert it first."
            )
        self._y = None if y is None else np.asarray(y)
        self._rows = positive_int(rows, "rows", example=str(ROWS))
        _refuse_other_length(self._X.shape[0], self._y, "y", "X")

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self._X.shape[0], self._rows):
            part = slice(start, start + self._rows)
            yield self._X[part] if self._y is None else (self._X[part], self._y[part])


class NpyChunks:
    """Rows of an .npy file, and labels of another; no more of them in memory than a chunk.

    The file is mapped for each chunk, copied from and let go, so that pages of earlier chunks count no more.

    Parameters
    ----------
    X
        File of an array (rows, columns) of numbers, as ``np.save`` writes it.
    y
        File of an array with one label per row, or of (rows, outputs).
    rows
        Rows of a chunk.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "X.npy", np.arange(6.0).reshape(3, 2))
    ...     [rows.tolist() for rows in NpyChunks(Path(folder) / "X.npy", rows=2)]
    [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
    """

    def __init__(self, X: str | Path, y: str | Path | None = None, *, rows: int = ROWS) -> None:
        self._X, self._y = find_path(X), None if y is None else find_path(y)
        self._rows = positive_int(rows, "rows", example=str(ROWS))
        mapped = _mapped(self._X)
        if mapped.ndim != 2 or mapped.dtype.kind not in "biuf":
            raise InvalidInputError(
                f"{self._X} holds {mapped.dtype} of shape {mapped.shape}; give numbers of two dimensions."
            )
        self._count = mapped.shape[0]
        _refuse_other_length(self._count, None if self._y is None else _mapped(self._y), str(y), str(X))

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self._count, self._rows):
            part = slice(start, start + self._rows)
            rows = np.array(_mapped(self._X)[part])
            yield rows if self._y is None else (rows, np.array(_mapped(self._y)[part]))


class FileChunks:
    r"""Rows of a table on disk: Parquet, CSV, npz or svmlight, or a folder of Parquet files by name.

    Parquet files are read row group by row group, only the columns asked for. Files of one folder must have the same
    columns, and those without rows are passed over; svmlight has `features` columns.

    Parameters
    ----------
    path
        The file or the folder.
    label
        Name of the column of labels (``"label"`` in svmlight); None yields rows alone.
    columns
        The columns to read, in this order; None reads all but the label.
    leave_out
        Columns that are no features, such as a number of the row, or labels of a target.
    rows
        Rows of a chunk; a last chunk of a file has fewer.
    features
        For svmlight: number of columns; column 0 counts, whether the file uses it or not.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     _ = file.write_text("a,b,kind\n" + "1,2,left\n" * 3)
    ...     [(rows.shape, labels.tolist()) for rows, labels in FileChunks(file, label="kind", rows=2)]
    [((2, 2), ['left', 'left']), ((1, 2), ['left'])]
    """

    def __init__(
        self,
        path: str | Path,
        *,
        label: str | None = None,
        columns: Sequence[str] | None = None,
        leave_out: Sequence[str] = (),
        rows: int = ROWS,
        features: int | None = None,
    ) -> None:
        self._path = find_path(path)
        self._files = _files(self._path)
        self._label = label
        self._columns = None if columns is None else list(columns)
        self._leave_out = list(leave_out)
        self._rows = positive_int(rows, "rows", example=str(ROWS))
        self._features = features

        self._kinds: dict[str, Kind] = {}
        self._label_as: LabelType | None = None

    def __iter__(self) -> Iterator[Any]:
        if self._label is not None and self._label_as is None:
            # What the labels are is decided by those of all files, once.
            self._label_as = joint_label_type([find_label_type(file, self._label) for file in self._files])
        columns, empty = self._columns, True
        for file in self._files:
            for table in read_chunks(
                file,
                rows=self._rows,
                label=self._label,
                label_as=self._label_as,
                columns=columns,
                kinds=self._kinds,
                rows_required=file == self._path,
            ):
                empty = False
                if self._label is not None and table.labels is None:
                    raise InvalidInputError(
                        f"{file} has no label column {self._label!r}; its columns are {quoted(table.columns)}."
                    )
                rows = self._widened(file, table) if sparse.issparse(table.rows) else self._numbers(file, table)
                # Later files give the columns of the first, in its order.
                columns = None if sparse.issparse(rows) else list(rows.columns)
                yield rows if self._label is None else (rows, table.labels)
        if empty:
            raise InvalidInputError(
                f"{self._path} has no rows in any of its files; give a folder with at least one row."
            )

    def _numbers(self, file: Path, table: Table) -> Any:
        rows: Any = table.rows
        rows = rows.drop(columns=[name for name in self._leave_out if name in rows.columns])
        others = [name for name in rows.columns if kind_of(rows[name]) != "number"]
        if others:
            raise InvalidInputError(
                f"{file}: columns {quoted(others)} hold no numbers; name the others in columns=[...] or encode them."
            )
        self._kinds = dict.fromkeys(rows.columns, "number")
        return rows

    def _widened(self, file: Path, table: Table) -> sparse.csr_matrix:
        """Return a part of an svmlight file, which is as wide as its largest index, with all columns."""
        width = table.rows.shape[1]
        if self._features is None:
            raise InvalidInputError(
                f"{file} does not say how many columns it has; give it, for instance features={width}."
            )
        if width > self._features:
            raise InvalidInputError(
                f"{file} has column {width - 1} in rows {table.start + 1} to {table.start + len(table)}, features is "
                f"{self._features}; give at least {width}."
            )
        rows: Any = table.rows.copy()
        rows.resize((rows.shape[0], self._features))
        return sparse.csr_matrix(rows)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix in (".parquet", ".pq"))
    if not files:
        raise InvalidInputError(f"{path} holds no .parquet file; give a folder of them, or a single file.")
    return files


def _mapped(path: Path) -> NDArray[Any]:
    with reading(path, ".npy file of numbers", (ValueError,)):
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def _refuse_other_length(count: int, labels: NDArray[Any] | None, name: str, other: str) -> None:
    if labels is not None and len(labels) != count:
        raise InvalidInputError(f"{name} has {len(labels)} labels, {other} has {count} rows; give one label per row.")

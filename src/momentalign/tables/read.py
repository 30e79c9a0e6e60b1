"""One door to all tables: a whole file or frame, or the rows of a file chunk by chunk where it is larger than memory.

Labels stay as they are written: 007 is a name. What labels of text can be read as is decided by all of them.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from momentalign.errors import InvalidInputError, InvalidTypeError, MomentAlignWarning
from momentalign.tables import formats
from momentalign.tables.database import is_database, read_database, without_password
from momentalign.tables.delimited import read_delimited
from momentalign.tables.opening import FileFormat, find_format, find_path, one_line, reading
from momentalign.tables.table import KINDS, Kind, Request, Table, check_cells, is_unicode, shown, split_frame
from momentalign.validation import positive_int

__all__ = [
    "LabelType",
    "check_labels",
    "convert_labels",
    "find_label_type",
    "joint_label_type",
    "label_type",
    "read_chunks",
    "read_table",
]

LabelType: TypeAlias = Literal["whole", "float", "text"]
# From the narrowest to the widest: a column has the widest type of its parts.
_TYPES: tuple[LabelType, ...] = ("whole", "float", "text")
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
# 007 is a name, not a number.
_PADDED = re.compile(r"[+-]?0\d.*")

_READERS: dict[FileFormat, Callable[[Path, Request], Iterator[Table]]] = {
    "csv": read_delimited,
    "parquet": formats.read_parquet,
    "feather": formats.read_feather,
    "jsonlines": formats.read_json_lines,
    "excel": formats.read_excel,
    "npz": formats.read_archive,
    "svmlight": formats.read_svmlight,
    "images": formats.read_image_folder,
}
# Rows whose labels are looked at together.
_LABELS = 65_536


def read_table(
    data: Any,
    *,
    name: str = "the table",
    label: str | None = None,
    regression: bool = False,
    label_required: bool = True,
    drop_unlabelled: bool = False,
    id_column: str | None = None,
    columns: Sequence[str] | None = None,
    kinds: Mapping[str, Kind] | None = None,
) -> Table:
    r"""Read a whole file, or take a frame.

    Parameters
    ----------
    data
        The path of a CSV or TSV file (also compressed), of Parquet, Feather, JSON lines, Excel, npz, npy or svmlight,
        or of a folder of images; a table of a database, as in ``"sqlite:///shop.db#customers"``; or a frame of pandas,
        or of any library whose frames have ``to_pandas``: polars, Arrow, Hugging Face datasets. Labels of a frame stay
        as they are.
    name
        What errors call a frame.
    label
        Column of the labels, set apart; ``"label"`` in an svmlight file and in a folder of images.
    regression
        Whether labels are numbers to predict, float64; if not, they stay as they are written.
    label_required
        Whether a table without the label column is refused; if not, labels that are there are set apart unchecked.
    drop_unlabelled
        Whether rows without a label are left out with a warning; if not, they are an error.
    id_column
        Column that identifies rows, set apart; ``"file"`` in a folder of images.
    columns
        The columns to read, all of which must be there; None reads all.
    kinds
        What columns hold (``"number"``, ``"date"`` or ``"text"``) where that is known.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pets.csv"
    ...     _ = file.write_text("weight;age;pet\n4.5;3;cat\n20;NA;dog\n")
    ...     table = read_table(file, label="pet")
    >>> table.rows["weight"].tolist(), table.labels.tolist()
    ([4.5, 20.0], ['cat', 'dog'])
    >>> read_table(pd.DataFrame({"a": [1.0, 2.0], "y": ["1", "2"]}), label="y").columns
    ['a']
    """
    for argument, value in (("label", label), ("id_column", id_column)):
        if not isinstance(value, str | None):
            raise InvalidTypeError(f"{argument} must be the name of a column, got {value!r:.80}.")
    request = Request(None, label, label_required, id_column, columns, _check_kinds(kinds))
    is_path = isinstance(data, str | Path)
    if is_path:
        where, parts = _open(data, request)
        table = next(parts, None)
    else:
        where, table = name, _take_frame(data, name, request)
    if table is None or not len(table):
        raise InvalidInputError(f"{where} has no rows; give {'a file with ' if is_path else ''}at least one.")
    if drop_unlabelled:
        table = _without_unlabelled(table, where)
    if table.labels is None or label is None:
        return table
    if is_path:
        labels = convert_labels(table.labels, label_type(table.labels))
    else:
        labels = pd.Series(table.labels).infer_objects().to_numpy()  # of a nullable column they are objects
    if label_required:
        labels = check_labels(labels, table.label or label, where, regression=regression)
    return replace(table, labels=labels)


def _open(data: str | Path, request: Request) -> tuple[str, Iterator[Table]]:
    """Return what errors call a file or a table of a database, and its rows."""
    if is_database(data):
        return without_password(data), read_database(data, request)
    path = find_path(data)
    return str(path), _read_file(path, request)


def _read_file(path: Path, request: Request) -> Iterator[Table]:
    with reading(path):
        found = find_format(path)
    with reading(path, *formats.DAMAGES.get(found, ())):
        yield from _READERS[found](path, request)


def _take_frame(data: Any, name: str, request: Request) -> Table:
    try:
        whole = data.collect() if hasattr(data, "collect") else data  # a LazyFrame of polars
        frame = whole.to_pandas() if hasattr(whole, "to_pandas") else whole
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"{name} cannot be read as a frame of pandas ({one_line(error)}); convert it before."
        ) from error
    if isinstance(frame, type) or not (hasattr(frame, "iloc") and hasattr(frame, "columns")):
        splits = f"; give one of its parts, {name}[{next(iter(data))!r}]" if isinstance(data, Mapping) and data else ""
        raise InvalidTypeError(f"{name} must be a path or a frame, got {type(data).__name__}{splits}.")
    names = [str(column) for column in frame.columns]
    for column in names:
        if not is_unicode(column):
            raise InvalidInputError(f"{name}: the column name {shown(column)} is not valid Unicode; rename the column.")
    frame = frame.set_axis(names, axis=1)
    request = request.resolve(names, name)
    frame = frame[request.columns]
    # pandas cannot count values of more than 64 bits.
    frame = frame.astype({column: np.float64 for column, kind in frame.dtypes.items() if kind == np.longdouble})
    check_cells(frame, name)
    return split_frame(frame, request, 0)


def _without_unlabelled(table: Table, where: object) -> Table:
    """Leave out the rows without a label, and say how many they are; of labels that are all missing none goes."""
    if table.labels is None:
        return table
    known = pd.notna(table.labels)
    if known.all() or not known.any():
        return table
    count = f"{len(known) - known.sum():,} of {len(known):,} rows"
    note = f"{where}: {count} have no label in column {table.label!r} and are left out."
    warnings.warn(note, MomentAlignWarning, stacklevel=4)
    rows: Any = table.rows[known]
    ids = None if table.ids is None else table.ids[known]
    if hasattr(rows, "reset_index"):
        rows = rows.reset_index(drop=True)
    return replace(table, rows=rows, labels=table.labels[known], ids=ids, notes=(note,))


def read_chunks(
    path: str | Path,
    *,
    rows: int = 65_536,
    label: str | None = None,
    label_as: LabelType | None = None,
    id_column: str | None = None,
    columns: Sequence[str] | None = None,
    kinds: Mapping[str, Kind] | None = None,
    rows_required: bool = True,
) -> Iterator[Table]:
    r"""Yield the rows of a file in order, `rows` at a time, never more of them in memory than that.

    JSON lines and Excel are an exception: they are read as a whole. What a column of text holds is decided by the whole
    file, which is read once for that, unless `kinds` tells it: pass the ``kinds_`` and ``columns_`` of a fitted
    :class:`~momentalign.tables.preprocess.Preprocessor`. `label_as` is what :func:`find_label_type` found. A `label`
    that is not there is no error. A file without rows is refused unless `rows_required` is False: one of several files
    of a table may have none, as Spark writes them. The other parameters are those of :func:`read_table`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     _ = file.write_text("a,b\n" + "1,2\n" * 5)
    ...     [len(chunk) for chunk in read_chunks(file, rows=2)]
    [2, 2, 1]
    """
    positive_int(rows, "rows", example="65536")
    request = Request(rows, label, False, id_column, columns, _check_kinds(kinds))
    where, parts = _open(path, request)
    if label is not None and label_as is None:
        label_as = find_label_type(path, label)
    return _chunks(parts, where, label_as, rows_required=rows_required)


def _chunks(parts: Iterator[Table], where: str, label_as: LabelType | None, *, rows_required: bool) -> Iterator[Table]:
    empty = True
    for part in parts:
        empty = False
        yield part if part.labels is None else replace(part, labels=convert_labels(part.labels, label_as))
    if empty and rows_required:
        raise InvalidInputError(f"{where} has no rows; give a file with at least one.")


def find_label_type(path: str | Path, label: str) -> LabelType | None:
    """Return what the labels of a whole file are, by one reading of their column; None for numbers of a typed file."""
    _, parts = _open(path, Request(_LABELS, label, label_required=False, columns=()))
    return joint_label_type([label_type(part.labels) for part in parts if part.labels is not None])


def check_labels(labels: NDArray[Any], name: str, where: object, *, regression: bool = False) -> NDArray[Any]:
    """Return labels that can be learned from, or say which rows cannot.

    Parameters
    ----------
    labels
        The cells of the label column.
    name
        Name of the column.
    where
        The file, for errors.
    regression
        Whether the labels must be numbers: float64. Classes stay as they are.

    Examples
    --------
    >>> check_labels(np.array([2, 10, 2]), "y", "a.csv").tolist()
    [2, 10, 2]
    >>> check_labels(np.array(["2.5", "1"]), "y", "a.csv", regression=True).tolist()
    [2.5, 1.0]
    """
    absent = np.flatnonzero(pd.isna(labels))
    if len(absent):
        rows = ", ".join(str(row + 1) for row in absent[:5]) + (", ..." if len(absent) > 5 else "")
        raise InvalidInputError(
            f"{where}: label column {name!r} is empty in {len(absent)} rows ({rows}); fill them in or remove the rows."
        )
    _check_kind(labels, name, where, regression=regression)
    if regression:
        values = np.asarray(pd.to_numeric(pd.Series(labels), errors="coerce"), dtype=np.float64)
        wrong = ~np.isfinite(values)
        if wrong.any():
            row = int(wrong.argmax())
            raise InvalidInputError(
                f"{where}: label column {name!r}, row {row + 1} holds {shown(labels[row])}, which is not a number to "
                "predict; correct it or train a classifier."
            )
        labels = values
    if len(labels) and (labels == labels[0]).all():
        raise InvalidInputError(
            f"{where}: label column {name!r} holds {shown(labels[0])} in every row; give a column with at least two "
            "values."
        )
    return labels


def _check_kind(labels: NDArray[Any], name: str, where: object, *, regression: bool) -> None:
    """Refuse labels that no model can be saved with: dates, and objects that are neither numbers nor text."""
    known = (int, float, str, Decimal) if regression else (int, float, str)
    wrong = [0] if labels.dtype.kind not in "biufOU" else []
    if labels.dtype.kind == "O":
        wrong = [row for row, label in enumerate(labels.tolist()) if not isinstance(label, known)]
        wrong += [row for row, label in enumerate(labels.tolist()) if isinstance(label, int) and abs(label) >= 2**64]
    if wrong:
        raise InvalidTypeError(
            f"{where}: label column {name!r}, row {wrong[0] + 1}, holds {shown(labels[wrong[0]])}, which cannot be a "
            "label; convert the column to numbers or text."
        )


def label_type(labels: NDArray[Any]) -> LabelType | None:
    """Return what labels written as text can be read as; None for labels that are numbers already.

    Different labels stay different: 1_0 is text, and so are digits of other scripts and numbers of more digits than a
    float has.
    """
    if labels.dtype.kind in "biuf":
        return None
    codes, seen = pd.factorize(labels)
    texts = [str(text) for text in seen]
    if (codes < 0).any() or any(_PADDED.fullmatch(text) for text in texts if "." not in text):
        return "text"
    if not all(text.isascii() for text in texts):  # Python reads digits of every script.
        return "text"
    if all(_WHOLE.fullmatch(text) and len(text) < 19 for text in texts):
        return "whole"
    try:
        numbers = [float(text) for text in texts]
        exact = {Decimal(text) for text in texts}
    except (ValueError, InvalidOperation):
        return "text"
    # A whole number beyond 2^53 may be another one as a float, perhaps that of another part of the file.
    named = any(_WHOLE.fullmatch(text) and abs(number) > 2**53 for text, number in zip(texts, numbers, strict=True))
    distinct = len(set(numbers)) == len(exact) and all(map(math.isfinite, numbers)) and not named
    return "float" if distinct and not any("_" in text for text in texts) else "text"


def joint_label_type(types: Sequence[LabelType | None]) -> LabelType | None:
    """Return the type of a column whose parts have these types: the widest of them.

    Examples
    --------
    >>> joint_label_type(["whole", "text", "float"])
    'text'
    """
    return max((found for found in types if found is not None), key=_TYPES.index, default=None)


def convert_labels(labels: NDArray[Any], found: LabelType | None) -> NDArray[Any]:
    """Return labels written as text as what they are; labels that are numbers already stay as they are."""
    if found is None or labels.dtype.kind in "biuf":
        return labels
    if found == "text":
        return labels.astype(object)
    codes, seen = pd.factorize(labels)
    if found == "whole":
        return np.array([int(text) for text in seen], dtype=np.int64)[codes]
    return np.array([float(text) for text in seen])[codes]


def _check_kinds(kinds: Mapping[str, Kind] | None) -> Mapping[str, Kind]:
    for name, kind in (kinds or {}).items():
        if kind not in KINDS:
            raise InvalidInputError(f"kinds[{name!r}] must be one of {', '.join(KINDS)}, got {kind!r}.")
    return kinds or {}

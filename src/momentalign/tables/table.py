"""Rows of a file with their names, labels and identifiers apart, and what a caller asks of a reader.

Labels of a file: classes as they are written, or numbers; none missing, not all the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from momentalign.errors import InvalidInputError
from momentalign.tables.encoders import Kind

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LabelKind",
    "Request",
    "Rows",
    "Table",
    "check_labels",
    "quoted",
    "refuse_duplicates",
    "shown",
    "split_frame",
]

Rows: TypeAlias = "pd.DataFrame | sparse.csr_matrix | NDArray[np.float32]"


@dataclass(frozen=True)
class Table:
    """Rows of a file.

    Attributes
    ----------
    rows
        A DataFrame; CSR of float32 for svmlight and sparse archives; an array of float32 for images.
    labels
        The label of each row, or None.
    ids
        The identifier of each row, or None.
    start
        How many rows of the file stand before these.
    """

    rows: Rows
    labels: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    start: int = 0

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @property
    def columns(self) -> list[str]:
        """Names of the columns; those of a matrix are their numbers."""
        if isinstance(self.rows, np.ndarray) or sparse.issparse(self.rows):
            return [str(column) for column in range(self.rows.shape[1])]
        return [str(name) for name in self.rows.columns]


@dataclass(frozen=True)
class Request:
    """What is asked of a reader; `rows` of None asks for all of them at once."""

    rows: int | None = None
    label: str | None = None
    label_required: bool = True
    id_column: str | None = None
    columns: Sequence[str] | None = None
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    side: int = 32

    def choose(self, names: Sequence[str], path: Path) -> list[str]:
        """Return the columns to read of those a file has, or name what it lacks."""
        refuse_duplicates(names, path)
        for name, role in ((self.label, "label"), (self.id_column, "id")):
            if name is not None and name not in names and (role == "id" or self.label_required):
                raise InvalidInputError(f"{path} has no {role} column {name!r}; its columns are {quoted(names)}.")
        apart = [name for name in (self.label, self.id_column) if name is not None and name in names]
        if self.columns is None:
            return list(names)
        absent = [name for name in self.columns if name not in set(names)]
        if absent:
            raise InvalidInputError(
                f"{path} lacks {len(absent)} of {len(self.columns)} columns the model was trained with: "
                f"{quoted(absent)}; add them."
            )
        return list(dict.fromkeys([*self.columns, *apart]))

    def kind(self, name: str) -> Kind | None:
        """What a column of text is to be read as; labels and identifiers stay as they are written."""
        return "text" if name in (self.label, self.id_column) else self.kinds.get(name)


def split_frame(frame: pd.DataFrame, request: Request, start: int) -> Table:
    """Set labels and identifiers apart from the rest."""
    apart = [name for name in (request.label, request.id_column) if name is not None and name in frame.columns]
    labels, ids = (
        frame[name].to_numpy() if name is not None and name in frame.columns else None
        for name in (request.label, request.id_column)
    )
    return Table(frame.drop(columns=apart), labels, ids, start)


def quoted(names: Sequence[Any], most: int = 10) -> str:
    """Names as a message lists them.

    Examples
    --------
    >>> quoted(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    listed = ", ".join(map(shown, names[:most]))
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def shown(cell: Any) -> str:
    """A cell as a message shows it: short, a number as a number.

    Examples
    --------
    >>> shown(np.float64(1.5)), shown("x" * 99)
    ('1.5', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
    """
    plain = cell.item() if isinstance(cell, np.generic) else cell
    return f"{plain!r:.40}"


def refuse_duplicates(names: Sequence[str], where: object) -> None:
    """Name the columns that stand twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInputError(f"{where} has more than one column named {quoted(twice)}; give each its own name.")


LabelKind: TypeAlias = Literal["classes", "numbers"]
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
# 007 is a name.
_PADDED = re.compile(r"[+-]?0\d.*")


def check_labels(labels: NDArray[Any], name: str, path: Path, *, kind: LabelKind = "classes") -> NDArray[Any]:
    """Return labels that can be learned from, or say which rows are in the way.

    Parameters
    ----------
    labels
        The cells of the label column.
    name
        Name of the column.
    path
        The file, for errors.
    kind
        ``"classes"``: strings or numbers, as they are written; ``"numbers"``: float64.

    Examples
    --------
    >>> check_labels(np.array(["2", "10", "2"], dtype=object), "y", Path("a.csv")).tolist()
    [2, 10, 2]
    >>> check_labels(np.array(["cat", "dog"], dtype=object), "y", Path("a.csv")).tolist()
    ['cat', 'dog']
    """
    import pandas as pd

    if kind not in ("classes", "numbers"):
        raise InvalidInputError(f'label_kind must be "classes" or "numbers", got {kind!r}.')
    absent = np.flatnonzero(pd.isna(labels))
    if len(absent):
        rows = ", ".join(str(row + 1) for row in absent[:5]) + (", ..." if len(absent) > 5 else "")
        raise InvalidInputError(
            f"{path}: label column {name!r} is empty in {len(absent)} rows ({rows}); fill them in or remove the rows."
        )
    values = read_labels(labels)
    if kind == "numbers":
        values = _numbers(values, name, path)
    if len(labels) and (values == values[0]).all():
        raise InvalidInputError(
            f"{path}: label column {name!r} holds {shown(values[0])} in every row; give a column with at "
            "least two values."
        )
    return values


def read_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels that were read as text as whole numbers or numbers where all are, else as they are."""
    import pandas as pd

    if labels.dtype.kind in "biuf":
        return labels
    codes, seen = pd.factorize(labels)
    words = [str(word) for word in seen]
    if (codes < 0).any() or any(_PADDED.fullmatch(word) for word in words if "." not in word):
        return labels.astype(object)
    if all(_WHOLE.fullmatch(word) and len(word) < 19 for word in words):
        return np.array([int(word) for word in words], dtype=np.int64)[codes]
    try:
        return np.array([float(word) for word in words])[codes]
    except ValueError:
        return np.array(words, dtype=object)[codes]


def _numbers(labels: NDArray[Any], name: str, path: Path) -> NDArray[np.float64]:
    import pandas as pd

    values = np.asarray(pd.to_numeric(pd.Series(labels), errors="coerce"), dtype=np.float64)
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"{path}: label column {name!r}, row {row + 1} holds {shown(labels[row])}, which is not a number to "
            "predict; correct it or train a classifier."
        )
    return values
